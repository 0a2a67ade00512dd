"""What a fitted `CodedRegressor` holds: a trained state, and whose rows are in it."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from .encoding.placement import draw_slots, room
from .errors import InvalidInput, positions
from .exact.arrays import Floats, Slots
from .learning.blueprint import Blueprint
from .learning.state import State
from .saving.archive import Archive
from .saving.format import Parts, index_parts, load_index, load_state, state_parts
from .stores.change import Change
from .stores.ids import Found, IdIndex, Ids, as_ids, slots_of_mentions
from .stores.rows import Rows


@dataclass(frozen=True)
class Report:
    """What a request did.

    Attributes
    ----------
    rows : int
        Rows that were erased or corrected.
    learners : int
        Weak learners that learned anew.
    bounds_moved : bool
        Whether an observed bound moved, so that everything was refitted.
    seconds : float
        How long it took.
    """

    rows: int
    learners: int
    bounds_moved: bool
    seconds: float


@dataclass(frozen=True, eq=False)
class Fitted:
    """A state and the index of its rows' ids. A change makes a new one; store and index are overwritten in place."""

    state: State
    index: IdIndex
    default_ids: bool  # whether all ids so far were 0, 1, 2, ...
    flat: bool  # whether y was one-dimensional

    @classmethod
    def learn(cls, blueprint: Blueprint, rows: Rows, slots: Slots, ids: Ids | None, *, flat: bool) -> Self:
        """Learn a first batch of rows, which `placed` has put into their slots."""
        return cls(State.learn(blueprint, rows, len(slots)), IdIndex(ids, slots), ids is None, flat)

    def adding(self, X: Floats, y: Floats, ids: Ids | None) -> tuple[Self, Change]:
        """The same with room for more rows, and the change that puts them there."""
        if ids is None and not self.default_ids:
            raise InvalidInput("this model was given ids: pass ids for the new rows too, or they could be another's")
        before = self.state.drawn
        state, slots = self.state.with_room(len(X))
        named = np.arange(before, state.drawn) if ids is None else ids
        index = self.index.with_rows(named, slots)
        return replace(self, state=state, index=index, default_ids=ids is None), Change(slots, X, y)

    def slots_of(self, row_ids: Ids) -> tuple[Slots, Found]:
        """The slot of each row named by its id: the k-th time that an id is named is its k-th row."""
        wanted, group = np.unique(row_ids, return_inverse=True)
        found = self.index.find(wanted)
        where, way_out = "in the model than were given", "unlearn the id and use partial_fit"
        return slots_of_mentions(group, found.slots, found.counts, where=where, way_out=way_out), found

    def brought(self, row_ids: Ids, X: Floats, y: Floats) -> tuple[Change, Found]:
        """The removal of rows that are brought along, each matched with its slot by id and fingerprint."""
        slots, found = self.slots_of(row_ids)
        ensemble = self.state.ensemble
        Z = ensemble.encoder.integers(X, y)
        located = ensemble.store.located(slots, np.unique(row_ids, return_inverse=True)[1], Z)
        return Change(located, old=Z), found

    def retrained(self, rows: Rows) -> Self:
        """The same, trained from scratch on these rows."""
        state = State.learn(self.state.blueprint, rows, self.state.drawn)
        return replace(self, state=state, index=IdIndex(*self.index.entries()))

    def parts(self) -> Parts:
        """A header and arrays for a file."""
        header, arrays = state_parts(self.state)
        more, named = index_parts(self.index)
        return header | more | {"default_ids": self.default_ids, "flat": self.flat}, arrays | named

    @classmethod
    def load(cls, archive: Archive, blueprint: Blueprint) -> Self:
        """Read what `parts` wrote."""
        state = load_state(archive, blueprint)
        index = load_index(archive, state.ensemble.store.live)
        return cls(state, index, archive.get("default_ids", bool), archive.get("flat", bool))


def placed(blueprint: Blueprint, X: Floats, y: Floats) -> tuple[Rows, Slots]:
    """Put the rows of a first batch into their slots; return them, and the slots."""
    s, n = blueprint.code.shards, len(X)
    if n < s:
        raise InvalidInput(
            f"fit needs at least as many rows as shards, got n_samples={n}, shards={s}; use fewer shards"
        )
    slots = draw_slots(blueprint.key, 0, n, s)
    return Rows.place(X, y, slots, room(n, s)), slots


def row_ids(ids: Any, X: Any) -> Ids:
    """Each row's id; one id alone is that of all rows."""
    array = as_ids(ids)
    return np.repeat(array, len(X)) if len(array) == 1 and hasattr(X, "__len__") else array


def distinct(ids: Ids) -> Ids:
    """Return the ids, or refuse duplicates."""
    if not len(ids):
        raise InvalidInput("ids is empty: name at least one id")
    if len(ids) == 1:
        return ids
    values, first = np.unique(ids, return_index=True)
    if len(values) < len(ids):
        again = np.setdiff1d(np.arange(len(ids)), first)
        raise InvalidInput(f"duplicates in ids: {len(again)}, {positions(again.tolist())}; name each id once")
    return ids
