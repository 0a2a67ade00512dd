"""People: whose rows are where, by keyed hashes of their ids.

Ids themselves are never stored. Each batch of rows brings a segment with one entry per row. The entry of an erased row
stays as a tombstone: its slot is overwritten with the number of the request that erased it, so that a repeated request
gets the same answer and the id cannot return unnoticed.
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
