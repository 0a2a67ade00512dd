"""People: whose rows are where, by keyed hashes of their ids.

Ids themselves are never stored. Each batch of rows brings a segment: a file with one entry per row, which says, by a
keyed hash, whose row is in which slot. A segment is sorted by hash and never changes its length. The entry of an erased
row stays as a tombstone: its slot is overwritten with the number of the request that erased it, so that a repeated
request gets the same answer and the id cannot return unnoticed. Every entry has a checksum that includes the vault's
seal: a flipped bit, or a file of another vault, must neither direct an erasure to another person's row nor hide a row.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidFile
from ...exact.arrays import Slots, isin, unique
from ...saving import files
from ...saving.files import VaultFile
from .manifest import PeopleSegment
from .spans import plan_spans

Hashes: TypeAlias = NDArray[np.uint64]  # (n, 2)
Indices: TypeAlias = NDArray[np.intp]

TORN = -(2**63)  # the slot of an entry that a crash left half overwritten
_ENTRY_TYPE = np.dtype([("low", "<u8"), ("slot", "<i8"), ("check", "<u8")])
_MIX_FACTORS = tuple(np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
RequestNumbers = TypeVar("RequestNumbers", int, Slots)

NOBODY = -1  # the slot of an entry that has no meaning any more
_NO_SLOTS = np.empty(0, dtype=np.int64)
_NO_HASHES = np.empty((0, 2), dtype=np.uint64)


def hash_ids(key: bytes, ids: Sequence[bytes]) -> Hashes:
    """Return the keyed 128-bit hash of each id: (n, 2)."""
    copy_state, digests = hashlib.blake2b(key=key, digest_size=16).copy, []
    for text in ids:
        state = copy_state()  # cheaper than keying a new state for each id
        state.update(text)
        digests.append(state.digest())
    return hashes_from_bytes(digests)


def hashes_to_bytes(hashes: Hashes) -> list[bytes]:
    """Return hashes as 16 bytes each, for sets and dictionaries."""
    data = hashes.astype("<u8").tobytes()
    return [data[k : k + 16] for k in range(0, len(data), 16)]


def hashes_from_bytes(hashes: Iterable[bytes]) -> Hashes:
    """Return hashes from their bytes: the inverse of `hashes_to_bytes`."""
    return np.frombuffer(b"".join(hashes), dtype="<u8").astype(np.uint64).reshape(-1, 2)


def hashes_to_hex(hashes: Hashes) -> list[str]:
    """Return hashes as hexadecimal text, for the ledger."""
    return [data.hex() for data in hashes_to_bytes(hashes)]


def hashes_from_hex(texts: Iterable[str]) -> Hashes:
    """Return hashes from hexadecimal text: the inverse of `hashes_to_hex`."""
    return hashes_from_bytes([bytes.fromhex("".join(texts))])


def encode_tombstone(request: RequestNumbers) -> RequestNumbers:
    """Return the tombstone of a request, or the request of a tombstone: the function is its own inverse."""
    return -1 - request


@dataclass(frozen=True, eq=False)
class PeopleEntries:
    """Entries that were looked up; those of one id are in the order in which its rows came."""

    owner: NDArray[np.intp]  # (k,) index of the hash that was looked up
    segment: NDArray[np.intp]  # (k,) index of the segment
    place: NDArray[np.intp]  # (k,) index in the segment
    slot: Slots  # (k,) slot of a row, `NOBODY`, or a tombstone

    def select(self, mask: NDArray[np.bool_]) -> "PeopleEntries":
        """Return the entries where the mask is true."""
        return PeopleEntries(self.owner[mask], self.segment[mask], self.place[mask], self.slot[mask])

    @property
    def live(self) -> "PeopleEntries":
        """The entries of existing rows."""
        return self.select(self.slot >= 0)

    @property
    def tombstones(self) -> "PeopleEntries":
        """The entries that are tombstones."""
        return self.select((self.slot < NOBODY) & (self.slot != TORN))

    @property
    def torn(self) -> NDArray[np.bool_]:
        """Mask of the entries that a crash left half overwritten."""
        torn: NDArray[np.bool_] = self.slot == TORN
        return torn


class SegmentFile:
    """One file: the sorted high words of the hashes, then the rest of each entry."""

    def __init__(self, file: VaultFile, count: int, seal: bytes, part: int = 0, parts: int = 1) -> None:
        self.file, self.count, self._seal, self._part, self._parts = file, count, seal, part, parts
        data = files.map_file(file, self.size)
        self.high = np.frombuffer(data, dtype="<u8", count=count)
        self._entries = np.frombuffer(data, dtype=_ENTRY_TYPE, offset=8 * count)
        if len(self._entries) != count:
            raise InvalidFile(f"{file} has the wrong length")

    @property
    def manifest_entry(self) -> PeopleSegment:
        """The segment as it is listed in a manifest."""
        return PeopleSegment(self.file.name, self.count, self._part, self._parts)

    @property
    def size(self) -> int:
        """The size of the file."""
        return self.count * (8 + _ENTRY_TYPE.itemsize)

    def entry_byte_range(self, place: int) -> tuple[int, int]:
        """Return where in the file an entry's slot is: the first byte, and the one after the last."""
        start = 8 * self.count + place * _ENTRY_TYPE.itemsize
        return start, start + _ENTRY_TYPE.itemsize

    def look_up(self, hashes: Hashes, *, torn: bool) -> tuple[Indices, Indices, Slots]:
        """Return owner, place and slot of every entry of these hashes; with ``torn`` a bad checksum is not an error."""
        chosen = np.arange(len(hashes))
        if self._parts > 1:
            first, last = _part_bounds(self._part, self._parts)
            chosen = np.flatnonzero((hashes[:, 0] >= first) & (hashes[:, 0] <= last))
        if len(chosen) > 1:  # many are looked up in the order of the file, page by page
            chosen = chosen[np.argsort(hashes[chosen, 0])]
        hashes = hashes[chosen]
        low, high = self.high.searchsorted(hashes[:, 0], "left"), self.high.searchsorted(hashes[:, 0], "right")
        if not torn:
            # A corrupt word that misled the search is next to its result: a search ends where the last smaller and the
            # last not smaller word that it compared are neighbours. Check both before using spans as lengths.
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
        return chosen[owner[same]], place[same], slots[same]

    def read_part(self, part: int, parts: int) -> tuple[Hashes, Slots]:
        """Return the entries in one of ``parts`` equal ranges of hashes, checked."""
        span = slice_part(self.high, part, parts)
        entries = self._read_checked(span)
        return np.column_stack([self.high[span], entries["low"]]), entries["slot"].astype(np.int64)

    def read_slots(self) -> Slots:
        """Return the slots of all entries, checked."""
        slots: Slots = self._read_checked()["slot"].astype(np.int64)
        return slots

    def read_hashes(self) -> Hashes:
        """Return the hashes of all entries, checked."""
        return np.column_stack([self.high, self._read_checked()["low"]])

    def overwrite(self, place: Indices, slots: Slots) -> None:
        """Write these slots into these entries, and sync."""
        entries = self._entries[place]
        entries["slot"] = slots
        entries["check"] = _compute_checks(self.high[place], entries["low"], entries["slot"], self._seal)
        files.overwrite(self.file, plan_spans(place, entries, self._entries, 8 * self.count))

    def _read_checked(self, place: Any = slice(None)) -> NDArray[Any]:
        if not self._are_intact(place).all():
            raise InvalidFile(f"{self.file} is damaged: entries fail their checksum")
        entries: NDArray[Any] = self._entries[place]
        return entries

    def _are_intact(self, place: Any) -> NDArray[np.bool_]:
        entries = self._entries[place]
        check = _compute_checks(self.high[place], entries["low"], entries["slot"], self._seal)
        fits: NDArray[np.bool_] = check == entries["check"]
        return fits


