"""Descent: the scales of all inputs at once, down the slope of the validation error; then how inputs are mixed, too.

The error that a ridge model makes on judging rows can be differentiated through its solve, at little more than the cost
of the solve itself. Each step looks at other rows and at features that are drawn anew: where all steps had the same
features the scales came to fit those very ones, and the error with others of the same scales was more than twice as
high. The steps are Adam's (Kingma and Ba 2015); what they find is rounded in the end, to powers of two and eighths.

The angle of a feature is z . M theta, where z is a row and theta a draw. At first the metric M is diagonal, one scale
for each input. A full one, a mixing matrix with its rows times the scales, lets features follow sums and differences of
inputs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..encoding.fourier import cosines
from ..encoding.frequencies import Frequencies, Kernel
from ..exact.arrays import Floats
from ..exact.blas import scipy_linalg
from ..exact.threads import go_on
from .ground import Ground
from .shapes import FARTHEST, LEAST, MIXED, Shape

LEARNED, _JUDGING = 2_000, 2_000  # rows of a step
_RATE, _LAST = 0.5, 0.1  # how far a first step goes, in powers of two; the last goes this part of it
_MIXING_RATES = 0.1, 0.2, 0.5  # of the entries of a mixing matrix, of scales and of the penalty, where inputs are mixed
_MEMORY, _SQUARES = 0.8, 0.9  # what Adam keeps of the mean slope, and of its square
_TAIL = 0.75  # the scales are those of the steps after this part of them, averaged
_PULL = 0.5  # towards the scale of all, times inputs per row: where rows are few, slopes are mostly noise
_ALPHA = -3.0  # the penalty to begin with, as a power of two
_GRID = 2.0**-10  # places are multiples of it: what machines compute differently would else grow tenfold at each step
_SCALES, _ALPHAS = (LEAST, 9.0), (-14.0, 7.0)  # the powers of two within which steps stay


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one step: some to learn from, and some that judge; targets in units of their spread."""

    Z: Floats  # (n, d')
    targets: Floats  # (n, t)
    judging: Floats  # (m, d')
    truth: Floats  # (m, t)

    @classmethod
    def of(cls, ground: Ground, step: int) -> "Batch":
        """The next rows of the next fold, from the beginning again after the last.

        All are rows that the fold learns from, a quarter of the people judging: those who judge the shapes in the end
        have no part in making them.
        """
        turn, k = divmod(step, len(ground.folds))
        fold = ground.folds[k]
        again, quarter = divmod(turn, int(fold.quarters.max()) + 1)
        judge = fold.quarters == quarter
        learned, judging = _part(np.flatnonzero(~judge), LEARNED, turn), _part(np.flatnonzero(judge), _JUDGING, again)
        targets = fold.targets / fold.spread
        return cls(fold.Z[learned], targets[learned], fold.Z[judging], targets[judging])


@dataclass(frozen=True, eq=False)
class Course:
    """What steps change, as one array of numbers: mixing, scales and penalty."""

    columns: int  # d'
    axes: NDArray[np.intp]  # (k,): the inputs that are mixed

    def place(self, shape: Shape) -> Floats:
        """Where steps begin that begin at a shape, (k k + d' + 1,)."""
        scales = np.log2(np.maximum(shape.scale, 2.0**LEAST))
        return np.concatenate([np.zeros(self.axes.size**2), scales, [_ALPHA]])

    def parts(self, place: Floats) -> tuple[Floats, Floats, float]:
        """The mixing matrix, (d', d'), the powers of two of the scales, (d',), and that of the penalty."""
        k, mixing = self.axes.size, np.eye(self.columns)
        mixing[np.ix_(self.axes, self.axes)] += place[: k * k].reshape(k, k)
        return mixing, place[k * k : -1], float(place[-1])

    def slope(self, place: Floats, by_metric: Floats, by_alpha: float) -> Floats:
        """The slope by each number, from those by the entries of the metric and by the penalty."""
        mixing, powers, power = self.parts(place)
        by_scale = by_metric * np.exp2(powers)[:, None]
        of_scales = np.log(2) * (by_scale * mixing).sum(axis=1)
        return np.concatenate(
            [by_scale[np.ix_(self.axes, self.axes)].ravel(), of_scales, [np.log(2) * 2.0**power * by_alpha]]
        )

    def each(self, of_mixing: float, of_scales: float, of_penalty: float) -> Floats:
        """An array with these numbers at the places of each kind."""
        return np.repeat([of_mixing, of_scales, of_penalty], [self.axes.size**2, self.columns, 1])


