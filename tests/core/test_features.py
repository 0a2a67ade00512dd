import hashlib
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import cauchy, kstest, norm, uniform
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import expunge.encoding.fourier as fourier
from expunge import Powers, RandomFourier
from expunge.errors import InvalidSetting
from expunge.exact import arrays as arrays_room
from expunge.transformers import Identity

from support.sampling import examples

KERNELS = ["gaussian", "laplacian", "exponential", "matern32", "matern52"]
MAPS = [
    Identity(),
    Powers(3),
    RandomFourier(7, random_state=0),
    RandomFourier(5, kernel="laplacian", random_state=1),
    RandomFourier(6, kernel="matern32", linear=True, order=2, random_state=2),
    RandomFourier(7, kernel="gaussian+laplacian", random_state=3),
]
unit_floats = st.floats(-1, 1)


def draw_map(d, D=20, seed=0, **settings):
    return RandomFourier(D, random_state=seed, **settings).fit(np.zeros((1, d)))


def exact_turns(model, x):
    """Return the phases of a row in turns, as fractions."""
    grid = [round(Fraction(value) * 2**32) for value in x.tolist()]  # half to even, as rint does
    return [
        Fraction(sum(g * t for g, t in zip(grid, theta, strict=True)) + b) / Fraction(2) ** k
        for theta, b, k in zip(
            model.projection_.T.tolist(), model.phases_.tolist(), model.exponents_.tolist(), strict=True
        )
    ]


PI = Fraction(3141592653589793238462643383279502884197169399375105820974944592307816406286, 10**75)


def exact_cosine(turns):
    """Return cos(2 pi t) by its power series in fractions, to 1e-40."""
    angle = 2 * PI * (turns - round(turns))
    term, total, k = Fraction(1), Fraction(0), 0
    while abs(term) > Fraction(1, 10**40):
        total += term
        k += 2
        term = Fraction(round(-term * angle * angle / ((k - 1) * k) * 2**160), 2**160)  # keeps the fractions short
    return total


CHECKED = [RandomFourier(5, random_state=0), RandomFourier(4, kernel="exponential", linear=True, order=2)]


@parametrize_with_checks([Identity(), Powers(2), *CHECKED])
def test_a_map_is_a_scikit_learn_transformer(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kernel", KERNELS)
def test_features_are_cosines_of_projections(kernel):
    x = np.random.default_rng(0).uniform(-1, 1, (50, 4))
    model = draw_map(4, 300, kernel=kernel)
    phase = x @ model.theta_ + model.offset_
    tolerance = 1e-14 + np.abs(model.theta_).sum(axis=0) * 2.0**-32  # inputs are rounded to 2^-32
    assert (np.abs(model.transform(x) - np.cos(phase)) <= tolerance).all()


@examples(60)
@given(st.integers(1, 6), st.integers(0, 10**6), st.sampled_from(KERNELS),
       st.sampled_from([None, 1e-6, 30.0, 9e8]), st.data())  # fmt: skip
def test_a_phase_is_exact(d, seed, kernel, scale, data):
    model = draw_map(d, 5, seed, kernel=kernel, scale=scale)
    x = data.draw(arrays(np.float64, (3, d), elements=unit_floats))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fourier, "cosines", lambda turns, unit: turns)
        patch.setattr(model, "native", lambda unit: None)
        turns = model.transform(x)
    for row, got in zip(x, turns, strict=True):
        assert [Fraction(t) for t in got.tolist()] == exact_turns(model, row)


@examples(100)
@given(st.integers(1, 40), st.integers(0, 10**6), st.sampled_from(KERNELS),
       st.sampled_from([None, 1e-9, 1.0, 1e4, 9.9e8]))  # fmt: skip
def test_every_drawn_map_is_on_the_finest_grid_that_is_exact(d, seed, kernel, scale):
    model = draw_map(d, 8, seed, kernel=kernel, scale=scale)
    for theta, b, k in zip(
        model.projection_.T.tolist(), model.phases_.tolist(), model.exponents_.tolist(), strict=True
    ):
        size = sum(map(abs, theta)) * 2**32
        assert size + abs(b) < 2**53
        assert size + Fraction(2) ** (k - 1) >= 2**51  # b is up to half a turn
        assert abs(b) <= Fraction(2) ** (k - 1)


