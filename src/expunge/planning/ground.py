"""The ground on which candidates are tried: the sample's rows, scaled once, fold by fold.

Each trial then maps scaled columns that are taken as they are (bounds "unit"): the integers, and so the weights, are
those that a model with the real bounds would have.
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
from ..exact.arrays import Floats
from ..learning.blueprint import Blueprint, draw_blueprint
from ..learning.settings import Settings
from ..stores.rows import Rows
from .sample import Sample


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
    def of(cls, blueprint: Blueprint, sample: Sample, judge: NDArray[np.bool_]) -> "Fold":
        """Scale rows of a sample as the model of this blueprint would that learned those which do not judge."""
        X, y = blueprint.admit(sample.X[~judge], sample.y[~judge])
        rows = Rows(X, y, np.ones(len(X), dtype=np.bool_))
        encoder = blueprint.encoder(blueprint.measured(rows))
        scaled = encoder.scales.within(encoder.inputs)
        judging = scaled(encoder.nearest(sample.X[judge]))
        return cls(encoder, scaled(X), encoder.scaled_targets(y), sample.people[~judge], judging, sample.y[judge])

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
class Ground:
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
    def of(
        cls,
        sample: Sample,
        *,
        bounds: BoundsLike,
        target_bounds: BoundsLike,
        scales: ScalesLike,
        target_scales: ScalesLike = None,
        outside: Outside = "clamp",
    ) -> "Ground":
        """Scale a sample; rows that judge are treated as `predict` treats rows, ``outside`` the bounds, too."""
        declared: dict[str, Any] = {"bounds": bounds, "target_bounds": target_bounds}
        declared |= {"scales": scales, "target_scales": target_scales}
        settings = Settings(code=Code.single(), clip=True, outside=outside, random_state=0, **declared)
        blueprint = draw_blueprint(settings, sample.X.shape[1], sample.y.shape[1])
        declared["target_scales"] = blueprint.target_scales.spec()
        folds = tuple(Fold.of(blueprint, sample, judge) for judge in sample.folds)
        judging = sample.judging
        variance = sample.y[judging].var(axis=0)
        return cls(folds, sample.people[judging], np.where(variance > 0, variance, 1.0), **declared, outside=outside)

    @property
    def settings(self) -> dict[str, Any]:
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

    def thinned(self, rows: int, folds: int) -> "Ground":
        """The same with at most so many folds, and at most so many rows to learn from in all: for a first look."""
        some = self.folds[:folds]
        part = slice(0, rows // len(some))
        thin = tuple(replace(one, Z=one.Z[part], targets=one.targets[part], owners=one.owners[part]) for one in some)
        return replace(self, folds=thin, people=self.people[: sum(len(one.truth) for one in some)])


def refuse_outside(X: Floats, y: Floats, bounds: BoundsLike, target_bounds: BoundsLike, *, clip: bool) -> None:
    """Refuse rows that a model with these bounds would refuse."""
    if clip:
        return
    settings = Settings(code=Code.single(), bounds=bounds, target_bounds=target_bounds, random_state=0)
    draw_blueprint(settings, X.shape[1], y.shape[1]).admit(X, y)
