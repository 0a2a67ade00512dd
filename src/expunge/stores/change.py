"""Changes: rows that are replaced or erased, and the stripes and lanes of a learner that they touch."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..encoding.codes import Code
from ..encoding.encoder import Encoder
from ..exact.arrays import Floats, Slots


class Change(NamedTuple):  # one per deletion: made in a third of the time of a frozen dataclass
    """Rows to replace, by slot; X=None erases them."""

    slots: Slots  # (k,), each once
    X: Floats | None = None  # (k, d), the new rows
    y: Floats | None = None  # (k, t)
    old: Floats | None = None  # (k, width), the present rows as integers, for a store that keeps only sums

    def sort_slots(self) -> "Change":
        """Return the same change with its slots sorted, for `restrict`."""
        order = np.argsort(self.slots)
        X, y, old = (None if rows is None else rows[order] for rows in (self.X, self.y, self.old))
        return Change(self.slots[order], X, y, old)

    def restrict(self, start: int, stop: int) -> "Change":
        """Return the part of the change in slots from ``start`` to ``stop``; the slots must be sorted."""
        first, last = np.searchsorted(self.slots, [start, stop]).tolist()
        X, y, old = (None if rows is None else rows[first:last] for rows in self[1:])
        return Change(self.slots[first:last], X, y, old)

    @property
    def erases(self) -> bool:
        """Whether the rows are erased."""
        return self.X is None

    def integers(self, encoder: Encoder, indices: NDArray[np.intp]) -> Floats:
        """Return some of the new rows as integers; zeros if the rows are erased."""
        if self.X is None or self.y is None:
            return np.zeros((len(indices), encoder.width))
        return encoder.integers(self.X[indices], self.y[indices])


@dataclass(frozen=True, eq=False)
class TouchedRows:
    """The changed rows that feed a learner, with their stripes and lanes."""

    indices: NDArray[np.intp]  # (k,) among the changed rows
    stripe: NDArray[np.int64]  # (k,)
    lane: NDArray[np.intp]  # (k,) among the lanes that feed the learner

    @classmethod
    def from_change(cls, code: Code, learner: int, change: Change | None) -> Self:
        """Find the changed rows that feed a learner."""
        slots = np.empty(0, dtype=np.int64) if change is None else change.slots
        stripe, lane = np.divmod(slots, code.shards)
        place = code.columns[learner].place[lane]
        feeding = np.flatnonzero(place >= 0)
        return cls(feeding, stripe[feeding], place[feeding])

    def group_by_stripe(self) -> tuple[NDArray[np.int64], Self]:
        """Return the distinct stripes, sorted, and the rows with each stripe replaced by its position among these."""
        if len(self.stripe) == 1:
            return self.stripe, type(self)(self.indices, np.zeros_like(self.indices), self.lane)
        order = np.argsort(self.stripe)  # np.unique hashes, which takes many times as long
        ordered = self.stripe[order]
        first = np.diff(ordered, prepend=-1) != 0
        position = np.empty_like(order)
        position[order] = np.cumsum(first) - 1
        return ordered[first], type(self)(self.indices, position, self.lane)

    def restrict(self, block: slice) -> Self:
        """Return the rows in a block of stripes, with stripes counted from its first."""
        if len(self.stripe) == 1 and block.start <= self.stripe[0] < block.stop:
            return type(self)(self.indices, self.stripe - block.start, self.lane)
        inside = (self.stripe >= block.start) & (self.stripe < block.stop)
        return type(self)(self.indices[inside], self.stripe[inside] - block.start, self.lane[inside])

    @property
    def index(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """The index of these rows in an array of stripes and lanes."""
        return self.stripe, self.lane
