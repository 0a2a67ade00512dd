"""Scores: R2, RMSE and MAE of predictions, and how much they would vary with other people.

The spread is a bootstrap over people: as many are drawn as there are, with replacement and with all their rows, and the
scores are computed again. An interval holds 95 % of what came out; of a few people there is none. The draws are the
same for everything that is scored on the same rows, so that a ratio of two scores has an interval of its own, which is
narrower than those of both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...exact.arrays import Floats

RESAMPLES = 200
CONFIDENCE_LEVEL = 0.95
MIN_PEOPLE = 10  # people: what draws of fewer say about others is worth nothing

RowOwners: TypeAlias = NDArray[np.intp]  # (n,), each row's person, counted from 0 without gaps


@dataclass(frozen=True)
class Score:
    """A number and its interval; None where there is none, as R2 where the target is the same in all rows."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Scores:
    """How good predictions of one target are.

    Attributes
    ----------
    r2 : Score
        The part of the target's variance that they explain: 1 is perfect, 0 is as good as the mean of these rows.
    rmse, mae : Score
        The root of the mean squared error, and the mean absolute error, in the target's units.
    """

    r2: Score
    rmse: Score
    mae: Score


def compute_scores(
    y: Floats, predictions: Mapping[str, Floats], owners: RowOwners, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[dict[str, Scores], dict[str, Score]]:
    """Score predictions of the same rows; return the scores of each, and its RMSE as a multiple of the first's.

    Parameters
    ----------
    y : array, shape (n,)
        What came true.
    predictions : mapping of str to array of shape (n,)
        What was predicted, by whom.
    whose : array of int, shape (n,)
        Whose the rows are.
    resamples, seed : int
        How many draws there are, and what they are drawn with.
    """
    with np.errstate(all="ignore"):  # a number that float64 does not have is no score
        sums = _sum_by_person(y, list(predictions.values()), owners)  # (people, 3 + 2 k)
        table = _compute_figures(sums.sum(axis=0))  # (k, 4)
        ends = np.full((2, *table.shape), np.nan)
        if len(sums) >= MIN_PEOPLE:
            draws = np.stack([_compute_figures(drawn @ sums) for drawn in _draw_people(len(sums), resamples, seed)])
            ends = np.quantile(draws, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2], axis=0)
    found = [
        [Score(*map(_finite_or_none, three)) for three in zip(*row, strict=True)]
        for row in zip(table, *ends, strict=True)
    ]
    names = list(predictions)
    return (
        {name: Scores(*row[:3]) for name, row in zip(names, found, strict=True)},
        {name: row[3] for name, row in zip(names, found, strict=True)},
    )


def format_score(score: Score, *, decimals: int | None = None) -> str:
    """Return a score and its interval in words; without ``decimals`` with three digits each."""
    if score.value is None:
        return "-"
    value, *ends = (_format_number(one, decimals) for one in (score.value, score.low, score.high) if one is not None)
    return f"{value} ({ends[0]} to {ends[1]})" if len(ends) == 2 else value


def _format_number(number: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{round(number, decimals) + 0.0:.{decimals}f}"  # no minus before zero
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e15 else f"{number:#.3g}".rstrip(".")


def _sum_by_person(y: Floats, predictions: list[Floats], owners: RowOwners) -> Floats:
    """Return what the scores of any choice of people are computed from, summed by person."""
    centred = y - y.mean()  # so that the variance is no difference of large numbers
    errors = [predicted - y for predicted in predictions]
    parts = [np.ones(len(y)), centred, centred**2, *(part for e in errors for part in (e**2, np.abs(e)))]
    return np.column_stack([np.bincount(owners, weights=part) for part in parts])


def _compute_figures(sums: Floats) -> Floats:
    """Return R2, RMSE, MAE and the ratio of RMSE to the first RMSE, from sums over rows: (3 + 2 k,) -> (k, 4)."""
    rows, total, squares = sums[:3]
    square, absolute = sums[3::2], sums[4::2]
    variance = squares - total**2 / rows
    r2 = np.where(variance > 0, 1 - square / variance, np.nan)
    rmse = np.sqrt(square / rows)
    ratio = np.where(rmse[0] > 0, rmse / rmse[0], np.nan)
    return np.column_stack([r2, rmse, absolute / rows, ratio])


def _draw_people(people: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Yield how often each person is drawn, draw by draw."""
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.bincount(rng.integers(0, people, people), minlength=people).astype(np.float64)


def _finite_or_none(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None