def segment_bytes(hashes: Hashes, slots: Slots, seal: bytes) -> tuple[memoryview, memoryview]:
    """Return the content of a new segment."""
    order = np.argsort(hashes[:, 0], kind="stable")  # stable: an id's earlier rows stay first
    high = hashes[order, 0].astype("<u8")
    entries = np.empty(len(order), dtype=_ENTRY_TYPE)
    entries["low"], entries["slot"] = hashes[order, 1], slots[order]
    entries["check"] = _compute_checks(high, entries["low"], entries["slot"], seal)
    return high.data, entries.view(np.uint8).data


def _part_bounds(part: int, parts: int) -> tuple[np.uint64, np.uint64]:
    """Return the smallest and the largest first word of a hash in one of ``parts`` equal ranges."""
    return np.uint64(-(-part * 2**64 // parts)), np.uint64(-(-(part + 1) * 2**64 // parts) - 1)


def slice_part(high: Hashes, part: int, parts: int) -> slice:
    """Return the slice of sorted first words that is in one of ``parts`` equal ranges."""
    low, top = _part_bounds(part, parts)
    return slice(int(high.searchsorted(low, "left")), int(high.searchsorted(top, "right")))


def count_distinct_ids(hashes: Hashes) -> int:
    """Return the number of different ids among these hashes."""
    return len(unique(_mix_words(hashes)))


def ids_among(hashes: Hashes, others: Hashes) -> NDArray[np.bool_]:
    """Return the mask of the hashes that are among ``others``."""
    return isin(_mix_words(hashes), _mix_words(others))


def _mix_words(hashes: Hashes) -> NDArray[np.uint64]:
    """Mix 128 bits into 64: two given ids collide with probability 2^-64."""
    mixed: NDArray[np.uint64] = hashes[:, 0] * _MIX_FACTORS[0] + hashes[:, 1]
    return mixed


def _compute_checks(high: Hashes, low: Hashes, slot: Slots, seal: bytes) -> NDArray[np.uint64]:
    """Return a sum modulo 2^64 with odd factors, which any single flipped bit changes."""
    total: NDArray[np.uint64] = (
        high * _MIX_FACTORS[0] + low * _MIX_FACTORS[1] + (slot.astype(np.uint64) + np.uint64(1)) * _MIX_FACTORS[2]
    )
    return total + np.frombuffer(seal, dtype="<u8", count=1).astype(np.uint64)


class People:
    """All segments of a vault, in order of arrival."""

    def __init__(self, segments: Sequence[SegmentFile]) -> None:
        self.segments = tuple(segments)

    def find(self, hashes: Hashes, *, torn: bool = False) -> PeopleEntries:
        """Return all entries of these hashes; with ``torn`` also half-overwritten ones, to overwrite them again."""
        parts = [segment.look_up(hashes, torn=torn) for segment in self.segments]
        owner, place, slot = (np.concatenate([_NO_SLOTS, *(part[k] for part in parts)]) for k in range(3))
        segment = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
        order = np.argsort(owner, kind="stable")
        return PeopleEntries(owner[order], segment[order], place[order], slot[order])

    # Entries that are already overwritten are written again: after a failed sync they can be read but are not durable.

    def bury(self, hashes: Hashes, requests: Slots, erased: Slots) -> None:
        """Overwrite the entries of erased rows with tombstones of these requests, one per hash, and sync."""
        entries = self.find(hashes, torn=True)
        tombstones = encode_tombstone(requests[entries.owner])
        mask = isin(entries.slot, erased) | (entries.slot == tombstones) | entries.torn
        self._overwrite(entries.select(mask), tombstones[mask])

    def drop_entries(self, hashes: Hashes, erased: Slots) -> None:
        """Clear the entries of erased rows, whose owners may return, and sync."""
        entries = self.find(hashes, torn=True)
        entries = entries.select(isin(entries.slot, erased) | (entries.slot == NOBODY) | entries.torn)
        self._overwrite(entries, np.full(len(entries.slot), NOBODY))

    def drop_tombstones(self, hashes: Hashes, until: int, spared: Slots | None = None) -> None:
        """Clear the tombstones of these ids by requests up to ``until``, except one ``spared`` per hash, and sync."""
        entries = self.find(hashes, torn=True)
        mask = (entries.slot >= encode_tombstone(until)) & (entries.slot <= NOBODY)
        if spared is not None:
            mask &= entries.slot != encode_tombstone(spared)[entries.owner]
        entries = entries.select(mask | entries.torn)
        self._overwrite(entries, np.full(len(entries.slot), NOBODY))

    def _overwrite(self, entries: PeopleEntries, slots: Slots) -> None:
        for k in unique(entries.segment).tolist():
            mask = entries.segment == k
            self.segments[k].overwrite(entries.place[mask], slots[mask])

    def find_owners(self, slots: Slots) -> Hashes:
        """Return the hashes of the ids whose rows are in these slots."""
        owners = [segment.read_hashes()[isin(segment.read_slots(), slots)] for segment in self.segments]
        return np.concatenate([_NO_HASHES, *owners])

    def count_known(self, hashes: Hashes) -> int:
        """Return how many different ids among these hashes have rows."""
        if not self.segments or not len(hashes):
            return 0
        return count_distinct_ids(hashes[self.find(hashes).live.owner])

    def read_part(self, part: int, parts: int) -> tuple[Hashes, Slots]:
        """Return all entries in one of ``parts`` equal ranges of hashes; those of one id are in order of arrival."""
        entries = [segment.read_part(part, parts) for segment in self.segments]
        hashes = np.concatenate([_NO_HASHES, *(hashes for hashes, _ in entries)])
        return hashes, np.concatenate([_NO_SLOTS, *(slots for _, slots in entries)])

    def read_entries(self) -> tuple[Hashes, Slots]:
        """Return the hashes and slots of all entries."""
        hashes = np.concatenate([_NO_HASHES, *(segment.read_hashes() for segment in self.segments)])
        return hashes, np.concatenate([_NO_SLOTS, *(segment.read_slots() for segment in self.segments)])
