"""Scales agree with logarithms in 60 digits and straight lines in fractions, exactly where promised."""

import math
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from expunge import Code, CodedRegressor, RandomFourier
from expunge.encoding.bounds import Bounds, parse_bounds
from expunge.encoding.scales import MAX_KNOTS, Curves, Scales, log2_of_one_plus
from expunge.errors import InvalidSetting

from support.models import state_of

floats = st.floats(-1e150, 1e150)
DIGITS = Context(prec=60)


def make_bounds(low, high, columns=1):
    return Bounds.from_pair((low, high), columns, name="bounds")


def scale_value(x, scale, low, high):
    """Return one value of one input on one scale."""
    return Scales.parse([scale], 1).scale(np.array([[float(x)]]), make_bounds(low, high)).item()


def exact_log(x, low, high):
    """sign(t) log(1 + c |t|) / log(1 + c), to 50 digits."""
    x, low, high = Fraction(x), Fraction(low), Fraction(high)
    t = (x - low) / (high - low)
    c = high / low - 1 if low > 0 else Fraction(1023)
    top, bottom = (_ln(1 + c * size) for size in (abs(t), 1))
    return math.copysign(1, t) * float(DIGITS.divide(top, bottom))


def _ln(fraction):
    return DIGITS.ln(DIGITS.divide(Decimal(fraction.numerator), Decimal(fraction.denominator)))


def exact_pieces(x, knots):
    """The piecewise linear map, as a fraction."""
    x, knots = Fraction(x), [Fraction(knot) for knot in knots]
    if x <= knots[0]:
        return Fraction(0)
    for i, (left, right) in enumerate(pairwise(knots)):
        if x <= right:
            return (i + (x - left) / (right - left)) / (len(knots) - 1)
    return Fraction(1)


KNOTS = st.lists(floats, min_size=2, max_size=8, unique_by=lambda knot: knot + 0.0).map(sorted)


@settings(max_examples=300)
@given(st.lists(st.floats(1e-100, 1e100), min_size=3, max_size=3))
def test_a_log_scale_is_a_logarithm(values):
    low, x, high = sorted(values)
    assume(low < high)
    assert abs(scale_value(x, "log", low, high) - exact_log(x, low, high)) <= 1e-15


@settings(max_examples=300)
@given(st.lists(floats, min_size=2, max_size=2), st.floats(-3, 3))
def test_a_log_scale_without_a_low_end_above_zero_goes_over_ten_doublings(values, t):
    low, high = sorted(values)
    assume(low <= 0 and high - low > 1e-290)
    x = low + t * (high - low)
    expected = exact_log(x, low, high)
    assert abs(scale_value(x, "log", low, high) - expected) <= 1e-15 * max(1, abs(expected))


@settings(max_examples=100)
@given(st.floats(1.0, 1e6), st.floats(1e-12, 1e-3), st.floats(0, 1))
def test_a_log_scale_of_a_narrow_range_is_as_exact(low, share, t):
    high = low * (1 + share)
    assume(low < high)
    x = min(high, low + t * (high - low))
    assert abs(scale_value(x, "log", low, high) - exact_log(x, low, high)) <= 1e-15


def test_whole_doublings_have_whole_logarithms():
    assert log2_of_one_plus(2.0 ** np.arange(60) - 1).tolist() == list(range(60))
    assert log2_of_one_plus(np.array([2.0**900])).tolist() == [900.0]
    ends = make_bounds(1, 1024)
    values = Scales.parse("log", 1).scale(2.0 ** np.arange(11)[:, None], ends)
    assert np.abs(values[:, 0] - np.arange(11) / 10).max() <= 2e-16


@settings(max_examples=200)
@given(st.lists(floats, min_size=3, max_size=3), st.sampled_from(["linear", "log"]))
def test_the_bounds_are_exactly_zero_and_one_and_nothing_between_is_beyond(values, scale):
    low, x, high = sorted(values)
    assume(high - low > 1e-290)
    assert (scale_value(low, scale, low, high), scale_value(high, scale, low, high)) == (0.0, 1.0)
    assert 0.0 <= scale_value(x, scale, low, high) <= 1.0


