"""Native kernels give the same bits as NumPy, for every computation and every way to call it."""

import copy
import pickle
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import expunge
from expunge import Code, CodedRegressor, RandomFourier
from expunge.encoding.fourier import cosines
from expunge.encoding.randomness import Shuffle
from expunge.exact import limbs, moments, native
from expunge.stores.change import Change
from expunge.stores.store import Rows
from expunge.transformers import Identity

from support.models import state_of
from support.paths import NATIVE, computing
from support.sampling import examples
from support.strategies import regressors, tables

needs_kernels = pytest.mark.skipif(not NATIVE, reason="this run is the one without the kernels")
needs_products = pytest.mark.skipif(native.product_kernels() is None, reason="BLAS multiplies here")


@pytest.mark.skipif(not native.kernel_status().startswith(("used", "not built")), reason="EXPUNGE_NATIVE=0")
def test_the_kernels_were_built_where_there_is_a_compiler():
    """The extension is optional, so a failed build goes unnoticed: everything would work, only slower."""
    assert NATIVE or shutil.which("cc") is None


def both(compute):
    """Yield the result with the kernels and without."""
    for natively in (True, False):
        with computing(natively=natively):
            yield compute()


MAPS = [
    lambda D: Identity(),
    lambda D: RandomFourier(D, random_state=0),
    lambda D: RandomFourier(D, kernel="laplacian", scale=50.0, random_state=1),
    lambda D: RandomFourier(D, kernel="gaussian+exponential", linear=True, order=2, random_state=2),
]


@needs_kernels
@examples(150)
@given(
    st.sampled_from(MAPS),
    st.integers(1, 70),
    st.integers(1, 9),
    st.integers(1, 70),
    st.sampled_from([1.0, 2.0**20, 2.0**36]),
    st.sampled_from([1.0, 1.5, 1e6, 1e200]),
    st.integers(0, 2**20),
)
def test_features_have_the_same_bits(made, D, d, rows, unit, reach, seed):
    """Also far outside, where phases are rounded. Fused operations would change one cosine in twelve."""
    rng = np.random.default_rng(seed)
    features = made(D).draw_copy(d, rng)
    X = rng.uniform(-1, 1, (rows, d)) * reach
    natively, plainly = both(lambda: features.map_block(X, unit))
    assert natively.tobytes() == plainly.tobytes()


@needs_kernels
def test_cosines_of_phases_have_the_same_bits(rng):
    turns = rng.normal(size=(7, 50)) * 2.0 ** rng.integers(-60, 60, (7, 50))
    natively, plainly = both(lambda: cosines(turns.copy(), 2.0**20))
    assert natively.tobytes() == plainly.tobytes()


