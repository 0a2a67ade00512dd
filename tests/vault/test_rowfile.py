"""The row file: rows are written into their places, whatever the order in which they come."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from expunge.vault.disk.rowfile import located
from expunge.vault.disk.segments import distinct


@given(places=st.lists(st.integers(0, 60), unique=True, max_size=30))
@example(places=[])
@example(places=[7])
@example(places=[5, 3, 4, 6])  # a whole table: a range, in another order
@example(places=[5, 3, 4, 7])
def test_every_row_is_written_into_its_place_and_nothing_else(places):
    table = np.arange(1, 3 * len(places) + 1, dtype=np.uint64).reshape(-1, 3)
    content = bytearray(24 * 61)
    for offset, data in located(np.array(places, dtype=np.int64), table):
        content[offset : offset + len(data)] = data
    expected = np.zeros((61, 3), dtype=np.uint64)
    for place, row in zip(places, table, strict=True):
        expected[place] = row
    assert bytes(content) == expected.tobytes()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1)), max_size=40))
def test_as_many_people_are_counted_as_there_are_hashes(pairs):
    hashes = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
    assert distinct(np.concatenate([hashes, hashes[::2]])) == len(set(pairs))
