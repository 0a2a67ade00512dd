"""Intake: rows on their way from a table into a row file, a block at a time, in the order of the table.

A row's number is its place in the table, after all rows that came before; one that is left out, because its owner was
erased, keeps its number as a hole. So whoever has some rows of a table can take them in without the others. Nothing in
the state names these rows yet: an intake that fails has changed nothing. Rows of people who were erased are never
written.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...encoding.extents import Extents
from ...encoding.placement import RowNumbers
from ...errors import ErasedId
from ...exact.arrays import Floats
from ...learning.blueprint import Blueprint
from ...saving import files
from ..certificates.commitments import Commitments
from ..disk.folder import VaultIdentity
from ..disk.people import People, hashed
from ..disk.rowfile import packed
from ..disk.runs import Gathering
from ..disk.segments import Hashes
from ..tables import Block, Schema, checked

Progress: TypeAlias = Callable[[str, int, int | None], None]  # what, how many rows more, of how many


def silent(what: str, rows: int, of: int | None) -> None:
    """Show no progress."""


def admitted(
    schema: Schema, blueprint: Blueprint, X: Floats, y: Floats, *, clip: bool = False
) -> tuple[Floats, Floats, int]:
    """Rows as they will be kept, and how many of their values were moved to a bound; a row outside is refused.

    Values are moved where a column of the schema says so, or all of them, if the training or the caller does.
    """
    kept = blueprint.admit(schema.clipped(X), y, schema.inputs, schema.targets, clip=clip or blueprint.clip)
    moved = sum(int(np.count_nonzero(a != b)) for a, b in zip(kept, (X, y), strict=True) if a is not b)
    return *kept, moved


@dataclass(frozen=True)
class Taken:
    """What an intake has to tell: no row, and no id."""

    rows: int  # numbers that were given, holes among them
    holes: RowNumbers  # the numbers of rows that were left out
    erased: frozenset[bytes]  # hashes of erased ids that were seen
    clipped: int  # values that were moved to a bound
    extents: Extents  # of the rows that were kept, where bounds are observed
    leaves: frozenset[bytes]  # commitments to the people, if there are to be receipts

    @classmethod
    def of(cls, blueprint: Blueprint, parts: "Sequence[Taken]") -> "Taken":
        """What the intakes of the parts of one table have to tell, in their order."""
        return cls(
            sum(part.rows for part in parts),
            np.concatenate([np.empty(0, dtype=np.int64), *(part.holes for part in parts)]),
            frozenset().union(*(part.erased for part in parts)),
            sum(part.clipped for part in parts),
            blueprint.measured().and_those([part.extents for part in parts]),
            frozenset().union(*(part.leaves for part in parts)),
        )

    @property
    def kept(self) -> int:
        """How many rows there are."""
        return self.rows - len(self.holes)

    def refuse_erased(self) -> None:
        """Refuse a table that holds people who were erased."""
        if self.erased:
            ids = "1 id in this table was" if len(self.erased) == 1 else f"{len(self.erased):,} ids in this table were"
            raise ErasedId(
                f"{ids} erased before; nothing was changed. Leave their rows out (--skip-erased, skip_erased=True), "
                "or readmit those who consented again"
            )


@dataclass
class Intake:
    """Rows that are being taken in: where they go, whose they are, and who was left out."""

    identity: VaultIdentity
    schema: Schema
    blueprint: Blueprint
    people: People  # before these rows
    first: int  # the number of the first row
    gathering: Gathering
    commitments: Commitments | None = None  # to the people, for their receipts
    clip: bool = False  # whether values outside declared bounds are moved to the bound
    check: Callable[[], None] = lambda: None  # refuses to go on, before and after each block
    _rows: int = 0
    _holes: list[RowNumbers] = field(default_factory=lambda: [np.empty(0, dtype=np.int64)])
    _erased: set[bytes] = field(default_factory=set)
    _clipped: int = 0
    _extents: Extents | None = None
    _leaves: set[bytes] = field(default_factory=set)

    def take(self, path: Path, blocks: Iterable[Block], entry: int = 0, *, own: bool = False) -> Iterator[int]:
        """Write rows into a file from its ``entry`` on, synced at the end; yields how many were written.

        One that is this intake's ``own`` holds zeros if it fails, even if it has lost its name meanwhile.
        """
        width = 8 * (len(self.schema.inputs) + len(self.schema.targets) + 1)
        with files.opened(path, os.O_WRONLY | os.O_CREAT) as fd, files.zeroed_if_it_fails(fd) if own else nullcontext():
            for table in checked(blocks, self._admitted):
                self.check()
                files.write_all(fd, table.reshape(-1).view(np.uint8).data, (entry + self._rows) * width)
                self._rows += len(table)
                yield len(table)
                self.check()  # whoever was told of these rows may have forked
            files.sync(fd)
            self.check()

    def _admitted(self, block: Block) -> Floats:
        """The entries of a block as they will be kept, empty where erased people are left out."""
        assert block.ids is not None
        assert block.y is not None
        ids, rows = block.ids, self.first + self._rows + np.arange(len(block))
        # All rows are checked, also those that are left out: a refusal must not tell who was erased.
        X, y, clipped = admitted(self.schema, self.blueprint, block.X, block.y, clip=self.clip)
        hashes = hashed(self.identity.key, ids)
        kept = self._kept(hashes)
        if not kept.all():
            self._holes.append(rows[~kept])
            ids, hashes = [one for one, stays in zip(ids, kept.tolist(), strict=True) if stays], hashes[kept]
            _, _, clipped = admitted(self.schema, self.blueprint, block.X[kept], block.y[kept], clip=self.clip)
            X, y = X[kept], y[kept]
        self._clipped += clipped
        self._measure(X, y)
        if self.commitments is not None:
            self._leaves.update(self.commitments.of(set(ids)))
        self.gathering.add(hashes, rows[kept])
        table = np.zeros((len(rows), X.shape[1] + y.shape[1] + 1), dtype="<u8")
        table[kept] = packed(rows[kept], X, y, self.identity.seal)
        return table

    def _kept(self, hashes: Hashes) -> np.ndarray:
        kept = np.ones(len(hashes), dtype=np.bool_)
        if self.people.segments:
            kept[self.people.find(hashes).buried.owner] = False
            self._erased.update(map(bytes, hashes[~kept]))
        return kept

    def _measure(self, X: Floats, y: Floats) -> None:
        if self._extents is None:
            self._extents = self.blueprint.measured()
        if self.blueprint.observed:
            self._extents = self._extents.widened(X, y)

    @property
    def taken(self) -> Taken:
        """What there is to tell so far."""
        extents = self.blueprint.measured() if self._extents is None else self._extents
        holes = np.concatenate(self._holes)
        return Taken(self._rows, holes, frozenset(self._erased), self._clipped, extents, frozenset(self._leaves))
