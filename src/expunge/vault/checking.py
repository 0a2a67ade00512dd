"""Checking: what an audit finds in a range of rows, or of owners. Ranges can be checked by anybody, in any order."""

from dataclasses import dataclass

import numpy as np

from ..exact.arrays import cut
from .disk.people import NOBODY, People
from .disk.rowfile import RowFile, checksums
from .disk.segments import distinct_ids
from .disk.slotsum import slots_sum


def wrong_in_rows(rows: RowFile, numbers: range) -> str | None:
    """What is wrong with rows of these numbers: one fails its checksum, or something is left where there is none."""
    for piece in cut(len(numbers), rows.width):
        some = np.arange(numbers.start + piece.start, numbers.start + piece.stop)
        entries, there = rows.entries(some), rows.live[rows.layout.dealt.slots(some)]
        fits = checksums(some, entries[:, :-1], rows.layout.seal) == entries[:, -1]
        if not fits[there].all():
            return f"{rows.where(some[there & ~fits])} is damaged: rows fail their checksum"
        if entries[~there].any():
            return "there are bytes left where a row was erased"
    return None


@dataclass(frozen=True)
class Owned:
    """Rows that have an owner, and how many people own rows or are erased."""

    rows: int
    sum: int  # of their slots: two that have one slot, or one that has none, would show
    owners: int
    erased: int

    def plus(self, other: "Owned") -> "Owned":
        """The same of disjoint ranges of hashes."""
        total = (self.sum + other.sum) % 2**64
        return Owned(self.rows + other.rows, total, self.owners + other.owners, self.erased + other.erased)


def owned_in(people: People, part: int, parts: int, seal: bytes) -> Owned:
    """Count the entries in one of so many equal ranges of hashes."""
    hashes, slots = people.part(part, parts)
    there = slots >= 0
    mine = slots[there]
    return Owned(len(mine), slots_sum(mine, seal), distinct_ids(hashes[there]), distinct_ids(hashes[slots < NOBODY]))
