"""Intake: a table becomes files of rows and sorted runs of owners, in this process or in workers.

Rows are read a block at a time, in the order of the table. A row's number is its position in the table, after all rows
added before; a row that is left out, because its owner was erased, keeps its number as a hole. So a worker can take in
a part of a table without the others. No manifest names these rows yet: an intake that fails has changed nothing. Rows
of erased people are never written.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from ... import tables
from ...encoding.bounds import Extents
from ...encoding.encoder import Encoder
from ...encoding.placement import Placement, RowNumbers
from ...errors import ErasedId
from ...exact.arrays import Floats
from ...exact.moments import Moments
from ...learning.blueprint import Blueprint
from ...saving import files
from ...stores.change import Change
from ...tables import Block, Schema, check_parts
from ..certificates.commitments import Commitments
from ..disk.folder import VaultIdentity
from ..disk.manifest import ImmutableFile, PeopleSegment, Planning, RowSegment
from ..disk.people import Hashes, People, hash_ids, segment_bytes
from ..disk.rowfile import RowFile, entry_words, pack_rows
from ..disk.runs import AnyRun, RunCollector, merge_all_ranges
from ..disk.snapshot import OwnershipCount
from .choice import rank_people
from .plan import RequestContext

ProgressCallback: TypeAlias = Callable[[str, int, int | None], None]  # stage, rows just done, of how many


def ignore_progress(stage: str, rows: int, total: int | None) -> None:
    """Show no progress."""


def admit_rows(
    schema: Schema, blueprint: Blueprint, X: Floats, y: Floats, *, clip: bool = False
) -> tuple[Floats, Floats, int]:
    """Return rows as they will be stored, and how many of their values were moved to a bound; refuse a row outside.

    Values are moved if the schema says so for their column, or, for all columns, if the training or the caller does.
    """
    inside = schema.clip(X), schema.clip_targets(y)
    kept = blueprint.admit(*inside, schema.inputs, schema.targets, clip=clip or blueprint.clip)
    moved = sum(int(np.count_nonzero(a != b)) for a, b in zip(kept, (X, y), strict=True) if a is not b)
    return *kept, moved


@dataclass(frozen=True)
class IntakeSummary:
    """The result of an intake, without any row or id."""

    rows: int  # numbers used, including holes
    holes: RowNumbers  # the numbers of rows that were left out
    erased: frozenset[bytes]  # hashes of erased ids that were seen
    clipped: int  # values that were moved to a bound
    extents: Extents  # of the rows that were kept, where bounds are observed
    leaves: frozenset[bytes]  # commitments to the people, if there will be receipts

    @classmethod
    def combine(cls, blueprint: Blueprint, parts: "Sequence[IntakeSummary]") -> "IntakeSummary":
        """Combine the summaries of the parts of one table, in their order."""
        return cls(
            sum(part.rows for part in parts),
            np.concatenate([np.empty(0, dtype=np.int64), *(part.holes for part in parts)]),
            frozenset().union(*(part.erased for part in parts)),
            sum(part.clipped for part in parts),
            blueprint.measure().merge([part.extents for part in parts]),
            frozenset().union(*(part.leaves for part in parts)),
        )

    @property
    def kept_rows(self) -> int:
        """How many rows were stored."""
        return self.rows - len(self.holes)

    def refuse_erased(self) -> None:
        """Refuse a table that contains erased people."""
        if self.erased:
            ids = "1 id in this table was" if len(self.erased) == 1 else f"{len(self.erased):,} ids in this table were"
            raise ErasedId(
                f"{ids} erased before; nothing was changed. Leave their rows out (--skip-erased, skip_erased=True), "
                "or readmit people who consented again"
            )


@dataclass
class Intake:
    """An intake in progress: where rows are written, their owners, and the people who are left out."""

    identity: VaultIdentity
    schema: Schema
    blueprint: Blueprint
    people: People  # before these rows
    first_row: int  # the number of the first row
    collector: RunCollector
    planning: Planning | None = None  # how a plan ranks people
    commitments: Commitments | None = None  # to the people, for their receipts
    clip: bool = False  # whether values outside declared bounds are moved to the bound
    check_process: Callable[[], None] = lambda: None  # raises in a forked child, before and after each block
    _rows: int = 0
    _holes: list[RowNumbers] = field(default_factory=lambda: [np.empty(0, dtype=np.int64)])
    _erased: set[bytes] = field(default_factory=set)
    _clipped: int = 0
    _extents: Extents | None = None
    _leaves: set[bytes] = field(default_factory=set)

    def write_rows(
        self, path: files.Location, blocks: Iterable[Block], entry: int = 0, *, wipe_on_failure: bool = False
    ) -> Iterator[int]:
        """Write rows into a file from its ``entry`` on, and sync it at the end; yield the number of rows per block.

        With ``wipe_on_failure`` the file holds zeros if the intake fails, even if it lost its name meanwhile.
        """
        words = entry_words(len(self.schema.inputs), len(self.schema.targets))
        with (
            files.open_file(path, os.O_WRONLY | os.O_CREAT) as fd,
            files.zero_on_error(fd) if wipe_on_failure else nullcontext(),
        ):
            for table in check_parts(blocks, self._admit_block):
                self.check_process()
                files.write_all(fd, table.reshape(-1).view(np.uint8).data, (entry + self._rows) * 8 * words)
                self._rows += len(table)
                yield len(table)
                self.check_process()  # the progress callback may have forked
            files.sync(fd)
            self.check_process()

    def _admit_block(self, block: Block) -> Floats:
        """Return the entries of a block as they will be stored, empty for erased people."""
        assert block.ids is not None
        assert block.y is not None
        ids, rows = block.ids, self.first_row + self._rows + np.arange(len(block))
        # All rows are checked, also those that are left out: an error must not reveal who was erased.
        X, y, clipped = admit_rows(self.schema, self.blueprint, block.X, block.y, clip=self.clip)
        hashes = hash_ids(self.identity.key, ids)
        kept = self._find_kept(hashes)
        if not kept.all():
            self._holes.append(rows[~kept])
            ids, hashes = [person for person, keep in zip(ids, kept.tolist(), strict=True) if keep], hashes[kept]
            _, _, clipped = admit_rows(self.schema, self.blueprint, block.X[kept], block.y[kept], clip=self.clip)
            X, y = X[kept], y[kept]
        self._clipped += clipped
        if self._extents is None:
            self._extents = self.blueprint.measure()
        if self.blueprint.observed:
            self._extents = self._extents.widen(X, y)
        if self.commitments is not None:
            self._leaves.update(self.commitments.compute(set(ids)))
        self.collector.add(hashes, rows[kept])
        table = np.zeros((len(rows), entry_words(X.shape[1], y.shape[1])), dtype="<u8")
        table[kept] = pack_rows(rows[kept], X, y, rank_people(self.planning, ids), self.identity.seal)
        return table

    def _find_kept(self, hashes: Hashes) -> np.ndarray:
        kept = np.ones(len(hashes), dtype=np.bool_)
        if self.people.segments:
            kept[self.people.find(hashes).tombstones.owner] = False
            self._erased.update(map(bytes, hashes[~kept]))
        return kept

    @property
    def summary(self) -> IntakeSummary:
        """The summary so far."""
        extents = self.blueprint.measure() if self._extents is None else self._extents
        holes = np.concatenate(self._holes)
        return IntakeSummary(
            self._rows, holes, frozenset(self._erased), self._clipped, extents, frozenset(self._leaves)
        )


MAX_SEGMENTS = 16  # segments of people; with more, small ones are merged


@dataclass(frozen=True, eq=False)
class IncomingTable:
    """A table to take in, with its options."""

    data: Any  # a path or a frame
    schema: Schema
    blueprint: Blueprint
    people: People  # before these rows
    first_row: int  # the number of the first row
    stage: str  # the name in a progress bar
    definition_files: tuple[ImmutableFile, ImmutableFile]  # the files of the schema and the blueprint
    planning: Planning | None  # how a plan ranks people
    commitments: Commitments | None = None
    clip: bool = False


@dataclass(frozen=True, eq=False)
class StoredTable:
    """A table that was taken in."""

    summary: IntakeSummary
    segments: tuple[RowSegment, ...]  # the files of its rows
    runs: Sequence[AnyRun]  # their owners


class Workers(Protocol):
    """Other processes that work on the files of a vault, with the same results as this process would have."""

    @property
    def lost_count(self) -> int:
        """How many workers were lost so far."""

    def take_table(
        self, context: RequestContext, table: IncomingTable, progress: ProgressCallback
    ) -> StoredTable | None:
        """Take a table in, into new files; return None if it cannot be read in pieces."""

    def merge_people(self, context: RequestContext, owners: "IncomingOwners") -> "StoredPeople | None":
        """Merge entries of people into new segments; return None if the entries are in this process's memory."""

    def find_row_damage(self, rows: RowFile, numbers: range) -> list[str | None] | None:
        """Return `snapshot.find_row_damage` for parts of these rows; None if there are too few to split."""

    def count_owned_rows(self, people: People, parts: int, seal: bytes) -> list[OwnershipCount] | None:
        """Return `snapshot.count_owned_rows` for each range of hashes; None if there is only one."""

    def sum_moments(
        self, rows: RowFile, encoder: Encoder, stripes: range, change: Change | None
    ) -> list[Moments] | None:
        """Return the moments of every learner over stripes; None if there are too few to split."""