def test_before_one_a_logarithm_is_not_beyond_one():
    n = 20_000
    bounds = make_bounds(1.0, 1 + np.random.default_rng(0).uniform(0, 0.5, n), n)
    curves = Curves(["log"] * n, np.arange(n), bounds)
    assert curves._log(np.full((1, n), 1 - 2.0**-53)).max() <= 1.0


@settings(max_examples=300)
@given(KNOTS, st.data())
def test_knots_are_a_piecewise_linear_map(knots, data):
    x = data.draw(st.sampled_from(knots) | floats | st.floats(knots[0], knots[-1]))
    value = scale_value(x, knots, -1e151, 1e151)
    assert abs(value - float(exact_pieces(x, knots))) <= 1e-15
    assert 0.0 <= value <= 1.0


@settings(max_examples=200)
@given(KNOTS)
def test_a_value_on_a_knot_is_exact(knots):
    m = len(knots) - 1
    values = Scales.parse([knots], 1).scale(np.array(knots)[:, None], make_bounds(-1e151, 1e151))
    assert values[:, 0].tolist() == [i / m for i in range(m + 1)]
    ends = Scales.parse([knots], 1).scale(np.array([[-1e151], [1e151]]), make_bounds(-1e151, 1e151))
    assert ends[:, 0].tolist() == [0.0, 1.0]


@settings(max_examples=200)
@given(st.lists(floats, min_size=2, max_size=2), KNOTS, st.sampled_from(["linear", "log", "knots"]))
def test_a_scale_keeps_the_order(pair, knots, scale):
    a, b = sorted(pair)
    values = [scale_value(x, knots if scale == "knots" else scale, -1e151, 1e151) for x in (a, b)]
    assert values[0] <= values[1] + (4e-16 if scale == "log" else 0.0)


def test_the_largest_number_of_knots_and_columns_of_different_lengths():
    many = np.cumsum(np.random.default_rng(0).random(MAX_KNOTS) + 1e-3).tolist()
    few = [2.0, 3.0, 90.0]
    X = np.random.default_rng(1).uniform(-5, 150, (300, 2))
    values = Scales.parse([many, few], 2).scale(X, make_bounds(-5, 150, 2))
    for j, knots in enumerate((many, few)):
        expected = [float(exact_pieces(x, knots)) for x in X[:, j].tolist()]
        np.testing.assert_allclose(values[:, j], expected, rtol=0, atol=1e-15)


MIXED = ["linear", ["log", "linear"], [[0, 1, 5, 20], "log"], [-3.0, 0.5, 2.0]]


def test_several_scales_of_an_input_stand_side_by_side(rng):
    X = rng.lognormal(size=(50, 4))
    low, high = np.array([0.0, 1e-3, 0.0, -1.0]), np.full(4, 30.0)
    got = Scales.parse(MIXED, 4).scale(X, make_bounds(low, high, 4))
    single = [(0, "linear"), (1, "log"), (1, "linear"), (2, [0, 1, 5, 20]), (2, "log"), (3, [-3.0, 0.5, 2.0])]
    assert Scales.parse(MIXED, 4).source.tolist() == [j for j, _ in single]
    for column, (j, scale) in zip(got.T, single, strict=True):
        alone = Scales.parse([scale], 1).scale(X[:, [j]], make_bounds(low[j], high[j]))
        assert column.tobytes() == alone[:, 0].tobytes()


def test_neither_the_company_nor_the_layout_of_a_row_shows(rng):
    X = rng.lognormal(size=(203, 4))
    scale = Scales.parse(MIXED, 4).scaler(make_bounds([0.0, 1e-3, 0.0, -1.0], 30.0, 4))
    whole, before = scale(X), X.copy()
    assert scale(X[::-1])[::-1].tobytes() == whole.tobytes()
    assert scale(np.asfortranarray(X)).tobytes() == whole.tobytes()
    for i in range(0, 203, 29):
        assert scale(X[i : i + 1]).tobytes() == whole[i : i + 1].tobytes()
    assert X.tobytes() == before.tobytes()


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324, 0.0])
@pytest.mark.parametrize("low", [5e-324, 1e-300, 1.0, -1e-300])
def test_any_finite_input_has_a_finite_value_on_every_scale(value, low):
    values = Scales.parse([["log", [-1.0, 1.0], "log"]], 1).scale(np.array([[value]]), make_bounds(low, 2.0))
    assert np.isfinite(values).all()


