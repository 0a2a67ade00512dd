"""Records: the rows on disk, one of fixed width a slot, so that erasing a row is an overwrite in place.

A record is the row's inputs and targets as float64 and a checksum of them, of the slot and of the vault's seal. An
erased row is all zeros, and so is a slot that has none yet. Which slots have a row is a bit each, in a file of its own.
Subtracting a row that is not, to the last bit, the row that was learned would leave a residue for ever: every row that
is read is checked, and a file of another vault is no better than a damaged one.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...encoding.randomness import words
from ...errors import InvalidFile
from ...exact.arrays import Floats, Slots
from ...stores.rows import Rows
from . import files

Words = NDArray[np.uint64]
Bits = NDArray[np.bool_]


class StoredRows(Rows):
    """Rows in a file. Which of them there are is in memory, as of the last commit."""

    seen: Callable[[int], None] = staticmethod(lambda _: None)  # told how many rows were read, for a progress bar

    def __init__(self, path: Path, live: Bits, inputs: int, targets: int, seal: bytes) -> None:
        self.path, self.width, self.seal = path, inputs + targets, seal
        data = files.mapped(path, len(live) * self.record_bytes)
        self._table = np.frombuffer(data, dtype="<u8").reshape(len(live), self.width + 1)
        values = self._table[:, :-1].view("<f8")
        super().__init__(values[:, :inputs], values[:, inputs:], live)

    @property
    def record_bytes(self) -> int:
        """The length of a record."""
        return 8 * (self.width + 1)

    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        table = self._table[slots]
        if (checksums(slots, table[:, :-1], self.seal) != table[:, -1]).any():
            raise InvalidFile(f"{self.path} is damaged: rows fail their checksum")
        self.seen(len(slots))
        values = table[:, :-1].view("<f8")
        d = self.X.shape[1]
        return values[:, :d], values[:, d:]

    def empty(self, slots: Any) -> bool:
        """Whether there is nothing at all in these slots."""
        return not self._table[slots].any()

    def put(self, slots: Slots, X: Floats, y: Floats) -> None:
        """Write rows into their slots, and sync."""
        files.overwrite(self.path, pieces(slots, packed(slots, X, y, self.seal)))

    def erase(self, slots: Slots) -> None:
        """Overwrite the rows in these slots by zeros, and sync."""
        files.overwrite(self.path, pieces(slots, np.zeros((len(slots), self.width + 1), dtype=np.uint64)))


def packed(slots: Slots, X: Floats, y: Floats, seal: bytes) -> Words:
    """The records of rows: (n, d + t + 1)."""
    table = np.empty((len(slots), X.shape[1] + y.shape[1] + 1), dtype="<u8")
    values = table[:, :-1].view("<f8")
    values[:, : X.shape[1]], values[:, X.shape[1] :] = X, y
    table[:, -1] = checksums(slots, table[:, :-1], seal)
    return table


def pieces(places: Slots, table: NDArray[Any]) -> Iterator[tuple[int, bytes]]:
    """The bytes that put the rows of a table into these places of a file: neighbours in one piece."""
    order = np.argsort(places)
    places, table = places[order], table[order]
    starts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    for start, stop in pairwise([*starts.tolist(), len(places)]):  # none if there are no places
        yield int(places[start]) * table.strides[0], table[start:stop].tobytes()


def checksums(slots: Slots, values: Words, seal: bytes) -> Words:
    """A sum modulo 2^64 with odd factors, of the slot and all words of a row; never zero."""
    factors = _factors(seal, values.shape[1])
    total: Words = values @ factors[1:] + slots.astype(np.uint64) * factors[0]
    return total | np.uint64(1)


@cache
def _factors(seal: bytes, width: int) -> Words:
    odd: Words = words(np.frombuffer(seal, dtype="<u8").astype(np.uint64), 0, 0, width + 1) | np.uint64(1)
    return odd


def read_live(path: Path, slots: int) -> Bits:
    """Which slots have a row: a bit each."""
    bits = np.frombuffer(files.mapped(path, -(-slots // 8)), dtype=np.uint8)
    return np.unpackbits(bits, count=slots).astype(np.bool_)


def write_live(path: Path, live: Bits, slots: Slots) -> None:
    """Write the bits of these slots as they are in ``live``, and sync."""
    places = np.unique(slots // 8)
    eights = np.zeros((len(places), 8), dtype=np.bool_)
    at = places[:, None] * 8 + np.arange(8)
    inside = at < len(live)
    eights[inside] = live[at[inside]]
    files.overwrite(path, pieces(places, np.packbits(eights, axis=1)))
