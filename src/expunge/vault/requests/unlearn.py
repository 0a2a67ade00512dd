"""Unlearn: erase all rows of some people, from the model and from the disk, for good."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...stores.change import Change
from ..disk.people import as_text, from_text
from ..disk.snapshot import Snapshot
from .lost import Lost
from .naming import Named
from .plan import Plan, Site
from .request import Numbers, Request, Texts


@dataclass(frozen=True)
class Unlearn(Request):
    """Rows that go, in these slots, and tombstones for their owners."""

    erase: Numbers  # slots
    bury: Texts  # keyed hashes of the ids

    kind: ClassVar[str] = "unlearn"

    @classmethod
    def plan(cls, site: Site, named: Named) -> Plan:
        """Erase these people; somebody erased before has no rows and stays erased."""
        live = named.entries.live
        now, owners = site.now, np.unique(live.owner)
        now.rows.check_held(live.slot)
        outcome = now.touching(now.state, live.slot).after(Change(live.slot))
        gone = named.hashes[owners]
        request = cls(len(live.slot), len(gone), tuple(live.slot.tolist()), as_text(gone))
        erased = now.manifest.erased + len(set(owners.tolist()) - set(named.entries.buried.owner.tolist()))
        left = now.manifest.owners - len(gone)
        return Plan(request, outcome.state, left, erased, outcome.learners, erases=request.erase, skipped=named.skipped)

    def overwrite(self, vault: Snapshot, number: int) -> None:
        erased = np.array(self.erase, dtype=np.int64)
        vault.rows.erase(erased)
        vault.people.bury(from_text(self.bury), np.full(len(self.bury), number), erased)

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        lost.missing -= lost.erased(self.erase)
        lost.people.update(self.bury)
        lost.buried(self.bury, [number] * len(self.bury))
