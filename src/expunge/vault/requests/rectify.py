"""Rectify: replace all rows of people by corrected ones, in their slots."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...encoding.placement import RowNumbers
from ...errors import ErasedId
from ...exact.arrays import unique
from ...stores.change import Change
from ...stores.ids import slots_of_mentions
from ...tables import Block
from ..disk.people import Hashes, hashes_to_bytes
from ..disk.snapshot import Snapshot, load_array
from .choice import put_open_first
from .intake import admit_rows
from .lookup import look_up
from .plan import RequestContext, RequestPlan
from .request import HashList, NumberList, Request

if TYPE_CHECKING:
    from .restore import MissedChanges


@dataclass(frozen=True, eq=False)
class Rectify(Request):
    """Rows that replace others; until they are in their places they lie in a file, the stage."""

    receipts: str  # the root of the tree of receipts
    replace: NumberList  # row numbers
    replaced: HashList  # keyed hashes of the ids; first those of people whose rows the plan looked at
    open: int  # how many these are

    kind: ClassVar[str] = "rectify"

    @classmethod
    def plan(cls, context: RequestContext, blocks: Iterable[Block]) -> RequestPlan:
        """Plan to replace all rows of the ids in a table; the k-th row of an id replaces its k-th row in the vault."""
        parts = [(block.ids or [], block.X, block.y) for block in blocks]
        block_ids, block_X, block_y = zip(*parts, strict=True)
        owners, snapshot = [person for ids in block_ids for person in ids], context.snapshot
        X, y, clipped = admit_rows(
            snapshot.schema, snapshot.state.blueprint, np.concatenate(block_X), np.concatenate(block_y)
        )
        lookup = look_up(context, owners, advice="add their rows")
        if len(buried := unique(lookup.entries.tombstones.owner)):
            ids = "1 id in this table was" if len(buried) == 1 else f"{len(buried):,} ids in this table were"
            raise ErasedId(f"{ids} erased before; nothing was changed")
        position = {owner: k for k, owner in enumerate(dict.fromkeys(owners))}
        slots = slots_of_mentions(
            np.array([position[owner] for owner in owners], dtype=np.intp),
            lookup.entries.live.slot,
            np.bincount(lookup.entries.live.owner, minlength=len(position)),
            where="in the vault than in this table",
            way_out="unlearn the id, readmit it and add its rows",
        )
        snapshot.rows.check_live(slots)
        state = snapshot.with_moments(snapshot.state, snapshot.state.blueprint.code.learners_of(slots))
        outcome = state.prepare(Change(slots, X, y))
        leaves, root = context.receipt_tree(lookup.ids)
        people, still_open = put_open_first(snapshot, lookup, np.arange(len(position)))
        numbers = snapshot.rows.layout.dealt.rows(slots)
        ranks = snapshot.rows.read_ranks(numbers)
        return RequestPlan(
            cls(len(slots), len(position), root, numbers, lookup.hashes[people], still_open),
            outcome.state,
            snapshot.manifest.owners,
            snapshot.manifest.erased,
            outcome.learners,
            corrected_rows=np.column_stack([X.view("<u8"), y.view("<u8"), ranks]),
            leaves=leaves,
            clipped=clipped,
        )

    @property
    def open_count(self) -> int:
        return self.open

    @property
    def touched_entries(self) -> tuple[RowNumbers, Hashes]:
        return self.replace, super().touched_entries[1]

    def overwrite(self, snapshot: Snapshot, number: int) -> None:
        stage, rows, folder = snapshot.manifest.stage, snapshot.rows, snapshot.folder
        if stage is None or not (folder.dir / stage.name).exists():
            return
        numbers, d = self.replace, rows.layout.inputs
        words = load_array(folder, stage.name, folder.read(stage), "<u8", len(numbers), rows.width + 1)
        values = words[:, :-1].view("<f8")
        rows.write_rows(numbers, values[:, :d], values[:, d:], words[:, -1])
        folder.rename(stage.name, f"{stage.name}.0")  # a half wiped stage would look damaged

    def replay(self, missed: "MissedChanges", number: int, *, done: bool) -> None:
        missed.people.update(hashes_to_bytes(self.replaced))
        missed.add_dropped(self.replaced)
