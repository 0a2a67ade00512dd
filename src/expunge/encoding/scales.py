"""Scales: monotone maps of the inputs to [0, 1], declared like bounds. An input may be given on several at once.

"linear" is where a value lies between the bounds, "log" the same in orders of magnitude, and knots are a piecewise
linear map that was written down. A scale never looks at rows; only the bounds, where they are observed, belong to them.
What is computed uses comparisons, frexp and + - * /, value by value: the same bits on every machine and in any block.
"""

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

ScalesLike: TypeAlias = Any  # None, "linear", "log" or one entry per input: a name, knots, or a list of these
Scale: TypeAlias = str | tuple[float, ...]  # a name, or knots

MOST_KNOTS = 256  # so that a place among those inside fits a byte
_NAMES = ("linear", "log")

# A log scale without a low end above zero spans so many times its first step: ten doublings.
_SPAN = 1024.0

# log2(1 + f) = s * P(s^2) with s = f / (2 + f): the series of 2 atanh(s) / log(2), here with |s| < 0.172.
_LOG2 = (
    2.8853900817779268,
    0.9617966939259756,
    0.5770780163555853,
    0.4121985831111324,
    0.3205988979753252,
    0.2623081892525388,
    0.22195308321368667,
    0.19235933878519512,
    0.16972882833987804,
    0.15186263588304877,
    0.1373995277037108,
)


@dataclass(frozen=True)
class Scales:
    """On which scales each input is given: d inputs become d' scaled columns, in order."""

    given: tuple[tuple[Scale, ...], ...]  # (d,), each one or more

    @classmethod
    def of(cls, spec: ScalesLike, inputs: int) -> Self:
        """Read a ``scales`` parameter for so many inputs."""
        if spec is None or isinstance(spec, str):
            spec = [spec or "linear"] * inputs
        if not isinstance(spec, list | tuple) or len(spec) != inputs:
            got = f"{len(spec)} entries" if isinstance(spec, list | tuple) else repr(spec)
            raise InvalidSetting(
                f"scales must be None, {_ALLOWED}, or a list of such, one per input ({inputs}), got {got}"
            )
        return cls(tuple(_entry(entry, f"scales[{j}]") for j, entry in enumerate(spec)))

    @cached_property
    def plain(self) -> bool:
        """Whether every input is given once, on a linear scale: no more than the bounds do."""
        return all(scales == ("linear",) for scales in self.given)

    @cached_property
    def n_out(self) -> int:
        """Scaled columns, d'."""
        return sum(map(len, self.given))

    @cached_property
    def source(self) -> NDArray[np.intp]:
        """The input that each scaled column comes from, (d',)."""
        return np.repeat(np.arange(len(self.given)), list(map(len, self.given)))

    def spec(self) -> ScalesLike:
        """The parameter from which `of` makes them again, as plain values."""
        if self.plain:
            return None
        listed = [[scale if isinstance(scale, str) else list(scale) for scale in scales] for scales in self.given]
        return [scales[0] if len(scales) == 1 else scales for scales in listed]

    def check(self, bounds: Bounds) -> None:
        """Refuse scales for values that are taken as they are."""
        if bounds.unit and any(scale != "linear" for scales in self.given for scale in scales):
            raise InvalidSetting(
                "bounds='unit' takes the inputs as they are: scales must be 'linear', or declare bounds"
            )

    def within(self, bounds: Bounds) -> Callable[[Floats], Floats]:
        """The map of rows in their own units to scaled columns, with the bounds in force: (b, d) -> (b, d')."""
        return bounds.scale if self.plain else _Spread(self, bounds)

    def spread(self, X: Floats, bounds: Bounds) -> Floats:
        """Map rows in their own units to scaled columns, (b, d) -> (b, d'): what a feature map sees."""
        return self.within(bounds)(X)


