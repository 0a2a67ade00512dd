"""Calibration: from scores to probabilities.

A calibrator is fitted from scratch on the calibration rows whenever rows have changed: a fixed sequence of operations
on one BLAS thread, with no warm start, so nothing of an erased row survives in it. Its rows come in the order of their
slots and in blocks of a fixed size: the same rows give the same bits.

The score of a row that was learned from is too good. With h the mean leverage of its class, the score that a model
without the row would give is y - (y - s) / (1 - h).

The probabilities are the softmax of z. For two classes z = (0, g(s_1 - s_0)); for more
z_k = g1(s_k) + sum over l of g2(s_kl) + c_k with the scores s_kl of pairs of classes, if pairs are used. Each g is
linear between declared knots and constant beyond them, with a penalty on its changes of slope.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..exact.arrays import Floats, Integers
from ..exact.threads import one_blas_thread
from .calibration_rows import CalibrationRows
from .class_rules import ClassRule, OneHotRule
from .ensemble import Ensemble

Pairs: TypeAlias = Literal["auto"] | bool

PAIRS_WORTH = 0.9  # pairs="auto" uses pairs if they lower the leave-one-out log loss to this share or less
MOST_PAIRED_CLASSES = 30  # with more classes pairs="auto" does not try pairs

_HIGHEST_LEVERAGE = 0.99
_ROWS_PER_BLOCK = 256
_NEWTON_STEPS = 8
_HALVINGS = 6
_BEND, _DRIFT = 0.02, 0.01  # penalties on changes of slope, and on the distance from the start
_START_SLOPE = 4.0

_TINY = float(np.finfo(np.float64).tiny)

# Scores are about 0 for no and 1 for yes, differences of two scores and pairs about -1 and 1. Of two classes one is
# often rare, and most differences are close to -1 or 1: there the knots are closer.
_KNOTS = np.array([-0.5, -0.2, -0.05, 0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0, 1.2])
_PAIR_KNOTS = np.array([-1.5, -1.1, -0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9, 1.1, 1.5])
_NEAR_ONE = np.array([0.3, 0.6, 0.8, 0.9, 0.96, 1.0, 1.1, 1.2, 1.5, 2.0])
_DIFFERENCE_KNOTS = np.concatenate([-_NEAR_ONE[::-1], [0.0], _NEAR_ONE])


@dataclass(frozen=True, eq=False)
class Calibrator:
    """A map from scores to probabilities of the classes that have rows."""

    present: NDArray[np.bool_]  # (K,), the classes that have rows
    heights: tuple[Floats, ...]  # of each g at its knots: one for scores, maybe one for pairs
    biases: Floats  # (K',), of each class that has rows; empty if there are two

    def logits(self, scores: Floats) -> Floats:
        """Return z of each class that has rows, from the outputs of the ensemble: (n, S) -> (n, K')."""
        n, count = len(scores), int(np.count_nonzero(self.present))
        scores, pairs = scores[:, : len(self.present)][:, self.present], scores[:, len(self.present) :]
        if count < 2:
            return np.zeros((n, count))
        if count == 2:
            g = np.interp(scores[:, 1] - scores[:, 0], _DIFFERENCE_KNOTS, self.heights[0])
            return np.column_stack([np.zeros(n), g])
        z: Floats = np.interp(scores, _KNOTS, self.heights[0]) + self.biases
        for (first, second), s in zip(combinations(range(count), 2), pairs.T, strict=False):
            z[:, first] += np.interp(s, _PAIR_KNOTS, self.heights[1])
            z[:, second] += np.interp(-s, _PAIR_KNOTS, self.heights[1])
        return z

    def probabilities(self, scores: Floats) -> Floats:
        """Return the probability of every class, 0 for those without rows: (n, S) -> (n, K)."""
        p = np.zeros((len(scores), len(self.present)))
        p[:, self.present] = _softmax(self.logits(scores))
        return p


def calibrate(
    ensemble: Ensemble, rows: CalibrationRows, X: Floats, present: NDArray[np.bool_], pairs: Pairs
) -> tuple[Ensemble, Calibrator]:
    """Fit a calibrator on calibration rows, whose inputs are X, (m, d).

    Return it with the ensemble whose outputs it takes: the given one or, if pairs are used, one that scores them too.
    """
    classes = np.flatnonzero(present)
    with one_blas_thread():
        plain, loss = _fit(_leave_one_out(ensemble, rows, X), rows, present)
        if len(classes) < 3 or not isinstance(ensemble.rule, ClassRule) or pairs is False:
            return ensemble, plain
        if pairs == "auto" and len(classes) > MOST_PAIRED_CLASSES:
            return ensemble, plain
        two = list(combinations(classes.tolist(), 2))
        paired = _add_pairs(ensemble, two)
        better, paired_loss = _fit(_leave_one_out(paired, rows, X, two), rows, present)
        if pairs == "auto" and paired_loss > PAIRS_WORTH * loss:
            return ensemble, plain
        return paired, better


def _add_pairs(ensemble: Ensemble, pairs: list[tuple[int, int]]) -> Ensemble:
    """Return an ensemble whose learners also score pairs of classes."""
    rule, models = ensemble.rule, list(ensemble.models)
    assert isinstance(rule, ClassRule)
    for j, state in enumerate(ensemble.states):
        if models[j] is not None:
            weights = [rule.pair(state, *pair, ensemble.encoder).weights for pair in pairs]
            models[j] = np.column_stack([models[j], *weights])
    return replace(ensemble, models=models)


def _leave_one_out(
    ensemble: Ensemble, rows: CalibrationRows, X: Floats, pairs: Sequence[tuple[int, int]] = ()
) -> Floats:
    """Return the outputs of an ensemble, (m, S), for rows that it learned, as if it had not learned them."""
    encoder = ensemble.encoder
    blocks = [X[first : first + _ROWS_PER_BLOCK] for first in range(0, len(X), _ROWS_PER_BLOCK)]
    phi = np.concatenate([encoder.features_of(encoder.nearest(block)) for block in blocks])
    feeding = encoder.code.G[rows.slots % encoder.code.shards] != 0  # (m, r)
    outputs = []
    for j, model in enumerate(ensemble.models):
        if model is None:
            continue
        W, constant = (model[:-1], model[-1]) if encoder.intercept else (model, 0.0)
        scores = np.concatenate([phi[k : k + _ROWS_PER_BLOCK] @ W for k in range(0, len(phi), _ROWS_PER_BLOCK)])
        scores += constant
        targets, leverages = _targets_and_leverages(ensemble, j, pairs)
        y, h = targets[rows.classes], leverages[rows.classes]  # (m, S)
        without = y - (y - scores) / (1.0 - np.minimum(h, _HIGHEST_LEVERAGE))
        own = (feeding[:, j : j + 1] | (len(ensemble.states) == 1)) & (h > 0.0)
        outputs.append(np.where(own, without, scores))
    combine = np.median if ensemble.aggregate == "median" else np.mean
    combined: Floats = combine(outputs, axis=0)
    return combined


def _targets_and_leverages(ensemble: Ensemble, learner: int, pairs: Sequence[tuple[int, int]]) -> tuple[Floats, Floats]:
    """Return the target of each class's rows in each output of a learner, and their leverage there: (K, S) each.

    The leverage is 0 where an output was not learned from a class.
    """
    rule, encoder, state = ensemble.rule, ensemble.encoder, ensemble.states[learner]
    assert isinstance(rule, OneHotRule)
    K = encoder.n_targets
    targets, leverages = np.zeros((2, K, K + len(pairs)))
    targets[:, :K] = np.eye(K)
    leverages[:, :K] = rule.leverages(state, encoder)[:, None]
    for column, pair in enumerate(pairs, start=K):
        assert isinstance(rule, ClassRule)
        targets[list(pair), column] = 1.0, -1.0
        leverages[list(pair), column] = rule.pair(state, *pair, encoder).leverages
    return targets, leverages


def _fit(scores: Floats, rows: CalibrationRows, present: NDArray[np.bool_]) -> tuple[Calibrator, float]:
    """Fit a calibrator to the leave-one-out scores of calibration rows, (m, S); return it with their mean log loss."""
    K, places, count = len(present), (np.cumsum(present) - 1)[rows.classes], int(np.count_nonzero(present))
    scores, pairs = scores[:, :K][:, present], scores[:, K:]
    weights = rows.weights * (len(rows.weights) / rows.weights.sum())
    if count < 2:
        return Calibrator(present, (), np.zeros(count)), 0.0
    if count == 2:
        hats = _hats(scores[:, 1] - scores[:, 0], _DIFFERENCE_KNOTS)
        g, loss = _minimise(_TwoClasses(hats, places, weights), _START_SLOPE * _DIFFERENCE_KNOTS, [_DIFFERENCE_KNOTS])
        return Calibrator(present, (g,), np.zeros(0)), loss
    design, start, knots = [_hats(scores, _KNOTS)], [_START_SLOPE * _KNOTS], [_KNOTS]
    if pairs.shape[1]:
        paired = np.zeros((len(scores), count, len(_PAIR_KNOTS)))
        for (first, second), s in zip(combinations(range(count), 2), pairs.T, strict=True):
            paired[:, first] += _hats(s, _PAIR_KNOTS)
            paired[:, second] += _hats(-s, _PAIR_KNOTS)
        design, start, knots = [*design, paired], [*start, np.zeros(len(_PAIR_KNOTS))], [*knots, _PAIR_KNOTS]
    design.append(np.broadcast_to(np.eye(count), (len(scores), count, count)))
    start.append(np.zeros(count))
    losses = _ManyClasses(np.concatenate(design, axis=2), places, weights)
    theta, loss = _minimise(losses, np.concatenate(start), knots)
    *heights, biases = np.split(theta, np.cumsum([len(part) for part in knots]))
    return Calibrator(present, tuple(heights), biases), loss


@dataclass(frozen=True, eq=False)
class _TwoClasses:
    """The log loss of z = (0, design theta), with weights, and its derivatives."""

    design: Floats  # (m, P)
    places: Integers  # (m,), the class of each row
    weights: Floats

    def loss(self, theta: Floats) -> tuple[Floats, float]:
        """Return the probabilities of the second class, (m,), and the loss."""
        z = self.design @ theta
        p = _softmax(np.column_stack([np.zeros(len(z)), z]))[:, 1]
        own = np.where(self.places == 1, p, 1.0 - p)
        return p, -float(self.weights @ np.log(np.maximum(own, _TINY)))

    def derivatives(self, p: Floats) -> tuple[Floats, Floats]:
        """Return gradient and Hessian, (P,) and (P, P)."""
        spread = self.design * np.sqrt(self.weights * p * (1.0 - p))[:, None]
        return (self.weights * (p - self.places)) @ self.design, spread.T @ spread


@dataclass(frozen=True, eq=False)
class _ManyClasses:
    """The log loss of z = design theta, with weights, and its derivatives."""

    design: Floats  # (m, K', P)
    places: Integers  # (m,), the class of each row
    weights: Floats

    def loss(self, theta: Floats) -> tuple[Floats, float]:
        """Return the probabilities of all classes, (m, K'), and the loss."""
        m, count, P = self.design.shape
        p = _softmax((self.design.reshape(-1, P) @ theta).reshape(m, count))
        return p, -float(self.weights @ np.log(np.maximum(p[np.arange(m), self.places], _TINY)))

    def derivatives(self, p: Floats) -> tuple[Floats, Floats]:
        """Return gradient and Hessian, (P,) and (P, P)."""
        m, _, P = self.design.shape
        flat, truth = self.design.reshape(-1, P), np.zeros_like(p)
        truth[np.arange(m), self.places] = 1.0
        spread = flat * np.sqrt(p * self.weights[:, None]).reshape(-1, 1)
        mean = np.matmul(p[:, None, :], self.design)[:, 0] * np.sqrt(self.weights)[:, None]
        return ((p - truth) * self.weights[:, None]).ravel() @ flat, spread.T @ spread - mean.T @ mean


def _minimise(losses: _TwoClasses | _ManyClasses, start: Floats, knots: list[Floats]) -> tuple[Floats, float]:
    """Minimise a penalised loss by Newton's method; return theta, (P,), and the mean log loss without penalties.

    Theta begins with the heights at each of the sets of knots. A step that raises the loss, which can happen far from
    the minimum, is halved.
    """
    penalty, first = _DRIFT * np.eye(len(start)), 0
    for part in knots:
        here = slice(first, first := first + len(part))
        penalty[here, here] += _BEND * _bends(part)

    def evaluate(theta: Floats) -> tuple[Floats, float, float]:
        p, loss = losses.loss(theta)
        return p, loss, loss + 0.5 * float((theta - start) @ penalty @ (theta - start))

    theta, (p, loss, total) = start, evaluate(start)
    for _ in range(_NEWTON_STEPS):
        gradient, hessian = losses.derivatives(p)
        step = np.linalg.solve(hessian + penalty, gradient + penalty @ (theta - start))
        for _ in range(_HALVINGS):
            after = evaluate(theta - step)
            if after[2] <= total:
                theta, (p, loss, total) = theta - step, after
                break
            step = step / 2.0
    return theta, loss / float(losses.weights.sum())


def _hats(values: Floats, knots: Floats) -> Floats:
    """Return the weight of each knot's height in the piecewise linear function at these values: (...,) -> (..., J)."""
    inside = np.clip(values, knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, inside, "right") - 1, 0, len(knots) - 2)
    share = (inside - knots[left]) / (knots[left + 1] - knots[left])
    hats = np.zeros((*values.shape, len(knots)))
    np.put_along_axis(hats, left[..., None], (1.0 - share)[..., None], axis=-1)
    np.put_along_axis(hats, left[..., None] + 1, share[..., None], axis=-1)
    return hats


def _bends(knots: Floats) -> Floats:
    """Return the matrix of the sum of squared changes of slope, as a function of the heights at the knots: (J, J)."""
    slopes = np.diff(np.eye(len(knots)), axis=0) / np.diff(knots)[:, None]
    changes = np.diff(slopes, axis=0)
    quadratic: Floats = changes.T @ changes
    return quadratic


def _softmax(z: Floats) -> Floats:
    """Return exp(z) / sum(exp(z)) of each row."""
    p: Floats = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p
