"""Saving and loading: the same model comes back, and a bad file is refused without being run."""

import contextlib
import io
import json
import math
import os
import pickle
import zipfile
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Lasso, LinearRegression

from expunge import Code, CodedRegressor, FeatureMap, Powers, RandomFourier
from expunge.encoding.scales import Scales
from expunge.errors import InvalidFile, InvalidInput, InvalidSetting
from expunge.learners import EstimatorRule
from expunge.learning.state import ModelState, place_rows
from expunge.saving.archive import Archive, dump_archive
from expunge.saving.format import blueprint_parts, load_blueprint

from support.models import state_of
from support.sampling import examples
from support.strategies import Steps, regressors, tables

UNIT = {"bounds": "unit", "target_bounds": "unit"}


def has_custom_features(model):
    """Whether a model has a custom feature map."""
    return isinstance(model.features, Steps)


@pytest.mark.slow
@examples(60)
@given(regressors(own_features=True), tables(), st.sampled_from(["numbers", "text"]))
def test_a_loaded_model_is_the_same_model_and_goes_on_as_the_same(tmp_path_factory, estimator, table, kind):
    X, y = table
    ids = np.arange(len(X)) if kind == "numbers" else np.array([f"no. {k}" for k in range(len(X))])
    model = estimator.fit(X, y, ids=ids)

    def forget(m, k):
        m.unlearn(ids[k]) if m.keep == "rows" else m.unlearn(ids[k], X[k : k + 1], y[k : k + 1])

    forget(model, 2)
    path = tmp_path_factory.mktemp("saved") / "m.expunge"
    model.save(path)
    learner = None if isinstance(model.learner, str) else model.learner
    again = CodedRegressor.load(path, learner=learner, features=model.features if has_custom_features(model) else None)
    assert again.digest() == model.digest()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    for m in (model, again):
        forget(m, 5)
        m.partial_fit(X[:5], y[:5], ids=ids[:5])
    assert again.digest() == model.digest()
    names = ("shards", "rate", "density", "balanced", "alpha", "fit_intercept", "aggregate", "clip", "keep", "outside")
    for name in names:
        assert getattr(again, name) == getattr(model, name), name
    assert Scales.parse(again.scales, 3) == Scales.parse(model.scales, 3)
    assert again.outside_rows(2 * X).tolist() == model.outside_rows(2 * X).tolist()
    for saved, loaded in (
        (model.bounds_, again.bounds_),
        (state_of(model).blueprint.inputs, state_of(again).blueprint.inputs),
    ):
        np.testing.assert_array_equal((saved.low, saved.high), (loaded.low, loaded.high))
    assert os.listdir(path.parent) == ["m.expunge"]


@pytest.fixture
def saved(tmp_path, rng):
    X, y = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, 40)
    path = tmp_path / "m.expunge"
    CodedRegressor(shards=4, rate=2, features=RandomFourier(4), random_state=0).fit(X, y).save(path)
    return path


def test_feature_names_come_back(tmp_path, rng):
    import pandas as pd

    frame = pd.DataFrame(rng.random((20, 2)), columns=["age", "income"])
    CodedRegressor(random_state=0).fit(frame, frame["age"]).save(tmp_path / "m")
    assert CodedRegressor.load(tmp_path / "m").feature_names_in_.tolist() == ["age", "income"]


def test_an_estimator_is_asked_for_because_code_never_comes_from_a_file(tmp_path, rng):
    X, y = rng.random((30, 2)), rng.random(30)
    lasso = Lasso(1e-3, fit_intercept=False)
    CodedRegressor(learner=lasso, random_state=0).fit(X, y).save(tmp_path / "m")
    with pytest.raises(InvalidSetting, match="code never comes from a file"):
        CodedRegressor.load(tmp_path / "m")
    for other in (Lasso(), Lasso(1e-2, fit_intercept=False), LinearRegression(fit_intercept=False)):
        with pytest.raises(InvalidSetting, match="another learner"):
            CodedRegressor.load(tmp_path / "m", learner=other)
    assert state_of(CodedRegressor.load(tmp_path / "m", learner=lasso)).blueprint.rule.estimator is not lasso
    CodedRegressor(random_state=0).fit(X, y).save(tmp_path / "m")
    with pytest.raises(InvalidSetting, match="without a learner"):
        CodedRegressor.load(tmp_path / "m", learner=lasso)


