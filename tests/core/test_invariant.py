"""The main promise: unlearning rows equals training without them, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    Ridge,
    SGDRegressor,
)
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from threadpoolctl import threadpool_limits

import expunge.exact.moments
import expunge.regressor
from expunge import Code, CodedClassifier, CodedRegressor, Powers, RandomFourier
from expunge.learning.rules import RidgeRule
from expunge.testing import DETERMINISTIC, check_unlearning

from support.models import weights_of
from support.sampling import examples
from support.strategies import SIGNED, class_tables, classifiers, regressors, tables

ANY, RIDGE = regressors(own_features=True), regressors(learners=False, own_features=True)


@examples(150)
@given(ANY, tables(), st.integers(0, 2**20))
def test_unlearning_equals_training_without_whatever_the_model_is_made_of(estimator, table, seed):
    check_unlearning(estimator, *table, requests=4, random_state=seed)


@examples(150)
@given(classifiers(own_features=True), class_tables(), st.integers(0, 2**20))
def test_unlearning_equals_training_without_whatever_a_classifier_is_made_of(estimator, table, seed):
    check_unlearning(estimator, *table, requests=4, random_state=seed)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("shards", "rate"), [(1, 1), (4, 1), (4, 2)])
def test_a_learner_whose_last_row_goes_has_no_model(shards, rate, intercept):
    """Zero weights are the solution of an empty system with a penalty, and would pull the mean of models to zero."""
    rng = np.random.default_rng(0)
    X, y = rng.random((8, 3)), rng.random(8)
    model = CodedRegressor(
        shards=shards,
        rate=rate,
        fit_intercept=intercept,
        alpha=1.0,
        bounds="unit",
        target_bounds="unit",
        random_state=0,
    ).fit(X, y)
    for person in range(8):
        model.unlearn([person])
        assert weights_of(model) == weights_of(model.retrained())
    assert set(weights_of(model)) == {None}


@examples(60)
@given(
    RIDGE,
    tables(),
    st.sampled_from([1, 50, 2**16]),
    st.integers(1, 7),
    st.integers(1, 2),
)
def test_block_sizes_and_threads_do_not_show(estimator, table, block, float_rows, threads):
    X, y = table
    reference = estimator.fit(X, y)
    expected = reference.digest(), weights_of(reference)
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(threads):
        patch.setattr("expunge.exact.arrays.NUMBERS_PER_BLOCK", block)
        patch.setattr(expunge.exact.moments, "FLOAT_ROWS", float_rows)
        patch.setattr(expunge.exact.moments, "_BUFFER_ROWS", float_rows)
        again = estimator.fit(X, y)
        assert (again.digest(), weights_of(again)) == expected


@examples(40)
@given(RIDGE, tables(), st.randoms(use_true_random=False))
def test_the_order_and_batching_of_requests_do_not_show(estimator, table, random):
    X, y = table
    going = random.sample(range(len(X)), len(X) // 2)
    keeps_rows = estimator.keep == "rows"

    def unlearn(model, ids):
        model.unlearn(ids) if keeps_rows else model.unlearn(ids, X[ids], y[ids])

    at_once = estimator.fit(X, y)
    unlearn(at_once, going)
    expected = at_once.digest(), weights_of(at_once)
    one_by_one = estimator.fit(X, y)
    random.shuffle(going)
    for k in going:
        unlearn(one_by_one, [k])
    assert (one_by_one.digest(), weights_of(one_by_one)) == expected


@examples(40)
@given(ANY, tables())
def test_adding_rows_and_unlearning_them_is_as_if_they_had_never_come(estimator, table):
    X, y = table
    half = len(X) // 2
    model = estimator.fit(X[:half], y[:half])
    before = model.digest()
    model.partial_fit(X[half:], y[half:])
    assert model.digest() != before
    later = np.arange(half, len(X))
    model.unlearn(later) if model.keep == "rows" else model.unlearn(later, X[half:], y[half:])
    assert model.digest() == before


@examples(30)
@given(tables(), st.sampled_from([None, Powers(2), RandomFourier(5)]))
def test_what_is_kept_does_not_show_in_the_model(table, features):
    X, y = table
    models = [
        CodedRegressor(
            shards=4, rate=2, features=features, bounds="unit", target_bounds="unit", keep=keep, random_state=0
        )
        for keep in ("rows", "coded")
    ]
    rows, coded = (model.fit(X, y) for model in models)
    assert rows.digest() == coded.digest()
    assert weights_of(rows) == weights_of(coded)


@examples(40)
@given(RIDGE, tables())
def test_a_change_is_seen_in_the_digest(estimator, table):
    X, y = table
    model = estimator.fit(X, y)
    other = y.copy()
    other[0] = np.where(y[0] == 0.5, -0.5, 0.5)
    digests = {model.digest(), estimator.fit(X, other).digest()}
    estimator.set_params(alpha=0.125)
    digests.add(estimator.fit(X, y).digest())
    assert len(digests) == 3


UNIT = {"bounds": "unit", "target_bounds": "unit", "random_state": 0}


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["rows", "coded"])
@pytest.mark.parametrize(
    "learner",
    [
        DecisionTreeRegressor(),
        ElasticNet(1e-3, max_iter=100_000),
        GradientBoostingRegressor(n_estimators=3),
        HistGradientBoostingRegressor(max_iter=3),
        HuberRegressor(max_iter=1000),
        KNeighborsRegressor(2),
        Lasso(1e-3, max_iter=100_000),
        LinearRegression(),
        RandomForestRegressor(n_estimators=3),
        Ridge(),
        SGDRegressor(max_iter=5, tol=None),
        SVR(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_estimator_listed_as_deterministic_is(learner, keep, rng):
    assert type(learner).__name__ in DETERMINISTIC
    X, y = rng.uniform(-1, 1, (80, 3)), rng.uniform(-1, 1, 80)
    check_unlearning(CodedRegressor(code=Code.uncoded(2), learner=learner, keep=keep, **UNIT), X, y, requests=3)


def test_a_model_with_few_rows_passes_the_check_although_requests_may_leave_none():
    X, y = np.eye(4), np.arange(4.0)
    for seed in range(20):
        check_unlearning(CodedRegressor(shards=2, rate=1, random_state=0), X, y, random_state=seed)


@pytest.mark.parametrize("clip", [True, False])
def test_bounds_may_be_declared_in_some_columns_and_observed_in_others(clip, rng):
    X, y = rng.uniform(-1, 1, (60, 3)), rng.uniform(-1, 1, (60, 2))
    X[0, 0], y[1, 1] = -2, 2  # the ends of columns that are observed
    X[2], y[2] = [0, 1, 1], [2, 0]  # on the bounds of columns that are declared
    bounds, target_bounds = ([None, -1, 0 if clip else -1], [None, 1, 1]), ([-2, np.nan], [2, np.nan])
    model = CodedRegressor(
        shards=4, rate=2, features=Powers(2), bounds=bounds, target_bounds=target_bounds, clip=clip, random_state=0
    )
    check_unlearning(model, X, y, requests=12)
    model.fit(X, y)
    np.testing.assert_array_equal(model.bounds_.low, [-2, -1, bounds[0][2]])
    np.testing.assert_array_equal(model.target_bounds_.high, [2, 2])
    assert [model.unlearn(k).bounds_moved for k in (2, 0, 1)] == [False, True, True]
    np.testing.assert_array_equal(model.bounds_.low, [X[1:, 0].min(), -1, bounds[0][2]])


@pytest.mark.slow
@pytest.mark.parametrize(
    "learner",
    [
        DecisionTreeClassifier(),
        HistGradientBoostingClassifier(max_iter=3),
        KNeighborsClassifier(2),
        LogisticRegression(max_iter=1000),
        RandomForestClassifier(n_estimators=3),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_classifier_listed_as_deterministic_is(learner, rng):
    X, y = rng.uniform(-1, 1, (80, 3)), rng.choice(["no", "yes", "maybe"], 80)
    model = CodedClassifier(code=Code.uncoded(2), learner=learner, bounds="unit", random_state=0)
    check_unlearning(model, X, y, requests=3)


def test_every_name_on_the_list_is_tested():
    tested = [
        learner
        for test in (
            test_every_estimator_listed_as_deterministic_is,
            test_every_classifier_listed_as_deterministic_is,
        )
        for mark in test.pytestmark
        if mark.args and mark.args[0] == "learner"
        for learner in mark.args[1]
    ]
    assert sorted(type(estimator).__name__ for estimator in tested) == sorted(DETERMINISTIC)


def test_the_check_finds_an_update_that_is_off_by_one(monkeypatch, rng):
    exact = RidgeRule.relearn

    def sloppy(self, *args):
        moments, weights = exact(self, *args)
        moments.limbs[2, 0] += 1
        return moments, weights

    monkeypatch.setattr(RidgeRule, "relearn", sloppy)
    with pytest.raises(AssertionError, match="after: learned .* the digest differs"):
        check_unlearning(
            CodedRegressor(random_state=0, **dict.fromkeys(("bounds", "target_bounds"), "unit")),
            rng.uniform(-1, 1, (40, 2)),
            rng.uniform(-1, 1, 40),
        )


def test_the_check_finds_weights_that_were_not_solved_again(monkeypatch, rng):
    solve = RidgeRule.model
    calls = []

    def drifting(self, *args):
        calls.append(1)
        W = solve(self, *args)
        return None if W is None else W * (1 + 1e-12 * len(calls))

    monkeypatch.setattr(RidgeRule, "model", drifting)
    with pytest.raises(AssertionError, match="weights of learner 0 differ"):
        check_unlearning(
            CodedRegressor(code=SIGNED, fit_intercept=False, alpha=1.0, random_state=0),
            rng.uniform(-1, 1, (40, 2)),
            rng.uniform(-1, 1, 40),
        )
