"""CodedClassifier: classes that come and go, labels, files, and every way to combine learners."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from expunge import Code, CodedClassifier, CodedRegressor, RandomFourier
from expunge.errors import InvalidFile, InvalidInput, InvalidSetting, NothingLearned
from expunge.learning.settings import Settings
from expunge.testing import check_unlearning

from support.models import weights_of
from support.sampling import examples
from support.strategies import CLASSES, class_tables, classifiers


@pytest.mark.filterwarnings("ignore:mean 0 and standard deviation 1")  # some of these checks standardise their rows
@parametrize_with_checks(
    [
        CodedClassifier(),
        CodedClassifier(shards=4, rate=2, features=RandomFourier(20), aggregate="median"),
        CodedClassifier(shards=2, rate=1, aggregate="vote"),
        CodedClassifier(shards=3, rate=1, aggregate="pooled", class_power=1.0),
        CodedClassifier(shards=3, rate=1, learner=DecisionTreeClassifier()),
    ]
)
def test_it_is_a_scikit_learn_estimator_in_every_respect(estimator, check):
    check(estimator)


@pytest.fixture
def table(rng):
    """Three classes: one rare, the others told apart by a line."""
    X = rng.random((200, 3))
    y = np.where(X[:, 0] + X[:, 1] + rng.normal(0, 0.2, 200) > 1, "yes", "no").astype(object)
    y[:6] = "maybe"
    return X, y


def same(model, other, X):
    assert model.digest() == other.digest()
    assert weights_of(model) == weights_of(other)
    assert model.classes_.tolist() == other.classes_.tolist()
    assert model.predict_proba(X).tobytes() == other.predict_proba(X).tobytes()


LABELS = {
    "text": (["no", "yes"], "<U3"),
    "numbers": ([3, -7], np.int64),
    "flags": ([False, True], np.bool_),
    "objects": (["no", "yes"], object),
    "floats": ([0.0, 1.0], np.float64),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind_are_predicted_as_they_came(kind, tmp_path, rng):
    values, dtype = LABELS[kind]
    X = rng.random((60, 2))
    y = np.array(values, dtype=dtype)[(X[:, 0] > 0.5).astype(int)]
    model = CodedClassifier(random_state=0).fit(X, y)
    assert model.classes_.tolist() == sorted(values)
    assert (model.predict(X) == y).mean() > 0.9
    model.save(tmp_path / "m.expunge")
    again = CodedClassifier.load(tmp_path / "m.expunge")
    same(model, again, X)
    assert again.classes_.dtype == model.classes_.dtype


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "b", 3, "b"], "all text, all whole numbers"),
        (["a", None, "b", "b"], "all text, all whole numbers"),
        ([0.5, 1.25, 0.75, 3.0], "Unknown label type"),
        (["a", "b", "a", np.nan], "all text|NaN"),
    ],
)
def test_labels_that_are_none_are_refused_and_not_quoted(y, message):
    with pytest.raises(ValueError, match=message) as caught:
        CodedClassifier().fit(np.eye(4), np.array(y, dtype=object) if str in map(type, y) else y)
    assert "1.25" not in str(caught.value)


def test_more_than_a_hundred_classes_are_refused_with_what_to_do(rng):
    with pytest.raises(InvalidInput, match="101 classes, at most 100 are possible; merge rare classes"):
        CodedClassifier().fit(rng.random((300, 2)), np.arange(300) % 101)


def test_an_undeclared_label_is_refused_without_naming_it(table):
    X, y = table
    model = CodedClassifier(classes=["no", "yes", "maybe"], random_state=0).fit(X, y)
    before = model.digest()
    for learn in (model.partial_fit, lambda X, y: model.rectify([3, 4], X, y)):
        with pytest.raises(InvalidInput, match="none of the 3 declared classes in 1 of 2 rows") as caught:
            learn(X[:2], ["no", "Ada Lovelace"])
        assert "Ada" not in str(caught.value)
    with pytest.raises(InvalidInput, match="classes are text, got numbers"):
        model.partial_fit(X[:2], [0, 1])
    assert model.digest() == before


@pytest.mark.parametrize("classes", [["a", "a"], [], [0.5], ["a", 1]])
def test_declared_classes_that_are_none_are_refused(classes):
    with pytest.raises(InvalidSetting, match="classes"):
        CodedClassifier(classes=classes).fit(np.eye(4), ["a", "b", "a", "b"])


@pytest.mark.parametrize("shards", [1, 3])
def test_an_observed_class_that_loses_its_last_row_leaves_and_the_report_says_so(shards, table, tmp_path):
    X, y = table
    model = CodedClassifier(shards=shards, rate=1, random_state=0, bounds=(0, 1)).fit(X, y)
    assert not model.unlearn([0, 1, 2, 3, 100]).classes_moved
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    report = model.unlearn([4, 5])
    assert (report.rows, report.learners, report.bounds_moved, report.classes_moved) == (2, shards, False, True)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict_proba(X).shape == (200, 2)
    same(model, model.retrained(), X)
    model.save(tmp_path / "m.expunge")
    assert b"maybe" not in (tmp_path / "m.expunge").read_bytes()
    never = CodedClassifier(shards=shards, rate=1, random_state=0, bounds=(0, 1)).fit(
        X, np.where(y == "maybe", "no", y)
    )
    never.unlearn([0, 1, 2, 3, 100, 4, 5])
    same(model, never, X)


def test_a_class_comes_back_with_its_first_row_and_by_a_correction(table):
    X, y = table
    model = CodedClassifier(random_state=0, bounds=(0, 1)).fit(X[6:], y[6:])
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.partial_fit(X[:1], ["maybe"]).classes_.tolist() == ["maybe", "no", "yes"]
    same(model, model.retrained(), X)
    report = model.rectify([194], X[:1], ["perhaps"])
    assert report.classes_moved
    assert model.classes_.tolist() == ["no", "perhaps", "yes"]
    same(model, model.retrained(), X)


def test_a_request_that_fails_leaves_the_classes_as_they_were(table):
    X, y = table
    model = CodedClassifier(random_state=0, bounds=(0, 1)).fit(X, y)
    before = model.digest()
    with pytest.raises(InvalidInput, match="outside the declared bounds"):
        model.partial_fit(X[:1] + 5, ["perhaps"])
    assert (model.digest(), model.classes_.tolist()) == (before, ["maybe", "no", "yes"])


def test_a_declared_class_without_rows_keeps_its_column_with_probability_zero(table):
    X, y = table
    model = CodedClassifier(classes=["maybe", "never", "no", "yes"], random_state=0).fit(X, y)
    assert (model.predict_proba(X)[:, 1] == 0).all()
    model.unlearn(range(6))
    p = model.predict_proba(X)
    assert (p[:, :2] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert set(model.predict(X)) <= {"no", "yes"}
    assert np.isfinite(model.decision_function(X)).all()
    same(model, model.retrained(), X)


def test_classes_may_be_declared_in_the_first_partial_fit(table):
    X, y = table
    model = CodedClassifier(random_state=0).partial_fit(X[6:], y[6:], classes=["maybe", "no", "yes"])
    assert model.partial_fit(X[:6], y[:6]).classes_.tolist() == ["maybe", "no", "yes"]
    with pytest.raises(InvalidInput, match="declared classes"):
        model.partial_fit(X[:1], ["perhaps"])


@pytest.mark.parametrize("classes", [None, ["a", "b"]])
def test_one_class_is_predicted_with_certainty_and_no_rows_are_an_error(classes, rng):
    X = rng.random((5, 2))
    model = CodedClassifier(classes=classes, random_state=0).fit(X, ["a"] * 5)
    assert set(model.predict(X)) == {"a"}
    assert (model.predict_proba(X)[:, 0] == 1).all()
    model.unlearn(range(5))
    assert model.n_rows_ == 0
    with pytest.raises(NothingLearned):
        model.predict_proba(X)
    same_digest = model.retrained().digest()
    assert model.digest() == same_digest
    model.partial_fit(X, ["a", "b", "b", "a", "b"])
    assert model.predict_proba(X).shape == (5, 2)


def test_relabelling_a_row_equals_having_learned_it_so(table):
    X, y = table
    model = CodedClassifier(random_state=0, bounds=(0, 1)).fit(X, y)
    relabelled = y.copy()
    relabelled[10:13] = "maybe"
    model.rectify([10, 11, 12], X[10:13], ["maybe"] * 3)
    same(model, CodedClassifier(random_state=0, bounds=(0, 1)).fit(X, relabelled), X)


def test_a_person_has_at_most_one_calibration_row_and_leaves_with_all(rng):
    X = rng.random((900, 2))
    y = (X[:, 0] + rng.normal(0, 0.3, 900) > 0.5).astype(int)
    ids = np.arange(900) // 3
    model = CodedClassifier(random_state=0).fit(X, y, ids=ids)
    rows = model._fitted_model.calibration_rows
    people = model._fitted_model.index.number_people(rows.slots)
    assert len(np.unique(people)) == len(people) == 300
    assert model.unlearn([7, 8]).rows == 6
    assert len(model._fitted_model.calibration_rows.slots) == 298
    same(model, model.retrained(), X)


def test_after_the_candidates_are_used_up_the_choice_is_that_of_all_rows(monkeypatch, rng):
    monkeypatch.setattr("expunge.learning.calibration_rows.CALIBRATION_ROWS", 20)
    X = rng.random((400, 2))
    y = rng.choice(["a", "b", "c"], 400, p=[0.8, 0.15, 0.05])
    model = CodedClassifier(random_state=0, pairs=False, bounds=(0, 1)).fit(X, y)
    for k in range(0, 300, 10):
        model.unlearn(range(k, k + 10))
        fresh = model.retrained()
        assert model.digest() == fresh.digest()
        rows = model._fitted_model.calibration_rows
        assert len(rows.slots) == 20
        counts = np.bincount(rows.classes, minlength=3)
        present = np.array([np.count_nonzero(y[k + 10 :] == name) for name in "abc"])
        assert (counts >= np.minimum(3, present)).all()
        np.testing.assert_allclose(np.bincount(rows.classes, rows.weights), present)


@examples(40)
@given(classifiers(), class_tables(), st.integers(0, 2**20))
def test_a_saved_classifier_comes_back_the_same(tmp_path_factory, estimator, table, seed):
    X, y = table
    path = tmp_path_factory.mktemp("models") / "m.expunge"
    model = estimator.fit(X, y, ids=np.arange(len(X)) // 2)
    model.save(path)
    learner = None if isinstance(model.learner, str) else model.learner
    again = CodedClassifier.load(path, learner=learner)
    assert again.digest() == model.digest()
    assert again.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    if learner is None:
        assert clone(again).get_params()["class_power"] == model.class_power
    if model.keep == "rows":
        assert again.unlearn(0).rows == 2


def test_a_regressor_does_not_load_a_classifier_nor_the_other_way(tmp_path, rng):
    X = rng.random((20, 2))
    CodedClassifier().fit(X, np.arange(20) % 2).save(tmp_path / "c.expunge")
    CodedRegressor().fit(X, X[:, 0]).save(tmp_path / "r.expunge")
    with pytest.raises(InvalidSetting, match="model for classification, which CodedRegressor cannot load"):
        CodedRegressor.load(tmp_path / "c.expunge")
    with pytest.raises(InvalidSetting, match="model for regression"):
        CodedClassifier.load(tmp_path / "r.expunge")


def test_coded_rows_alone_give_uncalibrated_probabilities_and_need_declared_classes(table):
    X, y = table
    unit = {"bounds": "unit", "keep": "coded", "random_state": 0, "shards": 4, "rate": 2}
    with pytest.raises(InvalidSetting, match="needs declared classes"):
        CodedClassifier(**unit).fit(X, y)
    model = CodedClassifier(classes=["maybe", "no", "yes"], **unit).fit(X, y)
    model.unlearn(range(6), X[:6], y[:6])
    p = model.predict_proba(X)
    assert (p[:, 0] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert model.digest() == model.retrained(X[6:], y[6:], ids=np.arange(6, 200)).digest()


def test_votes_are_counted_and_ties_go_to_the_better_mean_score(rng):
    X = rng.random((120, 2))
    y = rng.choice(["a", "b", "c"], 120)
    model = CodedClassifier(code=Code.uncoded(4), aggregate="vote", pairs=False, random_state=0, bounds=(0, 1)).fit(
        X, y
    )
    scores = np.array([np.column_stack([X, np.ones(120)]) @ np.frombuffer(w).reshape(3, 3) for w in weights_of(model)])
    votes = np.zeros((120, 3))
    for each in scores:
        votes[np.arange(120), each.argmax(axis=1)] += 1
    best = votes.max(axis=1, keepdims=True)
    expected = np.where(votes == best, np.clip(scores.mean(axis=0), 1e-3, 1), -1).argmax(axis=1)
    assert model.predict(X).tolist() == model.classes_[expected].tolist()
    assert (np.abs(model.predict_proba(X) - votes / 4) < 0.25).all()


@pytest.mark.parametrize("learner", [LogisticRegression(), DecisionTreeClassifier(), GaussianNB(), RidgeClassifier()])
@pytest.mark.parametrize("aggregate", ["mean", "median", "vote"])
def test_any_classifier_learns_where_each_learner_has_one_lane(learner, aggregate, table):
    X, y = table
    model = CodedClassifier(code=Code.uncoded(3), learner=learner, aggregate=aggregate, random_state=0).fit(X, y)
    assert (model.predict(X) == y).mean() > 0.7
    model.unlearn(range(8))  # with the last of a class
    np.testing.assert_array_equal(model.predict_proba(X), model.retrained().predict_proba(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"learner": DecisionTreeClassifier(), "shards": 4, "rate": 2}, "several classes"),
        ({"learner": CodedRegressor()}, "must be a classifier"),
        ({"learner": DecisionTreeClassifier}, "write DecisionTreeClassifier"),
        ({"learner": DecisionTreeClassifier(), "aggregate": "pooled"}, "aggregate must be one of"),
        ({"aggregate": "max"}, "aggregate must be one of"),
        ({"pairs": True, "shards": 4, "rate": 2}, "one lane per learner"),
        ({"pairs": "often"}, "pairs must be"),
        ({"class_power": 2}, "class_power must be"),
        ({"class_power": "balanced"}, "class_power must be"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(parameters, message, table):
    with pytest.raises(InvalidSetting, match=message):
        CodedClassifier(**parameters).fit(*table)


def test_where_only_regressors_are_known_a_classifier_is_refused_with_the_way():
    with pytest.raises(
        InvalidSetting, match="must be a CodedRegressor.*CodedClassifier; classes are for models in memory"
    ):
        Settings.from_model(CodedClassifier())


def test_votes_are_for_classes(rng):
    with pytest.raises(InvalidSetting, match="vote' is for classes"):
        CodedRegressor(aggregate="vote").fit(rng.random((20, 2)), rng.random(20))


def test_frames_ids_and_routing_work_as_for_regression(table):
    X, y = table
    names, ids = ["age", "income", "visits"], np.repeat(np.arange(50), 4)
    plain = CodedClassifier(random_state=0).fit(X, y, ids=ids)
    frames = (pd.DataFrame(X, columns=names), pd.Series(y)), (pl.DataFrame(X, schema=names), pl.Series(y.tolist()))
    for frame, labels in frames:
        model = CodedClassifier(random_state=0).fit(frame, labels, ids=ids)
        assert model.digest() == plain.digest()
        np.testing.assert_array_equal(model.predict(frame), plain.predict(X))
    with sklearn.config_context(enable_metadata_routing=True):
        model = CodedClassifier(random_state=0).set_fit_request(ids=True)
        search = GridSearchCV(
            model, {"class_power": [0, 1]}, cv=GroupKFold(3).set_split_request(groups=True), scoring="neg_log_loss"
        )
        search.fit(X, np.where(y == "maybe", "no", y), ids=ids, groups=ids)
        assert search.best_estimator_.unlearn(7).rows == 4


def test_a_damaged_classifier_file_is_refused(table, tmp_path):
    X, y = table
    model = CodedClassifier(random_state=0).fit(X, y)
    header, arrays = model._fitted_model.parts()
    from expunge.saving.archive import write_archive
    from expunge.saving.format import settings_parts

    rest = settings_parts(model._settings()) | model._own_header() | {"task": "classification", "feature_names": None}
    described = header["classes"]
    moved = arrays["y"].copy()
    moved[:, [0, 1]] = moved[:, [1, 0]]
    half = arrays["y"] / 2
    bad = [
        (header | {"classes": described | {"counts": [1, 2, 3]}}, arrays),
        (header | {"classes": described | {"counts": "many"}}, arrays),
        (header | {"classes": described | {"labels": described["labels"] | {"values": ["b", "a", "c"]}}}, arrays),
        (header | {"classes": described | {"labels": described["labels"] | {"values": ["a", "b"]}}}, arrays),
        (header | {"classes": described | {"pairs": "often"}}, arrays),
        (header | {"classes": {}}, arrays),
        (header, arrays | {"y": moved}),
        (header, arrays | {"y": half}),
        (header, arrays | {"moments": arrays["moments"][:1]}),
        (header, arrays | {"moments": arrays["moments"][[0, 0, 2]]}),
    ]
    path = tmp_path / "m.expunge"
    write_archive(path, header | rest, arrays)
    assert CodedClassifier.load(path).digest() == model.digest()
    for changed_header, changed_arrays in bad:
        write_archive(path, changed_header | rest, changed_arrays)
        with pytest.raises(InvalidFile):
            CodedClassifier.load(path)


def test_tiny_tables_pass_the_check():
    X = np.eye(4)
    for seed in range(10):
        check_unlearning(CodedClassifier(random_state=0), X, ["a", "b", "a", "b"], random_state=seed)


def test_the_check_finds_a_calibrator_that_remembers(monkeypatch, rng):
    module = sys.modules["expunge.classifier"]
    fit, calls = module.calibrate, []

    def warm(*args):
        ensemble, calibrator = fit(*args)
        calls.append(1)
        for heights in calibrator.heights:
            heights += 1e-12 * len(calls)
        return ensemble, calibrator

    monkeypatch.setattr(module, "calibrate", warm)
    X = rng.uniform(-1, 1, (60, 2))
    with pytest.raises(AssertionError, match="predictions differ"):
        check_unlearning(CodedClassifier(bounds="unit", random_state=0), X, np.where(X[:, 0] > 0, *CLASSES[:2]))
