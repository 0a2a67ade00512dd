"""From a table to numbers, by what the training part shows: as a vault's schema does it, and as trees like it."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .sources import Frame
from .tables import Loaded

COMMON = 10  # a value of a category is an input of its own if so many training rows have it; others are "other"
MOST_VALUES = 100  # inputs per category; the most frequent ones
MOST_CODES = 254  # categories that HistGradientBoosting takes per column


@dataclass(frozen=True, eq=False)
class Encoded:
    """The inputs of all rows, in two forms; y and ids stay those of the table."""

    X: NDArray[np.float64]  # (n, d) categories one-hot, gaps filled
    trees: NDArray[np.float64]  # (n, columns) gaps NaN, categories by number
    categorical: NDArray[np.bool_]  # (columns,) of ``trees``


def encode(table: Loaded, train: NDArray[np.bool_]) -> Encoded:
    """Encode all rows by medians and categories of the training rows. What is constant there is dropped from ``X``."""
    texts = table.categories
    hot, trees = [], []
    for name in table.inputs:
        column = table.inputs[name]
        if name in texts:
            hot += _one_hot(column, train)
            trees.append(_codes(column, train))
        else:
            numbers = column.to_numpy(dtype=np.float64)
            trees.append(numbers)
            if not np.isnan(numbers[train]).all():
                hot.append(np.where(np.isnan(numbers), np.nanmedian(numbers[train]), numbers))
    X = np.column_stack([values for values in hot if np.ptp(values[train]) > 0])
    return Encoded(X, np.column_stack(trees), np.array([name in texts for name in table.inputs]))


def _one_hot(column: Frame, train: NDArray[np.bool_]) -> list[NDArray[np.float64]]:
    values = [value for value, count in _counted(column, train) if count >= COMMON][:MOST_VALUES]
    return [(column == value).to_numpy(dtype=np.float64) for value in sorted(values)]


def _codes(column: Frame, train: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Number the values by how often they occur in training; gaps and what is not seen there are NaN."""
    numbers = {value: code for code, (value, _) in enumerate(_counted(column, train)[:MOST_CODES])}
    return column.map(numbers).to_numpy(dtype=np.float64)  # type: ignore[no-any-return]


def _counted(column: Frame, train: NDArray[np.bool_]) -> list[tuple[str, int]]:
    """Values of training rows and how many have them: the most frequent first, ties in the order of the alphabet."""
    counts = Counter(column[train].dropna())
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
