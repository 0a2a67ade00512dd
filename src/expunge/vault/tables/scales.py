"""Scales: how a column of numbers or dates is laid out between 0 and 1, as a schema declares it.

A scale is "linear", "log" or a list of knots; a list of several gives the input once on each of them. A schema keeps
one form of what means the same, one scale without a list around it. Where nothing is said, None, an input is linear,
too, but a plan may give it knots.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from ...errors import InvalidSetting

Scale: TypeAlias = Any  # None, "linear", "log", knots (a tuple), or a tuple of these

LINEAR, LOG = "linear", "log"
_MOST_KNOTS = 256  # that the encoder takes


@dataclass(frozen=True)
class Scaling:
    """Which scales a kind of column may have, and how their knots are read."""

    names: Sequence[str]  # of "linear" and "log"
    read: Callable[[str, Any], Any]  # check a value of the column; an error calls it as the text says
    number: Callable[[Any], float]  # the float that a cell with this value would be

    def normal(self, scale: Any) -> Scale:
        """Return the one form of a scale as somebody wrote it."""
        several = isinstance(scale, (list, tuple)) and any(isinstance(one, (str, list, tuple)) for one in scale)
        found = tuple(map(self._one, scale if several else [scale]))
        if len(set(found)) < len(found):
            raise InvalidSetting("scale must not give an input twice on the same scale")
        return found[0] if len(found) == 1 else found

    def plain(self, scale: Scale) -> Any:
        """Return a scale in the form that a model takes: a name, a list of numbers, or a list of these."""
        if scale is None or isinstance(scale, str):
            return scale or LINEAR
        return [self.plain(one) if isinstance(one, (str, tuple)) else self.number(one) for one in scale]

    def _one(self, scale: Any) -> Any:
        if isinstance(scale, str) and scale in self.names:
            return scale
        if not isinstance(scale, (list, tuple)):
            words = " or ".join(f'"{name}"' for name in self.names)
            raise InvalidSetting(f"scale must be {words}, a list of knots, or a list of these, got {scale!r}")
        knots = tuple(self.read("every knot of scale", knot) for knot in scale)
        floats = list(map(self.number, knots))
        if not 2 <= len(knots) <= _MOST_KNOTS or any(one >= other for one, other in pairwise(floats)):
            raise InvalidSetting(f"the knots of scale must be 2 to {_MOST_KNOTS}, each above the one before")
        if not math.isfinite(floats[-1] - floats[0]):
            raise InvalidSetting("the knots of scale must not be too far apart for float64; rescale the column")
        return knots
