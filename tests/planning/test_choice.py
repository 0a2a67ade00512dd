"""The choice: the cheapest of those that are as good, within the time to forget."""

from dataclasses import replace

import numpy as np
import pytest

from expunge.learning.settings import Settings
from expunge.planning.candidates import SINGLE, Costs, TriedCandidate, choose_candidate
from expunge.planning.sample import standard_error

ROWS = 400
PEOPLE = np.arange(ROWS)


def one(error, *, forget=1.0, train=1.0, noise=None):
    """A candidate of a mean error, whose rows' errors differ by some noise of mean 0."""
    errors = np.full(ROWS, error) + (0.0 if noise is None else noise - noise.mean())
    return TriedCandidate(SINGLE, Settings(), errors, errors, Costs(forget, train, 1.0), (0.0, 0.0))


def test_the_standard_error_of_rows_is_that_of_the_mean(rng):
    values = rng.standard_normal(500)
    assert standard_error(values, np.arange(500)) == pytest.approx(values.std() / np.sqrt(500))


def test_the_standard_error_counts_people_not_rows(rng):
    people = rng.permutation(np.repeat(np.arange(80), 5))
    values = rng.standard_normal(80)[people] + 0.3 * rng.standard_normal(400)
    found = standard_error(values, people)
    direct = sum((values[people == k] - values.mean()).sum() ** 2 for k in range(80)) ** 0.5 / 400
    assert found == pytest.approx(direct)
    sums, counts = np.bincount(people, values), np.bincount(people)
    drawn = rng.integers(0, 80, (2000, 80))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    assert found == pytest.approx(means.std(), rel=0.1)
    assert found > 1.8 * standard_error(values, np.arange(400))


def test_within_one_standard_error_the_cheapest_to_train_is_chosen(rng):
    noise = 0.3 * rng.standard_normal(ROWS)  # a standard error of 0.015
    best, near = one(1.0, train=9.0), one(1.005, train=3.0, noise=noise)
    assert choose_candidate([best, near], PEOPLE, None) is near
    nearer = one(1.004, train=2.0, noise=noise)
    assert choose_candidate([best, near, nearer], PEOPLE, None) is nearer
    assert (
        choose_candidate([best, near, one(1.004, train=3.0, forget=0.5, noise=noise)], PEOPLE, None).costs.forget_ms
        == 0.5
    )


def test_a_small_but_sure_loss_is_not_given_up():
    assert choose_candidate([one(1.0, train=9.0), one(1.001)], PEOPLE, None).costs.train_s == 9.0


def test_more_than_a_hundredth_is_not_given_up_however_unsure(rng):
    noise = 10 * rng.standard_normal(ROWS)  # a standard error of 0.5
    best = one(1.0, train=9.0)
    assert choose_candidate([best, one(1.011, noise=noise)], PEOPLE, None) is best
    assert choose_candidate([best, one(1.009, noise=noise)], PEOPLE, None) is not best


def test_the_standard_error_of_the_difference_is_that_of_people():
    people = np.repeat(np.arange(4), 100)
    noise = np.repeat([0.05, -0.05, 0.05, -0.05], 100)
    best, near = one(1.0, train=9.0), one(1.009, noise=noise)
    assert choose_candidate([best, near], people, None) is near  # four people: a standard error of 0.025
    assert choose_candidate([best, near], PEOPLE, None) is best  # 400 people: 0.0025


def test_choices_go_by_what_is_judged_and_a_line_by_the_units_of_the_target():
    """On a log scale the two differ: few large amounts say little there."""
    some = [replace(one(2.0), choice_errors=np.full(ROWS, 1.0)), replace(one(1.0), choice_errors=np.full(ROWS, 2.0))]
    assert choose_candidate(some, PEOPLE, None) is some[0]
    line = replace(one(1.9), choice_errors=np.full(ROWS, 9.0), is_line=True)
    assert choose_candidate([*some, line], PEOPLE, None) is line
    worse = replace(one(2.1), choice_errors=np.full(ROWS, 0.1), is_line=True)
    assert choose_candidate([*some, worse], PEOPLE, None) is some[0]
    assert choose_candidate([worse], PEOPLE, None) is worse


def test_nothing_slower_than_the_limit_is_chosen():
    some = [one(1.0, forget=9.0), one(2.0, forget=5.0), one(3.0, forget=1.0)]
    for limit, expected in ((None, 0), (9.0, 0), (8.9, 1), (5.0, 1), (4.9, 2), (1.0, 2), (0.1, 2)):
        assert choose_candidate(some, PEOPLE, limit) is some[expected]


def test_a_plan_keeps_its_limit_and_knows_others(planned):
    times = sorted({line.forget_ms for line in planned.table})
    assert planned.within(None).get_params().keys() == planned.best.get_params().keys()
    assert planned.within(None).alpha == planned.best.alpha
    quickest = planned.within(times[0] / 2)
    assert planned.within(times[0]).features is quickest.features is None  # a line is the fastest
    assert quickest.bounds is planned.best.bounds
    assert planned.within(times[1]).features.n_features > 0
    assert planned.within(times[1]).scales == planned.best.scales
    with pytest.raises(ValueError, match="forget_ms must be None or a number of milliseconds above 0, got 0"):
        planned.within(0)
