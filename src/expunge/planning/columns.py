"""Columns: on which scales the inputs are given if nobody says.

Giving an input twice, min-max and by knots, is the most robust choice: the first keeps what is linear, the second tells
apart what lies close together. Knots are quantiles, rounded, because they are read from people's rows: all of them are
whole multiples of a step, a power of two, so that a value is told no more exactly than that (one that is round already
can be a knot), and what they tell can be counted.
"""

import math
from collections.abc import Sequence

import numpy as np

from ..encoding.scales import Scales, ScalesLike
from ..exact.arrays import Floats

_PIECES = 16  # between knots
_FEW = 10  # a column with no more values than this needs no knots
_FEWEST = 3  # knots
_MIDDLE = 128  # steps, or up to half as many more, or a quarter less, for the middle nine tenths of the values
_OUTSIDE = 64  # steps on either side of these; what is further out is moved there
GRID = _MIDDLE * 3 // 2 + 2 * _OUTSIDE  # steps from the first knot to the last, at most
_LEAST = -1022  # the least power of two that is a step


def split_scales(scales: ScalesLike, inputs: int, *, unit: bool) -> tuple[ScalesLike, list[int]]:
    """The scales that a caller gives, "linear" for inputs that are left to the plan, and which these are.

    None leaves all of them, None as an entry of a list leaves one; those that are taken as they are (``unit``) are not
    left.
    """
    if scales is None:
        return None, [] if unit else list(range(inputs))
    if not isinstance(scales, list | tuple):
        return scales, []
    said = ["linear" if one is None else one for one in scales]
    Scales.of(said, inputs)  # refuse what is none, and a list of another length
    return said, [j for j, one in enumerate(scales) if one is None and not unit]


def completed(said: ScalesLike, left: Sequence[int], X: Floats) -> ScalesLike:
    """The scales that are said, with those that rows suggest for the inputs that are left."""
    if not left:
        return said
    proposed = proposed_scales(X)
    return proposed if said is None else [proposed[j] if j in left else one for j, one in enumerate(said)]


def proposed_scales(X: Floats) -> list[object]:
    """One entry of ``scales`` per input: "linear", or that and knots."""
    return [_proposed(column) for column in X.T]


def _proposed(column: Floats) -> object:
    if len(np.unique(column)) <= _FEW:
        return "linear"
    low, high = _middle(column)
    knots = _knots(column, _step(low, high), low, high)
    return ["linear", knots] if len(knots) >= _FEWEST else "linear"


def _middle(column: Floats) -> tuple[float, float]:
    """Between which values the middle nine tenths lie; if these are all alike, all of them."""
    low, high = np.quantile(column, (0.05, 0.95), method="inverted_cdf")
    return (float(low), float(high)) if low < high else (float(column.min()), float(column.max()))


def _step(low: float, high: float) -> float:
    """The power of two of which these are about 128 apart; integers count how many of them a value is."""
    part, power = math.frexp((high / 2 - low / 2) / (_MIDDLE // 2))  # halves do not overflow
    least = math.frexp(max(-low, high))[1] - 52
    return math.ldexp(1.0, max(power if part >= 0.75 else power - 1, least, _LEAST))


def _knots(column: Floats, step: float, low: float, high: float) -> list[float]:
    """The quantiles of the column in whole steps. Values are rounded first: more than the steps is not looked at."""
    first, last = round(low / step) - _OUTSIDE, round(high / step) + _OUTSIDE
    with np.errstate(over="ignore"):  # what is far beyond the ends
        places = np.clip(np.rint(column / step), first, last)
    parts = np.linspace(0, 1, _PIECES + 1)
    knots = np.unique(np.quantile(places, parts, method="inverted_cdf")) * step + 0.0
    return [float(knot) for knot in knots]


def knot_bits(knots: Sequence[float]) -> float:
    """The length of a code word for the knots of an input, of which there may be none: they tell no more bits.

    The word says whether there are any, how many, the step, the first knot, and which of the next places the others are
    at. The step is the largest power of two that all of them are multiples of.
    """
    if not knots:
        return 1.0
    power = min(_power(knot) for knot in knots if knot)
    counts, places = _PIECES + 2 - _FEWEST, math.log2(math.comb(GRID, len(knots) - 1))
    return 1.0 + math.log2(counts) + _gamma(power) + _gamma(int(math.ldexp(knots[0], -power))) + places


def _power(number: float) -> int:
    """The largest power of two that a number is a multiple of."""
    above, below = number.as_integer_ratio()
    return (above & -above).bit_length() - below.bit_length()


def _gamma(number: int) -> int:
    """The length of Elias' gamma code for a whole number, in the order 0, 1, -1, 2, -2, ..."""
    return 2 * (2 * abs(number) + (number <= 0)).bit_length() - 1
