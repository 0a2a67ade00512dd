"""On which scale a plan has the target learned: the one that a table is made with, unless somebody says."""

import numpy as np
import pytest

import expunge
from expunge.errors import InvalidSetting
from expunge.planning.document import Document
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
    document = Document.of(result, "abc", scales=True, targets=["y"])
    assert Document.parse(document.to_toml()).settings.target_scales == ["log"]


def test_a_caller_has_the_last_word(rows):
    X, moved = rows
    free, linear, log = (scale(X, np.exp(moved), target_scales=said) for said in (None, "linear", "log"))
    assert linear.best.target_scales is None
    assert log.best.target_scales == free.best.target_scales == ["log"]
    assert free.bits == linear.bits + 1 == log.bits + 1  # a choice of two
    assert scale(X, moved, target_scales="log").best.target_scales == ["log"]
    assert log.choice.error == free.choice.error < linear.choice.error


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
