"""Taking in: a whole table becomes files of rows and sorted runs of owners, here or by workers elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...encoding.encoder import Encoder
from ...encoding.placement import Dealt
from ...exact.moments import Moments
from ...learning.blueprint import Blueprint
from ...saving import files
from ...stores.change import Change
from .. import tables
from ..certificates.commitments import Commitments
from ..checking import Owned
from ..disk.manifest import File, Owners, RowSegment
from ..disk.people import People
from ..disk.rowfile import RowFile
from ..disk.runs import AnyRun, Gathering, all_merged
from ..disk.segments import segment_bytes
from ..tables import Schema
from .intake import Intake, Progress, Taken
from .plan import Site

MOST_SEGMENTS = 16  # of people, before some are merged


@dataclass(frozen=True, eq=False)
class TableToTake:
    """A table that is to be taken in, and how."""

    data: Any  # a path or a frame
    schema: Schema
    blueprint: Blueprint
    people: People  # before these rows
    first: int  # the number of the first row
    what: str  # it is called, in a progress bar
    charter: tuple[File, File]  # the files of the schema and the blueprint
    commitments: Commitments | None = None
    clip: bool = False


@dataclass(frozen=True, eq=False)
class TableTaken:
    """A table that was taken in."""

    taken: Taken
    segments: tuple[RowSegment, ...]  # the files of its rows
    runs: Sequence[AnyRun]  # whose they are


class Workers(Protocol):
    """Other processes that work on the files of a vault; the answers are the same as this process would give."""

    @property
    def lost(self) -> int:
        """How many of them were lost so far."""

    def arrived(self, site: Site, wanted: TableToTake, progress: Progress) -> TableTaken | None:
        """Take a table in, in files of their own; None if it cannot be read in pieces."""

    def people(self, site: Site, coming: "NewEntries") -> "NewSegments | None":
        """Merge entries of people into new segments; None if the entries are in the memory of this process."""

    def wrong_in_rows(self, rows: RowFile, numbers: range) -> list[str | None] | None:
        """What `checking.wrong_in_rows` says of parts of these rows; None if there are too few to share out."""

    def owned(self, people: People, parts: int, seal: bytes) -> list[Owned] | None:
        """What `checking.owned_in` says of each range of hashes; None if there is only one."""

    def summed(self, rows: RowFile, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        """The moments of every learner over stripes; None if there are too few to share out."""


def taken_in(site: Site, wanted: TableToTake, segment: RowSegment, progress: Progress) -> TableTaken:
    """Take a table in: into the end of a file of rows, or by workers into files of their own."""
    if site.workers is not None:
        found: TableTaken | None = site.workers.arrived(site, wanted, progress)
        if found is not None:
            return found
    gathering = Gathering(site.folder.path, f"owners.{site.number}", site.check_process)
    intake = Intake(
        site.identity,
        wanted.schema,
        wanted.blueprint,
        wanted.people,
        wanted.first,
        gathering,
        wanted.commitments,
        wanted.clip,
        site.check_process,
    )
    blocks = tables.read_blocks(wanted.data, wanted.schema, targets=True, ids=True)
    total = tables.count(wanted.data)
    for rows in intake.take(site.folder.path / segment.name, blocks, segment.count):
        progress(wanted.what, rows, total)
    taken = intake.taken
    return TableTaken(taken, (RowSegment(segment.name, segment.count + taken.rows),), gathering.finished())


@dataclass(frozen=True, eq=False)
class NewEntries:
    """Entries of people that come, and which of those that are there go into the same segments."""

    runs: Sequence[AnyRun]
    dealt: Dealt
    before: People
    kept: People
    only_erased: bool  # whether only tombstones are kept


@dataclass(frozen=True)
class NewSegments:
    """Segments of people that were written, and what they count."""

    segments: tuple[Owners, ...]
    people: int
    known: int
    erased: int


def brought(site: Site, coming: NewEntries) -> NewSegments:
    """Write the segments of people that come."""
    if site.workers is not None:
        written: NewSegments | None = site.workers.people(site, coming)
        if written is not None:
            return written
    found = []
    for part, merged in enumerate(
        all_merged(coming.runs, coming.dealt, coming.before, coming.kept, only_erased=coming.only_erased)
    ):
        name = f"people.{site.number}.{part}"
        files.create(site.folder.path / name, *segment_bytes(merged.hashes, merged.slots, site.identity.seal))
        found.append((name, len(merged.slots), merged.people, merged.known, merged.erased))
    segments = tuple(Owners(name, count, part, len(found)) for part, (name, count, *_) in enumerate(found))
    people, known, erased = (sum(counts) for counts in zip(*(counts for _, _, *counts in found), strict=True))
    return NewSegments(segments, people, known, erased)


def segments_that_stay(segments: tuple[Owners, ...]) -> int:
    """How many segments stay as they are when others come: with too many, those that are small are merged.

    Whatever is merged has no more than twice the entries of what comes after it, so that an entry is copied a few times
    in all, however often rows are added.
    """
    groups = [k for k, segment in enumerate(segments) if segment.part == 0]
    if len(groups) < MOST_SEGMENTS:
        return len(segments)
    stays = len(segments)
    for start in reversed(groups):
        count = sum(segment.count for segment in segments[start:stays])
        after = sum(segment.count for segment in segments[stays:])
        if stays < len(segments) and count > 2 * after and len(groups[: groups.index(start)]) < MOST_SEGMENTS - 1:
            break
        stays = start
    return stays
