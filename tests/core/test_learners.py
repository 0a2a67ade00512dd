import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import ElasticNet, HuberRegressor, LinearRegression, PoissonRegressor, Ridge, SGDRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVR
from sklearn.tree import DecisionTreeRegressor
from threadpoolctl import threadpool_info, threadpool_limits

from expunge import Code
from expunge.errors import InvalidSetting
from expunge.exact.moments import Moments, Tally
from expunge.exact.ridge import ridge_weights
from expunge.exact.threads import one_blas_thread
from expunge.learners import check_learner, fit_estimator

from support.sampling import examples

BITS = 33
SUMMING = Code([[1, 0], [1, 0], [0, 1], [0, 1]])


def on_grid(values):
    return np.rint(np.asarray(values) * 2.0**BITS) * 2.0**-BITS


def solve(phi, y, *, alpha, intercept):
    """Return weights from exact moments of uncoded rows."""
    y = y if y.ndim == 2 else y[:, None]
    Q = np.column_stack([phi, np.ones((len(phi), int(intercept))), y])
    tally = Tally(Q.shape[1])
    tally.add(np.rint(Q * 2.0**BITS), len(Q))
    return ridge_weights(Moments.from_tallies(tally), bits=BITS, targets=y.shape[1], alpha=alpha, intercept=intercept)


def problem(n=80, d=6, t=1, seed=0):
    rng = np.random.default_rng(seed)
    phi = on_grid(rng.uniform(-1, 1, (n, d)))
    return phi, on_grid(np.tanh(phi @ rng.normal(size=(d, t))) + 0.3 + 0.1 * rng.normal(size=(n, t)))


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 1e-4, 1.0, 100.0])
def test_weights_solve_the_normal_equations(alpha, t):
    phi, y = problem(t=t)
    W = solve(phi, y, alpha=alpha, intercept=False)
    np.testing.assert_allclose(W, np.linalg.solve(phi.T @ phi + alpha * np.eye(6), phi.T @ y), rtol=1e-11)
    if alpha:
        sklearn = Ridge(alpha=alpha, fit_intercept=False).fit(phi, y)
        np.testing.assert_allclose(W, np.reshape(sklearn.coef_, (t, 6)).T, rtol=1e-10)


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("alpha", [0.0, 1e-4, 1.0, 100.0])
def test_the_intercept_is_not_penalised(alpha, t):
    phi, y = problem(t=t)
    W = solve(phi, y, alpha=alpha, intercept=True)
    sklearn = (Ridge(alpha=alpha) if alpha else LinearRegression()).fit(phi, y)
    np.testing.assert_allclose(W[:-1], np.reshape(sklearn.coef_, (t, 6)).T, rtol=1e-9)
    np.testing.assert_allclose(W[-1], sklearn.intercept_, rtol=1e-9)


def test_a_huge_alpha_leaves_the_mean():
    phi, y = problem()
    W = solve(phi, y, alpha=1e12, intercept=True)
    np.testing.assert_allclose(W[-1], y.mean(), rtol=1e-9)
    assert np.abs(W[:-1]).max() < 1e-9


def duplicate(phi):
    return np.column_stack([phi, phi[:, 0], phi[:, 2]])


SINGULAR = {
    "duplicate columns": duplicate,
    "zero columns": lambda phi: np.column_stack([phi, np.zeros((len(phi), 2))]),
    "a sum of columns": lambda phi: np.column_stack([phi / 2, phi[:, 0] / 2 + phi[:, 1] / 2]),
    "fewer rows than columns": lambda phi: phi[:4],
    "one row": lambda phi: phi[:1],
    "a constant column": lambda phi: np.column_stack([phi, np.full(len(phi), 0.75)]),
    "only zeros": lambda phi: np.zeros_like(phi),
}


