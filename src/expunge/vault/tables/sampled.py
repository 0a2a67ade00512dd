"""Sampled rows: all rows of some people of a table, for a plan. Who they are depends on their ids alone."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInput
from ...exact.arrays import Floats
from .reading import read_blocks
from .schema import Schema
from .sources import Source

_KEY = b"expunge plan"


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Rows of a table, and whose they are; ``total`` is how many the table has."""

    X: Floats  # (n, d)
    y: Floats  # (n, t)
    people: NDArray[np.uint64]  # (n,), a hash of the id
    total: int


def sampled_rows(source: Source, schema: Schema, most: int) -> SampledRows:
    """Read a table and keep the rows of as many people as have about ``most`` rows, those with the least hashes."""
    kept, total, limit = _Kept(), 0, 2**64 - 1
    for block in read_blocks(source, schema, targets=True, ids=schema.id is not None):
        assert block.y is not None
        people = _hashes(block.ids, total, len(block))
        total += len(block)
        kept.add(block.X, block.y, people, people <= limit)
        if kept.rows > 2 * most:
            limit = kept.thinned(most)
    kept.thinned(most)
    if not kept.rows:
        raise InvalidInput("the table has no rows to plan on")
    return SampledRows(*kept.arrays(), total)


class _Kept:
    """Rows that are kept so far."""

    def __init__(self) -> None:
        self._parts: list[tuple[Floats, Floats, NDArray[np.uint64]]] = []
        self.rows = 0

    def add(self, X: Floats, y: Floats, people: NDArray[np.uint64], chosen: NDArray[np.bool_]) -> None:
        self._parts.append((X[chosen], y[chosen], people[chosen]))
        self.rows += int(chosen.sum())

    def arrays(self) -> tuple[Floats, Floats, NDArray[np.uint64]]:
        X, y, people = zip(*self._parts, strict=True)
        return np.concatenate(X), np.concatenate(y), np.concatenate(people)

    def thinned(self, most: int) -> int:
        """Keep the people with the least hashes, who have at most ``most`` rows (or one of them more); their last."""
        X, y, people = self.arrays()
        if self.rows <= most:
            return 2**64 - 1
        hashes, counts = np.unique(people, return_counts=True)
        last = hashes[max(0, int(np.searchsorted(np.cumsum(counts), most, side="right")) - 1)]
        chosen = people <= last
        self._parts, self.rows = [(X[chosen], y[chosen], people[chosen])], int(chosen.sum())
        return int(last)


def _hashes(ids: list[bytes] | None, before: int, rows: int) -> NDArray[np.uint64]:
    """A hash per row of whose it is; without ids each row is somebody else's."""
    named = [str(number).encode() for number in range(before, before + rows)] if ids is None else ids
    digests = b"".join(hashlib.blake2b(one, digest_size=8, key=_KEY).digest() for one in named)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
