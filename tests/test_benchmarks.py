"""The benchmark compares like with like: on a tiny task every method's model agrees with the others."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from benchmarks import report
from benchmarks.drift import drifts
from benchmarks.measure import Result, Times, compared, in_turns
from benchmarks.methods import Boosting, Downdate, Ours, PaperProtocol, Sharded, ShermanMorrison, codes_of
from benchmarks.tasks import Task, synthetic
from benchmarks.tradeoff import points
from expunge import Code

ROWS, FORGOTTEN = 120, [3, 77, 20, 119, 4]
# Ours rounds features to 2^-36 and less; floats lose digits to the condition of the system.
CLOSE = {"rtol": 0, "atol": 1e-6}


def task(*, intercept=True):
    small = synthetic(ROWS, 12, d=3)
    return Task("tiny", small.X, small.y, small.X_test[:40], small.y_test[:40], 12, 1e-2, intercept)


def forgotten(method):
    for row in FORGOTTEN:
        method.forget(row)
    return method.predict(task().X_test)


@pytest.mark.parametrize("intercept", [True, False])
def test_all_methods_with_one_learner_agree_after_forgetting(intercept):
    tiny = task(intercept=intercept)
    ours = forgotten(Ours(tiny, code=Code.single()))
    for other in (Sharded(tiny, 1), Downdate(tiny), ShermanMorrison(tiny), PaperProtocol(tiny, code=Code.single())):
        np.testing.assert_allclose(forgotten(other), ours, **CLOSE)


@pytest.mark.parametrize("shape", [{"shards": 10, "rate": 5}, {"code": Code.uncoded(4)}])
def test_the_papers_protocol_agrees_with_ours_on_coded_shards(shape):
    tiny = task(intercept=False)
    np.testing.assert_allclose(forgotten(PaperProtocol(tiny, **shape)), forgotten(Ours(tiny, **shape)), **CLOSE)


def test_the_intercept_of_a_coded_row_is_that_of_all_its_rows():
    tiny, shape = task(), {"shards": 10, "rate": 5}
    ours, paper = Ours(tiny, **shape).predict(tiny.X_test), PaperProtocol(tiny, **shape).predict(tiny.X_test)
    np.testing.assert_allclose(paper, ours, **CLOSE)


def test_forgetting_with_shards_is_training_without_the_rows():
    tiny = task()
    method = Sharded(tiny, 4)
    forgotten(method)
    for shard, model in enumerate(method._models):
        rows = [k for k in range(ROWS) if k % 4 == shard and k not in FORGOTTEN]
        fresh = Ridge(tiny.alpha).fit(tiny.phi[rows], tiny.y[rows])
        np.testing.assert_allclose(model.coef_, fresh.coef_, **CLOSE)


def test_boosted_trees_forget_a_row():
    tiny = task()
    trees = Boosting(tiny)
    trees.forget(3)
    assert trees._live.sum() == ROWS - 1


def test_our_weights_do_not_drift_and_floats_do():
    errors = list(drifts(quick=True, task=task()))
    assert {d.error for d in errors if d.method == "expunge"} == {0.0}
    assert max(d.error for d in errors if d.method == "float downdate") > 0.0
    assert max(d.error for d in errors) < 1e-6


def test_the_picture_has_every_method():
    found = list(points(quick=True, tasks=(task(),)))
    assert {p.method for p in found} == {
        "expunge",
        "paper's protocol",
        "SISA",
        "full retrain",
        "float downdate",
        "boosted trees",
    }
    assert {p.shape for p in found if p.method == "expunge"} == set(codes_of(task(), 20))
    assert all(p.error > 0 and p.seconds > 0 for p in found)


def test_ratios_are_taken_round_by_round():
    ours, theirs = Times((1.0, 2.0, 4.0)), Times((2.0, 6.0, 8.0))
    faster = compared("a", "b", ours, theirs, against="c", goal=2.5)
    assert (faster.ratio, faster.met) == (2.0, False)
    of = compared("a", "b", theirs, ours, against="c", kind="of", goal=2.0)
    assert (of.ratio, of.met) == (2.0, True)
    assert "MISSED" in report.line(faster)
    assert "MISSED" not in report.line(of)


def test_functions_are_called_in_turns():
    called = []
    times = in_turns(lambda: called.append("a"), lambda: called.append("b"), rounds=2, calls=2)
    assert "".join(called) == "ab" + "aabb" * 2
    assert [len(t.rounds) for t in times] == [2, 2]


def test_the_page_says_what_was_missed():
    results = [Result("forget", "one", "two", 1.0, 2.0, "faster", 2.0, (1.0, 3.0), goal) for goal in (1.0, 5.0, None)]
    text = report.page(results, list(points(quick=True, tasks=(task(),))), [], 1)
    assert "1 of 2 goals are met" in text
    assert text.count("**missed**") == 1
