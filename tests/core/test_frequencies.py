"""The kernels that random Fourier features approximate, and the inputs that they use."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest, norm
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.metrics.pairwise import laplacian_kernel

import expunge.encoding.fourier as fourier
from expunge import CodedRegressor, RandomFourier
from expunge.encoding.frequencies import Frequencies
from expunge.errors import InvalidSetting
from expunge.transformers import Identity

KERNELS = {
    "gaussian": RBF(),
    "laplacian": lambda x, y: laplacian_kernel(x, y, gamma=1.0),
    "exponential": Matern(nu=0.5),
    "matern32": Matern(nu=1.5),
    "matern52": Matern(nu=2.5),
}
D = 100_000
SPREAD = 5 * math.sqrt(0.5 / D)  # five standard errors of a mean of 2 cos cos, whose variance is at most 1/2


def draw_map(d, features=D, seed=0, **parameters):
    return RandomFourier(features, random_state=seed, **parameters).fit(np.zeros((1, d)))


def approximate_kernel(model, x, y):
    """Return the kernel that cosines approximate: twice the mean of their products."""
    count = model.n_features
    return 2 * model.transform(x)[:, :count] @ model.transform(y)[:, :count].T / count


@pytest.fixture
def points():
    return np.random.default_rng(1).uniform(0, 1, (2, 6, 3))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_products_of_features_approximate_the_closed_form(points, kernel, scale):
    x, y = points
    expected = KERNELS[kernel](scale * x, scale * y)
    assert np.abs(approximate_kernel(draw_map(3, kernel=kernel, scale=scale), x, y) - expected).max() < SPREAD


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_default_scale_is_the_papers(points, kernel):
    x, y = points
    expected = KERNELS[kernel](x / math.sqrt(6), y / math.sqrt(6))
    assert np.abs(approximate_kernel(draw_map(3, kernel=kernel), x, y) - expected).max() < SPREAD


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_scale_per_input_stretches_it(points, kernel):
    x, y = points
    scale = np.array([0.5, 4.0, 0.0])
    expected = KERNELS[kernel](x * scale, y * scale)
    for form in (scale, scale.tolist(), tuple(scale)):
        assert np.abs(approximate_kernel(draw_map(3, kernel=kernel, scale=form), x, y) - expected).max() < SPREAD


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_matrix_turns_and_stretches_the_inputs(points, kernel):
    x, y = points
    scale = np.array([[1.0, -2.0, 0.5], [0.3, 0.0, 1.0], [0.0, 1.5, -1.0]])
    expected = KERNELS[kernel](x @ scale, y @ scale)
    for form in (scale, scale.tolist()):
        assert np.abs(approximate_kernel(draw_map(3, kernel=kernel, scale=form), x, y) - expected).max() < SPREAD


@pytest.mark.parametrize("scales", [None, 2.0, [[0.5, 4.0, 0.0], [2.0, 0.0, 1.0]], [np.eye(3), 3.0 * np.eye(3)[::-1]]])
def test_features_of_several_kernels_approximate_their_mean(points, scales):
    x, y = points
    given = scales if isinstance(scales, list) else [scales] * 2
    kernels = ["laplacian", "gaussian"]
    expected = np.mean(
        [approximate_kernel(draw_map(3, kernel=k, scale=s), x, y) for k, s in zip(kernels, given, strict=True)], axis=0
    )
    model = draw_map(3, kernel="laplacian+gaussian", scale=np.array(scales) if isinstance(scales, list) else scales)
    assert np.abs(approximate_kernel(model, x, y) - expected).max() < 2 * SPREAD


@pytest.mark.parametrize("count", [1, 2, 7])
def test_kernels_take_turns(count):
    model = draw_map(2, count, kernel="gaussian+matern52+gaussian", scale=[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    looks = (model.projection_ != 0).T.tolist()
    assert looks == [[[True, False], [True, True], [False, True]][j % 3] for j in range(count)]


def test_several_kernels_with_an_order_each_follow_it():
    model = draw_map(4, 12, kernel="gaussian+laplacian", order=2)
    assert np.count_nonzero(model.projection_, axis=0).tolist() == [1, 1, 2, 2] * 3


def test_a_number_an_array_and_a_diagonal_matrix_are_one_draw():
    number, array, matrix = (draw_map(4, 50, seed=3, scale=scale) for scale in (2.0, np.full(4, 2.0), 2.0 * np.eye(4)))
    np.testing.assert_array_equal(number.projection_, array.projection_)
    np.testing.assert_allclose(number.theta_, matrix.theta_, rtol=1e-12)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize("scale", [None, 3.0])
def test_the_first_parameters_draw_what_they_always_drew(kernel, scale):
    rng = np.random.default_rng(11)
    base = rng.standard_normal((5, 40)) if kernel == "gaussian" else rng.standard_cauchy((5, 40))
    size = 1 / np.sqrt(2 * 5) if scale is None else scale
    expected = fourier._round_to_grid(base * (size / (2 * np.pi)), rng.uniform(-0.5, 0.5, 40))
    model = draw_map(5, 40, seed=11, kernel=kernel, scale=scale)
    for got, want in zip((model.projection_, model.phases_, model.exponents_), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@settings(max_examples=50)
@given(
    st.sampled_from(list(KERNELS)),
    st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=1, max_size=6).filter(any),
    st.sampled_from([None, 1, 2, 3]),
    st.booleans(),
    st.integers(0, 99),
)
def test_an_input_of_scale_zero_has_no_influence_on_a_cosine(kernel, scale, order, linear, seed):
    model = draw_map(len(scale), 12, seed, kernel=kernel, scale=scale, order=order, linear=linear)
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (5, len(scale)))
    other = np.where(np.array(scale) == 0.0, rng.uniform(-1, 1, x.shape), x)
    assert model.transform(x)[:, :12].tobytes() == model.transform(other)[:, :12].tobytes()
    assert not model.projection_[np.array(scale) == 0.0].any()


def test_an_input_without_relevance_changes_no_prediction(rng):
    X, y = rng.random((80, 3)), rng.random(80)
    model = CodedRegressor(features=RandomFourier(20, scale=[1.0, 0.0, 2.0]), random_state=0).fit(X, y)
    other = X.copy()
    other[:, 1] = rng.random(80)
    assert model.predict(X).tobytes() == model.predict(other).tobytes()


@settings(max_examples=60)
@given(st.integers(1, 8), st.integers(1, 6), st.sampled_from(list(KERNELS)), st.integers(0, 99), st.data())
def test_each_feature_looks_at_as_many_inputs_as_its_order_says(d, order, kernel, seed, data):
    scale = data.draw(
        st.none() | st.just(2.0) | st.lists(st.sampled_from([0.0, 1.0]), min_size=d, max_size=d).filter(any)
    )
    relevant = d if not isinstance(scale, list) else sum(s > 0 for s in scale)
    model = draw_map(d, 25, seed, kernel=kernel, scale=scale, order=order)
    looks = np.count_nonzero(model.projection_, axis=0)
    assert looks.tolist() == [min(1 + j % order, relevant) for j in range(25)]


def test_the_order_holds_with_a_matrix_too():
    scale = np.array([[1.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, -3.0, 0.0, 0.0]])
    model = draw_map(4, 60, scale=scale, order=2)
    assert np.count_nonzero(model.projection_, axis=0).tolist() == [1, 2] * 30
    assert not model.projection_[1].any()


def test_the_inputs_that_a_feature_looks_at_are_drawn_evenly():
    model = draw_map(5, 30_000, scale=[1.0, 1.0, 0.0, 1.0, 1.0], order=2)
    looks = model.projection_ != 0
    alone = looks[:, ::2].sum(axis=1)
    assert chisquare(alone[[0, 1, 3, 4]]).pvalue > 1e-3
    pairs = pd.Series(map(tuple, np.argwhere(looks[:, 1::2].T)[:, 1].reshape(-1, 2).tolist())).value_counts()
    assert len(pairs) == 6
    assert chisquare(pairs.to_numpy()).pvalue > 1e-3


def test_the_default_scale_counts_the_inputs_that_a_feature_looks_at():
    model = draw_map(5, 12_000, order=3)
    for k in (1, 2, 3):
        theta = model.theta_[:, k - 1 :: 3]
        assert kstest(theta[theta != 0], norm(scale=1 / math.sqrt(2 * k)).cdf).pvalue > 1e-3


def test_an_order_of_one_is_a_sum_of_kernels_of_single_inputs(points):
    x, y = points
    expected = np.mean([RBF()(x[:, [j]], y[:, [j]]) for j in range(3)], axis=0)
    assert np.abs(approximate_kernel(draw_map(3, scale=1.0, order=1), x, y) - expected).max() < SPREAD


@settings(max_examples=30)
@given(st.sampled_from(list(KERNELS)), st.integers(1, 5), st.sampled_from([1.0, 2.0**20, 2.0**36]), st.integers(0, 99))
def test_linear_features_are_the_inputs_after_the_same_cosines(kernel, d, unit, seed):
    x = np.random.default_rng(seed).uniform(-1, 1, (9, d))
    both, cosines = (draw_map(d, 6, seed, kernel=kernel, linear=linear) for linear in (True, False))
    got = both.map_block(x, unit)
    assert both.n_out == got.shape[1] == 6 + d
    assert np.ascontiguousarray(got[:, :6]).tobytes() == cosines.map_block(x, unit).tobytes()
    assert np.ascontiguousarray(got[:, 6:]).tobytes() == Identity().fit(x).map_block(x, unit).tobytes()


def test_linear_features_have_the_inputs_names():
    frame = pd.DataFrame({"age": [0.1, 0.2], "income": [0.5, 0.9]})
    names = RandomFourier(2, linear=True, random_state=0).fit(frame).get_feature_names_out()
    assert names.tolist() == ["randomfourier0", "randomfourier1", "age", "income"]


def test_a_straight_line_is_learned_with_linear_features(rng):
    X = rng.random((200, 3))
    y = X @ [3.0, -2.0, 1.0] + 5
    model = CodedRegressor(features=RandomFourier(30, scale=20.0, linear=True), alpha=1e-9, random_state=0)
    np.testing.assert_allclose(model.fit(X, y).predict(X), y, atol=1e-4)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"kernel": "matern"}, "kernel must be one of 'gaussian', 'laplacian', 'exponential', 'matern32', 'matern52'"),
        ({"kernel": ["gaussian"]}, "kernel must be one of"),
        ({"kernel": "gaussian+"}, r"or several joined by \+, got 'gaussian\+'"),
        ({"kernel": "gaussian+gaussian", "scale": [1.0]}, "an entry for each of 2 kernels"),
        ({"kernel": "gaussian+gaussian", "scale": np.array(1.0)}, "an entry for each of 2 kernels"),
        ({"kernel": "gaussian+gaussian", "scale": [[1.0], np.ones((3, 3))]}, r"got shape \(1,\)"),
        ({"kernel": "gaussian+gaussian", "scale": [[1.0, 1.0], [0.0, 0.0]]}, "not all 0"),
        ({"kernel": "gaussian+gaussian", "scale": np.ones((2, 3))}, r"for 2 scaled inputs here, got shape \(3,\)"),
        ({"linear": 1}, "linear must be True or False, got 1"),
        ({"order": 0}, "order must be a whole number of at least 1, got 0"),
        ({"order": 1.5}, "order must be a whole number"),
        ({"order": True}, "order must be a whole number"),
        ({"scale": []}, "not all 0"),
        ({"scale": [1.0]}, r"one number per input or a matrix, for 2 scaled inputs here, got shape \(1,\)"),
        ({"scale": np.ones((2, 3))}, r"got shape \(2, 3\)"),
        ({"scale": np.ones((3, 3))}, r"got shape \(3, 3\)"),
        ({"scale": np.ones((2, 2, 2))}, r"scale must be .* got an array of shape \(2, 2, 2\)"),
        ({"scale": np.array(2.0)}, r"scale must be .* got an array of shape \(\)"),
        ({"scale": [1.0, [2.0]]}, "scale must be"),
        ({"scale": ["1", "2"]}, "scale must be"),
        ({"scale": [True, False]}, "scale must be"),
        ({"scale": [1.0, None]}, "scale must be"),
        ({"scale": [0.0, 0.0]}, "not all 0"),
        ({"scale": np.zeros((2, 2))}, "not all 0"),
        ({"scale": [1.0, -1.0]}, "numbers of 0 or more, less than 1e9"),
        ({"scale": [1.0, 1e9]}, "less than 1e9"),
        ({"scale": [1.0, math.nan]}, "less than 1e9"),
        ({"scale": [[1.0, 0.0], [0.0, -1e9]]}, "numbers between -1e9 and 1e9"),
        ({"scale": [[1.0, 0.0], [0.0, math.inf]]}, "between -1e9 and 1e9"),
    ],
    ids=repr,
)
def test_a_bad_parameter_is_refused_before_anything_is_drawn(parameters, reason):
    for use in (
        lambda: RandomFourier(3, **parameters).fit(np.zeros((1, 2))),
        lambda: RandomFourier(3, **parameters).draw_copy(2, np.random.default_rng(0)),
        lambda: RandomFourier(3, **parameters).restore(2, draw_map(2, 3).arrays()),
        lambda: CodedRegressor(features=RandomFourier(3, **parameters)).fit(np.eye(6, 2), np.ones(6)),
    ):
        with pytest.raises(InvalidSetting, match=reason):
            use()


def test_a_scale_counts_the_scaled_columns_and_not_the_inputs(rng):
    X, y = rng.random((40, 2)), rng.random(40)
    scales = ["linear", ["linear", "log"]]
    with pytest.raises(InvalidSetting, match="for 3 scaled inputs here"):
        CodedRegressor(scales=scales, features=RandomFourier(5, scale=[1.0, 2.0])).fit(X, y)
    model = CodedRegressor(scales=scales, features=RandomFourier(5, scale=[1.0, 2.0, 0.0])).fit(X, y)
    assert model.features_.projection_.shape == (3, 5)


@pytest.mark.parametrize(
    ("parameters", "others"),
    [
        ({"scale": [1.0, 0.0]}, {"scale": [0.0, 1.0]}),
        ({"scale": np.array([[1.0, 1.0], [0.0, 0.0]])}, {"scale": [0.0, 1.0]}),
        ({"order": 1}, {}),
        ({"scale": [1.0, 0.0]}, {}),
        ({"kernel": "gaussian+gaussian", "scale": [[1.0, 0.0], [1.0, 1.0]]},)
        + ({"kernel": "gaussian+gaussian", "scale": [[1.0, 1.0], [1.0, 0.0]]},),
    ],
    ids=repr,
)
def test_a_projection_that_its_parameters_cannot_have_drawn_is_not_restored(parameters, others):
    with pytest.raises(InvalidSetting, match="uses inputs that scale or order exclude"):
        RandomFourier(3, **parameters).restore(2, draw_map(2, 3, **others).arrays())


def test_a_chi_square_of_nothing_is_no_frequency_without_end():
    class Nothing(np.random.Generator):
        def chisquare(self, df, size=None):
            return np.zeros(size)

    rng = Nothing(np.random.PCG64(0))
    model = RandomFourier(4, kernel="exponential", scale=9e8).draw_copy(3, rng)
    again = RandomFourier(4, kernel="exponential", scale=9e8).restore(3, model.arrays())
    assert np.isfinite(again.transform(np.ones((2, 3)))).all()


def test_a_map_says_what_it_is_on_one_line():
    plain = fourier.RandomFourierMap
    assert repr(plain(5, scale=[1.0, 2.0], linear=True)) == "RandomFourier(n_features=5, scale=[1.0, 2.0], linear=True)"
    assert len(repr(plain(5, scale=np.eye(300)))) < 120
    assert "\n" not in repr(plain(5, scale=np.eye(3)))


def test_frequencies_for_no_particular_map():
    turns = Frequencies.parse("gaussian", None, None, 4).draw(2000, np.random.default_rng(0))
    assert kstest(2 * np.pi * turns.ravel(), norm(scale=1 / math.sqrt(8)).cdf).pvalue > 1e-3
