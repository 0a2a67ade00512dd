"""Rectify: replace all rows of some people by right ones, in their slots."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ErasedId
from ...exact.arrays import Floats, Slots, distinct
from ...stores.change import Change
from ...stores.ids import slots_of_mentions
from ..certificates.merkle import root
from ..disk.people import as_bytes
from ..disk.segments import Hashes
from ..disk.snapshot import Snapshot, checked_array
from ..tables import Block
from .intake import admitted
from .listed import Numbers, People
from .lost import Lost
from .naming import look_up
from .plan import Plan, Site, leaves_of
from .request import Request


@dataclass(frozen=True, eq=False)
class Rectify(Request):
    """Rows that take the place of others; until they are in their slots they are in a file, the stage."""

    receipts: str  # the root of the tree of receipts
    replace: Numbers  # slots
    replaced: People  # keyed hashes of the ids

    kind: ClassVar[str] = "rectify"

    @classmethod
    def plan(cls, site: Site, blocks: Iterable[Block]) -> Plan:
        """Replace all rows of the ids in a table; the k-th row of an id takes the place of its k-th."""
        owners, X, y = _whole(blocks)
        now = site.now
        X, y, clipped = admitted(now.schema, now.blueprint, X, y)
        named = look_up(site, owners, way_out="add their rows")
        if len(buried := distinct(named.entries.buried.owner)):
            ids = "1 id in this table was" if len(buried) == 1 else f"{len(buried):,} ids in this table were"
            raise ErasedId(f"{ids} erased before; nothing was changed")
        place = {owner: k for k, owner in enumerate(dict.fromkeys(owners))}
        slots = slots_of_mentions(
            np.array([place[owner] for owner in owners], dtype=np.intp),
            named.entries.live.slot,
            np.bincount(named.entries.live.owner, minlength=len(place)),
            where="in the vault than in this table",
            way_out="unlearn the id, readmit it and add its rows",
        )
        now.rows.check_held(slots)
        outcome = now.touching(now.state, now.blueprint.code.learners_of(slots)).after(Change(slots, X, y))
        leaves = leaves_of(site, named.ids)
        request = cls(len(slots), len(place), root(leaves).hex(), slots, named.hashes)
        had, erased, stage = now.manifest.owners, now.manifest.erased, np.column_stack([X, y])
        return Plan(request, outcome.state, had, erased, outcome.learners, stage=stage, leaves=leaves, clipped=clipped)

    @property
    def touches(self) -> tuple[Slots, Hashes]:
        return self.replace, super().touches[1]

    def overwrite(self, vault: Snapshot, number: int) -> None:
        stage, rows = vault.manifest.stage, vault.rows
        if stage is None or not (vault.folder.path / stage.name).exists():
            return
        slots, d = self.replace, rows.X.shape[1]
        values = checked_array(vault.folder, stage.name, vault.folder.read(stage), "<f8", len(slots), rows.width)
        rows.put(slots, values[:, :d], values[:, d:])
        vault.folder.rename(stage.name, f"{stage.name}.0")  # half wiped it would look damaged

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        lost.people.update(as_bytes(self.replaced))
        lost.dropped(self.replaced)


def _whole(blocks: Iterable[Block]) -> tuple[list[bytes], Floats, Floats]:
    """All rows of a table at once: ids, inputs and targets."""
    parts = [(block.ids or [], block.X, block.y) for block in blocks]
    ids, X, y = zip(*parts, strict=True)
    return [one for part in ids for one in part], np.concatenate(X), np.concatenate(y)
