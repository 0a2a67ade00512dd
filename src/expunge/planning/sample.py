"""The rows that a plan looks at, split into training and validation rows, and scaled once per fold.

The split is by person: nobody's rows are both learned from and validated on. Trials then use the scaled columns
unchanged (bounds "unit"): the integers, and so the weights, are those that a model with the real bounds would have.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..encoding.bounds import BoundsLike
from ..encoding.codes import Code
from ..encoding.encoder import Encoder, Outside
from ..encoding.scales import ScalesLike
from ..errors import InvalidInput
from ..exact.arrays import Floats
from ..learning.blueprint import Blueprint, draw_blueprint
from ..learning.settings import Settings
from ..stores.store import Rows

MAX_SAMPLE_ROWS = 20_000
MAX_QUICK_ROWS = 6_000  # of a quick plan
MIN_SAMPLE_ROWS = 40  # fewer cannot show which model is better
_FOLDS = 4  # a quarter of the people validates
_FOUR_FOLD_ROWS = 5_000  # up to this many rows each quarter validates in turn: one alone would be too few
_TWO_FOLD_SHARE = 0.6  # up to this share of the row limit two quarters validate: the search came to fit a single one


class TooFewRows(InvalidInput):
    """Too few rows or people to tell which model is better."""

    @classmethod
    def public_name(cls) -> str:
        return InvalidInput.__name__


@dataclass(frozen=True, eq=False)
class PlanSample:
    """The rows of sampled people, and the folds: which rows validate in each."""

    X: Floats  # (n, d)
    y: Floats  # (n, t)
    people: NDArray[np.intp]  # (n,), each row's person, numbered from 0
    folds: tuple[NDArray[np.bool_], ...]  # (n,) each: whether a row validates; no row validates twice

    @property
    def validation_rows(self) -> NDArray[np.intp]:
        """The positions of the validation rows, fold after fold."""
        return np.concatenate([np.flatnonzero(fold) for fold in self.folds])

    def without(self, excluded: NDArray[np.bool_]) -> "PlanSample":
        """Return the sample without some people's rows; each quarter of the others validates in turn."""
        kept = ~excluded
        _, number = np.unique(self.people[kept], return_inverse=True)
        folds = tuple(number.reshape(-1) % _FOLDS == fold for fold in range(_FOLDS))
        return PlanSample(self.X[kept], self.y[kept], self.people[kept], tuple(fold for fold in folds if fold.any()))


def draw_sample(
    X: Floats, y: Floats, ids: NDArray[np.generic] | None, rng: np.random.Generator, *, max_rows: int
) -> PlanSample:
    """Draw people until they have ``max_rows`` rows, and the folds; without ids every row is another person.

    At least as many people as folds are drawn, however many rows they have.
    """
    owners = np.arange(len(X)) if ids is None else _number_people(ids)
    count = int(owners.max()) + 1 if len(owners) else 0
    order = rng.permutation(count)
    rank = np.empty(count, dtype=np.intp)
    rank[order] = np.arange(count)  # people in the order in which they are drawn
    rows = np.bincount(owners, minlength=count)[order]
    drawn = max(_FOLDS, int(np.searchsorted(np.cumsum(rows), max_rows, side="right")))
    chosen = rng.permutation(np.flatnonzero(rank[owners] < drawn))  # a table may be sorted, and trials take first rows
    if len(chosen) < MIN_SAMPLE_ROWS or min(count, drawn) < _FOLDS:
        raise TooFewRows(
            f"a plan needs at least {MIN_SAMPLE_ROWS} rows of {_FOLDS} people, got {len(chosen)} of {count}"
        )
    people = rank[owners[chosen]]
    turns = _FOLDS if len(chosen) <= _FOUR_FOLD_ROWS else 2 if len(chosen) <= _TWO_FOLD_SHARE * max_rows else 1
    folds = tuple(people % _FOLDS == fold for fold in range(turns))
    return PlanSample(X[chosen], y[chosen], people, folds)


def standard_error(values: Floats, people: NDArray[np.intp]) -> float:
    """Return the standard error of a mean over rows, clustered by person."""
    residuals = np.bincount(people, weights=values - values.mean())  # rows of one person are not independent
    return float(np.sqrt((residuals**2).sum())) / len(values)


def _number_people(ids: NDArray[np.generic]) -> NDArray[np.intp]:
    """Number people from 0 in the order of their first rows, so that ids 7 and "7" are drawn alike."""
    _, first, owners = np.unique(ids, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.intp)
    number[np.argsort(first)] = np.arange(len(first))
    numbers: NDArray[np.intp] = number[owners.reshape(-1)]
    return numbers