def take_table(
    context: RequestContext, table: IncomingTable, segment: RowSegment, progress: ProgressCallback
) -> StoredTable:
    """Take a table in: at the end of a file of rows, or by workers into new files."""
    if context.workers is not None:
        stored = context.workers.take_table(context, table, progress)
        if stored is not None:
            return stored
    collector = RunCollector(context.folder.dir, f"owners.{context.number}", context.check_process)
    intake = Intake(
        context.identity,
        table.schema,
        table.blueprint,
        table.people,
        table.first_row,
        collector,
        table.planning,
        table.commitments,
        table.clip,
        context.check_process,
    )
    blocks = tables.read_blocks(table.data, table.schema, targets=True, ids=True)
    total = tables.count_rows(table.data)
    for rows in intake.write_rows(context.folder.dir / segment.name, blocks, segment.count):
        progress(table.stage, rows, total)
    summary = intake.summary
    return StoredTable(summary, (RowSegment(segment.name, segment.count + summary.rows),), collector.finish())


@dataclass(frozen=True, eq=False)
class IncomingOwners:
    """New entries of people, and the existing entries that are written into the same segments."""

    runs: Sequence[AnyRun]
    dealt: Placement
    before: People
    kept: People
    only_erased: bool  # whether only tombstones are kept


@dataclass(frozen=True)
class StoredPeople:
    """Segments of people that were written, and their counts."""

    segments: tuple[PeopleSegment, ...]
    people: int
    known: int
    erased: int


