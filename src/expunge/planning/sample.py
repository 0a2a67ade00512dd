"""The rows that a plan looks at, split into training and validation rows, and scaled once per fold.

A plan must be able to forget: planning again after people left has to give the plan that never saw them. So the
sample is a function of the current people. It holds those with the smallest keyed hashes, and the same hash
decides their fold and the order of their rows. Erasing a person outside the sample changes nothing; erasing one inside
lets rows with the next hashes in.

The split is by person: nobody's rows are both learned from and validated on. Trials then use the scaled columns
unchanged (bounds "unit"): the integers, and so the weights, are those that a model with the real bounds would have.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

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
from ..tables.ids import hash_ids, planning_key, sample_positions

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


Hashes: TypeAlias = NDArray[np.uint64]  # (n,), each row's person


def hash_people(ids: NDArray[np.generic] | None, rows: int, seed: int) -> Hashes:
    """Return the keyed hash of each row's person; ids 7 and "7" are the same, and the default ids are 0, 1, 2, ..."""
    names, owners = np.unique(np.arange(rows) if ids is None else ids, return_inverse=True)
    hashes = hash_ids((str(name).encode() for name in names.tolist()), planning_key(seed))
    people: Hashes = hashes[owners.reshape(-1)]
    return people


@dataclass(frozen=True, eq=False)
class PlanSample:
    """The rows of sampled people, and the folds: which rows validate in each."""

    X: Floats  # (n, d)
    y: Floats  # (n, t)
    hashes: Hashes  # (n,)
    folds: tuple[NDArray[np.bool_], ...]  # (n,) each: whether a row validates; no row validates twice

    @cached_property
    def people(self) -> NDArray[np.intp]:
        """Each row's person, (n,), numbered from 0."""
        number: NDArray[np.intp] = np.unique(self.hashes, return_inverse=True)[1].reshape(-1)
        return number

    @property
    def validation_rows(self) -> NDArray[np.intp]:
        """The positions of the validation rows, fold after fold."""
        return np.concatenate([np.flatnonzero(fold) for fold in self.folds])

    def without(self, excluded: NDArray[np.bool_]) -> "PlanSample":
        """Return the sample without some people's rows; each quarter of the others validates in turn."""
        hashes = self.hashes[~excluded]
        quarters = split_people(hashes, 1)
        folds = tuple(quarters == quarter for quarter in range(int(quarters.max()) + 1))
        return PlanSample(self.X[~excluded], self.y[~excluded], hashes, folds)


def split_people(hashes: Hashes, split: int) -> NDArray[np.intp]:
    """Divide people into up to four parts, and return the part of each row, (n,), from 0; no part is empty.

    Two bits of the hash decide, others for each ``split``. If they put everyone into one part, as may happen with few
    people, the order of the hashes decides.
    """
    bits = (hashes >> np.uint64(2 * split)) & np.uint64(_FOLDS - 1)
    parts: NDArray[np.intp] = np.unique(bits, return_inverse=True)[1].reshape(-1)
    if not parts.any():
        parts = np.unique(hashes, return_inverse=True)[1].reshape(-1) % _FOLDS
    return parts


def draw_sample(X: Floats, y: Floats, people: Hashes, *, max_rows: int) -> PlanSample:
    """Choose up to ``max_rows`` rows of the people with the smallest hashes (`sample_positions`), and the folds."""
    chosen = sample_positions(people, max_rows)
    count = len(np.unique(people[chosen]))
    if len(chosen) < MIN_SAMPLE_ROWS or count < _FOLDS:
        raise TooFewRows(
            f"a plan needs at least {MIN_SAMPLE_ROWS} rows of {_FOLDS} people, got {len(chosen)} of {count}"
        )
    turns = _FOLDS if len(chosen) <= _FOUR_FOLD_ROWS else 2 if len(chosen) <= _TWO_FOLD_SHARE * max_rows else 1
    parts = split_people(people[chosen], 0)
    folds = tuple(parts == part for part in range(min(turns, int(parts.max()) + 1)))
    return PlanSample(X[chosen], y[chosen], people[chosen], folds)


def standard_error(values: Floats, people: NDArray[np.intp]) -> float:
    """Return the standard error of a mean over rows, clustered by person."""
    residuals = np.bincount(people, weights=values - values.mean())  # rows of one person are not independent
    return float(np.sqrt((residuals**2).sum())) / len(values)


@dataclass(frozen=True, eq=False)
class Fold:
    """Training and validation rows of one fold, as scaled columns."""

    encoder: Encoder  # with the bounds of the training rows
    Z: Floats  # (n, d'), training rows
    targets: Floats  # (n, t), scaled
    owners: Hashes  # (n,), of the training rows
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
            sample.hashes[is_training],
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
        return split_people(self.owners, 1)


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
