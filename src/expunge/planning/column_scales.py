"""Columns: on which scales the inputs are given if nobody says.

Giving an input twice, min-max and by knots, is the most robust choice: the first keeps what is linear, the second tells
apart what lies close together. Knots are quantiles, rounded, because they are read from people's rows: all of them are
whole multiples of a step, a power of two, so that a value is told no more exactly than that (one that is round already
can be a knot), and what they tell can be counted.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..encoding.scales import Scales, ScalesLike
from ..exact.arrays import Floats
from ..tables import has_more_values, place_knots
from .sample import Validation
from .search import ShapeTrial, try_quickly

_MAX_PIECES = 16  # between knots
_FEW_VALUES = 10  # a column with no more values than this needs no knots
_MIN_KNOTS = 3  # knots
_MIDDLE_STEPS = 128  # steps, or up to half as many more, or a quarter less, for the middle nine tenths of the values
_OUTER_STEPS = 64  # steps on either side of these; what is further out is moved there
MAX_GRID_STEPS = _MIDDLE_STEPS * 3 // 2 + 2 * _OUTER_STEPS  # steps from the first knot to the last, at most
_MIN_STEP_POWER = -1022  # the least power of two that is a step


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
    Scales.parse(said, inputs)  # refuse what is none, and a list of another length
    return said, [j for j, one in enumerate(scales) if one is None and not unit]


def complete_scales(declared: ScalesLike, undecided: Sequence[int], X: Floats) -> ScalesLike:
    """The scales that are said, with those that rows suggest for the inputs that are left."""
    if not undecided:
        return declared
    proposed = propose_scales(X)
    return proposed if declared is None else [proposed[j] if j in undecided else one for j, one in enumerate(declared)]


def propose_scales(X: Floats) -> list[object]:
    """One entry of ``scales`` per input: "linear", or that and knots."""
    return [_propose_scale(column) for column in X.T]


def _propose_scale(column: Floats) -> object:
    if not has_more_values(column, _FEW_VALUES):
        return "linear"
    low, high = _middle_range(column)
    step = _knot_step(low, high)
    first, last = round(low / step) - _OUTER_STEPS, round(high / step) + _OUTER_STEPS

    def round_to_steps(values: list[float]) -> list[float]:
        with np.errstate(over="ignore"):  # values far beyond the ends
            steps: list[float] = (np.clip(np.rint(np.array(values) / step), first, last) * step + 0.0).tolist()
        return steps

    fractions = [k / _MAX_PIECES for k in range(_MAX_PIECES + 1)]
    knots = place_knots(np.sort(column), fractions, round_to_steps)
    return ["linear", knots] if len(knots) >= _MIN_KNOTS else "linear"


def _middle_range(column: Floats) -> tuple[float, float]:
    """Between which values the middle nine tenths lie; if these are all alike, all of them."""
    low, high = np.quantile(column, (0.05, 0.95), method="inverted_cdf")
    return (float(low), float(high)) if low < high else (float(column.min()), float(column.max()))


def _knot_step(low: float, high: float) -> float:
    """The power of two of which these are about 128 apart; integers count how many of them a value is."""
    part, power = math.frexp((high / 2 - low / 2) / (_MIDDLE_STEPS // 2))  # halves do not overflow
    least = math.frexp(max(-low, high))[1] - 52
    return math.ldexp(1.0, max(power if part >= 0.75 else power - 1, least, _MIN_STEP_POWER))


def count_knot_bits(knots: Sequence[float]) -> float:
    """The length of a code word for the knots of an input, of which there may be none: they tell no more bits.

    The word says whether there are any, how many, the step, the first knot, and which of the next places the others are
    at. The step is the largest power of two that all of them are multiples of.
    """
    if not knots:
        return 1.0
    power = min(_power_of_two(knot) for knot in knots if knot)
    counts, places = _MAX_PIECES + 2 - _MIN_KNOTS, math.log2(math.comb(MAX_GRID_STEPS, len(knots) - 1))
    return 1.0 + math.log2(counts) + _gamma_length(power) + _gamma_length(int(math.ldexp(knots[0], -power))) + places


def _power_of_two(number: float) -> int:
    """The largest power of two that a number is a multiple of."""
    above, below = number.as_integer_ratio()
    return (above & -above).bit_length() - below.bit_length()


def _gamma_length(number: int) -> int:
    """The length of Elias' gamma code for a whole number, in the order 0, 1, -1, 2, -2, ..."""
    return 2 * (2 * abs(number) + (number <= 0)).bit_length() - 1


# MERGED targets: Targets: on which scale they are learned if nobody says.
# MERGED targets:
# MERGED targets: Amounts such as prices are often spread over orders of magnitude, and what moves them multiplies. Then the log scale may
# MERGED targets: have less error, although errors count in the target's own units. Two small models of different kinds try both scales;
# MERGED targets: the log scale is taken if both do better with it.


_SKEW_QUANTILES = (0.01, 0.99)  # quantiles,
_MIN_SKEW_RATIO = 6.0  # the higher of which is so many times the lower, if the log scale is tried


def split_target_scales(scales: ScalesLike, targets: int, *, unit: bool) -> tuple[list[str], list[int]]:
    """The scales that a caller gives, "linear" for targets that are left to the plan, and which these are.

    Targets that are taken as they are (``unit``) are not left.
    """
    said = list(scales) if isinstance(scales, list | tuple) else [scales] * targets
    names = [
        str(scale)
        for (scale,) in Scales.parse_targets(["linear" if one is None else one for one in said], targets).by_input
    ]
    return names, [j for j, one in enumerate(said) if one is None and not unit]


def choose_target_scales(
    declared: Sequence[str], undecided: Sequence[int], y: Floats, validation_for: Callable[..., Validation], seed: int
) -> Validation:
    """The ground of the scales that are said and, for targets that are left, of those with less error."""
    linear = validation_for(target_scales=declared)
    if not (skewed := [j for j in undecided if _is_skewed(y[:, j])]):
        return linear
    log = validation_for(target_scales=["log" if j in skewed else one for j, one in enumerate(declared)])
    both = zip(try_quickly(linear, seed), try_quickly(log, seed), strict=True)
    return log if all(_rounded_error(after) < _rounded_error(before) for before, after in both) else linear


def _rounded_error(shape_trial: ShapeTrial) -> float:
    """The error in the targets' own units, rounded so that every machine compares alike."""
    return float(f"{shape_trial.trial.errors.mean():.5g}")


def _is_skewed(column: Floats) -> bool:
    """Whether all values are above zero, and most of them spread far."""
    low, high = np.quantile(column, _SKEW_QUANTILES, method="inverted_cdf")
    return bool(column.min() > 0 and high >= _MIN_SKEW_RATIO * low)
