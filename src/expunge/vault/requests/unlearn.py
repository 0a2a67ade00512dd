"""Unlearn: erase all rows of people, from the model and from the disk. Readmit: allow erased people again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...encoding.placement import RowNumbers
from ...exact.arrays import isin, unique
from ...stores.change import Change
from ..disk.people import Hashes, hashes_to_bytes
from ..disk.snapshot import Snapshot
from .choice import put_open_first
from .lookup import IdLookup
from .plan import RequestContext, RequestPlan
from .request import HashList, NumberList, Request

if TYPE_CHECKING:
    from .restore import MissedChanges


@dataclass(frozen=True, eq=False)
class Unlearn(Request):
    """Rows to erase, and tombstones for their owners."""

    receipts: str  # the root of the tree of receipts
    erase: NumberList  # row numbers
    bury: HashList  # keyed hashes of the ids; people who had a part in choosing the settings come first
    open: int  # the number of these people

    kind: ClassVar[str] = "unlearn"

    @classmethod
    def plan(cls, context: RequestContext, lookup: IdLookup) -> RequestPlan:
        """Plan to erase these people; a person erased before has no rows and stays erased."""
        snapshot, live = context.snapshot, lookup.entries.live
        owners = unique(live.owner)
        snapshot.rows.check_live(live.slot)
        state = snapshot.with_moments(snapshot.state, snapshot.state.blueprint.code.learners_of(live.slot))
        outcome = state.prepare(Change(live.slot))
        people, still_open = put_open_first(snapshot, lookup, owners, erased=True)
        hashes = lookup.hashes[people]
        leaves, root = context.receipt_tree([lookup.ids[k] for k in owners.tolist()])
        newly_erased = int(np.count_nonzero(~isin(owners, lookup.entries.tombstones.owner)))
        return RequestPlan(
            cls(len(live.slot), len(hashes), root, snapshot.rows.layout.dealt.rows(live.slot), hashes, still_open),
            outcome.state,
            snapshot.manifest.owners - len(hashes),
            snapshot.manifest.erased + newly_erased,
            outcome.learners,
            erased_slots=live.slot,
            leaves=leaves,
            skipped=lookup.skipped,
        )

    @property
    def open_count(self) -> int:
        return self.open

    @property
    def touched_entries(self) -> tuple[RowNumbers, Hashes]:
        return self.erase, self.bury

    def overwrite(self, snapshot: Snapshot, number: int) -> None:
        snapshot.rows.erase(self.erase)
        erased = snapshot.rows.layout.dealt.slots(self.erase)
        snapshot.people.bury(self.bury, np.full(len(self.bury), number), erased)

    def replay(self, missed: "MissedChanges", number: int, *, done: bool) -> None:
        # Rows added and erased since are not missing. The count can pass zero: another copy may have had rows that this
        # one lacks.
        missed.missing = max(0, missed.missing - missed.add_erased(self.erase))
        missed.people.update(hashes_to_bytes(self.bury))
        missed.add_buried(self.bury, [number] * len(self.bury))


@dataclass(frozen=True, eq=False)
class Readmit(Request):
    """Tombstones to remove. The people's rows do not come back."""

    receipts: str  # the root of the tree of receipts
    free: HashList  # keyed hashes of the ids

    kind: ClassVar[str] = "readmit"

    @classmethod
    def plan(cls, context: RequestContext, lookup: IdLookup) -> RequestPlan:
        """Plan to readmit these people, all of whom are erased."""
        manifest = context.snapshot.manifest
        leaves, root = context.receipt_tree(lookup.ids)
        return RequestPlan(
            cls(0, len(lookup.ids), root, lookup.hashes),
            context.snapshot.state,
            manifest.owners,
            manifest.erased - len(lookup.ids),
            leaves=leaves,
            skipped=lookup.skipped,
        )

    @property
    def touched_entries(self) -> tuple[RowNumbers, Hashes]:
        return super().touched_entries[0], self.free

    def overwrite(self, snapshot: Snapshot, number: int) -> None:
        snapshot.people.drop_tombstones(self.free, until=number)

    def replay(self, missed: "MissedChanges", number: int, *, done: bool) -> None:
        missed.add_readmitted(self.free)
