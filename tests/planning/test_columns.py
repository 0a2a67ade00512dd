"""Knots that a plan reads from rows: round numbers, which hold nobody's value, and whose bits are counted."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from expunge.planning.column_scales import MAX_GRID_STEPS, _knot_step, _middle_range, count_knot_bits, propose_scales

MAGNITUDES = st.sampled_from([1e-300, 1e-9, 1.0, 1e9, 1e300])
COLUMNS = st.builds(
    lambda values, width, middle: values * width + middle * width,
    arrays(np.float64, st.integers(11, 80), elements=st.floats(-100, 100), unique=True),
    MAGNITUDES,
    st.sampled_from([0.0, 0.3, -7e3, 1e12]),
)


def knots_of(column):
    """The knots of a column, none if it has a linear scale only."""
    (entry,) = propose_scales(np.asarray(column)[:, None])
    return [] if entry == "linear" else entry[1]


@given(COLUMNS)
def test_knots_are_whole_multiples_of_a_power_of_two_and_close_together(column):
    knots = np.array(knots_of(column))
    assume(len(knots))
    step = _knot_step(*_middle_range(column))
    assert math.frexp(step)[0] == 0.5
    assert np.all(knots % step == 0)
    assert np.all(np.diff(knots) >= step)
    assert knots[-1] - knots[0] <= MAX_GRID_STEPS * step
    assert 3 <= len(knots) <= 17


@given(COLUMNS, st.data())
def test_a_value_that_moves_within_its_cell_changes_nothing(column, data):
    step, row = _knot_step(*_middle_range(column)), data.draw(st.integers(0, len(column) - 1))
    moved = column.copy()
    moved[row] = (np.rint(column[row] / step) + data.draw(st.floats(-0.499, 0.499))) * step
    assume(np.rint(moved[row] / step) == np.rint(column[row] / step))
    assume(_knot_step(*_middle_range(moved)) == step)  # which is one of few, and counted
    assume(len(np.unique(column)) > 10 and len(np.unique(moved)) > 10)
    assert knots_of(moved) == knots_of(column)


def test_nobodys_value_is_a_knot(rng):
    alike = np.r_[-rng.random(9), np.zeros(482), rng.random(9)]  # the ends are one person's each
    for column in (rng.lognormal(size=501), rng.normal(1e6, 1.0, 501), alike):
        knots = knots_of(column)
        assert len(knots) >= 3
        assert not set(knots) & set(column[column != 0])


def test_knots_are_as_fine_as_their_grid(rng):
    column = rng.lognormal(size=500)
    knots, (low, high) = knots_of(column), np.quantile(column, (0.05, 0.95))
    assert 96 <= (high - low) / _knot_step(low, high) < 192
    inner = np.quantile(column, np.arange(1, 15) / 16)
    assert np.abs(np.array(knots)[1:15] - inner).max() < (high - low) / 64
    assert 10 < len(knots) <= 17


def test_the_words_for_knots_are_those_of_a_code():
    """No two outcomes share a word (Kraft): so they are no more than the bits can tell."""
    columns = [np.array(some, dtype=float) for some in combinations(range(15), 11)]
    shifts = [-100.0, -1.0, 0.0, 5.0, 1e4]
    words = {}
    for column in columns:
        for factor in (2.0**-40, 0.5, 1.0, 3.0, 2.0**50):
            for shift in shifts:
                knots = tuple(knots_of(factor * (column + shift)))
                words[knots] = count_knot_bits(knots)
    assert len(words) > 1000
    assert sum(2.0**-length for length in words.values()) <= 1
    assert max(words.values()) >= math.log2(len(words))


def test_a_word_says_how_many_knots_there_are_and_where():
    every = Counter()
    for count in range(3, 18):  # at most so many knots, and of each number all sets with this first knot and step
        every[count] = math.comb(MAX_GRID_STEPS, count - 1) * 2.0 ** -count_knot_bits(
            np.arange(count, dtype=float).tolist()
        )
    assert sum(every.values()) <= 0.5
    assert count_knot_bits([]) == 1
    far, near = ([2.0**power + k for k in range(9)] for power in (40, 4))
    assert count_knot_bits(far) - count_knot_bits(near) == pytest.approx(72)


def test_knots_that_floats_cannot_tell_apart_are_one():
    assert np.all(np.diff(knots_of(2.0**60 + 256 * np.arange(40.0))) > 0)


def test_values_at_the_ends_of_floats_have_knots_or_none(rng):
    for column in (1.7e308 * np.linspace(-1, 1, 40), 5e-324 * np.arange(40), np.r_[np.arange(39) * 1e-300, 1e300]):
        assert np.isfinite(knots_of(column)).all()


@pytest.mark.parametrize("values", [[1.0], [0.0, 1.0], np.arange(10.0)])
def test_a_column_of_few_values_needs_no_knots(values):
    assert propose_scales(np.resize(values, (100, 1))) == ["linear"]
