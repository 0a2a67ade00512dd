"""The sum of the slots in use: a fingerprint of the file of bits that an erasure changes by one subtraction.

It is the sum modulo 2^64 of a keyed mix of each slot that has a row. A bit that is flipped adds or takes away a number
that looks drawn at random: whatever bits are flipped by accident, the sum is another. (Who can write to the folder and
means harm can write the sum as well.)
"""

from functools import cache

import numpy as np

from ...encoding.randomness import words
from ...encoding.shuffle import MIX, ODD, SHIFTS, Words, mixed
from ...exact.arrays import Slots, cut

_FEW = 8  # slots
_STREAM = 1  # of the words that the seal gives; the checksums of rows have another


def slots_sum(slots: Slots, seal: bytes) -> int:
    """The sum of these slots, each of which is there once."""
    if len(slots) <= _FEW:
        return sum(_mixed_one(slot, int(_key(seal))) for slot in slots.tolist()) % 2**64
    parts = (int(_mixed(slots[block], seal).sum(dtype=np.uint64)) for block in cut(len(slots), 1))
    return sum(parts) % 2**64


def _mixed_one(slot: int, key: int) -> int:
    """The same as `_mixed`, of one slot: for few of them faster than an array."""
    made = slot * int(ODD) + key
    for shift, odd in zip(SHIFTS, MIX, strict=False):
        made %= 2**64
        made = (made ^ (made >> int(shift))) * int(odd)
    made %= 2**64
    return made ^ (made >> int(SHIFTS[-1]))


def _mixed(slots: Slots, seal: bytes) -> Words:
    made: Words = mixed(slots.astype(np.uint64) * ODD + _key(seal))
    return made


@cache
def _key(seal: bytes) -> np.uint64:
    return np.uint64(words(np.frombuffer(seal, dtype="<u8").astype(np.uint64), _STREAM, 0, 1)[0])
