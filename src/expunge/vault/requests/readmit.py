"""Readmit: let erased people come again. Their rows are not back."""

from dataclasses import dataclass
from typing import ClassVar

from ..certificates.merkle import root
from ..disk.people import as_text, from_text
from ..disk.snapshot import Snapshot
from .lost import Lost
from .naming import Named
from .plan import Plan, Site, leaves_of
from .request import People, Request


@dataclass(frozen=True)
class Readmit(Request):
    """Tombstones that go."""

    receipts: str  # the root of the tree of receipts
    free: People  # keyed hashes of the ids

    kind: ClassVar[str] = "readmit"

    @classmethod
    def plan(cls, site: Site, named: Named) -> Plan:
        """Readmit these people, all of whom are erased."""
        leaves, before = leaves_of(site, named.ids), site.now.manifest
        request = cls(0, len(named.ids), root(leaves).hex(), as_text(named.hashes))
        erased = before.erased - len(named.ids)
        return Plan(request, site.now.state, before.owners, erased, leaves=leaves, skipped=named.skipped)

    def overwrite(self, vault: Snapshot, number: int) -> None:
        vault.people.free(from_text(self.free), until=number)

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        lost.freed(self.free)
