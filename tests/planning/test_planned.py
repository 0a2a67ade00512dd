"""PlannedRegressor: the model, settings included, is the one that never saw the people who left."""

from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from expunge import CodedRegressor, PlannedRegressor, SchemaTransformer, plan
from expunge.errors import InvalidInput, InvalidSetting, UnknownId
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


SCHEMA = Schema.parse("""
id = "who"
target = "y"
[columns.age]
kind = "number"
low = 0
high = 120
fill = 40
clip = true
[columns.city]
kind = "category"
values = ["Bonn", "Köln"]
fill = "other"
[columns.joined]
kind = "date"
low = 2019-01-01
high = 2025-12-31
format = "31.12.2020"
[columns.member]
kind = "boolean"
fill = false
[columns.y]
kind = "number"
""")
CELLS = st.fixed_dictionaries(
    {
        "age": st.none() | st.integers(-5, 140),
        "city": st.none() | st.sampled_from(["Bonn", "Köln", "Ulm", "x"]),
        "joined": st.dates(date(2019, 1, 1), date(2025, 12, 31)).map(lambda day: day.strftime("%d.%m.%Y")),
        "member": st.none() | st.booleans(),
    }
)


@examples(2)
@given(st.data())
def test_tables_with_gaps_and_text_are_forgotten_settings_included(data):
    """Fit, unlearn, replan gives the model of anybody else in the place of those who left, planned on the survivors."""
    seed = data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    people, rows = data.draw(st.integers(6, 40)), data.draw(st.integers(60, 140))
    ids = rng.permutation([*range(people), *rng.integers(0, people, rows - people)])
    pool = data.draw(st.lists(CELLS, min_size=8, max_size=30))
    cells = [pool[k] for k in rng.integers(0, len(pool), rows)]
    y = np.array([(cell["age"] or 40) / 9 + (cell["city"] == "Bonn") for cell in cells]) + rng.normal(0, 0.1, rows)
    gone = data.draw(st.lists(st.sampled_from(range(people)), min_size=1, max_size=people - 4, unique=True))
    left = np.isin(ids, gone)
    others = data.draw(st.lists(CELLS, min_size=1, max_size=5))
    other_cells = [others[k % len(others)] if left[k] else cell for k, cell in enumerate(cells)]
    models = []
    for table, targets in ((cells, y), (other_cells, np.where(left, 999.0, y))):
        model = PlannedRegressor(schema=SCHEMA, random_state=seed).fit(pl.DataFrame(table), targets, ids)
        model.unlearn(data.draw(st.permutations(gone)))
        assert not model.complete_
        models.append(model.replan())
    assert models[0].complete_
    assert_same_model(*models)
    assert_same_model(models[0], models[0].retrained())
    new = pl.DataFrame(data.draw(st.lists(CELLS, min_size=3, max_size=3)), infer_schema_length=None)
    assert models[0].predict(new).tobytes() == models[1].predict(new).tobytes()


def test_an_erasure_is_incomplete_if_without_these_rows_the_number_of_rows_has_another_power_of_two(monkeypatch):
    monkeypatch.setattr("expunge.planning.planner.MAX_QUICK_ROWS", 64)
    X, y, ids = draw_rows(5, people=130, rows=130)
    model = PlannedRegressor().fit(X, y, ids)
    outside = np.unique(ids)[np.argsort(hash_people(np.unique(ids), 130, 0))][-8:]
    model.partial_fit(X[:9], y[:9], ids=range(9))  # whoever comes later had no part in the plan
    assert model.unlearn(range(9)).complete
    assert model.unlearn(outside[:2]).complete
    assert_same_model(model, model.retrained())
    assert not model.unlearn(outside[2]).complete  # 127 rows
    assert not model.complete_
    assert not model.unlearn(outside[3]).complete
    assert_same_model(model.replan(), model.retrained())
    assert model.unlearn(outside[4]).complete


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


def test_what_a_proposed_schema_leaves_out_or_reads_in_a_notation_is_said_aloud():
    _, y, ids = draw_rows(0)
    frame = pd.DataFrame(
        {
            "Unnamed: 0": np.arange(120),
            "joined": [f"{k % 28 + 1}.{k % 12 + 1}.2020" for k in range(120)],
            "since": [f"2020-{k % 12 + 1:02}-{k % 28 + 1:02}" for k in range(120)],
            "price": [f"{k},5 €" for k in range(120)],
            "name": [f"person {k}" for k in range(120)],
        }
    )
    with pytest.warns(UserWarning, match="columns of X that you may want to declare otherwise") as caught:
        model = PlannedRegressor().fit(frame, y, ids)
    (text,) = [str(warning.message) for warning in caught]
    assert caught[0].filename == __file__
    for words in (
        "'Unnamed: 0' is left out", "'joined': the dates are read like 31.12.2020", "'name' is left out",
        "'price': the numbers are read like 1234,56 €",
    ):  # fmt: skip
        assert words in text
    assert model.schema_.inputs == ("joined", "since", "price")
    with pytest.raises(InvalidInput, match="column 'joined' must hold dates or times like 31.12.2020") as refusal:
        model.predict(frame.assign(joined="canary"))
    assert "canary" not in str(refusal.value)


BAD_TARGETS = {"text": "canary", "gaps": np.nan, "infinity": np.inf, "nothing": None}


