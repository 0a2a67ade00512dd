"""Scores: R2, RMSE and MAE of predictions, and how much they would vary with other people.

The intervals are a bootstrap over people: as many are drawn as there are, with replacement and with all their rows, and
the scores are computed again. An interval holds 95 % of the results; a few people give none. All predictions of the
same rows share the draws, so that a ratio of two scores has an interval of its own, which is narrower than those of
both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...exact.arrays import Floats

RESAMPLES = 200
CONFIDENCE_LEVEL = 0.95
MIN_PEOPLE = 10  # draws of fewer say nothing about other people

RowOwners: TypeAlias = NDArray[np.intp]  # (n,), each row's person, counted from 0 without gaps


@dataclass(frozen=True)
class Score:
    """A number and its interval; None where it is undefined, as R2 where the target is the same in all rows."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Scores:
    """The scores of predictions of one target.

    Attributes
    ----------
    r2 : Score
        The share of the target's variance that is explained: 1 is perfect, 0 is as good as the mean of these rows.
    rmse, mae : Score
        Root mean squared error and mean absolute error, in the target's units.
    """

    r2: Score
    rmse: Score
    mae: Score


def compute_scores(
    y: Floats, predictions: Mapping[str, Floats], owners: RowOwners, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[dict[str, Scores], dict[str, Score]]:
    """Score predictions of the same rows; return the scores of each, and its RMSE divided by the first's.

    Parameters
    ----------
    y : array, shape (n,)
        The true values.
    predictions : mapping of str to array of shape (n,)
        The predictions of each model.
    owners : array of int, shape (n,)
        Each row's person.
    resamples, seed : int
        The number of bootstrap draws, and their seed.
    """
    with np.errstate(all="ignore"):  # results that float64 cannot represent become None
        sums = _sum_by_person(y, list(predictions.values()), owners)  # (people, 3 + 2 k)
        table = _compute_figures(sums.sum(axis=0))  # (k, 4)
        ends = np.full((2, *table.shape), np.nan)
        if len(sums) >= MIN_PEOPLE:
            draws = np.stack([_compute_figures(drawn @ sums) for drawn in _draw_people(len(sums), resamples, seed)])
            ends = np.quantile(draws, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2], axis=0)
    scores, ratios = {}, {}
    for name, value_low_high in zip(predictions, zip(table, *ends, strict=True), strict=True):
        *three, ratio = [Score(*map(_finite_or_none, numbers)) for numbers in zip(*value_low_high, strict=True)]
        scores[name], ratios[name] = Scores(*three), ratio
    return scores, ratios


def format_score(score: Score, *, decimals: int | None = None) -> str:
    """Return a score and its interval as text; without ``decimals``, with three significant digits each."""
    if score.value is None:
        return "-"
    numbers = [number for number in (score.value, score.low, score.high) if number is not None]
    value, *ends = (_format_number(number, decimals) for number in numbers)
    return f"{value} ({ends[0]} to {ends[1]})" if len(ends) == 2 else value


def _format_number(number: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{round(number, decimals) + 0.0:.{decimals}f}"  # no minus before zero
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e15 else f"{number:#.3g}".rstrip(".")


def _sum_by_person(y: Floats, predictions: list[Floats], owners: RowOwners) -> Floats:
    """Return the sums, by person, from which the scores of any selection of people are computed."""
    centred = y - y.mean()  # so that the variance is not a difference of large numbers
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
