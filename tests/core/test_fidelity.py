"""Exactness costs no accuracy: on real tables predictions agree with the paper's algorithms in floats."""

import itertools
from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from expunge import Code, CodedRegressor, RandomFourier
from expunge.paper.data import read_dataset

from support.models import state_of


@cache
def table(name):
    X, y = read_dataset(name)
    order = np.random.default_rng(1).permutation(len(X))
    return X[order], y[order]


def literal(model, X_test):
    """Run the paper's algorithms in floats, with the model's projection, slots and bounds; target scaled to [0, 1]."""
    encoder, store = state_of(model).ensemble.encoder, state_of(model).ensemble.store
    code, features = encoder.code, encoder.features

    def project(X):
        scaled = (X - encoder.inputs.low) / (encoder.inputs.high - encoder.inputs.low)
        return np.cos(scaled @ features.theta_ + features.offset_)

    phi, ones = project(store.X), np.ones((len(store.X), 1))
    scaled_y = (store.y - encoder.targets.low) / (encoder.targets.high - encoder.targets.low)
    for rows in (phi, ones, scaled_y):
        rows[~store.live] = 0.0
    shards = [np.split(a.reshape(-1, code.shards, a.shape[1]), code.shards, axis=1) for a in (phi, ones, scaled_y)]
    predictions = []
    for g in code.G.T:
        Q, c, q = (sum(weight * lane[:, 0] for weight, lane in zip(g, part, strict=True)) for part in shards)
        W, b = solve(Q, c, q, model.alpha, model.fit_intercept)
        predictions.append(project(X_test) @ W + b)
    return np.mean(predictions, axis=0)


def solve(Q, c, q, alpha, fit_intercept):
    """Solve ridge with an unpenalised coefficient of the coded ones c, by projecting them out."""
    slope = Ridge(alpha, fit_intercept=False) if alpha else LinearRegression(fit_intercept=False)
    if not fit_intercept:
        return slope.fit(Q, q[:, 0]).coef_, 0.0
    onto = c / (c.T @ c)
    W = slope.fit(Q - c @ (onto.T @ Q), (q - c @ (onto.T @ q))[:, 0]).coef_
    return W, float((onto.T @ (q[:, 0] - Q @ W))[0])


TABLES = ("computer-activity", "protein")
SHAPES = [(name, D, alpha) for name in TABLES for D, alpha in ((25, 1e-3), (25, 1e-4), (300, 1e-3), (300, 1e-4))]
WAYS = itertools.product(["coded", "uncoded", "single"], [True, False])
CASES = [(*shape, *way) for shape, way in itertools.product([*SHAPES, ("power-plant", 20, 0.0)], [*WAYS])]
SAMPLE = [case for case in CASES if case[1] < 300][::2] + [("computer-activity", 300, 1e-4, "coded", True)]


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("name", "D", "alpha", "code", "fit_intercept"),
    [pytest.param(*case, marks=() if case in SAMPLE else pytest.mark.torture) for case in CASES],
)
def test_predictions_agree_with_the_literal_float_algorithm(name, D, alpha, code, fit_intercept):
    X, y = table(name)
    train = len(X) * 9 // 10
    model = CodedRegressor(
        shards=20,
        rate=5,
        code={"coded": None, "uncoded": Code.uncoded(10), "single": Code.single()}[code],
        features=RandomFourier(D),
        alpha=alpha,
        fit_intercept=fit_intercept,
        outside="extrapolate",  # as the paper's algorithm does
        random_state=0,
    ).fit(X[:train], y[:train])
    low, high = model.target_bounds_.low, model.target_bounds_.high
    difference = (model.predict(X[train:]) - low) / (high - low) - literal(model, X[train:])
    assert np.sqrt(np.mean(difference**2)) < 2e-7
    assert np.abs(difference).max() < 5e-6