@pytest.mark.parametrize("scale", ["linear", "log", [0.0, 1.0, 9.0], ["linear", "log", [0.0, 5.0]]])
@pytest.mark.parametrize("constant", [0.0, 3.0, -3.0])
def test_a_constant_column_is_zero_on_every_scale(scale, constant):
    values = Scales.parse([scale, "log"], 2).scale(
        np.array([[3.0, 1.0], [8.0, 2.0]]), make_bounds([constant, 1], [constant, 2], 2)
    )
    assert not values[:, :-1].any()
    assert values[:, -1].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("spec", [None, "linear", ["linear"] * 3, (["linear"], "linear", ("linear",))])
def test_plain_scales_are_the_bounds_own(spec):
    scales, bounds = Scales.parse(spec, 3), make_bounds(0, 2, 3)
    assert scales.plain
    assert scales == Scales.parse(None, 3)
    assert (scales.spec(), scales.n_out) == (None, 3)
    assert scales.scaler(bounds) == bounds.scale


ENTRY = st.sampled_from(["linear", "log"]) | KNOTS
SPECS = st.lists(ENTRY | st.lists(ENTRY, min_size=1, max_size=3), min_size=1, max_size=4)


@settings(max_examples=100)
@given(SPECS)
def test_what_scales_say_of_themselves_makes_them_again(spec):
    scales = Scales.parse(spec, len(spec))
    assert Scales.parse(scales.spec(), len(spec)) == scales
    assert scales.n_out == len(scales.source) == sum(map(len, scales.by_input))
    assert scales.plain == all(entry in ("linear", ["linear"]) for entry in spec)


def test_arrays_and_tuples_and_other_numbers_are_knots():
    same = [[[0.0, 0.5, 2.0], "log"]]
    for entry in (
        ((0, Fraction(1, 2), 2), "log"),
        [np.array([0, 0.5, 2]), "log"],
        [[-0.0, Decimal("0.5"), np.int8(2)], "log"],
    ):
        assert Scales.parse([entry], 1) == Scales.parse(same, 1)
    assert Scales.parse([np.array([[0.0, 1.0], [0.0, 2.0]])], 1) == Scales.parse([[[0.0, 1.0], [0.0, 2.0]]], 1)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("sqrt", r"scales must be 'linear', 'log' or a list of knots, or a list of these, got 'sqrt'"),
        ("", "scales must be"),
        (7, r"scales must be None, .* one entry for each of the 2 inputs; got 7"),
        ({"a": "log"}, "scales must be None"),
        (["log"], "2 inputs; got 1 entries"),
        (["log"] * 3, "2 inputs; got 3 entries"),
        (["log", "sqrt"], r"scales\[1\] must be 'linear', 'log' or a list of knots, .*, got 'sqrt'"),
        (["log", None], r"scales\[1\] must be"),
        (["log", 3.0], r"scales\[1\] must be"),
        (["log", []], r"scales\[1\] must be .* got an empty list"),
        (["log", [1.0]], r"scales\[1\] must have 2 to 256 knots, got 1"),
        (["log", list(range(257))], "2 to 256 knots, got 257"),
        ([["log", []], "log"], r"scales\[0\]\[1\] must have 2 to 256 knots, got 0"),
        ([["log", ["log"]], "log"], r"scales\[0\]\[1\] must have 2 to 256 knots, got 1"),
        ([["log", ["log", "log"]], "log"], r"scales\[0\]\[1\]: knots must be finite numbers"),
        ([["log", "sqrt"], "log"], r"scales\[0\]\[1\] must be"),
        (["log", ["log", 3.0]], "knots must be finite numbers"),
        (["log", [1.0, 1.0]], "each larger than the one before"),
        (["log", [2.0, 1.0]], "each larger than the one before"),
        (["log", [0.0, -0.0]], "each larger than the one before"),
        (["log", [0.0, math.nan]], "knots must be finite"),
        (["log", [0.0, math.inf]], "knots must be finite"),
        (["log", [0, 10**400]], "knots must be finite"),
        (["log", [-1.5e308, 1.5e308]], "whose range fits float64"),
    ],
    ids=repr,
)
def test_scales_that_cannot_be_are_refused(spec, reason):
    with pytest.raises(InvalidSetting, match=reason):
        Scales.parse(spec, 2)
    with pytest.raises(InvalidSetting, match=reason):
        CodedRegressor(scales=spec).fit(np.eye(5, 2), np.ones(5))


