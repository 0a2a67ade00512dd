"""Descent: the scales of all inputs at once, down the slope of the validation error.

The error that a ridge model makes on judging rows can be differentiated through its solve, at little more than the cost
of the solve itself. Each step looks at other rows and at features that are drawn anew: where all steps had the same
features the scales came to fit those very ones, and the error with others of the same scales was more than twice as
high. The steps are Adam's (Kingma and Ba 2015); the scales are rounded to powers of two in the end.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..encoding.frequencies import Frequencies, Kernel
from ..exact.arrays import Floats
from ..exact.blas import scipy_linalg
from .ground import Ground
from .shapes import LEAST, Shape

_LEARNED, _JUDGING = 3_000, 2_000  # rows of a step
_RATE, _LAST_RATE = 0.5, 0.05  # how far a step goes, in powers of two: at first, and in the end
_MEMORY, _SQUARES = 0.8, 0.9  # what Adam keeps of the mean slope, and of its square
_TAIL = 0.75  # the scales are those of the steps after this part of them, averaged
_PULL = 0.5  # towards the scale of all, times inputs per row: where rows are few, slopes are mostly noise
_ALPHA = -3.0  # the penalty to begin with, as a power of two
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
        """The next rows of the next fold, from the beginning again after the last."""
        turn, k = divmod(step, len(ground.folds))
        fold, unit = ground.folds[k], np.sqrt(ground.variance)
        learned, judging = _part(len(fold.Z), _LEARNED, turn), _part(len(fold.truth), _JUDGING, turn)
        targets = fold.encoder.unscaled(fold.targets[learned])
        return cls(fold.Z[learned], targets / unit, fold.judging[judging], fold.truth[judging] / unit)


def descended(ground: Ground, first: Shape, seed: int, *, steps: int, cosines: int) -> Shape:
    """The shape where the steps end that begin at ``first``, which has no order."""
    place = np.append(np.log2(first.scale), _ALPHA)  # (d' + 1,)
    low, high = np.transpose([_SCALES] * ground.columns + [_ALPHAS])
    pull = min(1.0, _PULL * ground.columns / ground.rows)  # more would swing back and forth
    mean, square, tail = np.zeros_like(place), np.zeros_like(place), list[Floats]()
    for step in range(steps):
        theta, phases = _drawn(first.kernel, ground.columns, cosines, (seed, step))
        error, slope = sloped(Batch.of(ground, step), theta, phases, place)
        if error == 0:
            break  # there is nothing to learn: the target is constant
        slope /= error  # of the logarithm: a fall by a tenth counts alike everywhere
        mean = _MEMORY * mean + (1 - _MEMORY) * slope
        square = _SQUARES * square + (1 - _SQUARES) * slope**2
        rate = _RATE + (_LAST_RATE - _RATE) * step / steps
        move = mean / (1 - _MEMORY ** (step + 1)) / (np.sqrt(square / (1 - _SQUARES ** (step + 1))) + 1e-12)
        move[:-1] += pull * (place[:-1] - place[:-1].mean())
        place = np.clip(place - rate * move, low, high)
        if step >= _TAIL * steps:
            tail.append(place)
    return first.moved(np.mean(tail or [place], axis=0)[:-1])


def sloped(batch: Batch, theta: Floats, phases: Floats, place: Floats) -> tuple[float, Floats]:
    """The error of a model on the judging rows, and its slope: how it changes with each entry of ``place``.

    The model has the features cos(z . 2**place[:-1] theta + phases), the columns z themselves and an intercept, and the
    penalty 2**place[-1]: (d', D), (D,), (d' + 1,) -> (d' + 1,).
    """
    theta, alpha, D = theta * np.exp2(place[:-1])[:, None], 2.0 ** place[-1], len(phases)
    angles, judged = batch.Z @ theta + phases, batch.judging @ theta + phases
    F = np.hstack([np.cos(angles), batch.Z])
    middle, level = F.mean(axis=0), batch.targets.mean(axis=0)
    F -= middle
    J = np.hstack([np.cos(judged), batch.judging]) - middle
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
    of_learned = rest @ v[:D].T - (F @ v + wrong.sum(axis=0) / len(F)) @ w[:D].T  # by each feature, (n, D)
    of_judging = wrong @ w[:D].T
    by_theta = -(batch.Z.T @ (of_learned * np.sin(angles)) + batch.judging.T @ (of_judging * np.sin(judged)))
    return error, np.log(2) * np.append((theta * by_theta).sum(axis=1), -alpha * (v * w).sum())


def _drawn(kernel: Kernel, columns: int, cosines: int, seed: tuple[int, int]) -> tuple[Floats, Floats]:
    """Frequencies of unit scale and phases, in radians: (d', D) and (D,)."""
    rng = np.random.default_rng(seed)
    theta = 2 * np.pi * Frequencies.of(kernel, 1.0, None, columns).turns(cosines, rng)
    return theta, rng.uniform(0, 2 * np.pi, cosines)


def _part(rows: int, count: int, turn: int) -> NDArray[np.intp]:
    """So many rows, the next ones at each turn."""
    return np.arange(turn * count, turn * count + min(rows, count)) % rows
