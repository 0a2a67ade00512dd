"""Trials: the validation error of one setting, for every penalty at once, and what its slopes say of the inputs.

What is tried is the model itself, its code, its slots, its features and its solve, on rows that do not judge; only its
moments are summed in floats, which moves predictions by some 1e-7.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from ..encoding.encoder import Encoder
from ..encoding.features import FeatureMap
from ..encoding.fourier import RandomFourierMap
from ..exact.approximate import FloatMoments
from ..exact.arrays import Floats, cut
from ..exact.ridge import ridge_weights
from ..exact.threads import one_blas_thread, spread
from ..fitted import placed
from ..learning.blueprint import draw_blueprint
from ..learning.rules import SPREAD_ROWS, mean_weights
from ..learning.settings import Settings
from .ground import Fold, Ground
from .sample import standard_error

ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_DIGITS = 5  # to which errors are compared: what differs less may differ between machines
# Of penalties that are as good the largest is taken, because it does less harm where rows are rare: with the smallest,
# ten test rows of ten thousand were nearly half of the error on one table. A penalty is as good if its error is at most
# one standard error above the least. Less than the first part of the least error above it always is, more than the
# second never.
AS_GOOD, _AT_MOST = 0.003, 0.03
_SLOPES = 2_000  # rows at which slopes are looked at


@dataclass(frozen=True, eq=False)
class Trial:
    """What one setting, with its best penalty, makes of the rows that judge."""

    settings: Settings
    errors: Floats  # (m,): squared, over the targets' variance, mean over targets
    judged: Floats  # (m,): the same on the scales on which the targets are learned: what choices go by
    weights: Floats  # of the first fold, (p, t)

    @property
    def error(self) -> float:
        """The mean of what choices go by, rounded so that every machine compares alike."""
        return float(f"{self.judged.mean():.{_DIGITS}g}")


def tried(ground: Ground, settings: Settings, alphas: Sequence[float] = ALPHAS, *, at_most: float = _AT_MOST) -> Trial:
    """Try a setting with every penalty, in rising order; the one with the least error counts, or the last as good.

    ``at_most`` is the part of the least error that a penalty which is as good may lose. The settings that come back
    have the scales of the ground, and what is done outside the bounds there.
    """
    made = [_judged(fold, settings, alphas, ground.variance) for fold in ground.folds]
    errors, judged = (np.concatenate([one[k] for one in made]) for k in range(2))  # (m, A)
    best = _as_good(judged, ground.people, at_most)
    settings = replace(settings, alpha=alphas[best], **ground.settings)
    return Trial(settings, errors[:, best], judged[:, best], made[0][2][best])


def _as_good(errors: Floats, people: NDArray[np.intp], at_most: float = _AT_MOST) -> int:
    """The last column that is as good as the best: not worse by more than one standard error, paired."""
    means = errors.mean(axis=0)
    worse, least = errors - errors[:, [means.argmin()]], means.min()
    doubt = np.clip([standard_error(one, people) for one in worse.T], AS_GOOD * least, at_most * least)
    good = worse.mean(axis=0) - doubt <= 10.0**-_DIGITS * least
    return int(np.flatnonzero(good).max())


def relevance(ground: Ground, trial: Trial) -> Floats:
    """How much the prediction changes with each scaled column: the root of its mean squared slope, (d',)."""
    fold, features = ground.folds[0], _drawn(ground.folds[0], trial.settings)
    assert isinstance(features, RandomFourierMap)
    weights = trial.weights[: features.n_out]  # without the intercept
    squares = [(features.slopes(fold.Z[:_SLOPES], w) ** 2).mean(axis=0) for w in weights.T]
    found: Floats = np.sqrt(np.sum(squares, axis=0))
    return found


def _drawn(fold: Fold, settings: Settings) -> FeatureMap:
    return draw_blueprint(unit(settings), fold.Z.shape[1], fold.targets.shape[1]).features


def unit(settings: Settings) -> Settings:
    """The same for columns that are scaled already."""
    return replace(settings, bounds="unit", target_bounds="unit", scales=None, target_scales=None)


def _judged(
    fold: Fold, settings: Settings, alphas: Sequence[float], variance: Floats
) -> tuple[Floats, Floats, list[Floats]]:
    """Errors of the judging rows, (m, A), the same on the scales of the targets, and the weights, for each penalty."""
    encoder, learners = _learned(fold, settings)
    bits, targets = encoder.bits, encoder.n_targets
    weights = [
        mean_weights([ridge_weights(one, bits=bits, targets=targets, alpha=alpha, intercept=True) for one in learners])
        for alpha in alphas
    ]
    errors, judged = _errors(fold, encoder, weights, variance)
    return errors, judged, weights


def _learned(fold: Fold, settings: Settings) -> tuple[Encoder, list[FloatMoments]]:
    """What encodes the rows of a fold, and every learner's moments of them."""
    blueprint = draw_blueprint(unit(settings), fold.Z.shape[1], fold.targets.shape[1])
    rows, _ = placed(blueprint, fold.Z, fold.targets)
    encoder = blueprint.encoder(blueprint.measured())

    def summed(learner: int, k: int, n: int) -> FloatMoments:
        return FloatMoments.of(encoder.width, (block.rows for block in rows.shard(encoder, learner, part=(k, n))))

    with one_blas_thread():
        most = len(rows.live) // SPREAD_ROWS
        parts = [spread(partial(summed, j), most) for j in range(encoder.code.learners)]
    return encoder, [reduce(add, some) for some in parts]


def _errors(fold: Fold, encoder: Encoder, weights: list[Floats], variance: Floats) -> tuple[Floats, Floats]:
    stacked = np.concatenate(weights, axis=1)  # (p, A t)
    errors = np.empty((len(fold.truth), len(weights)))
    plain, scaled_truth = fold.encoder.target_scales.plain, fold.encoder.scaled_targets(fold.truth)
    judged = errors if plain else np.empty_like(errors)
    for block in cut(len(errors), encoder.n_weights):
        predicted = encoder.features_of(fold.judging[block]) @ stacked[:-1] + stacked[-1]
        truth = fold.truth[block]
        for a, scaled in enumerate(np.split(predicted, len(weights), axis=1)):
            wrong = fold.encoder.unscaled(scaled) - truth
            errors[block, a] = (wrong * wrong / variance).mean(axis=1)
            if not plain:  # what few large amounts say would drown out the rest
                wrong = (np.clip(scaled, 0.0, 1.0) - scaled_truth[block]) / fold.spread
                judged[block, a] = (wrong * wrong).mean(axis=1)
    return errors, judged


def single(features: FeatureMap, seed: int) -> Settings:
    """Settings of one learner on everything with these features."""
    return Settings(shards=1, rate=1, features=features, random_state=seed)
