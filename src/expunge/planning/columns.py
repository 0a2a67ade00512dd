"""Columns: on which scales the inputs are given if nobody says.

Giving an input twice, min-max and by knots, is the most robust choice: the first keeps what is linear, the second tells
apart what lies close together. Knots are quantiles, rounded, because they are read from people's rows.
"""

import numpy as np

from ..exact.arrays import Floats

_PIECES = 16  # between knots
_FEW = 10  # a column with no more values than this needs no knots
GRID = 256  # knots are on a grid of so many steps, half of them for the middle nine tenths of the values


def proposed_scales(X: Floats) -> list[object]:
    """One entry of ``scales`` per input: "linear", or that and knots."""
    return [_proposed(column) for column in X.T]


def _proposed(column: Floats) -> object:
    if len(np.unique(column)) <= _FEW:
        return "linear"
    low, high = np.quantile(column, (0.05, 0.95))
    if low == high:
        low, high = column.min(), column.max()
    step = (high - low) / (GRID // 2)
    places = np.rint((np.quantile(column, np.linspace(0, 1, _PIECES + 1)) - low) / step)
    knots = np.unique(np.clip(places, -GRID // 4, GRID * 3 // 4) * step + low)
    return ["linear", knots.tolist()] if len(knots) > 2 else "linear"