class MyPowers(Powers):
    pass


@pytest.mark.parametrize("mine", [Steps(4), Steps(5, random_state=3), MyPowers(3)], ids=repr)
def test_features_of_your_own_are_asked_for_and_come_back_as_they_were_drawn(tmp_path, rng, mine):
    X, y = rng.random((30, 2)), rng.random(30)
    model = CodedRegressor(features=mine, random_state=0).fit(X, y)
    model.save(tmp_path / "m")
    with pytest.raises(InvalidSetting, match=r"load\(path, features=...\)"):
        CodedRegressor.load(tmp_path / "m")
    for other in (Steps(3), Powers(3), MyPowers(2)):
        with pytest.raises(InvalidSetting, match="other features than"):
            CodedRegressor.load(tmp_path / "m", features=other)
    again = CodedRegressor.load(tmp_path / "m", features=mine)
    assert again.digest() == model.digest()
    assert again.predict(X).tobytes() == model.predict(X).tobytes()
    for m in (model, again):
        m.unlearn(7)
    assert again.digest() == model.digest() == again.retrained().digest()


def test_features_of_your_own_are_refused_where_nobody_would_bring_them_again(rng):
    model = CodedRegressor(features=Steps(4), random_state=0).fit(rng.random((30, 2)), rng.random(30))
    with pytest.raises(InvalidSetting, match="must be those of this package, got Steps"):
        blueprint_parts(state_of(model).blueprint)


def test_features_of_ours_are_not_asked_for(saved):
    with pytest.raises(InvalidSetting, match="without features"):
        CodedRegressor.load(saved, features=RandomFourier(4))


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        CodedRegressor.load(tmp_path / "nowhere")


def test_every_truncation_is_refused(saved):
    whole = saved.read_bytes()
    for length in [*range(0, 200, 7), *range(200, len(whole), 997), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(InvalidFile, match="m.expunge"):
            CodedRegressor.load(saved)


def test_every_flipped_bit_is_refused_or_makes_no_difference(saved):
    whole, digest = saved.read_bytes(), CodedRegressor.load(saved).digest()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 300):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(damaged)
        with contextlib.suppress(InvalidFile):
            assert CodedRegressor.load(saved).digest() == digest


class Bomb:
    def __reduce__(self):
        return os._exit, (42,)


def rewrite(path, **members):
    """Replace members of an archive (None removes one)."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content |= {name.replace("__", "."): data for name, data in members.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            if data is not None:
                archive.writestr(name, data)


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def test_pickles_are_refused_and_never_run(saved):
    bomb = np.empty(1, dtype=object)
    bomb[0] = Bomb()
    for payload in (npy(bomb, allow_pickle=True), pickle.dumps(Bomb())):
        rewrite(saved, X__npy=payload)
        with pytest.raises(InvalidFile, match="'X'"):
            CodedRegressor.load(saved)
    saved.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InvalidFile, match="not a saved model"):
        CodedRegressor.load(saved)


def header(path, **changes):
    with zipfile.ZipFile(path) as archive:
        return json.dumps(json.loads(archive.read("model.json")) | changes)


def huge_member(shape):
    """Return a member that claims more numbers than the file has bytes."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<i8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def fourier_header(path, **params):
    """Return the header with other parameters of the features."""
    features = json.loads(header(path))["features"]
    return {"model__json": header(path, features=features | {"params": features["params"] | params})}


SUM = {"shape": [2], "sha256": "0" * 64}

