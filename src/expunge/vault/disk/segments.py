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
from .manifest import Owners
from .spans import spans

Hashes: TypeAlias = NDArray[np.uint64]  # (n, 2)
Indices: TypeAlias = NDArray[np.intp]

TORN = -(2**63)  # the slot of an entry that a crash left half overwritten
_ENTRY = np.dtype([("low", "<u8"), ("slot", "<i8"), ("check", "<u8")])
_MIX = tuple(np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))


class Segment:
    """One file: the high words of the hashes, sorted, then what goes with each."""

    def __init__(self, path: Path, count: int, seal: bytes, part: int = 0, parts: int = 1) -> None:
        self.path, self.count, self._seal, self._part, self._parts = path, count, seal, part, parts
        data = files.mapped(path, self.size)
        self.high = np.frombuffer(data, dtype="<u8", count=count)
        self._entries = np.frombuffer(data, dtype=_ENTRY, offset=8 * count)
        if len(self._entries) != count:
            raise InvalidFile(f"{path} has the wrong length")

    @property
    def owners(self) -> Owners:
        """The segment as a manifest names it."""
        return Owners(self.path.name, self.count, self._part, self._parts)

    @property
    def size(self) -> int:
        """The length of the file."""
        return self.count * (8 + _ENTRY.itemsize)

    def range_of_entry(self, place: int) -> tuple[int, int]:
        """The bytes of the file in which the slot of an entry is."""
        start = 8 * self.count + place * _ENTRY.itemsize
        return start, start + _ENTRY.itemsize

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
            self._checked(edges[(edges >= 0) & (edges < self.count)])
        spans = high - low
        owner = np.repeat(np.arange(len(hashes)), spans)
        place = np.arange(len(owner)) + np.repeat(low - (np.cumsum(spans) - spans), spans)
        entries = self._entries[place] if torn else self._checked(place)
        slots = entries["slot"].astype(np.int64)
        if torn:
            slots = np.where(self._fits(place), slots, TORN)
        same = entries["low"] == hashes[owner, 1]
        return owner[same], place[same], slots[same]

    def covered(self, hashes: Hashes) -> Indices | None:
        """Which of these hashes can be here: those in its range. None means all."""
        if self._parts == 1:
            return None
        low, high = _ends(self._part, self._parts)
        return np.flatnonzero((hashes[:, 0] >= low) & (hashes[:, 0] <= high))

    def part(self, part: int, parts: int) -> tuple[Hashes, Slots]:
        """The entries in one of so many equal ranges of hashes, checked."""
        some = range_of(self.high, part, parts)
        entries = self._checked(some)
        return np.column_stack([self.high[some], entries["low"]]), entries["slot"].astype(np.int64)

    def slots(self) -> Slots:
        """The slots of all entries, checked."""
        slots: Slots = self._checked()["slot"].astype(np.int64)
        return slots

    def hashes(self) -> Hashes:
        """The hashes of all entries, checked."""
        return np.column_stack([self.high, self._checked()["low"]])

    def overwrite(self, place: Indices, slots: Slots) -> None:
        """Put these slots into these entries, and sync."""
        files.overwrite(self.path, self._rewritten(place, slots))

    def _rewritten(self, place: Indices, slots: Slots) -> Iterator[tuple[int, files.Data]]:
        entries = self._entries[place]
        entries["slot"] = slots
        entries["check"] = _check(self.high[place], entries["low"], entries["slot"], self._seal)
        return spans(place, entries, self._entries, 8 * self.count)

    def _checked(self, place: Any = slice(None)) -> NDArray[Any]:
        if not self._fits(place).all():
            raise InvalidFile(f"{self.path} is damaged: entries fail their checksum")
        entries: NDArray[Any] = self._entries[place]
        return entries

    def _fits(self, place: Any) -> NDArray[np.bool_]:
        entries = self._entries[place]
        check = _check(self.high[place], entries["low"], entries["slot"], self._seal)
        fits: NDArray[np.bool_] = check == entries["check"]
        return fits


def segment_bytes(hashes: Hashes, slots: Slots, seal: bytes) -> tuple[memoryview, memoryview]:
    """The content of a new segment."""
    order = np.argsort(hashes[:, 0], kind="stable")  # stable: an id's earlier rows stay first
    high = hashes[order, 0].astype("<u8")
    entries = np.empty(len(order), dtype=_ENTRY)
    entries["low"], entries["slot"] = hashes[order, 1], slots[order]
    entries["check"] = _check(high, entries["low"], entries["slot"], seal)
    return high.data, entries.view(np.uint8).data


def _ends(part: int, parts: int) -> tuple[np.uint64, np.uint64]:
    """The least and the largest first word of a hash in one of so many equal ranges."""
    return np.uint64(-(-part * 2**64 // parts)), np.uint64(-(-(part + 1) * 2**64 // parts) - 1)


def range_of(high: Hashes, part: int, parts: int) -> slice:
    """Where, among sorted first words, those in one of so many equal ranges are."""
    low, top = _ends(part, parts)
    return slice(int(high.searchsorted(low, "left")), int(high.searchsorted(top, "right")))


def distinct_ids(hashes: Hashes) -> int:
    """How many different ids these hashes are of."""
    return len(arrays.distinct(_mixed(hashes)))


def ids_among(hashes: Hashes, others: Hashes) -> NDArray[np.bool_]:
    """Which of these hashes are among others."""
    return arrays.among(_mixed(hashes), _mixed(others))


def _mixed(hashes: Hashes) -> NDArray[np.uint64]:
    """64 of 128 bits: two ids agree once in billions of billions."""
    mixed: NDArray[np.uint64] = hashes[:, 0] * _MIX[0] + hashes[:, 1]
    return mixed


def _check(high: Hashes, low: Hashes, slot: Slots, seal: bytes) -> NDArray[np.uint64]:
    """A sum modulo 2^64 with odd factors: it changes with any single bit."""
    total: NDArray[np.uint64] = high * _MIX[0] + low * _MIX[1] + (slot.astype(np.uint64) + np.uint64(1)) * _MIX[2]
    return total + np.frombuffer(seal, dtype="<u8", count=1).astype(np.uint64)
