"""Bounds: where the columns of a table begin and end, and the map of their values to [0, 1].

Declared bounds are public facts. Observed bounds are the least and the largest value of the rows there are, so they
belong to the rows: see `extents`. Each column has one or the other.
Unit bounds take values in [-1, 1] as they are. Prediction uses the same map and never refuses a row: one that lies
outside is moved to the nearest point inside (`clamped`) or, if so asked, extrapolated.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import CountedInput, InvalidSetting
from ..exact.arrays import Floats
from ..exact.native import kernels

BoundsLike: TypeAlias = Any  # None, "unit" or a pair (low, high)

_AT_ONCE = 2**13  # rows that are looked at at once: what is computed of them then stays small


@dataclass(frozen=True, eq=False)
class Bounds:
    """The range of each column of a table. As a declaration: NaN where it is to be observed."""

    low: Floats  # (d,)
    high: Floats  # (d,)
    unit: bool = False

    @classmethod
    def declared(cls, pair: Any, columns: int, *, name: str) -> "Bounds":
        """A pair (low, high): two scalars or one of each per column, NaN or None in both to observe it."""
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
        if len(self._constant):  # such a column says nothing, also where a row to be predicted has another value
            scaled[:, self._constant] = 0.0
        return scaled

    def unscale(self, scaled: Floats) -> Floats:
        """The inverse of `scale`; a constant column comes back as its constant."""
        if self.unit:
            return scaled
        return scaled * (self.high - self.low) + self.low

    def clamped(self, values: Floats) -> Floats:
        """The nearest values inside; columns that are to be observed stay as they are."""
        inside = np.fmax(values, self.low)  # np.clip would make an observed column NaN
        return np.fmin(inside, self.high, out=inside)

    def outside_rows(self, values: Floats) -> NDArray[np.bool_]:
        """Which rows have a value outside, (n,)."""
        outside = np.empty(len(values), dtype=np.bool_)
        for start in range(0, len(values), _AT_ONCE):
            some = values[start : start + _AT_ONCE]
            outside[start : start + _AT_ONCE] = ((some < self.low) | (some > self.high)).any(axis=1)
        return outside

    def admit(self, values: Floats, *, clip: bool, name: str, columns: Sequence[str] | None = None) -> Floats:
        """Return the rows if they are inside (or clipped), or say how many are outside in which columns."""
        if np.isnan(self.low).all():
            return values  # nothing is declared: spare a pass over the rows
        if (
            (native := kernels()) is not None
            and values.flags.c_contiguous
            and native.inside(values, self.low, self.high)
        ):
            return values
        outside = sum(
            ((some < self.low) | (some > self.high)).sum(axis=0)
            for some in (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))
        )
        if not np.any(outside):
            return values
        if clip and not self.unit:
            return self.clamped(values)
        counts: Counter[str] = Counter()  # two columns may have one name
        for j in np.flatnonzero(outside).tolist():
            counts[f"column {f'{j} of {name}' if columns is None else repr(columns[j])}"] += int(outside[j])
        kind, way_out = (
            ("unit", "declare bounds instead")
            if self.unit
            else ("declared", "widen the bounds (in a vault: expunge rebound), or clip the values (clip=True, --clip)")
        )
        raise CountedInput(f"rows outside the {kind} bounds", counts, len(values), way_out)


def parse_bounds(spec: BoundsLike, columns: int, *, name: str) -> Bounds:
    """Read a ``bounds`` parameter: None observes every column."""
    if isinstance(spec, str):
        if spec != "unit":
            raise InvalidSetting(f"{name} must be None, 'unit' or a pair (low, high), got {spec!r}")
        return Bounds(np.full(columns, -1.0), np.full(columns, 1.0), unit=True)
    return Bounds.declared((None, None) if spec is None else spec, columns, name=name)