PARAMETERS = ("shards", "rate", "density", "balanced", "alpha", "fit_intercept", "random_state")

HOSTILE = {
    "another format": lambda p: {"model__json": header(p, format="other")},
    "no JSON": lambda p: {"model__json": b"\xff\xfe"},
    "JSON that is no object": lambda p: {"model__json": b"[1]"},
    "deep JSON": lambda p: {"model__json": b"[" * 100_000},
    "a newer version": lambda p: {"model__json": header(p, version=7)},
    "no header": lambda p: {"model__json": None},
    "no rows": lambda p: {"X__npy": None},
    "too few rows": lambda p: {"X__npy": npy(np.zeros((3, 2)))},
    "rows as text": lambda p: {"X__npy": npy(np.full((40, 2), "x"))},
    "rows in Fortran order": lambda p: {"X__npy": npy(np.zeros((40, 2), order="F"))},
    "rows with NaN": lambda p: {"X__npy": npy(np.full((40, 2), np.nan))},
    "rows that are not there": lambda p: {"X__npy": npy(np.zeros((40, 2)))[:-8]},
    "rows and more": lambda p: {"X__npy": npy(np.zeros((40, 2))) + b"more"},
    "other bounds than observed": lambda p: {"X__npy": npy(np.zeros((40, 2)))},
    "a huge array": lambda p: {"G__npy": huge_member((2**40, 2))},
    "G without rank": lambda p: {"G__npy": npy(np.ones((4, 2), dtype=np.int64))},
    "values too far apart": lambda p: {"X__npy": npy(np.repeat([[-1.5e308], [1.5e308]], 40).reshape(40, 2))},
    "bounds reversed": lambda p: {"inputs__declared__npy": npy(np.array([[1.0, 1.0], [-1.0, -1.0]]))},
    "bounds without end": lambda p: {"inputs__declared__npy": npy(np.array([[0.0, 0.0], [np.inf, 1.0]]))},
    "half of the bounds": lambda p: {"inputs__declared__npy": npy(np.array([[0.0, np.nan], [np.nan, np.nan]]))},
    "bounds of nothing": lambda p: {"inputs__declared__npy": npy(np.zeros((2, 0)))},
    "bounds that others declared": lambda p: {"inputs__declared__npy": npy(np.array([[-9.0, np.nan], [9.0, np.nan]]))},
    "bounds in force of NaN": lambda p: {"inputs__in_force__npy": npy(np.full((2, 2), np.nan))},
    "other targets than observed": lambda p: {"targets__in_force__npy": npy(np.array([[-1.0], [1.0]]))},
    "unit bounds of rows that were scaled": lambda p: {"model__json": header(p, **{"inputs.unit": True})},
    "unit bounds perhaps": lambda p: {"model__json": header(p, **{"inputs.unit": "yes"})},
    "projection out of range": lambda p: {"features__projection__npy": npy(np.full((2, 4), 2**60))},
    "exponents out of range": lambda p: {"features__exponents__npy": npy(np.full(4, -(2**63)))},
    "moments out of range": lambda p: {"moments__npy": npy(np.full((2, 3, 21), 2**62))},
    "moments of another width": lambda p: {"moments__npy": npy(np.zeros((2, 3, 20), dtype=np.int64))},
    "slots of nobody": lambda p: {"slots__npy": npy(np.zeros(40, dtype=np.int64))},
    "too many slots": lambda p: {"model__json": header(p, drawn=10**15)},
    "negative slots": lambda p: {"model__json": header(p, drawn=-5)},
    "alpha of text": lambda p: {"model__json": header(p, alpha="1")},
    "negative alpha": lambda p: {"model__json": header(p, alpha=-1.0)},
    "unknown features": lambda p: {"model__json": header(p, features={"name": "os.system", "params": {}, "drawn": {}})},
    "features without arrays": lambda p: {"model__json": header(p, features={"name": "Identity", "params": {}})},
    "unknown parameters": lambda p: {
        "model__json": header(p, features={"name": "Powers", "params": {"command": 1}, "drawn": {}})
    },
    "features that cannot be": lambda p: {
        "model__json": header(p, features={"name": "Powers", "params": {"degree": -1}, "drawn": {}})
    },
    "arrays that features did not draw": lambda p: {
        "model__json": header(p, features={"name": "Identity", "params": {}, "drawn": {"phases": [4]}})
    },
    "arrays of a shape that is none": lambda p: {
        "model__json": header(p, features={"name": "RandomFourier", "params": {}, "drawn": {"phases": "4"}})
    },
    "keep": lambda p: {"model__json": header(p, keep="everything")},
    "another word for outside": lambda p: {"model__json": header(p, outside="anything")},
    "a number for outside": lambda p: {"model__json": header(p, outside=7)},
    "an unknown scale": lambda p: {"model__json": header(p, scales=["log", "sqrt"])},
    "scales of other columns": lambda p: {"model__json": header(p, scales=["log", "log", "log"])},
    "scales that are no list": lambda p: {"model__json": header(p, scales={"0": "log"})},
    "scales of numbers": lambda p: {"model__json": header(p, scales=[1, 2])},
    "an empty scale": lambda p: {"model__json": header(p, scales=["log", []])},
    "knots that fall": lambda p: {"model__json": header(p, scales=["log", [2.0, 1.0]])},
    "knots without end": lambda p: {"model__json": header(p, scales=["log", [0.0, math.inf]])},
    "knots that are none": lambda p: {"model__json": header(p, scales=["log", [0.0, None, 1.0]])},
    "too many knots": lambda p: {"model__json": header(p, scales=["log", [*map(float, range(300))]])},
    "scales in deep lists": lambda p: {"model__json": header(p, scales=["log", [[["log"]]]])},
    "an unknown scale of the target": lambda p: {"model__json": header(p, target_scales=["sqrt"])},
    "knots of the target": lambda p: {"model__json": header(p, target_scales=[[0.0, 1.0]])},
    "scales of other targets": lambda p: {"model__json": header(p, target_scales=["log", "log"])},
    "target scales as nobody writes them": lambda p: {"model__json": header(p, target_scales="log")},
    "target scales that are no list": lambda p: {"model__json": header(p, target_scales={"0": "log"})},
    "scales as nobody writes them": lambda p: {"model__json": header(p, scales="log")},
    "more columns than were projected": lambda p: {"model__json": header(p, scales=["log", ["log", "linear"]])},
    "parameters": lambda p: {"model__json": header(p, parameters={"learner": "x"})},
    "parameters of text": lambda p: {"model__json": header(p, parameters=dict.fromkeys(PARAMETERS, "x"))},
    "feature names": lambda p: {"model__json": header(p, feature_names=["a"])},
    "an unknown kernel": lambda p: fourier_header(p, kernel="cosine"),
    "linear perhaps": lambda p: fourier_header(p, linear="yes"),
    "features that were not learned": lambda p: fourier_header(p, linear=True),
    "an order that the projection has not": lambda p: fourier_header(p, order=1),
    "an order of nothing": lambda p: fourier_header(p, order=0),
    "a scale of text": lambda p: fourier_header(p, scale="wide"),
    "a scale of NaN": lambda p: fourier_header(p, scale=[1.0, math.nan]),
    "a scale of other columns": lambda p: fourier_header(p, scale=[1.0, 1.0, 1.0]),
    "a scale that the projection has not": lambda p: fourier_header(p, scale=[1.0, 0.0]),
    "a scale below zero": lambda p: fourier_header(p, scale=[1.0, -1.0]),
    "a scale in an array that is not there": lambda p: fourier_header(p, scale=SUM),
    "a scale in an array that fails its sum": lambda p: (
        fourier_header(p, scale=SUM) | {"parameters__scale__npy": npy(np.ones(2))}
    ),
    "a scale in an array of another shape": lambda p: (
        fourier_header(p, scale=SUM) | {"parameters__scale__npy": npy(np.ones(3))}
    ),
    "a scale in an array of no shape": lambda p: (
        fourier_header(p, scale=SUM | {"shape": "2"}) | {"parameters__scale__npy": npy(np.ones(2))}
    ),
    "a scale in an array of a huge shape": lambda p: (
        fourier_header(p, scale=SUM | {"shape": [2**50]}) | {"parameters__scale__npy": huge_member((2**50,))}
    ),
    "a kernel in an array": lambda p: fourier_header(p, kernel=SUM) | {"parameters__kernel__npy": npy(np.ones(2))},
    "parameters left out": lambda p: (
        fourier_header(p)
        | {"model__json": header(p, features=json.loads(header(p))["features"] | {"params": {"n_features": 4}})}
    ),
    "coded without bounds": lambda p: {"model__json": header(p, keep="coded")},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused(saved, what):
    rewrite(saved, **HOSTILE[what](saved))
    with pytest.raises(InvalidFile, match="m.expunge"):
        CodedRegressor.load(saved)


@pytest.mark.parametrize("version", [5, 7, None])
def test_a_file_of_another_version_says_what_to_do(saved, version):
    rewrite(saved, model__json=header(saved, version=version))
    with pytest.raises(InvalidFile, match=f"has version {version}; this release reads version 6 only: use the release"):
        CodedRegressor.load(saved)


def test_rows_where_none_can_be_are_refused(tmp_path, rng):
    X, y = rng.uniform(-1, 1, (39, 2)), rng.uniform(-1, 1, 39)
    path = tmp_path / "m.expunge"
    for keep, member in (("rows", "X"), ("coded", "prints")):
        model = CodedRegressor(shards=4, rate=2, keep=keep, random_state=0, **UNIT).fit(X, y)
        model.save(path)
        rewrite(path, model__json=header(path, drawn=38))
        with pytest.raises(InvalidFile, match="never given out"):
            CodedRegressor.load(path)
        model.save(path)
        with zipfile.ZipFile(path) as archive:
            kept = np.load(io.BytesIO(archive.read(f"{member}.npy")))
        kept[~state_of(model).ensemble.store.live] = 1
        rewrite(path, **{f"{member}__npy": npy(kept)})
        with pytest.raises(InvalidFile, match="in empty slots"):
            CodedRegressor.load(path)


def test_clipping_lets_no_file_past_the_bounds(tmp_path, rng):
    X, y = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, 40)
    path = tmp_path / "m.expunge"
    CodedRegressor(bounds=(-1, 1), target_bounds=(-1, 1), clip=True, random_state=0).fit(X, y).save(path)
    rewrite(path, X__npy=npy(np.full((40, 2), 1e6)))
    with pytest.raises(InvalidFile, match="outside the bounds"):
        CodedRegressor.load(path)


