"""Sampling: what is kept of a column's values while its table is read, however long it is.

A sample has one value of each of at most `SIZE` people. Who is in it, and with which row, is decided by hashes of the
ids and of the numbers of the rows: the same table gives the same sample, and everybody with a value has the same
chance, however many rows they have. A quantile of a full sample is off by 0.8 % of the people, as a standard deviation
at the median: half of `SIZE` ** -0.5. Up to `SIZE` people it is exact.
"""

import hashlib
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...exact.arrays import Floats
from ..cells import Arrow, read_cells
from ..kinds import Boolean, ColumnKind, Ignore

SAMPLE_SIZE = 4096  # people in a sample

_KEY = b"expunge schema"


@dataclass(frozen=True, eq=False)
class SampleOwners:
    """Whose some rows are."""

    ids: Arrow
    person_hashes: NDArray[np.uint64]  # (n,), a hash of the id
    row_hashes: NDArray[
        np.uint64
    ]  # (n,), a hash of the row's number: of a person's rows the one with the least is taken

    @classmethod
    def from_ids(cls, ids: Arrow | None, first: int, rows: int) -> "SampleOwners":
        """Rows from number ``first`` on; without ids each is somebody else's."""
        numbers = np.arange(first, first + rows, dtype=np.uint64)
        if ids is None:
            return cls(pa.array(numbers), _mix_bits(numbers), numbers)
        return cls(ids, _hash_ids(ids), _mix_bits(numbers))

    def select(self, chosen: NDArray[np.bool_]) -> "SampleOwners":
        """Those of some of the rows."""
        return SampleOwners(self.ids.filter(pa.array(chosen)), self.person_hashes[chosen], self.row_hashes[chosen])


class ColumnSample:
    """One value of each of at most `SIZE` people."""

    def __init__(self) -> None:
        self._person_hashes, self._row_hashes = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
        self._values: Floats = np.empty(0)

    def add(self, values: Floats, owners: SampleOwners) -> None:
        """Look at more values; NaN and infinity are none."""
        there = np.isfinite(values)
        if len(self._values) == SAMPLE_SIZE:  # later rows of somebody in it count, too
            there &= owners.person_hashes <= self._person_hashes[-1]
        person = np.concatenate([self._person_hashes, owners.person_hashes[there]])
        turn = np.concatenate([self._row_hashes, owners.row_hashes[there]])
        values = np.concatenate([self._values, values[there]])
        order = np.lexsort((turn, person))
        first = np.append(True, np.diff(person[order]) != 0)[: len(order)]
        kept = order[first][:SAMPLE_SIZE]
        self._person_hashes, self._row_hashes, self._values = person[kept], turn[kept], values[kept]

    def values(self) -> Floats:
        """Return the values, sorted."""
        return np.sort(self._values)

    def people(self) -> int:
        """Return how many people have a value; an estimate if they are more than the sample holds."""
        if len(self._person_hashes) < SAMPLE_SIZE:
            return len(self._person_hashes)
        return round((SAMPLE_SIZE - 1) * 2.0**64 / float(self._person_hashes[-1]))


class Extremes:
    """The largest values of a column (with ``sign=-1`` the least), one per person."""

    def __init__(self, max_people: int, sign: int) -> None:
        self._max_people, self._sign = max_people, sign
        self._person_hashes, self._values = np.empty(0, dtype=np.uint64), np.empty(0)  # signed, the largest first

    def add(self, values: Floats, owners: SampleOwners) -> None:
        """Look at more finite values."""
        values, person = self._sign * values, owners.person_hashes
        if len(self._values) == self._max_people:
            larger = values > self._values[-1]
            values, person = values[larger], person[larger]
        values, person = np.concatenate([self._values, values]), np.concatenate([self._person_hashes, person])
        order = np.argsort(-values, kind="stable")
        first = np.sort(np.unique(person[order], return_index=True)[1])
        kept = order[first][: self._max_people]
        self._person_hashes, self._values = person[kept], values[kept]

    def value_beyond(self, people: int) -> float:
        """Return the value that this many people are beyond."""
        return float(self._sign * self._values[min(people, len(self._values) - 1)]) + 0.0


def _hash_ids(ids: Arrow) -> NDArray[np.uint64]:
    coded = ids.dictionary_encode()
    known = coded.dictionary.cast(pa.large_binary()).to_pylist()
    digests = b"".join(hashlib.blake2b(one, digest_size=8, key=_KEY).digest() for one in known)
    hashes: NDArray[np.uint64] = np.frombuffer(digests, dtype="<u8").astype(np.uint64)
    places: NDArray[np.int64] = coded.indices.to_numpy()
    return hashes[places]


def _mix_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A fixed permutation of 64-bit numbers without visible order (the finalizer of SplitMix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


# Summaries: what one pass over a column's cells says about its kind.
# What is read off the data tells about the people in it. So bounds are rounded outward, fills and knots are rounded
# and are those of many, a category needs several people who have it, and what a few people have decides nothing.


ProposedKind: TypeAlias = tuple[ColumnKind | Ignore, str]  # and what a person should know about it

TARGET_GAPS_NOTE = "has gaps: leave rows without a target out of the data"


class ColumnSummary(Protocol):
    """What is kept of a column while its table is read."""

    csv_type: str

    def add(self, array: Arrow, owners: SampleOwners) -> None:
        """Look at more cells, and at whose they are."""

    def propose(self) -> ProposedKind:
        """Return a kind for the column."""

    def propose_target(self) -> ProposedKind | None:
        """Return a kind for the column if it is to be predicted; None if it cannot be."""


class BooleanSummary:
    """True and false."""

    csv_type = Boolean.csv_type

    def __init__(self) -> None:
        self._gaps, self._sample = False, ColumnSample()

    def add(self, array: Arrow, owners: SampleOwners) -> None:
        self._gaps |= bool(array.null_count)
        self._sample.add(read_cells(Boolean(), "", array), owners)

    def propose(self) -> ProposedKind:
        values = self._sample.values()
        return Boolean(fill=bool(2 * values.sum() > len(values)) if self._gaps else None), ""

    def propose_target(self) -> ProposedKind | None:
        return Boolean(), TARGET_GAPS_NOTE if self._gaps else ""
