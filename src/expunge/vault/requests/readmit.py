"""Readmit: let erased people come again. Their rows are not back."""

from dataclasses import dataclass
from typing import ClassVar

from ...exact.arrays import Slots
from ..certificates.merkle import root
from ..disk.segments import Hashes
from ..disk.snapshot import Snapshot
from .listed import People
from .lost import Lost
from .naming import Named
from .plan import Plan, Site, leaves_of
from .request import Request


@dataclass(frozen=True, eq=False)
class Readmit(Request):
    """Tombstones that go."""

    receipts: str  # the root of the tree of receipts
    free: People  # keyed hashes of the ids

    kind: ClassVar[str] = "readmit"

    @classmethod
    def plan(cls, site: Site, named: Named) -> Plan:
        """Readmit these people, all of whom are erased."""
        leaves, before = leaves_of(site, named.ids), site.now.manifest
        request = cls(0, len(named.ids), root(leaves).hex(), named.hashes)
        erased = before.erased - len(named.ids)
        return Plan(request, site.now.state, before.owners, erased, leaves=leaves, skipped=named.skipped)

    @property
    def touches(self) -> tuple[Slots, Hashes]:
        return super().touches[0], self.free

    def overwrite(self, vault: Snapshot, number: int) -> None:
        vault.people.free(self.free, until=number)

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        lost.freed(self.free)
