"""Bounds: where the columns of a table begin and end, and the map of their values to [0, 1].

Declared bounds are public facts. Observed bounds are the least and the largest value of the present rows, so they
depend on the rows: an `Extent` counts how many rows lie on each, so that most changes are known to leave it unmoved
without reading the other rows. Each column has one or the other. Unit bounds use values in [-1, 1] as they are.
Prediction uses the same map and never refuses a row: a row outside is moved to the nearest point inside (`clamp`) or
extrapolated.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidColumns, InvalidInput, InvalidSetting
from ..exact.arrays import Floats, unsigned_zeros
from ..exact.native import kernels

BoundsLike: TypeAlias = Any  # None, "unit" or a pair (low, high)

_ROWS_PER_BLOCK = 2**13  # rows that are checked at once, to keep intermediate results small


@dataclass(frozen=True, eq=False)
class Bounds:
    """The range of each column of a table. In a declaration, NaN means observed."""

    low: Floats  # (d,)
    high: Floats  # (d,)
    unit: bool = False

    @classmethod
    def from_pair(cls, pair: Any, columns: int, *, name: str) -> "Bounds":
        """Read a pair (low, high): two scalars, or two values per column; NaN or None in both means observed."""
        try:
            low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), (columns,)) + 0.0 for side in pair)
        except (TypeError, ValueError):
            raise InvalidSetting(
                f"{name} must be None (observed), 'unit' or a pair (low, high) of scalars or of {columns} values each"
            ) from None
        if halves := np.flatnonzero(np.isnan(low) != np.isnan(high)).tolist():
            raise InvalidSetting(
                f"{name} must have a low and a high in each column, or neither (it is then observed); "
                f"one is missing in columns {halves}"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            if not (np.isfinite(high - low) | np.isnan(low)).all():
                raise InvalidSetting(f"{name} must be finite, and so must high - low")
        if reversed_ := np.flatnonzero(low > high).tolist():
            raise InvalidSetting(f"{name} must have low <= high; they are reversed in columns {reversed_}")
        return cls(low, high)

    @cached_property
    def observed(self) -> bool:
        """Whether a row can move a bound."""
        return bool(np.isnan(self.low).any())

    @cached_property
    def width(self) -> Floats:
        """High minus low; 1 for a constant column."""
        width = self.high - self.low
        width[width == 0.0] = 1.0
        return width

    @cached_property
    def _constant(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.high == self.low)

    def scale(self, values: Floats) -> Floats:
        """Map to [0, 1] ("unit": to themselves). One subtraction, one division: the same bits on every machine."""
        if self.unit:
            return values
        scaled = values - self.low
        scaled /= self.width
        if len(self._constant):  # a constant column carries no information, even if a row to predict has another value
            scaled[:, self._constant] = 0.0
        return scaled

    def unscale(self, scaled: Floats) -> Floats:
        """Invert `scale`; a constant column becomes its constant."""
        if self.unit:
            return scaled
        return scaled * (self.high - self.low) + self.low

    def clamp(self, values: Floats) -> Floats:
        """Return the nearest values inside; observed columns stay as they are."""
        inside = np.fmax(values, self.low)  # np.clip would make an observed column NaN
        return np.fmin(inside, self.high, out=inside)

    def outside_rows(self, values: Floats) -> NDArray[np.bool_]:
        """Return which rows have a value outside, (n,)."""
        outside = np.empty(len(values), dtype=np.bool_)
        for start in range(0, len(values), _ROWS_PER_BLOCK):
            block = values[start : start + _ROWS_PER_BLOCK]
            outside[start : start + _ROWS_PER_BLOCK] = ((block < self.low) | (block > self.high)).any(axis=1)
        return outside

    def admit(self, values: Floats, *, clip: bool, name: str, columns: Sequence[str] | None = None) -> Floats:
        """Return the rows, clipped if ``clip`` is set, or raise an error with the number outside in each column."""
        if np.isnan(self.low).all():
            return values  # nothing is declared: save a pass over the rows
        if (
            (native := kernels()) is not None
            and values.flags.c_contiguous
            and native.inside(values, self.low, self.high)
        ):
            return values
        blocks = (values[start : start + _ROWS_PER_BLOCK] for start in range(0, len(values), _ROWS_PER_BLOCK))
        outside = sum(((block < self.low) | (block > self.high)).sum(axis=0) for block in blocks)
        if not np.any(outside):
            return values
        if clip and not self.unit:
            return self.clamp(values)
        counts: Counter[str] = Counter()  # two columns may have the same name
        for j in np.flatnonzero(outside).tolist():
            counts[f"column {f'{j} of {name}' if columns is None else repr(columns[j])}"] += int(outside[j])
        kind, way_out = (
            ("unit", "declare bounds instead")
            if self.unit
            else ("declared", "widen the bounds (in a vault: expunge rebound), or clip the values (clip=True, --clip)")
        )
        raise InvalidColumns(f"rows outside the {kind} bounds", counts, len(values), way_out)


def parse_bounds(spec: BoundsLike, columns: int, *, name: str) -> Bounds:
    """Read a ``bounds`` parameter: None observes every column."""
    if isinstance(spec, str):
        if spec != "unit":
            raise InvalidSetting(f"{name} must be None, 'unit' or a pair (low, high), got {spec!r}")
        return Bounds(np.full(columns, -1.0), np.full(columns, 1.0), unit=True)
    return Bounds.from_pair((None, None) if spec is None else spec, columns, name=name)


@dataclass(frozen=True, eq=False)
class Extent:
    """The bounds in force, and how many rows lie on each: only the last one to leave moves an observed bound."""

    bounds: Bounds
    at_low: NDArray[np.int64]  # (d,), one more where declared: as if a row lay there that never leaves
    at_high: NDArray[np.int64]  # (d,)

    @classmethod
    def empty(cls, declared: Bounds) -> "Extent":
        """Return the extent of no rows: zero in observed columns."""
        observed = np.isnan(declared.low)
        low, high = np.where(observed, 0.0, declared.low), np.where(observed, 0.0, declared.high)
        rows = (~observed).astype(np.int64)
        return cls(Bounds(low, high, declared.unit), rows, rows)

    def widen(self, values: Floats) -> "Extent":
        """Return the extent with more rows, which lie inside the declared bounds."""
        if not len(values):
            return self
        values = np.asfortranarray(values)  # the steps below go down the columns: many times faster if contiguous
        least, largest, first = values.min(axis=0), values.max(axis=0), self.at_low == 0
        low = unsigned_zeros(np.where(first, least, np.minimum(self.bounds.low, least)))
        high = unsigned_zeros(np.where(first, largest, np.maximum(self.bounds.high, largest)))
        with np.errstate(over="ignore"):
            if wide := np.flatnonzero(~np.isfinite(high - low)).tolist():
                raise InvalidInput(f"the values of columns {wide} are too far apart for float64; rescale them")
        at_low, at_high = _count_at_bounds(values, low, high)
        at_low += np.where(low == self.bounds.low, self.at_low, 0)
        at_high += np.where(high == self.bounds.high, self.at_high, 0)
        return Extent(Bounds(low, high, self.bounds.unit), at_low, at_high)

    def merge(self, parts: "Iterable[Extent]") -> "Extent":
        """Combine the extents of parts of a table; call it on the extent of no rows."""
        extent = self
        for part in parts:
            if (part.at_low > 0).all():
                both = extent.widen(np.array([part.bounds.low, part.bounds.high]))
                at_low = [np.where(e.bounds.low == both.bounds.low, e.at_low, 0) for e in (extent, part)]
                at_high = [np.where(e.bounds.high == both.bounds.high, e.at_high, 0) for e in (extent, part)]
                extent = Extent(both.bounds, sum(at_low) - self.at_low, sum(at_high) - self.at_high)
        return extent

    def replace_rows(self, old: Floats, new: Floats) -> "Extent | None":
        """Return the extent with rows ``new`` in place of ``old``, or None if a bound may have moved: measure again."""
        low, high = self.bounds.low, self.bounds.high
        if len(new) and ((new < low) | (new > high)).any():
            return None
        (old_low, old_high), (new_low, new_high) = _count_at_bounds(old, low, high), _count_at_bounds(new, low, high)
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
    def measure(cls, inputs: Bounds, targets: Bounds, blocks: Iterable[tuple[Floats, Floats]] = ()) -> "Extents":
        """Measure the extents of rows, which come in blocks (X, y), given the declared bounds."""
        extents = cls(Extent.empty(inputs), Extent.empty(targets))
        for X, y in blocks:
            extents = extents.widen(X, y)
        return extents

    def widen(self, X: Floats, y: Floats) -> "Extents":
        """Return the extents with more rows."""
        return Extents(self.inputs.widen(X), self.targets.widen(y))

    def merge(self, parts: "Sequence[Extents]") -> "Extents":
        """Combine the extents of parts of a table; call it on the extents of no rows."""
        inputs = self.inputs.merge(part.inputs for part in parts)
        return Extents(inputs, self.targets.merge(part.targets for part in parts))

    def has_same_bounds(self, other: "Extents") -> bool:
        """Return whether the bounds in force are the same."""
        sides = ((self.inputs.bounds, other.inputs.bounds), (self.targets.bounds, other.targets.bounds))
        return all(np.array_equal(a.low, b.low) and np.array_equal(a.high, b.high) for a, b in sides)

    def replace_rows(self, old: tuple[Floats, Floats], new: tuple[Floats, Floats]) -> "Extents | None":
        """Return the extents after a change of rows (X, y), or None if a bound may have moved."""
        inputs, targets = self.inputs.replace_rows(old[0], new[0]), self.targets.replace_rows(old[1], new[1])
        return Extents(inputs, targets) if inputs and targets else None


def _count_at_bounds(values: Floats, low: Floats, high: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the rows on each bound."""
    return (values == low).sum(axis=0), (values == high).sum(axis=0)