def test_rounding_hardly_moves_a_projection():
    rng = np.random.default_rng(3)
    theta, b = rng.standard_normal((8, 200)), rng.uniform(-0.5, 0.5, 200)
    grid_theta, grid_b, k = fourier._round_to_grid(theta, b)
    assert (np.abs(grid_theta * 2.0 ** (32 - k) - theta) <= 2.0 ** (31 - k)).all()
    assert (np.abs(grid_b * 2.0**-k - b) <= 2.0 ** -(k + 1)).all()
    assert k.min() >= 47  # 15 bits of a turn or more


@pytest.mark.parametrize("model", MAPS, ids=repr)
@pytest.mark.parametrize("reach", [1, 40, 1e30])
def test_neither_the_block_size_nor_the_company_shows_in_a_feature(model, reach, monkeypatch):
    x = np.random.default_rng(0).uniform(-1, 1, (203, 6))
    x[::3] *= reach  # beyond 1 phases are rounded, but always alike
    model = clone(model).fit(x)
    whole = model.transform(x)
    for block in (1, 64, 1000, 2**20):
        monkeypatch.setattr("expunge.exact.arrays.NUMBERS_PER_BLOCK", block)
        assert model.transform(x).tobytes() == whole.tobytes()
    for i in (0, 101, 202):
        assert model.transform(x[i : i + 1]).tobytes() == whole[i : i + 1].tobytes()
    assert model.transform(x[::-1])[::-1].tobytes() == whole.tobytes()
    assert model.transform(np.asfortranarray(x)).tobytes() == whole.tobytes()


@examples(50)
@given(st.integers(0, 5000), st.integers(0, 300), st.integers(1, 5000))
def test_blocks_cover_the_rows_once_and_stay_small(rows, width, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("expunge.exact.arrays.NUMBERS_PER_BLOCK", block)
        cuts = list(arrays_room.cut(rows, width))
    assert [i for cut in cuts for i in range(cut.start, cut.stop)] == list(range(rows))
    assert all((cut.stop - cut.start) * width <= max(block, width) for cut in cuts)


def corner_turns():
    dyadic = [Fraction(n, 16) for n in range(-32, 33)]
    near = [t + sign * Fraction(1, 2**k) for t in dyadic for sign in (-1, 1) for k in (20, 40, 49)]
    random_turns = [Fraction(n, 2**50) for n in np.random.default_rng(0).integers(-(2**51), 2**51, 300).tolist()]
    return dyadic + near + random_turns


def test_the_cosine_is_within_its_bound():
    turns = corner_turns()
    got = fourier.cosines(np.array([float(t) for t in turns]), 1.0)
    worst = max(abs(Fraction(g) - exact_cosine(t)) for g, t in zip(got.tolist(), turns, strict=True))
    assert float(worst) <= 5e-16


def test_the_reference_cosine_is_a_cosine():
    for t in (Fraction(0), Fraction(1, 3), Fraction(-7, 5), Fraction(12345, 2**13)):
        assert math.isclose(exact_cosine(t), math.cos(2 * math.pi * (t - round(t))), abs_tol=1e-15)


def test_the_cosine_has_its_symmetries_to_the_last_bit():
    turns = np.array([float(t) for t in corner_turns()])
    cosine = fourier.cosines(turns.copy(), 1.0)
    assert fourier.cosines(-turns, 1.0).tobytes() == cosine.tobytes()
    assert fourier.cosines(turns + 1, 1.0).tobytes() == cosine.tobytes()
    assert fourier.cosines(np.array([0.25, 0.75, -0.25]), 1.0).tolist() == [0.0, 0.0, 0.0]


def test_no_cosine_exceeds_one():
    ends = np.concatenate([np.arange(2**16) * 2.0**-k for k in (16, 30, 40, 52)])
    phi = fourier.cosines(np.concatenate([ends, 0.5 - ends]), 1.0)
    assert np.abs(phi).max() == 1.0


@examples(100)
@given(arrays(np.float64, (4, 3), elements=st.floats(allow_nan=False, allow_infinity=False)),
       st.sampled_from(KERNELS), st.sampled_from([None, 9e8]))  # fmt: skip
def test_any_finite_input_has_finite_features_of_at_most_one(x, kernel, scale):
    phi = draw_map(3, 10, kernel=kernel, scale=scale).transform(x)
    assert np.isfinite(phi).all()
    assert (np.abs(phi) <= 1).all()


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 0.0, -0.0])
def test_extreme_inputs_have_finite_features(value):
    assert np.isfinite(draw_map(2, 50, kernel="laplacian").transform([[value, 1.0]])).all()


