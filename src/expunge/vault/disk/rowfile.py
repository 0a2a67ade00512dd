"""The row files: rows on disk in the order in which they came, one entry of fixed width each.

To erase a row is to overwrite its entry in place. An entry is the row's inputs and targets as float64 and a checksum of
them, of the row's number and of the vault's seal. An erased row is all zeros, and so is one that was left out when it
came. In which slot a row is follows from its number (`encoding.placement`). Which slots have a row is one bit each, in
a file of its own, in the order of the slots. Subtracting a row that is not, to the last bit, the row that was learned
would leave a residue for ever: every row that is read is checked, and a file of another vault is no better than a
damaged one. The bits are checked as a whole: the manifest has the sum of the slots in use (`slotsum`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...encoding.encoder import Encoder
from ...encoding.placement import Dealt, RowNumbers, room
from ...encoding.randomness import words
from ...errors import InvalidFile
from ...exact.arrays import Floats, Slots, cut, distinct
from ...exact.moments import Moments
from ...saving import files
from ...stores.bits import Bits
from ...stores.change import Change
from ...stores.rows import Rows
from .manifest import RowSegment
from .slotsum import slots_sum
from .spans import spans

Words = NDArray[np.uint64]

_MOST_MAPPED = 256  # files of rows at a time: each takes one of the descriptors that a process may have


@dataclass(frozen=True, eq=False)
class Layout:
    """Which files have the rows, and where each row is."""

    folder: Path
    segments: tuple[RowSegment, ...]  # files of rows, one after the other
    bits: str  # the file that says which slots have a row
    dealt: Dealt
    inputs: int
    targets: int
    seal: bytes

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return room(self.dealt.drawn, self.dealt.shards)

    @property
    def entry_bytes(self) -> int:
        """The length of an entry."""
        return 8 * (self.inputs + self.targets + 1)

    @property
    def bits_bytes(self) -> int:
        """The length of the file of bits."""
        return -(-self.slots // 8)

    def path(self, segment: int) -> Path:
        """The file of a segment."""
        return self.folder / self.segments[segment].name


# Who sums stripes elsewhere: the moments of every learner after a change, or None if that is not worth it.
Summing: TypeAlias = Callable[["RowFile", Encoder, range, Change | None], list[Moments] | None]


class RowFile(Rows):
    """Rows in files. Which slots have one is in memory, as of the last commit, and in the file of bits."""

    live: Bits
    _told: Callable[[int], None] = staticmethod(lambda _: None)

    def __init__(self, layout: Layout, live: Bits, helpers: Summing | None = None) -> None:
        self.helpers = helpers
        self.layout, self.width = layout, layout.inputs + layout.targets
        self._sum: int | None = None
        self._tables: dict[int, Words] = {}
        self._starts = np.cumsum([0, *(segment.count for segment in layout.segments)])
        super().__init__(np.empty((0, layout.inputs)), np.empty((0, layout.targets)), live)
        for k in range(len(layout.segments)):
            files.check_size(layout.path(k), layout.segments[k].count * layout.entry_bytes)

    @classmethod
    def open(cls, layout: Layout) -> Self:
        """Take up the files of a vault."""
        return cls(layout, read_bits(layout.folder / layout.bits, layout.slots))

    @property
    def bits(self) -> Path:
        """The file of bits."""
        return self.layout.folder / self.layout.bits

    @property
    def sum(self) -> int:
        """The sum of the slots in use; counted once, then it changes with them."""
        if self._sum is None:
            pieces = cut(len(self.live), 1)
            parts = (slots_sum(piece.start + np.flatnonzero(self.live[piece]), self.layout.seal) for piece in pieces)
            self._sum = sum(parts) % 2**64
        return self._sum

    def hold(self, slots: Slots, there: bool) -> None:
        """Say, in memory alone, whether these slots have a row."""
        changed = distinct(slots[self.live[slots] != there])
        total = self.sum + (1 if there else -1) * slots_sum(changed, self.layout.seal)
        self.live[slots] = there
        self._sum = total % 2**64

    def check_held(self, slots: Slots) -> None:
        """Refuse to take the rows in these slots for rows if one has none: then its owner's entry is damaged."""
        inside = bool((slots < len(self.live)).all())
        if not inside or not self.live[slots].all() or len(distinct(slots)) < len(slots):
            raise InvalidFile(
                f"{self.layout.folder} is damaged: somebody's row is said to be where there is none; "
                "nothing was changed"
            )

    def check_sizes(self) -> None:
        """Refuse files that somebody cut since they were taken up: to read what is mapped would end the process."""
        for k, segment in enumerate(self.layout.segments):
            files.check_size(self.layout.path(k), segment.count * self.layout.entry_bytes)
        files.check_size(self.bits, self.layout.bits_bytes)

    # Reading

    def at_once(self, encoder: Encoder) -> int:
        return max(1, room(self.layout.dealt.block, encoder.code.shards) // encoder.code.shards)

    def summed(self, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        return None if self.helpers is None else self.helpers(self, encoder, stripes, change)

    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        rows = self.layout.dealt.rows(slots)
        table = self.entries(rows)
        if (checksums(rows, table[:, :-1], self.layout.seal) != table[:, -1]).any():
            raise InvalidFile(f"{self.where(rows)} is damaged: rows fail their checksum")
        self._told(len(slots))
        values = table[:, :-1].view("<f8")
        d = self.layout.inputs
        return values[:, :d], values[:, d:]

    def entries(self, rows: RowNumbers) -> Words:
        """The entries of rows as they are, (k, d + t + 1)."""
        if len(self.layout.segments) == 1:
            return self._table(0)[rows]
        table = np.empty((len(rows), self.width + 1), dtype="<u8")
        segment = np.searchsorted(self._starts, rows, "right") - 1
        for k in np.flatnonzero(np.bincount(segment)).tolist():
            mine = segment == k
            table[mine] = self._table(k)[rows[mine] - self._starts[k]]
        return table

    def _table(self, segment: int) -> Words:
        table = self._tables.pop(segment, None)
        if table is None:
            count = self.layout.segments[segment].count
            data = files.mapped(self.layout.path(segment), count * self.layout.entry_bytes)
            table = np.frombuffer(data, dtype="<u8").reshape(count, self.width + 1)
        self._tables[segment] = table  # the last is the one used last
        while len(self._tables) > _MOST_MAPPED:
            self._tables.pop(next(iter(self._tables)), None)
        return table

    def where(self, rows: RowNumbers) -> Path:
        """The file of rows, or the folder if they are in several."""
        segments = np.searchsorted(self._starts, rows, "right") - 1
        same = len(segments) and (segments == segments[0]).all()
        return self.layout.path(int(segments[0])) if same else self.layout.folder

    @contextmanager
    def watched(self, told: Callable[[int], None]) -> Iterator[None]:
        """Tell how many rows are read while this lasts, for a progress bar."""
        self._told = told
        try:
            yield
        finally:
            del self._told

    @property
    def told(self) -> Callable[[int], None]:
        """Whom to tell how many rows others have read."""
        return self._told

    # Overwriting

    def put(self, slots: Slots, X: Floats, y: Floats) -> None:
        """Write rows into their slots, and sync."""
        rows = self.layout.dealt.rows(slots)
        self._overwrite(rows, packed(rows, X, y, self.layout.seal))

    def mark(self, first: int) -> None:
        """Say that the rows from number ``first`` on are there, but for those that were left out; and sync."""
        for piece in cut(self.layout.dealt.drawn - first, self.width):
            rows = np.arange(first + piece.start, first + piece.stop)
            self.hold(self.layout.dealt.slots(rows[self.entries(rows)[:, -1] != 0]), True)
        start = first // self.layout.dealt.shards * self.layout.dealt.shards // 8  # their slots are all from here on
        files.overwrite(self.bits, [(start, self.live.packed[start:].data)])

    def erase(self, slots: Slots) -> None:
        """Overwrite the rows in these slots by zeros, clear their bits, and sync both."""
        self._overwrite(self.layout.dealt.rows(slots), np.zeros((len(slots), self.width + 1), dtype=np.uint64))
        self.hold(slots, False)
        self._write_bits(slots)

    def _overwrite(self, rows: RowNumbers, table: Words) -> None:
        segment = np.searchsorted(self._starts, rows, "right") - 1
        for k in np.flatnonzero(np.bincount(segment)).tolist():
            mine = segment == k
            files.overwrite(self.layout.path(k), spans(rows[mine] - self._starts[k], table[mine], self._table(k)))

    def _write_bits(self, slots: Slots) -> None:
        """Write the bits of these slots as they are in memory, and sync."""
        places, packed = distinct(slots // 8), self.live.packed[:, None]
        files.overwrite(self.bits, spans(places, packed[places], packed))

    # Growing and trimming

    def grown(self, slots: int) -> Self:
        raise NotImplementedError("a row file grows by a batch: see `with_batch`")

    def with_batch(self, dealt: Dealt, segments: tuple[RowSegment, ...]) -> Self:
        """The same rows, and a batch more whose entries are written; no slot of it has a row yet."""
        layout = replace(self.layout, segments=segments, dealt=dealt)
        if layout.bits_bytes > self.layout.bits_bytes:
            files.resize(self.bits, layout.bits_bytes)
        grown = type(self)(layout, self.live.resized(layout.slots), self.helpers)
        grown._sum = self._sum
        return grown

    def trim(self) -> None:
        """Wipe and cut off what lies beyond the entries and bits that there are."""
        sizes = {self.layout.path(k): s.count * self.layout.entry_bytes for k, s in enumerate(self.layout.segments)}
        for path, size in (*sizes.items(), (self.bits, self.layout.bits_bytes)):
            with files.opened(path) as fd:
                longer = files.size_of(fd) > size
            if longer:
                files.resize(path, size)


def read_bits(path: Path, slots: int) -> Bits:
    """Which slots have a row, from the file of bits. The spare bits of its last byte are never set."""
    size = -(-slots // 8)
    try:
        with files.opened(path) as fd:
            data = files.read_from(fd, path, stop=size)
    except FileNotFoundError:
        raise InvalidFile(f"{path} is not there: the folder is incomplete") from None
    if len(data) < size or (slots % 8 and data[-1] & 0xFF >> slots % 8):
        raise InvalidFile(f"{path} is damaged, or cut short")
    return Bits(np.frombuffer(data, dtype=np.uint8).copy(), slots)


def packed(rows: RowNumbers, X: Floats, y: Floats, seal: bytes) -> Words:
    """The entries of rows: (n, d + t + 1)."""
    table = np.empty((len(rows), X.shape[1] + y.shape[1] + 1), dtype="<u8")
    values = table[:, :-1].view("<f8")
    values[:, : X.shape[1]], values[:, X.shape[1] :] = X, y
    table[:, -1] = checksums(rows, table[:, :-1], seal)
    return table


def checksums(rows: RowNumbers, values: Words, seal: bytes) -> Words:
    """A sum modulo 2^64 with odd factors, of the row's number and all words of a row; never zero."""
    factors = _factors(seal, values.shape[1])
    total: Words = values @ factors[1:] + rows.astype(np.uint64) * factors[0]
    return total | np.uint64(1)


@cache
def _factors(seal: bytes, width: int) -> Words:
    odd: Words = words(np.frombuffer(seal, dtype="<u8").astype(np.uint64), 0, 0, width + 1) | np.uint64(1)
    return odd
