"""Knots: the points of a piecewise linear scale, at rounded quantiles of a column.

A quantile is a value from a person's row, so knots are always rounded. The caller decides how coarsely, and for how
many different values knots are worth having.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np

from ..exact.arrays import Floats


def place_knots(
    values: Floats, fractions: Iterable[float], round_values: Callable[[list[float]], Iterable[float]]
) -> list[float]:
    """Return the rounded quantiles of sorted values at these fractions, each once, in increasing order."""
    return sorted(set(round_values([quantile(values, fraction) for fraction in fractions])))


def quantile(values: Floats, fraction: float) -> float:
    """Return the least of these sorted values that at least this fraction of them does not exceed."""
    return float(values[max(0, math.ceil(fraction * len(values)) - 1)])


def has_more_values(values: Floats, count: int) -> bool:
    """Return whether there are more than ``count`` different values."""
    return len(np.unique(values)) > count
