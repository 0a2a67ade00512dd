"""Changes: rows that are replaced or erased, and where they touch a learner."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..encoding.codes import Code
from ..encoding.encoder import Encoder
from ..exact.arrays import Floats, Slots


class Change(NamedTuple):  # made for each deletion: in a third of the time of a frozen dataclass
    """Rows to be replaced, in their slots; X=None erases the slots."""

    slots: Slots  # (k,), each once
    X: Floats | None = None  # (k, d), the new rows
    y: Floats | None = None  # (k, t)
    old: Floats | None = None  # (k, width), the integers of the rows that are there, for a store that has only sums

    def sort_slots(self) -> "Change":
        """The same change with its slots sorted, for `between`."""
        order = np.argsort(self.slots)
        X, y, old = (None if rows is None else rows[order] for rows in (self.X, self.y, self.old))
        return Change(self.slots[order], X, y, old)

    def restrict(self, start: int, stop: int) -> "Change":
        """The part of a change in order that is in these slots."""
        first, last = np.searchsorted(self.slots, [start, stop]).tolist()
        X, y, old = (None if rows is None else rows[first:last] for rows in self[1:])
        return Change(self.slots[first:last], X, y, old)

    @property
    def erases(self) -> bool:
        """Whether the rows go."""
        return self.X is None

    def integers(self, encoder: Encoder, indices: NDArray[np.intp]) -> Floats:
        """These of the new rows as integers; zeros if the rows go."""
        if self.X is None or self.y is None:
            return np.zeros((len(indices), encoder.width))
        return encoder.integers(self.X[indices], self.y[indices])


@dataclass(frozen=True, eq=False)
class TouchedRows:
    """Which of the changed rows feed a learner, and where."""

    indices: NDArray[np.intp]  # (k,) among the changed rows
    stripe: NDArray[np.int64]  # (k,)
    lane: NDArray[np.intp]  # (k,) among the lanes that feed the learner

    @classmethod
    def from_change(cls, code: Code, learner: int, change: Change | None) -> Self:
        """Look up the slots of a change."""
        slots = np.empty(0, dtype=np.int64) if change is None else change.slots
        stripe, lane = np.divmod(slots, code.shards)
        place = code.columns[learner].place[lane]
        which = np.flatnonzero(place >= 0)
        return cls(which, stripe[which], place[which])

    def group_by_stripe(self) -> tuple[NDArray[np.int64], Self]:
        """The stripes that are touched, sorted, and the same rows with positions among those."""
        if len(self.stripe) == 1:
            return self.stripe, type(self)(self.indices, np.zeros_like(self.indices), self.lane)
        order = np.argsort(self.stripe)  # np.unique hashes, which takes many times as long
        ordered = self.stripe[order]
        first = np.diff(ordered, prepend=-1) != 0
        position = np.empty_like(order)
        position[order] = np.cumsum(first) - 1
        return ordered[first], type(self)(self.indices, position, self.lane)

    def restrict(self, block: slice) -> Self:
        """The rows in a block of stripes, which are counted from its first."""
        if len(self.stripe) == 1 and block.start <= self.stripe[0] < block.stop:
            return type(self)(self.indices, self.stripe - block.start, self.lane)
        here = (self.stripe >= block.start) & (self.stripe < block.stop)
        return type(self)(self.indices[here], self.stripe[here] - block.start, self.lane[here])

    @property
    def index(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Where they are in an array of stripes and lanes."""
        return self.stripe, self.lane
