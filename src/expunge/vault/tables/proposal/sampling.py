"""Sampling: what is kept of a column's values while its table is read, however long it is.

A sample has one value of each of at most `SIZE` people. Who is in it, and with which row, is decided by hashes of the
ids and of the numbers of the rows: the same table gives the same sample, and everybody with a value has the same
chance, however many rows they have. A quantile of a full sample is off by 0.8 % of the people, as a standard deviation
at the median: half of `SIZE` ** -0.5. Up to `SIZE` people it is exact.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....exact.arrays import Floats
from ..cells.arrow import Arrow

SIZE = 4096  # people in a sample

_KEY = b"expunge schema"


@dataclass(frozen=True, eq=False)
class Owners:
    """Whose some rows are."""

    ids: Arrow
    person: NDArray[np.uint64]  # (n,), a hash of the id
    turn: NDArray[np.uint64]  # (n,), a hash of the row's number: of a person's rows the one with the least is taken

    @classmethod
    def of(cls, ids: Arrow | None, first: int, rows: int) -> "Owners":
        """Rows from number ``first`` on; without ids each is somebody else's."""
        numbers = np.arange(first, first + rows, dtype=np.uint64)
        if ids is None:
            return cls(pa.array(numbers), _mixed(numbers), numbers)
        return cls(ids, _hashed(ids), _mixed(numbers))

    def where(self, chosen: NDArray[np.bool_]) -> "Owners":
        """Those of some of the rows."""
        return Owners(self.ids.filter(pa.array(chosen)), self.person[chosen], self.turn[chosen])


class Sample:
    """One value of each of at most `SIZE` people."""

    def __init__(self) -> None:
        self._person, self._turn = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
        self._values: Floats = np.empty(0)

    def add(self, values: Floats, owners: Owners) -> None:
        """Look at more values; NaN and infinity are none."""
        there = np.isfinite(values)
        if len(self._values) == SIZE:  # later rows of somebody in it count, too
            there &= owners.person <= self._person[-1]
        person = np.concatenate([self._person, owners.person[there]])
        turn = np.concatenate([self._turn, owners.turn[there]])
        values = np.concatenate([self._values, values[there]])
        order = np.lexsort((turn, person))
        first = np.append(True, np.diff(person[order]) != 0)[: len(order)]
        kept = order[first][:SIZE]
        self._person, self._turn, self._values = person[kept], turn[kept], values[kept]

    def values(self) -> Floats:
        """Return the values, sorted."""
        return np.sort(self._values)

    def people(self) -> int:
        """Return how many people have a value; an estimate if they are more than the sample holds."""
        if len(self._person) < SIZE:
            return len(self._person)
        return round((SIZE - 1) * 2.0**64 / float(self._person[-1]))


class End:
    """The largest values of a column (with ``sign=-1`` the least), one per person."""

    def __init__(self, most: int, sign: int) -> None:
        self._most, self._sign = most, sign
        self._person, self._values = np.empty(0, dtype=np.uint64), np.empty(0)  # signed, the largest first

    def add(self, values: Floats, owners: Owners) -> None:
        """Look at more finite values."""
        values, person = self._sign * values, owners.person
        if len(self._values) == self._most:
            larger = values > self._values[-1]
            values, person = values[larger], person[larger]
        values, person = np.concatenate([self._values, values]), np.concatenate([self._person, person])
        order = np.argsort(-values, kind="stable")
        first = np.sort(np.unique(person[order], return_index=True)[1])
        kept = order[first][: self._most]
        self._person, self._values = person[kept], values[kept]

    def beyond(self, people: int) -> float:
        """Return the value that this many people are beyond."""
        return float(self._sign * self._values[min(people, len(self._values) - 1)]) + 0.0


def _hashed(ids: Arrow) -> NDArray[np.uint64]:
    coded = ids.dictionary_encode()
    known = coded.dictionary.cast(pa.large_binary()).to_pylist()
    digests = b"".join(hashlib.blake2b(one, digest_size=8, key=_KEY).digest() for one in known)
    hashes: NDArray[np.uint64] = np.frombuffer(digests, dtype="<u8").astype(np.uint64)
    places: NDArray[np.int64] = coded.indices.to_numpy()
    return hashes[places]


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A fixed permutation of 64-bit numbers without visible order (the finalizer of SplitMix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
