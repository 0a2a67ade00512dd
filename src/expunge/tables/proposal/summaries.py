"""Summaries: what is kept of a column in one pass over a table of any length, to propose its kind.

What is read from the data reveals something about the people in it. So bounds and fills are rounded and supported by
several people, a category needs several people who have it, and values of a few people decide nothing.

A sample has one value of each of at most `SAMPLE_SIZE` people. Hashes of the ids and of the row numbers decide who is
in it, and with which row: the same table gives the same sample, and all people with a value have the same chance,
however many rows they have. A quantile of a full sample is off by 0.8 % of the people (the standard deviation at the
median, half of `SAMPLE_SIZE` ** -0.5). Up to `SAMPLE_SIZE` people it is exact.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...exact.arrays import Floats
from ..cells import Arrow, read_cells
from ..ids import hash_ids
from ..kinds import Boolean, ColumnKind, Ignore

ProposedKind: TypeAlias = tuple[ColumnKind | Ignore, str]  # and a note for the person who edits the schema

SAMPLE_SIZE = 4096  # people in a sample
TARGET_GAPS_NOTE = "has gaps: leave rows without a target out of the data"
_PERSON_HASH_KEY = b"expunge schema"


@dataclass(frozen=True, eq=False)
class SampleOwners:
    """The people that rows belong to."""

    ids: Arrow
    person_hashes: NDArray[np.uint64]  # (n,), a hash of the id
    row_hashes: NDArray[np.uint64]  # (n,), a hash of the row's number; of a person's rows the least is taken

    @classmethod
    def from_ids(cls, ids: Arrow | None, first: int, rows: int) -> "SampleOwners":
        """Return the owners of rows from number ``first`` on; without ids each row has an owner of its own."""
        numbers = np.arange(first, first + rows, dtype=np.uint64)
        if ids is None:
            return cls(pa.array(numbers), _mix_bits(numbers), numbers)
        return cls(ids, _hash_ids(ids), _mix_bits(numbers))

    def select(self, chosen: NDArray[np.bool_]) -> "SampleOwners":
        """Return the owners of the chosen rows."""
        return SampleOwners(self.ids.filter(pa.array(chosen)), self.person_hashes[chosen], self.row_hashes[chosen])


class ColumnSample:
    """One value of each of at most `SAMPLE_SIZE` people."""

    def __init__(self) -> None:
        self._person_hashes, self._row_hashes = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
        self._values: Floats = np.empty(0)

    def add(self, values: Floats, owners: SampleOwners) -> None:
        """Add values; NaN and infinity are skipped."""
        chosen = np.isfinite(values)
        if len(self._values) == SAMPLE_SIZE:  # people in the sample may still get another row
            chosen &= owners.person_hashes <= self._person_hashes[-1]
        people = np.concatenate([self._person_hashes, owners.person_hashes[chosen]])
        rows = np.concatenate([self._row_hashes, owners.row_hashes[chosen]])
        values = np.concatenate([self._values, values[chosen]])
        order = np.lexsort((rows, people))
        first = np.append(True, np.diff(people[order]) != 0)[: len(order)]
        kept = order[first][:SAMPLE_SIZE]
        self._person_hashes, self._row_hashes, self._values = people[kept], rows[kept], values[kept]

    def values(self) -> Floats:
        """Return the values, sorted."""
        return np.sort(self._values)

    def correlation(self, other: "ColumnSample") -> float:
        """Return the correlation with another column, over rows that are in both samples; 0 if there are few."""
        key = np.dtype([("person", np.uint64), ("row", np.uint64)])
        mine, theirs = np.empty(len(self._values), key), np.empty(len(other._values), key)
        mine["person"], mine["row"] = self._person_hashes, self._row_hashes
        theirs["person"], theirs["row"] = other._person_hashes, other._row_hashes
        _, my_places, other_places = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
        x, y = self._values[my_places], other._values[other_places]
        with np.errstate(all="ignore"):  # values may be too far apart: NaN
            return float(np.corrcoef(x, y)[0, 1]) if len(x) >= 20 and np.ptp(x) and np.ptp(y) else 0.0

    def people(self) -> int:
        """Return the number of people with a value; an estimate if there are more than the sample holds."""
        if len(self._person_hashes) < SAMPLE_SIZE:
            return len(self._person_hashes)
        return round((SAMPLE_SIZE - 1) * 2.0**64 / float(self._person_hashes[-1]))


class DistinctValues:
    """How many cells of a column have a value of their own, from those of at most `SAMPLE_SIZE` values."""

    def __init__(self) -> None:
        self.cells = 0
        self._hashes, self._counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)

    def add(self, values: Floats) -> None:
        """Add finite values."""
        self.cells += len(values)
        hashes, counts = np.unique(_mix_bits((values + 0.0).view(np.uint64)), return_counts=True)
        hashes, places = np.unique(np.concatenate([self._hashes, hashes]), return_inverse=True)
        counts = np.bincount(places, weights=np.concatenate([self._counts, counts])).astype(np.int64)
        self._hashes, self._counts = hashes[:SAMPLE_SIZE], counts[:SAMPLE_SIZE]

    def share(self) -> float:
        """Return the share of values that only one cell has; 0 without values."""
        return float((self._counts == 1).mean()) if len(self._counts) else 0.0


class Extremes:
    """The largest values of a column (with ``sign=-1`` the least), one per person."""

    def __init__(self, max_people: int, sign: int) -> None:
        self._max_people, self._sign = max_people, sign
        self._person_hashes, self._values = np.empty(0, dtype=np.uint64), np.empty(0)  # signed, the largest first

    def add(self, values: Floats, owners: SampleOwners) -> None:
        """Add finite values."""
        values, people = self._sign * values, owners.person_hashes
        if len(self._values) == self._max_people:
            larger = values > self._values[-1]
            values, people = values[larger], people[larger]
        values, people = np.concatenate([self._values, values]), np.concatenate([self._person_hashes, people])
        order = np.argsort(-values, kind="stable")
        first = np.sort(np.unique(people[order], return_index=True)[1])
        kept = order[first][: self._max_people]
        self._person_hashes, self._values = people[kept], values[kept]

    def owners_beyond(self, bound: float) -> set[int]:
        """Return hashes of the people with a value beyond this one, of those that are kept."""
        hashes: list[int] = self._person_hashes[self._values > self._sign * bound].tolist()
        return set(hashes)

    def value_beyond(self, people: int) -> float:
        """Return the most extreme value once this many people are left out."""
        return float(self._sign * self._values[min(people, len(self._values) - 1)]) + 0.0


def _hash_ids(ids: Arrow) -> NDArray[np.uint64]:
    coded = ids.dictionary_encode()
    hashes = hash_ids(coded.dictionary.cast(pa.large_binary()).to_pylist(), _PERSON_HASH_KEY)
    places: NDArray[np.int64] = coded.indices.to_numpy()
    return hashes[places]


def _mix_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply a fixed permutation of 64-bit numbers without visible order (the finalizer of SplitMix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


class ColumnSummary(Protocol):
    """The summary of a column while its table is read."""

    csv_type: str

    @property
    def sample(self) -> ColumnSample:
        """The sample of its values as numbers."""

    def add(self, array: Arrow, owners: SampleOwners) -> None:
        """Add cells with their owners."""

    def propose(self) -> ProposedKind:
        """Return a kind for the column as an input."""

    def propose_target(self) -> ProposedKind | None:
        """Return a kind for the column as a target; None if it cannot be one."""


class BooleanSummary:
    """The summary of a column of true and false."""

    csv_type = Boolean.csv_type

    def __init__(self, people: int) -> None:
        self._gaps, self.sample, self.people = False, ColumnSample(), people

    def add(self, array: Arrow, owners: SampleOwners) -> None:
        self._gaps |= bool(array.null_count)
        self.sample.add(read_cells(Boolean(), "", array), owners)

    def propose(self) -> ProposedKind:
        values = self.sample.values()
        if self._gaps and len(values) < 2 * self.people:
            return Ignore(), f"has gaps, and fewer than {2 * self.people} people (or rows) have a value"
        return Boolean(fill=bool(2 * values.sum() > len(values)) if self._gaps else None), ""

    def propose_target(self) -> ProposedKind | None:
        return Boolean(), TARGET_GAPS_NOTE if self._gaps else ""
