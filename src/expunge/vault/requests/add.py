"""Add: learn more rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import InvalidInput
from ...exact.arrays import Slots
from ...learning.state import State
from ...saving import files
from ...stores.change import Change
from ..certificates.merkle import root
from ..disk.snapshot import Snapshot, rows_of
from ..tables import Block
from .intake import Intake, Progress
from .lost import Lost
from .plan import Plan, Site
from .request import Request


@dataclass(frozen=True)
class Add(Request):
    """Rows that come, in new slots."""

    receipts: str  # the root of the tree of receipts
    drawn: int  # slots given out so far

    kind: ClassVar[str] = "add"

    @classmethod
    def plan(cls, site: Site, blocks: Iterable[Block], *, clip: bool, skip_erased: bool, progress: Progress) -> Plan:
        """Stream rows into the row file and learn them."""
        now = site.now
        intake = Intake(site, now.schema, now.blueprint, now.people, now.state.drawn, site.commitments, clip)
        # A leftover, should this be killed: there are rows to be wiped where no other file says so.
        files.create(site.folder.path / f"adding.{site.number}")
        files.sync_folder(site.folder.path)
        learning = _Learning(now)
        for slots, X, y in intake.take(now.rows.path, blocks):
            learning.learn(Change(slots, X, y), intake.drawn)
            progress("adding", len(slots), None)
        if not skip_erased:
            intake.refuse_erased()
        if intake.drawn == now.state.drawn:
            raise InvalidInput("there are no rows to add")
        hashes, slots = intake.entries()
        state, learners = learning.finished()
        leaves, known = intake.leaves(), intake.known()
        request = cls(len(slots), len(leaves), root(leaves).hex(), intake.drawn)
        return Plan(
            request,
            state,
            now.manifest.owners + request.people - known,
            now.manifest.erased,
            learners,
            brings=(hashes, slots),
            leaves=leaves,
            skipped=len(intake.erased),
            known=known,
            clipped=intake.clipped,
        )

    def overwrite(self, vault: Snapshot, number: int) -> None:
        vault.rows.mark(brought(vault, number))

    def replay(self, lost: Lost, number: int, *, done: bool) -> None:
        lost.missing += self.rows
        lost.drawn = self.drawn


class _Learning:
    """A state that learns block after block; where a bound moves it learns everything anew, once, at the end."""

    def __init__(self, before: Snapshot) -> None:
        self._before, self._state, self._moved = before, before.state, False
        self._touched: set[int] = set()

    def learn(self, change: Change, drawn: int) -> None:
        state = self._state.grown(drawn)
        self._moved = self._moved or state.extents_after(change) is None
        if not self._moved:
            state = self._before.touching(state, change.slots).after(change).state
            self._touched.update(state.blueprint.code.learners_of(change.slots))
        rows_of(state).hold(change.slots, True)
        self._state = state

    def finished(self) -> tuple[State, int]:
        """The state, and how many learners learned."""
        if not self._moved:
            return self._state, len(self._touched)
        state = self._state
        return State.learn(state.blueprint, rows_of(state), state.drawn), state.blueprint.code.learners


def brought(vault: Snapshot, number: int) -> Slots:
    """The slots of the rows that request ``number`` brought; after a merge of segments, of all rows there are."""
    batches = vault.manifest.people
    if not batches or batches[-1].name != f"people.{number}":
        return np.empty(0, dtype=np.int64)
    slots = vault.people.segments[-1].slots()
    return slots[slots >= 0]
