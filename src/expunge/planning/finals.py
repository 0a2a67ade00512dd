"""Finals: the best shapes with as many features as each time to forget allows, and the codes.

The numbers of features go in steps of the time to forget, so that a limit of 2 or 5 ms is met as closely as can be.
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
_MIN_COSINES = 16  # cosines
_MAX_COSINES_PER_ROW = 3  # cosines at most: with more a small table takes long, and gains nothing
_COMPARISON_MS = 10.0  # ms: with what this allows the shapes are compared
_COMPARED_SHAPES = 3  # so many are, and blends of them
_BLEND_MS = 50.0  # ms: with as many features as this allows, and more, the largest blend is tried once more
_CODING_MS = 5.0  # ms: codes are tried with what this allows, and with the best
_BLEND_FACTOR = 0.98  # what the error of a blend is multiplied by: with other draws and more rows blends did better


@dataclass(frozen=True, eq=False)
class Finals:
    """Where candidates are tried, for a table of which size."""

    validation: Validation
    size: TableSize
    seed: int
    max_cosines: int  # cosines
    with_codes: bool  # whether codes are tried, too

    def run(
        self, ranked_shapes: list[ShapeTrial], limit: float | None, progress: Callable[[float], None]
    ) -> list[TriedCandidate]:
        """Try the best shapes with every number of cosines, and the codes with two; ``limit`` is a step, too."""
        steps = self._cosine_steps([*FORGET_STEPS_MS, *([] if limit is None else [limit])])
        shapes, made = [one.shape for one in ranked_shapes], list[TriedCandidate]()
        best, blended = self._choose_shape(shapes), blend_shapes(shapes)[-1:]
        few, many = self._cosines_within(_COMPARISON_MS), self._cosines_within(_BLEND_MS)
        for k, cosines in enumerate(steps):
            others = [best.stretch(0.5), *shapes[:1]] if cosines < few else blended if cosines >= many else []
            made.append(min((self._try_shape(one, cosines, SINGLE) for one in [best, *others]), key=_rounded_error))
            progress((k + 1) / (len(steps) + len(CODINGS)))
        allowed = [one for one in made if limit is None or one.costs.forget_ms <= limit] or made[:1]
        for settings in {
            id(one): one.settings for one in (min(allowed, key=_rounded_error), self._largest_fast(made))
        }.values():
            made += [
                self._try_coding(settings, coding)
                for coding in CODINGS[1:]
                if self.with_codes and self._has_enough_rows(coding)
            ]
        progress(1.0)
        return made

    def _choose_shape(self, shapes: Sequence[Shape]) -> Shape | Blend:
        """The shape or blend that does best with more features than the search had, and its reach with those."""
        cosines = self._cosine_steps([_COMPARISON_MS])[-1]

        @cache
        def judged(one: Shape | Blend) -> float:
            error = _rounded_error(self._try_shape(one, cosines, SINGLE))
            return _BLEND_FACTOR * error if isinstance(one, Blend) else error

        compared: list[Shape | Blend] = [*shapes[:_COMPARED_SHAPES], *blend_shapes(shapes)]
        best = min(compared, key=judged)
        return min(best, best.stretch(2.0), key=judged)

    def _cosine_steps(self, times: Iterable[float]) -> list[int]:
        """Numbers of cosines that forget within these times, rising."""
        most = min(self.max_cosines, _MAX_COSINES_PER_ROW * self.validation.rows)
        return sorted({min(most, max(_MIN_COSINES, self._cosines_within(time))) for time in times})

    def _cosines_within(self, forget_ms: float) -> int:
        return max_width(forget_ms) - self.size.columns - 1 - self.size.targets

    def _largest_fast(self, candidates: list[TriedCandidate]) -> TriedCandidate:
        """The candidate with the most cosines of those that are fast to forget."""
        return max(
            (one for one in candidates if one.costs.forget_ms <= _CODING_MS), key=_forget_ms, default=candidates[0]
        )

    def _has_enough_rows(self, coding: Coding) -> bool:
        """Whether every learner has enough coded rows."""
        return all(len(fold.Z) >= 20 * coding.shards for fold in self.validation.folds)

    def _try_shape(self, shape: Shape | Blend, cosines: int, coding: Coding) -> TriedCandidate:
        settings = Settings(features=shape.features(cosines, self.seed), random_state=self.seed)
        return self._try_coding(settings, coding)

    def _try_coding(self, settings: Settings, coding: Coding) -> TriedCandidate:
        settings = coding.apply(settings)
        started = time.perf_counter()
        trial = try_settings(self.validation, settings)
        seconds = (time.perf_counter() - started) / len(self.validation.folds)
        return TriedCandidate.from_trial(
            coding, trial, self.size, (measure_forgetting(self.validation, trial.settings), seconds)
        )


def _rounded_error(candidate: TriedCandidate) -> float:
    return float(f"{candidate.choice_errors.mean():.5g}")


def _forget_ms(candidate: TriedCandidate) -> float:
    return candidate.costs.forget_ms


# MERGED doubt: Doubt: whether cosines do better than a line on rows that had no part in finding their shape.
# MERGED doubt:
# MERGED doubt: In a small sample everybody judges in turn, and those who judge in one fold are learned from in the others: a search for
# MERGED doubt: shapes comes to fit all of them. On tables that were linear it found shapes with 10 % less error than a line, which had
# MERGED doubt: 10 % more on new rows. So where a line is close, a quick search is made without the people of one fold, who judge what
# MERGED doubt: it found; then without those of the next.


_MAX_LINE_RATIO = 1.5  # times the least error: a line that is further off is no match
_ENOUGH_ROWS = 400  # rows that judge


def measure_line_advantage(
    validation: Validation,
    sample: PlanSample,
    line: TriedCandidate,
    others: Sequence[TriedCandidate],
    forget_ms: float | None,
    seed: int,
) -> float | None:
    """How much more error cosines have than a line, as a part of it, on rows that the search did not see.

    None if that was not asked: a line is chosen anyway, or far off, or one fold judges, whom nothing was learned from.
    """
    if choose_candidate([*others, line], validation.people, forget_ms) is line:
        return None
    least = min(one.errors.mean() for one in others)
    if len(validation.folds) == 1 or line.errors.mean() > _MAX_LINE_RATIO * least:
        return None
    made, count = list[Floats](), 0
    for k, (fold, judge) in enumerate(zip(validation.folds, sample.folds, strict=True)):
        if count >= _ENOUGH_ROWS and k > 1:
            break
        inner = Validation.from_sample(
            sample.without(judge),
            bounds=validation.bounds,
            target_bounds=validation.target_bounds,
            **validation.scaling_settings,
        )
        best = search_shapes(inner, seed, lambda share: None, quick=True)[0]
        people = validation.people[count : count + len(fold.truth)]
        outer = replace(validation, folds=(fold,), people=people)
        made.append(try_settings(outer, best.trial.settings, (best.trial.settings.alpha,)).errors)
        count += len(fold.truth)
    return float(np.concatenate(made).mean() / line.errors[:count].mean() - 1)


# MERGED references: References: what a straight line and boosted trees reach on the same rows. No choice depends on them.


@dataclass(frozen=True)
class Reference:
    """A model of another kind, on the same split: ``error`` and ``r2`` as of a candidate, and what training took.

    It forgets a row by training anew: ``train_s`` is of the sample, on one thread.
    """

    name: str
    error: float
    r2: float
    train_s: float


def try_references(sample: PlanSample, variance: Floats, seed: int) -> list[Reference]:
    """The error of each reference on the rows that judge."""
    linear = make_pipeline(StandardScaler(), Ridge(1.0))
    trees = {f"boosted trees, {n}": HistGradientBoostingRegressor(max_iter=n, random_state=seed) for n in (100, 400)}
    return [_try_reference(name, model, sample, variance) for name, model in {"linear": linear, **trees}.items()]


def _try_reference(name: str, model: BaseEstimator, sample: PlanSample, variance: Floats) -> Reference:
    errors, seconds = [], 0.0
    model = model if sample.y.shape[1] == 1 else MultiOutputRegressor(model)
    for judge in sample.folds:
        y = sample.y[~judge]
        with threadpool_limits(1):  # more threads wait for each other for ages if the machine is busy
            started = time.perf_counter()
            model.fit(sample.X[~judge], y[:, 0] if y.shape[1] == 1 else y)
            seconds += time.perf_counter() - started
            wrong = model.predict(sample.X[judge]).reshape(-1, y.shape[1]) - sample.y[judge]
        errors.append((wrong * wrong / variance).mean(axis=1))
    error = float(np.concatenate(errors).mean())
    return Reference(name, error, 1.0 - error, seconds / len(sample.folds))


# MERGED straight: Straight lines: the linear model is a candidate like any other, and the cheapest of all.
# MERGED straight:
# MERGED straight: It has the inputs themselves as features, on the scales that the caller gave, else linear ones. Where rows lie outside
# MERGED straight: the bounds, a line may go on or stay at the bound: whichever has less error on the rows that judge.


OUTSIDE_CHOICES: tuple[Outside, ...] = ("clamp", "extrapolate")  # the first if both are as good
LINE_ALPHAS = (1e-9, 1e-8, 1e-7, *ALPHAS)  # of a skewed input most values are small on a linear scale


def try_line(sample: PlanSample, declared: dict[str, Any], rows: int, seed: int) -> TriedCandidate:
    """Try one linear learner for a table of so many rows; ``declared`` are its bounds and scales."""
    grounds = [Validation.from_sample(sample, **declared, outside=outside) for outside in OUTSIDE_CHOICES]
    started = time.perf_counter()
    settings = Settings(shards=1, rate=1, random_state=seed)
    trials = [try_settings(ground, settings, LINE_ALPHAS, max_tolerance=MIN_TOLERANCE) for ground in grounds]
    seconds = (time.perf_counter() - started) / sum(len(ground.folds) for ground in grounds)
    trial, ground = min(zip(trials, grounds, strict=True), key=lambda pair: pair[0].error)
    size = TableSize(rows, sample.X.shape[1], ground.columns, ground.targets)
    return replace(
        TriedCandidate.from_trial(SINGLE, trial, size, (measure_forgetting(ground, trial.settings), seconds)), is_line=True
    )
