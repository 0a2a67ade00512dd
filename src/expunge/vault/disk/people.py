"""People: whose rows are where, by keyed hashes of their ids.

An id itself is never kept. A segment is a file of entries sorted by hash, one entry a row; each batch of rows brings
one. The entry of an erased row stays as a tombstone: its slot is overwritten by the number of the request that erased
it, so that asking again finds the same answer and the id cannot come back unnoticed. Every entry has a checksum, with
the vault's seal in it: a flipped bit or a foreign file must not send an erasure to somebody else's row, nor hide a row.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidFile
from ...exact.arrays import Slots
from . import files

Hashes: TypeAlias = NDArray[np.uint64]  # (n, 2)
Number = TypeVar("Number", int, Slots)

NOBODY = -1  # the slot of an entry that means nothing any more
TORN = -(2**63)  # the slot of an entry that a crash left half overwritten
_RECORD = np.dtype([("low", "<u8"), ("slot", "<i8"), ("check", "<u8")])
_MIX = tuple(np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
MOST_SEGMENTS = 16
_NONE = np.empty(0, dtype=np.int64)


def hashed(key: bytes, ids: Sequence[bytes]) -> Hashes:
    """The keyed hash of each id, 128 bits."""
    fresh = hashlib.blake2b(key=key, digest_size=16).copy

    def one(text: bytes) -> bytes:
        state = fresh()  # copying a keyed state is cheaper than keying a new one
        state.update(text)
        return state.digest()

    return np.frombuffer(b"".join(map(one, ids)), dtype="<u8").astype(np.uint64).reshape(-1, 2)


def distinct(hashes: Hashes) -> int:
    """How many different ones there are."""
    pairs = hashes[:, 0] * _MIX[0] + hashes[:, 1]  # 64 of 128 bits: two ids agree once in billions of billions
    return len(np.unique(pairs))


def as_text(hashes: Hashes) -> list[str]:
    """Hashes as hexadecimal text, for the ledger."""
    return [bytes(row).hex() for row in hashes.astype("<u8")]


def from_text(texts: Iterable[str]) -> Hashes:
    """The inverse of `as_text`."""
    return np.frombuffer(bytes.fromhex("".join(texts)), dtype="<u8").astype(np.uint64).reshape(-1, 2)


def tombstone(request: Number) -> Number:
    """What stands in place of a slot that this request erased; also the way back."""
    return -1 - request


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries that were found, those of one id in the order in which its rows came."""

    owner: NDArray[np.intp]  # (k,) which of the hashes asked for
    segment: NDArray[np.intp]  # (k,) among the segments
    place: NDArray[np.intp]  # (k,) in the segment
    slot: Slots  # (k,) a row's slot, `NOBODY`, or a tombstone

    def where(self, mask: NDArray[np.bool_]) -> "Entries":
        """Some of them."""
        return Entries(self.owner[mask], self.segment[mask], self.place[mask], self.slot[mask])

    @property
    def live(self) -> "Entries":
        """Those of rows there are."""
        return self.where(self.slot >= 0)

    @property
    def buried(self) -> "Entries":
        """The tombstones."""
        return self.where(self.slot < NOBODY)

    @property
    def torn(self) -> NDArray[np.bool_]:
        """Which of them are neither what they were nor what they should be."""
        torn: NDArray[np.bool_] = self.slot == TORN
        return torn


