"""PlannedRegressor: the model, settings included, is the one that never saw the people who left."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from expunge import CodedRegressor, PlannedRegressor
from expunge.errors import InvalidFile, InvalidSetting, UnknownId
from expunge.planning.planner import plan_people
from expunge.planning.sample import hash_people
from expunge.tables import Schema

from support.sampling import examples


def draw_rows(seed, people=70, rows=120):
    """Rows of people, each with some of them; every person has at least one."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation([*range(people), *rng.integers(0, people, rows - people)]) + 100
    X = rng.random((rows, 2))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(rows), ids


def make_frame(seed, rows=120):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(rows) < 0.1, np.nan, rng.integers(18, 90, rows)),
            "city": rng.choice(["Bonn", "Köln", None], rows),
            "joined": pd.date_range("2020-01-01", periods=rows),
            "member": rng.random(rows) < 0.5,
        }
    )


def weights(model):
    return model.weights_.tobytes()


def assert_same_model(one, other):
    assert one.digest() == other.digest()
    assert weights(one) == weights(other)
    for name in ("shards", "rate", "alpha", "features", "outside", "random_state"):
        assert str(getattr(one.settings_, name)) == str(getattr(other.settings_, name))


@examples(2)
@given(st.integers(0, 10**6), st.data())
def test_after_replanning_nothing_depends_on_the_rows_of_people_who_left(seed, data):
    X, y, ids = draw_rows(seed)
    gone = data.draw(st.lists(st.sampled_from(range(100, 170)), min_size=1, max_size=20, unique=True))
    left = np.isin(ids, gone)
    other_X, other_y = X.copy(), y.copy()
    other_X[left], other_y[left] = np.random.default_rng(seed + 1).random((left.sum(), 2)) * 9, 1e3  # other people
    models = [PlannedRegressor(random_state=seed).fit(*rows, ids) for rows in ((X, y), (other_X, other_y))]
    for model in models:
        for part in np.array_split(data.draw(st.permutations(gone)), min(3, len(gone))):
            model.unlearn(part)
        assert not model.complete_  # everybody of this small table was looked at
        assert model.replan().complete_
    assert_same_model(*models)
    assert_same_model(models[0], models[0].retrained())
    kept = ~left
    alone = plan_people(  # the settings are those that a plan of the survivors alone gives
        X[kept], y[kept, None], hash_people(ids[kept], kept.sum(), seed), bounds=None, target_bounds=None, scales=None,
        target_scales=None, clip=False, random_state=seed, forget_ms=5.0, max_features=600, references=False,
        quick=True,
    ).best  # fmt: skip
    for name, value in alone.get_params(deep=False).items():
        assert str(getattr(models[0].settings_, name)) == str(value)


def test_rows_that_come_and_change_between_plans_are_planned_on():
    X, y, ids = draw_rows(3)
    model = PlannedRegressor().fit(X[:80], y[:80], ids[:80])
    model.partial_fit(X[80:], y[80:], ids[80:] + 1000)
    person = ids[0]
    count = int((ids[:80] == person).sum())
    report = model.rectify([person] * count, X[:count] / 2, y[:count])
    assert (report.rows, report.complete, model.complete_) == (count, False, False)
    assert_same_model(model.replan(), model.retrained())
    assert model.n_rows_ == 120


def test_people_outside_the_sample_are_complete_at_once(monkeypatch):
    monkeypatch.setattr("expunge.planning.planner.MAX_QUICK_ROWS", 64)
    X, y, ids = draw_rows(5)
    model = PlannedRegressor().fit(X, y, ids)
    hashes = hash_people(np.unique(ids), len(np.unique(ids)), 0)
    by_hash = np.unique(ids)[np.argsort(hashes)]
    assert 8 <= model.planning_people_ < 60
    before = str(model.settings_)
    report = model.unlearn(by_hash[-5:])
    assert (report.complete, model.complete_) == (True, True)
    assert_same_model(model, model.retrained())
    report = model.unlearn(by_hash[0])
    assert (report.complete, model.complete_) == (False, False)
    assert str(model.settings_) == before
    model.partial_fit(X[:1], y[:1], ids=[by_hash[0]])  # readmitted: the plan has not looked at this row
    assert model.replan().unlearn(by_hash[-6]).complete