class _Spread:
    """Scales with the bounds in force."""

    def __init__(self, scales: Scales, bounds: Bounds) -> None:
        flat = [scale for of_input in scales.given for scale in of_input]
        self._bounds, self._source = bounds, scales.source
        self._logs = np.flatnonzero([scale == "log" for scale in flat])
        self._ratio = _ratios(bounds)[scales.source[self._logs]]
        self._whole = log2_of_one_plus(self._ratio)
        self._whole[self._whole == 0.0] = 1.0  # of a constant column, which is zero
        self._bent = np.flatnonzero([not isinstance(scale, str) for scale in flat])
        if len(self._bent):
            self._pieces = _Pieces([flat[j] for j in self._bent.tolist()])  # type: ignore[misc]  # no names are left
        self._constant = np.flatnonzero((bounds.high == bounds.low)[scales.source])

    def __call__(self, X: Floats) -> Floats:
        scaled = self._bounds.scale(X).take(self._source, axis=1)
        if len(self._logs):
            scaled[:, self._logs] = self._log(scaled[:, self._logs])
        if len(self._bent):
            scaled[:, self._bent] = self._pieces(X[:, self._source[self._bent]])
            scaled[:, self._constant] = 0.0
        return scaled

    def _log(self, t: Floats) -> Floats:
        """sign(t) log(1 + c |t|) / log(1 + c). Exactly 0 and 1 on the bounds."""
        size = np.minimum(np.abs(t), 2.0**64)  # so that any finite input has a finite value
        value = log2_of_one_plus(size * self._ratio)
        value /= self._whole
        np.minimum(value, np.maximum(size, 1.0), out=value)  # a rounded logarithm may be an ulp beyond one
        return np.copysign(value, t, out=value)


class _Pieces:
    """Piecewise linear maps of some columns: i / m on knot i of 0 to m, flat before the first and after the last."""

    def __init__(self, knots: Sequence[tuple[float, ...]]) -> None:
        self._first, self._last = (np.array([column[end] for column in knots]) for end in (0, -1))
        self._count = np.array([len(column) - 1.0 for column in knots])  # m
        most = max(map(len, knots)) - 1
        left = np.full((most, len(knots)), np.inf)  # where each piece begins; no value is beyond infinity
        width = np.ones((most, len(knots)))
        for j, column in enumerate(knots):
            left[: len(column) - 1, j] = column[:-1]
            width[: len(column) - 1, j] = np.diff(column)
        self._left, self._width = left, width
        self._columns = np.arange(len(knots))

    def __call__(self, x: Floats) -> Floats:
        """Overwrite x, (b, k), with its values."""
        np.maximum(x, self._first, out=x)
        np.minimum(x, self._last, out=x)
        piece = np.zeros(x.shape, dtype=np.uint8)
        for left in self._left[1:]:
            piece += (x >= left).view(np.uint8)
        at = piece * np.intp(len(self._columns)) + self._columns
        x -= self._left.take(at)
        x /= self._width.take(at)
        x += piece
        x /= self._count
        return x


def log2_of_one_plus(v: Floats) -> Floats:
    """log2(1 + v) for 0 <= v < 2^1000, within some units in the last place."""
    mantissa, exponent = np.frexp(1.0 + v)  # 1 + v = mantissa * 2^exponent, exactly
    low = mantissa < 0.7071067811865476
    mantissa += mantissa * low
    exponent -= low
    f = np.where(exponent == 0, v, mantissa - 1.0)  # v itself, before 1 + v was rounded
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


def _ratios(bounds: Bounds) -> Floats:
    """How much larger than the low end a column's range is; ten doublings less one where zero is in it: (d,)."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = (bounds.high - bounds.low) / bounds.low
    return np.where(bounds.low > 0.0, np.minimum(ratio, 2.0**900), _SPAN - 1.0)


_ALLOWED = "'linear', 'log' or knots"


def _entry(entry: Any, where: str) -> tuple[Scale, ...]:
    """The scales of one input."""
    if isinstance(entry, np.ndarray):
        entry = entry.tolist()
    if isinstance(entry, str) or (isinstance(entry, list | tuple) and any(isinstance(part, Real) for part in entry)):
        return (_scale(entry, where),)
    if not isinstance(entry, list | tuple) or not len(entry):
        raise InvalidSetting(f"{where} must be {_ALLOWED}, or a list of such, got {entry!r}")
    return tuple(_scale(part, f"{where}[{k}]") for k, part in enumerate(entry))


def _scale(scale: Any, where: str) -> Scale:
    """A name, or knots."""
    if isinstance(scale, np.ndarray):
        scale = scale.tolist()
    if isinstance(scale, str) and scale in _NAMES:
        return scale
    if not isinstance(scale, list | tuple):
        raise InvalidSetting(f"{where} must be {_ALLOWED}, got {scale!r}")
    knots = np.array([as_float(knot) for knot in scale]) + 0.0  # NaN where there is no number
    with np.errstate(over="ignore", invalid="ignore"):
        rising = 2 <= len(knots) <= MOST_KNOTS and np.isfinite(knots[-1] - knots[0]) and (np.diff(knots) > 0).all()
    if not rising:
        raise InvalidSetting(
            f"{where}: knots must be 2 to {MOST_KNOTS} finite numbers, each larger than the one before, and not too "
            f"far apart for float64; got {len(knots)} that are not"
        )
    return tuple(knots.tolist())
