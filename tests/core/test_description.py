"""Learners with the same description are the same learner."""

import functools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Lasso, LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from expunge import Code, CodedRegressor
from expunge.errors import InvalidSetting

ROWS = np.random.default_rng(0).random((40, 3))
TARGET = ROWS[:, 0] * ROWS[:, 1] + ROWS[:, 2]


def near(distances):
    return 1 / (1 + distances)


def far(distances):
    return distances


def model_with(learner):
    return CodedRegressor(code=Code.uncoded(2), learner=learner, random_state=0).fit(ROWS, TARGET)


def make_boosting(groups):
    return HistGradientBoostingRegressor(interaction_cst=groups, min_samples_leaf=2, max_iter=5)


def make_transformer(**arguments):
    return make_pipeline(FunctionTransformer(np.clip, kw_args=arguments), LinearRegression())


# Pairs of learners that differ in more than a class name.
DIFFERENT = {
    "sets": (make_boosting([{0, 1}, {2}]), make_boosting([{0}, {1, 2}])),
    "dicts": (make_transformer(a_min=0.2, a_max=0.8), make_transformer(a_min=0.2, a_max=0.7)),
    "functions": (KNeighborsRegressor(3, weights=near), KNeighborsRegressor(3, weights=far)),
    "functions of NumPy": tuple(
        TransformedTargetRegressor(LinearRegression(), func=f, inverse_func=g)
        for f, g in ((np.log1p, np.expm1), (np.expm1, np.log1p))
    ),
    "partial functions": tuple(
        KNeighborsRegressor(3, weights=functools.partial(np.multiply, factor)) for factor in (2.0, 3.0)
    ),
    "estimators inside": tuple(TransformedTargetRegressor(Ridge(alpha)) for alpha in (1.0, 2.0)),
    "classes inside": (TransformedTargetRegressor(Ridge(1.0)), TransformedTargetRegressor(Lasso(1.0))),
    "steps": (make_pipeline(StandardScaler(), Ridge()), make_pipeline(StandardScaler(with_std=False), Ridge())),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.filterwarnings("ignore:The provided functions:UserWarning")
def test_models_whose_learners_differ_have_other_digests_and_load_refuses_the_other(what, tmp_path):
    first, other = DIFFERENT[what]
    models = [model_with(first), model_with(other)]
    assert models[0].digest() == model_with(first).digest()
    assert models[0].digest() != models[1].digest()
    models[0].save(tmp_path / "m")
    with pytest.raises(InvalidSetting, match="another learner"):
        CodedRegressor.load(tmp_path / "m", learner=other)
    assert CodedRegressor.load(tmp_path / "m", learner=first).digest() == models[0].digest()


class CallableWeights:
    def __call__(self, distances):
        return distances


def make_nested(distances):
    def inner(d):
        return d

    return inner


@pytest.mark.parametrize(
    "weights",
    [
        lambda d: 1 / (1 + d),
        make_nested(0),
        CallableWeights(),
        functools.partial(lambda d: d),
        CallableWeights().__call__,
    ],
)
def test_a_function_that_has_no_name_is_refused(weights):
    with pytest.raises(InvalidSetting, match="the parameter weights of .*KNeighborsRegressor.*cannot be described"):
        model_with(KNeighborsRegressor(3, weights=weights))


@pytest.mark.parametrize("thing", [object(), np.random.RandomState(0), np.ma.masked_array([1.0], [True])])
def test_a_thing_that_has_no_description_is_refused(thing):
    with pytest.raises(InvalidSetting, match="the parameter metric_params of .* is of type .*cannot be described"):
        model_with(KNeighborsRegressor(3, metric_params={"w": thing}))


@pytest.mark.slow
def test_a_seed_that_is_derived_is_not_described():
    none, derived, given = (
        model_with(HistGradientBoostingRegressor(max_iter=5, random_state=seed)).digest()
        for seed in (None, np.random.RandomState(3), 3)
    )
    assert none == derived
    assert none != given


numbers = st.booleans() | st.integers() | st.floats(allow_nan=False)
plain = st.none() | numbers | st.text(max_size=3) | st.binary(max_size=3)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(plain, max_size=3)
        | st.dictionaries(plain, inner, max_size=3)
    ),
    max_leaves=8,
)


def kinds(value):
    """Return a value that distinguishes True, 1 and 1.0, 0.0 and -0.0, and lists and tuples."""
    if isinstance(value, list | tuple):
        return type(value).__name__, [kinds(item) for item in value]
    if isinstance(value, frozenset):
        return "frozenset", frozenset(map(repr, value))
    if isinstance(value, dict):
        return "dict", {repr(key): kinds(item) for key, item in value.items()}
    return repr(value)


@given(values, values)
def test_texts_are_equal_if_and_only_if_values_are(a, b):
    from expunge.learners import describe_value

    assert (describe_value(a, name="a") == describe_value(b, name="b")) == (kinds(a) == kinds(b))


def test_arrays_are_described_by_what_is_in_them():
    from expunge.learners import describe_value

    arrays = [
        np.arange(4), np.arange(4.0), np.arange(4).reshape(2, 2), np.array([0, 1, 3, 2]),
        np.array([0, 1], dtype=object), np.array([0, {2}], dtype=object), np.array(["a"]), np.array(["b"]),
    ]  # fmt: skip
    texts = [describe_value(array, name="x") for array in arrays]
    assert len(set(texts)) == len(arrays)
    assert texts == [describe_value(array.copy(order="F"), name="x") for array in arrays]


def test_sets_are_described_alike_in_every_process():
    program = (
        "from expunge.learners import describe_value as describe;"
        "print(describe({'a', 'b', 'c', ('d', None)}, name=''), describe({'x': {'p', 'q', 'r'}, 1: 2}, name=''))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(outputs) == 1
