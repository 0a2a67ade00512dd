"""Rectify: replace all rows of some people by right ones, in their slots."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ErasedId
from ...exact.arrays import Floats, Slots, unique
from ...stores.change import Change
from ...stores.ids import slots_of_mentions
from ...tables import Block
from ..certificates.commitments import merkle_root
from ..disk.people import hashes_to_bytes
from ..disk.segments import Hashes
from ..disk.snapshot import Snapshot, load_array
from .intake import admit_rows
from .lookup import look_up
from .plan import RequestContext, RequestPlan, commit_to_ids
from .request import HashList, MissedChanges, NumberList, Request


@dataclass(frozen=True, eq=False)
class Rectify(Request):
    """Rows that take the place of others; until they are in their slots they are in a file, the stage."""

    receipts: str  # the root of the tree of receipts
    replace: NumberList  # slots
    replaced: HashList  # keyed hashes of the ids

    kind: ClassVar[str] = "rectify"

    @classmethod
    def plan(cls, context: RequestContext, blocks: Iterable[Block]) -> RequestPlan:
        """Replace all rows of the ids in a table; the k-th row of an id takes the place of its k-th."""
        owners, X, y = _read_all(blocks)
        now = context.snapshot
        X, y, clipped = admit_rows(now.schema, now.blueprint, X, y)
        named = look_up(context, owners, advice="add their rows")
        if len(buried := unique(named.entries.tombstones.owner)):
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
        now.rows.check_live(slots)
        outcome = now.with_moments(now.state, now.blueprint.code.learners_of(slots)).prepare(Change(slots, X, y))
        leaves = commit_to_ids(context, named.ids)
        request = cls(len(slots), len(place), merkle_root(leaves).hex(), slots, named.hashes)
        had, erased, stage = now.manifest.owners, now.manifest.erased, np.column_stack([X, y])
        return RequestPlan(
            request, outcome.state, had, erased, outcome.learners, corrected_rows=stage, leaves=leaves, clipped=clipped
        )

    @property
    def touched_entries(self) -> tuple[Slots, Hashes]:
        return self.replace, super().touched_entries[1]

    def overwrite(self, vault: Snapshot, number: int) -> None:
        stage, rows = vault.manifest.stage, vault.rows
        if stage is None or not (vault.folder.path / stage.name).exists():
            return
        slots, d = self.replace, rows.X.shape[1]
        values = load_array(vault.folder, stage.name, vault.folder.read(stage), "<f8", len(slots), rows.width)
        rows.write_rows(slots, values[:, :d], values[:, d:])
        vault.folder.rename(stage.name, f"{stage.name}.0")  # half wiped it would look damaged

    def replay(self, missed: MissedChanges, number: int, *, done: bool) -> None:
        missed.people.update(hashes_to_bytes(self.replaced))
        missed.add_dropped(self.replaced)


def _read_all(blocks: Iterable[Block]) -> tuple[list[bytes], Floats, Floats]:
    """All rows of a table at once: ids, inputs and targets."""
    parts = [(block.ids or [], block.X, block.y) for block in blocks]
    ids, X, y = zip(*parts, strict=True)
    return [one for part in ids for one in part], np.concatenate(X), np.concatenate(y)