def test_values_that_are_taken_as_they_are_have_no_other_scale(rng):
    X, y = rng.uniform(-1, 1, (30, 2)), rng.random(30)
    for spec in ("log", ["linear", [0, 1]], ["linear", ["linear", "log"]]):
        with pytest.raises(InvalidSetting, match="bounds='unit' uses the inputs as they are"):
            CodedRegressor(bounds="unit", scales=spec).fit(X, y)
    model = CodedRegressor(code=Code.single(), bounds="unit", scales=["linear", ["linear", "linear"]]).fit(X, y)
    np.testing.assert_allclose(model.weights_[1], model.weights_[2], rtol=1e-9)  # the penalty shares it out
    assert Scales.parse("linear", 2).scale(X, parse_bounds("unit", 2, name="b")) is X


@pytest.mark.parametrize("features", [None, RandomFourier(40, linear=True, random_state=3)])
@pytest.mark.parametrize("bounds", [None, (1e-3, 90.0)])
def test_a_model_with_scales_is_the_model_of_scaled_columns(rng, features, bounds):
    """Against logarithms and interpolation by NumPy, given to a model that scales nothing."""
    X, y = rng.lognormal(size=(200, 3)), rng.random(200)
    low, high = (X.min(axis=0), X.max(axis=0)) if bounds is None else (np.full(3, 1e-3), np.full(3, 90.0))
    t = (X - low) / (high - low)
    columns = [
        np.log(X[:, 0] / low[0]) / np.log(high[0] / low[0]),
        t[:, 1],
        np.interp(X[:, 1], [0.25, 1, 4], [0, 0.5, 1]),
        t[:, 2],
    ]
    given = {"code": Code.single(), "features": features, "target_bounds": (0, 1), "alpha": 1e-2, "random_state": 0}
    ours = CodedRegressor(scales=["log", ["linear", [0.25, 1, 4]], "linear"], bounds=bounds, **given).fit(X, y)
    theirs = CodedRegressor(bounds=(0, 1), **given).fit(np.column_stack(columns), y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(np.column_stack(columns)), atol=1e-8)
    assert ours.n_features_in_ == 3
    assert ours.weights_.shape == theirs.weights_.shape


def test_scales_are_parameters_as_scikit_learn_has_them(rng):
    X, y = rng.lognormal(size=(60, 2)), rng.random(60)
    model = CodedRegressor(scales=["log", np.array([0.0, 1.0, 4.0])], features=RandomFourier(5), random_state=0)
    twin = clone(model)
    assert twin.get_params()["scales"] is not model.scales
    assert twin.fit(X, y).digest() == model.fit(X, y).digest()
    assert clone(model).set_params(scales=None).fit(X, y).digest() != model.digest()


def test_every_difference_of_scales_is_in_the_digest(rng):
    X, y = rng.lognormal(size=(60, 2)), rng.random(60)
    specs = [None, "log", ["log", "linear"], ["linear", "log"], [[0, 1, 2], "log"], [[0, 1, 2.5], "log"]]
    digests = {CodedRegressor(scales=spec, random_state=0).fit(X, y).digest() for spec in specs}
    assert len(digests) == len(specs)
    flags = rng.integers(0, 2, (60, 2)).astype(float)  # all on bounds and on knots: the moments are the same
    on_knots = [CodedRegressor(scales=s, random_state=0).fit(flags, y) for s in (None, [[0, 1], "linear"], "log")]
    assert len({state_of(model).ensemble.fingerprint(0) for model in on_knots}) == 1
    assert len({model.digest() for model in on_knots}) == 3
    same = CodedRegressor(scales=[["linear"], "linear"], random_state=0).fit(X, y).digest()
    assert same == CodedRegressor(random_state=0).fit(X, y).digest()