MIXED = {"bounds": ([-1, None], [1, None]), "target_bounds": ([np.nan, -1], [np.nan, 2])}


def test_mixed_bounds_come_back(tmp_path, rng):
    X, y = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, (40, 2))
    model = CodedRegressor(random_state=0, **MIXED).fit(X, y)
    model.save(tmp_path / "m")
    again = clone(CodedRegressor.load(tmp_path / "m"))
    assert again.bounds == ([-1, None], [1, None])
    assert again.target_bounds == ([None, -1], [None, 2])
    assert again.fit(X, y).digest() == model.digest()


def test_mixed_bounds_of_a_file_are_checked_column_by_column(tmp_path, rng):
    X, y = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, (40, 2))
    path = tmp_path / "m.expunge"
    model = CodedRegressor(random_state=0, **MIXED).fit(X, y)
    kept = state_of(model).ensemble.store.X
    for column, value, reason in ((0, 1.5, "outside the bounds"), (1, 1.5, "neither declared nor those of the rows")):
        model.save(path)
        moved = kept.copy()
        moved[7, column] = value
        rewrite(path, X__npy=npy(moved))
        with pytest.raises(InvalidFile, match=reason):
            CodedRegressor.load(path)


@examples(60)
@given(regressors(), tables())
def test_a_blueprint_comes_back_on_its_own_and_builds_the_same_model(estimator, table):
    X, y = table
    model = estimator.fit(X, y)
    rule = None if isinstance(model.learner, str) else partial(EstimatorRule.from_estimator, model.learner)
    blueprint, file = state_of(model).blueprint, io.BytesIO()
    dump_archive(file, *blueprint_parts(blueprint))
    with Archive(file) as archive:
        again = load_blueprint(archive, rule=rule)
    X, y = again.admit(X, y.reshape(len(X), -1))
    assert ModelState.learn(again, place_rows(again, X, y)[0], len(X)).ensemble.digest() == model.digest()
    assert (again.clip, again.keep, again.fingerprint_key) == (
        blueprint.clip,
        blueprint.keep,
        blueprint.fingerprint_key,
    )


