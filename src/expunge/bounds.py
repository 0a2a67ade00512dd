"""Bounds: where the columns of a table begin and end, and the map of their values to [0, 1].

Declared bounds are public facts. Observed bounds are the least and the largest value of the rows there are, so they
belong to the rows: whoever removes or adds one asks `Extent` whether a bound moved. Unit bounds take values in [-1, 1]
as they are. Prediction uses the same map and never refuses a row: outside the bounds it extrapolates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidInput, InvalidSetting

Floats: TypeAlias = NDArray[np.float64]
BoundsLike: TypeAlias = Any  # None, "unit" or a pair (low, high)
Kind: TypeAlias = Literal["declared", "observed", "unit"]


@dataclass(frozen=True, eq=False)
class Bounds:
    """The range of each column of a table."""

    low: Floats  # (d,)
    high: Floats  # (d,)
    kind: Kind

    @classmethod
    def unit(cls, columns: int) -> "Bounds":
        """Values that are in [-1, 1] already."""
        return cls(np.full(columns, -1.0), np.full(columns, 1.0), "unit")

    @classmethod
    def declared(cls, pair: Any, columns: int, *, name: str) -> "Bounds":
        """A pair (low, high): two scalars or one of each a column."""
        try:
            low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), (columns,)) + 0.0 for side in pair)
        except (TypeError, ValueError):
            raise InvalidSetting(
                f"{name} must be None (observed), 'unit' or a pair (low, high) of scalars or of {columns} values each"
            ) from None
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(high - low).all():
                raise InvalidSetting(f"{name} must be finite, and so must high - low")
        if reversed_ := np.flatnonzero(low > high).tolist():
            raise InvalidSetting(f"{name} must have low <= high; they are reversed in columns {reversed_}")
        return cls(low, high, "declared")

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
        if self.kind == "unit":
            return values
        scaled = values - self.low
        scaled /= self.width
        if len(self._constant):  # such a column says nothing, also where a row to be predicted has another value
            scaled[:, self._constant] = 0.0
        return scaled

    def unscale(self, scaled: Floats) -> Floats:
        """The inverse of `scale`; a constant column comes back as its constant."""
        if self.kind == "unit":
            return scaled
        return scaled * (self.high - self.low) + self.low

    def admit(self, values: Floats, *, clip: bool, name: str, columns: Sequence[str] | None = None) -> Floats:
        """Return the rows if they are inside (or clipped), or say how many are outside in which columns."""
        outside = ((values < self.low) | (values > self.high)).sum(axis=0)
        if not outside.any():
            return values
        if clip and self.kind == "declared":
            return np.clip(values, self.low, self.high)
        where = ", ".join(
            f"{n} in column {columns[j] if columns is not None else j!r}" for j, n in enumerate(outside) if n
        )
        way_out = "widen the bounds or set clip=True" if self.kind == "declared" else "declare bounds instead"
        raise InvalidInput(f"{name}: rows outside the {self.kind} bounds: {where}; {way_out}")


@dataclass(frozen=True, eq=False)
class Extent:
    """Observed bounds, and how many rows lie on each: only the last one to leave moves a bound."""

    bounds: Bounds
    at_low: NDArray[np.int64]  # (d,)
    at_high: NDArray[np.int64]  # (d,)

    @classmethod
    def of(cls, values: Floats, live: NDArray[np.bool_]) -> "Extent":
        """The extent of the rows that are live; that of no rows is zero."""
        if not live.any():
            zero = np.zeros(values.shape[1])
            return cls(Bounds(zero, zero, "observed"), zero.astype(np.int64), zero.astype(np.int64))
        where = live[:, None]
        # Adding 0.0 turns -0.0 into 0.0: which of the two comes first would else show in the bounds.
        low = np.min(values, axis=0, where=where, initial=np.inf) + 0.0
        high = np.max(values, axis=0, where=where, initial=-np.inf) + 0.0
        with np.errstate(over="ignore"):
            if not np.isfinite(high - low).all():
                wide = np.flatnonzero(~np.isfinite(high - low)).tolist()
                raise InvalidInput(f"the values of columns {wide} are too far apart for float64; rescale them")
        return cls(Bounds(low, high, "observed"), *_attained(values, low, high, where))

    def replaced(self, old: Floats, new: Floats) -> "Extent | None":
        """The extent with rows ``old`` gone and ``new`` there, or None if a bound may have moved: measure again."""
        low, high = self.bounds.low, self.bounds.high
        if ((new < low) | (new > high)).any():
            return None
        (old_low, old_high), (new_low, new_high) = _attained(old, low, high), _attained(new, low, high)
        at_low, at_high = self.at_low - old_low + new_low, self.at_high - old_high + new_high
        if not (at_low.all() and at_high.all()):
            return None
        return Extent(self.bounds, at_low, at_high)


def _attained(
    values: Floats, low: Floats, high: Floats, where: NDArray[np.bool_] | Literal[True] = True
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many rows lie on each bound."""
    return np.sum(values == low, axis=0, where=where), np.sum(values == high, axis=0, where=where)


def parse_bounds(spec: BoundsLike, columns: int, *, name: str) -> Bounds | None:
    """Read a ``bounds`` parameter: None means observed."""
    if spec is None:
        return None
    if isinstance(spec, str):
        if spec != "unit":
            raise InvalidSetting(f"{name} must be None, 'unit' or a pair (low, high), got {spec!r}")
        return Bounds.unit(columns)
    return Bounds.declared(spec, columns, name=name)
