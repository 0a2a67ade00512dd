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
from ...encoding.placement import Placement, RowNumbers, slots_needed
from ...encoding.randomness import MIX, ODD, SHIFTS, Words, mix_bits, random_words
from ...errors import InvalidFile
from ...exact.arrays import Floats, Slots, cut, unique
from ...exact.moments import Moments
from ...saving import files
from ...stores.bits import Bits
from ...stores.change import Change
from ...stores.store import Rows
from .manifest import RowSegment
from .spans import plan_spans

# MERGED slotsum: The sum of the slots in use: a fingerprint of the file of bits that an erasure changes by one subtraction.
# MERGED slotsum:
# MERGED slotsum: It is the sum modulo 2^64 of a keyed mix of each slot that has a row. A bit that is flipped adds or takes away a number
# MERGED slotsum: that looks drawn at random: whatever bits are flipped by accident, the sum is another. (Who can write to the folder and
# MERGED slotsum: means harm can write the sum as well.)


_MAX_SCALAR_SLOTS = 8  # slots
_SLOT_STREAM = 1  # of the words that the seal gives; the checksums of rows have another


def sum_slots(slots: Slots, seal: bytes) -> int:
    """The sum of these slots, each of which is there once."""
    if len(slots) <= _MAX_SCALAR_SLOTS:
        return sum(_mix_slot(slot, int(_slot_key(seal))) for slot in slots.tolist()) % 2**64
    parts = (int(_mix_slots(slots[block], seal).sum(dtype=np.uint64)) for block in cut(len(slots), 1))
    return sum(parts) % 2**64


def _mix_slot(slot: int, key: int) -> int:
    """The same as `_mixed`, of one slot: for few of them faster than an array."""
    made = slot * int(ODD) + key
    for shift, odd in zip(SHIFTS, MIX, strict=False):
        made %= 2**64
        made = (made ^ (made >> int(shift))) * int(odd)
    made %= 2**64
    return made ^ (made >> int(SHIFTS[-1]))


def _mix_slots(slots: Slots, seal: bytes) -> Words:
    made: Words = mix_bits(slots.astype(np.uint64) * ODD + _slot_key(seal))
    return made


@cache
def _slot_key(seal: bytes) -> np.uint64:
    return np.uint64(random_words(np.frombuffer(seal, dtype="<u8").astype(np.uint64), _SLOT_STREAM, 0, 1)[0])


EntryWords = NDArray[np.uint64]

_MAX_MAPPED_FILES = 256  # files of rows at a time: each takes one of the descriptors that a process may have


