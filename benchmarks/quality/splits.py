"""Splits: which rows are for testing, so that nobody is on both sides, and what methods get of them."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .encoding import encode
from .tables import Loaded

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
