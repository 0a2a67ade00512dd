"""The state of a trained model: what it has learned, and how a change of rows changes it. It has no ids.

`ModelState.prepare` computes the outcome of a change and overwrites nothing; the outcome's `commit` then overwrites, in
plain stores. A request is therefore carried out whole or not at all.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from ..encoding.bounds import Extents
from ..encoding.placement import draw_slots, slots_needed
from ..errors import InvalidInput
from ..exact.arrays import Floats, Slots
from ..stores.bits import count_set
from ..stores.change import Change
from ..stores.store import CodedStore, Rows, Store
from .blueprint import Blueprint
from .ensemble import Ensemble


@dataclass(frozen=True, eq=False)
class ModelState:
    """Everything that a trained model has learned. A change makes a new one; only the store changes in place."""

    blueprint: Blueprint
    ensemble: Ensemble
    extents: Extents
    drawn: int  # slots given out so far; none is given twice
    rows: int  # rows learned and not unlearned

    @classmethod
    def learn(
        cls,
        blueprint: Blueprint,
        rows: Rows,
        drawn: int,
        change: Change | None = None,
        *,
        extents: Extents | None = None,
    ) -> Self:
        """Train from scratch on rows in their slots, as they are or as they will be after a change.

        ``extents`` are those of the rows, if the caller has measured them already.
        """
        if extents is None:
            extents = blueprint.measure(rows, change)
        encoder = blueprint.encoder(extents)
        store: Store = rows if blueprint.keep == "rows" else CodedStore.encode(encoder, rows, blueprint.fingerprint_key)
        ensemble = Ensemble.learn(encoder, store, blueprint.rule, blueprint.aggregate, change)
        return cls(blueprint, ensemble, extents, drawn, _count_rows(rows, change))

    def grow(self, drawn: int) -> Self:
        """Return the same state with room for ``drawn`` slots given out."""
        store = self.ensemble.store.grow(slots_needed(drawn, self.blueprint.code.shards))
        return replace(self, ensemble=replace(self.ensemble, store=store), drawn=drawn)

    def with_room(self, rows: int) -> tuple[Self, Slots]:
        """Return the state with room for more rows, and the slots of these rows."""
        slots = draw_slots(self.blueprint.key, self.drawn, rows, self.blueprint.code.shards)
        return self.grow(self.drawn + rows), slots

    def extend(self, rows: Rows, drawn: int, extents: Extents, touched: list[int]) -> "tuple[ModelState, bool]":
        """Return the state with one more batch, and whether a bound moved.

        ``rows`` are all rows; ``extents`` and ``touched`` are the extents and the learners of the batch.
        """
        both = self.blueprint.measure().merge([self.extents, extents])
        if not self.extents.has_same_bounds(both):
            return ModelState.learn(self.blueprint, rows, drawn, extents=both), True
        s = self.blueprint.code.shards
        stripes = range(self.drawn // s, slots_needed(drawn, s) // s)
        had = range(self.drawn // s, slots_needed(self.drawn, s) // s)
        ensemble = self.ensemble.extend(rows, stripes, had, touched)
        return ModelState(self.blueprint, ensemble, both, drawn, count_set(rows.live)), False

    def prepare(self, change: Change) -> "Outcome":
        """Compute the outcome of a change. Nothing is overwritten yet."""
        store = self.ensemble.store
        extents = self.extents_after(change)
        if extents is None:
            after = ModelState.learn(self.blueprint, store.as_rows(), self.drawn, change)
            learners = len(after.ensemble.states)
        else:
            ensemble, touched = self.ensemble.apply(change)
            count = self.rows + _added_rows(store, change)
            after, learners = ModelState(self.blueprint, ensemble, extents, self.drawn, count), len(touched)
        overwrite = store.prepare(after.ensemble.encoder, change)
        return Outcome(after, len(change.slots), learners, extents is None, overwrite)

    def extents_after(self, change: Change) -> Extents | None:
        """Return the extents after a change, or None if a bound moves."""
        store = self.ensemble.store
        if not self.blueprint.observed:
            return self.extents
        X, y = store.as_rows().take(change.slots[store.live[change.slots]])
        new = (X[:0], y[:0]) if change.X is None or change.y is None else (change.X, change.y)
        return self.extents.replace_rows((X, y), new)


def place_rows(blueprint: Blueprint, X: Floats, y: Floats) -> tuple[Rows, Slots]:
    """Put the rows of a first batch into their slots; return the rows in slot order, and the slot of each."""
    s, n = blueprint.code.shards, len(X)
    if n < s:
        raise InvalidInput(
            f"fit needs at least as many rows as shards, got n_samples={n}, shards={s}; use fewer shards"
        )
    slots = draw_slots(blueprint.key, 0, n, s)
    return Rows.place(X, y, slots, slots_needed(n, s)), slots


def _count_rows(rows: Rows, change: Change | None) -> int:
    """Return the number of rows, as they are or as they will be after a change."""
    return count_set(rows.live) + (0 if change is None else _added_rows(rows, change))


def _added_rows(store: Store, change: Change) -> int:
    """Return how many more rows there are after a change than before."""
    if len(change.slots) == 1:
        return int(not change.erases) - int(store.live[change.slots[0]])
    return (0 if change.erases else len(change.slots)) - int(np.count_nonzero(store.live[change.slots]))


class Outcome(NamedTuple):
    """The result of a change, ready to be committed."""

    state: ModelState
    rows: int
    learners: int
    bounds_moved: bool
    overwrite: Callable[[], None]

    def commit(self) -> ModelState:
        """Overwrite the rows that change and return the new state. Plain stores only: repeat it if interrupted."""
        self.overwrite()
        return self.state
