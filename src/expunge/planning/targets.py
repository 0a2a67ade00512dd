"""Targets: on which scale they are learned if nobody says.

Amounts such as prices are often spread over orders of magnitude, and what moves them multiplies. Then the log scale may
have less error, although errors count in the target's own units. Two small models of different kinds try both scales;
the log scale is taken if both do better with it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..encoding.scales import Scales, ScalesLike
from ..exact.arrays import Floats
from .ground import Ground
from .search import Found, glanced

_ENDS = (0.01, 0.99)  # quantiles,
_APART = 6.0  # the higher of which is so many times the lower, if the log scale is tried


def split_target_scales(scales: ScalesLike, targets: int, *, unit: bool) -> tuple[list[str], list[int]]:
    """The scales that a caller gives, "linear" for targets that are left to the plan, and which these are.

    Targets that are taken as they are (``unit``) are not left.
    """
    said = list(scales) if isinstance(scales, list | tuple) else [scales] * targets
    names = [
        str(scale) for (scale,) in Scales.of_targets(["linear" if one is None else one for one in said], targets).given
    ]
    return names, [j for j, one in enumerate(said) if one is None and not unit]


def best_scaled(
    said: Sequence[str], left: Sequence[int], y: Floats, ground_of: Callable[..., Ground], seed: int
) -> Ground:
    """The ground of the scales that are said and, for targets that are left, of those with less error."""
    linear = ground_of(target_scales=said)
    if not (skewed := [j for j in left if _skewed(y[:, j])]):
        return linear
    log = ground_of(target_scales=["log" if j in skewed else one for j, one in enumerate(said)])
    both = zip(glanced(linear, seed), glanced(log, seed), strict=True)
    return log if all(_error(after) < _error(before) for before, after in both) else linear


def _error(found: Found) -> float:
    """The error in the targets' own units, rounded so that every machine compares alike."""
    return float(f"{found.trial.errors.mean():.5g}")


def _skewed(column: Floats) -> bool:
    """Whether all values are above zero, and most of them spread far."""
    low, high = np.quantile(column, _ENDS, method="inverted_cdf")
    return bool(column.min() > 0 and high >= _APART * low)
