"""Unlearn: erase all rows of some people, from the model and from the disk, for good."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...stores.change import Change
from ..certificates.merkle import root
from ..disk.people import as_text, from_text
from ..disk.snapshot import Snapshot
from .lost import Lost
from .naming import Named
from .plan import Plan, Site, leaves_of
from .request import Numbers, People, Request


@dataclass(frozen=True)
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
        now, owners = site.now, np.unique(live.owner)
        now.rows.check_held(live.slot)
        outcome = now.touching(now.state, now.blueprint.code.learners_of(live.slot)).after(Change(live.slot))
        gone = named.hashes[owners]
        leaves = leaves_of(site, [named.ids[k] for k in owners.tolist()])
        request = cls(len(live.slot), len(gone), root(leaves).hex(), tuple(live.slot.tolist()), as_text(gone))
        erased = now.manifest.erased + len(set(owners.tolist()) - set(named.entries.buried.owner.tolist()))
        left = now.manifest.owners - len(gone)
        skipped, erases = named.skipped, request.erase
        return Plan(
            request, outcome.state, left, erased, outcome.learners, erases=erases, leaves=leaves, skipped=skipped
        )

    def overwrite(self, vault: Snapshot, number: int) -> None:
        erased = np.array(self.erase, dtype=np.int64)
        vault.rows.erase(erased)
        vault.people.bury(from_text(self.bury), np.full(len(self.bury), number), erased)

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        lost.missing -= lost.erased(self.erase)
        lost.people.update(self.bury)
        lost.buried(self.bury, [number] * len(self.bury))
