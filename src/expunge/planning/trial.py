"""Trials: the validation error of one setting, for every penalty at once, and what its slopes say of the inputs.

What is tried is the model itself, its code, its slots, its features and its solve, on rows that do not judge; only its
moments are summed in floats, which moves predictions by some 1e-7.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from ..encoding.encoder import Encoder
from ..encoding.features import FeatureMap
from ..encoding.fourier import RandomFourierMap
from ..exact.arrays import Floats, cut
from ..exact.moments import FloatMoments
from ..exact.ridge import ridge_weights
from ..exact.threads import one_blas_thread, spread
from ..learning.blueprint import draw_blueprint
from ..learning.rules import ROWS_PER_THREAD, mean_weights
from ..learning.settings import Settings
from ..learning.state import ModelState, place_rows
from ..stores.change import Change
from .sample import Fold, Validation, standard_error

ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_ERROR_DIGITS = 5  # to which errors are compared: what differs less may differ between machines
# Of penalties that are as good the largest is taken, because it does less harm where rows are rare: with the smallest,
# ten test rows of ten thousand were nearly half of the error on one table. A penalty is as good if its error is at most
# one standard error above the least. Less than the first part of the least error above it always is, more than the
# second never.
MIN_TOLERANCE, _MAX_TOLERANCE = 0.003, 0.03
_SLOPE_ROWS = 2_000  # rows at which slopes are looked at


@dataclass(frozen=True, eq=False)
class Trial:
    """What one setting, with its best penalty, makes of the rows that judge."""

    settings: Settings
    errors: Floats  # (m,): squared, over the targets' variance, mean over targets
    choice_errors: Floats  # (m,): the same on the scales on which the targets are learned: what choices go by
    weights: Floats  # of the first fold, (p, t)

    @property
    def error(self) -> float:
        """The mean of what choices go by, rounded so that every machine compares alike."""
        return float(f"{self.choice_errors.mean():.{_ERROR_DIGITS}g}")


def try_settings(
    validation: Validation,
    settings: Settings,
    alphas: Sequence[float] = ALPHAS,
    *,
    max_tolerance: float = _MAX_TOLERANCE,
) -> Trial:
    """Try a setting with every penalty, in rising order; the one with the least error counts, or the last as good.

    ``at_most`` is the part of the least error that a penalty which is as good may lose. The settings that come back
    have the scales of the ground, and what is done outside the bounds there.
    """
    made = [_validate_fold(fold, settings, alphas, validation.variance) for fold in validation.folds]
    errors, judged = (np.concatenate([one[k] for one in made]) for k in range(2))  # (m, A)
    best = _find_best_penalty(judged, validation.people, max_tolerance)
    settings = replace(settings, alpha=alphas[best], **validation.scaling_settings)
    return Trial(settings, errors[:, best], judged[:, best], made[0][2][best])


def _find_best_penalty(errors: Floats, people: NDArray[np.intp], max_tolerance: float = _MAX_TOLERANCE) -> int:
    """The last column that is as good as the best: not worse by more than one standard error, paired."""
    means = errors.mean(axis=0)
    worse, least = errors - errors[:, [means.argmin()]], means.min()
    doubt = np.clip([standard_error(one, people) for one in worse.T], MIN_TOLERANCE * least, max_tolerance * least)
    good = worse.mean(axis=0) - doubt <= 10.0**-_ERROR_DIGITS * least
    return int(np.flatnonzero(good).max())


def measure_relevance(validation: Validation, trial: Trial) -> Floats:
    """How much the prediction changes with each scaled column: the root of its mean squared slope, (d',)."""
    fold, features = validation.folds[0], _draw_features(validation.folds[0], trial.settings)
    assert isinstance(features, RandomFourierMap)
    weights = trial.weights[: features.n_out]  # without the intercept
    squares = [(features.slopes(fold.Z[:_SLOPE_ROWS], w) ** 2).mean(axis=0) for w in weights.T]
    found: Floats = np.sqrt(np.sum(squares, axis=0))
    return found


def _draw_features(fold: Fold, settings: Settings) -> FeatureMap:
    return draw_blueprint(drop_scaling(settings), fold.Z.shape[1], fold.targets.shape[1]).features


def drop_scaling(settings: Settings) -> Settings:
    """The same for columns that are scaled already."""
    return replace(settings, bounds="unit", target_bounds="unit", scales=None, target_scales=None)


def _validate_fold(
    fold: Fold, settings: Settings, alphas: Sequence[float], variance: Floats
) -> tuple[Floats, Floats, list[Floats]]:
    """Errors of the judging rows, (m, A), the same on the scales of the targets, and the weights, for each penalty."""
    encoder, learners = _learn_fold(fold, settings)
    bits, targets = encoder.bits, encoder.n_targets
    weights = [
        mean_weights([ridge_weights(one, bits=bits, targets=targets, alpha=alpha, intercept=True) for one in learners])
        for alpha in alphas
    ]
    errors, judged = _fold_errors(fold, encoder, weights, variance)
    return errors, judged, weights


def _learn_fold(fold: Fold, settings: Settings) -> tuple[Encoder, list[FloatMoments]]:
    """What encodes the rows of a fold, and every learner's moments of them."""
    blueprint = draw_blueprint(drop_scaling(settings), fold.Z.shape[1], fold.targets.shape[1])
    rows, _ = place_rows(blueprint, fold.Z, fold.targets)
    encoder = blueprint.encoder(blueprint.measure())

    def summed(learner: int, k: int, n: int) -> FloatMoments:
        return FloatMoments.from_coded_rows(
            encoder.width, (block.rows for block in rows.shard(encoder, learner, part=(k, n)))
        )

    with one_blas_thread():
        most = len(rows.live) // ROWS_PER_THREAD
        parts = [spread(partial(summed, j), most) for j in range(encoder.code.learners)]
    return encoder, [reduce(add, some) for some in parts]


def _fold_errors(fold: Fold, encoder: Encoder, weights: list[Floats], variance: Floats) -> tuple[Floats, Floats]:
    stacked = np.concatenate(weights, axis=1)  # (p, A t)
    errors = np.empty((len(fold.truth), len(weights)))
    plain, scaled_truth = fold.encoder.target_scales.plain, fold.encoder.scale_targets(fold.truth)
    judged = errors if plain else np.empty_like(errors)
    for block in cut(len(errors), encoder.n_weights):
        predicted = encoder.features_of(fold.judging[block]) @ stacked[:-1] + stacked[-1]
        truth = fold.truth[block]
        for a, scaled in enumerate(np.split(predicted, len(weights), axis=1)):
            wrong = fold.encoder.unscale(scaled) - truth
            errors[block, a] = (wrong * wrong / variance).mean(axis=1)
            if not plain:  # what few large amounts say would drown out the rest
                wrong = (np.clip(scaled, 0.0, 1.0) - scaled_truth[block]) / fold.spread
                judged[block, a] = (wrong * wrong).mean(axis=1)
    return errors, judged


def single_learner(features: FeatureMap, seed: int) -> Settings:
    """Settings of one learner on everything with these features."""
    return Settings(shards=1, rate=1, features=features, random_state=seed)


# MERGED measuring: What forgetting takes here and now: shown beside what is predicted. No decision depends on it.


_FORGET_REPEATS = 3  # times that forgetting is measured


def measure_forgetting(validation: Validation, settings: Settings) -> float:
    """Milliseconds that it takes here to forget a row of the sample, without the ids; nothing is committed."""
    fold = validation.folds[0]
    some = slice(0, 50 * settings.shards)
    blueprint = draw_blueprint(drop_scaling(settings), fold.Z.shape[1], fold.targets.shape[1])
    rows, slots = place_rows(blueprint, fold.Z[some], fold.targets[some])
    state = ModelState.learn(blueprint, rows, len(slots))
    times = []
    for slot in slots[:_FORGET_REPEATS]:
        started = time.perf_counter()
        state.prepare(Change(np.array([slot])))
        times.append(time.perf_counter() - started)
    return min(times) * 1e3
