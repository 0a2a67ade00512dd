"""Scales: monotone maps of the inputs to [0, 1], declared like bounds. An input may be given on several scales at once.

A target has one scale, on which it is learned and from which predictions are mapped back; it has no knots.

"linear" is the position of a value between the bounds, "log" the same in orders of magnitude, and knots declare a
piecewise linear map. A scale never looks at rows; only observed bounds depend on them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting
from ..exact.arrays import Floats
from .bounds import Bounds
from .values import as_float

Knots: TypeAlias = tuple[float, ...]
Scale: TypeAlias = str | Knots  # "linear", "log", or knots

# A log scale whose low end is not above zero spans ten doublings.
_SPAN = 2.0**10

# log2(1 + f) = s * P(s^2), s = f / (2 + f), for 1 + f from sqrt(1/2) to sqrt(2): minimax by Remez' algorithm, within
# 1.8e-16 of it.
_LOG2 = (
    2.885390081777927,
    0.9617966939243247,
    0.5770780172502915,
    0.4121984014714671,
    0.32061642603076596,
    0.26144310258681597,
    0.24292909107650873,
)

# 2^f - 1 = sum over k of (f log 2)^k / k!, for f from -1/2 to 1/2 within 1e-17 of it.
_EXP2 = tuple(math.log(2) ** k / math.factorial(k) for k in range(1, 14))


class Curves:
    """The map of rows in their own units to scaled columns; column j is ``scales[j]`` of the input ``source[j]``.

    Values are computed one by one with comparisons, frexp and + - * /, which IEEE 754 fixes to the last bit: a scaled
    value depends neither on the machine nor on the rows beside it.
    """

    def __init__(self, scales: Sequence[Scale], source: NDArray[np.intp], bounds: Bounds) -> None:
        self._bounds, self._source = bounds, source
        self._logs = np.flatnonzero([scale == "log" for scale in scales])
        self._ratio = _ratios(bounds)[source[self._logs]]
        self._ratio[self._ratio == 0.0] = 1.0  # of a constant column, which is zero
        self._whole = log2_of_one_plus(self._ratio)
        self._bent = np.flatnonzero([not isinstance(scale, str) for scale in scales])
        self._bent_source = source[self._bent]
        self._pieces = _PiecewiseLinear([scale for scale in scales if not isinstance(scale, str)])
        self._constant = np.flatnonzero((bounds.high == bounds.low)[source])

    def __call__(self, X: Floats) -> Floats:
        """Scale rows: (b, d) -> (b, d')."""
        scaled = self._bounds.scale(X).take(self._source, axis=1)
        if len(self._logs):
            scaled[:, self._logs] = self._log(scaled.take(self._logs, axis=1))
        if len(self._bent):
            scaled[:, self._bent] = self._pieces(X.take(self._bent_source, axis=1))
            scaled[:, self._constant] = 0.0
        return scaled

    def invert(self, scaled: Floats) -> Floats:
        """Return the positions between the bounds, from 0 to 1, of scaled values; knots are not supported."""
        between = scaled.copy()
        values = scaled.take(self._logs, axis=1)
        sizes = exp2_minus_one(np.abs(values) * self._whole)
        sizes /= self._ratio
        between[:, self._logs] = np.copysign(sizes, values)
        return between

    def _log(self, t: Floats) -> Floats:
        """Return sign(t) log(1 + c |t|) / log(1 + c), which maps 0 to 0 and 1 to 1, exactly."""
        size = np.abs(t)
        np.minimum(size, 2.0**64, out=size)  # so that any finite input has a finite value
        value = log2_of_one_plus(size * self._ratio)
        value /= self._whole
        np.minimum(value, np.maximum(size, 1.0), out=value)  # rounding could put it above 1 for t below 1
        return np.copysign(value, t, out=value)


class _PiecewiseLinear:
    """Piecewise linear maps, one per column: i / m at knot i of 0 to m, flat outside the first and last knot."""

    def __init__(self, knots: Sequence[Knots]) -> None:
        self._first, self._last = (np.array([column[end] for column in knots]) for end in (0, -1))
        self._count = np.array([len(column) - 1.0 for column in knots])  # m
        self._column = np.arange(len(knots), dtype=np.float64)
        self._left = np.concatenate([np.empty(0), *(column[:-1] for column in knots)])  # where a piece begins
        self._width = np.concatenate([np.empty(0), *(np.diff(column) for column in knots)])
        self._start = np.cumsum(self._count) - self._count  # the number of a column's first piece
        self._order = _pair_with_column(np.repeat(self._column, self._count.astype(np.intp)), self._left)

    def __call__(self, x: Floats) -> Floats:
        """Overwrite x, (b, k), with its values."""
        np.maximum(x, self._first, out=x)
        np.minimum(x, self._last, out=x)
        piece = self._order.searchsorted(_pair_with_column(self._column, x).ravel(), side="right").reshape(x.shape) - 1
        x -= self._left.take(piece)
        x /= self._width.take(piece)
        x += piece - self._start
        x /= self._count
        return x


def _pair_with_column(column: Floats, x: Floats) -> NDArray[np.complex128]:
    """Pair values with column numbers as complex numbers, which NumPy sorts by real part first: one search for all."""
    pairs = np.empty(x.shape, dtype=np.complex128)
    pairs.real, pairs.imag = column, x
    return pairs


def log2_of_one_plus(v: Floats) -> Floats:
    """Return log2(1 + v) for 0 <= v < 2^1000, within 1e-15."""
    mantissa, exponent = np.frexp(v + 1.0)
    low = mantissa < 0.7071067811865476
    mantissa += mantissa * low  # now from sqrt(1/2) to sqrt(2)
    exponent -= low
    f = np.where(exponent == 0, v, mantissa - 1.0)  # v itself, because 1 + v was rounded
    s = f / (f + 2.0)
    square = s * s
    value = square * _LOG2[-1]
    for coefficient in _LOG2[-2:0:-1]:
        value += coefficient
        value *= square
    value += _LOG2[0]
    value *= s
    value += exponent
    return value


def exp2_minus_one(x: Floats) -> Floats:
    """Return 2^x - 1 for x >= 0, within a few last bits; above 1000, the value at 1000."""
    x = np.minimum(x, 1000.0)
    whole = np.rint(x)
    f, power = x - whole, np.ldexp(1.0, whole.astype(np.int32))
    value = f * _EXP2[-1]
    for coefficient in _EXP2[-2::-1]:
        value += coefficient
        value *= f
    value *= power
    value += power - 1.0
    return value


def _ratios(bounds: Bounds) -> Floats:
    """Return the range of each input divided by its low end, (d,): c of its log scale."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = (bounds.high - bounds.low) / bounds.low  # high / low - 1, without rounding that to nothing
    return np.where(bounds.low > 0.0, np.minimum(ratio, 2.0**900), _SPAN - 1.0)


ScalesLike: TypeAlias = Any  # None, a name for all inputs, or one entry per input: a name, knots, or a list of these

MAX_KNOTS = 256  # more would be a copy of the column

_NAMES = ("linear", "log")
_ALLOWED = "'linear', 'log' or a list of knots"


@dataclass(frozen=True)
class Scales:
    """The scales of each input: d inputs become d' scaled columns, in order."""

    by_input: tuple[tuple[Scale, ...], ...]  # (d,), one or more each

    @classmethod
    def parse(cls, spec: ScalesLike, inputs: int) -> Self:
        """Read a ``scales`` parameter for this many inputs."""
        if spec is None or isinstance(spec, str):
            return cls((_parse_entry("linear" if spec is None else spec, "scales"),) * inputs)
        if not isinstance(spec, list | tuple) or len(spec) != inputs:
            got = f"{len(spec)} entries" if isinstance(spec, list | tuple) else f"{spec!r}"
            raise InvalidSetting(
                f"scales must be None, 'linear', 'log' or a list with one entry for each of the {inputs} inputs; "
                f"got {got}"
            )
        return cls(tuple(_parse_entry(entry, f"scales[{j}]") for j, entry in enumerate(spec)))

    @classmethod
    def parse_targets(cls, spec: ScalesLike, targets: int) -> Self:
        """Read a ``target_scales`` parameter for this many targets."""
        names = list(spec) if isinstance(spec, list | tuple) else ["linear" if spec is None else spec] * targets
        if len(names) != targets or not all(isinstance(name, str) and name in _NAMES for name in names):
            raise InvalidSetting(
                f"target_scales must be None, 'linear', 'log' or a list with one of these names for each of the "
                f"{targets} targets; got {spec!r}"
            )
        return cls(tuple((name,) for name in names))

    @cached_property
    def plain(self) -> bool:
        """Whether every input is given once, on a linear scale."""
        return all(scales == ("linear",) for scales in self.by_input)

    @cached_property
    def n_out(self) -> int:
        """Scaled columns, d'."""
        return sum(map(len, self.by_input))

    @cached_property
    def source(self) -> NDArray[np.intp]:
        """The input that each scaled column comes from, (d',)."""
        return np.repeat(np.arange(len(self.by_input)), [len(scales) for scales in self.by_input])

    def spec(self) -> ScalesLike:
        """Return the parameter that `parse` reads, as plain JSON values: the same for equal scales."""
        if self.plain:
            return None
        entries = [[scale if isinstance(scale, str) else list(scale) for scale in scales] for scales in self.by_input]
        return [entry[0] if len(entry) == 1 else entry for entry in entries]

    def check(self, bounds: Bounds, *, target: bool = False) -> None:
        """Refuse scales of values with unit bounds, which are used as they are."""
        if bounds.unit and any(scale != "linear" for scales in self.by_input for scale in scales):
            side, values = ("target_", "targets") if target else ("", "inputs")
            raise InvalidSetting(
                f"{side}bounds='unit' uses the {values} as they are, so {side}scales must be 'linear'; declare or "
                "observe the bounds"
            )

    def scaler(self, bounds: Bounds) -> Callable[[Floats], Floats]:
        """Return the map of rows in their own units to scaled columns, with the bounds in force: (b, d) -> (b, d')."""
        if self.plain:
            return bounds.scale
        return Curves([scale for scales in self.by_input for scale in scales], self.source, bounds)

    def unscaler(self, bounds: Bounds) -> Callable[[Floats], Floats]:
        """Return the map of scaled targets to positions between the bounds, from 0 to 1: (b, t) -> (b, t)."""
        return _identity if self.plain else Curves([scale for (scale,) in self.by_input], self.source, bounds).invert

    def scale(self, X: Floats, bounds: Bounds) -> Floats:
        """Scale rows in their own units, (b, d) -> (b, d'), to what a feature map sees."""
        return self.scaler(bounds)(X)


def _identity(values: Floats) -> Floats:
    return values


def _parse_entry(entry: Any, where: str) -> tuple[Scale, ...]:
    """Read the scales of one input."""
    if isinstance(entry, np.ndarray):
        entry = entry.tolist()
    if not isinstance(entry, list | tuple) or any(isinstance(part, Real) for part in entry):
        return (_parse_scale(entry, where),)
    if not entry:
        raise InvalidSetting(f"{where} must be {_ALLOWED}, or a list of these, got an empty list")
    return tuple(_parse_scale(part, f"{where}[{k}]") for k, part in enumerate(entry))


def _parse_scale(scale: Any, where: str) -> Scale:
    if isinstance(scale, np.ndarray):
        scale = scale.tolist()
    if isinstance(scale, str) and scale in _NAMES:
        return scale
    if not isinstance(scale, list | tuple):
        raise InvalidSetting(f"{where} must be {_ALLOWED}, or a list of these, got {scale!r}")
    if not 2 <= len(scale) <= MAX_KNOTS:
        raise InvalidSetting(f"{where} must have 2 to {MAX_KNOTS} knots, got {len(scale)}")
    knots = np.array([as_float(knot) for knot in scale]) + 0.0  # NaN for anything but a number
    with np.errstate(over="ignore", invalid="ignore"):
        if not (np.isfinite(knots[-1] - knots[0]) and (np.diff(knots) > 0).all()):
            raise InvalidSetting(
                f"{where}: knots must be finite numbers, each larger than the one before, whose range fits float64"
            )
    return tuple(knots.tolist())