@pytest.mark.parametrize("model", MAPS, ids=repr)
@pytest.mark.parametrize("unit", [2.0**20, 2.0**36, 0.5])
def test_a_unit_scales_features_exactly(model, unit):
    x = np.random.default_rng(0).uniform(-1, 1, (30, 3))
    model = clone(model).fit(x)
    assert model.map_block(x, unit).tobytes() == (model.map_block(x) * unit).tobytes()


@pytest.mark.parametrize("model", MAPS, ids=repr)
def test_a_block_is_not_overwritten(model):
    x = np.random.default_rng(0).uniform(-1, 1, (30, 3))
    model, before = clone(model).fit(x), x.copy()
    model.map_block(x)[:] = 9
    assert x.tobytes() == before.tobytes()


def test_the_same_integers_give_the_same_bits_on_every_machine():
    model = RandomFourier(3).restore(
        2,
        {
            "projection": np.array([[300000, -12345, 7], [-99999, 54321, -3]]),
            "phases": np.array([123456789012345, -987654321098765, 5]),
            "exponents": np.array([51, 52, 40]),
        },
    )
    hexes = [[phi.hex() for phi in row] for row in model.transform([[0.1, 0.7], [-1.0, 1 / 3]]).tolist()]
    assert hexes == GOLDEN


GOLDEN = [
    ["0x1.fb598a107015ap-1", "0x1.9b4b9c1d466f4p-2", "0x1.ffb2a1421672bp-1"],
    ["-0x1.bf2dbdff1159bp-1", "0x1.77643da2b13cfp-2", "0x1.f6297cff8480ap-1"],
]


def test_the_cosines_bits_never_change():
    turns = np.arange(-(2**14), 2**14) * 2.0**-14  # ends and middle included
    bits = fourier.cosines(turns, 1.0).astype("<f8").tobytes()
    assert hashlib.sha256(bits).hexdigest() == "8210c9082404ef2c6dca2a15041acbce3e6579f155e994bc3da56e8677ad8c67"


def test_theta_and_b_are_the_papers():
    d, D = 5, 4000
    model = draw_map(d, D, seed=2)
    theta, b = model.theta_, model.offset_
    assert theta.shape == (d, D)
    n = theta.size
    assert abs(theta.mean()) < 4 * math.sqrt(1 / (2 * d) / n)
    assert abs(theta.var() * 2 * d - 1) < 4 * math.sqrt(2 / n)
    assert kstest(theta.ravel(), norm(scale=1 / math.sqrt(2 * d)).cdf).pvalue > 1e-3
    assert kstest(b, uniform(-math.pi, 2 * math.pi).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(theta[0], theta[1])[0, 1]) < 4 / math.sqrt(D)


def test_the_scale_is_the_standard_deviation():
    assert kstest(draw_map(3, 3000, scale=2.5).theta_.ravel(), norm(scale=2.5).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("scale", "expected"), [(None, 1 / math.sqrt(6)), (0.7, 0.7)])
def test_a_laplacian_kernel_has_cauchy_projections(scale, expected):
    theta = draw_map(3, 3000, kernel="laplacian", scale=scale).theta_
    assert kstest(theta.ravel(), cauchy(scale=expected).cdf).pvalue > 1e-3


def test_products_of_features_approximate_the_kernel():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (2, 10, 3))
    distance = x[:, None] - y[None]
    for kernel, expected in [
        ("gaussian", np.exp(-(distance**2).sum(axis=2) / 2)),
        ("laplacian", np.exp(-np.abs(distance).sum(axis=2))),
    ]:
        model = draw_map(3, 20000, kernel=kernel, scale=1.0)
        np.testing.assert_allclose(2 * model.transform(x) @ model.transform(y).T / 20000, expected, atol=0.04)


