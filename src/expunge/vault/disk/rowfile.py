"""Row files: the rows on disk in order of arrival, one entry of fixed width per row.

A row is erased by overwriting its entry in place. An entry holds the row's inputs and targets as float64, the rank of
its person, and a checksum of these, the row's number and the vault's seal. The rank is the keyed hash by which a plan
chooses people, 0 in a vault whose settings no plan chooses. The entry of a row that was erased, or left out on arrival,
is all zeros. A row's slot follows from its number (`encoding.placement`). A separate file says which slots have a row,
one bit per slot. Subtracting a row that differs in one bit from the row that was learned would leave a residue forever,
so every row that is read is checked; a file of another vault fails like a damaged one. The bits are checked as a whole:
the manifest has the sum of the slots in use (`sum_slots`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Self, TypeAlias

import numpy as np

from ...encoding.encoder import Encoder
from ...encoding.placement import Placement, RowNumbers, slots_needed
from ...encoding.randomness import MIX, ODD, SHIFTS, Words, mix_bits, random_words
from ...errors import InvalidFile
from ...exact.arrays import Floats, Slots, cut, unique
from ...exact.moments import Moments
from ...saving import files
from ...saving.files import Location, VaultDir, VaultFile
from ...stores.bits import Bits
from ...stores.change import Change
from ...stores.store import Rows
from .manifest import RowSegment
from .spans import plan_spans

_MAX_SCALAR_SLOTS = 8  # up to so many slots, plain integers are faster than an array
_SLOT_STREAM = 1  # stream of random words from the seal; the checksums of rows use another


def sum_slots(slots: Slots, seal: bytes) -> int:
    """Return the sum modulo 2^64 of a keyed mix of each slot; slots must be distinct.

    It is a fingerprint of the file of bits that an erasure updates with one subtraction. A flipped bit adds or
    subtracts a number that looks random, so accidental damage changes the sum. It does not stop an attacker who can
    write to the folder: he can write the sum as well.
    """
    if len(slots) <= _MAX_SCALAR_SLOTS:
        return sum(_mix_slot(slot, int(_slot_key(seal))) for slot in slots.tolist()) % 2**64
    parts = (int(_mix_slots(slots[block], seal).sum(dtype=np.uint64)) for block in cut(len(slots), 1))
    return sum(parts) % 2**64


def _mix_slot(slot: int, key: int) -> int:
    """Return what `_mix_slots` returns, for one slot."""
    word = slot * int(ODD) + key
    for shift, odd in zip(SHIFTS, MIX, strict=False):
        word %= 2**64
        word = (word ^ (word >> int(shift))) * int(odd)
    word %= 2**64
    return word ^ (word >> int(SHIFTS[-1]))


def _mix_slots(slots: Slots, seal: bytes) -> Words:
    words: Words = mix_bits(slots.astype(np.uint64) * ODD + _slot_key(seal))
    return words


@cache
def _slot_key(seal: bytes) -> np.uint64:
    return np.uint64(random_words(np.frombuffer(seal, dtype="<u8").astype(np.uint64), _SLOT_STREAM, 0, 1)[0])


_MAX_MAPPED_FILES = 256  # each mapped file takes one of the mappings that a process may have


@dataclass(frozen=True, eq=False)
class RowLayout:
    """Which files hold the rows, and where each row is."""

    folder: VaultDir
    segments: tuple[RowSegment, ...]  # the files of rows, in order
    bits_name: str  # name of the file that says which slots have a row
    dealt: Placement
    inputs: int
    targets: int
    seal: bytes

    @property
    def slots(self) -> int:
        """The number of slots."""
        return slots_needed(self.dealt.drawn, self.dealt.shards)

    @property
    def entry_words(self) -> int:
        """The number of 64-bit words of an entry."""
        return entry_words(self.inputs, self.targets)

    @property
    def entry_bytes(self) -> int:
        """The size of an entry."""
        return 8 * self.entry_words

    @property
    def bits_bytes(self) -> int:
        """The size of the file of bits."""
        return -(-self.slots // 8)

    def segment_file(self, segment: int) -> VaultFile:
        """Return the file of a segment."""
        return self.folder / self.segments[segment].name


# Sums stripes in other processes: the moments of every learner after a change, or None if that is not worth it.
StripeSummer: TypeAlias = Callable[["RowFile", Encoder, range, Change | None], list[Moments] | None]


class RowFile(Rows):
    """Rows in files. Which slots have a row is in memory, as of the last commit, and in the file of bits."""

    live: Bits
    on_rows_read: Callable[[int], None] = staticmethod(lambda _: None)  # called with the rows that were read

    def __init__(self, layout: RowLayout, live: Bits, helpers: StripeSummer | None = None) -> None:
        self.helpers = helpers
        self.layout, self.width = layout, layout.inputs + layout.targets
        self._live_sum: int | None = None
        self._mapped_segments: dict[int, Words] = {}
        self._starts = np.cumsum([0, *(segment.count for segment in layout.segments)])
        super().__init__(np.empty((0, layout.inputs)), np.empty((0, layout.targets)), live)
        layout.folder.check_sizes({segment.name: segment.count * layout.entry_bytes for segment in layout.segments})

    @classmethod
    def open(cls, layout: RowLayout) -> Self:
        """Open the row files of a vault."""
        return cls(layout, read_bits(layout.folder / layout.bits_name, layout.slots))

    @property
    def bits_file(self) -> VaultFile:
        """The file that says which slots have a row."""
        return self.layout.folder / self.layout.bits_name

    @property
    def live_sum(self) -> int:
        """The sum of the slots in use; computed once, then updated with them."""
        if self._live_sum is None:
            pieces = cut(len(self.live), 1)
            parts = (sum_slots(piece.start + np.flatnonzero(self.live[piece]), self.layout.seal) for piece in pieces)
            self._live_sum = sum(parts) % 2**64
        return self._live_sum

    def set_live(self, slots: Slots, is_live: bool) -> None:
        """Set, in memory only, whether these slots have a row."""
        changed = unique(slots[self.live[slots] != is_live])
        total = self.live_sum + (1 if is_live else -1) * sum_slots(changed, self.layout.seal)
        self.live[slots] = is_live
        self._live_sum = total % 2**64

    def check_live(self, slots: Slots) -> None:
        """Refuse slots that have no row, or repeat: then their owners' entries are damaged."""
        inside = bool((slots < len(self.live)).all())
        if not inside or not self.live[slots].all() or len(unique(slots)) < len(slots):
            raise InvalidFile(
                f"{self.layout.folder} is damaged: entries of people point to slots without a row; nothing was changed"
            )

    # Reading

    def stripes_per_block(self, encoder: Encoder) -> int:
        return max(1, slots_needed(self.layout.dealt.block, encoder.code.shards) // encoder.code.shards)

    def sum_remotely(self, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        return None if self.helpers is None else self.helpers(self, encoder, stripes, change)

    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        return self.read_values(self.layout.dealt.rows(slots))

    def read_values(self, rows: RowNumbers) -> tuple[Floats, Floats]:
        """Return the inputs and targets of the rows with these numbers, checked: (k, d) and (k, t)."""
        table = self._read_checked(rows)
        self.on_rows_read(len(rows))
        values, d = table[:, :-2].view("<f8"), self.layout.inputs
        return values[:, :d], values[:, d:]

    def read_ranks(self, rows: RowNumbers) -> Words:
        """Return the ranks of the people of the rows with these numbers, checked: (k,)."""
        ranks: Words = self._read_checked(rows)[:, -2]
        return ranks

    def _read_checked(self, rows: RowNumbers) -> Words:
        table = self.read_entries(rows)
        if (row_checksums(rows, table[:, :-1], self.layout.seal) != table[:, -1]).any():
            raise InvalidFile(f"{self.locate_rows(rows)} is damaged: rows fail their checksum")
        return table

    def read_entries(self, rows: RowNumbers) -> Words:
        """Return the entries of rows as they are on disk: (k, d + t + 2)."""
        if len(self.layout.segments) == 1:
            return self._map_segment(0)[rows]
        table = np.empty((len(rows), self.layout.entry_words), dtype="<u8")
        segment = np.searchsorted(self._starts, rows, "right") - 1
        for k in np.flatnonzero(np.bincount(segment)).tolist():
            mask = segment == k
            table[mask] = self._map_segment(k)[rows[mask] - self._starts[k]]
        return table

    def _map_segment(self, segment: int) -> Words:
        table = self._mapped_segments.pop(segment, None)
        if table is None:
            count = self.layout.segments[segment].count
            data = files.map_file(self.layout.segment_file(segment), count * self.layout.entry_bytes)
            table = np.frombuffer(data, dtype="<u8").reshape(count, self.layout.entry_words)
        self._mapped_segments[segment] = table  # last: the most recently used
        while len(self._mapped_segments) > _MAX_MAPPED_FILES:
            self._mapped_segments.pop(next(iter(self._mapped_segments)), None)
        return table

    def locate_rows(self, rows: RowNumbers) -> VaultFile | VaultDir:
        """Return the file that holds these rows, or the folder if they are in several files."""
        segments = np.searchsorted(self._starts, rows, "right") - 1
        same = len(segments) and (segments == segments[0]).all()
        return self.layout.segment_file(int(segments[0])) if same else self.layout.folder

    @contextmanager
    def report_reads(self, on_rows_read: Callable[[int], None]) -> Iterator[None]:
        """Call ``on_rows_read`` with the number of rows after each read, for a progress bar."""
        self.on_rows_read = on_rows_read
        try:
            yield
        finally:
            del self.on_rows_read

    # Overwriting

    def write_rows(self, rows: RowNumbers, X: Floats, y: Floats, ranks: Words) -> None:
        """Overwrite the rows with these numbers, and sync."""
        self._overwrite(rows, pack_rows(rows, X, y, ranks, self.layout.seal))

    def set_live_from(self, first: int) -> None:
        """Mark the rows from number ``first`` on as live, except those that were left out, and sync the bits."""
        for piece in cut(self.layout.dealt.drawn - first, self.width):
            rows = np.arange(first + piece.start, first + piece.stop)
            self.set_live(self.layout.dealt.slots(rows[self.read_entries(rows)[:, -1] != 0]), True)
        start = first // self.layout.dealt.shards * self.layout.dealt.shards // 8  # before all their slots
        files.overwrite(self.bits_file, [(start, self.live.packed[start:].data)])

    def erase(self, rows: RowNumbers) -> None:
        """Overwrite the rows with these numbers with zeros, clear their slots' bits, and sync both."""
        slots = self.layout.dealt.slots(rows)
        self._overwrite(rows, np.zeros((len(rows), self.layout.entry_words), dtype=np.uint64))
        self.set_live(slots, False)
        places, packed = unique(slots // 8), self.live.packed[:, None]
        files.overwrite(self.bits_file, plan_spans(places, packed[places], packed))

    def _overwrite(self, rows: RowNumbers, table: Words) -> None:
        segment = np.searchsorted(self._starts, rows, "right") - 1
        for k in np.flatnonzero(np.bincount(segment)).tolist():
            mask = segment == k
            spans = plan_spans(rows[mask] - self._starts[k], table[mask], self._map_segment(k))
            files.overwrite(self.layout.segment_file(k), spans)

    # Growing and trimming

    def grow(self, slots: int) -> Self:
        raise NotImplementedError("a row file grows by a batch: use `with_batch`")

    def with_batch(self, dealt: Placement, segments: tuple[RowSegment, ...]) -> Self:
        """Return the same rows plus a batch whose entries are written; its slots have no rows yet."""
        layout = replace(self.layout, segments=segments, dealt=dealt)
        if layout.bits_bytes > self.layout.bits_bytes:
            files.resize(self.bits_file, layout.bits_bytes)
        grown = type(self)(layout, self.live.grow(layout.slots), self.helpers)
        grown._live_sum = self._live_sum
        return grown

    def trim(self) -> None:
        """Wipe and cut off everything beyond the last entry and the last bit."""
        sizes = self.file_sizes
        for name, actual in self.layout.folder.sizes(sizes).items():
            if actual > sizes[name]:
                files.resize(self.layout.folder / name, sizes[name])

    @property
    def file_sizes(self) -> dict[str, int]:
        """The size that each file must have."""
        sizes = {segment.name: segment.count * self.layout.entry_bytes for segment in self.layout.segments}
        return sizes | {self.layout.bits_name: self.layout.bits_bytes}


def read_bits(path: Location, slots: int) -> Bits:
    """Read which slots have a row. The spare bits of the last byte are never set."""
    size = -(-slots // 8)
    try:
        data = files.read(path, stop=size)
    except FileNotFoundError:
        raise InvalidFile(f"{path} is missing: the folder is incomplete") from None
    if len(data) < size or (slots % 8 and data[-1] & 0xFF >> slots % 8):
        raise InvalidFile(f"{path} is damaged, or cut short")
    return Bits(np.frombuffer(data, dtype=np.uint8).copy(), slots)


def entry_words(inputs: int, targets: int) -> int:
    """Return the number of 64-bit words of an entry: the values, a rank, and a checksum."""
    return inputs + targets + 2


def pack_rows(rows: RowNumbers, X: Floats, y: Floats, ranks: Words, seal: bytes) -> Words:
    """Return the entries of rows: (n, d + t + 2)."""
    table = np.empty((len(rows), entry_words(X.shape[1], y.shape[1])), dtype="<u8")
    values = table[:, :-2].view("<f8")
    values[:, : X.shape[1]], values[:, X.shape[1] :], table[:, -2] = X, y, ranks
    table[:, -1] = row_checksums(rows, table[:, :-1], seal)
    return table


def row_checksums(rows: RowNumbers, values: Words, seal: bytes) -> Words:
    """Return the checksum of each row, never zero: a sum modulo 2^64, with odd factors, of its number and its words."""
    factors = _checksum_factors(seal, values.shape[1])
    total: Words = values @ factors[1:] + rows.astype(np.uint64) * factors[0]
    return total | np.uint64(1)


@cache
def _checksum_factors(seal: bytes, width: int) -> Words:
    odd: Words = random_words(np.frombuffer(seal, dtype="<u8").astype(np.uint64), 0, 0, width + 1) | np.uint64(1)
    return odd
