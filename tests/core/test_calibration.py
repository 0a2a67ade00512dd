"""Scores, leverages, calibration rows and the calibrator, compared with independent computations."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import log_loss

from expunge import Code, CodedClassifier, CodedRegressor, RandomFourier
from expunge.learning.class_rules import ClassRule
from expunge.testing import check_unlearning

from support.models import state_of
from support.paths import computing


@pytest.fixture
def table(rng):
    X = rng.random((300, 4))
    return X, np.digitize(X[:, 0] + X[:, 1] + rng.normal(0, 0.2, 300), [0.8, 1.3])


def weights(model, learner=0):
    return state_of(model).ensemble.models[learner]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_scores_are_those_of_ridge_regression_on_one_hot_targets(power, intercept, table):
    X, y = table
    model = CodedClassifier(class_power=power, fit_intercept=intercept, alpha=0.3, bounds="unit", random_state=0).fit(
        X, y
    )
    counts = np.bincount(y)
    each = (len(y) / (3 * counts)) ** power
    reference = Ridge(0.3, fit_intercept=intercept).fit(X, np.eye(3)[y], sample_weight=each[y])
    np.testing.assert_allclose(weights(model)[:4], reference.coef_.T, atol=1e-6)
    if intercept:
        np.testing.assert_allclose(weights(model)[4], reference.intercept_, atol=1e-6)


def test_the_difference_of_two_classes_scores_is_that_of_ridge_classifier(table):
    X, y = table
    y = (y > 0).astype(int)
    model = CodedClassifier(class_power=1.0, alpha=0.1, bounds="unit", random_state=0).fit(X, y)
    reference = RidgeClassifier(0.1, class_weight="balanced").fit(X, y)
    W = weights(model)
    ours = X @ (W[:4, 1] - W[:4, 0]) + W[4, 1] - W[4, 0]
    np.testing.assert_allclose(ours, reference.decision_function(X), atol=1e-6)


def test_one_hot_scores_of_coded_rows_are_those_of_a_regressor_with_as_many_targets(table):
    X, y = table
    shared = {"shards": 6, "rate": 3, "bounds": "unit", "features": RandomFourier(7), "random_state": 0}
    model = CodedClassifier(**shared).fit(X, y)
    reference = CodedRegressor(target_bounds="unit", **shared).fit(X, np.eye(3)[y])
    for ours, theirs in zip(state_of(model).ensemble.models, state_of(reference).ensemble.models, strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_leverages_are_the_means_over_each_class(alpha, table):
    X, y = table
    model = CodedClassifier(alpha=alpha, class_power=1.0, bounds="unit", random_state=0).fit(X, y)
    ensemble = state_of(model).ensemble
    assert isinstance(ensemble.rule, ClassRule)
    w = (len(y) / (3 * np.bincount(y)))[y]
    P = np.column_stack([X, np.ones(len(X))])
    A = (P * w[:, None]).T @ P + np.diag([alpha] * 4 + [0])
    each = w * np.einsum("ij,jk,ik->i", P, np.linalg.inv(A), P)
    expected = [each[y == k].mean() for k in range(3)]
    np.testing.assert_allclose(ensemble.rule.leverages(ensemble.states[0], ensemble.encoder), expected, rtol=1e-5)
    pair = ensemble.rule.pair(ensemble.states[0], 0, 2, ensemble.encoder)
    two = y != 1
    w = (np.count_nonzero(two) / (2 * np.bincount(y)))[y[two]]
    A = (P[two] * w[:, None]).T @ P[two] + np.diag([alpha] * 4 + [0])
    each = w * np.einsum("ij,jk,ik->i", P[two], np.linalg.inv(A), P[two])
    np.testing.assert_allclose(pair.leverages, [each[y[two] == k].mean() for k in (0, 2)], rtol=1e-5)
    expected = np.linalg.solve(A, P[two].T @ (w * np.where(y[two] == 0, 1, -1)))
    np.testing.assert_allclose(pair.weights, expected, atol=1e-5)


def test_a_learner_with_more_features_than_rows_has_finite_leverages(rng):
    X = rng.random((10, 3))
    model = CodedClassifier(alpha=0.0, features=RandomFourier(40, random_state=0), random_state=0).fit(X, [0, 1] * 5)
    ensemble = state_of(model).ensemble
    assert ((h := ensemble.rule.leverages(ensemble.states[0], ensemble.encoder)) <= 1 + 1e-6).all()
    assert h.sum() > 0
    assert np.isfinite(model.predict_proba(X)).all()


def test_few_rows_are_all_calibration_rows_and_many_are_stratified(rng):
    X = rng.random((9000, 2))
    y = np.where(rng.random(9000) < 0.01, "rare", "usual")
    few = CodedClassifier(random_state=0).fit(X[:900], y[:900])
    assert len(few._fitted_model.calibration_rows.slots) == 900
    rows = CodedClassifier(random_state=0).fit(X, y)._fitted_model.calibration_rows
    assert len(rows.slots) == 2000
    assert np.count_nonzero(rows.classes == 0) == np.count_nonzero(y == "rare")  # fewer than a quarter of 2,000
    np.testing.assert_allclose(rows.weights.sum(), 9000)


def minimum(loss, size):
    """Minimise by plain gradient descent with halving: slow, and nothing like Newton's method."""
    theta, rate = np.zeros(size), 1.0
    value, gradient = loss(theta)
    for _ in range(20_000):
        step = rate * gradient
        after, after_gradient = loss(theta - step)
        if after > value:
            rate /= 2
            continue
        theta, value, gradient, rate = theta - step, after, after_gradient, rate * 1.2
    return value


