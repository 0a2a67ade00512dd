"""The row file: rows on disk, one entry of fixed width per slot, so that erasing a row is an overwrite in place.

An entry is the row's inputs and targets as float64 and a checksum of them, of the slot and of the vault's seal. An
erased row is all zeros, and so is a slot that has none yet. Which slots have a row is one bit each, in a file of its
own. Subtracting a row that is not, to the last bit, the row that was learned would leave a residue for ever: every row
that is read is checked, and a file of another vault is no better than a damaged one. The bits are checked as a whole:
the manifest has the sum of the slots in use (`slotsum`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...encoding.randomness import words
from ...errors import InvalidFile
from ...exact.arrays import Floats, Slots
from ...saving import files
from ...stores.rows import Rows
from .slotsum import slots_sum

Words = NDArray[np.uint64]
Bits = NDArray[np.bool_]


class RowFile(Rows):
    """Rows in a file. Which slots have one is in memory, as of the last commit, and in the file of bits."""

    _told: Callable[[int], None] = staticmethod(lambda _: None)

    def __init__(self, path: Path, bits: Path, live: Bits, inputs: int, targets: int, seal: bytes) -> None:
        self.path, self.bits, self.width, self.seal = path, bits, inputs + targets, seal
        self._sum: int | None = None
        data = files.mapped(path, len(live) * self.entry_bytes)
        self._table = np.frombuffer(data, dtype="<u8").reshape(len(live), self.width + 1)
        values = self._table[:, :-1].view("<f8")
        super().__init__(values[:, :inputs], values[:, inputs:], live)

    @classmethod
    def open(cls, path: Path, bits: Path, slots: int, inputs: int, targets: int, seal: bytes) -> Self:
        """Take up the files of a vault that has this many slots."""
        return cls(path, bits, read_bits(bits, slots), inputs, targets, seal)

    @classmethod
    def create(cls, path: Path, bits: Path, live: Bits, inputs: int, targets: int, seal: bytes) -> Self:
        """Complete a new file into which rows were written: its length, and bits of which none is set yet."""
        files.create(bits, bytes(_bitmap_bytes(len(live))))
        files.lengthen(path, 0, len(live) * _entry_bytes(inputs + targets))
        return cls(path, bits, live, inputs, targets, seal)

    @property
    def entry_bytes(self) -> int:
        """The length of an entry."""
        return _entry_bytes(self.width)

    @property
    def sum(self) -> int:
        """The sum of the slots in use; counted once, then it changes with them."""
        if self._sum is None:
            self._sum = slots_sum(np.flatnonzero(self.live), self.seal)
        return self._sum

    def hold(self, slots: Slots, there: bool) -> None:
        """Say, in memory alone, whether these slots have a row."""
        changed = _distinct(slots[self.live[slots] != there])
        total = self.sum + (1 if there else -1) * slots_sum(changed, self.seal)
        self.live[slots] = there
        self._sum = total % 2**64

    def check_held(self, slots: Slots) -> None:
        """Refuse to take the rows in these slots for rows if one has none: then its owner's entry is damaged."""
        inside = bool((slots < len(self.live)).all())
        if not inside or not self.live[slots].all() or len(_distinct(slots)) < len(slots):
            raise InvalidFile(
                f"{self.path.parent} is damaged: somebody's row is said to be where there is none; nothing was changed"
            )

    def check_sizes(self) -> None:
        """Refuse files that somebody cut since they were taken up: to read what is mapped would end the process."""
        files.check_size(self.path, len(self.live) * self.entry_bytes)
        files.check_size(self.bits, _bitmap_bytes(len(self.live)))

    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        table = self._table[slots]
        if (checksums(slots, table[:, :-1], self.seal) != table[:, -1]).any():
            raise InvalidFile(f"{self.path} is damaged: rows fail their checksum")
        self._told(len(slots))
        values = table[:, :-1].view("<f8")
        d = self.X.shape[1]
        return values[:, :d], values[:, d:]

    @contextmanager
    def watched(self, told: Callable[[int], None]) -> Iterator[None]:
        """Tell how many rows are read while this lasts, for a progress bar."""
        self._told = told
        try:
            yield
        finally:
            del self._told

    def empty(self, slots: Any) -> bool:
        """Whether there is nothing at all in these slots."""
        return not self._table[slots].any()

    def put(self, slots: Slots, X: Floats, y: Floats) -> None:
        """Write rows into their slots, and sync."""
        files.overwrite(self.path, located(slots, packed(slots, X, y, self.seal)))

    def mark(self, slots: Slots) -> None:
        """Say that these slots have a row now, in memory and on disk."""
        self.hold(slots, True)
        self._write_bits(slots)

    def erase(self, slots: Slots) -> None:
        """Overwrite the rows in these slots by zeros, clear their bits, and sync both."""
        self.blank(slots)
        self.hold(slots, False)
        self._write_bits(slots)

    def blank(self, slots: Slots) -> None:
        """Overwrite what is in these slots by zeros, and sync."""
        files.overwrite(self.path, located(slots, np.zeros((len(slots), self.width + 1), dtype=np.uint64)))

    def grown(self, slots: int) -> Self:
        """The same rows with room for more slots, on disk too."""
        if slots <= len(self.live):
            return self
        files.lengthen(self.path, len(self.live) * self.entry_bytes, slots * self.entry_bytes)
        files.resize(self.bits, _bitmap_bytes(slots))
        live = np.concatenate([self.live, np.zeros(slots - len(self.live), dtype=np.bool_)])
        grown = type(self)(self.path, self.bits, live, self.X.shape[1], self.y.shape[1], self.seal)
        grown._sum = self._sum
        return grown

    def trim(self) -> None:
        """Wipe and cut off what lies beyond the slots that there are."""
        for path, size in (
            (self.path, len(self.live) * self.entry_bytes),
            (self.bits, _bitmap_bytes(len(self.live))),
        ):
            with files.opened(path) as fd:
                longer = files.size_of(fd) > size
            if longer:
                files.resize(path, size)

    def _write_bits(self, slots: Slots) -> None:
        """Write the bits of these slots as they are in memory, and sync."""
        places = _distinct(slots // 8)
        eights = np.zeros((len(places), 8), dtype=np.bool_)
        at = places[:, None] * 8 + np.arange(8)
        inside = at < len(self.live)
        eights[inside] = self.live[at[inside]]
        files.overwrite(self.bits, located(places, np.packbits(eights, axis=1)))


def read_bits(path: Path, slots: int) -> Bits:
    """Which slots have a row, from the file of bits. The spare bits of its last byte are never set."""
    size = _bitmap_bytes(slots)
    try:
        with files.opened(path) as fd:
            data = files.read_from(fd, path, stop=size)
    except FileNotFoundError:
        raise InvalidFile(f"{path} is not there: the folder is incomplete") from None
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if len(data) < size or bits[slots:].any():
        raise InvalidFile(f"{path} is damaged, or cut short")
    return bits[:slots].astype(np.bool_)


def packed(slots: Slots, X: Floats, y: Floats, seal: bytes) -> Words:
    """The entries of rows: (n, d + t + 1)."""
    table = np.empty((len(slots), X.shape[1] + y.shape[1] + 1), dtype="<u8")
    values = table[:, :-1].view("<f8")
    values[:, : X.shape[1]], values[:, X.shape[1] :] = X, y
    table[:, -1] = checksums(slots, table[:, :-1], seal)
    return table


def located(places: Slots, table: NDArray[Any]) -> Iterator[tuple[int, files.Data]]:
    """The offsets and bytes that put the rows of a table into these places of a file: neighbours at once."""
    if len(places) == 1:
        yield int(places[0]) * table.strides[0], table.tobytes()
        return
    first, last = int(places.min(initial=0)), int(places.max(initial=0))
    if last - first + 1 == len(places) and len(_distinct(places)) == len(places):  # as those of a whole table
        whole = np.empty_like(table)
        whole[places - first] = table
        yield first * table.strides[0], whole.reshape(-1).view(np.uint8).data
        return
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


def _distinct(slots: Slots) -> Slots:
    """Slots in order, each once; NumPy's own way, by hashes, takes four times as long."""
    if len(slots) < 2:
        return slots
    slots = np.sort(slots)
    first: Slots = slots[np.diff(slots, prepend=-1) != 0]
    return first


def _entry_bytes(width: int) -> int:
    return 8 * (width + 1)


def _bitmap_bytes(slots: int) -> int:
    return -(-slots // 8)