@pytest.mark.parametrize("part", [{"G": np.ones((4, 2), dtype=np.int64)}, {"targets.declared": np.zeros((2, 0))}])
def test_a_hostile_blueprint_is_refused(part):
    file = io.BytesIO()
    header, arrays = blueprint_parts(state_of(CodedRegressor(random_state=0).fit(np.eye(5), np.ones(5))).blueprint)
    dump_archive(file, header, arrays | part)
    with Archive(file, name="blueprint 7") as archive, pytest.raises(InvalidFile, match="blueprint 7 is inconsistent"):
        load_blueprint(archive)


def test_a_file_says_nothing_of_how_long_an_erased_id_was(tmp_path, rng):
    X, y = rng.random((20, 2)), rng.random(20)
    model = CodedRegressor(random_state=0).fit(X, y, ids=[f"{k}" * (50 if k == 7 else 1) for k in range(20)])
    model.unlearn("7" * 50)
    model.save(tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as archive:
        assert np.load(io.BytesIO(archive.read("ids.npy"))).dtype == "<U2"


def test_parameters_come_back(tmp_path, rng):
    X, y = rng.random((20, 2)), rng.random(20)
    lasso = Lasso(1e-3, fit_intercept=False)
    model = CodedRegressor(code=Code.single(), shards=None, alpha=7.0, learner=lasso, random_state=5).fit(X, y)
    model.save(tmp_path / "m")
    again = CodedRegressor.load(tmp_path / "m", learner=lasso)
    assert (again.alpha, again.random_state, again.shards) == (7.0, 5, None)


def test_compressed_members_are_refused(saved):
    with zipfile.ZipFile(saved) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    with pytest.raises(InvalidFile, match="compressed"):
        CodedRegressor.load(saved)


def test_hostile_coded_rows_and_rows_out_of_declared_bounds_are_refused(tmp_path, rng):
    X, y = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, 40)
    path = tmp_path / "m.expunge"
    CodedRegressor(shards=4, rate=2, keep="coded", random_state=0, **UNIT).fit(X, y).save(path)
    rewrite(path, q__npy=npy(np.full((2, 10, 4), 2**40)))
    with pytest.raises(InvalidFile, match="coded rows exceed"):
        CodedRegressor.load(path)
    CodedRegressor(code=Code.uncoded(4), random_state=0, **UNIT).fit(X, y).save(path)
    rewrite(path, X__npy=npy(np.full((40, 2), 5.0)))
    with pytest.raises(InvalidFile, match="outside the bounds"):
        CodedRegressor.load(path)


