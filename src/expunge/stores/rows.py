"""Rows: a store that keeps the rows themselves."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..encoding.codes import Column
from ..encoding.encoder import Encoder
from ..exact.arrays import WHOLE, Floats, Part, Slots, cut, unsigned_zeros
from .change import Change, Touch
from .store import CodedBlock, padded


class Rows:
    """The rows themselves, in slot order. X and y may be memory maps."""

    def __init__(self, X: Floats, y: Floats, live: NDArray[np.bool_]) -> None:
        self.X, self.y, self.live = X, y, live  # (slots, d), (slots, t), (slots,)

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
        if len(change.slots) == 1 and encoder.native is not None:
            yield self._touched_by_one(encoder, column, change)
            return
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

    def _touched_by_one(self, encoder: Encoder, column: Column, change: Change) -> tuple[CodedBlock, CodedBlock]:
        """As `touched`, of one row and so of one stripe: most requests are such."""
        stripe, lane = divmod(int(change.slots[0]), encoder.code.shards)
        slots, place = stripe * encoder.code.shards + column.lanes, column.place[lane]
        live = self.live[slots]
        X, y = self.take(slots[live])
        weights = np.empty((2, len(X)))  # before and after
        weights[:] = column.floats[live]
        goes, comes = bool(live[place]), not change.erases
        if goes:
            weights[1, np.count_nonzero(live[:place])] = 0.0
        coded = encoder.coded(X, y, np.zeros(len(X), dtype=np.int64), weights, 1)
        if change.X is not None and change.y is not None:
            more = encoder.coded(change.X, change.y, np.zeros(1, dtype=np.int64), column.floats[place].reshape(1, 1), 1)
            coded[1] += more[0]
        here, before, after = np.array([stripe]), len(X), len(X) - goes + comes
        return CodedBlock(here[:before], coded[0, :before], before), CodedBlock(here[:after], coded[1, :after], after)

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
        self.X[change.slots] = 0.0 if change.X is None else change.X
        self.y[change.slots] = 0.0 if change.y is None else change.y
        self.live[change.slots] = not change.erases

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
