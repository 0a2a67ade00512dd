"""Finals: the candidates of a plan, its linear model, and the references that it is compared with.

The best shapes are tried with as many features as each time to forget allows, in steps, so that a limit of 2 or 5 ms is
met closely; then with codes.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from ..encoding.encoder import Outside
from ..exact.arrays import Floats
from ..learning.settings import Settings
from .candidates import CODINGS, SINGLE, Coding, TableSize, TriedCandidate, choose_candidate, max_width
from .sample import PlanSample, Validation
from .search import ShapeTrial, search_shapes
from .shapes import Blend, Shape, blend_shapes
from .trial import ALPHAS, MIN_TOLERANCE, measure_forgetting, try_settings

FORGET_STEPS_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # milliseconds to forget a row
_MIN_COSINES = 16
_MAX_COSINES_PER_ROW = 3  # more cosines take long on a small table, and gain nothing
_COMPARISON_MS = 10.0  # shapes are compared with as many features as this time allows
_COMPARED_SHAPES = 3  # number of shapes compared, besides blends of them
_BLEND_MS = 50.0  # from as many features as this time allows, the largest blend is tried again
_CODING_MS = 5.0  # codes are tried with the features that this time allows, and with the best
_BLEND_FACTOR = 0.98  # multiplies the error of a blend: with other draws and more rows blends did better
_MAX_LINE_RATIO = 1.5  # a linear model whose error exceeds the lowest by more than this factor is not close
_ENOUGH_ROWS = 400  # validation rows that settle whether cosines beat the linear model

OUTSIDE_CHOICES: tuple[Outside, ...] = ("clamp", "extrapolate")  # the first on a tie
LINE_ALPHAS = (1e-9, 1e-8, 1e-7, *ALPHAS)  # most values of a skewed input are small on a linear scale


@dataclass(frozen=True, eq=False)
class Finals:
    """The last trials: the best shapes at full size, for a table of the given size."""

    validation: Validation
    size: TableSize
    seed: int
    max_cosines: int
    with_codes: bool  # whether codes are tried

    def run(
        self, ranked_shapes: list[ShapeTrial], limit: float | None, progress: Callable[[float], None]
    ) -> list[TriedCandidate]:
        """Try the best shape with every number of cosines, then the codes with two; ``limit`` adds a step."""
        steps = self._cosine_steps([*FORGET_STEPS_MS, *([] if limit is None else [limit])])
        shapes, tried = [ranked.shape for ranked in ranked_shapes], list[TriedCandidate]()
        best, blended = self._choose_shape(shapes), blend_shapes(shapes)[-1:]
        few, many = self._cosines_within(_COMPARISON_MS), self._cosines_within(_BLEND_MS)
        for k, cosines in enumerate(steps):
            others = [best.stretch(0.5), *shapes[:1]] if cosines < few else blended if cosines >= many else []
            trials = (self._try_shape(shape, cosines) for shape in [best, *others])
            tried.append(min(trials, key=lambda candidate: candidate.error))
            progress((k + 1) / (len(steps) + len(CODINGS)))
        allowed = [candidate for candidate in tried if limit is None or candidate.costs.forget_ms <= limit] or tried[:1]
        lowest = min(allowed, key=lambda candidate: candidate.error)
        largest_fast = max(
            (candidate for candidate in tried if candidate.costs.forget_ms <= _CODING_MS),
            key=lambda candidate: candidate.costs.forget_ms,
            default=tried[0],
        )
        codings = [coding for coding in CODINGS[1:] if self.with_codes and self._has_enough_rows(coding)]
        for candidate in [lowest] if lowest is largest_fast else [lowest, largest_fast]:
            tried += [self._try_coding(candidate.settings, coding) for coding in codings]
        progress(1.0)
        return tried

    def _choose_shape(self, shapes: Sequence[Shape]) -> Shape | Blend:
        """Return the shape or blend that does best with more features than the search used, with the better reach."""
        cosines = self._cosine_steps([_COMPARISON_MS])[-1]

        @cache
        def error_of(shape: Shape | Blend) -> float:
            error = self._try_shape(shape, cosines).error
            return _BLEND_FACTOR * error if isinstance(shape, Blend) else error

        compared: list[Shape | Blend] = [*shapes[:_COMPARED_SHAPES], *blend_shapes(shapes)]
        best = min(compared, key=error_of)
        return min(best, best.stretch(2.0), key=error_of)

    def _cosine_steps(self, times: Iterable[float]) -> list[int]:
        """Return the numbers of cosines that forget within these times, in rising order."""
        most = min(self.max_cosines, _MAX_COSINES_PER_ROW * self.validation.rows)
        return sorted({min(most, max(_MIN_COSINES, self._cosines_within(time))) for time in times})

    def _cosines_within(self, forget_ms: float) -> int:
        return max_width(forget_ms) - self.size.columns - 1 - self.size.targets

    def _has_enough_rows(self, coding: Coding) -> bool:
        """Return whether every learner has enough coded rows."""
        return all(len(fold.Z) >= 20 * coding.shards for fold in self.validation.folds)

    def _try_shape(self, shape: Shape | Blend, cosines: int) -> TriedCandidate:
        settings = Settings(features=shape.features(cosines, self.seed), random_state=self.seed)
        return self._try_coding(settings, SINGLE)

    def _try_coding(self, settings: Settings, coding: Coding) -> TriedCandidate:
        settings = coding.apply(settings)
        started = time.perf_counter()
        trial = try_settings(self.validation, settings)
        seconds = (time.perf_counter() - started) / len(self.validation.folds)
        measured = measure_forgetting(self.validation, trial.settings), seconds
        return TriedCandidate.from_trial(coding, trial, self.size, measured)


def try_line(sample: PlanSample, declared: dict[str, Any], rows: int, seed: int) -> TriedCandidate:
    """Try one linear learner for a table of ``rows`` rows; ``declared`` are its bounds and scales.

    The linear model is a candidate like any other, and the cheapest. Its features are the inputs themselves, on the
    declared scales, or linear ones. Rows outside the bounds are extrapolated or clamped, whichever has less error on
    the validation rows.
    """
    validations = [Validation.from_sample(sample, **declared, outside=outside) for outside in OUTSIDE_CHOICES]
    started = time.perf_counter()
    settings = Settings(shards=1, rate=1, random_state=seed)
    trials = [try_settings(each, settings, LINE_ALPHAS, max_tolerance=MIN_TOLERANCE) for each in validations]
    seconds = (time.perf_counter() - started) / sum(len(each.folds) for each in validations)
    trial, validation = min(zip(trials, validations, strict=True), key=lambda pair: pair[0].error)
    size = TableSize(rows, sample.X.shape[1], validation.columns, validation.targets)
    measured = measure_forgetting(validation, trial.settings), seconds
    return replace(TriedCandidate.from_trial(SINGLE, trial, size, measured), is_line=True)


def measure_line_advantage(
    validation: Validation,
    sample: PlanSample,
    line: TriedCandidate,
    others: Sequence[TriedCandidate],
    forget_ms: float | None,
    seed: int,
) -> float | None:
    """Return the relative excess error of cosines over the linear model on rows that the search did not see, or None.

    In a small sample every fold validates in turn, and its people are learned from in the other folds: a search for
    shapes comes to fit all of them. On linear tables it found shapes with 10 % less error than the linear model, which
    had 10 % more on new rows. So where the linear model is close, a quick search runs without the people of one fold,
    whose rows then validate its result; then without those of the next fold.

    None if there is nothing to measure: the linear model is chosen anyway, or is far worse, or a single fold validates,
    from which nothing was learned.
    """
    if choose_candidate([*others, line], validation.people, forget_ms) is line:
        return None
    lowest = min(candidate.errors.mean() for candidate in others)
    if len(validation.folds) == 1 or line.errors.mean() > _MAX_LINE_RATIO * lowest:
        return None
    errors, count = list[Floats](), 0
    for k, (fold, is_validation) in enumerate(zip(validation.folds, sample.folds, strict=True)):
        if count >= _ENOUGH_ROWS and k > 1:
            break
        inner = Validation.from_sample(
            sample.without(is_validation),
            bounds=validation.bounds,
            target_bounds=validation.target_bounds,
            **validation.scaling_settings,
        )
        best = search_shapes(inner, seed, lambda share: None, quick=True)[0]
        people = validation.people[count : count + len(fold.y_validation)]
        outer = replace(validation, folds=(fold,), people=people)
        errors.append(try_settings(outer, best.settings, (best.settings.alpha,)).errors)
        count += len(fold.y_validation)
    return float(np.concatenate(errors).mean() / line.errors[:count].mean() - 1)


@dataclass(frozen=True)
class Reference:
    """Another kind of model on the same split, for comparison: ``error`` and ``r2`` as in `Candidate`.

    No choice depends on it. It can only forget a row by training again; ``train_s`` is measured on the sample, on one
    thread.
    """

    name: str
    error: float
    r2: float
    train_s: float


def try_references(sample: PlanSample, variance: Floats, seed: int) -> list[Reference]:
    """Return the validation error of a linear model and of boosted trees."""
    linear = make_pipeline(StandardScaler(), Ridge(1.0))
    trees = {f"boosted trees, {n}": HistGradientBoostingRegressor(max_iter=n, random_state=seed) for n in (100, 400)}
    return [_try_reference(name, model, sample, variance) for name, model in {"linear": linear, **trees}.items()]


def _try_reference(name: str, model: BaseEstimator, sample: PlanSample, variance: Floats) -> Reference:
    errors, seconds = [], 0.0
    model = model if sample.y.shape[1] == 1 else MultiOutputRegressor(model)
    for is_validation in sample.folds:
        y = sample.y[~is_validation]
        with threadpool_limits(1):  # on a busy machine several threads spend their time waiting for each other
            started = time.perf_counter()
            model.fit(sample.X[~is_validation], y[:, 0] if y.shape[1] == 1 else y)
            seconds += time.perf_counter() - started
            residuals = model.predict(sample.X[is_validation]).reshape(-1, y.shape[1]) - sample.y[is_validation]
        errors.append((residuals * residuals / variance).mean(axis=1))
    error = float(np.concatenate(errors).mean())
    return Reference(name, error, 1.0 - error, seconds / len(sample.folds))
