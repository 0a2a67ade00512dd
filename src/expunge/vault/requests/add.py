"""Add: learn more rows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

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
from .request import Request

if TYPE_CHECKING:
    from .restore import MissedChanges

_MAX_TRACED_ROWS = 4_096  # with more new rows, all learners are taken to be fed


@dataclass(frozen=True)
class Add(Request):
    """Rows that are added, in new slots."""

    receipts: str  # the root of the tree of receipts
    drawn: int  # row numbers used so far, including holes

    kind: ClassVar[str] = "add"

    @classmethod
    def plan(
        cls, context: RequestContext, data: Any, *, clip: bool, skip_erased: bool, progress: ProgressCallback
    ) -> RequestPlan:
        """Plan to add rows: stream them into the row file and learn them."""
        snapshot = context.snapshot
        # If this process is killed, the file is a leftover: no other file says that there are rows to wipe.
        files.create(context.folder.dir / f"adding.{context.number}")
        context.folder.dir.sync()
        table = IncomingTable(
            data,
            snapshot.schema,
            snapshot.state.blueprint,
            snapshot.people,
            snapshot.state.drawn,
            "adding",
            snapshot.manifest.charter,
            snapshot.manifest.planning,
            context.commitments,
            clip,
        )
        stored = take_table(context, table, snapshot.manifest.segments[-1], progress)
        summary = stored.summary
        if not skip_erased:
            summary.refuse_erased()
        if not summary.kept_rows:
            raise PeopleMismatch("there are no rows to add")
        rows = _extend_rows(snapshot, stored)
        touched = _find_fed_learners(snapshot, rows)
        state = snapshot.with_moments(snapshot.state, touched)
        with rows.report_reads(lambda k: progress(context.describe_stage("learning"), k, None)):
            after, bounds_moved = state.extend(rows, rows.layout.dealt.drawn, summary.extents, touched)
        kept = count_kept_segments(snapshot.manifest.people)
        merged = People(snapshot.people.segments[kept:])
        written = write_people(
            context, IncomingOwners(stored.runs, rows.layout.dealt, snapshot.people, merged, only_erased=False)
        )
        leaves = sorted(summary.leaves)
        return RequestPlan(
            cls(summary.kept_rows, written.people, merkle_root(leaves).hex(), after.drawn),
            after,
            snapshot.manifest.owners + written.people - written.known,
            snapshot.manifest.erased,
            snapshot.state.blueprint.code.learners if bounds_moved else len(touched),
            people=(*snapshot.manifest.people[:kept], *written.segments),
            leaves=leaves,
            skipped=len(summary.erased),
            known=written.known,
            clipped=summary.clipped,
        )

    def overwrite(self, snapshot: Snapshot, number: int) -> None:
        snapshot.rows.set_live_from(snapshot.manifest.batches[-1])

    def replay(self, missed: "MissedChanges", number: int, *, done: bool) -> None:
        missed.missing += self.rows
        missed.drawn = self.drawn


def _extend_rows(snapshot: Snapshot, stored: StoredTable) -> RowFile:
    """Return the row file with the stored rows, in memory: on the disk their bits are not set yet."""
    before, summary = snapshot.rows, stored.summary
    segments, first = snapshot.manifest.segments, snapshot.state.drawn
    if stored.segments[0].name == segments[-1].name:
        segments = segments[:-1]
    rows = before.with_batch(before.layout.dealt.with_batch(summary.rows), (*segments, *stored.segments))
    for piece in cut(summary.rows, 1):
        numbers = np.arange(first + piece.start, first + piece.stop)
        holes = summary.holes[slice(*np.searchsorted(summary.holes, [numbers[0], numbers[-1] + 1]))]
        rows.set_live(rows.layout.dealt.slots(np.delete(numbers, holes - numbers[0])), True)
    return rows


def _find_fed_learners(snapshot: Snapshot, rows: RowFile) -> list[int]:
    """Return the learners that new rows feed."""
    first, drawn = snapshot.state.drawn, rows.layout.dealt.drawn
    if drawn - first > _MAX_TRACED_ROWS:
        return list(range(snapshot.state.blueprint.code.learners))
    slots = rows.layout.dealt.slots(np.arange(first, drawn))
    return snapshot.state.blueprint.code.learners_of(slots[rows.live[slots]])
