"""Tables that are linear get a linear model: no plan is much worse than a line."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import expunge
from expunge.planning.plan_file import PlanFile
from expunge.planning.planner import count_line_bits
from expunge.planning.report import write_advice

DRAWS = {"normal": np.random.Generator.normal, "uniform": np.random.Generator.uniform}
DRAWS["lognormal"] = np.random.Generator.lognormal


def linear_table(kind, noise, rows=400, inputs=10):
    """Rows to plan on, and rows to test on."""
    rng = np.random.default_rng(7)
    X = DRAWS[kind](rng, size=(rows + 3000, inputs))
    line = X @ rng.normal(size=inputs)
    y = line + noise * line.std() * rng.standard_normal(len(X))
    return X[:rows], y[:rows], X[rows:], y[rows:]


@pytest.mark.parametrize("noise", [0.05, 1.0])
@pytest.mark.parametrize("kind", DRAWS)
def test_a_plan_for_a_linear_table_is_as_good_as_a_line(kind, noise):
    X, y, X_test, y_test = linear_table(kind, noise)
    made = expunge.plan(X, y, quick=True, max_features=100, references=False)
    found, line = (((one.fit(X, y).predict(X_test) - y_test) ** 2).mean() for one in (made.best, LinearRegression()))
    assert found <= 1.02 * line
    assert (made.choice.features, made.best.features, made.best.scales) == ("identity", None, None)
    assert made.bits == count_line_bits() < 60
    assert "It is a linear model" in made.advice
    assert made.choice.forget_ms == min(one.forget_ms for one in made.table)


def test_a_line_goes_on_outside_the_bounds_where_that_is_better():
    X, y, _, _ = linear_table("lognormal", 0.05)
    made = expunge.plan(X, y, quick=True, max_features=100, references=False)
    assert (made.best.outside, made.choice.outside) == ("extrapolate", "extrapolate")
    assert "Rows outside the bounds are extrapolated" in made.advice
    settings = PlanFile.parse(PlanFile.from_plan(made, [f"x{k}" for k in range(10)], scales=True).to_toml()).settings
    assert (settings.features, settings.outside, settings.scales) == (None, "extrapolate", None)
    saturated = np.minimum(X, np.quantile(X, 0.9, axis=0)).sum(axis=1)
    other = expunge.plan(X, saturated, scales="linear", quick=True, max_features=16, references=False)
    (line,) = (one for one in other.table if one.features == "identity")
    assert line.outside == "clamp"


def test_rows_that_judge_are_treated_as_those_to_predict():
    """The error of a line that goes on is that of the model itself, fold by fold."""
    X, y, _, _ = linear_table("normal", 0.3)
    made = expunge.plan(X, y, quick=True, max_features=16, references=True)
    (line,) = (one for one in made.table if one.features == "identity")
    assert line.error == pytest.approx(made.references[0].error, rel=0.02)


def test_a_table_that_is_not_linear_gets_cosines(planned):
    assert planned.choice.cosines > 0
    (line,) = (one for one in planned.table if one.features == "identity")
    assert (line.cosines, line.code) == (0, "one learner")
    assert line.error > 3 * planned.choice.error


def test_the_reason_why_a_reference_is_better_is_true(planned):
    better = [replace(planned.references[0], error=0.5 * planned.choice.error)]
    text = write_advice(planned.choice, planned.table, better, None)
    assert "50% less error: it is another kind of model" in text
    assert "costs no accuracy" in text


def test_what_was_found_by_fitting_the_judges_is_said(planned):
    text = write_advice(planned.table[-1], planned.table, [], None, 0.123)
    assert "found without the validation rows had 12.3% more error than the linear model" in text
    assert "was given up" not in text
