"""Default scales of inputs and targets.

Inputs: giving an input twice, min-max and by knots, is the most robust choice. The first keeps linear effects, the
second separates values that lie close together. Knots are rounded quantiles, because they are read from people's rows:
all are whole multiples of a step, a power of two. So a knot reveals a value only up to the step (a value that is round
already can be a knot), and the information in the knots can be counted.

Targets: amounts such as prices often spread over orders of magnitude, and their causes multiply. Then the log scale can
have less error, although errors count in the target's own units. Two small models of different kinds try both scales;
the log scale is chosen if both do better with it.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..encoding.scales import Scales, ScalesLike
from ..exact.arrays import Floats
from ..tables import has_more_values, place_knots
from .sample import Validation
from .search import try_quickly
from .trial import rounded_error

_MAX_PIECES = 16  # intervals between knots
_FEW_VALUES = 10  # a column with at most this many distinct values needs no knots
_MIN_KNOTS = 3
_MIDDLE_STEPS = 128  # steps for the middle nine tenths of the values: between a quarter fewer and half as many more
_OUTER_STEPS = 64  # steps on either side of these; values further out are moved there
MAX_GRID_STEPS = _MIDDLE_STEPS * 3 // 2 + 2 * _OUTER_STEPS  # steps from the first knot to the last, at most
_MIN_STEP_POWER = -1022  # the smallest power of two used as a step
_SKEW_QUANTILES = (0.01, 0.99)  # the log scale is tried if the higher of these quantiles is at least
_MIN_SKEW_RATIO = 6.0  # this many times the lower


def split_scales(scales: ScalesLike, inputs: int, *, unit: bool) -> tuple[ScalesLike, list[int]]:
    """Return the declared scales, with "linear" for undecided inputs, and the positions of undecided inputs.

    None leaves all inputs to the plan, None as an entry of a list leaves one. Inputs that are used unscaled (``unit``)
    are never undecided.
    """
    if scales is None:
        return None, [] if unit else list(range(inputs))
    if not isinstance(scales, list | tuple):
        return scales, []
    declared = ["linear" if scale is None else scale for scale in scales]
    Scales.parse(declared, inputs)  # refuse invalid scales, and a list of another length
    return declared, [j for j, scale in enumerate(scales) if scale is None and not unit]


def complete_scales(declared: ScalesLike, undecided: Sequence[int], X: Floats) -> ScalesLike:
    """Return the declared scales, with proposed ones for the undecided inputs."""
    if not undecided:
        return declared
    proposed = propose_scales(X)
    if declared is None:
        return proposed
    return [proposed[j] if j in undecided else scale for j, scale in enumerate(declared)]


def propose_scales(X: Floats) -> list[object]:
    """Return one entry of ``scales`` per input: "linear", or "linear" and knots."""
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
    """Return the range of the middle nine tenths of the values, or of all values if those are equal."""
    low, high = np.quantile(column, (0.05, 0.95), method="inverted_cdf")
    return (float(low), float(high)) if low < high else (float(column.min()), float(column.max()))


def _knot_step(low: float, high: float) -> float:
    """Return a power of two of which about 128 fit into the range, and of which float64 can count the multiples."""
    part, power = math.frexp((high / 2 - low / 2) / (_MIDDLE_STEPS // 2))  # halves do not overflow
    least = math.frexp(max(-low, high))[1] - 52
    return math.ldexp(1.0, max(power if part >= 0.75 else power - 1, least, _MIN_STEP_POWER))


def count_knot_bits(knots: Sequence[float]) -> float:
    """Return an upper bound on the bits in an input's knots: the length of their code word.

    The word encodes whether there are knots, their number, the step, the first knot, and the positions of the others
    among the next steps. The step is the largest power of two that divides all knots.
    """
    if not knots:
        return 1.0
    power = min(_power_of_two(knot) for knot in knots if knot)
    counts, places = _MAX_PIECES + 2 - _MIN_KNOTS, math.log2(math.comb(MAX_GRID_STEPS, len(knots) - 1))
    return 1.0 + math.log2(counts) + _gamma_length(power) + _gamma_length(int(math.ldexp(knots[0], -power))) + places


def _power_of_two(number: float) -> int:
    """Return the exponent of the largest power of two that divides a number."""
    above, below = number.as_integer_ratio()
    return (above & -above).bit_length() - below.bit_length()


def _gamma_length(number: int) -> int:
    """Return the length of Elias' gamma code for a whole number, in the order 0, 1, -1, 2, -2, ..."""
    return 2 * (2 * abs(number) + (number <= 0)).bit_length() - 1


def split_target_scales(scales: ScalesLike, targets: int, *, unit: bool) -> tuple[list[str], list[int]]:
    """Return the declared scales, with "linear" for undecided targets, and the positions of undecided targets.

    Targets that are used unscaled (``unit``) are never undecided.
    """
    given = list(scales) if isinstance(scales, list | tuple) else [scales] * targets
    declared = Scales.parse_targets(["linear" if scale is None else scale for scale in given], targets)
    undecided = [j for j, scale in enumerate(given) if scale is None and not unit]
    return [str(scale) for (scale,) in declared.by_input], undecided


def choose_target_scales(
    declared: Sequence[str], undecided: Sequence[int], y: Floats, validation_for: Callable[..., Validation], seed: int
) -> Validation:
    """Return the validation with the declared scales and, for undecided targets, the scales with less error."""
    linear = validation_for(target_scales=declared)
    if not (skewed := [j for j in undecided if _is_skewed(y[:, j])]):
        return linear
    log = validation_for(target_scales=["log" if j in skewed else scale for j, scale in enumerate(declared)])
    pairs = zip(try_quickly(linear, seed), try_quickly(log, seed), strict=True)
    # In the targets' own units: choice errors of different scales cannot be compared.
    better = all(rounded_error(after.errors) < rounded_error(before.errors) for before, after in pairs)
    return log if better else linear


def _is_skewed(column: Floats) -> bool:
    """Return whether all values are above zero, and spread over a wide range of magnitudes."""
    low, high = np.quantile(column, _SKEW_QUANTILES, method="inverted_cdf")
    return bool(column.min() > 0 and high >= _MIN_SKEW_RATIO * low)