def test_a_seed_decides_the_map_and_the_values_do_not():
    rng = np.random.default_rng(0)
    first, same = (RandomFourier(9, random_state=4).fit(rng.uniform(size=(5, 3))) for _ in range(2))
    other = RandomFourier(9, random_state=5).fit(np.zeros((1, 3)))
    np.testing.assert_array_equal(first.projection_, same.projection_)
    np.testing.assert_array_equal(first.phases_, same.phases_)
    assert (first.projection_ != other.projection_).any()


def test_the_models_generator_is_used_where_the_map_has_no_seed():
    free, again, fixed = (
        RandomFourier(4, random_state=seed).draw_copy(2, np.random.default_rng(rng))
        for seed, rng in [(None, 1), (None, 1), (7, 1)]
    )
    np.testing.assert_array_equal(free.projection_, again.projection_)
    assert (free.projection_ != fixed.projection_).any()
    np.testing.assert_array_equal(fixed.projection_, draw_map(2, 4, seed=7).projection_)


@examples(50)
@given(arrays(np.float64, (3, 2), elements=unit_floats), st.integers(1, 6))
def test_powers_are_explicit_products(x, degree):
    got = Powers(degree).fit_transform(x)
    assert got.shape == (3, 2 * degree)
    for i, row in enumerate(x.tolist()):
        for j, value in enumerate(row):
            product = value
            for k in range(degree):
                assert got[i, 2 * k + j] == product
                assert math.isclose(product, value ** (k + 1), rel_tol=1e-14, abs_tol=1e-300)
                product *= value


def test_identity_is_the_input():
    x = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_array_equal(Identity().fit_transform(x), x)
    assert Identity().fit(x).n_out == 3


def test_features_have_names():
    frame = pd.DataFrame({"age": [0.1, 0.2], "income": [0.5, 0.9]})
    assert Identity().fit(frame).get_feature_names_out().tolist() == ["age", "income"]
    assert Powers(2).fit(frame).get_feature_names_out().tolist() == ["age", "income", "age^2", "income^2"]
    assert Powers(2).fit(frame.to_numpy()).get_feature_names_out().tolist() == ["x0", "x1", "x0^2", "x1^2"]
    names = RandomFourier(2, random_state=0).fit(frame).get_feature_names_out()
    assert names.tolist() == ["randomfourier0", "randomfourier1"]


@pytest.mark.parametrize("model", MAPS, ids=repr)
def test_output_can_be_a_frame(model):
    frame = pd.DataFrame({"age": [0.1, 0.2], "income": [0.5, 0.9]}, index=[7, 8])
    model = clone(model).set_output(transform="pandas").fit(frame)
    out = model.transform(frame)
    assert out.columns.tolist() == model.get_feature_names_out().tolist()
    assert out.index.tolist() == [7, 8]
    np.testing.assert_array_equal(out.to_numpy(), model.map_block(frame.to_numpy()))


@pytest.mark.parametrize("model", MAPS, ids=repr)
def test_a_restored_map_is_the_same_map(model):
    x = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    fitted = clone(model).fit(x)
    assert all(array.dtype == np.int64 for array in fitted.arrays().values())
    again = clone(model).restore(3, fitted.arrays())
    assert again.transform(x).tobytes() == fitted.transform(x).tobytes()
    assert again.n_out == fitted.n_out == fitted.transform(x).shape[1]
    assert {name: array.tolist() for name, array in again.arrays().items()} == {
        name: array.tolist() for name, array in fitted.arrays().items()
    }


@pytest.mark.parametrize("model", [Identity(), Powers(2)], ids=repr)
def test_a_map_that_draws_nothing_restores_nothing(model):
    assert model.fit([[0.0]]).arrays() == {}
    with pytest.raises(InvalidSetting, match=r"draws no arrays, got \['phases'\]"):
        model.restore(1, {"phases": np.zeros(1, dtype=np.int64)})


def tamper(**changes):
    return {**draw_map(2, 3).arrays(), **changes}