def test_newtons_eight_steps_reach_the_minimum(table):
    """Compared by the loss: with these penalties the minimum is flat."""
    from expunge.learning import calibration

    X, y = table
    model = CodedClassifier(random_state=0, bounds="unit", pairs=False).fit(X, (y > 0).astype(int))
    fitted = model._fitted_model
    rows = fitted.calibration_rows
    ensemble, calibrator = fitted.link
    X = ensemble.store.as_rows().take(rows.slots)[0]
    scores = calibration._leave_one_out(ensemble, rows, X)
    s, knots = scores[:, 1] - scores[:, 0], calibration._DIFFERENCE_KNOTS
    hats = np.array([np.interp(s, knots, each) for each in np.eye(len(knots))]).T
    start = 4 * knots
    slopes = np.diff(np.eye(len(knots)), axis=0) / np.diff(knots)[:, None]
    bends = np.diff(slopes, axis=0)
    w, target = rows.weights * len(s) / rows.weights.sum(), rows.classes

    def loss(moved):
        theta = start + moved
        z = hats @ theta
        value = w @ (np.logaddexp(0, z) - target * z) + 0.01 * ((bends @ theta) ** 2).sum() + 0.005 * (moved**2).sum()
        gradient = hats.T @ (w * (1 / (1 + np.exp(-z)) - target)) + 0.02 * bends.T @ (bends @ theta) + 0.01 * moved
        return value, gradient

    ours = loss(calibrator.heights[0] - start)[0]
    assert ours <= minimum(loss, len(knots)) * (1 + 1e-6)


def test_probabilities_are_close_to_logistic_regression_where_that_is_true(rng):
    X = rng.random((4000, 3))
    y = rng.random(4000) < 1 / (1 + np.exp(-(4 * X[:, 0] - 3 * X[:, 1])))
    test = rng.random((4000, 3))
    truth = 1 / (1 + np.exp(-(4 * test[:, 0] - 3 * test[:, 1])))
    model = CodedClassifier(alpha=0.1, random_state=0).fit(X, y)
    reference = LogisticRegression(C=10).fit(X, y)

    def divergence(p):
        return (truth * np.log(truth / p) + (1 - truth) * np.log((1 - truth) / (1 - p))).mean()

    assert divergence(model.predict_proba(test)[:, 1]) < divergence(reference.predict_proba(test)[:, 1]) + 0.005


def test_a_rare_class_keeps_its_share_in_the_probabilities_whatever_its_weight(rng):
    X = rng.random((20_000, 2))
    y = rng.random(20_000) < np.where(X[:, 0] > 0.9, 0.05, 0.002)
    for power in (0.0, 0.5, 1.0):
        model = CodedClassifier(features=RandomFourier(30), class_power=power, alpha=0.1, random_state=0).fit(X, y)
        assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=0.25)


def test_pairs_are_used_where_they_help_and_only_there(rng):
    X, y = load_iris(return_X_y=True)
    auto, without = (CodedClassifier(pairs=pairs, random_state=0).fit(X[::2], y[::2]) for pairs in ("auto", False))
    losses = [log_loss(y[1::2], model.predict_proba(X[1::2])) for model in (auto, without)]
    assert losses[0] < 0.7 * losses[1]
    X = rng.random((600, 2))
    noise = rng.integers(0, 3, 600)
    auto, without = (CodedClassifier(pairs=pairs, random_state=0).fit(X, noise) for pairs in ("auto", False))
    np.testing.assert_array_equal(auto.predict_proba(X), without.predict_proba(X))


