"""On which scale a plan has the target learned: the one that a table is made with, unless somebody says."""

import numpy as np
import pytest

import expunge
from expunge import CodedRegressor, RandomFourier
from expunge.errors import InvalidSetting
from expunge.planning.plan_file import PlanFile
from expunge.planning.sample import Validation, draw_sample, hash_people
from expunge.planning.trial import single_learner, try_settings
from expunge.testing import check_unlearning

SMALL = {"max_features": 30, "references": False, "quick": True}


@pytest.fixture(scope="module")
def rows():
    """Inputs, and what moves the targets: some of them multiply, others add."""
    rng = np.random.default_rng(2)
    X = rng.random((400, 3))
    return X, 2.5 * X[:, 0] + np.sin(5 * X[:, 1]) + 0.1 * rng.standard_normal(400)


def scale(X, y, **options):
    return expunge.plan(X, y, **SMALL | options)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (np.exp, ["log"]),  # amounts
        (lambda moved: np.exp(moved) - 1e-9 * np.exp(moved).min(), ["log"]),
        (lambda moved: np.exp(moved) - 5.0, None),  # some are below zero
        (lambda moved: 2.0 + moved - moved.min(), None),  # they spread too little
        (lambda moved: 0.1 + moved - moved.min(), None),  # they spread far, and add up
    ],
)
def test_amounts_are_learned_on_a_log_scale(rows, made, expected):
    X, moved = rows
    result = scale(X, made(moved))
    assert result.best.target_scales == expected
    assert result.choice.target_scales == (expected or ["linear"])[0]
    assert ("log scale" in result.advice) == (expected is not None)


def test_what_is_planned_is_what_is_trained_and_it_forgets_exactly(rows):
    X, moved = rows
    result = scale(X, np.exp(moved))
    check_unlearning(result.best, X[:120], np.exp(moved[:120]), requests=3)
    document = PlanFile.from_plan(result, "abc", scales=True, targets=["y"])
    assert PlanFile.parse(document.to_toml()).settings.target_scales == ["log"]


def test_on_a_log_scale_trials_are_judged_by_logarithms(rows):
    X, moved = rows
    y = np.exp(moved)[:, None]
    sample = draw_sample(X, y, hash_people(None, len(X), 0), max_rows=1000)
    ground = Validation.from_sample(sample, bounds=(0, 1), target_bounds=(0.1, 100), scales=None, target_scales="log")
    trial = try_settings(ground, single_learner(RandomFourier(20, random_state=0), 0), (1.0,))
    errors, judged = [], []
    for _fold, judge in zip(ground.folds, sample.folds, strict=True):
        model = CodedRegressor(
            shards=1, rate=1, features=RandomFourier(20, random_state=0), alpha=1.0, bounds=(0, 1),
            target_bounds=(0.1, 100), target_scales="log", random_state=0,
        ).fit(sample.X[~judge], sample.y[~judge])  # fmt: skip
        predicted, truth = model.predict(sample.X[judge]), sample.y[judge]
        errors.append((predicted - truth) ** 2 / sample.y[sample.validation_rows].var())
        judged.append((np.log(predicted) - np.log(truth)) ** 2 / np.log(sample.y[~judge]).var())
    np.testing.assert_allclose(trial.errors, np.concatenate(errors)[:, 0], rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(trial.choice_errors, np.concatenate(judged)[:, 0], rtol=1e-4, atol=1e-9)


def test_a_caller_has_the_last_word(rows):
    X, moved = rows
    free, linear, log = (scale(X, np.exp(moved), target_scales=said) for said in (None, "linear", "log"))
    assert linear.best.target_scales is None
    assert log.best.target_scales == free.best.target_scales == ["log"]
    assert free.bits == linear.bits + 1 == log.bits + 1  # a choice of two
    assert scale(X, moved, target_scales="log").best.target_scales == ["log"]
    assert log.choice.error == free.choice.error


def test_of_several_targets_each_is_looked_at(rows):
    X, moved = rows
    y = np.column_stack([np.exp(moved), moved])
    assert scale(X, y).best.target_scales == ["log", "linear"]
    assert scale(X, y, target_scales=["linear", None]).best.target_scales is None
    with pytest.raises(InvalidSetting, match="target_scales must be None"):
        scale(X, y, target_scales=["log"])


def test_targets_that_are_taken_as_they_are_stay_linear(rows):
    X, moved = rows
    y = np.exp(moved)
    assert scale(X, y / y.max(), target_bounds="unit").best.target_scales is None
