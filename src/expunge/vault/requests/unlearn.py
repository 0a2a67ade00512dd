"""Unlearn: erase all rows of some people, from the model and from the disk, for good."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...exact.arrays import Slots, isin, unique
from ...stores.change import Change
from ..certificates.commitments import merkle_root
from ..disk.people import hashes_to_bytes
from ..disk.segments import Hashes
from ..disk.snapshot import Snapshot
from .lookup import IdLookup
from .plan import RequestContext, RequestPlan, commit_to_ids
from .request import HashList, MissedChanges, NumberList, Request


@dataclass(frozen=True, eq=False)
class Unlearn(Request):
    """Rows that go, in these slots, and tombstones for their owners."""

    receipts: str  # the root of the tree of receipts
    erase: NumberList  # slots
    bury: HashList  # keyed hashes of the ids

    kind: ClassVar[str] = "unlearn"

    @classmethod
    def plan(cls, context: RequestContext, lookup: IdLookup) -> RequestPlan:
        """Erase these people; somebody erased before has no rows and stays erased."""
        live = lookup.entries.live
        now, owners = context.snapshot, unique(live.owner)
        now.rows.check_live(live.slot)
        outcome = now.with_moments(now.state, now.blueprint.code.learners_of(live.slot)).prepare(Change(live.slot))
        gone = lookup.hashes[owners]
        leaves = commit_to_ids(context, [lookup.ids[k] for k in owners.tolist()])
        request = cls(len(live.slot), len(gone), merkle_root(leaves).hex(), live.slot, gone)
        erased = now.manifest.erased + int(np.count_nonzero(~isin(owners, lookup.entries.tombstones.owner)))
        left = now.manifest.owners - len(gone)
        skipped, erases = lookup.skipped, request.erase
        return RequestPlan(
            request, outcome.state, left, erased, outcome.learners, erased_slots=erases, leaves=leaves, skipped=skipped
        )

    @property
    def touched_entries(self) -> tuple[Slots, Hashes]:
        return self.erase, self.bury

    def overwrite(self, vault: Snapshot, number: int) -> None:
        vault.rows.erase(self.erase)
        vault.people.bury(self.bury, np.full(len(self.bury), number), self.erase)

    def replay(self, missed: MissedChanges, number: int, *, done: bool) -> None:
        missed.missing = max(
            0, missed.missing - missed.add_erased(self.erase)
        )  # another copy may have had rows that this one lacks
        missed.people.update(hashes_to_bytes(self.bury))
        missed.add_buried(self.bury, [number] * len(self.bury))


# MERGED readmit: Readmit: let erased people come again. Their rows are not back.


@dataclass(frozen=True, eq=False)
class Readmit(Request):
    """Tombstones that go."""

    receipts: str  # the root of the tree of receipts
    free: HashList  # keyed hashes of the ids

    kind: ClassVar[str] = "readmit"

    @classmethod
    def plan(cls, context: RequestContext, lookup: IdLookup) -> RequestPlan:
        """Readmit these people, all of whom are erased."""
        leaves, before = commit_to_ids(context, lookup.ids), context.snapshot.manifest
        request = cls(0, len(lookup.ids), merkle_root(leaves).hex(), lookup.hashes)
        erased = before.erased - len(lookup.ids)
        return RequestPlan(
            request, context.snapshot.state, before.owners, erased, leaves=leaves, skipped=lookup.skipped
        )

    @property
    def touched_entries(self) -> tuple[Slots, Hashes]:
        return super().touched_entries[0], self.free

    def overwrite(self, vault: Snapshot, number: int) -> None:
        vault.people.drop_tombstones(self.free, until=number)

    def replay(self, missed: MissedChanges, number: int, *, done: bool) -> None:
        missed.add_readmitted(self.free)