@pytest.mark.parametrize("case", SINGULAR)
def test_a_singular_system_gets_the_solution_of_minimum_norm(case):
    phi, y = problem()
    phi = on_grid(SINGULAR[case](phi))
    y = y[: len(phi)]
    if case == "a constant column":
        phi = duplicate(phi)
    W = solve(phi, y, alpha=0.0, intercept=False)
    np.testing.assert_allclose(W, np.linalg.lstsq(phi, y, rcond=1e-7)[0], atol=1e-7)


@pytest.mark.parametrize("case", SINGULAR)
def test_a_singular_system_has_minimum_norm_apart_from_its_intercept(case):
    phi, y = problem()
    phi = on_grid(SINGULAR[case](phi))
    y = y[: len(phi)]
    W = solve(phi, y, alpha=0.0, intercept=True)
    slope = np.linalg.pinv(phi - phi.mean(axis=0), rcond=1e-7) @ (y - y.mean(axis=0))
    np.testing.assert_allclose(W[:-1], slope, atol=1e-7)
    np.testing.assert_allclose(W[-1], (y - phi @ slope).mean(axis=0), atol=1e-7)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("alpha", [1e-8, 1e-14, 1e-18])
def test_an_alpha_too_small_to_help_does_not_blow_up_a_singular_system(alpha, intercept):
    for seed in range(20):
        phi, y = problem(seed=seed)
        W = solve(duplicate(phi), y, alpha=alpha, intercept=intercept)
        least = solve(duplicate(phi), y, alpha=0.0, intercept=intercept)
        np.testing.assert_allclose(W, least, rtol=1e-4, atol=1e-4)


def test_coded_ones_that_cancel_leave_no_intercept():
    rows = np.array([[0.5, 0.0, 0.25], [-0.25, 0.0, 1.0]])  # the column of ones is zero everywhere
    tally = Tally(3)
    tally.add(np.rint(rows * 2.0**BITS), 4)
    W = ridge_weights(Moments.from_tallies(tally), bits=BITS, targets=1, alpha=0.0, intercept=True)
    np.testing.assert_allclose(W, [[rows[:, 0] @ rows[:, 2] / (rows[:, 0] @ rows[:, 0])], [0]], atol=1e-14)


@examples(150)
@given(st.integers(1, 6), st.integers(1, 4), st.sampled_from([0.0, 1e-300, 1e-9, 1.0]), st.booleans(), st.data())
def test_weights_are_always_finite(n, d, alpha, intercept, data):
    values = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0**-BITS, -7.0])
    phi, y = data.draw(arrays(np.float64, (n, d), elements=values)), data.draw(arrays(np.float64, n, elements=values))
    W = solve(phi, y, alpha=alpha, intercept=intercept)
    assert W.shape == (d + intercept, 1)
    assert np.isfinite(W).all()


@pytest.mark.parametrize("alpha", [0.0, 1e-3])
@pytest.mark.parametrize("intercept", [False, True])
def test_no_rows_give_zero_weights(alpha, intercept):
    W = solve(np.zeros((0, 3)), np.zeros((0, 2)), alpha=alpha, intercept=intercept)
    np.testing.assert_array_equal(W, np.zeros((3 + intercept, 2)))


def blas_threads():
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("alpha", [1e-4, 0.0])
@pytest.mark.parametrize("singular", [False, True])
def test_the_number_of_threads_does_not_show_in_the_weights(alpha, singular):
    phi, y = problem(n=400, d=350, t=2)
    phi = np.column_stack([phi[:, :349], phi[:, 0]]) if singular else phi
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            assert set(blas_threads().values()) == {threads}
            results.append(solve(phi, y, alpha=alpha, intercept=True).tobytes())
    assert results[0] == results[1]


def test_blas_is_held_to_one_thread_and_released():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            assert set(blas_threads().values()) == {1}
            with one_blas_thread():
                assert set(blas_threads().values()) == {1}
            assert set(blas_threads().values()) == {1}
        assert blas_threads() == before
        assert set(before.values()) == {2}


def test_blas_is_released_after_an_exception():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with pytest.raises(KeyError), one_blas_thread():
            raise KeyError
        assert blas_threads() == before


