"""Sets of numbers: sorting gives the same as NumPy's own functions, for few numbers and for many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from expunge.exact.arrays import isin, unique

LAST = 2**63 - 1
near, anywhere = st.integers(-20, 20), st.sampled_from([-(2**63), -1, 0, 1, 5, LAST - 1, LAST])
signed = st.one_of(near, anywhere)
numbers = arrays(np.int64, st.integers(0, 60), elements=signed)
words = arrays(np.uint64, st.integers(0, 60), elements=st.sampled_from([0, 1, 2**63, 2**64 - 1]) | st.integers(0, 9))


@given(st.one_of(numbers, words))
def test_distinct_values_are_there_once_and_in_order(values):
    distinct = unique(values)
    assert distinct.dtype == values.dtype
    assert distinct.tolist() == sorted(set(values.tolist()))


@given(st.one_of(st.tuples(numbers, numbers), st.tuples(words, words)))
def test_values_are_among_others_if_they_are_there(pair):
    values, others = pair
    present = set(others.tolist())
    assert isin(values, others).tolist() == [value in present for value in values.tolist()]


@pytest.mark.parametrize("spread", [10, 2**40], ids=["close together", "far apart"])
def test_many_values_are_among_many_others(spread):
    rng = np.random.default_rng(0)
    values, others = (rng.integers(0, 5000, 4000) * spread for _ in range(2))
    assert np.array_equal(isin(values, others), np.isin(values, others))
    assert np.array_equal(unique(values), np.unique(values))
