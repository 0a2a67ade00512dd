"""Placement: in which slot a row lives.

A slot is a row's place for ever: slot k is in stripe k // s, lane k % s, and is never refilled. Slots are drawn from a
key and the order of arrival alone, never from values: each batch is permuted, and so are the lanes of each stripe, so
that neither a sorted table nor a stream of single rows puts like rows into one lane, and nobody without the key can
tell who shares a coded row with whom.
"""

import numpy as np
from numpy.typing import NDArray

from ..exact.arrays import Slots, cut
from .randomness import BATCH, LANES, Key, words


def draw_slots(key: Key, start: int, count: int, shards: int) -> Slots:
    """Slots for a batch of ``count`` rows that arrive after ``start`` others."""
    slots = np.empty(count, dtype=np.int64)
    slots[_order(words(key, BATCH, start, count))] = np.arange(start, start + count)
    if shards == 1:
        return slots
    first, last = start // shards, -(-(start + count) // shards)
    lane = np.empty((last - first, shards), dtype=np.int32)  # a permutation of the lanes per stripe
    for block in cut(len(lane), shards):  # at once it would all take six times the memory
        order = words(key, LANES, (first + block.start) * shards, (block.stop - block.start) * shards)
        lane[block] = np.argsort(order.reshape(-1, shards), axis=1, kind="stable")
    for block in cut(count, 1):  # from a place among all that arrived to a slot, in place
        stripe, place = np.divmod(slots[block], shards)
        slots[block] = stripe * shards + lane[stripe - first, place]
    return slots


def _order(drawn: NDArray[np.uint64]) -> NDArray[np.intp]:
    """What sorts words, those that are equal in the order in which they came; there are hardly ever any."""
    order = np.argsort(drawn)  # several times faster than a stable sort, and the same if no two are equal
    ordered = drawn[order]
    return np.argsort(drawn, kind="stable") if (ordered[1:] == ordered[:-1]).any() else order


def room(rows: int, shards: int) -> int:
    """Slots of the whole stripes that hold this many rows."""
    return -(-rows // shards) * shards


def free_slots(key: Key, drawn: int, shards: int) -> Slots:
    """The slots of the last stripe that were never given out, when ``drawn`` rows have arrived."""
    return draw_slots(key, drawn, room(drawn, shards) - drawn, shards)
