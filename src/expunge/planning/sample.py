"""The rows that a plan looks at, and which of them judge: nobody is both learned from and judged on."""

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

MAX_SAMPLE_ROWS = 20_000  # rows that a plan looks at
MAX_QUICK_ROWS = 6_000  # rows that a quick plan looks at
MIN_SAMPLE_ROWS = 40  # fewer say nothing about which model is better
_FOLDS = 4  # a quarter of the people judges
_FOUR_FOLD_ROWS = 5_000  # up to here each quarter judges in turn: one quarter alone would be too few
_TWO_FOLD_SHARE = 0.6  # of as many as are looked at: up to here two quarters judge in turn: a search came to fit one


class TooFewRows(InvalidInput):
    """Too few rows, or people, to say which model is better."""

    @classmethod
    def public_name(cls) -> str:
        return InvalidInput.__name__


@dataclass(frozen=True, eq=False)
class PlanSample:
    """Some people's rows, and the folds: in each, the people who judge."""

    X: Floats  # (n, d)
    y: Floats  # (n, t)
    people: NDArray[np.intp]  # (n,), whose row it is, as numbers from 0
    folds: tuple[NDArray[np.bool_], ...]  # (n,) each: whether a row judges; none judges twice

    @property
    def validation_rows(self) -> NDArray[np.intp]:
        """The rows that judge, fold after fold."""
        return np.concatenate([np.flatnonzero(fold) for fold in self.folds])

    def without(self, excluded: NDArray[np.bool_]) -> "PlanSample":
        """The same without some people's rows: of the others, each quarter judges in turn."""
        _, number = np.unique(self.people[~excluded], return_inverse=True)
        folds = tuple(number.reshape(-1) % _FOLDS == fold for fold in range(_FOLDS))
        return PlanSample(
            self.X[~excluded], self.y[~excluded], self.people[~excluded], tuple(fold for fold in folds if fold.any())
        )


def draw_sample(
    X: Floats, y: Floats, ids: NDArray[np.generic] | None, rng: np.random.Generator, *, max_rows: int
) -> PlanSample:
    """Draw people until they have ``most`` rows, and the quarters that judge; ids None: every row is a person.

    There are at least as many people as folds, whatever they have.
    """
    owners = np.arange(len(X)) if ids is None else _number_people(ids)
    count = int(owners.max()) + 1 if len(owners) else 0
    order = rng.permutation(count)
    rank = np.empty(count, dtype=np.intp)
    rank[order] = np.arange(count)  # people in the order in which they are drawn
    rows = np.bincount(owners, minlength=count)[order]
    taken = max(_FOLDS, int(np.searchsorted(np.cumsum(rows), max_rows, side="right")))
    chosen = rng.permutation(np.flatnonzero(rank[owners] < taken))  # a table may be sorted, and trials take first rows
    if len(chosen) < MIN_SAMPLE_ROWS or min(count, taken) < _FOLDS:
        raise TooFewRows(
            f"a plan needs at least {MIN_SAMPLE_ROWS} rows of {_FOLDS} people, got {len(chosen)} of {count}"
        )
    people = rank[owners[chosen]]
    turns = _FOLDS if len(chosen) <= _FOUR_FOLD_ROWS else 2 if len(chosen) <= _TWO_FOLD_SHARE * max_rows else 1
    folds = tuple(people % _FOLDS == fold for fold in range(turns))
    return PlanSample(X[chosen], y[chosen], people, folds)


def standard_error(values: Floats, people: NDArray[np.intp]) -> float:
    """The standard error of a mean over rows of which one person may have several."""
    residuals = np.bincount(people, weights=values - values.mean())  # what one person brings, others do not
    return float(np.sqrt((residuals**2).sum())) / len(values)


def _number_people(ids: NDArray[np.generic]) -> NDArray[np.intp]:
    """People as numbers from 0 by their first rows, so that 7 and "7" are drawn alike."""
    _, first, owners = np.unique(ids, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.intp)
    number[np.argsort(first)] = np.arange(len(first))
    found: NDArray[np.intp] = number[owners.reshape(-1)]
    return found


# MERGED ground: The ground on which candidates are tried: the sample's rows, scaled once, fold by fold.
# MERGED ground:
# MERGED ground: Each trial then maps scaled columns that are taken as they are (bounds "unit"): the integers, and so the weights, are
# MERGED ground: those that a model with the real bounds would have.


