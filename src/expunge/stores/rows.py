"""Rows: a store that keeps the rows themselves."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..encoding.codes import Column
from ..encoding.encoder import Encoder
from ..exact.arrays import WHOLE, Floats, Part, Slots, cut, unsigned_zeros
from ..exact.moments import Moments
from .bits import Live
from .change import Change, Touch
from .store import CodedBlock, Stripe, padded


class Rows:
    """The rows themselves, in slot order. X and y may be memory maps."""

    def __init__(self, X: Floats, y: Floats, live: Live) -> None:
        self.X, self.y, self.live = X, y, live  # (slots, d), (slots, t), (slots,)
        # Whether rows may be read where they lie; who derives a store from this may have a say in what `take` returns.
        self._whole = type(self) is Rows and X.flags.c_contiguous and y.flags.c_contiguous

    def shard(
        self, encoder: Encoder, learner: int, change: Change | None = None, part: Part = WHOLE
    ) -> Iterator[CodedBlock]:
        column = encoder.code.columns[learner]
        touch = Touch.of(encoder.code, learner, change)
        for block in cut(len(self.live) // encoder.code.shards, len(column.lanes) * encoder.width, part):
            stripes = np.arange(block.start, block.stop)
            slots = stripes[:, None] * encoder.code.shards + column.lanes
            live, here = self.live[slots], touch.within(block)
            live[here.at] = False  # a row that goes is not read: where a bound moved, it may be far outside
            coded = self._coded(encoder, column, slots, live[None], change, here)[-1]
            live[here.at] = change is not None and not change.erases
            yield CodedBlock.of(stripes, coded, live)

    def touched(
        self, encoder: Encoder, learner: int, change: Change, part: Part = WHOLE
    ) -> Iterator[tuple[CodedBlock, CodedBlock]]:
        column = encoder.code.columns[learner]
        stripes, touch = Touch.of(encoder.code, learner, change).by_stripe()
        for block in cut(len(stripes), len(column.lanes) * encoder.width, part):
            some = stripes[block]
            slots = some[:, None] * encoder.code.shards + column.lanes
            here, live = touch.within(block), self.live[slots]
            kept = live.copy()
            kept[here.at] = False
            before, after = self._coded(encoder, column, slots, np.stack([live, kept]), change, here)
            kept[here.at] = not change.erases
            yield CodedBlock.of(some, before, live), CodedBlock.of(some, after, kept)

    def stripe(self, encoder: Encoder, learner: int, slot: int) -> Stripe:
        first = slot - slot % len(encoder.code.G)
        if self._whole and encoder.plain:
            return self.X, self.y, self.live, first
        slots = first + encoder.code.columns[learner].lanes
        live = self.live[slots]
        X, y = self.take(slots[live])
        return *encoder.as_column_takes(X, y), live, -1

    def table(self, encoder: Encoder) -> tuple[Floats, Floats, Live] | None:
        return (self.X, self.y, self.live) if self._whole and encoder.plain else None

    def at_once(self, encoder: Encoder) -> int | None:
        return None

    def summed(self, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        return None

    def stripes(self, shards: int, stripes: range, change: Change | None = None) -> "Rows":
        first, last = stripes.start * shards, stripes.stop * shards
        live = self.live[first:last].copy()
        here = None if change is None else change.between(first, last)
        if here is not None:
            live[here.slots - first] = False  # a row that goes is not read: where a bound moved, it may be far outside
        X, y = np.zeros((last - first, self.X.shape[1])), np.zeros((last - first, self.y.shape[1]))
        X[live], y[live] = self.take(first + np.flatnonzero(live))
        if here is not None and here.X is not None and here.y is not None:
            at = here.slots - first
            X[at], y[at], live[at] = here.X, here.y, True
        return Rows(X, y, live)

    def _coded(
        self,
        encoder: Encoder,
        column: Column,
        slots: Slots,
        taken: NDArray[np.bool_],
        change: Change | None,
        here: Touch,
    ) -> Sequence[Floats]:
        """Coded rows, (m, width) for each set of ``taken`` rows, (sets, m, L): the first has all that any has; the new
        rows of a change are in the last.
        """
        first = taken[0]
        if encoder.native is not None:
            owner, lane = first.nonzero()
            weights = taken[:, first] * column.floats[lane]
            sums = encoder.coded(*self.take(slots[first]), owner, weights, len(slots))
            if change is not None and change.X is not None and change.y is not None:
                X, y, weights = change.X[here.which], change.y[here.which], column.floats[None, here.lane]
                sums[-1] += encoder.coded(X, y, here.stripe, weights, len(slots))[0]
            return tuple(sums)
        Z = self.integers(encoder, slots, first)
        if change is None:
            return [column.sum(Z)]
        before = [column.sum(Z).copy()] if len(taken) > 1 else []  # a copy: with one lane the sum is Z itself
        Z[here.at] = change.integers(encoder, here.which)
        return [*before, column.sum(Z)]

    def integers(self, encoder: Encoder, slots: Slots, live: NDArray[np.bool_]) -> Floats:
        """The rows in these slots as integers, zero where none is live: (m, L), (m, L) -> (m, L, width)."""
        if np.count_nonzero(live) == live.size:
            return encoder.integers(*self.take(slots.ravel())).reshape(*slots.shape, -1)
        Z = np.zeros((*slots.shape, encoder.width))
        Z[live] = encoder.integers(*self.take(slots[live]))
        return Z

    def sweep(self, change: Change | None = None) -> Iterator[tuple[Floats, Floats]]:
        """All rows, a block at a time, as they are or as they will be after a change."""
        live = self.live
        if change is not None:
            live = live.copy()
            live[change.slots] = False
        for block in cut(len(live), self.X.shape[1] + self.y.shape[1]):
            yield self.take(block.start + np.flatnonzero(live[block]))
        if change is not None and change.X is not None and change.y is not None:
            yield change.X, change.y

    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        """The rows in slots that have one: (k,) -> (k, d), (k, t). Every row that is read is read here."""
        return self.X.take(slots, axis=0), self.y.take(slots, axis=0)  # for few rows faster than indexing

    def prepare(self, encoder: Encoder, change: Change) -> Callable[[], None]:
        return lambda: self.commit(change)

    def commit(self, change: Change) -> None:
        """Carry a change out."""
        slots: Any = change.slots if len(change.slots) != 1 else int(change.slots[0])  # for one much faster
        self.X[slots] = 0.0 if change.X is None else change.X
        self.y[slots] = 0.0 if change.y is None else change.y
        self.live[slots] = not change.erases

    def grown(self, slots: int) -> Self:
        return type(self)(padded(self.X, slots), padded(self.y, slots), padded(self.live, slots))

    @classmethod
    def place(cls, X: Floats, y: Floats, slots: Slots, room: int) -> Self:
        """Rows put into their slots, of which there are ``room``."""
        rows = cls(np.zeros((room, X.shape[1])), np.zeros((room, y.shape[1])), np.zeros(room, dtype=np.bool_))
        for block in cut(len(X), X.shape[1] + y.shape[1]):
            rows.commit(Change(slots[block], unsigned_zeros(X[block]), unsigned_zeros(y[block])))
        return rows

    def located(self, slots: Slots, group: NDArray[np.intp], Z: Floats) -> Slots:
        return slots

    def as_rows(self) -> "Rows":
        return self

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"X": self.X, "y": self.y, "live": self.live}
