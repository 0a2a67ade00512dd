"""Placement: in which slot a row lives.

A slot is a row's place for ever: slot k is in stripe k // s, lane k % s, and is never refilled. Slots are drawn from a
key and the order of arrival alone, never from values, so that neither a sorted table nor a stream of single rows puts
like rows into one stripe or lane, and nobody without the key can tell who shares a coded row with whom.

A batch is *dealt* in three steps, each a keyed permutation (`shuffle`): its chunks of 256 rows over the whole batch;
the places within blocks of 64 chunks, rounded up to whole stripes; the lanes within each stripe. Each step can be
computed for any row alone, and backwards: any worker can tell the slots of its rows, and which rows are in its slots.
The rows of a block of slots are 64 runs of neighbours: rows that are kept as they came are read in runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..exact.arrays import Slots, cut
from .randomness import Key, Shuffle, Words

CHUNK = 256  # rows that stay together in the first step
BLOCK = 64 * CHUNK  # places that are mixed in the second, before they are rounded up to whole stripes
_CHUNKS, _PLACES, _LANES = range(3)  # what is permuted

_CHUNK, _ONE = np.uint64(CHUNK), np.uint64(1)

RowNumbers: TypeAlias = NDArray[np.int64]  # rows in the order of their arrival, from 0; never given twice


@dataclass(frozen=True, eq=False)
class Placement:
    """Where rows are that came in batches: from their numbers, in order of arrival, to slots and back.

    ``batches`` has the number of the first row of each batch, ``drawn`` how many rows came in all.
    """

    key: Key
    shards: int
    batches: tuple[int, ...]
    drawn: int

    @property
    def block(self) -> int:
        """Places, and slots, that are mixed with each other: whole stripes."""
        return slots_needed(BLOCK, self.shards)

    def with_batch(self, rows: int) -> "Placement":
        """The same with one more batch, of so many rows."""
        return Placement(self.key, self.shards, (*self.batches, self.drawn), self.drawn + rows)

    def slots(self, rows: RowNumbers) -> Slots:
        """The slots of rows."""
        return _apply_in_pieces(self._slots, rows)

    def rows(self, slots: Slots) -> RowNumbers:
        """The numbers of the rows in slots that were given out: the inverse of `slots`."""
        return _apply_in_pieces(self._rows, slots)

    def _slots(self, rows: Words) -> Words:
        start, count, last = self._find_batch(rows)
        chunk, within = np.divmod(rows - start, _CHUNK)
        rank = self._shuffle.forward(_CHUNKS, start, _chunk_count(count), chunk)
        place = start + rank * _CHUNK + within - np.where(rank > last, _missing_rows(count), 0).astype(np.uint64)
        first, size = self._block_of(place, start, count)
        place = first + self._shuffle.forward(_PLACES, first, size, place - first)
        return shuffle_lanes(self._shuffle, place, self.shards)

    def _rows(self, slots: Words) -> Words:
        s = np.uint64(self.shards)
        stripe, lane = np.divmod(slots, s)
        place = stripe * s + (lane if s == 1 else self._shuffle.backward(_LANES, stripe, s, lane))
        start, count, last = self._find_batch(place)
        first, size = self._block_of(place, start, count)
        place = first - start + self._shuffle.backward(_PLACES, first, size, place - first)
        # What was dealt after the last chunk, which may be short, comes that much earlier.
        short = _missing_rows(count)
        place += np.where(place >= (last + _ONE) * _CHUNK - short, short, 0).astype(np.uint64)
        rank, within = np.divmod(place, _CHUNK)
        return start + self._shuffle.backward(_CHUNKS, start, _chunk_count(count), rank) * _CHUNK + within

    def _find_batch(self, rows: Words) -> tuple[Words, Words, Words]:
        """Of each row's batch, or place's: the first number, how many rows it has, and its last chunk's rank."""
        starts, counts, lasts = self._batch_table
        batch = np.searchsorted(starts, rows, "right") - 1
        return starts[batch], counts[batch], lasts[batch]

    @cached_property
    def _batch_table(self) -> tuple[Words, Words, Words]:
        starts = np.array(self.batches, dtype=np.uint64)
        counts = np.diff(np.array([*self.batches, self.drawn], dtype=np.int64)).astype(np.uint64)
        there = counts > 0  # a batch of no rows deals nothing, and the next begins where it did
        starts, counts = starts[there], counts[there]
        lasts = self._shuffle.forward(_CHUNKS, starts, _chunk_count(counts), _chunk_count(counts) - _ONE)
        return starts, counts, lasts

    def _block_of(self, place: Words, start: Words, count: Words) -> tuple[Words, Words]:
        """The first place of each place's block that is in its batch, and how many of them there are."""
        block = np.uint64(self.block)
        first = place // block * block
        stop = np.minimum(first + block, start + count)
        first = np.maximum(first, start)
        return first, stop - first

    @cached_property
    def _shuffle(self) -> Shuffle:
        return Shuffle.from_key(self.key)


def shuffle_lanes(shuffle: Shuffle, place: Words, shards: int) -> Words:
    """The slots of places: the same stripes, the lanes of each in an order of its own."""
    if shards == 1:
        return place
    s = np.uint64(shards)
    stripe, lane = np.divmod(place, s)
    slots: Words = stripe * s + shuffle.forward(_LANES, stripe, s, lane)
    return slots


def draw_slots(key: Key, start: int, count: int, shards: int) -> Slots:
    """Slots for a batch of ``count`` rows that arrive after ``start`` others."""
    return Placement(key, shards, (start,), start + count).slots(np.arange(start, start + count))


def slots_needed(rows: int, shards: int) -> int:
    """Slots of the whole stripes that hold this many rows."""
    return -(-rows // shards) * shards


def free_slots(key: Key, drawn: int, shards: int) -> Slots:
    """The slots of the last stripe that were never given out, when ``drawn`` rows have arrived."""
    places = np.arange(drawn, slots_needed(drawn, shards), dtype=np.uint64)
    return shuffle_lanes(Shuffle.from_key(key), places, shards).astype(np.int64)


def _apply_in_pieces(function: Callable[[Words], Words], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Apply a function to numbers, a piece at a time: its steps stay in cache, and take no memory to speak of."""
    out = np.empty(len(numbers), dtype=np.int64)
    for piece in cut(len(numbers), 8):
        out[piece] = function(numbers[piece].astype(np.uint64))
    return out


def _chunk_count(count: Words) -> Words:
    """Chunks of batches, the last of which may be short."""
    return (count + (_CHUNK - _ONE)) // _CHUNK


def _missing_rows(count: Words) -> Words:
    """How many rows the last chunk lacks."""
    return _chunk_count(count) * _CHUNK - count