@needs_kernels
@examples(80)
@given(regressors(), tables(), st.sampled_from([0, 3, limbs.LIMB_ROWS]), st.integers(0, 2**20))
def test_a_model_learns_and_unlearns_the_same_bits(estimator, table, limb_rows, seed):
    """For limbs in floats and in int64; rows that are erased, added and corrected; rows or only sums kept."""
    X, y = table
    gone = np.random.default_rng(seed).permutation(len(X))[: len(X) // 3]

    def history():
        model, seen = copy.deepcopy(estimator).fit(X, y), []
        for ids in (gone[:1], gone[1:]):
            seen.append((model.digest(), _weights(model)))
            if len(ids):
                model.unlearn(ids, *((X[ids], y[ids]) if model.keep == "coded" else ()))
        return [*seen, (model.digest(), _weights(model))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limbs, "LIMB_ROWS", limb_rows)
        natively, plainly = both(history)
    assert natively == plainly


def _weights(model):
    """Return the bytes of each learner's weights; None for a learner without, whose coded rows are in the digest."""
    found = (getattr(learner, "coef_", learner) for learner in state_of(model).ensemble.models)
    return [W.tobytes() if isinstance(W, np.ndarray) else None for W in found]


@needs_kernels
@examples(80)
@given(
    st.sampled_from([[[1]], [[1], [1], [1]], [[2], [-1], [3]], [[1, 0], [1, 1], [0, 1]]]),
    st.sampled_from([(0, 1), "unit", ([0, 0, 0.5], [1, 1, 0.5])]),
    st.sampled_from([(0, 1), "unit"]),
    st.sampled_from([(), (1,), (2,)]),
    st.booleans(),
    st.sampled_from(["goes", "is replaced", "is gone already", "comes"]),
    st.integers(0, 2**20),
)
def test_one_row_that_changes_is_one_call_with_the_same_bits(code, bounds, target_bounds, shape, ones, what, seed):
    """The rows are in memory, or come from a store that overrides `take`; lanes may be empty."""
    rng = np.random.default_rng(seed)
    X, y = rng.random((30, 3)), rng.random((30, *shape))
    X[:, 2] = 0.5
    bounded = {"bounds": bounds, "target_bounds": target_bounds, "fit_intercept": ones}
    model = CodedRegressor(code=Code(code), features=RandomFourier(5), random_state=0, **bounded).fit(X, y)
    model.unlearn(rng.permutation(30)[: rng.integers(1, 25)])
    ensemble, rule = state_of(model).ensemble, state_of(model).blueprint.rule
    store, encoder = ensemble.store, ensemble.encoder
    slot = rng.choice(np.flatnonzero(store.live == (what in ("goes", "is replaced"))))
    new = () if what in ("goes", "is gone already") else (X[:1], y[:1].reshape(1, -1))
    change, learner = Change(np.array([slot]), *new), encoder.code.learners_of(np.array([slot]))[0]
    state = ensemble.states[learner]
    natively, plainly = both(lambda: rule.relearn(state, encoder, store, learner, change))
    guarded = rule.relearn(state, encoder, Guarded(store.X, store.y, store.live), learner, change)
    for state_after, weights in (natively, guarded):
        assert state_after == plainly[0]
        assert (weights is None) == (plainly[1] is None)
        assert weights is None or weights.tobytes() == plainly[1].tobytes()


class Guarded(Rows):
    """A store that sees every row that is read."""

    def take(self, slots):
        assert self.live[slots].all()
        return tuple(np.asfortranarray(array) for array in super().take(slots))


@needs_kernels
@pytest.mark.parametrize("limb_rows", [1, limbs.LIMB_ROWS])
@pytest.mark.parametrize("weights", [[[1], [1], [1]], [[2], [-1], [3]], [[1]]])
def test_rows_that_come_and_are_corrected_have_the_same_bits(rng, weights, limb_rows, monkeypatch):
    X, y = rng.random((40, 3)), rng.random((40, 2))
    monkeypatch.setattr(limbs, "LIMB_ROWS", limb_rows)

    def history():
        features = RandomFourier(40, linear=True)
        model = CodedRegressor(
            code=Code(weights), features=features, bounds=(0, 1), target_bounds=(0, 1), random_state=0
        )
        model.fit(X[:30], y[:30]).partial_fit(X[30:35], y[30:35])
        model.rectify([3], X[36:37], y[36:37])
        model.rectify(range(10, 20), X[25:35], y[25:35])
        model.unlearn(34)
        model.unlearn(range(5, 20))
        assert model.digest() == model.retrained().digest()
        assert _weights(model) == _weights(model.retrained())
        return model.digest(), _weights(model)

    natively, plainly = both(history)
    assert natively == plainly


@needs_kernels
def test_a_singular_system_has_the_same_solution(rng):
    X = np.repeat(rng.random((20, 1)), 3, axis=1)
    model = CodedRegressor(shards=1, rate=1, alpha=0.0, random_state=0)
    natively, plainly = both(lambda: _weights(copy.deepcopy(model).fit(X, X[:, 0])))
    assert natively == plainly


@needs_kernels
@examples(100)
@given(regressors(), tables(), st.sampled_from([1.0, 1.5, 1e3]), st.integers(1, 40))
def test_predictions_are_those_of_numpy_and_a_row_alone_is_predicted_as_among_others(estimator, table, reach, rows):
    X, y = table
    model = copy.deepcopy(estimator).fit(X, y)
    asked = np.random.default_rng(rows).uniform(-reach, reach, (rows, X.shape[1]))
    encoder = state_of(model).ensemble.encoder
    scaled, plainly_scaled = both(lambda: encoder.scale_nearest(asked))
    assert (scaled == plainly_scaled).all()  # bit by bit, but for the sign of 0
    twin = pickle.loads(pickle.dumps(model))
    natively = model.predict(asked)
    with computing(natively=False):
        plainly = twin.predict(asked)
    size = np.abs(plainly).max() + sum(np.abs(W).sum() for W in _plain_weights(model))
    np.testing.assert_allclose(natively, plainly, rtol=0, atol=1e-12 * size * reach)
    if state_of(model).ensemble._native_predictor is not None:
        assert natively.tobytes() == b"".join(model.predict(asked[k : k + 1]).tobytes() for k in range(rows))


def _plain_weights(model):
    return [W for W in state_of(model).ensemble.models if isinstance(W, np.ndarray)]


@needs_kernels
@given(st.integers(0, 4), st.integers(1, 3), st.integers(0, 2**20))
def test_rows_inside_bounds_are_known(rows, d, seed):
    rng = np.random.default_rng(seed)
    values, low = rng.integers(-2, 3, (rows, d)) * 1.0, rng.choice([-2.0, -1.0, np.nan], d)
    high = low + rng.integers(1, 4, d)
    outside = ((values < low) | (values > high)).any()
    assert native.kernels().inside(values, low, high) == (not outside)


@needs_kernels
@pytest.mark.parametrize("scales", [None, "log"])
def test_rows_in_any_layout_are_predicted(rng, scales):
    X, y = rng.random((30, 3)), rng.random(30)
    model = CodedRegressor(shards=1, rate=1, features=RandomFourier(5), scales=scales, bounds=(0, 1), random_state=0)
    ensemble = state_of(model.fit(X, y)).ensemble
    wide = np.repeat(X, 2, axis=1)
    for rows in (np.asfortranarray(X), wide[:, ::2], X[::-1][::-1]):
        np.testing.assert_array_equal(ensemble.predict(rows), ensemble.predict(X))


@needs_kernels
def test_threads_share_out_rows_to_predict_and_each_has_the_same_bits(rng):
    X, y = rng.random((3000, 3)), rng.random((3000, 2))
    model = CodedRegressor(shards=2, rate=2, features=RandomFourier(40), random_state=0).fit(X, y)
    whole = model.predict(X)
    assert whole.tobytes() == b"".join(model.predict(X[k : k + 100]).tobytes() for k in range(0, 3000, 100))


@needs_kernels
def test_a_drawn_map_is_copied_and_pickled_with_its_kernels(rng):
    features = RandomFourier(5, random_state=0).draw_copy(3, rng)
    X = rng.random((4, 3))
    expected = features.map_block(X)
    for twin in (copy.deepcopy(features), pickle.loads(pickle.dumps(features))):
        np.testing.assert_array_equal(twin.map_block(X), expected)
    with computing(natively=False):
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(features)).map_block(X), expected)


