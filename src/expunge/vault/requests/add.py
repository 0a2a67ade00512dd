"""Add: learn more rows."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import PeopleMismatch
from ...exact.arrays import cut
from ...saving import files
from ..certificates.commitments import merkle_root
from ..disk.people import People
from ..disk.rowfile import RowFile
from ..disk.snapshot import Snapshot
from .intake import (
    IncomingOwners,
    IncomingTable,
    ProgressCallback,
    StoredTable,
    count_kept_segments,
    take_table,
    write_people,
)
from .plan import RequestContext, RequestPlan
from .request import MissedChanges, Request

_MAX_TRACED_ROWS = 4_096  # rows of which it is looked up which learners they feed


@dataclass(frozen=True)
class Add(Request):
    """Rows that come, in new slots."""

    receipts: str  # the root of the tree of receipts
    drawn: int  # rows that came so far, holes among them

    kind: ClassVar[str] = "add"

    @classmethod
    def plan(
        cls, context: RequestContext, data: Any, *, clip: bool, skip_erased: bool, progress: ProgressCallback
    ) -> RequestPlan:
        """Stream rows into the row file and learn them."""
        now = context.snapshot
        # A leftover, should this be killed: there are rows to be wiped where no other file says so.
        files.create(context.folder.path / f"adding.{context.number}")
        files.sync_folder(context.folder.path)
        arrived = take_table(context, _describe_table(context, data, clip), now.manifest.segments[-1], progress)
        taken = arrived.summary
        if not skip_erased:
            taken.refuse_erased()
        if not taken.kept_rows:
            raise PeopleMismatch("there are no rows to add")
        rows = _extend_rows(now, arrived)
        touched = _find_fed_learners(now, rows)
        state = now.with_moments(now.state, touched)
        with rows.report_reads(lambda k: progress(context.describe_stage("learning"), k, None)):
            after, moved = state.extend(rows, rows.layout.dealt.drawn, taken.extents, touched)
        stays = count_kept_segments(now.manifest.people)
        kept = People(now.people.segments[stays:])
        found = write_people(
            context, IncomingOwners(arrived.runs, rows.layout.dealt, now.people, kept, only_erased=False)
        )
        leaves = sorted(taken.leaves)
        request = cls(taken.kept_rows, found.people, merkle_root(leaves).hex(), after.drawn)
        return RequestPlan(
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
        vault.rows.set_live_from(vault.manifest.batches[-1])

    def replay(self, missed: MissedChanges, number: int, *, done: bool) -> None:
        missed.missing += self.rows
        missed.drawn = self.drawn


def _describe_table(context: RequestContext, data: Any, clip: bool) -> IncomingTable:
    """The table that is to be added."""
    now = context.snapshot
    first, charter = now.state.drawn, now.manifest.charter
    return IncomingTable(
        data, now.schema, now.blueprint, now.people, first, "adding", charter, context.commitments, clip
    )


def _extend_rows(snapshot: Snapshot, stored: StoredTable) -> RowFile:
    """The rows with those that arrived, in memory: on the disk their bits are not set yet."""
    before, taken = snapshot.rows, stored.summary
    segments, first = snapshot.manifest.segments, snapshot.state.drawn
    if stored.segments[0].name == segments[-1].name:
        segments = segments[:-1]
    rows = before.with_batch(before.layout.dealt.with_batch(taken.rows), (*segments, *stored.segments))
    for piece in cut(taken.rows, 1):
        numbers = np.arange(first + piece.start, first + piece.stop)
        holes = taken.holes[slice(*np.searchsorted(taken.holes, [numbers[0], numbers[-1] + 1]))]
        rows.set_live(rows.layout.dealt.slots(np.delete(numbers, holes - numbers[0])), True)
    return rows


def _find_fed_learners(snapshot: Snapshot, rows: RowFile) -> list[int]:
    """The learners that new rows feed."""
    first, drawn = snapshot.state.drawn, rows.layout.dealt.drawn
    if drawn - first > _MAX_TRACED_ROWS:
        return list(range(snapshot.blueprint.code.learners))
    slots = rows.layout.dealt.slots(np.arange(first, drawn))
    return snapshot.blueprint.code.learners_of(slots[rows.live[slots]])
