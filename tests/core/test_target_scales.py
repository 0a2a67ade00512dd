"""Scales of targets: the logarithm is learned, the target is predicted, and forgetting is exact."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from expunge import CodedRegressor, RandomFourier
from expunge.encoding.bounds import Bounds
from expunge.encoding.scales import Scales, exp2_minus_one
from expunge.errors import InvalidSetting
from expunge.testing import check_unlearning


def amounts(rng, rows=400):
    """Make a table whose inputs change the target by factors."""
    X = rng.random((rows, 3))
    return X, np.exp(2 * X[:, 0] + np.sin(6 * X[:, 1]) + 0.1 * rng.standard_normal(rows))


@settings(max_examples=300)
@given(st.floats(0, 1000))
def test_powers_of_two_are_as_good_as_those_of_the_c_library(x):
    assert exp2_minus_one(np.array([x])).item() == pytest.approx(math.expm1(x * math.log(2)), rel=1e-12, abs=1e-15)


def test_powers_of_two_are_exact_where_they_are_whole_and_end_somewhere():
    whole = np.arange(60.0)
    assert exp2_minus_one(whole).tolist() == [2.0**k - 1 for k in range(60)]
    assert exp2_minus_one(np.array([1e300])).item() == 2.0**1000


@settings(max_examples=300)
@given(st.lists(st.floats(-1e100, 1e100), min_size=2, max_size=2), st.floats(-2, 2))
def test_what_is_scaled_comes_back(ends, t):
    low, high = sorted(ends)
    assume(
        low < high and math.isfinite(high / low if low > 0 else 0) and (high - low) / max(abs(low), abs(high)) > 1e-9
    )
    bounds, scales = Bounds.from_pair((low, high), 1, name="target_bounds"), Scales.parse_targets("log", 1)
    y = float(Fraction(low) + Fraction(t) * (Fraction(high) - Fraction(low)))
    back = bounds.unscale(scales.unscaler(bounds)(scales.scaler(bounds)(np.array([[y]])))).item()
    assert back == pytest.approx(y, rel=1e-12, abs=1e-12 * (high - low))


def test_it_is_the_model_of_the_logarithms(rng):
    X, y = amounts(rng)
    parameters = {"features": RandomFourier(30, random_state=0), "shards": 4, "rate": 2, "random_state": 0}
    ours = CodedRegressor(**parameters, target_scales="log").fit(X, y)
    theirs = CodedRegressor(**parameters).fit(X, np.log(y))
    np.testing.assert_allclose(ours.predict(X), np.exp(theirs.predict(X)), rtol=1e-9)
    np.testing.assert_allclose(ours.weights_, theirs.weights_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("outside", ["clamp", "extrapolate"])
def test_predictions_are_finite_and_the_same_for_one_row_and_for_many(rng, outside):
    X, y = amounts(rng)
    model = CodedRegressor(features=RandomFourier(9), target_scales="log", outside=outside, random_state=0).fit(X, y)
    far = np.vstack([X, 3 * X])
    np.testing.assert_allclose([model.predict(row[None]).item() for row in far], model.predict(far), rtol=1e-9)
    assert np.isfinite(model.predict(1e6 * X)).all()


def test_predictions_stay_inside_the_bounds(rng):
    X, y = amounts(rng)
    predicted = CodedRegressor(alpha=0.0, target_scales="log", random_state=0).fit(X, y).predict(5 * X)
    assert y.min() <= predicted.min()
    assert predicted.max() <= y.max()


@pytest.mark.parametrize(
    ("target_bounds", "keep"), [(None, "rows"), ((0.1, 100), "rows"), ((0.1, 100), "coded"), ((0, 100), "rows")]
)
def test_it_is_forgotten_exactly(rng, target_bounds, keep):
    X, y = amounts(rng, 90)
    model = CodedRegressor(
        shards=4, rate=2, features=RandomFourier(8), bounds=(0, 1), target_bounds=target_bounds, keep=keep,
        target_scales="log", random_state=0,
    )  # fmt: skip
    check_unlearning(model, X, y)


def test_each_target_has_its_own(rng):
    X, y = amounts(rng)
    both = np.column_stack([y, -y])
    model = CodedRegressor(target_scales=["log", "linear"], random_state=0).fit(X, both)
    alone = [CodedRegressor(target_scales="log", random_state=0).fit(X, y), CodedRegressor(random_state=0).fit(X, -y)]
    np.testing.assert_allclose(model.predict(X), np.column_stack([single.predict(X) for single in alone]), rtol=1e-12)
    check_unlearning(model, X[:60], both[:60])


def test_a_saved_model_keeps_it(rng, tmp_path):
    X, y = amounts(rng)
    model = CodedRegressor(target_scales=("log",), random_state=0).fit(X, y)
    model.save(tmp_path / "m.expunge")
    again = CodedRegressor.load(tmp_path / "m.expunge")
    assert again.target_scales == ["log"]
    assert again.digest() == model.digest() != clone(model).set_params(target_scales=None).fit(X, y).digest()
    assert again.predict(X).tobytes() == model.predict(X).tobytes()


def test_a_constant_target_is_predicted(rng):
    X = rng.random((20, 2))
    assert CodedRegressor(target_scales="log").fit(X, np.full(20, 7.0)).predict(X).tolist() == [7.0] * 20


@pytest.mark.parametrize("spec", ["sqrt", "", 3, [], ["log"] * 2, [None], [["log"]], [[0, 1]], {"y": "log"}], ids=repr)
def test_target_scales_that_cannot_be_are_refused(rng, spec):
    X, y = amounts(rng)
    with pytest.raises(InvalidSetting, match="target_scales must be None, 'linear', 'log' or a list with one of these"):
        CodedRegressor(target_scales=spec).fit(X, y)


def test_targets_that_are_taken_as_they_are_have_no_other_scale(rng):
    X = rng.random((20, 2))
    with pytest.raises(InvalidSetting, match="target_bounds='unit' uses the targets as they are, so target_scales"):
        CodedRegressor(target_bounds="unit", target_scales="log").fit(X, X[:, 0])
    CodedRegressor(target_bounds="unit", target_scales="linear").fit(X, X[:, 0])
