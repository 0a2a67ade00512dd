"""Unlearn: erase all rows of some people, from the model and from the disk, for good."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...exact.arrays import Slots, among, distinct
from ...stores.change import Change
from ..certificates.merkle import root
from ..disk.people import as_bytes
from ..disk.segments import Hashes
from ..disk.snapshot import Snapshot
from .listed import Numbers, People
from .lost import Lost
from .naming import Named
from .plan import Plan, Site, leaves_of
from .request import Request


@dataclass(frozen=True, eq=False)
class Unlearn(Request):
    """Rows that go, in these slots, and tombstones for their owners."""

    receipts: str  # the root of the tree of receipts
    erase: Numbers  # slots
    bury: People  # keyed hashes of the ids

    kind: ClassVar[str] = "unlearn"

    @classmethod
    def plan(cls, site: Site, named: Named) -> Plan:
        """Erase these people; somebody erased before has no rows and stays erased."""
        live = named.entries.live
        now, owners = site.now, distinct(live.owner)
        now.rows.check_held(live.slot)
        outcome = now.touching(now.state, now.blueprint.code.learners_of(live.slot)).after(Change(live.slot))
        gone = named.hashes[owners]
        leaves = leaves_of(site, [named.ids[k] for k in owners.tolist()])
        request = cls(len(live.slot), len(gone), root(leaves).hex(), live.slot, gone)
        erased = now.manifest.erased + int(np.count_nonzero(~among(owners, named.entries.buried.owner)))
        left = now.manifest.owners - len(gone)
        skipped, erases = named.skipped, request.erase
        return Plan(
            request, outcome.state, left, erased, outcome.learners, erases=erases, leaves=leaves, skipped=skipped
        )

    @property
    def touches(self) -> tuple[Slots, Hashes]:
        return self.erase, self.bury

    def overwrite(self, vault: Snapshot, number: int) -> None:
        vault.rows.erase(self.erase)
        vault.people.bury(self.bury, np.full(len(self.bury), number), self.erase)

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        lost.missing = max(
            0, lost.missing - lost.erased(self.erase)
        )  # another copy may have had rows that this one lacks
        lost.people.update(as_bytes(self.bury))
        lost.buried(self.bury, [number] * len(self.bury))