@dataclass(frozen=True, eq=False)
class Fold:
    """What is learned from and what judges, as scaled columns."""

    encoder: Encoder  # with the bounds of the rows that are learned from
    Z: Floats  # (n, d'), to learn from
    targets: Floats  # (n, t), scaled
    owners: NDArray[np.intp]  # (n,), whose each of these rows is
    judging: Floats  # (m, d')
    truth: Floats  # (m, t), in the targets' own units

    @classmethod
    def from_sample(cls, blueprint: Blueprint, sample: PlanSample, is_validation: NDArray[np.bool_]) -> "Fold":
        """Scale rows of a sample as the model of this blueprint would that learned those which do not judge."""
        X, y = blueprint.admit(sample.X[~is_validation], sample.y[~is_validation])
        rows = Rows(X, y, np.ones(len(X), dtype=np.bool_))
        encoder = blueprint.encoder(blueprint.measure(rows))
        scaled = encoder.scales.scaler(encoder.inputs)
        judging = scaled(encoder.nearest(sample.X[is_validation]))
        return cls(
            encoder,
            scaled(X),
            encoder.scale_targets(y),
            sample.people[~is_validation],
            judging,
            sample.y[is_validation],
        )

    @cached_property
    def spread(self) -> Floats:
        """How far the scaled targets spread, (t,); 1 if they do not."""
        spread = self.targets.std(axis=0)
        return np.where(spread > 0, spread, 1.0)

    @cached_property
    def quarters(self) -> NDArray[np.intp]:
        """The people who are learned from in four parts, or fewer if there are fewer people: (n,), from 0."""
        _, number = np.unique(self.owners, return_inverse=True)
        return number.reshape(-1) % 4


@dataclass(frozen=True, eq=False)
class Validation:
    """The folds, and how far the targets spread: errors are in units of it."""

    folds: tuple[Fold, ...]
    people: NDArray[np.intp]  # (m,), whose each judging row is
    variance: Floats  # (t,)
    bounds: BoundsLike  # of the models that are tried on it, and the other settings that scale rows
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
        """Scale a sample; rows that judge are treated as `predict` treats rows, ``outside`` the bounds, too."""
        declared: dict[str, Any] = {"bounds": bounds, "target_bounds": target_bounds}
        declared |= {"scales": scales, "target_scales": target_scales}
        settings = Settings(code=Code.single(), clip=True, outside=outside, random_state=0, **declared)
        blueprint = draw_blueprint(settings, sample.X.shape[1], sample.y.shape[1])
        declared["target_scales"] = blueprint.target_scales.spec()
        folds = tuple(Fold.from_sample(blueprint, sample, judge) for judge in sample.folds)
        judging = sample.validation_rows
        variance = sample.y[judging].var(axis=0)
        return cls(folds, sample.people[judging], np.where(variance > 0, variance, 1.0), **declared, outside=outside)

    @property
    def scaling_settings(self) -> dict[str, Any]:
        """What a model that is tried here has of it, beside the bounds."""
        return {"scales": self.scales, "target_scales": self.target_scales, "outside": self.outside}

    @cached_property
    def columns(self) -> int:
        """Scaled columns, d'."""
        return int(self.folds[0].Z.shape[1])

    @cached_property
    def targets(self) -> int:
        """Columns of y, t."""
        return int(self.folds[0].truth.shape[1])

    @cached_property
    def rows(self) -> int:
        """Rows of the sample."""
        return len(self.folds[0].Z) + len(self.folds[0].truth)

    def thin(self, rows: int, folds: int) -> "Validation":
        """The same with at most so many folds, and at most so many rows to learn from in all: for a first look."""
        some = self.folds[:folds]
        part = slice(0, rows // len(some))
        thin = tuple(replace(one, Z=one.Z[part], targets=one.targets[part], owners=one.owners[part]) for one in some)
        return replace(self, folds=thin, people=self.people[: sum(len(one.truth) for one in some)])


def refuse_out_of_bounds(X: Floats, y: Floats, bounds: BoundsLike, target_bounds: BoundsLike, *, clip: bool) -> None:
    """Refuse rows that a model with these bounds would refuse."""
    if clip:
        return
    settings = Settings(code=Code.single(), bounds=bounds, target_bounds=target_bounds, random_state=0)
    draw_blueprint(settings, X.shape[1], y.shape[1]).admit(X, y)
