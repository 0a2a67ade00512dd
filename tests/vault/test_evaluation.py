"""Evaluations: the scores that scikit-learn computes, their spread over people, simple models from the same rows."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from expunge import Code, CodedRegressor
from expunge.errors import InvalidInput, InvalidSetting, NothingLearned
from expunge.vault import Vault, evaluator
from expunge.vault.evaluation.scores import Score, compute_scores, format_score

from support.vaults import made, people, random_table, small, table

NEW = random_table([f"new-{k % 40}" for k in range(60)], seed=7)  # of forty people, twenty of them twice


def arrays(data, targets=("y",)):
    inputs = [name for name in data.column_names if name.startswith("x")]
    return np.column_stack([data[name] for name in inputs]), np.column_stack([data[name] for name in targets])


def sklearn_scores(y, predicted):
    r2 = r2_score(y, predicted) if len(set(y.tolist())) > 1 else math.nan
    return r2, root_mean_squared_error(y, predicted), mean_absolute_error(y, predicted)


def values(scores):
    return scores.r2.value, scores.rmse.value, scores.mae.value


# Scores

rows = st.lists(
    st.tuples(*[st.floats(-9, 9).map(lambda v: round(v, 3))] * 3, st.integers(0, 4)), min_size=2, max_size=30
)


@settings(max_examples=100)
@given(rows)
def test_scores_and_their_intervals_are_those_of_rows_drawn_by_person(rows):
    y, a, b, who = (np.array(column) for column in zip(*rows, strict=True))
    whose = np.unique(who, return_inverse=True)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("expunge.vault.evaluation.scores.MIN_PEOPLE", 2)
        found, ratios = compute_scores(y, {"a": a, "b": b}, whose, resamples=20, seed=3)
    people, rng = whose.max() + 1, np.random.default_rng(3)
    picked = [rng.integers(0, people, people) for _ in range(20)]
    drawn = [np.concatenate([np.flatnonzero(whose == one) for one in some]) for some in picked]
    for name, predicted in (("a", a), ("b", b)):
        three = (found[name].r2, found[name].rmse, found[name].mae)
        again = np.array([sklearn_scores(y[some], predicted[some]) for some in drawn])
        for k, score in enumerate(three):
            expected = sklearn_scores(y, predicted)[k]
            assert score.value == pytest.approx(expected, rel=1e-6, abs=1e-9) or (
                score.value is None and math.isnan(expected)
            )
            ends = np.quantile(again[:, k], [0.025, 0.975]) if people > 1 else np.full(2, math.nan)
            if np.isfinite(ends).all() and np.ptp(y) > 0.01:
                assert [score.low, score.high] == pytest.approx(ends.tolist(), rel=1e-6, abs=1e-6)
            elif people == 1:
                assert (score.low, score.high) == (None, None)
    if (a != y).any():
        assert ratios["b"].value == pytest.approx(found["b"].rmse.value / found["a"].rmse.value)
        assert ratios["a"].value == 1


def test_the_spread_is_over_people_and_not_over_rows(rng):
    whose = np.repeat(np.arange(10), 100)  # all errors of a person are the same
    y = np.repeat(rng.normal(size=10), 100)
    people, _ = compute_scores(y, {"zero": np.zeros(1000)}, whose)
    alone, _ = compute_scores(y, {"zero": np.zeros(1000)}, np.arange(1000))
    wide, narrow = (found["zero"].rmse.high - found["zero"].rmse.low for found in (people, alone))
    assert wide > 5 * narrow


def test_a_ratio_of_two_models_that_err_alike_has_a_narrow_interval(rng):
    y = rng.normal(size=500)
    error = rng.standard_t(2, 500)  # a few large errors, of both
    found, ratios = compute_scores(y, {"a": y + error, "b": y + 0.9 * error}, np.arange(500))
    assert ratios["b"].low == pytest.approx(0.9)
    assert ratios["b"].high == pytest.approx(0.9)
    assert found["a"].rmse.low < found["b"].rmse.high


def test_what_has_no_score_has_none():
    found, ratios = compute_scores(np.full(5, 3.0), {"right": np.full(5, 3.0), "wrong": np.zeros(5)}, np.arange(5))
    assert found["right"].r2 == found["wrong"].r2 == Score(None, None, None)
    assert values(found["wrong"])[1:] == (3, 3)
    assert ratios["wrong"].value is None
    few, _ = compute_scores(np.arange(20.0), {"a": np.zeros(20)}, np.arange(20) % 9)
    assert (few["a"].rmse.low, few["a"].rmse.high) == (None, None)
    assert compute_scores(np.arange(20.0), {"a": np.zeros(20)}, np.arange(20) % 10)[0]["a"].rmse.low is not None
    huge, _ = compute_scores(np.array([-1e300, 1e300]), {"a": np.zeros(2)}, np.arange(2))
    assert (huge["a"].r2.value, huge["a"].rmse.value, huge["a"].mae.value) == (None, None, 1e300)
    assert compute_scores(np.array([1.0]), {"a": np.array([2.0])}, np.array([0]))[0]["a"].rmse == Score(1, None, None)


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (Score(0.12345, 0.1, 0.2), "0.123 (0.100 to 0.200)"),
        (Score(123.456, 99.99, 1234.5), "123 (100 to 1,234)"),
        (Score(1e-7, None, None), "1.00e-07"),
        (Score(None, None, None), "-"),
    ],
)
def test_scores_are_told_with_three_digits(score, text):
    assert format_score(score) == text


def test_no_minus_before_zero():
    assert format_score(Score(-0.0001, -0.001, 0.5), decimals=3) == "0.000 (-0.001 to 0.500)"


# A vault


def test_an_evaluation_scores_the_predictions_of_the_vault(tmp_path):
    vault = made(tmp_path / "v.vault")
    found = vault.evaluate(NEW)
    (one,) = found.targets
    assert values(one.vault) == pytest.approx(sklearn_scores(NEW["y"].to_numpy(), vault.predict(NEW)))
    assert (found.rows, found.people, found.known, one.target) == (60, 40, 0, "y")
    assert found.outside == int(vault.predictions(NEW).outside.sum()) > 0
    assert found.notes == vault.predictions(NEW).notes
    again = vault.evaluate(NEW.drop(["who"]).append_column("who", NEW["who"]).append_column("more", NEW["x0"]))
    assert again.to_dict() == found.to_dict()
    assert vault.evaluate(NEW, random_state=1).targets[0].vault.rmse.low != one.vault.rmse.low
    assert len(json.dumps(found.to_dict(), allow_nan=False)) > 100


@pytest.mark.parametrize("bounds", [None, (-2, 2)])
def test_the_simple_models_are_learned_from_the_rows_of_the_vault(tmp_path, bounds):
    data = random_table(people())
    vault = made(tmp_path / "v.vault", data, model=small(bounds=bounds, scales="log" if bounds is None else None))
    gone = ["person-3", "person-4"]
    vault.unlearn(gone)
    X, y = arrays(data.filter(pa.compute.invert(pa.compute.is_in(data["who"], pa.array(gone)))))
    linear = CodedRegressor(code=Code.single(), alpha=1e-3, bounds=bounds).fit(X, y[:, 0])
    truth = NEW["y"].to_numpy()
    (found,) = vault.evaluate(NEW).targets
    assert values(found.linear) == pytest.approx(sklearn_scores(truth, linear.predict(arrays(NEW)[0])))
    assert values(found.mean) == pytest.approx(sklearn_scores(truth, np.full(60, y.mean())))
    assert found.ratio.value == pytest.approx(found.vault.rmse.value / found.linear.rmse.value)
    assert vault.verify().ok


def test_rows_that_the_vault_knows_are_told(tmp_path):
    vault = made(tmp_path / "v.vault", random_table(people()))
    vault.unlearn("person-1")
    found = vault.evaluate(random_table(["person-1", "person-2", "person-2", "person-3", "new-1"]))
    assert (found.people, found.known) == (4, 2)
    assert "the vault has learned rows of 2 of the 4 people: for these people its errors are too small" in found.notes
    nobody = vault.evaluate(random_table(["person-2"] * 5).drop(["who"]))
    assert (nobody.people, nobody.known) == (None, None)


def test_every_target_has_scores_of_its_own(tmp_path, rng):
    data = table(people(), rng.uniform(-1, 1, (30, 2)), rng.uniform(-1, 1, (30, 2)))
    vault = made(tmp_path / "v.vault", data, target=["y1", "y0"])
    new = table([*"abcdefgh"], rng.uniform(-1, 1, (8, 2)), rng.uniform(-1, 1, (8, 2)))
    found = vault.evaluate(new)
    assert [one.target for one in found.targets] == ["y1", "y0"]
    for j, one in enumerate(found.targets):
        assert values(one.vault) == pytest.approx(sklearn_scores(new[one.target].to_numpy(), vault.predict(new)[:, j]))
    assert found.targets[0].mean.rmse != found.targets[1].mean.rmse


@pytest.mark.parametrize("read_only", [False, True])
def test_an_evaluation_changes_nothing_and_may_only_read(tmp_path, read_only):
    made(tmp_path / "v.vault")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert Vault.open(tmp_path / "v.vault", read_only=read_only).evaluate(NEW).rows == 60
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_evaluation_is_never_stale(tmp_path, monkeypatch):
    vault, other = made(tmp_path / "v.vault"), Vault.open(tmp_path / "v.vault")
    looked, look = [], evaluator.EvaluatedTable.predict_table

    def changed(self, *args):
        look(self, *args)
        if not looked:
            other.unlearn(["person-2", "person-5"])
        looked.append(1)

    monkeypatch.setattr(evaluator.EvaluatedTable, "predict_table", changed)
    found = vault.evaluate(NEW)
    assert len(looked) == 2
    assert found.to_dict() == vault.evaluate(NEW).to_dict()
    stream = pa.RecordBatchReader.from_batches(NEW.schema, NEW.to_batches(max_chunksize=7))
    assert vault.evaluate(stream).to_dict() == found.to_dict()


def test_a_table_without_targets_or_rows_cannot_be_evaluated(tmp_path):
    vault = made(tmp_path / "v.vault")
    with pytest.raises(InvalidInput, match="no column 'y'"):
        vault.evaluate(NEW.drop(["y"]))
    with pytest.raises(InvalidInput, match="has no rows"):
        vault.evaluate(NEW.slice(0, 0))
    with pytest.raises(InvalidInput, match=r"gaps: 1 in column 'y' \(of 2 rows\)"):
        vault.evaluate(pa.table({"who": ["a", "b"], "x0": [0.0, 0.0], "x1": [0.0, 0.0], "y": [0.0, None]}))
    with pytest.raises(InvalidSetting, match="resamples must be a whole number"):
        vault.evaluate(NEW, resamples=0)
    vault.unlearn(sorted(set(people())))
    with pytest.raises(NothingLearned):
        vault.evaluate(NEW)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        ((0.5, 0.4, 0.6), "the vault is better than a linear model on its rows: 0.500 (0.400 to 0.600) times its RMSE"),
        ((1.5, 1.4, 1.6), "the vault is worse than"),
        ((0.9, 0.8, 1.1), "the vault is about as good as"),
        ((0.999, 0.998, 0.9995), "the vault is about as good as"),
        ((0.9, None, None), "the vault is about as good as a linear model on its rows: 0.900 times its RMSE"),
        ((None, None, None), "a linear model on the vault's rows makes no error here"),
    ],
)
def test_advice_says_no_more_than_the_interval_does(tmp_path, ratio, words):
    (one,) = made(tmp_path / "v.vault").evaluate(NEW).targets
    object.__setattr__(one, "ratio", Score(*ratio))
    assert one.advice.startswith(words)


def advice(path, **ratios):
    (one,) = made(path).evaluate(NEW).targets
    for name, value in ({"ratio": Score(0.5, 0.4, 0.6), "is_linear": False} | ratios).items():
        object.__setattr__(one, name, value)
    return one.advice


def test_advice_compares_with_trees_and_says_what_is_no_better_than_the_mean(tmp_path):
    good, bad = Score(0.5, 0.4, 0.6), Score(1.2, 0.9, 1.5)
    assert advice(tmp_path / "a.vault", ratio_to_trees=good, ratio_to_mean=good).endswith(
        "0.500 (0.400 to 0.600) times that of boosted trees"
    )
    words = advice(tmp_path / "b.vault", ratio_to_trees=None, ratio_to_mean=bad)
    assert "trees" not in words
    assert words.endswith("; it is no better than the mean")


@pytest.mark.parametrize("ratio", [(0.999, 0.998, 0.9995), (1.001, 1.0005, 1.002)])
def test_what_differs_by_less_than_a_hundredth_is_about_as_good(tmp_path, ratio):
    assert "about as good as" in advice(tmp_path / "v.vault", ratio=Score(*ratio))


def test_a_linear_model_is_not_called_better_than_a_linear_model(tmp_path):
    line = CodedRegressor(code=Code.single(), alpha=1e-6, random_state=0)
    (one,) = made(tmp_path / "v.vault", model=line).evaluate(NEW).targets
    assert one.advice.startswith("the vault is a linear model: ")
    assert "better" not in one.advice.partition(";")[0]


def test_trees_learn_the_rows_of_the_vault(tmp_path, monkeypatch):
    vault = made(tmp_path / "v.vault")
    X, y = arrays(random_table(people()))
    expected = HistGradientBoostingRegressor(random_state=0).fit(X, y[:, 0])
    X_new, y_new = arrays(NEW)
    found = vault.evaluate(NEW).targets[0].trees
    assert values(found) == pytest.approx(sklearn_scores(y_new[:, 0], expected.predict(X_new)))
    monkeypatch.setattr(evaluator, "_TREE_ROWS", 7)
    assert vault.evaluate(NEW).targets[0].trees is not None
