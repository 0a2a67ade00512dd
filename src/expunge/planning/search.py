"""The search: shapes for the features, by which the validation error is small.

The scales of the inputs are found in two ways. Where a feature looks at all inputs, the slope of the validation error
is followed (`descent`), from a slow and from a fast beginning; with the Gaussian kernel the inputs are then mixed, too.
For other kinds a first model says by its slopes which inputs matter (Radhakrishnan et al. 2024 do so with a kernel
machine), the next one looks at these more closely, round after round. The best two shapes are then polished with more
features: the reach, and the scale of one input after the other, are doubled and halved.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..encoding.fourier import cosines
from ..encoding.frequencies import Frequencies, Kernel
from ..exact.arrays import Floats
from ..exact.blas import scipy_linalg
from ..exact.threads import spread, stop_if_cancelled
from .sample import Validation
from .shapes import MAX_MIXED_INPUTS, MAX_MIXING, MIN_SCALE_POWER, Shape
from .trial import Trial, measure_relevance, single_learner, try_settings

# MERGED descent: Descent: the scales of all inputs at once, down the slope of the validation error; then how inputs are mixed, too.
# MERGED descent:
# MERGED descent: The error that a ridge model makes on judging rows can be differentiated through its solve, at little more than the cost
# MERGED descent: of the solve itself. Each step looks at other rows and at features that are drawn anew: where all steps had the same
# MERGED descent: features the scales came to fit those very ones, and the error with others of the same scales was more than twice as
# MERGED descent: high. The steps are Adam's (Kingma and Ba 2015); what they find is rounded in the end, to powers of two and eighths.
# MERGED descent:
# MERGED descent: The angle of a feature is z . M theta, where z is a row and theta a draw. At first the metric M is diagonal, one scale
# MERGED descent: for each input. A full one, a mixing matrix with its rows times the scales, lets features follow sums and differences of
# MERGED descent: inputs.


STEP_ROWS, _STEP_VALIDATION_ROWS = 2_000, 2_000  # rows of a step
_FIRST_RATE, _LAST_RATE_SHARE = 0.5, 0.1  # how far a first step goes, in powers of two; the last goes this part of it
_MIXING_RATES = 0.1, 0.2, 0.5  # of the entries of a mixing matrix, of scales and of the penalty, where inputs are mixed
_ADAM_BETA_1, _ADAM_BETA_2 = 0.8, 0.9  # what Adam keeps of the mean slope, and of its square
_TAIL_START = 0.75  # the scales are those of the steps after this part of them, averaged
_PULL = 0.5  # towards the scale of all, times inputs per row: where rows are few, slopes are mostly noise
_FIRST_ALPHA_POWER = -3.0  # the penalty to begin with, as a power of two
_GRID = 2.0**-10  # places are multiples of it: what machines compute differently would else grow tenfold at each step
_SCALE_POWERS, _ALPHA_POWERS = (MIN_SCALE_POWER, 9.0), (-14.0, 7.0)  # the powers of two within which steps stay


@dataclass(frozen=True, eq=False)
class DescentBatch:
    """Rows of one step: some to learn from, and some that judge; targets in units of their spread."""

    Z: Floats  # (n, d')
    targets: Floats  # (n, t)
    judging: Floats  # (m, d')
    truth: Floats  # (m, t)

    @classmethod
    def for_step(cls, validation: Validation, step: int) -> "DescentBatch":
        """The next rows of the next fold, from the beginning again after the last.

        All are rows that the fold learns from, a quarter of the people judging: those who judge the shapes in the end
        have no part in making them.
        """
        turn, k = divmod(step, len(validation.folds))
        fold = validation.folds[k]
        again, quarter = divmod(turn, int(fold.quarters.max()) + 1)
        judge = fold.quarters == quarter
        learned, judging = (
            _take_rows(np.flatnonzero(~judge), STEP_ROWS, turn),
            _take_rows(np.flatnonzero(judge), _STEP_VALIDATION_ROWS, again),
        )
        targets = fold.targets / fold.spread
        return cls(fold.Z[learned], targets[learned], fold.Z[judging], targets[judging])


@dataclass(frozen=True, eq=False)
class DescentVector:
    """What steps change, as one array of numbers: mixing, scales and penalty."""

    columns: int  # d'
    axes: NDArray[np.intp]  # (k,): the inputs that are mixed

    def pack(self, shape: Shape) -> Floats:
        """Where steps begin that begin at a shape, (k k + d' + 1,)."""
        scales = np.log2(np.maximum(shape.scale, 2.0**MIN_SCALE_POWER))
        return np.concatenate([np.zeros(self.axes.size**2), scales, [_FIRST_ALPHA_POWER]])

    def unpack(self, vector: Floats) -> tuple[Floats, Floats, float]:
        """The mixing matrix, (d', d'), the powers of two of the scales, (d',), and that of the penalty."""
        k, mixing = self.axes.size, np.eye(self.columns)
        mixing[np.ix_(self.axes, self.axes)] += vector[: k * k].reshape(k, k)
        return mixing, vector[k * k : -1], float(vector[-1])

    def gradient(self, vector: Floats, by_metric: Floats, by_alpha: float) -> Floats:
        """The slope by each number, from those by the entries of the metric and by the penalty."""
        mixing, powers, power = self.unpack(vector)
        by_scale = by_metric * np.exp2(powers)[:, None]
        of_scales = np.log(2) * (by_scale * mixing).sum(axis=1)
        return np.concatenate(
            [by_scale[np.ix_(self.axes, self.axes)].ravel(), of_scales, [np.log(2) * 2.0**power * by_alpha]]
        )

    def fill(self, of_mixing: float, of_scales: float, of_penalty: float) -> Floats:
        """An array with these numbers at the places of each kind."""
        return np.repeat([of_mixing, of_scales, of_penalty], [self.axes.size**2, self.columns, 1])


def descend(validation: Validation, first: Shape, seed: int, *, steps: int, cosines: int) -> Shape:
    """The shape where the steps end that begin at ``first``, which has no order and mixes nothing."""
    course = DescentVector(validation.columns, np.array([], dtype=np.intp))
    _, powers, _ = course.unpack(
        _follow_gradient(
            validation, first, course, course.fill(_FIRST_RATE, _FIRST_RATE, _FIRST_RATE), (seed,), steps, cosines
        )
    )
    return first.with_scales(powers)


def descend_mixing(validation: Validation, first: Shape, seed: int, *, steps: int, cosines: int) -> Shape:
    """The same for steps that also mix the most relevant inputs."""
    most = np.argsort(-first.scale, kind="stable")[:MAX_MIXED_INPUTS]
    course = DescentVector(validation.columns, most[first.scale[most] > 0])
    rates = course.fill(*_MIXING_RATES)
    mixing, powers, _ = course.unpack(
        _follow_gradient(validation, first, course, rates, (seed, MAX_MIXED_INPUTS), steps, cosines)
    )
    apart = np.zeros(validation.columns)
    apart[course.axes] = (powers - np.rint(powers))[course.axes]
    return first.with_scales(
        powers, mixing * np.exp2(apart)[:, None]
    )  # eighths say what powers of two are too coarse for


def _follow_gradient(
    validation: Validation,
    first: Shape,
    course: DescentVector,
    rates: Floats,
    seed: tuple[int, ...],
    steps: int,
    cosines: int,
) -> Floats:
    """Where the steps end, as the mean of the last ones."""
    place, low = course.pack(first), course.fill(-MAX_MIXING, _SCALE_POWERS[0], _ALPHA_POWERS[0])
    high, scales = course.fill(MAX_MIXING, _SCALE_POWERS[1], _ALPHA_POWERS[1]), course.fill(0, 1, 0) > 0
    pull = min(1.0, _PULL * validation.columns / validation.rows)  # more would swing back and forth
    mean, square, tail = np.zeros_like(place), np.zeros_like(place), list[Floats]()
    for step in range(steps):
        stop_if_cancelled()
        draw, phases = _draw_frequencies(first.kernel, validation.columns, cosines, (*seed, step))
        mixing, powers, penalty = course.unpack(place)
        batch, metric = DescentBatch.for_step(validation, step), np.exp2(powers)[:, None] * mixing
        error, by_metric, by_alpha = error_gradient(batch, draw, phases, metric, 2.0**penalty)
        if error == 0:
            break  # there is nothing to learn: the target is constant
        slope = (
            course.gradient(place, by_metric, by_alpha) / error
        )  # of the logarithm: any fall by a tenth counts alike
        mean = _ADAM_BETA_1 * mean + (1 - _ADAM_BETA_1) * slope
        square = _ADAM_BETA_2 * square + (1 - _ADAM_BETA_2) * slope**2
        move = mean / (1 - _ADAM_BETA_1 ** (step + 1)) / (np.sqrt(square / (1 - _ADAM_BETA_2 ** (step + 1))) + 1e-12)
        move[scales] += pull * (powers - powers.mean())
        place = np.clip(place - rates * (1 + (_LAST_RATE_SHARE - 1) * step / steps) * move, low, high)
        place = np.rint(place / _GRID) * _GRID
        if step >= _TAIL_START * steps:
            tail.append(place)
    last: Floats = np.mean(tail or [place], axis=0)
    return last


def error_gradient(
    batch: DescentBatch, draw: Floats, phases: Floats, metric: Floats, alpha: float
) -> tuple[float, Floats, float]:
    """The error of a model on the judging rows, and how it changes with each entry of the metric and with alpha.

    The model has the features cos(z . metric draw + phases), the columns z themselves and an intercept, and the penalty
    alpha: (d', D), (D,), (d', d') -> (d', d').
    """
    theta, D = metric @ draw / (2 * np.pi), len(phases)
    turns, judged = _turns(batch.Z, theta, phases), _turns(batch.judging, theta, phases)
    sines, judged_sines = cosines(turns - 0.25), cosines(judged - 0.25)
    F = np.hstack([cosines(turns), batch.Z])
    middle, level = F.mean(axis=0), batch.targets.mean(axis=0)
    F -= middle
    J = np.hstack([cosines(judged), batch.judging])
    J -= middle
    gram = F.T @ F
    gram.flat[:: len(gram) + 1] += alpha
    linalg = scipy_linalg()
    solver = linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    w = linalg.cho_solve(solver, F.T @ (batch.targets - level), check_finite=False)  # (p, t)
    wrong = J @ w + level - batch.truth
    error, wrong = float((wrong * wrong).mean()), wrong * (2 / wrong.size)  # the error by each prediction

    # The weights change by A^-1 (dF' rest - F' dF w - d alpha w), so with v = A^-1 J' wrong the error changes by this:
    v = linalg.cho_solve(solver, J.T @ wrong, check_finite=False)
    rest = batch.targets - level - F @ w
    sines *= np.hstack([rest, F @ v + wrong.sum(axis=0) / len(F)]) @ np.hstack([v[:D], -w[:D]]).T  # by each, (n, D)
    judged_sines *= wrong @ w[:D].T
    by_theta = -(batch.Z.T @ sines + batch.judging.T @ judged_sines)
    return error, by_theta @ draw.T, -float((v * w).sum())


def _draw_frequencies(kernel: Kernel, columns: int, cosines: int, seed: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Frequencies of unit scale and phases, in radians: (d', D) and (D,)."""
    rng = np.random.default_rng(seed)
    theta = 2 * np.pi * Frequencies.parse(kernel, 1.0, None, columns).draw(cosines, rng)
    return theta, rng.uniform(0, 2 * np.pi, cosines)


def _turns(rows: Floats, theta: Floats, phases: Floats) -> Floats:
    """The angles of features in turns, (n, D); theta is in turns, phases are in radians."""
    turns: Floats = rows @ theta
    turns += phases / (2 * np.pi)
    return turns


def _take_rows(rows: NDArray[np.intp], count: int, turn: int) -> NDArray[np.intp]:
    """So many of the rows, the next ones at each turn."""
    return np.take(rows, np.arange(turn * count, turn * count + min(len(rows), count)), mode="wrap")


_DESCENTS: tuple[tuple[Kernel, float], ...] = (  # kernels, and how far their features turn in the beginning
    ("gaussian", 2.0),
    ("laplacian", 2.0),
    ("gaussian", 8.0),
    ("laplacian", 8.0),
)
_ROUND_KINDS: tuple[tuple[Kernel, int | None], ...] = (("exponential", None), ("gaussian", 2), ("gaussian", 4))
SHAPE_KINDS = (
    *dict.fromkeys((kernel, None) for kernel, _ in _DESCENTS),
    *_ROUND_KINDS,
)  # what a shape can be: kernel and order
_DESCENT_STEPS = 100  # of a descent
_QUICK_STEPS = 40  # of a quick search
_QUICK_COSINES = 256

_STEP_COSINES, _MAX_STEP_COSINES = 576, 1024  # cosines of a step of a descent
_TRIAL_COSINES = 384  # of a trial after descents, and in rounds
_TRIAL_ROWS = 6_000  # to learn from in a trial
_SEARCH_ALPHAS = (1e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
_ROUNDS = 6
_MAX_ROUND_LOSS = 1.02  # a round that loses more is the last
_FIRST_REACHES = (1.0, 4.0, 16.0)  # reaches of the first round
_NEXT_FACTORS = (0.5, 1.0, 2.0, 4.0)  # factors of the reach in later rounds
_DESCENT_FACTORS = (1.0, 2.0)  # after a descent

_POLISHED_SHAPES = 2  # shapes that are polished
_POLISH_COSINES = 512  # cosines of a trial in polishing
_POLISH_ROWS = 8_000
_MAX_SWEEPS = 4
_POLISHED_INPUTS = 8  # the most relevant inputs, whose relevance is polished
_LAST_SWEEP_RATIO = 0.99  # a sweep that gains less is the last


@dataclass(frozen=True, eq=False)
class ShapeTrial:
    """A shape and how it did."""

    shape: Shape
    trial: Trial


def search_shapes(
    validation: Validation, seed: int, progress: Callable[[float], None], *, quick: bool = False
) -> list[ShapeTrial]:
    """The best shapes, the best first; ``told`` hears how far the search is, from 0 to 1.

    ``quick`` tries the two most useful ways only, with less effort, and polishes nothing.
    """
    descents, kinds = (_DESCENTS[:1], _ROUND_KINDS[-1:]) if quick else (_DESCENTS, _ROUND_KINDS)
    kinds = tuple((kernel, order) for kernel, order in kinds if order is None or order < validation.columns)
    thinned, steps = (
        validation.thin(_TRIAL_ROWS // 2 if quick else _TRIAL_ROWS, 2),
        len(descents) + len(kinds) + _POLISHED_SHAPES,
    )
    made = _run_descents(
        validation,
        descents,
        seed,
        *((_QUICK_STEPS, _QUICK_COSINES) if quick else (_DESCENT_STEPS, _count_step_cosines(validation))),
    )
    progress(len(descents) / steps)
    found = [_try_reaches(thinned, shape, _DESCENT_FACTORS, seed) for shape in made]
    for k, (kernel, order) in enumerate(kinds):
        found.append(_run_rounds(thinned, Shape.initial(kernel, order, validation.columns), seed))
        progress((len(descents) + k + 1) / steps)
    found.sort(key=lambda one: one.trial.error)
    if quick:
        return found
    polished = list[ShapeTrial]()
    for k, one in enumerate(found[:_POLISHED_SHAPES]):
        polished.append(_polish(validation.thin(_POLISH_ROWS, 4), one.shape, seed))
        progress((steps - _POLISHED_SHAPES + k + 1) / steps)
    return [*polished, *found[_POLISHED_SHAPES:]]


def try_quickly(validation: Validation, seed: int) -> list[ShapeTrial]:
    """Two small models of different kinds: a look that takes a moment, to compare grounds by."""
    thinned = validation.thin(_TRIAL_ROWS, 2)
    kernel, order = _ROUND_KINDS[-1] if validation.columns > 4 else _ROUND_KINDS[0]
    return [
        _try_reaches(thinned, Shape.initial("gaussian", None, validation.columns), _FIRST_REACHES[:2], seed),
        _run_rounds(thinned, Shape.initial(kernel, order, validation.columns), seed),
    ]


def _run_descents(
    validation: Validation, descents: Sequence[tuple[Kernel, float]], seed: int, steps: int, cosines: int
) -> list[Shape]:
    """Where the descents end, and from there on those that mix inputs; as many at a time as there are threads."""
    firsts = [Shape.initial(kernel, None, validation.columns).stretch(turns) for kernel, turns in descents]
    ends = _map_shapes(partial(descend, validation, seed=seed, steps=steps, cosines=cosines), firsts)
    gaussian = [shape for shape in ends if shape.kernel == "gaussian"]
    return [*ends, *_map_shapes(partial(descend_mixing, validation, seed=seed, steps=steps, cosines=cosines), gaussian)]


def _count_step_cosines(validation: Validation) -> int:
    """Cosines of a step: more where rows are few, for then they cost little, but no more than rows.

    With few cosines a slope is mostly their draw, and slow features do best, though not with as many as the model will
    have: with 384 the error on a table of 1,500 rows was a quarter higher.
    """
    rows = len(validation.folds[0].Z)
    return max(_TRIAL_COSINES, min(_MAX_STEP_COSINES, rows, _STEP_COSINES * STEP_ROWS // min(rows, STEP_ROWS)))


def _map_shapes(task: Callable[[Shape], Shape], shapes: Sequence[Shape]) -> list[Shape]:
    made = spread(lambda k, n: [task(shape) for shape in shapes[k::n]], len(shapes))
    return [made[k % len(made)][k // len(made)] for k in range(len(shapes))]


def _run_rounds(validation: Validation, shape: Shape, seed: int) -> ShapeTrial:
    """Look more closely at the inputs that matter, until that gains nothing."""
    best = latest = _try_reaches(validation, shape, _FIRST_REACHES, seed)
    for _ in range(_ROUNDS):
        slopes = measure_relevance(validation, latest.trial)
        if not slopes.any():
            break
        latest = _try_reaches(validation, latest.shape.weigh_inputs(slopes), _NEXT_FACTORS, seed)
        if latest.trial.error > _MAX_ROUND_LOSS * best.trial.error:
            break
        best = min(best, latest, key=lambda one: one.trial.error)
    return best


def _try_reaches(validation: Validation, shape: Shape, factors: tuple[float, ...], seed: int) -> ShapeTrial:
    made = [_try_shape(validation, shape.stretch(factor), _TRIAL_COSINES, seed) for factor in factors]
    return min(made, key=lambda one: one.trial.error)


def _polish(validation: Validation, shape: Shape, seed: int) -> ShapeTrial:
    """Double and halve single numbers of a shape, as long as that helps."""
    best = _try_shape(validation, shape, _POLISH_COSINES, seed)
    for _ in range(_MAX_SWEEPS):
        before = best.trial.error
        for pair in _neighbour_changes(best.shape):
            for change in pair:  # what is better doubled is not halved
                after = _try_shape(validation, change(best.shape), _POLISH_COSINES, seed)
                if after.trial.error < best.trial.error:
                    best = after
                    break
        if best.trial.error > _LAST_SWEEP_RATIO * before:
            break
    return best


def _neighbour_changes(shape: Shape) -> Iterator[tuple[Callable[[Shape], Shape], Callable[[Shape], Shape]]]:
    """Pairs of small changes: one number doubled, and halved."""
    yield partial(Shape.stretch, factor=2.0), partial(Shape.stretch, factor=0.5)
    for j in np.argsort(-shape.relevance, kind="stable")[:_POLISHED_INPUTS].tolist():
        yield partial(Shape.scale_input, column=j, factor=2.0), partial(Shape.scale_input, column=j, factor=0.5)


def _try_shape(validation: Validation, shape: Shape, cosines: int, seed: int) -> ShapeTrial:
    return ShapeTrial(
        shape, try_settings(validation, single_learner(shape.features(cosines, seed), seed), _SEARCH_ALPHAS)
    )