@pytest.mark.parametrize(
    ("inputs", "arrays", "reason"),
    [
        (3, tamper(), "on 3 inputs cannot have arrays of shapes"),
        (2, {}, "cannot have arrays of shapes"),
        (2, tamper(phases=np.zeros(4, dtype=np.int64)), "cannot have arrays of shapes"),
        (2, tamper(more=np.zeros(1, dtype=np.int64)), "cannot have arrays of shapes"),
        (2, tamper(projection=np.full((2, 3), 2**20)), "exceed the exact range"),
        (2, tamper(projection=np.full((2, 3), -(2**63))), "exceed the exact range"),
        (2, tamper(phases=np.full(3, 2**53)), "exceed the exact range"),
        (2, tamper(phases=np.full(3, -(2**63))), "exceed the exact range"),
        (2, tamper(exponents=np.full(3, 1001)), "exceed the exact range"),
        (2, tamper(exponents=np.full(3, -(2**40))), "exceed the exact range"),
    ],
)
def test_a_map_that_was_not_drawn_is_not_restored(inputs, arrays, reason):
    with pytest.raises(InvalidSetting, match=reason):
        RandomFourier(3).restore(inputs, arrays)


def test_the_edge_of_the_exact_range_is_restored():
    edge = {"projection": np.full((2, 1), 2**20 - 1), "phases": np.array([2**33 - 1]), "exponents": np.array([52])}
    model = RandomFourier(1).restore(2, edge)
    x = np.array([[1.0, -1.0], [1.0, 1.0], [-1.0, 1 - 2.0**-32]])
    for row, phi in zip(x, model.transform(x)[:, 0].tolist(), strict=True):
        assert abs(Fraction(phi) - exact_cosine(exact_turns(model, row)[0])) < Fraction(1, 10**15)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Powers(0), "degree must be a whole number of at least 1, got 0"),
        (Powers(2.0), "degree must be a whole number"),
        (RandomFourier(0), "n_features must be a whole number of at least 1, got 0"),
        (RandomFourier(True), "n_features must be a whole number"),
        (RandomFourier(5, kernel="rbf"), "kernel must be one of 'gaussian', 'laplacian', .*, got 'rbf'"),
        (RandomFourier(5, scale=0), "scale must be None, a number between 0 and 1e9 or an array of these, got 0"),
        (RandomFourier(5, scale=-1.0), "scale must be"),
        (RandomFourier(5, scale=1e9), "scale must be"),
        (RandomFourier(5, scale=float("nan")), "scale must be"),
        (RandomFourier(5, scale="wide"), "scale must be"),
        (RandomFourier(5, scale=1j), "scale must be"),
        (RandomFourier(5, scale=[1.0, 2.0]), "scale must be"),
    ],
    ids=repr,
)
def test_a_bad_parameter_is_refused_at_fit(model, reason):
    with pytest.raises(InvalidSetting, match=reason):
        model.fit([[0.0]])
    with pytest.raises(InvalidSetting, match=reason):
        model.draw_copy(1, np.random.default_rng(0))
    with pytest.raises(InvalidSetting, match=reason):
        model.restore(1, {})


def test_a_bad_seed_is_refused_at_fit():
    with pytest.raises(InvalidSetting, match="random_state must be"):
        RandomFourier(5, random_state=-1).fit([[0.0]])


@pytest.mark.parametrize("model", MAPS, ids=repr)
def test_an_unfitted_map_and_wrong_columns_are_refused(model):
    with pytest.raises(NotFittedError):
        clone(model).transform([[0.0]])
    with pytest.raises(ValueError, match="features"):
        clone(model).fit([[0.0]]).transform([[0.0, 1.0]])


def test_a_projection_that_rounds_up_beyond_the_exact_range_gets_a_coarser_grid():
    theta, b = np.full((1, 1), 0.5 - 1e-12), np.array([0.5])
    grid_theta, grid_b, k = fourier._round_to_grid(theta, b)
    assert k.tolist() == [52]
    assert int(grid_theta[0, 0]) * 2**32 + int(grid_b[0]) < 2**53


def test_floats_are_not_taken_for_what_was_drawn():
    drawn = RandomFourier(3, random_state=0).fit(np.zeros((1, 2))).arrays()
    with pytest.raises(InvalidSetting, match="must be integers"):
        RandomFourier(3).restore(2, {name: array.astype(float) for name, array in drawn.items()})


def test_an_order_may_be_any_whole_number():
    X = np.random.default_rng(0).random((5, 3))
    wide, huge = (RandomFourier(4, order=order, random_state=1).fit_transform(X) for order in (4, 2**80))
    assert np.array_equal(wide, huge)