@dataclass(frozen=True, eq=False)
class Fold:
    """Training and validation rows of one fold, as scaled columns."""

    encoder: Encoder  # with the bounds of the training rows
    Z: Floats  # (n, d'), training rows
    targets: Floats  # (n, t), scaled
    owners: NDArray[np.intp]  # (n,), each training row's person
    Z_validation: Floats  # (m, d')
    y_validation: Floats  # (m, t), in the targets' own units

    @classmethod
    def from_sample(cls, blueprint: Blueprint, sample: PlanSample, is_validation: NDArray[np.bool_]) -> "Fold":
        """Scale a sample as a model of this blueprint would after learning the training rows."""
        is_training = ~is_validation
        X, y = blueprint.admit(sample.X[is_training], sample.y[is_training])
        encoder = blueprint.encoder(blueprint.measure(Rows(X, y, np.ones(len(X), dtype=np.bool_))))
        scale = encoder.scales.scaler(encoder.inputs)
        return cls(
            encoder,
            scale(X),
            encoder.scale_targets(y),
            sample.people[is_training],
            scale(encoder.nearest(sample.X[is_validation])),
            sample.y[is_validation],
        )

    @cached_property
    def spread(self) -> Floats:
        """The standard deviation of the scaled targets, (t,); 1 where it is 0."""
        spread = self.targets.std(axis=0)
        return np.where(spread > 0, spread, 1.0)

    @cached_property
    def quarters(self) -> NDArray[np.intp]:
        """Each training row's quarter, from 0, (n,): people in four parts, or fewer if there are fewer people."""
        _, number = np.unique(self.owners, return_inverse=True)
        return number.reshape(-1) % 4


@dataclass(frozen=True, eq=False)
class Validation:
    """The folds on which settings are tried, and the targets' variance, in units of which errors are."""

    folds: tuple[Fold, ...]
    people: NDArray[np.intp]  # (m,), each validation row's person
    variance: Floats  # (t,)
    bounds: BoundsLike  # these, and the following, are settings of the models that are tried
    target_bounds: BoundsLike
    scales: ScalesLike
    target_scales: ScalesLike
    outside: Outside

    @classmethod
    def from_sample(
        cls,
        sample: PlanSample,
        *,
        bounds: BoundsLike,
        target_bounds: BoundsLike,
        scales: ScalesLike,
        target_scales: ScalesLike = None,
        outside: Outside = "clamp",
    ) -> "Validation":
        """Scale a sample; validation rows are scaled as `predict` does, according to ``outside`` beyond the bounds."""
        declared: dict[str, Any] = {"bounds": bounds, "target_bounds": target_bounds}
        declared |= {"scales": scales, "target_scales": target_scales}
        settings = Settings(code=Code.single(), clip=True, outside=outside, random_state=0, **declared)
        blueprint = draw_blueprint(settings, sample.X.shape[1], sample.y.shape[1])
        declared["target_scales"] = blueprint.target_scales.spec()
        folds = tuple(Fold.from_sample(blueprint, sample, is_validation) for is_validation in sample.folds)
        rows = sample.validation_rows
        variance = sample.y[rows].var(axis=0)
        return cls(folds, sample.people[rows], np.where(variance > 0, variance, 1.0), **declared, outside=outside)

    @property
    def scaling_settings(self) -> dict[str, Any]:
        """The settings, besides the bounds, that models tried here have."""
        return {"scales": self.scales, "target_scales": self.target_scales, "outside": self.outside}

    @cached_property
    def columns(self) -> int:
        """Scaled columns, d'."""
        return int(self.folds[0].Z.shape[1])

    @cached_property
    def targets(self) -> int:
        """Number of targets, t."""
        return int(self.folds[0].y_validation.shape[1])

    @cached_property
    def rows(self) -> int:
        """Number of rows in the sample."""
        return len(self.folds[0].Z) + len(self.folds[0].y_validation)

    def thin(self, rows: int, folds: int) -> "Validation":
        """Return the first ``folds`` folds with at most ``rows`` training rows in all, for quick trials."""
        first = self.folds[:folds]
        part = slice(0, rows // len(first))
        thin = tuple(replace(f, Z=f.Z[part], targets=f.targets[part], owners=f.owners[part]) for f in first)
        return replace(self, folds=thin, people=self.people[: sum(len(fold.y_validation) for fold in first)])


def refuse_out_of_bounds(X: Floats, y: Floats, bounds: BoundsLike, target_bounds: BoundsLike, *, clip: bool) -> None:
    """Refuse rows that a model with these bounds would refuse."""
    if clip:
        return
    settings = Settings(code=Code.single(), bounds=bounds, target_bounds=target_bounds, random_state=0)
    draw_blueprint(settings, X.shape[1], y.shape[1]).admit(X, y)
