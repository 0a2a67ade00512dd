"""Quality is measured on real tables: loaders keep promises, splits keep people apart, results are not mixed up."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

import expunge
from benchmarks.quality import report
from benchmarks.quality.__main__ import main
from benchmarks.quality.datasets import DEVELOPMENT, HELD_OUT
from benchmarks.quality.methods import (
    BOOSTED,
    INSTALLED,
    LINEAR,
    NAMES,
    PAPER,
    PLAN,
    PLAN_2,
    PLAN_5,
    SMALL,
    TREES,
    Method,
    Outcome,
    ours,
    references,
)
from benchmarks.quality.scores import Cache, Scores, geometric_mean, goals, run, run_split
from benchmarks.quality.splits import COMMON, encode, split, test_rows
from benchmarks.quality.tables import MOST_ROWS, Facts, Loaded, Shape, Table
from expunge import Code, CodedRegressor, RandomFourier
from expunge.errors import MissingData

TABLES = {table.name: table for table in DEVELOPMENT + HELD_OUT}
test_rows.__test__ = False  # it is no test


def made(rows=400, *, people=False):
    """A small table with numbers, gaps, and a category with a rare value."""
    rng = np.random.default_rng(0)
    inputs = pd.DataFrame(
        {
            "a": rng.random(rows),
            "gaps": np.where(rng.random(rows) < 0.3, np.nan, rng.exponential(size=rows)),
            "city": rng.choice(["Berlin", "Paris", "Rome"], rows).astype(object),
            "never": np.full(rows, np.nan),
        }
    )
    inputs.loc[:3, "city"] = "Ulm"
    inputs.loc[4:9, "city"] = None
    y = inputs["a"].to_numpy() + (inputs["city"] == "Rome").to_numpy()
    return Loaded("made", inputs, y, rng.integers(0, 40, rows) if people else None)


def outcome(mse):
    return Outcome(mse, 1.0, 2.0, "a model")


def scores(name="a", held_out=False, splits=2, **factors):
    """Scores of a table whose boosted trees have the errors 2 and 4, then 1 and 3; ours so many times the better."""
    table = replace(TABLES["airfoil"], name=name, held_out=held_out)
    theirs = [{BOOSTED[0]: 2.0, BOOSTED[1]: 4.0}, {BOOSTED[0]: 1.0, BOOSTED[1]: 3.0}]
    rest = {method: factors.get(method, 1.0) for method in NAMES if method not in BOOSTED}
    both = [{**one, **{m: f * one[BOOSTED[0]] for m, f in rest.items()}} for one in theirs[:splits]]
    return Scores(table, Shape(1503, 5, None, 0), [{m: outcome(e) for m, e in one.items()} for one in both])


def test_there_are_thirteen_tables_and_three_more_that_are_held_out():
    assert len(DEVELOPMENT) >= 13 - len(HELD_OUT)
    assert len(HELD_OUT) == 3
    assert not any(table.held_out for table in DEVELOPMENT)
    assert all(table.held_out for table in HELD_OUT)
    assert len(TABLES) == len(DEVELOPMENT) + len(HELD_OUT)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_what_it_promises(name):
    table, loaded = TABLES[name], TABLES[name].load()
    facts = table.facts
    assert len(loaded.y) == min(facts.rows, MOST_ROWS)
    assert 1_000 <= len(loaded.y) == len(loaded.inputs)
    assert facts.least <= loaded.y.min() < loaded.y.max() <= facts.largest
    assert len(loaded.categories) == facts.categories
    assert table.target not in loaded.inputs
    assert (loaded.ids is None) == (table.person is None)
    if loaded.ids is not None:
        assert table.person not in loaded.inputs
        assert 100 < len(np.unique(loaded.ids)) < len(loaded.y)
    numbers = loaded.inputs.drop(columns=loaded.categories)
    with np.errstate(invalid="ignore"):
        assert np.nanmax(np.abs(np.corrcoef(numbers.fillna(0).to_numpy().T, loaded.y)[-1, :-1])) < 0.98  # no leak


@pytest.mark.parametrize(
    "wrong", [{"rows": 1502}, {"inputs": 6}, {"categories": 1}, {"least": 0.0}, {"largest": 141.0}]
)
def test_a_table_that_is_another_is_refused(wrong):
    table = TABLES["airfoil"]
    with pytest.raises(MissingData, match="airfoil is not the one that was chosen"):
        replace(table, facts=table.facts._replace(**wrong)).load()


def test_large_tables_are_sampled_and_always_the_same_rows():
    rows = MOST_ROWS + 500
    frame = pd.DataFrame({"x": np.arange(rows), "y": np.arange(rows) * 2.0, "who": np.arange(rows) // 3})
    frame.loc[[7, 9], "y"] = np.nan
    table = Table(
        "t", "", "", lambda: pd.concat([frame, frame[:5]]), "y", Facts(rows - 2, 1, 0, 0, 2.0 * rows - 2), "who"
    )
    first, again = table.load(), table.load()
    assert len(first.y) == MOST_ROWS
    np.testing.assert_array_equal(first.y, again.y)
    np.testing.assert_array_equal(first.inputs["x"] * 2.0, first.y)
    np.testing.assert_array_equal(first.ids, first.inputs["x"] // 3)
    assert len(np.unique(first.y)) == MOST_ROWS  # duplicates and gaps were left out


@pytest.mark.parametrize("people", [True, False])
def test_nobody_is_on_both_sides_and_splits_differ(people):
    table = made(people=people)
    masks = [test_rows(table, number) for number in range(5)]
    ids = np.arange(400) if table.ids is None else table.ids
    for mask in masks:
        assert not set(ids[mask]) & set(ids[~mask])
        assert len(set(ids[mask])) == len(set(ids)) // 5
    assert len({mask.tobytes() for mask in masks}) == 5
    np.testing.assert_array_equal(masks[3], test_rows(table, 3))


def test_numbers_come_from_the_training_rows_alone():
    table = made()
    train = ~test_rows(table, 0)
    both = encode(table, train)
    gaps = table.inputs["gaps"].to_numpy()
    filled = np.where(np.isnan(gaps), np.nanmedian(gaps[train]), gaps)
    cities = [(table.inputs["city"] == city).to_numpy(dtype=float) for city in ("Berlin", "Paris", "Rome")]
    np.testing.assert_array_equal(both.X, np.column_stack([table.inputs["a"], filled, *cities]))
    np.testing.assert_array_equal(both.trees[:, 1], gaps)
    assert np.isnan(both.trees[:, 3]).all()
    assert both.categorical.tolist() == [False, False, True, False]
    for city in ("Berlin", "Paris", "Rome"):
        assert len(set(both.trees[table.inputs["city"] == city, 2])) == 1
    assert np.isnan(both.trees[4:10, 2]).all()
    changed = table.inputs.copy()
    changed.loc[~train, "gaps"] *= 100
    changed.loc[~train, "city"] = "Ulm"
    other = encode(replace(table, inputs=changed), train)
    np.testing.assert_array_equal(other.X[train], both.X[train])
    np.testing.assert_array_equal(other.trees[train], both.trees[train])


def test_a_value_is_an_input_if_enough_training_rows_have_it():
    table = made()
    for ulm in (COMMON - 1, COMMON):
        table.inputs.loc[:, "city"] = ["Ulm"] * ulm + ["Rome"] * (400 - ulm)
        assert encode(table, np.ones(400, dtype=bool)).X.shape[1] == 2 + 1 + (ulm == COMMON)


def test_geometric_means_and_ratios():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1)
    assert geometric_mean([1.0, 3.0, 9.0]) == pytest.approx(3)
    score = scores(plan=0.5, linear=4.0)
    assert score.better == BOOSTED[0]
    assert score.ratio(PLAN) == pytest.approx(0.5)
    assert score.ratio(PLAN, LINEAR) == pytest.approx(1 / 8)
    assert score.ratio(BOOSTED[1]) == pytest.approx(3.5 / 1.5)
    assert score.spread(BOOSTED[1]) == pytest.approx(np.std([4 / 2, 3 / 1]))
    assert score.forget_ms(PLAN) == 2.0


def test_goals_are_met_or_missed():
    good = [scores("a", plan=0.8), scores("b", plan=0.9)]
    assert [goal.met for goal in goals(good)] == [True] * 6
    bad = [scores("a", plan=0.5, **{PLAN_5: 1.2, SMALL: 1.2}), scores("b", plan=2.0, linear=1.9, **{SMALL: 2.2})]
    assert [goal.met for goal in goals(bad)] == [False] * 6
    texts = [str(goal) for goal in goals(bad)]
    assert all("MISSED" in text for text in texts)
    assert "worst table (b): 2, goal at most 1.3" in texts[1]


def test_no_tables_have_no_goals():
    assert goals([]) == []


@pytest.mark.slow
def test_some_tables_and_methods_can_be_asked_for(tmp_path, capsys):
    main(["airfoil", "--methods", LINEAR, "--splits", "1", "--jobs", "1", "--cache", str(tmp_path)])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("airfoil: 1,503 rows, 5 inputs")
    assert second.split()[0] == LINEAR
    assert [path.name.split("-")[1] for path in (tmp_path / "airfoil").iterdir()] == [LINEAR]


def test_a_table_that_is_held_out_has_to_be_asked_for_twice(capsys):
    with pytest.raises(SystemExit):
        main(["houses"])
    assert "held out, nothing may be tuned on them: houses" in capsys.readouterr().err


def test_results_are_not_mixed_up(tmp_path):
    calls = []

    def counting(value, rows):
        calls.append(value)
        return {LINEAR: outcome(value)}

    def found(value, settings, *, table=None, number=0):
        method = Method((LINEAR,), partial(counting, value), settings)
        return run_split(table or made(), number, [method], Cache(tmp_path))[LINEAR].mse

    assert found(1.0, {"alpha": 1}) == 1.0
    assert found(2.0, {"alpha": 1}) == 1.0  # from the cache
    assert found(3.0, {"alpha": 2}) == 3.0
    assert found(4.0, {"alpha": 1}, number=1) == 4.0
    assert found(5.0, {"alpha": 1}, table=replace(made(), y=made().y + 1)) == 5.0
    assert found(6.0, {"alpha": 1}, table=replace(made(), name="other")) == 6.0
    assert found(7.0, {"alpha": 1}) == 1.0
    assert calls == [1.0, 3.0, 4.0, 5.0, 6.0]


def test_results_that_come_together_are_computed_again_if_one_is_missing(tmp_path):
    method = Method((PLAN, PLAN_5), lambda rows: {PLAN: outcome(1.0), PLAN_5: outcome(2.0)}, {})
    cache = Cache(tmp_path)
    cache.put("t", 0, "data", method, method.run(None))
    assert cache.get("t", 0, "data", method) == {PLAN: outcome(1.0), PLAN_5: outcome(2.0)}
    (first, _) = sorted((tmp_path / "t").iterdir())
    first.unlink()
    assert cache.get("t", 0, "data", method) is None


class Planned:
    """What a plan returns, chosen beforehand."""

    def __init__(self, D):
        self._D = D
        self.best = self._model(D)

    def _model(self, D):
        return CodedRegressor(code=Code.single(), features=RandomFourier(D), alpha=1e-3, random_state=0)

    def within(self, ms):
        return self._model(self._D * ms // 10)


def test_a_small_run_from_tables_to_the_page(tmp_path, monkeypatch):
    asked = []

    def plan(X, y, ids=None, *, random_state, references, max_features, quick=False, forget_ms=None):
        assert quick == (forget_ms == 5)  # the small plan of `expunge train`
        if not quick:
            asked.append((len(X), ids is None, random_state, references))
        return Planned(max_features)

    monkeypatch.setattr(expunge, "plan", plan, raising=False)
    methods = [*references(iterations=(3, 6), trees=3), *ours(features=20, max_features=40)]
    tables, cache = [TABLES["airfoil"], TABLES["houses"]], Cache(tmp_path / "cache")
    results = list(run(tables, methods, cache, splits=2, jobs=1))
    assert asked == [(1202, True, 0, False), (1202, True, 1, False), (1377, True, 0, False), (1377, True, 1, False)]
    assert list(run(tables, methods, cache, splits=2, jobs=1)) == results
    assert len(asked) == 4  # the second run was read from the disk
    rows = split(tables[0].load(), 1)
    first = results[0].splits[1]
    assert set(first) == set(NAMES)
    assert first[LINEAR].mse < np.var(rows.y_test)
    own = Planned(40).best.fit(rows.X, rows.y)
    assert first[PLAN].mse == pytest.approx(np.mean((own.predict(rows.X_test) - rows.y_test) ** 2))
    assert first[PLAN_2].mse != first[PLAN_5].mse
    assert all((first[name].forget_ms is None) == (name in (LINEAR, *BOOSTED, *INSTALLED, TREES)) for name in NAMES)
    assert first[PLAN].chosen == "40 cosines, gaussian, alpha 0.001, one learner"
    assert first[PAPER].chosen == "20 cosines, gaussian, alpha 0.0001, 20 shards, rate 5"
    text = report.page(results, goals(results[:1]), goals(results[1:]))
    assert text.index("| airfoil |") < text.index("## Held out") < text.index("| houses |")
    assert "| **geometric mean** |" in text
    assert any(PAPER in line and "ms to forget" in line for line in report.lines(results[0]))
    report.draw_ratios(results, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
