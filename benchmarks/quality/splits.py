"""Splits: which rows are for testing, so that no person is on both sides, and how rows become numbers.

Rows are encoded from the training part alone: as a vault's schema does it, and in the form that suits trees.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .tables import Frame, Loaded

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


Floats = NDArray[np.float64]

SPLITS = 5
SHARE = 0.2  # of the people, to test


@dataclass(frozen=True, eq=False)
class Split:
    """A table, split: what methods learn from and are tested with."""

    number: int
    X: Floats  # (n, d) categories one-hot, gaps filled
    y: Floats  # (n,)
    ids: NDArray[np.int64] | None  # (n,)
    trees: Floats  # (n, columns) gaps NaN, categories by number
    categorical: NDArray[np.bool_]  # (columns,)
    X_test: Floats
    y_test: Floats
    trees_test: Floats

    def mse(self, predictions: Floats) -> float:
        """Mean squared error of predictions of the test rows."""
        return float(np.mean((predictions - self.y_test) ** 2))

    def fingerprint(self) -> str:
        """Hash of everything that a method sees."""
        total = hashlib.sha256()
        for array in (self.X, self.y, self.ids, self.trees, self.X_test, self.y_test, self.trees_test):
            total.update(b"none" if array is None else repr(array.shape).encode() + np.ascontiguousarray(array).data)
        return total.hexdigest()[:16]


def split(table: Loaded, number: int) -> Split:
    """Split a table and encode it by its training part."""
    test = test_rows(table, number)
    train, both = ~test, encode(table, ~test)
    return Split(
        number,
        both.X[train],
        table.y[train],
        None if table.ids is None else table.ids[train],
        both.trees[train],
        both.categorical,
        both.X[test],
        table.y[test],
        both.trees[test],
    )


def test_rows(table: Loaded, number: int) -> NDArray[np.bool_]:
    """Return a mask of the rows to test with: (n,). A table without ids has one person per row."""
    people = np.arange(len(table.y)) if table.ids is None else table.ids
    everybody = np.unique(people)
    chosen = np.random.default_rng(number).permutation(everybody)[: round(SHARE * len(everybody))]
    return np.isin(people, chosen)
