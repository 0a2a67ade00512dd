"""The rows that a plan looks at, and which of them judge: nobody is both learned from and judged on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..exact.arrays import Floats

MOST_ROWS = 20_000  # rows that a plan looks at
QUICK_ROWS = 6_000  # rows that a quick plan looks at
LEAST_ROWS = 40  # fewer say nothing about which model is better
_FOLDS = 4  # a quarter of the people judges
_FEW_ROWS = 5_000  # up to here each quarter judges in turn: one quarter alone would be too few
_SOME_ROWS = 0.6  # of as many as are looked at: up to here two quarters judge in turn: a search came to fit one


class TooFewRows(InvalidInput):
    """Too few rows, or people, to say which model is better."""

    @classmethod
    def public_name(cls) -> str:
        return InvalidInput.__name__


@dataclass(frozen=True, eq=False)
class Sample:
    """Some people's rows, and the folds: in each, the people who judge."""

    X: Floats  # (n, d)
    y: Floats  # (n, t)
    people: NDArray[np.intp]  # (n,), whose row it is, as numbers from 0
    folds: tuple[NDArray[np.bool_], ...]  # (n,) each: whether a row judges; none judges twice

    @property
    def judging(self) -> NDArray[np.intp]:
        """The rows that judge, fold after fold."""
        return np.concatenate([np.flatnonzero(fold) for fold in self.folds])

    def without(self, gone: NDArray[np.bool_]) -> "Sample":
        """The same without some people's rows: of the others, each quarter judges in turn."""
        _, number = np.unique(self.people[~gone], return_inverse=True)
        folds = tuple(number.reshape(-1) % _FOLDS == fold for fold in range(_FOLDS))
        return Sample(self.X[~gone], self.y[~gone], self.people[~gone], tuple(fold for fold in folds if fold.any()))


def draw_sample(
    X: Floats, y: Floats, ids: NDArray[np.generic] | None, rng: np.random.Generator, *, most: int
) -> Sample:
    """Draw people until they have ``most`` rows, and the quarters that judge; ids None: every row is a person.

    There are at least as many people as folds, whatever they have.
    """
    owners = np.arange(len(X)) if ids is None else _numbered(ids)
    count = int(owners.max()) + 1 if len(owners) else 0
    order = rng.permutation(count)
    rank = np.empty(count, dtype=np.intp)
    rank[order] = np.arange(count)  # people in the order in which they are drawn
    rows = np.bincount(owners, minlength=count)[order]
    taken = max(_FOLDS, int(np.searchsorted(np.cumsum(rows), most, side="right")))
    chosen = rng.permutation(np.flatnonzero(rank[owners] < taken))  # a table may be sorted, and trials take first rows
    if len(chosen) < LEAST_ROWS or min(count, taken) < _FOLDS:
        raise TooFewRows(f"a plan needs at least {LEAST_ROWS} rows of {_FOLDS} people, got {len(chosen)} of {count}")
    people = rank[owners[chosen]]
    turns = _FOLDS if len(chosen) <= _FEW_ROWS else 2 if len(chosen) <= _SOME_ROWS * most else 1
    folds = tuple(people % _FOLDS == fold for fold in range(turns))
    return Sample(X[chosen], y[chosen], people, folds)


def standard_error(values: Floats, people: NDArray[np.intp]) -> float:
    """The standard error of a mean over rows of which one person may have several."""
    residuals = np.bincount(people, weights=values - values.mean())  # what one person brings, others do not
    return float(np.sqrt((residuals**2).sum())) / len(values)


def _numbered(ids: NDArray[np.generic]) -> NDArray[np.intp]:
    """People as numbers from 0 by their first rows, so that 7 and "7" are drawn alike."""
    _, first, owners = np.unique(ids, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.intp)
    number[np.argsort(first)] = np.arange(len(first))
    found: NDArray[np.intp] = number[owners.reshape(-1)]
    return found
