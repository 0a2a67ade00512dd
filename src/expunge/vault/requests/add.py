"""Add: learn more rows."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import OtherPeople
from ...exact.arrays import cut
from ...saving import files
from ..certificates.merkle import root
from ..disk.people import People
from ..disk.rowfile import RowFile
from ..disk.snapshot import Snapshot
from .intake import Progress
from .lost import Lost
from .plan import Plan, Site
from .request import Request
from .taking import NewEntries, TableTaken, TableToTake, brought, segments_that_stay, taken_in

_FEW = 4_096  # rows of which it is looked up which learners they feed


@dataclass(frozen=True)
class Add(Request):
    """Rows that come, in new slots."""

    receipts: str  # the root of the tree of receipts
    drawn: int  # rows that came so far, holes among them

    kind: ClassVar[str] = "add"

    @classmethod
    def plan(cls, site: Site, data: Any, *, clip: bool, skip_erased: bool, progress: Progress) -> Plan:
        """Stream rows into the row file and learn them."""
        now = site.now
        # A leftover, should this be killed: there are rows to be wiped where no other file says so.
        files.create(site.folder.path / f"adding.{site.number}")
        files.sync_folder(site.folder.path)
        arrived = taken_in(site, _wanted(site, data, clip), now.manifest.segments[-1], progress)
        taken = arrived.taken
        if not skip_erased:
            taken.refuse_erased()
        if not taken.kept:
            raise OtherPeople("there are no rows to add")
        rows = _with(now, arrived)
        touched = _touched(now, rows)
        state = now.touching(now.state, touched)
        with rows.watched(lambda k: progress(site.stage("learning"), k, None)):
            after, moved = state.extended(rows, rows.layout.dealt.drawn, taken.extents, touched)
        stays = segments_that_stay(now.manifest.people)
        kept = People(now.people.segments[stays:])
        found = brought(site, NewEntries(arrived.runs, rows.layout.dealt, now.people, kept, only_erased=False))
        leaves = sorted(taken.leaves)
        request = cls(taken.kept, found.people, root(leaves).hex(), after.drawn)
        return Plan(
            request,
            after,
            now.manifest.owners + found.people - found.known,
            now.manifest.erased,
            now.blueprint.code.learners if moved else len(touched),
            people=(*now.manifest.people[:stays], *found.segments),
            leaves=leaves,
            skipped=len(taken.erased),
            known=found.known,
            clipped=taken.clipped,
        )

    def overwrite(self, vault: Snapshot, number: int) -> None:
        vault.rows.mark(vault.manifest.batches[-1])

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        lost.missing += self.rows
        lost.drawn = self.drawn


def _wanted(site: Site, data: Any, clip: bool) -> TableToTake:
    """The table that is to be added."""
    now = site.now
    first, charter = now.state.drawn, now.manifest.charter
    return TableToTake(data, now.schema, now.blueprint, now.people, first, "adding", charter, site.commitments, clip)


def _with(now: Snapshot, arrived: TableTaken) -> RowFile:
    """The rows with those that arrived, in memory: on the disk their bits are not set yet."""
    before, taken = now.rows, arrived.taken
    segments, first = now.manifest.segments, now.state.drawn
    if arrived.segments[0].name == segments[-1].name:
        segments = segments[:-1]
    rows = before.with_batch(before.layout.dealt.and_batch(taken.rows), (*segments, *arrived.segments))
    for piece in cut(taken.rows, 1):
        numbers = np.arange(first + piece.start, first + piece.stop)
        holes = taken.holes[slice(*np.searchsorted(taken.holes, [numbers[0], numbers[-1] + 1]))]
        rows.hold(rows.layout.dealt.slots(np.delete(numbers, holes - numbers[0])), True)
    return rows


def _touched(now: Snapshot, rows: RowFile) -> list[int]:
    """The learners that new rows feed."""
    first, drawn = now.state.drawn, rows.layout.dealt.drawn
    if drawn - first > _FEW:
        return list(range(now.blueprint.code.learners))
    slots = rows.layout.dealt.slots(np.arange(first, drawn))
    return now.blueprint.code.learners_of(slots[rows.live[slots]])