@needs_kernels
def test_a_map_that_somebody_derived_from_ours_computes_for_itself(rng):
    class Half(RandomFourier):
        def map_block(self, scaled, unit=1.0):
            return super().map_block(scaled, unit) * 0.5

    X, y = rng.random((30, 2)), rng.random(30)
    ours, theirs = (
        CodedRegressor(shards=1, rate=1, features=kind(5, random_state=0), random_state=0).fit(X, y)
        for kind in (RandomFourier, Half)
    )
    assert not np.array_equal(ours.coded_shard(0)[0], theirs.coded_shard(0)[0])


@needs_kernels
@examples(60)
@given(
    st.sampled_from([[[1]], [[2], [-1], [3]], [[1, 0, 1], [1, 1, 0], [0, 1, 0]]]),
    st.sampled_from([(0, 1), "unit", ([0, 0, 0.5], [1, 1, 0.5])]),
    st.sampled_from([None, "log"]),
    st.sampled_from([None, ["linear", "log"]]),
    st.sampled_from([1, 7, 10**6]),
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 2**20),
)
def test_whole_shards_are_learned_with_the_same_bits(
    code, bounds, scales, target_scales, float_rows, threads, blas, seed
):
    """Also where stripes are empty, sums are folded, threads share out learners of which some remain, and where BLAS
    multiplies, as on machines without AVX-512.
    """
    rng = np.random.default_rng(seed)
    X, y = rng.random((1200, 3)), rng.random((1200, 2))
    X[:, 2] = 0.5
    bounded = {"bounds": bounds, "target_bounds": (0, 1), "scales": None if bounds == "unit" else scales}
    bounded["target_scales"] = target_scales
    model = CodedRegressor(code=Code(code), features=RandomFourier(5), random_state=0, **bounded).fit(X, y)
    model.unlearn(rng.permutation(1200)[: rng.choice([1, 600, 1190])])
    state = state_of(model)
    store, encoder, rule = state.ensemble.store, state.ensemble.encoder, state.blueprint.rule
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(threads, user_api="blas"):
        patch.setattr(moments, "FLOAT_ROWS", float_rows)
        if blas:
            patch.setattr(moments, "product_kernels", lambda: None)
        natively, plainly = both(lambda: rule.learn_all(encoder, store))
    for (state_after, weights), expected in zip(natively, plainly, strict=True):
        assert state_after == expected[0]
        assert (weights is None) == (expected[1] is None)
        assert weights is None or weights.tobytes() == expected[1].tobytes()
    assert [state_after for state_after, _ in natively] == state.ensemble.states