@pytest.mark.parametrize("cell", BAD_TARGETS.values(), ids=BAD_TARGETS)
@pytest.mark.parametrize("as_frame", [True, False])
def test_targets_that_are_no_finite_numbers_are_refused_by_position(cell, as_frame):
    frame, (X, y, ids) = make_frame(0), draw_rows(0)
    targets = y.astype(object)
    targets[[3, 7]] = cell
    for model in (PlannedRegressor(), CodedRegressor()):
        if as_frame and type(model) is CodedRegressor:
            continue
        with pytest.raises(InvalidInput, match="2 of 120 rows, at positions 4, 8; leave them out") as refusal:
            model.fit(frame if as_frame else X, targets, ids)
        assert "canary" not in str(refusal.value)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.fit(frame if as_frame else X, y[:50], ids)


def test_frames_that_cannot_be_read_are_refused_without_a_cell():
    frame, (_, y, ids) = make_frame(0), draw_rows(0)
    with pytest.raises(InvalidInput, match="column 5 has cells of mixed types") as refusal:
        PlannedRegressor().fit(frame.assign(mixed=[1, "canary"] * 60), y, ids)
    assert "canary" not in str(refusal.value)
    with pytest.raises(InvalidInput, match="columns 1 and 2 have the same"):
        PlannedRegressor().fit(frame.set_axis(["a", "a", "b", "c"], axis=1), y, ids)


def test_a_frame_may_have_several_targets_and_its_index_is_no_input():
    frame, (_, y, ids) = make_frame(0), draw_rows(0)
    targets = np.column_stack([y, frame["member"] + 0.1 * y])
    model = PlannedRegressor().fit(frame.set_index(pd.Index(ids, name="customer")), targets, ids)
    assert model.schema_.input_kinds.keys() == set(frame)
    assert model.predict(frame).shape == (120, 2)
    assert model.unlearn(ids[0]).rows
    assert_same_model(model.replan(), model.retrained())


def test_columns_may_come_in_another_order_and_with_new_values_and_more_columns():
    frame, (_, y, ids) = make_frame(0), draw_rows(0)
    model = PlannedRegressor().fit(frame, y, ids)
    shuffled = frame[frame.columns[::-1]].assign(more="text")
    assert model.predict(shuffled).tolist() == model.predict(frame).tolist()
    assert np.isfinite(model.predict(frame.assign(city="a new city"))).all()
    with pytest.raises(InvalidInput, match="no column 'city'"):
        model.predict(frame.drop(columns="city"))


@pytest.mark.parametrize("people", [1, 4, 5])
def test_a_table_of_few_people_is_learned(people):
    X, y, _ = draw_rows(0)
    model = PlannedRegressor(random_state=5).fit(X, y, ids=np.arange(120) % people)
    assert np.isfinite(model.predict(X)).all()


def test_a_frame_is_planned_on_by_a_schema():
    frame, (_, y, ids) = make_frame(0), draw_rows(0)
    planned = PlannedRegressor().fit(frame, y, ids)
    schema = planned.schema_
    chosen = plan(frame, y, ids, schema=schema, quick=True, forget_ms=5.0, max_features=600, references=False)
    assert chosen.choice.alpha == planned.settings_.alpha
    line = make_pipeline(SchemaTransformer(schema), chosen.best).fit(frame, y)
    assert np.abs(line.predict(frame) - planned.predict(frame)).max() < 0.2 * np.ptp(y)
    with pytest.raises(InvalidSetting, match="a schema declares bounds and scales: leave out bounds"):
        plan(frame, y, schema=schema, bounds=(0, 1))
    with pytest.raises(InvalidInput, match="X has text in column 'city'.*declare the columns in a schema"):
        plan(frame.drop(columns="joined"), y)


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
    with pytest.raises(InvalidSetting, match="a model for regression, which PlannedRegressor cannot load"):
        PlannedRegressor.load(tmp_path / "other.expunge")
    with pytest.raises(InvalidSetting, match="a model for planned regression, which CodedRegressor cannot load"):
        CodedRegressor.load(tmp_path / "m.expunge")


def test_a_proposed_schema_can_be_given_back():
    frame, (_, y, ids) = make_frame(3), draw_rows(3)
    y = y.copy()
    y[5] = 1e6  # beyond the bounds that ten people support
    with pytest.warns(UserWarning, match="1 person has values outside the proposed bounds"):
        proposed = PlannedRegressor().fit(frame, y, ids)
    given = PlannedRegressor(schema=proposed.schema_).fit(frame, y, ids)
    assert given.schema_.to_json() == proposed.schema_.to_json()
    assert given.predict(frame).tolist() == proposed.predict(frame).tolist()


def test_a_failed_request_changes_nothing(monkeypatch):
    X, y, ids = draw_rows(4)
    model = PlannedRegressor().fit(X, y, ids)
    before, plan = model.digest(), model.planning_people_
    with pytest.raises(UnknownId):
        model.unlearn([ids[0], 9999])
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((50, 2), np.nan), np.ones(50))
    monkeypatch.setattr("expunge.planned.choose_settings", lambda *given, **options: 1 / 0)
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


FRAMES_ARE_NOT_ARRAYS = {
    "check_regressor_data_not_an_array": (
        "ten people support the bounds proposed for a frame; those of an array are observed"
    )
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mean 0 and standard deviation 1")  # some of these checks standardise their rows
@parametrize_with_checks([PlannedRegressor()], expected_failed_checks=lambda estimator: FRAMES_ARE_NOT_ARRAYS)
def test_it_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)