def descended(ground: Ground, first: Shape, seed: int, *, steps: int, cosines: int) -> Shape:
    """The shape where the steps end that begin at ``first``, which has no order and mixes nothing."""
    course = Course(ground.columns, np.array([], dtype=np.intp))
    _, powers, _ = course.parts(
        _followed(ground, first, course, course.each(_RATE, _RATE, _RATE), (seed,), steps, cosines)
    )
    return first.moved(powers)


def mixed(ground: Ground, first: Shape, seed: int, *, steps: int, cosines: int) -> Shape:
    """The same for steps that also mix the most relevant inputs."""
    most = np.argsort(-first.scale, kind="stable")[:MIXED]
    course = Course(ground.columns, most[first.scale[most] > 0])
    rates = course.each(*_MIXING_RATES)
    mixing, powers, _ = course.parts(_followed(ground, first, course, rates, (seed, MIXED), steps, cosines))
    apart = np.zeros(ground.columns)
    apart[course.axes] = (powers - np.rint(powers))[course.axes]
    return first.moved(powers, mixing * np.exp2(apart)[:, None])  # eighths say what powers of two are too coarse for


def _followed(
    ground: Ground, first: Shape, course: Course, rates: Floats, seed: tuple[int, ...], steps: int, cosines: int
) -> Floats:
    """Where the steps end, as the mean of the last ones."""
    place, low = course.place(first), course.each(-FARTHEST, _SCALES[0], _ALPHAS[0])
    high, scales = course.each(FARTHEST, _SCALES[1], _ALPHAS[1]), course.each(0, 1, 0) > 0
    pull = min(1.0, _PULL * ground.columns / ground.rows)  # more would swing back and forth
    mean, square, tail = np.zeros_like(place), np.zeros_like(place), list[Floats]()
    for step in range(steps):
        go_on()
        draw, phases = _drawn(first.kernel, ground.columns, cosines, (*seed, step))
        mixing, powers, penalty = course.parts(place)
        batch, metric = Batch.of(ground, step), np.exp2(powers)[:, None] * mixing
        error, by_metric, by_alpha = sloped(batch, draw, phases, metric, 2.0**penalty)
        if error == 0:
            break  # there is nothing to learn: the target is constant
        slope = course.slope(place, by_metric, by_alpha) / error  # of the logarithm: any fall by a tenth counts alike
        mean = _MEMORY * mean + (1 - _MEMORY) * slope
        square = _SQUARES * square + (1 - _SQUARES) * slope**2
        move = mean / (1 - _MEMORY ** (step + 1)) / (np.sqrt(square / (1 - _SQUARES ** (step + 1))) + 1e-12)
        move[scales] += pull * (powers - powers.mean())
        place = np.clip(place - rates * (1 + (_LAST - 1) * step / steps) * move, low, high)
        place = np.rint(place / _GRID) * _GRID
        if step >= _TAIL * steps:
            tail.append(place)
    last: Floats = np.mean(tail or [place], axis=0)
    return last


def sloped(batch: Batch, draw: Floats, phases: Floats, metric: Floats, alpha: float) -> tuple[float, Floats, float]:
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


def _drawn(kernel: Kernel, columns: int, cosines: int, seed: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Frequencies of unit scale and phases, in radians: (d', D) and (D,)."""
    rng = np.random.default_rng(seed)
    theta = 2 * np.pi * Frequencies.of(kernel, 1.0, None, columns).turns(cosines, rng)
    return theta, rng.uniform(0, 2 * np.pi, cosines)


def _turns(rows: Floats, theta: Floats, phases: Floats) -> Floats:
    """The angles of features in turns, (n, D); theta is in turns, phases are in radians."""
    turns: Floats = rows @ theta
    turns += phases / (2 * np.pi)
    return turns


def _part(rows: NDArray[np.intp], count: int, turn: int) -> NDArray[np.intp]:
    """So many of the rows, the next ones at each turn."""
    return np.take(rows, np.arange(turn * count, turn * count + min(len(rows), count)), mode="wrap")
