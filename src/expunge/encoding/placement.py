"""Placement: which slot a row is in.

A row keeps its slot for ever: slot k is in stripe k // s, lane k % s, and is never refilled. Slots are drawn from a key
and the order of arrival alone, never from values, so that neither a sorted table nor a stream of single rows puts
similar rows into one stripe or lane, and without the key it cannot be known which rows share a coded row.

A batch is placed in three steps, each a keyed permutation (`Shuffle`): its chunks of 256 rows over the whole batch; the
places within blocks of 64 chunks, rounded up to whole stripes; the lanes within each stripe. Each step can be computed
for any row alone, and backwards: any worker can compute the slots of its rows, and the rows in its slots. The rows of a
block of slots are 64 runs of neighbours: rows that are stored in order of arrival are read in runs.
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
BLOCK = 64 * CHUNK  # places that are permuted in the second step, before rounding up to whole stripes
_CHUNKS, _PLACES, _LANES = range(3)  # the kinds of permutations

_CHUNK, _ONE = np.uint64(CHUNK), np.uint64(1)

RowNumbers: TypeAlias = NDArray[np.int64]  # rows in order of arrival, from 0; a number is never reused


@dataclass(frozen=True, eq=False)
class Placement:
    """The map from row numbers, in order of arrival, to slots and back, for rows that came in batches.

    ``batches`` has the number of the first row of each batch, ``drawn`` is the number of all rows.
    """

    key: Key
    shards: int
    batches: tuple[int, ...]
    drawn: int

    @property
    def block(self) -> int:
        """The number of places, and slots, that are permuted among each other: whole stripes."""
        return slots_needed(BLOCK, self.shards)

    def with_batch(self, rows: int) -> "Placement":
        """Return the placement with one more batch of this many rows."""
        return Placement(self.key, self.shards, (*self.batches, self.drawn), self.drawn + rows)

    def slots(self, rows: RowNumbers) -> Slots:
        """Return the slots of rows."""
        return _apply_in_pieces(self._slots, rows)

    def rows(self, slots: Slots) -> RowNumbers:
        """Return the number of the row that each of these slots was given to: the inverse of `slots`."""
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
        # The last chunk may be short: places after it are that much lower.
        short = _missing_rows(count)
        place += np.where(place >= (last + _ONE) * _CHUNK - short, short, 0).astype(np.uint64)
        rank, within = np.divmod(place, _CHUNK)
        return start + self._shuffle.backward(_CHUNKS, start, _chunk_count(count), rank) * _CHUNK + within

    def _find_batch(self, rows: Words) -> tuple[Words, Words, Words]:
        """Return, for the batch of each row or place, its first number, its size, and its last chunk's rank."""
        starts, counts, lasts = self._batch_table
        batch = np.searchsorted(starts, rows, "right") - 1
        return starts[batch], counts[batch], lasts[batch]

    @cached_property
    def _batch_table(self) -> tuple[Words, Words, Words]:
        starts = np.array(self.batches, dtype=np.uint64)
        counts = np.diff(np.array([*self.batches, self.drawn], dtype=np.int64)).astype(np.uint64)
        nonempty = counts > 0  # the batch after an empty one has the same first number
        starts, counts = starts[nonempty], counts[nonempty]
        lasts = self._shuffle.forward(_CHUNKS, starts, _chunk_count(counts), _chunk_count(counts) - _ONE)
        return starts, counts, lasts

    def _block_of(self, place: Words, start: Words, count: Words) -> tuple[Words, Words]:
        """Return, for the block of each place, its first place in the batch, and its number of places there."""
        block = np.uint64(self.block)
        first = place // block * block
        stop = np.minimum(first + block, start + count)
        first = np.maximum(first, start)
        return first, stop - first

    @cached_property
    def _shuffle(self) -> Shuffle:
        return Shuffle.from_key(self.key)


def shuffle_lanes(shuffle: Shuffle, place: Words, shards: int) -> Words:
    """Return the slots of places: the same stripes, with the lanes of each stripe permuted."""
    if shards == 1:
        return place
    s = np.uint64(shards)
    stripe, lane = np.divmod(place, s)
    slots: Words = stripe * s + shuffle.forward(_LANES, stripe, s, lane)
    return slots


def draw_slots(key: Key, start: int, count: int, shards: int) -> Slots:
    """Return the slots of a batch of ``count`` rows that arrive after ``start`` others."""
    return Placement(key, shards, (start,), start + count).slots(np.arange(start, start + count))


def slots_needed(rows: int, shards: int) -> int:
    """Return the number of slots in the whole stripes that hold this many rows."""
    return -(-rows // shards) * shards


def free_slots(key: Key, drawn: int, shards: int) -> Slots:
    """Return the slots of the last stripe that are still unassigned after ``drawn`` rows have arrived."""
    places = np.arange(drawn, slots_needed(drawn, shards), dtype=np.uint64)
    return shuffle_lanes(Shuffle.from_key(key), places, shards).astype(np.int64)


def _apply_in_pieces(function: Callable[[Words], Words], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Apply a function to numbers in pieces that stay in cache and take little memory."""
    out = np.empty(len(numbers), dtype=np.int64)
    for piece in cut(len(numbers), 8):
        out[piece] = function(numbers[piece].astype(np.uint64))
    return out


def _chunk_count(count: Words) -> Words:
    """Return the number of chunks of batches, including a short last one."""
    return (count + (_CHUNK - _ONE)) // _CHUNK


def _missing_rows(count: Words) -> Words:
    """Return how many rows the last chunk lacks."""
    return _chunk_count(count) * _CHUNK - count