def write_people(context: RequestContext, owners: IncomingOwners) -> StoredPeople:
    """Write the new segments of people."""
    if context.workers is not None:
        written = context.workers.merge_people(context, owners)
        if written is not None:
            return written
    parts = []
    for part, merged in enumerate(
        merge_all_ranges(owners.runs, owners.dealt, owners.before, owners.kept, only_erased=owners.only_erased)
    ):
        name = f"people.{context.number}.{part}"
        files.create(context.folder.dir / name, *segment_bytes(merged.hashes, merged.slots, context.identity.seal))
        parts.append((name, len(merged.slots), merged.people, merged.known, merged.erased))
    segments = tuple(PeopleSegment(name, count, part, len(parts)) for part, (name, count, *_) in enumerate(parts))
    people, known, erased = (sum(counts) for counts in zip(*(counts for _, _, *counts in parts), strict=True))
    return StoredPeople(segments, people, known, erased)


def count_kept_segments(segments: tuple[PeopleSegment, ...]) -> int:
    """Return how many segments stay as they are when one is added: if there are too many, small ones are merged.

    A segment that is merged has at most twice the entries of all segments after it, so an entry is copied only a few
    times in total, however often rows are added.
    """
    groups = [k for k, segment in enumerate(segments) if segment.part == 0]
    if len(groups) < MAX_SEGMENTS:
        return len(segments)
    kept = len(segments)
    for start in reversed(groups):
        count = sum(segment.count for segment in segments[start:kept])
        after = sum(segment.count for segment in segments[kept:])
        if kept < len(segments) and count > 2 * after and len(groups[: groups.index(start)]) < MAX_SEGMENTS - 1:
            break
        kept = start
    return kept