@dataclass(frozen=True, eq=False)
class RowLayout:
    """Which files have the rows, and where each row is."""

    folder: Path
    segments: tuple[RowSegment, ...]  # files of rows, one after the other
    bits_name: str  # the file that says which slots have a row
    dealt: Placement
    inputs: int
    targets: int
    seal: bytes

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return slots_needed(self.dealt.drawn, self.dealt.shards)

    @property
    def entry_bytes(self) -> int:
        """The length of an entry."""
        return 8 * (self.inputs + self.targets + 1)

    @property
    def bits_bytes(self) -> int:
        """The length of the file of bits."""
        return -(-self.slots // 8)

    def segment_path(self, segment: int) -> Path:
        """The file of a segment."""
        return self.folder / self.segments[segment].name


# Who sums stripes elsewhere: the moments of every learner after a change, or None if that is not worth it.
StripeSummer: TypeAlias = Callable[["RowFile", Encoder, range, Change | None], list[Moments] | None]


class RowFile(Rows):
    """Rows in files. Which slots have one is in memory, as of the last commit, and in the file of bits."""

    live: Bits
    _on_rows_read: Callable[[int], None] = staticmethod(lambda _: None)

    def __init__(self, layout: RowLayout, live: Bits, helpers: StripeSummer | None = None) -> None:
        self.helpers = helpers
        self.layout, self.width = layout, layout.inputs + layout.targets
        self._live_sum: int | None = None
        self._mapped_segments: dict[int, EntryWords] = {}
        self._starts = np.cumsum([0, *(segment.count for segment in layout.segments)])
        super().__init__(np.empty((0, layout.inputs)), np.empty((0, layout.targets)), live)
        for k in range(len(layout.segments)):
            files.check_size(layout.segment_path(k), layout.segments[k].count * layout.entry_bytes)

    @classmethod
    def open(cls, layout: RowLayout) -> Self:
        """Take up the files of a vault."""
        return cls(layout, read_bits(layout.folder / layout.bits_name, layout.slots))

    @property
    def bits_path(self) -> Path:
        """The file of bits."""
        return self.layout.folder / self.layout.bits_name

    @property
    def live_sum(self) -> int:
        """The sum of the slots in use; counted once, then it changes with them."""
        if self._live_sum is None:
            pieces = cut(len(self.live), 1)
            parts = (sum_slots(piece.start + np.flatnonzero(self.live[piece]), self.layout.seal) for piece in pieces)
            self._live_sum = sum(parts) % 2**64
        return self._live_sum

    def set_live(self, slots: Slots, is_live: bool) -> None:
        """Say, in memory alone, whether these slots have a row."""
        changed = unique(slots[self.live[slots] != is_live])
        total = self.live_sum + (1 if is_live else -1) * sum_slots(changed, self.layout.seal)
        self.live[slots] = is_live
        self._live_sum = total % 2**64

    def check_live(self, slots: Slots) -> None:
        """Refuse to take the rows in these slots for rows if one has none: then its owner's entry is damaged."""
        inside = bool((slots < len(self.live)).all())
        if not inside or not self.live[slots].all() or len(unique(slots)) < len(slots):
            raise InvalidFile(
                f"{self.layout.folder} is damaged: somebody's row is said to be where there is none; "
                "nothing was changed"
            )

    def check_sizes(self) -> None:
        """Refuse files that somebody cut since they were taken up: to read what is mapped would end the process."""
        for k, segment in enumerate(self.layout.segments):
            files.check_size(self.layout.segment_path(k), segment.count * self.layout.entry_bytes)
        files.check_size(self.bits_path, self.layout.bits_bytes)

    # Reading

    def stripes_per_block(self, encoder: Encoder) -> int:
        return max(1, slots_needed(self.layout.dealt.block, encoder.code.shards) // encoder.code.shards)

    def sum_remotely(self, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        return None if self.helpers is None else self.helpers(self, encoder, stripes, change)

    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        rows = self.layout.dealt.rows(slots)
        table = self.read_entries(rows)
        if (row_checksums(rows, table[:, :-1], self.layout.seal) != table[:, -1]).any():
            raise InvalidFile(f"{self.locate_rows(rows)} is damaged: rows fail their checksum")
        self._on_rows_read(len(slots))
        values = table[:, :-1].view("<f8")
        d = self.layout.inputs
        return values[:, :d], values[:, d:]

    def read_entries(self, rows: RowNumbers) -> EntryWords:
        """The entries of rows as they are, (k, d + t + 1)."""
        if len(self.layout.segments) == 1:
            return self._map_segment(0)[rows]
        table = np.empty((len(rows), self.width + 1), dtype="<u8")
        segment = np.searchsorted(self._starts, rows, "right") - 1
        for k in np.flatnonzero(np.bincount(segment)).tolist():
            mine = segment == k
            table[mine] = self._map_segment(k)[rows[mine] - self._starts[k]]
        return table

    def _map_segment(self, segment: int) -> EntryWords:
        table = self._mapped_segments.pop(segment, None)
        if table is None:
            count = self.layout.segments[segment].count
            data = files.map_file(self.layout.segment_path(segment), count * self.layout.entry_bytes)
            table = np.frombuffer(data, dtype="<u8").reshape(count, self.width + 1)
        self._mapped_segments[segment] = table  # the last is the one used last
        while len(self._mapped_segments) > _MAX_MAPPED_FILES:
            self._mapped_segments.pop(next(iter(self._mapped_segments)), None)
        return table

    def locate_rows(self, rows: RowNumbers) -> Path:
        """The file of rows, or the folder if they are in several."""
        segments = np.searchsorted(self._starts, rows, "right") - 1
        same = len(segments) and (segments == segments[0]).all()
        return self.layout.segment_path(int(segments[0])) if same else self.layout.folder

    @contextmanager
    def report_reads(self, on_rows_read: Callable[[int], None]) -> Iterator[None]:
        """Tell how many rows are read while this lasts, for a progress bar."""
        self._on_rows_read = on_rows_read
        try:
            yield
        finally:
            del self._on_rows_read

    @property
    def on_rows_read(self) -> Callable[[int], None]:
        """Whom to tell how many rows others have read."""
        return self._on_rows_read

    # Overwriting

    def write_rows(self, slots: Slots, X: Floats, y: Floats) -> None:
        """Write rows into their slots, and sync."""
        rows = self.layout.dealt.rows(slots)
        self._overwrite(rows, pack_rows(rows, X, y, self.layout.seal))

    def set_live_from(self, first: int) -> None:
        """Say that the rows from number ``first`` on are there, but for those that were left out; and sync."""
        for piece in cut(self.layout.dealt.drawn - first, self.width):
            rows = np.arange(first + piece.start, first + piece.stop)
            self.set_live(self.layout.dealt.slots(rows[self.read_entries(rows)[:, -1] != 0]), True)
        start = first // self.layout.dealt.shards * self.layout.dealt.shards // 8  # their slots are all from here on
        files.overwrite(self.bits_path, [(start, self.live.packed[start:].data)])

    def erase(self, slots: Slots) -> None:
        """Overwrite the rows in these slots by zeros, clear their bits, and sync both."""
        self._overwrite(self.layout.dealt.rows(slots), np.zeros((len(slots), self.width + 1), dtype=np.uint64))
        self.set_live(slots, False)
        self._write_bits(slots)

    def _overwrite(self, rows: RowNumbers, table: EntryWords) -> None:
        segment = np.searchsorted(self._starts, rows, "right") - 1
        for k in np.flatnonzero(np.bincount(segment)).tolist():
            mine = segment == k
            files.overwrite(
                self.layout.segment_path(k), plan_spans(rows[mine] - self._starts[k], table[mine], self._map_segment(k))
            )

    def _write_bits(self, slots: Slots) -> None:
        """Write the bits of these slots as they are in memory, and sync."""
        places, packed = unique(slots // 8), self.live.packed[:, None]
        files.overwrite(self.bits_path, plan_spans(places, packed[places], packed))

    # Growing and trimming

    def grow(self, slots: int) -> Self:
        raise NotImplementedError("a row file grows by a batch: see `with_batch`")

    def with_batch(self, dealt: Placement, segments: tuple[RowSegment, ...]) -> Self:
        """The same rows, and a batch more whose entries are written; no slot of it has a row yet."""
        layout = replace(self.layout, segments=segments, dealt=dealt)
        if layout.bits_bytes > self.layout.bits_bytes:
            files.resize(self.bits_path, layout.bits_bytes)
        grown = type(self)(layout, self.live.grow(layout.slots), self.helpers)
        grown._live_sum = self._live_sum
        return grown

    def trim(self) -> None:
        """Wipe and cut off what lies beyond the entries and bits that there are."""
        sizes = {
            self.layout.segment_path(k): s.count * self.layout.entry_bytes for k, s in enumerate(self.layout.segments)
        }
        for path, size in (*sizes.items(), (self.bits_path, self.layout.bits_bytes)):
            with files.open_file(path) as fd:
                longer = files.file_size(fd) > size
            if longer:
                files.resize(path, size)


def read_bits(path: Path, slots: int) -> Bits:
    """Which slots have a row, from the file of bits. The spare bits of its last byte are never set."""
    size = -(-slots // 8)
    try:
        with files.open_file(path) as fd:
            data = files.read_open_file(fd, path, stop=size)
    except FileNotFoundError:
        raise InvalidFile(f"{path} is not there: the folder is incomplete") from None
    if len(data) < size or (slots % 8 and data[-1] & 0xFF >> slots % 8):
        raise InvalidFile(f"{path} is damaged, or cut short")
    return Bits(np.frombuffer(data, dtype=np.uint8).copy(), slots)


def pack_rows(rows: RowNumbers, X: Floats, y: Floats, seal: bytes) -> EntryWords:
    """The entries of rows: (n, d + t + 1)."""
    table = np.empty((len(rows), X.shape[1] + y.shape[1] + 1), dtype="<u8")
    values = table[:, :-1].view("<f8")
    values[:, : X.shape[1]], values[:, X.shape[1] :] = X, y
    table[:, -1] = row_checksums(rows, table[:, :-1], seal)
    return table


def row_checksums(rows: RowNumbers, values: EntryWords, seal: bytes) -> EntryWords:
    """A sum modulo 2^64 with odd factors, of the row's number and all words of a row; never zero."""
    factors = _checksum_factors(seal, values.shape[1])
    total: EntryWords = values @ factors[1:] + rows.astype(np.uint64) * factors[0]
    return total | np.uint64(1)


@cache
def _checksum_factors(seal: bytes, width: int) -> EntryWords:
    odd: EntryWords = random_words(np.frombuffer(seal, dtype="<u8").astype(np.uint64), 0, 0, width + 1) | np.uint64(1)
    return odd
