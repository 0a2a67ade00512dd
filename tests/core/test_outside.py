"""Outside the bounds: predictions are those of the nearest row inside, or extrapolated on request."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

from expunge import Code, CodedRegressor, Powers, RandomFourier
from expunge.encoding.bounds import Bounds, parse_bounds
from expunge.errors import InvalidSetting

from support.models import state_of
from support.strategies import regressors, tables


@pytest.fixture
def table(rng):
    return rng.uniform(-1, 1, (80, 3)), rng.uniform(-1, 1, 80)


@settings(max_examples=80)
@given(regressors(), tables(), st.integers(0, 2**20), st.sampled_from([1.0, 1.5, 1e3, 1e150]))
def test_a_prediction_is_that_of_the_nearest_row_inside(estimator, table, seed, factor):
    X, y = table
    model = estimator.set_params(outside="clamp").fit(X, y)
    far = np.random.default_rng(seed).uniform(-factor, factor, X.shape)
    low, high = model.bounds_.low, model.bounds_.high
    inside = np.array([[min(max(v, a), b) for v, a, b in zip(row, low, high, strict=True)] for row in far.tolist()])
    assert model.predict(far).tobytes() == model.predict(inside).tobytes()
    assert model.outside_rows(far).tolist() == [any(a != b) for a, b in zip(far, inside, strict=True)]
    assert not model.outside_rows(X).any()


@settings(max_examples=40)
@given(regressors(), tables())
def test_inside_the_bounds_predictions_are_only_moved_to_the_nearest_target_inside(estimator, table):
    X, y = table
    estimator.set_params(target_bounds=None, keep="rows")
    clamped, extrapolated = (clone(estimator).set_params(outside=o).fit(X, y) for o in ("clamp", "extrapolate"))
    nearest = np.clip(extrapolated.predict(X), y.min(axis=0), y.max(axis=0))
    assert clamped.predict(X).tobytes() == nearest.tobytes()


@pytest.mark.parametrize("factor", [0.5, 2.0, 100.0])
@pytest.mark.parametrize("bounds", [None, (-1, 1), "unit"])
def test_extrapolation_is_what_the_formula_gives(table, bounds, factor):
    X, y = table
    model = CodedRegressor(bounds=bounds, target_bounds=(-2, 2), outside="extrapolate", random_state=0).fit(X, y)
    low, high = (0.0, 1.0) if bounds == "unit" else (model.bounds_.low, model.bounds_.high)
    t, W = (factor * X - low) / (high - low), np.mean(state_of(model).ensemble.models, axis=0)[:, 0]
    expected = -2 + 4 * (t @ W[:-1] + W[-1])
    np.testing.assert_allclose(model.predict(factor * X), expected, rtol=1e-9)
    np.testing.assert_allclose(factor * X @ model.coef_ + model.intercept_, expected, rtol=1e-9, atol=1e-9)


def test_one_far_input_does_not_spoil_a_prediction(rng):
    """A test row with an input at twice its bound was predicted at many times the highest target."""
    X = rng.random((300, 2))
    y = X[:, 0] ** 2 + rng.normal(0, 0.3, 300)
    near, far = [[0.5, X[:, 1].max()]], [[0.5, 2.0]]
    given = {"features": Powers(4), "alpha": 1e-9, "code": Code.single(), "random_state": 0}
    clamped, wild = (CodedRegressor(outside=o, **given).fit(X, y) for o in ("clamp", "extrapolate"))
    assert clamped.predict(far) == clamped.predict(near) == wild.predict(near) == pytest.approx(0.25, abs=0.25)
    assert abs(wild.predict(far)[0] - 0.25) > 1.0


SEEN = None  # as far as the rows go
TARGETS = [
    (None, SEEN, SEEN),
    ((-0.25, 0.25), (-0.25, 0.25), (-0.25, 0.25)),
    (([-0.25, None], [0.25, None]), (-0.25, 0.25), SEEN),
    (([None, -0.25], [None, 0.5]), SEEN, (-0.25, 0.5)),
    ("unit", (-1, 1), (-1, 1)),
]


@pytest.mark.parametrize(("target_bounds", "first", "second"), TARGETS)
def test_predictions_stay_inside_the_bounds_of_the_targets(rng, target_bounds, first, second):
    X = rng.uniform(-1, 1, (60, 3))
    y = rng.uniform(-0.25, 0.25, (60, 2))
    first, second = ((y[:, j].min(), y[:, j].max()) if ends is SEEN else ends for j, ends in enumerate((first, second)))
    features = RandomFourier(55, scale=2.0, random_state=1)
    given = {"target_bounds": target_bounds, "alpha": 0.0, "features": features, "code": Code.single()}
    clamped, free = (CodedRegressor(outside=o, **given).fit(X, y) for o in ("clamp", "extrapolate"))
    unseen = rng.uniform(clamped.bounds_.low, clamped.bounds_.high, (500, 3))
    wild = free.predict(unseen)
    expected = np.column_stack([np.clip(column, *ends) for column, ends in zip(wild.T, (first, second), strict=True)])
    assert (np.abs(wild) > 1).any(axis=0).all()  # with hardly fewer features than rows, least squares is wild
    np.testing.assert_array_equal(clamped.predict(unseen), expected)


def test_an_estimators_predictions_are_clamped_too(rng):
    X = rng.random((60, 1))
    model = CodedRegressor(
        learner=LinearRegression(), code=Code.uncoded(2), bounds=(0, 1), target_bounds=(0, 3), random_state=0
    ).fit(X, 3 * X[:, 0])
    np.testing.assert_allclose(model.predict([[-5.0], [0.5], [7.0]]), [0.0, 1.5, 3.0], atol=1e-9)


def test_observed_bounds_are_those_in_force(table):
    X, y = table
    X[7, 1] = 5.0
    model = CodedRegressor(random_state=0).fit(X, y)
    row = np.array([[0.0, 4.0, 0.0]])
    assert model.outside_rows(row).tolist() == [False]
    model.unlearn(7)
    assert model.outside_rows(row).tolist() == [True]
    nearest = [[0.0, np.delete(X[:, 1], 7).max(), 0.0]]
    assert model.predict(row).tobytes() == model.predict(nearest).tobytes()


def test_a_value_on_a_bound_is_inside_and_a_constant_column_has_one_value(rng):
    X = rng.random((30, 2))
    X[:, 1] = 3.0
    model = CodedRegressor(bounds=([0, 3], [1, 3]), random_state=0).fit(X, rng.random(30))
    rows = [[0.0, 3.0], [1.0, 3.0], [-1e-300, 3.0], [np.nextafter(1, 2), 3.0], [0.5, 3.5]]
    assert model.outside_rows(rows).tolist() == [False, False, True, True, True]


def test_the_mask_is_counted_in_blocks(monkeypatch, rng):
    bounds = Bounds.from_pair((0, 1), 2, name="bounds")
    X = rng.uniform(-0.2, 1.2, (50, 2))
    expected = [not all(0 <= v <= 1 for v in row) for row in X.tolist()]
    for block in (1, 7, 50, 1000):
        monkeypatch.setattr("expunge.encoding.bounds._ROWS_PER_BLOCK", block)
        assert bounds.outside_rows(X).tolist() == expected
    assert bounds.outside_rows(X[:0]).shape == (0,)


def test_clamping_makes_new_rows_and_leaves_what_is_to_be_observed():
    rows = np.array([[9.0, 9.0], [-9.0, 0.5]])
    before = rows.copy()
    assert Bounds.from_pair(([0, None], [1, None]), 2, name="b").clamp(rows).tolist() == [[1.0, 9.0], [0.0, 0.5]]
    assert parse_bounds("unit", 2, name="b").clamp(rows).tolist() == [[1.0, 1.0], [-1.0, 0.5]]
    assert rows.tobytes() == before.tobytes()


def test_predictions_in_their_own_units_are_new_arrays_and_may_be_cut_from_others(table):
    X, y = table
    encoder = state_of(CodedRegressor(shards=1, rate=1, random_state=0).fit(X, y)).ensemble.encoder
    scaled = np.linspace(0, 1, 12).reshape(4, 3)
    before = scaled.copy()
    own = encoder.unscale(scaled[:, 1:2])
    np.testing.assert_array_equal(own, np.clip(before[:, 1:2] * (y.max() - y.min()) + y.min(), y.min(), y.max()))
    np.testing.assert_array_equal(scaled, before)


def test_what_is_predicted_outside_is_in_the_digest(table):
    X, y = table
    ends = (X.min(axis=0), X.max(axis=0))
    digests = {
        CodedRegressor(outside=outside, bounds=bounds, target_bounds=target_bounds, random_state=0).fit(X, y).digest()
        for outside in ("clamp", "extrapolate")
        for bounds in (None, ends)
        for target_bounds in (None, (y.min(), y.max()))
    }
    assert len(digests) == 2  # whether bounds were declared says nothing of predictions


@pytest.mark.parametrize("outside", ["clip", None, True, ["clamp"]])
def test_another_word_is_refused(table, outside):
    with pytest.raises(InvalidSetting, match=r"outside must be one of \('clamp', 'extrapolate'\), got"):
        CodedRegressor(outside=outside).fit(*table)


def test_outside_rows_wants_a_fitted_model_and_its_columns(table):
    with pytest.raises(NotFittedError):
        CodedRegressor().outside_rows([[1.0]])
    model = CodedRegressor(random_state=0).fit(*table)
    with pytest.raises(ValueError, match="features"):
        model.outside_rows([[1.0]])
    with pytest.raises(ValueError, match="NaN"):
        model.outside_rows([[1.0, np.nan, 0.0]])
