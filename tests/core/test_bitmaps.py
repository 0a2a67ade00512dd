"""Packed bits behave like an array of booleans."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.stores.bits import Bits, count_set, hash_slots

bools = st.lists(st.booleans(), max_size=200).map(lambda values: np.array(values, dtype=np.bool_))


def pack(values):
    return Bits(np.packbits(values), len(values))


@given(bools, st.data())
def test_bits_are_read_and_set_like_booleans(values, data):
    bits, values = pack(values), values.copy()
    for _ in range(3):
        places = st.integers(0, len(values) - 1) if len(values) else st.nothing()
        at = np.array(data.draw(st.lists(places, max_size=8)) if len(values) else [], dtype=np.int64)
        value = data.draw(st.booleans())
        bits[at], values[at] = value, value
        a, b = sorted((data.draw(st.integers(0, len(values))), data.draw(st.integers(0, len(values)))))
        np.testing.assert_array_equal(bits[a:b], values[a:b])
        np.testing.assert_array_equal(bits[at], values[at])
        assert [bool(bits[int(k)]) for k in at] == values[at].tolist()
        np.testing.assert_array_equal(np.asarray(bits), values)
        assert (len(bits), count_set(bits)) == (len(values), count_set(values)) == (values.size, values.sum())
        assert hash_slots(bits) == hash_slots(values)


@given(bools, st.integers(0, 100))
def test_empty_slots_at_the_end_do_not_count_and_others_do(values, more):
    longer = pack(values).grow(len(values) + more)
    np.testing.assert_array_equal(longer[:], np.concatenate([values, np.zeros(more, dtype=np.bool_)]))
    assert hash_slots(longer) == hash_slots(values)
    if not values.all():
        values[np.flatnonzero(~values)[0]] = True
        assert hash_slots(longer) != hash_slots(values)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64])
def test_all_or_none_are_set(size):
    assert Bits.ones(size)[:].all()
    assert not Bits.zeros(size)[:].any()
    assert Bits.ones(size).count() == size


def test_a_hash_follows_changes_in_every_piece():
    values = np.zeros(3 * 2**16 + 5, dtype=np.bool_)
    bits = pack(values)
    seen = {hash_slots(bits)}
    for at in (0, 2**16 - 1, 2**16, 3 * 2**16 + 4):
        bits[np.array([at])], values[at] = True, True
        seen.add(hash_slots(bits))
        assert hash_slots(bits) == hash_slots(values) == hash_slots(bits.copy())
    assert len(seen) == 5