def in_a_thread(function):
    """Call a function in a new thread and wait for its end."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def threads_inside():
    with one_blas_thread():
        return set(blas_threads().values())


def test_a_worker_is_held_to_one_thread_after_another_thread_was():
    before = max(blas_threads().values())
    in_a_thread(lambda: threadpool_limits(2, user_api="blas"))  # the thread that set the limit has ended
    try:
        assert threads_inside() == {1}
        assert in_a_thread(threads_inside) == {1}
        assert set(blas_threads().values()) == {2}
    finally:
        in_a_thread(lambda: threadpool_limits(before, user_api="blas"))


def test_the_last_to_leave_releases_blas_though_another_came_first():
    before = max(blas_threads().values())
    in_a_thread(lambda: threadpool_limits(2, user_api="blas"))
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with one_blas_thread():
            entered.set()
            leave.wait(5)

    worker = threading.Thread(target=hold)
    try:
        with one_blas_thread():
            worker.start()
            entered.wait(0.1)  # with one lock for all it gets in only after we leave
        leave.set()
        worker.join()
        assert set(blas_threads().values()) == {2}
    finally:
        in_a_thread(lambda: threadpool_limits(before, user_api="blas"))


def test_a_worker_is_held_to_one_thread_though_another_thread_set_a_limit():
    with threadpool_limits(2, user_api="blas"):  # threadpoolctl >= 3.8 lets only this thread set limits now
        assert in_a_thread(threads_inside) == {1}
        assert set(blas_threads().values()) == {2}


def test_workers_share_the_limit_one_after_the_other():
    before = max(blas_threads().values())
    entered, seen = threading.Event(), []

    def hold():
        with one_blas_thread():
            entered.set()
            waiting.wait(0.05)  # never set: gives the other thread time to reach the lock
            seen.append(set(blas_threads().values()))

    waiting = threading.Event()
    in_a_thread(lambda: threadpool_limits(2, user_api="blas"))  # the thread that set the limit has ended
    try:
        workers = [threading.Thread(target=hold) for _ in range(3)]
        for worker in workers:
            worker.start()
            assert entered.wait(5)
        for worker in workers:
            worker.join()
        assert seen == [{1}] * 3
        assert set(blas_threads().values()) == {2}
    finally:
        in_a_thread(lambda: threadpool_limits(before, user_api="blas"))
    assert set(blas_threads().values()) == {before}


@pytest.mark.parametrize("thing", [object(), "lasso", StandardScaler(), None])
def test_what_is_no_regressor_is_refused(thing):
    with pytest.raises(InvalidSetting, match=r"learner must be 'ridge' or a scikit-learn regressor, got .* without"):
        check_learner(thing, Code.uncoded(2))


@pytest.mark.parametrize("estimator", [LinearRegression(), Ridge(), DecisionTreeRegressor(), KNeighborsRegressor()])
@pytest.mark.parametrize("code", [Code.uncoded(3), Code.single()])
def test_any_regressor_learns_from_rows_as_they_are(estimator, code):
    check_learner(estimator, code)
    phi, y = problem()
    fitted = fit_estimator(estimator, phi, y, seed=0, code=code)
    alone = clone(estimator)
    if "random_state" in alone.get_params():
        alone.set_params(random_state=0)
    np.testing.assert_array_equal(fitted.predict(phi), alone.fit(phi, y[:, 0]).predict(phi))
    assert not hasattr(estimator, "n_features_in_")  # a clone learned


@pytest.mark.parametrize("estimator", [LinearRegression(), Ridge(), ElasticNet(), HuberRegressor(), LinearSVR()])
def test_an_intercept_of_its_own_is_refused_on_sums_of_rows(estimator):
    name = type(estimator).__name__
    with pytest.raises(InvalidSetting, match=rf"{name}\(fit_intercept=True\).*use {name}\(fit_intercept=False\)"):
        check_learner(estimator, SUMMING)


@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(fit_intercept=False),
        Ridge(fit_intercept=False),
        ElasticNet(alpha=1e-3, fit_intercept=False),
        HuberRegressor(fit_intercept=False, max_iter=1000),
        SGDRegressor(fit_intercept=False, max_iter=5000),
    ],
)
def test_a_linear_model_learns_from_sums_of_rows(estimator):
    check_learner(estimator, SUMMING)
    phi, y = problem()
    assert fit_estimator(estimator, phi, y, seed=0, code=SUMMING).coef_.shape == (6,)


@pytest.mark.parametrize("estimator", [DecisionTreeRegressor(), KNeighborsRegressor(), RandomForestRegressor(3)])
def test_a_model_without_coefficients_is_refused_on_sums_of_rows(estimator):
    phi, y = problem()
    with pytest.raises(InvalidSetting, match=r"has no coef_; a coded row is a sum of rows.*use Code.uncoded"):
        fit_estimator(estimator, phi, y, seed=0, code=SUMMING)


def test_coefficients_that_do_not_predict_are_refused_on_sums_of_rows():
    phi, y = problem()
    with pytest.raises(InvalidSetting, match="coef_ of PoissonRegressor does not reproduce its predictions"):
        fit_estimator(PoissonRegressor(fit_intercept=False), phi, np.abs(y), seed=0, code=SUMMING)
    with pytest.raises(InvalidSetting, match="coef_ of LinearRegression does not reproduce its predictions"):
        fit_estimator(LinearRegression(), phi, y, seed=0, code=SUMMING)


@pytest.mark.parametrize("t", [1, 3])
def test_several_targets_are_learned_at_once(t):
    phi, y = problem(t=t)
    model = fit_estimator(Ridge(fit_intercept=False), phi, y, seed=0, code=SUMMING)
    assert model.coef_.shape == ((6,) if t == 1 else (t, 6))


def test_the_learner_is_a_clone_trained_from_scratch():
    phi, y = problem()
    estimator = Ridge(fit_intercept=False, alpha=0.5)
    model = fit_estimator(estimator, phi, y, seed=0, code=Code.single())
    assert model is not estimator
    assert not hasattr(estimator, "coef_")
    assert model.alpha == 0.5


@pytest.mark.parametrize("given", [None, np.random.RandomState(3)])
def test_a_seed_is_derived_where_there_is_none(given):
    phi, y = problem()
    forest = RandomForestRegressor(3, random_state=given)
    first, same = (fit_estimator(forest, phi, y, seed=77, code=Code.single()) for _ in range(2))
    other = fit_estimator(forest, phi, y, seed=78, code=Code.single())
    assert (first.random_state, other.random_state) == (77, 78)
    assert forest.random_state is given
    assert first.predict(phi).tobytes() == same.predict(phi).tobytes() != other.predict(phi).tobytes()


@pytest.mark.parametrize("own", [5, np.int64(5), 0])
def test_a_seed_of_its_own_is_kept(own):
    phi, y = problem()
    model = fit_estimator(DecisionTreeRegressor(random_state=own), phi, y, seed=77, code=Code.single())
    assert model.random_state == own


def test_seeds_inside_a_pipeline_are_derived_and_kept_alike():
    phi, y = problem()
    free, own = (
        fit_estimator(
            make_pipeline(StandardScaler(), RandomForestRegressor(3, random_state=seed)),
            phi, y, seed=77, code=Code.single(),
        )
        for seed in (None, 5)
    )  # fmt: skip
    assert free["randomforestregressor"].random_state == 77
    assert own["randomforestregressor"].random_state == 5


def test_an_estimator_is_trained_on_one_blas_thread():
    class Spy(LinearRegression):
        def fit(self, X, y):
            self.threads_ = set(blas_threads().values())
            return super().fit(X, y)

    phi, y = problem()
    with threadpool_limits(2, user_api="blas"):
        assert fit_estimator(Spy(), phi, y, seed=0, code=Code.single()).threads_ == {1}