def test_a_failed_save_leaves_the_old_file_and_no_other(saved, monkeypatch):
    before = saved.read_bytes()
    model = CodedRegressor.load(saved)
    model.unlearn(3)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        model.save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["m.expunge"]


SCALED = [
    RandomFourier(4, scale=[1.0, 0.0, 2.0], linear=True),
    RandomFourier(4, scale=np.array([1, 0, 2]), kernel="matern52", order=2),
    RandomFourier(
        4, scale=np.asfortranarray([[1.0, 2.0, 0.0], [0.5, 0.0, -1.0], [3.0, 0.0, 0.0]]), kernel="exponential"
    ),
]


@pytest.mark.parametrize("features", SCALED, ids=repr)
def test_scales_of_inputs_and_of_features_come_back(tmp_path, rng, features):
    X, y = rng.random((40, 2)), rng.random(40)
    scales = ["log", ["linear", [0.0, 0.25, 1.0]]]
    model = CodedRegressor(features=features, scales=scales, outside="extrapolate", random_state=0).fit(X, y)
    model.save(tmp_path / "m")
    again = CodedRegressor.load(tmp_path / "m")
    assert (again.scales, again.outside) == (scales, "extrapolate")
    assert type(again.features.scale) is type(features.scale)
    np.testing.assert_array_equal(again.features.scale, features.scale)
    assert again.digest() == model.digest()
    assert again.predict(2 * X).tobytes() == model.predict(2 * X).tobytes()
    assert clone(again).fit(X, y).digest() == model.digest()


