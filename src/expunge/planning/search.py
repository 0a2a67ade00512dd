"""The search for shapes with a small validation error.

The scales of the inputs are found in two ways. Where a feature depends on all inputs, a descent follows the gradient of
the validation error, from a slow and from a fast start; with the Gaussian kernel the inputs are then mixed as well. For
other kinds the slopes of a first model show which inputs matter (as Radhakrishnan et al. 2024 do with a kernel
machine), and the next model gives these more weight, round after round. The best two shapes are then polished with more
features: the reach, and the scale of one input after the other, are doubled and halved.

Descent: the error of a ridge model on validation rows can be differentiated through its solve, at little more than the
cost of the solve itself. Each step uses different rows and newly drawn features. With the same features in all steps,
the scales overfitted these: new features with the same scales had more than twice the error. The steps are Adam's
(Kingma and Ba 2015); the result is rounded to powers of two and eighths.

The angle of a feature is z . M theta, where z is a row and theta a draw. At first the metric M is diagonal, one scale
for each input. A full metric, a mixing matrix with its rows times the scales, lets features follow sums and differences
of inputs.
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

_DESCENTS: tuple[tuple[Kernel, float], ...] = (  # kernels, and how far their features turn at the start
    ("gaussian", 2.0),
    ("laplacian", 2.0),
    ("gaussian", 8.0),
    ("laplacian", 8.0),
)
_ROUND_KINDS: tuple[tuple[Kernel, int | None], ...] = (("exponential", None), ("gaussian", 2), ("gaussian", 4))
SHAPE_KINDS = (*dict.fromkeys((kernel, None) for kernel, _ in _DESCENTS), *_ROUND_KINDS)  # kernel and order
_DESCENT_STEPS = 100
_QUICK_STEPS = 40  # of a descent in a quick search
_QUICK_COSINES = 256

_STEP_COSINES, _MAX_STEP_COSINES = 576, 1024  # in a step of a descent
_TRIAL_COSINES = 384  # in a trial after descents, and in rounds
_TRIAL_ROWS = 6_000  # training rows of a trial
_SEARCH_ALPHAS = (1e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
_ROUNDS = 6
_MAX_ROUND_LOSS = 1.02  # rounds stop at an error above this multiple of the best
_FIRST_REACHES = (1.0, 4.0, 16.0)  # in the first round
_NEXT_FACTORS = (0.5, 1.0, 2.0, 4.0)  # of the reach in later rounds
_DESCENT_FACTORS = (1.0, 2.0)  # of the reach after a descent

_POLISHED_SHAPES = 2
_POLISH_COSINES = 512
_POLISH_ROWS = 8_000
_MAX_SWEEPS = 4
_POLISHED_INPUTS = 8  # only the most relevant inputs are polished
_LAST_SWEEP_RATIO = 0.99  # sweeps stop at an error above this multiple of the one before

STEP_ROWS, _STEP_VALIDATION_ROWS = 2_000, 2_000  # training and validation rows of a step
_FIRST_RATE, _LAST_RATE_SHARE = 0.5, 0.1  # length of the first step, in powers of two, and of the last relative to it
_MIXING_RATES = 0.1, 0.2, 0.5  # of entries of the mixing matrix, scales and penalty, when inputs are mixed
_ADAM_BETA_1, _ADAM_BETA_2 = 0.8, 0.9  # Adam's decay rates of the mean gradient and its square
_TAIL_START = 0.75  # the result is the average over the steps after this fraction
_PULL = 0.5  # towards the mean scale, times inputs per row: with few rows gradients are mostly noise
_FIRST_ALPHA_POWER = -3.0  # the initial penalty, as a power of two
_GRID = 2.0**-10  # positions are rounded to it: differences between machines would otherwise grow tenfold per step
_SCALE_POWERS, _ALPHA_POWERS = (MIN_SCALE_POWER, 9.0), (-14.0, 7.0)  # ranges of the powers of two


@dataclass(frozen=True, eq=False)
class ShapeTrial(Trial):
    """The trial of a shape."""

    shape: Shape


def search_shapes(
    validation: Validation, seed: int, progress: Callable[[float], None], *, quick: bool = False
) -> list[ShapeTrial]:
    """Return the trials of the best shapes, best first; ``progress`` is called with the completed share, 0 to 1.

    ``quick`` runs one descent and one kind of rounds, with less effort, and polishes nothing.
    """
    descents, kinds = (_DESCENTS[:1], _ROUND_KINDS[-1:]) if quick else (_DESCENTS, _ROUND_KINDS)
    kinds = tuple((kernel, order) for kernel, order in kinds if order is None or order < validation.columns)
    thinned = validation.thin(_TRIAL_ROWS // 2 if quick else _TRIAL_ROWS, 2)
    stages = len(descents) + len(kinds) + _POLISHED_SHAPES
    effort = (_QUICK_STEPS, _QUICK_COSINES) if quick else (_DESCENT_STEPS, _count_step_cosines(validation))
    ends = _run_descents(validation, descents, seed, *effort)
    progress(len(descents) / stages)
    trials = [_try_reaches(thinned, shape, _DESCENT_FACTORS, seed) for shape in ends]
    for k, (kernel, order) in enumerate(kinds):
        trials.append(_run_rounds(thinned, Shape.initial(kernel, order, validation.columns), seed))
        progress((len(descents) + k + 1) / stages)
    trials.sort(key=lambda trial: trial.error)
    if quick:
        return trials
    polished = list[ShapeTrial]()
    for k, trial in enumerate(trials[:_POLISHED_SHAPES]):
        polished.append(_polish(validation.thin(_POLISH_ROWS, 4), trial.shape, seed))
        progress((stages - _POLISHED_SHAPES + k + 1) / stages)
    return [*polished, *trials[_POLISHED_SHAPES:]]


def try_quickly(validation: Validation, seed: int) -> list[ShapeTrial]:
    """Try two small models of different kinds, which takes a moment: to compare scales of the targets."""
    thinned = validation.thin(_TRIAL_ROWS, 2)
    kernel, order = _ROUND_KINDS[-1] if validation.columns > 4 else _ROUND_KINDS[0]
    return [
        _try_reaches(thinned, Shape.initial("gaussian", None, validation.columns), _FIRST_REACHES[:2], seed),
        _run_rounds(thinned, Shape.initial(kernel, order, validation.columns), seed),
    ]


def _run_descents(
    validation: Validation, descents: Sequence[tuple[Kernel, float]], seed: int, steps: int, cosines: int
) -> list[Shape]:
    """Return the ends of descents, then of those that continue from there and mix inputs, on all threads."""
    starts = [Shape.initial(kernel, None, validation.columns).stretch(turns) for kernel, turns in descents]
    ends = _map_shapes(partial(descend, validation, seed=seed, steps=steps, cosines=cosines), starts)
    gaussian = [shape for shape in ends if shape.kernel == "gaussian"]
    return [*ends, *_map_shapes(partial(descend_mixing, validation, seed=seed, steps=steps, cosines=cosines), gaussian)]


def _count_step_cosines(validation: Validation) -> int:
    """Return the cosines of a step: more for few rows, where they cost little, but no more than rows.

    With few cosines a gradient mostly reflects their draw and favours slow features, which are not the best with as
    many cosines as the model will have: with 384 the error on a table of 1,500 rows was a quarter higher.
    """
    rows = len(validation.folds[0].Z)
    return max(_TRIAL_COSINES, min(_MAX_STEP_COSINES, rows, _STEP_COSINES * STEP_ROWS // min(rows, STEP_ROWS)))


def _map_shapes(task: Callable[[Shape], Shape], shapes: Sequence[Shape]) -> list[Shape]:
    parts = spread(lambda k, n: [task(shape) for shape in shapes[k::n]], len(shapes))
    return [parts[k % len(parts)][k // len(parts)] for k in range(len(shapes))]


def _run_rounds(validation: Validation, shape: Shape, seed: int) -> ShapeTrial:
    """Weigh the inputs by the slopes of the latest model, round after round, until that gains nothing."""
    best = latest = _try_reaches(validation, shape, _FIRST_REACHES, seed)
    for _ in range(_ROUNDS):
        slopes = measure_relevance(validation, latest)
        if not slopes.any():
            break
        latest = _try_reaches(validation, latest.shape.weigh_inputs(slopes), _NEXT_FACTORS, seed)
        if latest.error > _MAX_ROUND_LOSS * best.error:
            break
        best = min(best, latest, key=lambda trial: trial.error)
    return best


def _try_reaches(validation: Validation, shape: Shape, factors: tuple[float, ...], seed: int) -> ShapeTrial:
    trials = [_try_shape(validation, shape.stretch(factor), _TRIAL_COSINES, seed) for factor in factors]
    return min(trials, key=lambda trial: trial.error)


def _polish(validation: Validation, shape: Shape, seed: int) -> ShapeTrial:
    """Double and halve single numbers of a shape, while that helps."""
    best = _try_shape(validation, shape, _POLISH_COSINES, seed)
    for _ in range(_MAX_SWEEPS):
        before = best.error
        for pair in _neighbour_changes(best.shape):
            for change in pair:  # a number that is better doubled is not halved
                trial = _try_shape(validation, change(best.shape), _POLISH_COSINES, seed)
                if trial.error < best.error:
                    best = trial
                    break
        if best.error > _LAST_SWEEP_RATIO * before:
            break
    return best


def _neighbour_changes(shape: Shape) -> Iterator[tuple[Callable[[Shape], Shape], Callable[[Shape], Shape]]]:
    """Yield pairs of small changes: one number doubled, and halved."""
    yield partial(Shape.stretch, factor=2.0), partial(Shape.stretch, factor=0.5)
    for j in np.argsort(-shape.relevance, kind="stable")[:_POLISHED_INPUTS].tolist():
        yield partial(Shape.scale_input, column=j, factor=2.0), partial(Shape.scale_input, column=j, factor=0.5)


def _try_shape(validation: Validation, shape: Shape, cosines: int, seed: int) -> ShapeTrial:
    trial = try_settings(validation, single_learner(shape.features(cosines, seed), seed), _SEARCH_ALPHAS)
    return ShapeTrial(**vars(trial), shape=shape)


@dataclass(frozen=True, eq=False)
class DescentBatch:
    """Training and validation rows of one step; targets are in units of their standard deviation."""

    Z: Floats  # (n, d')
    targets: Floats  # (n, t)
    Z_validation: Floats  # (m, d')
    y_validation: Floats  # (m, t)

    @classmethod
    def for_step(cls, validation: Validation, step: int) -> "DescentBatch":
        """Return the next rows of the next fold, starting over after the last.

        All are training rows of the fold, and a quarter of their people validates the step: the fold's own validation
        rows, which compare shapes in the end, have no part in making them.
        """
        turn, k = divmod(step, len(validation.folds))
        fold = validation.folds[k]
        cycle, quarter = divmod(turn, int(fold.quarters.max()) + 1)
        is_validation = fold.quarters == quarter
        training = _take_rows(np.flatnonzero(~is_validation), STEP_ROWS, turn)
        validating = _take_rows(np.flatnonzero(is_validation), _STEP_VALIDATION_ROWS, cycle)
        targets = fold.targets / fold.spread
        return cls(fold.Z[training], targets[training], fold.Z[validating], targets[validating])


@dataclass(frozen=True, eq=False)
class DescentVector:
    """The layout of the vector that a descent moves: mixing, scales and penalty."""

    columns: int  # d'
    axes: NDArray[np.intp]  # (k,): the inputs that are mixed

    def pack(self, shape: Shape) -> Floats:
        """Return the vector at which a descent from a shape starts, (k k + d' + 1,)."""
        scales = np.log2(np.maximum(shape.scale, 2.0**MIN_SCALE_POWER))
        return np.concatenate([np.zeros(self.axes.size**2), scales, [_FIRST_ALPHA_POWER]])

    def unpack(self, vector: Floats) -> tuple[Floats, Floats, float]:
        """Return the mixing matrix, (d', d'), the powers of two of the scales, (d',), and that of the penalty."""
        k, mixing = self.axes.size, np.eye(self.columns)
        mixing[np.ix_(self.axes, self.axes)] += vector[: k * k].reshape(k, k)
        return mixing, vector[k * k : -1], float(vector[-1])

    def gradient(self, vector: Floats, by_metric: Floats, by_alpha: float) -> Floats:
        """Return the gradient of the vector, from those of the metric's entries and of the penalty."""
        mixing, powers, power = self.unpack(vector)
        by_scale = by_metric * np.exp2(powers)[:, None]
        of_scales = np.log(2) * (by_scale * mixing).sum(axis=1)
        return np.concatenate(
            [by_scale[np.ix_(self.axes, self.axes)].ravel(), of_scales, [np.log(2) * 2.0**power * by_alpha]]
        )

    def fill(self, of_mixing: float, of_scales: float, of_penalty: float) -> Floats:
        """Return a vector that holds one number for each kind of entry."""
        return np.repeat([of_mixing, of_scales, of_penalty], [self.axes.size**2, self.columns, 1])


def descend(validation: Validation, first: Shape, seed: int, *, steps: int, cosines: int) -> Shape:
    """Return the shape at the end of a descent from ``first``, which has no order and mixes nothing."""
    layout = DescentVector(validation.columns, np.array([], dtype=np.intp))
    rates = layout.fill(_FIRST_RATE, _FIRST_RATE, _FIRST_RATE)
    _, powers, _ = layout.unpack(_follow_gradient(validation, first, layout, rates, (seed,), steps, cosines))
    return first.with_scales(powers)


def descend_mixing(validation: Validation, first: Shape, seed: int, *, steps: int, cosines: int) -> Shape:
    """Return the shape at the end of a descent that also mixes the most relevant inputs."""
    largest = np.argsort(-first.scale, kind="stable")[:MAX_MIXED_INPUTS]
    layout = DescentVector(validation.columns, largest[first.scale[largest] > 0])
    rates = layout.fill(*_MIXING_RATES)
    mixing, powers, _ = layout.unpack(
        _follow_gradient(validation, first, layout, rates, (seed, MAX_MIXED_INPUTS), steps, cosines)
    )
    remainder = np.zeros(validation.columns)  # of rounding to powers of two, for which eighths are fine enough
    remainder[layout.axes] = (powers - np.rint(powers))[layout.axes]
    return first.with_scales(powers, mixing * np.exp2(remainder)[:, None])


def _follow_gradient(
    validation: Validation,
    first: Shape,
    layout: DescentVector,
    rates: Floats,
    seed: tuple[int, ...],
    steps: int,
    cosines: int,
) -> Floats:
    """Return the end of a descent: the mean of its last steps."""
    vector, low = layout.pack(first), layout.fill(-MAX_MIXING, _SCALE_POWERS[0], _ALPHA_POWERS[0])
    high, is_scale = layout.fill(MAX_MIXING, _SCALE_POWERS[1], _ALPHA_POWERS[1]), layout.fill(0, 1, 0) > 0
    pull = min(1.0, _PULL * validation.columns / validation.rows)  # a stronger pull would oscillate
    mean, square, tail = np.zeros_like(vector), np.zeros_like(vector), list[Floats]()
    for step in range(steps):
        stop_if_cancelled()
        draw, phases = _draw_frequencies(first.kernel, validation.columns, cosines, (*seed, step))
        mixing, powers, penalty = layout.unpack(vector)
        batch, metric = DescentBatch.for_step(validation, step), np.exp2(powers)[:, None] * mixing
        if not len(batch.Z):
            continue  # all training rows of this fold are one person's
        error, by_metric, by_alpha = error_gradient(batch, draw, phases, metric, 2.0**penalty)
        if error == 0:
            break  # nothing to learn: the target is constant
        gradient = layout.gradient(vector, by_metric, by_alpha) / error  # of the logarithm: relative changes count
        mean = _ADAM_BETA_1 * mean + (1 - _ADAM_BETA_1) * gradient
        square = _ADAM_BETA_2 * square + (1 - _ADAM_BETA_2) * gradient**2
        move = mean / (1 - _ADAM_BETA_1 ** (step + 1)) / (np.sqrt(square / (1 - _ADAM_BETA_2 ** (step + 1))) + 1e-12)
        move[is_scale] += pull * (powers - powers.mean())
        vector = np.clip(vector - rates * (1 + (_LAST_RATE_SHARE - 1) * step / steps) * move, low, high)
        vector = np.rint(vector / _GRID) * _GRID
        if step >= _TAIL_START * steps:
            tail.append(vector)
    end: Floats = np.mean(tail or [vector], axis=0)
    return end


def error_gradient(
    batch: DescentBatch, draw: Floats, phases: Floats, metric: Floats, alpha: float
) -> tuple[float, Floats, float]:
    """Return the error of a model on the validation rows, and its gradient by each entry of the metric and by alpha.

    The model has the features cos(z . metric draw + phases), the columns z themselves and an intercept, and the penalty
    alpha: (d', D), (D,), (d', d') -> (d', d').
    """
    theta, D = metric @ draw / (2 * np.pi), len(phases)
    turns, turns_v = _turns(batch.Z, theta, phases), _turns(batch.Z_validation, theta, phases)
    sines, sines_v = cosines(turns - 0.25), cosines(turns_v - 0.25)
    F = np.hstack([cosines(turns), batch.Z])
    mean, target_mean = F.mean(axis=0), batch.targets.mean(axis=0)
    F -= mean
    J = np.hstack([cosines(turns_v), batch.Z_validation])
    J -= mean
    gram = F.T @ F
    gram.flat[:: len(gram) + 1] += alpha
    linalg = scipy_linalg()
    solver = linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    w = linalg.cho_solve(solver, F.T @ (batch.targets - target_mean), check_finite=False)  # (p, t)
    residuals = J @ w + target_mean - batch.y_validation
    error, g = float((residuals * residuals).mean()), residuals * (2 / residuals.size)  # g: error by each prediction

    # The weights change by A^-1 (dF' rest - F' dF w - d alpha w), so with v = A^-1 J' g the error changes by this:
    v = linalg.cho_solve(solver, J.T @ g, check_finite=False)
    rest = batch.targets - target_mean - F @ w
    sines *= np.hstack([rest, F @ v + g.sum(axis=0) / len(F)]) @ np.hstack([v[:D], -w[:D]]).T  # by each, (n, D)
    sines_v *= g @ w[:D].T
    by_theta = -(batch.Z.T @ sines + batch.Z_validation.T @ sines_v)
    return error, by_theta @ draw.T, -float((v * w).sum())


def _draw_frequencies(kernel: Kernel, columns: int, cosines: int, seed: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Draw frequencies of unit scale, and phases, in radians: (d', D) and (D,)."""
    rng = np.random.default_rng(seed)
    theta = 2 * np.pi * Frequencies.parse(kernel, 1.0, None, columns).draw(cosines, rng)
    return theta, rng.uniform(0, 2 * np.pi, cosines)


def _turns(rows: Floats, theta: Floats, phases: Floats) -> Floats:
    """Return the angles of features in turns, (n, D); theta is in turns, phases are in radians."""
    turns: Floats = rows @ theta
    turns += phases / (2 * np.pi)
    return turns


def _take_rows(rows: NDArray[np.intp], count: int, turn: int) -> NDArray[np.intp]:
    """Return ``count`` of the rows, the next ones at each turn."""
    return np.take(rows, np.arange(turn * count, turn * count + min(len(rows), count)), mode="wrap")
