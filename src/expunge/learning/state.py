"""The state of a fitted model: what it knows, whose rows they are, and how a request changes it.

`State.after` computes everything that a change leads to and overwrites nothing; the outcome's `commit` then does the
overwriting, in plain stores. A request is therefore carried out whole or not at all.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..errors import InvalidInput
from ..exact.arrays import Floats, Slots
from ..stores.shards import Change, Coded, Rows
from ..stores.slots import Found, IdIndex, Ids, draw_slots
from .blueprint import Blueprint, Extents
from .ensemble import Ensemble


@dataclass(frozen=True, eq=False)
class State:
    """All that a fitted model knows. A change makes a new one; only store and index are overwritten in place."""

    blueprint: Blueprint
    ensemble: Ensemble
    extents: Extents
    index: IdIndex
    drawn: int  # slots given out so far; none is given twice
    rows: int  # rows learned and not unlearned
    default_ids: bool  # whether all ids so far were 0, 1, 2, ...
    flat: bool  # whether y was one-dimensional

    @classmethod
    def learn(cls, blueprint: Blueprint, first: "FirstRows", ids: Ids | None, *, flat: bool) -> Self:
        """Learn a first batch of rows."""
        ensemble, extents = blueprint.build(first.rows)
        n = len(first.slots)
        return cls(blueprint, ensemble, extents, IdIndex(ids, first.slots), n, n, ids is None, flat)

    def adding(self, X: Floats, y: Floats, ids: Ids | None) -> tuple[Self, Change]:
        """The state with room for more rows, and the change that puts them there."""
        if ids is None and not self.default_ids:
            raise InvalidInput("this model was given ids: pass ids for the new rows too, or they could be another's")
        s, drawn = self.blueprint.code.shards, self.drawn + len(X)
        change = Change(draw_slots(self.blueprint.key, self.drawn, len(X), s), X, y)
        roomy = replace(
            self,
            ensemble=replace(self.ensemble, store=self.ensemble.store.grown(room(drawn, s))),
            index=self.index.with_rows(np.arange(self.drawn, drawn) if ids is None else ids, change.slots),
            drawn=drawn,
            default_ids=ids is None,
        )
        return roomy, change

    def slots_of(self, row_ids: Ids) -> tuple[Slots, Found]:
        """The slot of each row named by its id: the k-th time that an id is named is its k-th row."""
        wanted, group, named = np.unique(row_ids, return_inverse=True, return_counts=True)
        found = self.index.find(wanted)
        if other := int((named != found.counts).sum()):
            raise InvalidInput(
                f"{other} ids have another number of rows in the model than were given: give all rows of an id; "
                "to remove or add some, unlearn the id and use partial_fit"
            )
        slots = np.empty_like(found.slots)
        slots[np.argsort(group, kind="stable")] = found.slots
        return slots, found

    def brought(self, row_ids: Ids, X: Floats, y: Floats) -> tuple[Change, Found]:
        """The removal of rows that are brought along, each matched with its slot by id and fingerprint."""
        slots, found = self.slots_of(row_ids)
        Z = self.ensemble.encoder.integers(X, y)
        store = self.ensemble.store
        if isinstance(store, Coded):
            slots = store.match(slots, np.unique(row_ids, return_inverse=True)[1], Z)
        return Change(slots, old=Z), found

    def after(self, change: Change, forget: Found | None = None) -> "Outcome":
        """What a change leads to. Nothing is overwritten yet."""
        store = self.ensemble.store
        was_live = store.live[change.slots]
        rows = self.rows - int(np.count_nonzero(was_live)) + (0 if change.erases else len(change.slots))
        extents = self.extents_after(change)
        moved = extents is None
        if extents is None:
            assert isinstance(store, Rows)
            ensemble, extents = self.blueprint.build(store, change)
            learners = len(ensemble.states)
        else:
            ensemble, touched = self.ensemble.changed(change)
            learners = len(touched)
        after = replace(self, ensemble=ensemble, extents=extents, rows=rows)
        return Outcome(after, len(change.slots), learners, moved, store.prepare(ensemble.encoder, change), forget)

    def extents_after(self, change: Change) -> Extents | None:
        """The extents after a change, or None if a bound moves."""
        store = self.ensemble.store
        if not self.blueprint.observed or not isinstance(store, Rows):
            return self.extents
        old = change.slots[store.live[change.slots]]
        X, y = store.take(old)
        new = (X[:0], y[:0]) if change.X is None or change.y is None else (change.X, change.y)
        return self.extents.replaced((X, y), new)

    def retrained(self, rows: Rows) -> Self:
        """The same state, built from scratch on these rows."""
        ensemble, extents = self.blueprint.build(rows)
        return replace(self, ensemble=ensemble, extents=extents, index=IdIndex(*self.index.entries()))


@dataclass(frozen=True, eq=False)
class FirstRows:
    """Rows in the slots that a blueprint gives them: whoever has these needs the table that they came in no more."""

    rows: Rows
    slots: Slots  # in order of arrival

    @classmethod
    def placed(cls, blueprint: Blueprint, X: Floats, y: Floats) -> Self:
        """Put the rows of a first batch into their slots."""
        s, n = blueprint.code.shards, len(X)
        if n < s:
            raise InvalidInput(
                f"fit needs at least as many rows as shards, got n_samples={n}, shards={s}; use fewer shards"
            )
        slots = draw_slots(blueprint.key, 0, n, s)
        return cls(Rows.place(X, y, slots, room(n, s)), slots)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a change leads to, ready to be committed."""

    state: State
    rows: int
    learners: int
    bounds_moved: bool
    _overwrite: Callable[[], None]
    _forget: Found | None

    def commit(self) -> State:
        """Overwrite what is to go and return the new state. Plain stores only: repeat it if it is interrupted."""
        self._overwrite()
        if self._forget is not None:
            self.state.index.erase(self._forget)
        return self.state


def room(rows: int, shards: int) -> int:
    """Slots of the whole stripes that hold this many rows."""
    return -(-rows // shards) * shards
