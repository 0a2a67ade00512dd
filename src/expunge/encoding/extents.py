"""Extents: the bounds in force, and whether a row that comes or goes moves one.

An observed bound is the least or the largest value of the rows there are. How many rows lie on it is counted, so that
most changes are known to leave it where it is without a look at the other rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..exact.arrays import Floats, unsigned_zeros
from .bounds import Bounds


@dataclass(frozen=True, eq=False)
class Extent:
    """The bounds in force, and how many rows lie on each: only the last one to leave moves an observed bound."""

    bounds: Bounds
    at_low: NDArray[np.int64]  # (d,), one more where declared: as if a row lay there that never leaves
    at_high: NDArray[np.int64]  # (d,)

    @classmethod
    def none(cls, declared: Bounds) -> "Extent":
        """The extent of no rows: zero where it is observed."""
        observed = np.isnan(declared.low)
        low, high = np.where(observed, 0.0, declared.low), np.where(observed, 0.0, declared.high)
        rows = (~observed).astype(np.int64)
        return cls(Bounds(low, high, declared.unit), rows, rows)

    def widened(self, values: Floats) -> "Extent":
        """The extent with more rows; in declared columns they lie inside."""
        if not len(values):
            return self
        values = np.asfortranarray(values)  # what follows goes down the columns: many times faster where they lie whole
        least, largest, first = values.min(axis=0), values.max(axis=0), self.at_low == 0
        low = unsigned_zeros(np.where(first, least, np.minimum(self.bounds.low, least)))
        high = unsigned_zeros(np.where(first, largest, np.maximum(self.bounds.high, largest)))
        with np.errstate(over="ignore"):
            if wide := np.flatnonzero(~np.isfinite(high - low)).tolist():
                raise InvalidInput(f"the values of columns {wide} are too far apart for float64; rescale them")
        at_low, at_high = _attained(values, low, high)
        at_low += np.where(low == self.bounds.low, self.at_low, 0)
        at_high += np.where(high == self.bounds.high, self.at_high, 0)
        return Extent(Bounds(low, high, self.bounds.unit), at_low, at_high)

    def and_those(self, parts: "Iterable[Extent]") -> "Extent":
        """The extent of no rows, which this is, with all rows that the parts are of."""
        extent = self
        for part in parts:
            if (part.at_low > 0).all():
                both = extent.widened(np.array([part.bounds.low, part.bounds.high]))
                at_low = [np.where(one.bounds.low == both.bounds.low, one.at_low, 0) for one in (extent, part)]
                at_high = [np.where(one.bounds.high == both.bounds.high, one.at_high, 0) for one in (extent, part)]
                extent = Extent(both.bounds, sum(at_low) - self.at_low, sum(at_high) - self.at_high)
        return extent

    def replaced(self, old: Floats, new: Floats) -> "Extent | None":
        """The extent with rows ``old`` gone and ``new`` there, or None if a bound may have moved: measure again."""
        low, high = self.bounds.low, self.bounds.high
        if len(new) and ((new < low) | (new > high)).any():
            return None
        (old_low, old_high), (new_low, new_high) = _attained(old, low, high), _attained(new, low, high)
        at_low, at_high = self.at_low - old_low + new_low, self.at_high - old_high + new_high
        if not (at_low.all() and at_high.all()):
            return None
        return Extent(self.bounds, at_low, at_high)


@dataclass(frozen=True, eq=False)
class Extents:
    """The extents of inputs and targets."""

    inputs: Extent
    targets: Extent

    @classmethod
    def of(cls, inputs: Bounds, targets: Bounds, blocks: Iterable[tuple[Floats, Floats]] = ()) -> "Extents":
        """The extents of rows, with what was declared; they come in blocks (X, y)."""
        extents = cls(Extent.none(inputs), Extent.none(targets))
        for X, y in blocks:
            extents = extents.widened(X, y)
        return extents

    def widened(self, X: Floats, y: Floats) -> "Extents":
        """The extents with more rows."""
        return Extents(self.inputs.widened(X), self.targets.widened(y))

    def and_those(self, parts: "Sequence[Extents]") -> "Extents":
        """The extents of no rows, which these are, with all rows that the parts are of."""
        inputs = self.inputs.and_those(part.inputs for part in parts)
        return Extents(inputs, self.targets.and_those(part.targets for part in parts))

    def same_bounds(self, other: "Extents") -> bool:
        """Whether the bounds in force are the same."""
        sides = ((self.inputs.bounds, other.inputs.bounds), (self.targets.bounds, other.targets.bounds))
        return all(np.array_equal(a.low, b.low) and np.array_equal(a.high, b.high) for a, b in sides)

    def replaced(self, old: tuple[Floats, Floats], new: tuple[Floats, Floats]) -> "Extents | None":
        """The extents after a change of rows (X, y), or None if a bound moved."""
        inputs, targets = self.inputs.replaced(old[0], new[0]), self.targets.replaced(old[1], new[1])
        return Extents(inputs, targets) if inputs and targets else None


def _attained(values: Floats, low: Floats, high: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many rows lie on each bound."""
    return (values == low).sum(axis=0), (values == high).sum(axis=0)