@needs_products
@examples(100)
@given(st.integers(1, 60), st.integers(1, 40), st.sampled_from([1.0, -1.0]), st.integers(0, 2**20))
def test_products_are_the_exact_ones_and_nothing_else_is_touched(w, m, sign, seed):
    """Widths around those of a vector, a panel and two panels."""
    _compare_products(w, m, sign, np.random.default_rng(seed))


@needs_products
@pytest.mark.parametrize("w", [191, 192, 193, 217, 400])
def test_products_of_more_panels_than_stay_in_the_cache_are_exact(w, rng):
    _compare_products(w, 30, 1.0, rng)


def _compare_products(w, m, sign, rng):
    kernels, P = native.kernels(), w * (w + 1) // 2
    q = rng.integers(-(2**36), 2**36, (m, w), endpoint=True).astype(np.float64)
    start = rng.integers(-(2**40), 2**40, (3, P)).astype(np.float64)
    around = np.full(3 * P + 16, np.nan)
    sums = around[8:-8].reshape(3, P)
    sums[:] = start
    kernels.multiply(q, sign, sums, kernels.room(m, w))
    high, low = limbs.slices(q)
    upper = np.triu_indices(w)
    for total, before, piece in zip(sums, start, (high, high + low, low), strict=True):
        np.testing.assert_array_equal(total, before + sign * (piece.T @ piece)[upper])
    assert np.isnan(around[:8]).all()
    assert np.isnan(around[-8:]).all()


NO_COLUMNS = [
    {"lanes": np.zeros(0, dtype=np.int64), "weights": np.zeros(0)},
    {"lanes": np.array([-1])},
    {"weights": np.ones(2)},
    {"inputs": np.zeros((2, 4))},
    {"inputs": np.zeros((1, 3))},
    {"targets": np.zeros((2, 2))},
    {"t": 0},
]
NO_ROWS = [
    {"X": np.zeros((1, 2))},
    {"X": np.zeros((2, 3))},
    {"y": np.zeros((1, 2))},
    {"live": np.zeros(0, dtype=np.bool_)},
    {"live": np.zeros(2, dtype=np.bool_)},
    {"first": 1},
    {"first": -1, "live": np.zeros(1, dtype=np.bool_)},
    {"first": -1, "live": np.ones(2, dtype=np.bool_)},
    {"new_X": np.zeros((1, 2)), "new_y": np.zeros((1, 1))},
    {"new_X": np.zeros((1, 3)), "new_y": np.zeros((2, 1))},
    {"limbs": np.zeros((3, 27))},
]