def test_somebody_who_came_after_the_plan_had_no_part_in_it():
    X, y, ids = draw_rows(6)
    model = PlannedRegressor().fit(X, y, ids)
    model.partial_fit(X[:3], y[:3], ids=[7, 8, 9])
    assert model.unlearn([7, 8, 9]).complete


@pytest.mark.parametrize("to_frame", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_a_frame_with_text_dates_and_gaps_needs_no_pipeline(to_frame):
    frame, (_, _, ids) = make_frame(0), draw_rows(0)
    y = np.nan_to_num(frame["age"].to_numpy(), nan=50.0) + 10 * frame["member"].to_numpy()
    model = PlannedRegressor().fit(to_frame(frame), y, ids)
    assert model.score(to_frame(frame), y) > 0.9
    assert set(model.schema_.input_kinds) == {"age", "city", "joined", "member"}
    model.unlearn(np.unique(ids)[:9])
    assert_same_model(model.replan(), model.retrained())
    assert (
        clone(model).fit(to_frame(frame), y, ids).digest() == PlannedRegressor().fit(to_frame(frame), y, ids).digest()
    )


def test_a_given_schema_stays_declared():
    text = """
    target = "y"
    [columns.a]
    kind = "number"
    low = 0
    high = 1
    [columns.b]
    kind = "number"
    low = 0
    high = 1
    [columns.y]
    kind = "number"
    """
    X, y, ids = draw_rows(1)
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = PlannedRegressor(schema=Schema.parse(text)).fit(frame, y, ids)
    model.unlearn(ids[X[:, 0].argmax()])
    model.replan()
    assert model.bounds_.low.tolist() == [0, 0]
    assert model.bounds_.high.tolist() == [1, 1]
    with pytest.raises(InvalidSetting, match="schema must be a Schema, a path or None, got dict"):
        PlannedRegressor(schema={}).fit(frame, y)


def test_a_saved_model_plans_again_as_the_original_would(tmp_path):
    frame, (_, y, ids) = make_frame(2), draw_rows(2)
    model = PlannedRegressor(random_state=4).fit(frame, y, ids)
    model.partial_fit(frame[:3], y[:3], [7, 8, 9])
    model.unlearn(ids[0])
    model.save(tmp_path / "m.expunge")
    loaded = PlannedRegressor.load(tmp_path / "m.expunge")
    assert_same_model(loaded, model)
    assert loaded.get_params() == model.get_params()
    assert (loaded.complete_, loaded.planning_people_) == (False, model.planning_people_)
    assert_same_model(loaded.replan(), model.replan())
    CodedRegressor(random_state=0).fit(*draw_rows(0)[:2]).save(tmp_path / "other.expunge")
    with pytest.raises(InvalidFile):
        PlannedRegressor.load(tmp_path / "other.expunge")


def test_a_failed_request_changes_nothing(monkeypatch):
    X, y, ids = draw_rows(4)
    model = PlannedRegressor().fit(X, y, ids)
    before, plan = model.digest(), model.planning_people_
    with pytest.raises(UnknownId):
        model.unlearn([ids[0], 9999])
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((50, 2), np.nan), np.ones(50))
    monkeypatch.setattr("expunge.planned.plan_people", lambda *given, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.replan()
    assert (model.digest(), model.planning_people_, model.complete_) == (before, plan, True)


def test_when_everybody_left_there_is_nothing_to_predict_from():
    X, y, ids = draw_rows(8)
    model = PlannedRegressor().fit(X, y, ids)
    model.unlearn(np.unique(ids))
    assert model.replan().digest() == model.retrained().digest()
    assert model.complete_
    with pytest.raises(Exception, match="unlearned"):
        model.predict(X)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mean 0 and standard deviation 1")  # some of these checks standardise their rows
@parametrize_with_checks([PlannedRegressor()])
def test_it_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)