class Segment:
    """One file: the high words of the hashes, sorted, then what goes with each."""

    def __init__(self, path: Path, count: int, seal: bytes) -> None:
        self.path, self.count, self._seal = path, count, seal
        data = files.mapped(path, count * (8 + _RECORD.itemsize))
        self.high = np.frombuffer(data, dtype="<u8", count=count)
        self._records = np.frombuffer(data, dtype=_RECORD, offset=8 * count)
        if len(self._records) != count:
            raise InvalidFile(f"{path} has the wrong length")

    def look_up(self, hashes: Hashes, *, torn: bool) -> tuple[NDArray[np.intp], NDArray[np.intp], Slots]:
        """Owner, place and slot of every entry of these hashes; with ``torn`` a bad checksum is no error."""
        low, high = self.high.searchsorted(hashes[:, 0], "left"), self.high.searchsorted(hashes[:, 0], "right")
        if not torn:
            # A search that a damaged word led astray ends beside that word: it ends where the last words that it
            # looked at, smaller and not smaller, are neighbours, and with whole words that is the right place.
            edges = np.concatenate([low - 1, high])
            self.records(edges[(edges >= 0) & (edges < self.count)])
        spans = high - low
        owner = np.repeat(np.arange(len(hashes)), spans)
        place = np.arange(len(owner)) + np.repeat(low - (np.cumsum(spans) - spans), spans)
        records = self._records[place] if torn else self.records(place)
        same = records["low"] == hashes[owner, 1]
        slots = np.where(self._fits(place), records["slot"].astype(np.int64), TORN)
        return owner[same], place[same], slots[same]

    def records(self, place: Any = slice(None)) -> NDArray[Any]:
        """Entries, checked."""
        if not self._fits(place).all():
            raise InvalidFile(f"{self.path} is damaged: entries fail their checksum")
        records: NDArray[Any] = self._records[place]
        return records

    def _fits(self, place: Any) -> NDArray[np.bool_]:
        records = self._records[place]
        check = _check(self.high[place], records["low"], records["slot"], self._seal)
        fits: NDArray[np.bool_] = check == records["check"]
        return fits

    def hashes(self) -> Hashes:
        """The hashes of all entries."""
        return np.column_stack([self.high, self.records()["low"]])

    def overwritten(self, place: NDArray[np.intp], slots: Slots) -> Iterator[tuple[int, bytes]]:
        """The bytes that put these slots into these entries."""
        records = self._records[place].copy()
        records["slot"] = slots
        records["check"] = _check(self.high[place], records["low"], records["slot"], self._seal)
        for k, record in zip(place.tolist(), records, strict=True):
            yield 8 * self.count + k * _RECORD.itemsize, record.tobytes()


class People:
    """All segments of a vault, in the order in which they came."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)

    def find(self, hashes: Hashes, *, torn: bool = False) -> Entries:
        """All entries of these hashes. Only who overwrites them again may want those that are torn."""
        found = [segment.look_up(hashes, torn=torn) for segment in self.segments]
        owner, place, slot = (np.concatenate([_NONE, *(part[k] for part in found)]) for k in range(3))
        segment = np.repeat(np.arange(len(found)), [len(part[0]) for part in found])
        order = np.argsort(owner, kind="stable")
        return Entries(owner[order], segment[order], place[order], slot[order])

    def overwrite(self, entries: Entries, slots: Slots) -> None:
        """Put these slots into these entries, and sync. Doing it again changes nothing."""
        for k in np.unique(entries.segment).tolist():
            mine = entries.segment == k
            segment = self.segments[k]
            files.overwrite(segment.path, segment.overwritten(entries.place[mine], slots[mine]))

    def slots(self) -> Slots:
        """The slots of all rows there are."""
        every = np.concatenate([np.empty(0, dtype=np.int64), *(s.records()["slot"] for s in self.segments)])
        return every[every >= 0]

    def tombstones(self) -> int:
        """How many ids are erased and not readmitted."""
        hashes = [s.hashes()[s.records()["slot"] < NOBODY] for s in self.segments]
        return distinct(np.concatenate([np.empty((0, 2), dtype=np.uint64), *hashes]))

    def merged(self, hashes: Hashes, slots: Slots) -> tuple[Hashes, Slots]:
        """All entries that mean something, and these after them."""
        mine = [(s.hashes(), s.records()["slot"].astype(np.int64)) for s in self.segments]
        kept = [(h[slot != NOBODY], slot[slot != NOBODY]) for h, slot in mine]
        return np.concatenate([*(h for h, _ in kept), hashes]), np.concatenate([*(slot for _, slot in kept), slots])


def segment_bytes(hashes: Hashes, slots: Slots, seal: bytes) -> tuple[memoryview, memoryview]:
    """The content of a new segment."""
    order = np.argsort(hashes[:, 0], kind="stable")  # stable: an id's earlier rows stay first
    high = hashes[order, 0].astype("<u8")
    records = np.empty(len(order), dtype=_RECORD)
    records["low"], records["slot"] = hashes[order, 1], slots[order]
    records["check"] = _check(high, records["low"], records["slot"], seal)
    return high.data, records.view(np.uint8).data


def _check(high: Hashes, low: Hashes, slot: Slots, seal: bytes) -> NDArray[np.uint64]:
    """A sum modulo 2^64 with odd factors: it changes with any single bit."""
    total: NDArray[np.uint64] = high * _MIX[0] + low * _MIX[1] + (slot.astype(np.uint64) + np.uint64(1)) * _MIX[2]
    return total + np.frombuffer(seal, dtype="<u8", count=1).astype(np.uint64)
