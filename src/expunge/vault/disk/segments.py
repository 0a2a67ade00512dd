"""Segments: files of entries, each of which says by a keyed hash whose row is in which slot.

A segment is sorted by hash and never changes its length; the slot of an entry is overwritten in place. Every entry has
a checksum with the vault's seal in it: a flipped bit or a foreign file must not send an erasure to somebody else's row,
nor hide a row.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidFile
from ...exact import arrays
from ...exact.arrays import Slots
from ...saving import files
from .manifest import PeopleSegment
from .spans import plan_spans

Hashes: TypeAlias = NDArray[np.uint64]  # (n, 2)
Indices: TypeAlias = NDArray[np.intp]

TORN = -(2**63)  # the slot of an entry that a crash left half overwritten
_ENTRY_TYPE = np.dtype([("low", "<u8"), ("slot", "<i8"), ("check", "<u8")])
_MIX_FACTORS = tuple(np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))


class SegmentFile:
    """One file: the high words of the hashes, sorted, then what goes with each."""

    def __init__(self, path: Path, count: int, seal: bytes, part: int = 0, parts: int = 1) -> None:
        self.path, self.count, self._seal, self._part, self._parts = path, count, seal, part, parts
        data = files.map_file(path, self.size)
        self.high = np.frombuffer(data, dtype="<u8", count=count)
        self._entries = np.frombuffer(data, dtype=_ENTRY_TYPE, offset=8 * count)
        if len(self._entries) != count:
            raise InvalidFile(f"{path} has the wrong length")

    @property
    def manifest_entry(self) -> PeopleSegment:
        """The segment as a manifest names it."""
        return PeopleSegment(self.path.name, self.count, self._part, self._parts)

    @property
    def size(self) -> int:
        """The length of the file."""
        return self.count * (8 + _ENTRY_TYPE.itemsize)

    def entry_byte_range(self, place: int) -> tuple[int, int]:
        """The bytes of the file in which the slot of an entry is."""
        start = 8 * self.count + place * _ENTRY_TYPE.itemsize
        return start, start + _ENTRY_TYPE.itemsize

    def check_size(self) -> None:
        """Refuse a file that somebody cut since it was taken up."""
        files.check_size(self.path, self.size)

    def look_up(self, hashes: Hashes, *, torn: bool) -> tuple[Indices, Indices, Slots]:
        """Owner, place and slot of every entry of these hashes; with ``torn`` a bad checksum is no error."""
        if len(hashes) == 1:
            return self._look_up(hashes, torn=torn)
        order = np.argsort(hashes[:, 0])  # many are found in the order of the file, from one page to the next
        owner, place, slots = self._look_up(hashes[order], torn=torn)
        return order[owner], place, slots

    def _look_up(self, hashes: Hashes, *, torn: bool) -> tuple[Indices, Indices, Slots]:
        low, high = self.high.searchsorted(hashes[:, 0], "left"), self.high.searchsorted(hashes[:, 0], "right")
        if not torn:
            # A corrupt word that misled the search is next to the result: a search ends where the last words that it
            # looked at, smaller and not smaller, are neighbours. Check both, before spans are taken for lengths.
            edges = np.concatenate([low - 1, high])
            self._read_checked(edges[(edges >= 0) & (edges < self.count)])
        spans = high - low
        owner = np.repeat(np.arange(len(hashes)), spans)
        place = np.arange(len(owner)) + np.repeat(low - (np.cumsum(spans) - spans), spans)
        entries = self._entries[place] if torn else self._read_checked(place)
        slots = entries["slot"].astype(np.int64)
        if torn:
            slots = np.where(self._are_intact(place), slots, TORN)
        same = entries["low"] == hashes[owner, 1]
        return owner[same], place[same], slots[same]

    def find_covered(self, hashes: Hashes) -> Indices | None:
        """Which of these hashes can be here: those in its range. None means all."""
        if self._parts == 1:
            return None
        low, high = _part_bounds(self._part, self._parts)
        return np.flatnonzero((hashes[:, 0] >= low) & (hashes[:, 0] <= high))

    def read_part(self, part: int, parts: int) -> tuple[Hashes, Slots]:
        """The entries in one of so many equal ranges of hashes, checked."""
        some = slice_part(self.high, part, parts)
        entries = self._read_checked(some)
        return np.column_stack([self.high[some], entries["low"]]), entries["slot"].astype(np.int64)

    def read_slots(self) -> Slots:
        """The slots of all entries, checked."""
        slots: Slots = self._read_checked()["slot"].astype(np.int64)
        return slots

    def read_hashes(self) -> Hashes:
        """The hashes of all entries, checked."""
        return np.column_stack([self.high, self._read_checked()["low"]])

    def overwrite(self, place: Indices, slots: Slots) -> None:
        """Put these slots into these entries, and sync."""
        files.overwrite(self.path, self._plan_overwrite(place, slots))

    def _plan_overwrite(self, place: Indices, slots: Slots) -> Iterator[tuple[int, files.Data]]:
        entries = self._entries[place]
        entries["slot"] = slots
        entries["check"] = _compute_checks(self.high[place], entries["low"], entries["slot"], self._seal)
        return plan_spans(place, entries, self._entries, 8 * self.count)

    def _read_checked(self, place: Any = slice(None)) -> NDArray[Any]:
        if not self._are_intact(place).all():
            raise InvalidFile(f"{self.path} is damaged: entries fail their checksum")
        entries: NDArray[Any] = self._entries[place]
        return entries

    def _are_intact(self, place: Any) -> NDArray[np.bool_]:
        entries = self._entries[place]
        check = _compute_checks(self.high[place], entries["low"], entries["slot"], self._seal)
        fits: NDArray[np.bool_] = check == entries["check"]
        return fits


def segment_bytes(hashes: Hashes, slots: Slots, seal: bytes) -> tuple[memoryview, memoryview]:
    """The content of a new segment."""
    order = np.argsort(hashes[:, 0], kind="stable")  # stable: an id's earlier rows stay first
    high = hashes[order, 0].astype("<u8")
    entries = np.empty(len(order), dtype=_ENTRY_TYPE)
    entries["low"], entries["slot"] = hashes[order, 1], slots[order]
    entries["check"] = _compute_checks(high, entries["low"], entries["slot"], seal)
    return high.data, entries.view(np.uint8).data


def _part_bounds(part: int, parts: int) -> tuple[np.uint64, np.uint64]:
    """The least and the largest first word of a hash in one of so many equal ranges."""
    return np.uint64(-(-part * 2**64 // parts)), np.uint64(-(-(part + 1) * 2**64 // parts) - 1)


def slice_part(high: Hashes, part: int, parts: int) -> slice:
    """Where, among sorted first words, those in one of so many equal ranges are."""
    low, top = _part_bounds(part, parts)
    return slice(int(high.searchsorted(low, "left")), int(high.searchsorted(top, "right")))


def count_distinct_ids(hashes: Hashes) -> int:
    """How many different ids these hashes are of."""
    return len(arrays.unique(_mix_words(hashes)))


def ids_among(hashes: Hashes, others: Hashes) -> NDArray[np.bool_]:
    """Which of these hashes are among others."""
    return arrays.isin(_mix_words(hashes), _mix_words(others))


def _mix_words(hashes: Hashes) -> NDArray[np.uint64]:
    """64 of 128 bits: two ids agree once in billions of billions."""
    mixed: NDArray[np.uint64] = hashes[:, 0] * _MIX_FACTORS[0] + hashes[:, 1]
    return mixed


def _compute_checks(high: Hashes, low: Hashes, slot: Slots, seal: bytes) -> NDArray[np.uint64]:
    """A sum modulo 2^64 with odd factors: it changes with any single bit."""
    total: NDArray[np.uint64] = (
        high * _MIX_FACTORS[0] + low * _MIX_FACTORS[1] + (slot.astype(np.uint64) + np.uint64(1)) * _MIX_FACTORS[2]
    )
    return total + np.frombuffer(seal, dtype="<u8", count=1).astype(np.uint64)