def test_pairs_of_classes_that_no_row_left_are_not_solved_again(monkeypatch):
    X, y = load_digits(return_X_y=True)
    model = CodedClassifier(random_state=0, pairs=True, bounds=(0, 16)).fit(X[:500], y[:500])
    model.predict_proba(X[:1])
    solved, solve = [], ClassRule._solve
    monkeypatch.setattr(ClassRule, "_solve", lambda *a: solved.append(1) or solve(*a))
    model.unlearn(0)
    p = model.predict_proba(X[500:510])
    assert len(solved) == 1 + 9  # all classes at once, and the pairs of the row's class
    np.testing.assert_array_equal(p, model.retrained().predict_proba(X[500:510]))


@pytest.mark.parametrize("keep", ["rows", "coded"])
@pytest.mark.parametrize("code", [Code([[3], [1], [2]]), Code.uncoded(3), None])
def test_pooled_learners_are_one_learner_on_all_coded_rows(code, keep, rng):
    X, y = rng.uniform(-1, 1, (120, 3)), rng.uniform(-1, 1, 120)
    shared = {"shards": 6, "rate": 2, "code": code, "bounds": "unit", "target_bounds": "unit", "keep": keep}
    model = CodedRegressor(aggregate="pooled", alpha=0.2, random_state=0, **shared).fit(X, y)
    shards = [model.coded_shard(j) for j in range(model.code_.learners)]
    P, t = np.concatenate([shard[0] for shard in shards]), np.concatenate([shard[1] for shard in shards])
    W = np.linalg.solve(P.T @ P + np.diag([0.2] * 3 + [0]), P.T @ t)
    np.testing.assert_allclose(model.predict(X), np.clip(np.column_stack([X, np.ones(120)]) @ W, -1, 1), atol=1e-6)
    np.testing.assert_allclose([*model.coef_, model.intercept_], W, atol=1e-6)
    check_unlearning(model, X, y, requests=3)


def test_pooling_is_for_ridge_learners(rng):
    with pytest.raises(ValueError, match="aggregate must be one of"):
        CodedRegressor(aggregate="pooled", learner=Ridge(fit_intercept=False)).fit(rng.random((20, 2)), rng.random(20))


def test_native_and_numpy_paths_give_the_same_digest_and_classes(table):
    X, y = table
    model = CodedClassifier(features=RandomFourier(9), random_state=0)
    native = model.fit(X, y)
    digest, p = native.digest(), native.predict_proba(X)
    with computing(natively=False):
        plain = CodedClassifier(features=RandomFourier(9), random_state=0).fit(X, y)
        assert plain.digest() == digest
        np.testing.assert_allclose(plain.predict_proba(X), p, atol=1e-9)


def test_scores_of_rows_that_were_learned_from_do_not_make_probabilities_too_confident(rng):
    """With many features per row, noise is learned by heart: uncorrected, the log loss on other rows was above 0.9."""
    X, y = rng.random((300, 5)), rng.integers(0, 2, 300)
    test, truth = rng.random((2000, 5)), rng.integers(0, 2, 2000)
    model = CodedClassifier(features=RandomFourier(100, random_state=0), random_state=0, bounds=(0, 1)).fit(X, y)
    assert log_loss(truth, model.predict_proba(test)) < 0.73


@pytest.mark.parametrize("shards", [1, 3])
def test_corrected_scores_are_about_those_of_models_without_the_row(shards, rng):
    from expunge.learning import calibration

    X = rng.random((90, 3))
    y = (X[:, 0] + rng.normal(0, 0.3, 90) > 0.5).astype(int)
    shared = {"shards": shards, "rate": 1, "features": RandomFourier(10, random_state=0), "alpha": 0.1}
    model = CodedClassifier(bounds=(0, 1), classes=[0, 1], random_state=0, **shared).fit(X, y)
    fitted = model._fitted_model
    rows, ensemble = fitted.calibration_rows, fitted.state.ensemble
    learned = ensemble.store.as_rows().take(rows.slots)[0]
    corrected = calibration._leave_one_out(ensemble, rows, learned)[:, 1]
    own = ensemble.outputs(learned)[:, 1]
    truth = np.empty(90)
    for k, row in enumerate(learned):
        without = CodedClassifier(bounds=(0, 1), classes=[0, 1], random_state=0, **shared).fit(X, y)
        without.unlearn(int(np.flatnonzero((row == X).all(axis=1))[0]))
        truth[k] = state_of(without).ensemble.outputs(row[None])[0, 1]
    assert np.abs(corrected - truth).mean() < 0.7 * np.abs(own - truth).mean()
    gain = 2 * rows.classes - 1  # how much too good the scores are, on average
    assert abs((gain * (corrected - truth)).mean()) < 0.35 * (gain * (own - truth)).mean()