NO_SHARDS = [
    {"X": np.zeros((2, 3))},
    {"y": np.zeros((1, 2))},
    {"live": np.zeros(2, dtype=np.bool_)},
    {"shards": 0},
    {"shards": 2},
    {"first": -1},
    {"last": 2},
    {"sums": np.zeros((3, 6, 6))},
    {"sums": np.zeros((2, 7, 7))},
    {"room": np.zeros((3, 2, 7))},
    {"room": np.zeros((4, 0, 7))},
    {"room": np.zeros((4, 2, 6))},
]
NO_PACKED_SHARDS = [
    {"sums": np.zeros((3, 27))},
    {"sums": np.zeros((2, 28))},
    {"room": np.zeros((4, 2, 7))},
    {"room": np.zeros((2, 2, 7))},
    {"room": np.zeros((2, 0, 24))},
]
NO_PRODUCTS = [
    {"q": np.zeros((0, 7))},
    {"q": np.zeros((3, 7))},
    {"q": np.zeros((2, 25))},
    {"sums": np.zeros((3, 27))},
    {"sums": np.zeros((2, 28))},
    {"room": np.zeros((1, 2, 24))},
    {"room": np.zeros((2, 2, 25))},
]


@needs_kernels
def test_arrays_that_do_not_fit_are_refused(rng):
    kernels = native.kernels()
    features = RandomFourier(5, random_state=0).draw_copy(3, rng).native(1.0)
    one, owner, weights = np.zeros((2, 1)), np.zeros(2, dtype=np.int64), np.ones((1, 2))
    column = {"lanes": owner[:1], "weights": np.ones(1), "inputs": None, "targets": None, "t": 1, "ones": True}
    good = kernels.Column(features, *column.values())
    one_row = {"X": np.zeros((1, 3)), "y": one[:1], "live": np.ones(1, dtype=np.bool_), "first": 0, "lane": 0}
    one_row |= {"new_X": None, "new_y": None, "limbs": np.zeros((3, 28)), "bits": 36, "alpha": 1.0, "large": 1e100}
    assert good.relearned(*one_row.values())[2:] == (1, 0)
    whole = {name: one_row[name] for name in ("X", "y", "live")} | {"shards": 1, "first": 0, "last": 1}
    whole |= {"sums": np.zeros((3, 7, 7)), "room": np.zeros((4, 2, 7))}
    assert good.add(*whole.values()) == (1, 1)
    packed = {"sums": np.zeros((3, 28)), "room": np.zeros((2, 2, 24))}
    products = {"q": np.zeros((2, 7)), "sign": 1.0} | packed
    if native.product_kernels() is not None:
        assert good.add(*(whole | packed).values()) == (1, 1)
        kernels.multiply(*products.values())
    refused = [
        lambda: features.features(np.zeros((2, 4))),
        lambda: features.coded(np.zeros((2, 3)), one[:1], owner, weights, 1, True),
        lambda: features.coded(np.zeros((2, 3)), one, owner + 1, weights, 1, True),
        lambda: features.coded(np.zeros((2, 3)), one, owner - 1, weights, 1, True),
        lambda: features.coded(np.zeros((2, 3)), one, owner, weights[:, :1], 1, True),
        lambda: kernels.Map(np.zeros((3, 2)), np.zeros(7), False, 1.0),
        lambda: kernels.Map(np.zeros((1, 2)), np.zeros(8), False, 1.0),
        lambda: kernels.exchanged(np.zeros((3, 5)), np.zeros((1, 3)), np.zeros((1, 3)), np.float64),
        lambda: kernels.exchanged(np.zeros((3, 6)), np.zeros((2, 3)), np.zeros((1, 3)), np.float64),
        lambda: kernels.exchanged(np.zeros((3, 6)), np.zeros((1, 3)), np.zeros((1, 2)), np.float64),
        *(lambda wrong=wrong: kernels.Column(features, *(column | wrong).values()) for wrong in NO_COLUMNS),
        *(lambda wrong=wrong: good.relearned(*(one_row | wrong).values()) for wrong in NO_ROWS),
        *(lambda wrong=wrong: good.add(*(whole | wrong).values()) for wrong in NO_SHARDS),
        *(lambda wrong=wrong: kernels.multiply(*(products | wrong).values()) for wrong in NO_PRODUCTS),
        *(lambda wrong=wrong: good.add(*(whole | packed | wrong).values()) for wrong in NO_PACKED_SHARDS),
        lambda: kernels.middle(np.zeros((2, 3))),
        lambda: kernels.clear(np.zeros((2, 3, 3))),
        lambda: kernels.ridge(np.zeros((3, 3)), np.ones(3), 2, 1, 1.0, True, 1e100, np.zeros((3, 3))),
        lambda: kernels.Predictor(features, np.zeros((7, 1)), True),
        lambda: kernels.Predictor(features, np.zeros((6, 1)), True).predict(np.zeros((1, 2))),
        lambda: kernels.scaled(np.zeros((1, 2)), np.zeros(1), np.ones(2), True),
        lambda: kernels.unscale(np.zeros((1, 2)), *np.zeros((3, 2)), np.zeros(1)),
        lambda: kernels.inside(np.zeros((1, 2)), np.zeros(2), np.zeros(1)),
        lambda: kernels.cosines(np.zeros((2, 2)), np.zeros(3)),
        lambda: kernels.slices(np.zeros((2, 2)), np.zeros((3, 1, 2))),
        lambda: kernels.packed(np.zeros((3, 2, 3))),
        lambda: kernels.matrix(np.zeros((3, 3)), np.ones(2), 2),
        lambda: kernels.ridge(np.zeros((3, 3)), np.ones(3), 2, 2, 1.0, True, 1e100, None),
    ]
    for ask in refused:
        with pytest.raises(ValueError, match="fit each other|must"):
            ask()


