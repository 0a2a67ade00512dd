"""Trials: the validation error of one setting, for every penalty at once, and the relevance of its inputs.

A trial runs the model itself, with its code, slots, features and solve, on the training rows of each fold. Only the
moments are summed in floats, which moves predictions by about 1e-7.
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
from ..learning.blueprint import Blueprint, draw_blueprint
from ..learning.rules import ROWS_PER_THREAD, mean_weights
from ..learning.settings import Settings
from ..learning.state import ModelState, place_rows
from ..stores.change import Change
from .sample import Fold, Validation, standard_error

ALPHAS = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_ERROR_DIGITS = 5  # digits to which errors are compared: smaller differences may depend on the machine
# Among penalties that are as good, the largest is taken, because it does less harm where rows are rare: with the
# smallest, ten test rows of ten thousand made nearly half of the error on one table. A penalty is as good if its error
# is at most one standard error above the lowest. An excess below the first fraction of the lowest error is always
# accepted, one above the second never.
MIN_TOLERANCE, _MAX_TOLERANCE = 0.003, 0.03
_SLOPE_ROWS = 2_000  # rows at which slopes are computed
_FORGET_REPEATS = 3  # forgetting is timed this often


@dataclass(frozen=True, eq=False)
class Trial:
    """The errors of one setting, with its best penalty, on the validation rows."""

    settings: Settings
    errors: Floats  # (m,): squared, over the targets' variance, mean over targets
    choice_errors: Floats  # (m,): the same on the scales on which the targets are learned; choices are based on them
    weights: Floats  # of the first fold, (p, t)

    @property
    def error(self) -> float:
        """The mean choice error, rounded so that all machines compare alike."""
        return rounded_error(self.choice_errors)


def rounded_error(errors: Floats) -> float:
    """Return the mean, rounded so that all machines compare alike."""
    return float(f"{errors.mean():.{_ERROR_DIGITS}g}")


def try_settings(
    validation: Validation,
    settings: Settings,
    alphas: Sequence[float] = ALPHAS,
    *,
    max_tolerance: float = _MAX_TOLERANCE,
) -> Trial:
    """Try a setting with every penalty; keep the one with the lowest error, or the last one that is equally good.

    ``alphas`` must be in rising order. ``max_tolerance`` is the largest relative excess error of a penalty that counts
    as good. The returned settings have the scales and the ``outside`` of the validation.
    """
    by_fold = [_validate_fold(fold, settings, alphas, validation.variance) for fold in validation.folds]
    errors, choice_errors = (np.concatenate([results[k] for results in by_fold]) for k in range(2))  # (m, A)
    best = _find_best_penalty(choice_errors, validation.people, max_tolerance)
    settings = replace(settings, alpha=alphas[best], **validation.scaling_settings)
    return Trial(settings, errors[:, best], choice_errors[:, best], by_fold[0][2][best])


def _find_best_penalty(errors: Floats, people: NDArray[np.intp], max_tolerance: float = _MAX_TOLERANCE) -> int:
    """Return the last column that is as good as the best: at most one paired standard error worse."""
    means = errors.mean(axis=0)
    excess, lowest = errors - errors[:, [means.argmin()]], means.min()
    errors_of_mean = [standard_error(column, people) for column in excess.T]
    tolerance = np.clip(errors_of_mean, MIN_TOLERANCE * lowest, max_tolerance * lowest)
    good = excess.mean(axis=0) - tolerance <= 10.0**-_ERROR_DIGITS * lowest
    return int(np.flatnonzero(good).max())


def measure_relevance(validation: Validation, trial: Trial) -> Floats:
    """Return how strongly the prediction depends on each scaled column: its root mean squared slope, (d',)."""
    fold = validation.folds[0]
    features = _fold_blueprint(fold, trial.settings).features
    assert isinstance(features, RandomFourierMap)
    weights = trial.weights[: features.n_out]  # without the intercept
    squares = [(features.slopes(fold.Z[:_SLOPE_ROWS], w) ** 2).mean(axis=0) for w in weights.T]
    relevance: Floats = np.sqrt(np.sum(squares, axis=0))
    return relevance


def _fold_blueprint(fold: Fold, settings: Settings) -> Blueprint:
    return draw_blueprint(drop_scaling(settings), fold.Z.shape[1], fold.targets.shape[1])


def drop_scaling(settings: Settings) -> Settings:
    """Return the settings for columns that are scaled already."""
    return replace(settings, bounds="unit", target_bounds="unit", scales=None, target_scales=None)


def _validate_fold(
    fold: Fold, settings: Settings, alphas: Sequence[float], variance: Floats
) -> tuple[Floats, Floats, list[Floats]]:
    """Return, per penalty, errors of the validation rows, (m, A), the same on the target scales, and the weights."""
    encoder, learners = _learn_fold(fold, settings)
    solve = partial(ridge_weights, bits=encoder.bits, targets=encoder.n_targets, intercept=True)
    weights = [mean_weights([solve(moments, alpha=alpha) for moments in learners]) for alpha in alphas]
    return *_fold_errors(fold, encoder, weights, variance), weights


def _learn_fold(fold: Fold, settings: Settings) -> tuple[Encoder, list[FloatMoments]]:
    """Return the encoder of a fold's rows, and the moments of every learner."""
    blueprint = _fold_blueprint(fold, settings)
    rows, _ = place_rows(blueprint, fold.Z, fold.targets)
    encoder = blueprint.encoder(blueprint.measure())

    def sum_part(learner: int, k: int, n: int) -> FloatMoments:
        blocks = rows.shard(encoder, learner, part=(k, n))
        return FloatMoments.from_coded_rows(encoder.width, (block.rows for block in blocks))

    with one_blas_thread():
        max_parts = len(rows.live) // ROWS_PER_THREAD
        parts = [spread(partial(sum_part, j), max_parts) for j in range(encoder.code.learners)]
    return encoder, [reduce(add, moments) for moments in parts]


def _fold_errors(fold: Fold, encoder: Encoder, weights: list[Floats], variance: Floats) -> tuple[Floats, Floats]:
    stacked = np.concatenate(weights, axis=1)  # (p, A t)
    errors = np.empty((len(fold.y_validation), len(weights)))
    plain, scaled_truth = fold.encoder.target_scales.plain, fold.encoder.scale_targets(fold.y_validation)
    choice_errors = errors if plain else np.empty_like(errors)
    for block in cut(len(errors), encoder.n_weights):
        predicted = encoder.features_of(fold.Z_validation[block]) @ stacked[:-1] + stacked[-1]
        truth = fold.y_validation[block]
        for a, scaled in enumerate(np.split(predicted, len(weights), axis=1)):
            residuals = fold.encoder.unscale(scaled) - truth
            errors[block, a] = (residuals * residuals / variance).mean(axis=1)
            if not plain:  # in the target's own units a few large amounts would drown out the rest
                residuals = (np.clip(scaled, 0.0, 1.0) - scaled_truth[block]) / fold.spread
                choice_errors[block, a] = (residuals * residuals).mean(axis=1)
    return errors, choice_errors


def single_learner(features: FeatureMap, seed: int) -> Settings:
    """Return the settings of one learner on all rows with these features."""
    return Settings(shards=1, rate=1, features=features, random_state=seed)


def measure_forgetting(validation: Validation, settings: Settings) -> float:
    """Return the milliseconds that this machine takes to forget a row of the sample; no choice depends on it.

    Ids are not looked up, and nothing is committed.
    """
    fold = validation.folds[0]
    part = slice(0, 50 * settings.shards)
    blueprint = _fold_blueprint(fold, settings)
    rows, slots = place_rows(blueprint, fold.Z[part], fold.targets[part])
    state = ModelState.learn(blueprint, rows, len(slots))
    times = []
    for slot in slots[:_FORGET_REPEATS]:
        started = time.perf_counter()
        state.prepare(Change(np.array([slot])))
        times.append(time.perf_counter() - started)
    return min(times) * 1e3
