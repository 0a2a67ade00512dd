"""`plan` as users call it: what it takes, what it refuses, and that it repeats."""

import time

import numpy as np
import pandas
import polars
import pytest
from threadpoolctl import threadpool_limits

import expunge
from expunge.errors import InvalidInput, InvalidSetting
from expunge.planning.plan_file import PlanFile
from expunge.planning.planner import count_bits
from expunge.testing import check_unlearning

SMALL = {"max_features": 16, "references": False, "quick": True}


def quick(X, y, ids=None, **options):
    return expunge.plan(X, y, ids, **SMALL | options)


def said(made):
    """A plan without what was measured."""
    return PlanFile.from_plan(made, ["x"], scales=True).to_toml()


@pytest.fixture(scope="module")
def quickly(table):
    return quick(*table)


def test_the_same_rows_and_seed_give_the_same_plan_whatever_the_clock_says(table, quickly, monkeypatch):
    ticks = iter(np.random.default_rng(0).uniform(-1e9, 1e9, 10**6).tolist())
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    again = quick(*table)
    assert said(again) == said(quickly)
    assert again.choice.measured_train_s != quickly.choice.measured_train_s


def test_the_number_of_threads_and_the_type_of_ids_do_not_matter(table, quickly, monkeypatch):
    X, y, ids = table
    with threadpool_limits(2):
        assert said(quick(X, y, ids.astype(str))) == said(quickly)
    assert said(quick(X.tolist(), y.tolist(), ids.tolist())) == said(quickly)


def test_another_seed_is_in_the_plan(table, quickly):
    other = quick(*table, random_state=5)
    assert other.best.random_state == other.best.features.random_state == 5
    assert said(other) != said(quickly)


def test_whose_a_row_is_matters(table, quickly):
    X, y, _ = table
    assert said(quick(X, y)) != said(quickly)


def test_frames_are_tables(table, quickly):
    X, y, ids = table
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    assert said(quick(frame, pandas.Series(y), pandas.Series(ids))) == said(quickly)
    assert said(quick(polars.DataFrame(X), polars.Series(y), polars.Series(ids))) == said(quickly)


def test_the_best_is_the_candidate_and_forgets_exactly(table, planned):
    X, y, _ = table
    best, choice = planned.best, planned.choice
    assert choice in planned.table
    assert not hasattr(best, "coef_")
    assert (best.shards, best.rate, best.alpha) == (choice.shards, choice.rate, choice.alpha)
    assert best.features.n_features == choice.cosines <= 30
    check_unlearning(best, X[:120], y[:120], requests=3)


def test_references_are_a_line_and_trees(planned):
    assert [other.name for other in planned.references] == ["linear", "boosted trees, 100", "boosted trees, 400"]
    assert planned.references[0].error > 3 * planned.choice.error


def test_progress_rises_to_one(table):
    told = []
    quick(*table, progress=told.append)
    assert told == sorted(told)
    assert (told[-1], 0 < told[0] < 1) == (1.0, True)


def test_several_targets_share_a_plan(table):
    X, y, ids = table
    made = quick(X, np.column_stack([y, 1e6 * X[:, 2]]), ids)
    assert 0 < made.choice.error < 0.5
    assert made.best.fit(X, np.column_stack([y, X[:, 2]])).predict(X).shape == (300, 2)


def test_constant_columns_and_bounds_of_every_form(table):
    X, y, _ = table
    X = np.column_stack([X, np.full(300, 4.0)])
    for bounds in (None, ([0.0] * 4, [5.0] * 4), np.array([[0.0] * 4, [5.0] * 4])):
        made = quick(X, y, bounds=bounds, target_bounds=(-9.0, 9.0))
        assert made.choice.r2 > 0.5
        assert made.best.target_bounds == (-9.0, 9.0)
        made.best.fit(X, y)


@pytest.mark.parametrize("references", [False, True])
def test_columns_and_targets_that_are_all_constant_have_a_plan(references):
    X = np.random.default_rng(0).random((60, 2))
    constant, once = np.full((60, 2), 4.0), np.eye(60)[:, :2]
    for inputs, y in (
        (constant, X[:, 0]),
        (constant, constant[:, 0]),
        (once, once[:, 1]),
        (X, np.column_stack([X[:, 0], constant[:, 0]])),
    ):
        made = quick(inputs, y, references=references)
        assert np.isfinite([one.error for one in (*made.table, *made.references)]).all()
        assert np.isfinite(made.best.fit(inputs, y).predict(inputs)).all()


def test_numbers_whose_squares_are_too_large_are_refused(table):
    X, y, _ = table
    for rows in ((X * 1e200, y), (X, y * 1e200), (X, np.full(300, -1e300)), (np.full((300, 2), 1e308), y)):
        with pytest.raises(InvalidInput, match=r"must not hold numbers beyond 1e\+150; rescale"):
            quick(*rows)


