"""Scales: monotone maps of the inputs to [0, 1], declared like bounds. An input may be given on several at once.

A target has one scale, on which it is learned, and predictions come back from it; it has no knots.

"linear" is where a value lies between the bounds, "log" the same in orders of magnitude, and knots are a piecewise
linear map that was written down. A scale never looks at rows; only the bounds, where they are observed, belong to them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting
from ..exact.arrays import Floats
from .bounds import Bounds
from .curves import Curves, Scale
from .values import as_float

ScalesLike: TypeAlias = Any  # None, a name for all inputs, or one entry per input: a name, knots, or a list of these

MOST_KNOTS = 256  # more would be a copy of the column

_NAMES = ("linear", "log")
_ALLOWED = "'linear', 'log' or a list of knots"


@dataclass(frozen=True)
class Scales:
    """On which scales each input is given: d inputs become d' scaled columns, in order."""

    given: tuple[tuple[Scale, ...], ...]  # (d,), one or more each

    @classmethod
    def of(cls, spec: ScalesLike, inputs: int) -> Self:
        """Read a ``scales`` parameter for so many inputs."""
        if spec is None or isinstance(spec, str):
            return cls((_entry("linear" if spec is None else spec, "scales"),) * inputs)
        if not isinstance(spec, list | tuple) or len(spec) != inputs:
            got = f"{len(spec)} entries" if isinstance(spec, list | tuple) else f"{spec!r}"
            raise InvalidSetting(
                f"scales must be None, 'linear', 'log' or a list with one entry per input, of which "
                f"there are {inputs}; got {got}"
            )
        return cls(tuple(_entry(entry, f"scales[{j}]") for j, entry in enumerate(spec)))

    @classmethod
    def of_targets(cls, spec: ScalesLike, targets: int) -> Self:
        """Read a ``target_scales`` parameter for so many targets."""
        names = list(spec) if isinstance(spec, list | tuple) else ["linear" if spec is None else spec] * targets
        if len(names) != targets or not all(isinstance(name, str) and name in _NAMES for name in names):
            raise InvalidSetting(
                f"target_scales must be None, 'linear', 'log' or a list with one of these names per target, of which "
                f"there are {targets}; got {spec!r}"
            )
        return cls(tuple((name,) for name in names))

    @cached_property
    def plain(self) -> bool:
        """Whether every input is given once and linear, as without scales."""
        return all(scales == ("linear",) for scales in self.given)

    @cached_property
    def n_out(self) -> int:
        """Scaled columns, d'."""
        return sum(map(len, self.given))

    @cached_property
    def source(self) -> NDArray[np.intp]:
        """The input that each scaled column comes from, (d',)."""
        return np.repeat(np.arange(len(self.given)), [len(scales) for scales in self.given])

    def spec(self) -> ScalesLike:
        """The parameter from which `of` makes them again, as plain JSON values: the same for equal scales."""
        if self.plain:
            return None
        entries = [[scale if isinstance(scale, str) else list(scale) for scale in scales] for scales in self.given]
        return [entry[0] if len(entry) == 1 else entry for entry in entries]

    def check(self, bounds: Bounds, *, target: bool = False) -> None:
        """Refuse scales of values that are taken as they are."""
        if bounds.unit and any(scale != "linear" for scales in self.given for scale in scales):
            side, values = ("target_", "targets") if target else ("", "inputs")
            raise InvalidSetting(
                f"{side}bounds='unit' takes the {values} as they are, so {side}scales must be 'linear'; declare or "
                "observe the bounds"
            )

    def within(self, bounds: Bounds) -> Callable[[Floats], Floats]:
        """The map of rows in their own units to scaled columns, with the bounds in force: (b, d) -> (b, d')."""
        if self.plain:
            return bounds.scale
        return Curves([scale for scales in self.given for scale in scales], self.source, bounds)

    def undone(self, bounds: Bounds) -> Callable[[Floats], Floats]:
        """The map back from scaled targets to where they lie between the bounds, 0 and 1: (b, t) -> (b, t)."""
        return _same if self.plain else Curves([scale for (scale,) in self.given], self.source, bounds).undone

    def spread(self, X: Floats, bounds: Bounds) -> Floats:
        """Scale rows in their own units, (b, d) -> (b, d'): what a feature map sees of them."""
        return self.within(bounds)(X)


def _same(values: Floats) -> Floats:
    return values


def _entry(entry: Any, where: str) -> tuple[Scale, ...]:
    """The scales of one input."""
    if isinstance(entry, np.ndarray):
        entry = entry.tolist()
    if not isinstance(entry, list | tuple) or any(isinstance(part, Real) for part in entry):
        return (_scale(entry, where),)
    if not entry:
        raise InvalidSetting(f"{where} must be {_ALLOWED}, or a list of these, got an empty list")
    return tuple(_scale(part, f"{where}[{k}]") for k, part in enumerate(entry))


def _scale(scale: Any, where: str) -> Scale:
    if isinstance(scale, np.ndarray):
        scale = scale.tolist()
    if isinstance(scale, str) and scale in _NAMES:
        return scale
    if not isinstance(scale, list | tuple):
        raise InvalidSetting(f"{where} must be {_ALLOWED}, or a list of these, got {scale!r}")
    if not 2 <= len(scale) <= MOST_KNOTS:
        raise InvalidSetting(f"{where} must have 2 to {MOST_KNOTS} knots, got {len(scale)}")
    knots = np.array([as_float(knot) for knot in scale]) + 0.0  # NaN where there is no number
    with np.errstate(over="ignore", invalid="ignore"):
        if not (np.isfinite(knots[-1] - knots[0]) and (np.diff(knots) > 0).all()):
            raise InvalidSetting(
                f"{where}: knots must be finite numbers, each larger than the one before, whose range fits float64"
            )
    return tuple(knots.tolist())
