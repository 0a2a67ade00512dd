"""People: whose rows are where, by keyed hashes of their ids.

An id itself is never kept. Each batch of rows brings a segment with one entry per row. The entry of an erased row stays
as a tombstone: its slot is overwritten by the number of the request that erased it, so that asking again finds the same
answer and the id cannot come back unnoticed.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...exact.arrays import Slots, isin, unique
from .segments import TORN, Hashes, SegmentFile, count_distinct_ids

RequestNumbers = TypeVar("RequestNumbers", int, Slots)

NOBODY = -1  # the slot of an entry that means nothing any more
_NO_SLOTS = np.empty(0, dtype=np.int64)


def hash_ids(key: bytes, ids: Sequence[bytes]) -> Hashes:
    """The keyed hash of each id, 128 bits: (n, 2)."""
    fresh = hashlib.blake2b(key=key, digest_size=16).copy

    def one(text: bytes) -> bytes:
        state = fresh()  # copying a keyed state is cheaper than keying a new one
        state.update(text)
        return state.digest()

    return hashes_from_bytes(map(one, ids))


def hashes_to_bytes(hashes: Hashes) -> list[bytes]:
    """Hashes as 16 bytes each, for sets and dictionaries."""
    data = hashes.astype("<u8").tobytes()
    return [data[k : k + 16] for k in range(0, len(data), 16)]


def hashes_from_bytes(hashes: Iterable[bytes]) -> Hashes:
    """The inverse of `as_bytes`."""
    return np.frombuffer(b"".join(hashes), dtype="<u8").astype(np.uint64).reshape(-1, 2)


def hashes_to_hex(hashes: Hashes) -> list[str]:
    """Hashes as hexadecimal text, for the ledger."""
    return [one.hex() for one in hashes_to_bytes(hashes)]


def hashes_from_hex(texts: Iterable[str]) -> Hashes:
    """The inverse of `as_text`."""
    return hashes_from_bytes([bytes.fromhex("".join(texts))])


def encode_tombstone(request: RequestNumbers) -> RequestNumbers:
    """Encode the number of a request as a tombstone; its own inverse."""
    return -1 - request


@dataclass(frozen=True, eq=False)
class PeopleEntries:
    """Entries that were found, those of one id in the order in which its rows came."""

    owner: NDArray[np.intp]  # (k,) which of the hashes asked for
    segment: NDArray[np.intp]  # (k,) among the segments
    place: NDArray[np.intp]  # (k,) in the segment
    slot: Slots  # (k,) a row's slot, `NOBODY`, or a tombstone

    def select(self, mask: NDArray[np.bool_]) -> "PeopleEntries":
        """The entries for which the mask holds."""
        return PeopleEntries(self.owner[mask], self.segment[mask], self.place[mask], self.slot[mask])

    @property
    def live(self) -> "PeopleEntries":
        """The entries of rows that are there."""
        return self.select(self.slot >= 0)

    @property
    def tombstones(self) -> "PeopleEntries":
        """The tombstones."""
        return self.select((self.slot < NOBODY) & (self.slot != TORN))

    @property
    def torn(self) -> NDArray[np.bool_]:
        """Which entries a crash left half overwritten."""
        torn: NDArray[np.bool_] = self.slot == TORN
        return torn


class People:
    """All segments of a vault, in the order in which they came."""

    def __init__(self, segments: Sequence[SegmentFile]) -> None:
        self.segments = tuple(segments)

    def find(self, hashes: Hashes, *, torn: bool = False) -> PeopleEntries:
        """All entries of these hashes. Only who overwrites them again may want those that are torn."""
        found = [_look_up_in_segment(segment, hashes, torn) for segment in self.segments]
        owner, place, slot = (np.concatenate([_NO_SLOTS, *(part[k] for part in found)]) for k in range(3))
        segment = np.repeat(np.arange(len(found)), [len(part[0]) for part in found])
        order = np.argsort(owner, kind="stable")
        return PeopleEntries(owner[order], segment[order], place[order], slot[order])

    # What is overwritten already is written again: it can be read back, but if a sync failed it is not on the disk.

    def bury(self, hashes: Hashes, requests: Slots, erased: Slots) -> None:
        """Put tombstones of these requests, one per hash, over the entries of erased rows; and sync."""
        entries = self.find(hashes, torn=True)
        tombs = encode_tombstone(requests[entries.owner])
        those = isin(entries.slot, erased) | (entries.slot == tombs) | entries.torn
        self._overwrite(entries.select(those), tombs[those])

    def drop_entries(self, hashes: Hashes, erased: Slots) -> None:
        """Forget the entries of erased rows: their owners may come again; and sync."""
        entries = self.find(hashes, torn=True)
        entries = entries.select(isin(entries.slot, erased) | (entries.slot == NOBODY) | entries.torn)
        self._overwrite(entries, np.full(len(entries.slot), NOBODY))

    def drop_tombstones(self, hashes: Hashes, until: int, spared: Slots | None = None) -> None:
        """Forget the tombstones of these ids that requests up to ``until`` set, but for one per hash; and sync."""
        entries = self.find(hashes, torn=True)
        those = (entries.slot >= encode_tombstone(until)) & (entries.slot <= NOBODY)
        if spared is not None:
            those &= entries.slot != encode_tombstone(spared)[entries.owner]
        entries = entries.select(those | entries.torn)
        self._overwrite(entries, np.full(len(entries.slot), NOBODY))

    def _overwrite(self, entries: PeopleEntries, slots: Slots) -> None:
        for k in unique(entries.segment).tolist():
            mine = entries.segment == k
            self.segments[k].overwrite(entries.place[mine], slots[mine])

    def find_owners(self, slots: Slots) -> Hashes:
        """The hashes of the ids whose rows are in these slots."""
        none = np.empty((0, 2), dtype=np.uint64)
        return np.concatenate(
            [none, *(segment.read_hashes()[isin(segment.read_slots(), slots)] for segment in self.segments)]
        )

    def count_known(self, hashes: Hashes) -> int:
        """How many different ids of these have rows."""
        if not self.segments or not len(hashes):
            return 0
        return count_distinct_ids(hashes[self.find(hashes).live.owner])

    def read_part(self, part: int, parts: int) -> tuple[Hashes, Slots]:
        """All entries in one of so many equal ranges of hashes, those of one id in the order in which they came."""
        found = [segment.read_part(part, parts) for segment in self.segments]
        hashes = np.concatenate([np.empty((0, 2), dtype=np.uint64), *(hashes for hashes, _ in found)])
        return hashes, np.concatenate([_NO_SLOTS, *(slots for _, slots in found)])

    def read_entries(self) -> tuple[Hashes, Slots]:
        """The hashes and slots of all entries."""
        hashes = [np.empty((0, 2), dtype=np.uint64), *(segment.read_hashes() for segment in self.segments)]
        return np.concatenate(hashes), np.concatenate([_NO_SLOTS, *(segment.read_slots() for segment in self.segments)])


def _look_up_in_segment(
    segment: SegmentFile, hashes: Hashes, torn: bool
) -> tuple[NDArray[np.intp], NDArray[np.intp], Slots]:
    """Owner, place and slot of the entries of these hashes in a segment; only those in its range are looked for."""
    some = segment.find_covered(hashes)
    if some is None:
        return segment.look_up(hashes, torn=torn)
    owner, place, slot = segment.look_up(hashes[some], torn=torn)
    return some[owner], place, slot
