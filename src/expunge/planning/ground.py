"""The ground on which candidates are tried: the sample's rows, scaled once, fold by fold.

Each trial then maps scaled columns that are taken as they are (bounds "unit"): the integers, and so the weights, are
those that a model with the real bounds would have.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..encoding.bounds import BoundsLike
from ..encoding.codes import Code
from ..encoding.encoder import Encoder
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
    judging: Floats  # (m, d')
    truth: Floats  # (m, t), in the targets' own units

    @classmethod
    def of(cls, blueprint: Blueprint, learn: tuple[Floats, Floats], judge: tuple[Floats, Floats]) -> "Fold":
        """Scale rows as the model of this blueprint would that learned the first ones."""
        X, y = blueprint.admit(*learn)
        rows = Rows(X, y, np.ones(len(X), dtype=np.bool_))
        encoder = blueprint.encoder(blueprint.measured(rows))
        scaled = encoder.scales.within(encoder.inputs)
        return cls(encoder, scaled(X), encoder.targets.scale(y), scaled(encoder.nearest(judge[0])), judge[1])


@dataclass(frozen=True, eq=False)
class Ground:
    """The folds, and how far the targets spread: errors are in units of it."""

    folds: tuple[Fold, ...]
    people: NDArray[np.intp]  # (m,), whose each judging row is
    variance: Floats  # (t,)

    @classmethod
    def of(cls, sample: Sample, *, bounds: BoundsLike, target_bounds: BoundsLike, scales: ScalesLike) -> "Ground":
        """Scale a sample."""
        settings = Settings(
            code=Code.single(), bounds=bounds, target_bounds=target_bounds, scales=scales, clip=True, random_state=0
        )
        blueprint = draw_blueprint(settings, sample.X.shape[1], sample.y.shape[1])
        X, y = sample.X, sample.y
        folds = tuple(Fold.of(blueprint, (X[~judge], y[~judge]), (X[judge], y[judge])) for judge in sample.folds)
        judging = sample.judging
        variance = y[judging].var(axis=0)
        return cls(folds, sample.people[judging], np.where(variance > 0, variance, 1.0))

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
        thin = tuple(Fold(one.encoder, one.Z[part], one.targets[part], one.judging, one.truth) for one in some)
        return Ground(thin, self.people[: sum(len(one.truth) for one in some)], self.variance)