def test_unit_bounds_have_no_scales(table):
    X, y, _ = table
    made = quick(X, y / 4, bounds="unit", target_bounds="unit")
    assert made.best.scales is None
    assert made.bits == pytest.approx(count_bits(3, [], 0))
    made.best.fit(X, y / 4)


def test_the_scales_of_the_caller_are_kept(table):
    made = quick(*table, scales="linear")
    assert made.best.scales == "linear"
    assert made.bits == pytest.approx(count_bits(3, [], 1))


def test_the_plan_proposes_scales_only_for_inputs_whose_entry_is_none(table, quickly):
    X, y, ids = table
    made = quick(X, y, ids, scales=["linear", None, "log"])
    given = made.best.scales
    assert (given[0], given[2]) == ("linear", "log")
    assert given[1] == quickly.best.scales[1] != "linear"
    assert made.bits == pytest.approx(count_bits(4, [given[1][1]], 1))
    made.best.fit(X, y)
    assert quick(X, y, ids, scales=[None] * 3).best.scales == quickly.best.scales
    unit = quick(X, y / 4, bounds="unit", target_bounds="unit", scales=[None, "linear", None])
    assert unit.best.fit(X, y / 4).predict(X).shape == (300,)
    with pytest.raises(InvalidSetting, match="one entry for each of the 3 inputs; got 2 entries"):
        quick(X, y, scales=[None, "linear"])


def test_a_table_of_forty_rows_has_a_plan_and_one_of_less_has_none(table):
    X, y, _ = table
    assert quick(X[:40], y[:40]).sampled == 40
    with pytest.raises(ValueError, match="a plan needs at least 40 rows"):
        quick(X[:39], y[:39])
    with pytest.raises(ValueError, match="rows of 4 people"):
        quick(X, y, np.arange(300) % 3)


def test_rows_to_train_on_count_in_the_costs(table, quickly):
    more = quick(*table, rows=1_000_000)
    assert more.rows == 1_000_000
    assert more.choice.train_s > 1000 * quickly.choice.train_s


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"forget_ms": 0}, "forget_ms must be None or a number of milliseconds above 0, got 0"),
        ({"forget_ms": -1.0}, "forget_ms must be"),
        ({"forget_ms": np.nan}, "forget_ms must be"),
        ({"forget_ms": np.inf}, "forget_ms must be"),
        ({"forget_ms": "5"}, "forget_ms must be"),
        ({"random_state": -1}, "random_state must be a whole number >= 0, so that plans repeat, got -1"),
        ({"random_state": None}, "random_state must be"),
        ({"random_state": True}, "random_state must be"),
        ({"random_state": 1.5}, "random_state must be"),
        ({"max_features": 0}, "max_features must be a whole number of at least 1, got 0"),
        ({"references": 1}, "references must be"),
        ({"quick": "yes"}, "quick must be"),
        ({"rows": 0}, "rows must be a whole number of at least 1, got 0"),
        ({"scales": ["cubic"] * 3}, "scale"),
        ({"bounds": ([0.0] * 2, [1.0] * 2)}, "bounds"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(table, given, reason):
    with pytest.raises(InvalidSetting, match=reason):
        quick(*table, **given)


def test_bad_rows_are_refused(table):
    X, y, ids = table
    gap = X.copy()
    gap[3, 1] = np.nan
    for rows, reason in (
        ((gap, y), "NaN"),
        ((X, y[:-1]), "inconsistent numbers of samples"),
        ((X, y, ids[:-1]), "ids"),
        ((X[:, 0], y), "1D array"),
        ((X, np.where(y > 1, np.inf, y)), "not finite numbers"),
    ):
        with pytest.raises(ValueError, match=reason):
            quick(*rows)


def test_odd_rows_are_refused_without_a_word_of_them(table):
    X, y, _ = table
    words = np.full(X.shape, "secret")
    for rows in (
        (words, y),
        (words.astype(object), y),
        (X, words[:, 0]),
        (np.empty((0, 3)), []),
        (X[:, :0], y),
        (X, None),
    ):
        with pytest.raises(InvalidInput) as refused:
            quick(*rows)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("outside", ["X", "y"])
def test_rows_outside_declared_bounds_are_refused_as_by_the_model_or_clipped(table, outside):
    X, y, ids = table[0].copy(), table[1].copy(), table[2]
    low, high = y.min(), y.max()
    if outside == "X":
        X[7, 1] = 1.5
    else:
        y[7] = high + 1
    given = {"bounds": (0.0, 1.0), "target_bounds": (low, high)}
    with pytest.raises(ValueError, match="rows outside the declared bounds: 1 in column") as refused:
        quick(X, y, ids, **given)
    with pytest.raises(ValueError, match="rows outside") as by_model:
        expunge.CodedRegressor(**given).fit(X, y)
    assert str(refused.value) == str(by_model.value)
    quick(X, y, ids, **given, clip=True).best.fit(X, y)