@needs_kernels
def test_what_no_row_is_in_is_empty(rng):
    features = RandomFourier(5, random_state=0).draw_copy(3, rng).native(1.0)
    assert features.features(np.empty((0, 3))).shape == (0, 5)
    none = np.empty(0, dtype=np.int64)
    assert not features.coded(np.empty((0, 3)), np.empty((0, 1)), none, np.empty((1, 0)), 2, True).any()
    native.kernels().slices(np.empty((0, 4)), np.empty((3, 1, 4)))
    none = np.empty((0, 2))
    assert (native.kernels().exchanged(np.ones((3, 3)), none, none, np.int64) == 1).all()


def test_versions_tell_which_path_it_is(capsys):
    expunge.show_versions()
    printed = capsys.readouterr().out
    assert f"native kernels: {native.kernel_status()}" in printed
    assert f"numpy {np.__version__}" in printed


def test_an_extension_that_cannot_be_loaded_is_told_and_done_without(monkeypatch):
    monkeypatch.setattr(native, "kernel_status", lambda: "used")
    monkeypatch.setitem(__import__("sys").modules, "expunge.exact._native", None)
    monkeypatch.delattr("expunge.exact._native", raising=False)
    native.kernels.cache_clear()
    try:
        with pytest.warns(UserWarning, match="cannot be loaded, NumPy is used instead"):
            assert native.kernels() is None
    finally:
        native.kernels.cache_clear()


@needs_kernels
@examples(60)
@given(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**40)), min_size=1, max_size=70),
    st.integers(0, 2),
    st.randoms(use_true_random=False),
)
def test_shuffles_have_the_same_bits(key, pairs, kind, random):
    shuffle = Shuffle.from_key(np.array(key, dtype=np.uint64))
    tweaks, sizes = (np.array(column, dtype=np.uint64) for column in zip(*pairs, strict=True))
    x = np.array([random.randrange(int(size)) for size in sizes], dtype=np.uint64)
    found = []
    for natively in (True, False):
        with computing(natively=natively):
            moved = shuffle.forward(kind, tweaks, sizes, x)
            found.append((moved.tobytes(), shuffle.backward(kind, tweaks, sizes, moved).tobytes()))
    assert found[0] == found[1]
    assert found[0][1] == x.tobytes()