def test_a_header_that_could_not_be_read_again_is_not_written(tmp_path, rng, monkeypatch):
    model = CodedRegressor(features=RandomFourier(3, scale=np.eye(30)), random_state=0)
    model.fit(rng.random((40, 30)), rng.random(40))
    monkeypatch.setattr("expunge.saving.archive._HEADER_BYTES", 5000)
    model.save(tmp_path / "m")
    listed = clone(model).set_params(features__scale=np.eye(30).tolist()).fit(rng.random((40, 30)), rng.random(40))
    with pytest.raises(InvalidSetting, match="pass parameters of many numbers as NumPy arrays"):
        listed.save(tmp_path / "m")
    assert CodedRegressor.load(tmp_path / "m").digest() == model.digest()


def test_a_map_of_your_own_may_have_arrays_as_parameters(tmp_path, rng):
    X, y = rng.random((30, 2)), rng.random(30)
    model = CodedRegressor(features=Weighed(np.array([0.5, 0.25])), random_state=0).fit(X, y)
    assert model.digest() != CodedRegressor(features=Weighed(np.array([0.5, 0.2])), random_state=0).fit(X, y).digest()
    model.save(tmp_path / "m")
    with pytest.raises(InvalidSetting, match="other features than"):
        CodedRegressor.load(tmp_path / "m", features=Weighed(np.array([0.5, 0.5])))
    assert CodedRegressor.load(tmp_path / "m", features=Weighed(np.array([0.5, 0.25]))).digest() == model.digest()


class Weighed(FeatureMap):
    """Inputs times weights."""

    def __init__(self, weights=None):
        self.weights = weights

    @property
    def n_out(self):
        return len(self.weights)

    def map_block(self, scaled, unit=1.0):
        return scaled * self.weights * unit


def test_a_generator_is_not_saved_but_what_it_drew_is(tmp_path, rng):
    X, y = rng.random((20, 2)), rng.random(20)
    model = CodedRegressor(features=RandomFourier(3), random_state=np.random.default_rng(0)).fit(X, y)
    model.save(tmp_path / "m")
    again = CodedRegressor.load(tmp_path / "m")
    assert again.random_state is None
    assert again.digest() == model.digest()


def test_coded_rows_are_no_rows(rng):
    model = CodedRegressor(keep="coded", random_state=0, **UNIT).fit(rng.random((20, 2)), rng.random(20))
    with pytest.raises(InvalidInput, match="keeps no rows"):
        state_of(model).ensemble.store.as_rows()
