"""Codes: which lanes are summed into which weak learner.

A code is the paper's generator matrix G (Algorithm 2, LinearEnc). It never looks at data, so it can leak nothing about
a row. It keeps the paper's two conditions: no lane is left out (no all-zero row), and no learner's shard follows from
the others' (full column rank).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidSetting
from ..exact.arrays import Slots
from .values import whole_number

# A coded row must fit in 36 bits and a feature needs 20 of them (see moments.py), so a column of G may sum to 2^16.
HEAVIEST = 2**16

# Full rank modulo any prime proves full rank over the rationals; the converse fails only if the prime divides every
# r x r minor. Three primes below 2^31, whose products fit int64, make that a coincidence that nobody will meet.
_PRIMES = (2_147_483_647, 2_147_483_629, 2_147_483_587)


@dataclass(frozen=True, eq=False)
class Column:
    """What feeds one learner: L lanes and their weights."""

    lanes: NDArray[np.intp]  # (L,)
    weights: NDArray[np.int64]  # (L,)
    place: NDArray[np.intp]  # (s,): where among its lanes a lane is; -1 if it does not feed this learner
    plain: bool  # whether all weights are 1
    floats: NDArray[np.float64]  # (L,), the weights

    @classmethod
    def of(cls, g: NDArray[np.int64]) -> "Column":
        """Read a column of G."""
        lanes = np.flatnonzero(g)
        place = np.full(len(g), -1)
        place[lanes] = np.arange(len(lanes))
        return cls(lanes, g[lanes], place, bool((g[lanes] == 1).all()), g[lanes].astype(np.float64))

    def sum(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The learner's coded rows, from the rows of its lanes, exactly: (m, L, D) -> (m, D), maybe a view."""
        if self.plain and len(self.lanes) == 1:
            return rows[:, 0]
        if not self.plain:
            rows = rows * self.weights[:, None].astype(rows.dtype)
        summed: NDArray[Any] = np.add.reduce(rows, axis=1)
        return summed


@dataclass(frozen=True, eq=False, repr=False)
class Code:
    """A linear block code: lane i feeds learner j with weight ``G[i, j]``.

    Parameters
    ----------
    G : array of int, shape (s, r)
        The generator matrix: any integers, s >= r, no all-zero row, full column rank.

    Examples
    --------
    >>> code = Code([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> code
    Code(shards=4, learners=2, density=0.5)
    >>> code.rate, code.heaviest
    (2.0, 2)
    >>> code.learners_of(np.array([2, 7])), code.lanes_of(0)
    ([1], array([0, 1]))
    """

    G: NDArray[np.int64]  # (s, r)
    heaviest: int = field(init=False)
    """The largest sum of a column of absolute weights: how much larger than a row a coded row can be."""
    is_selection: bool = field(init=False)
    """Whether every coded row is a row as it is (each column of G a unit vector)."""
    columns: tuple["Column", ...] = field(init=False)
    """What feeds each learner: the nonzero entries of each column of G."""
    feeds: tuple[tuple[int, ...], ...] = field(init=False)
    """The learners that each lane feeds."""

    def __init__(self, G: ArrayLike) -> None:
        G = _checked(G)
        one_lane = (np.count_nonzero(G, axis=0) == 1) & (G.sum(axis=0) == 1)
        derived = {
            "G": G,
            "heaviest": int(np.abs(G).sum(axis=0).max()),
            "is_selection": bool(one_lane.all()),
            "columns": tuple(Column.of(column) for column in G.T),
            "feeds": tuple(tuple(np.flatnonzero(row).tolist()) for row in G),
        }
        for name, value in derived.items():  # at once, not when asked for: a parameter must not change by being used
            object.__setattr__(self, name, value)

    @classmethod
    def uncoded(cls, shards: int) -> "Code":
        """G = I: plain sharding, known as SISA (Bourtoule et al. 2021)."""
        return cls(np.eye(whole_number("shards", shards), dtype=np.int64))

    @classmethod
    def single(cls) -> "Code":
        """One learner on everything."""
        return cls.uncoded(1)

    @property
    def shards(self) -> int:
        """Lanes, s: a stripe has one row for each."""
        return int(self.G.shape[0])

    @property
    def learners(self) -> int:
        """Weak learners, r."""
        return int(self.G.shape[1])

    @property
    def rate(self) -> float:
        """Rows per coded row, tau = s / r."""
        return self.shards / self.learners

    @property
    def density(self) -> float:
        """Share of nonzero entries, rho."""
        return float(np.count_nonzero(self.G) / self.G.size)

    def learners_of(self, slots: Slots) -> list[int]:
        """Learners that the rows in these slots feed: those that learn anew when one changes (Algorithm 3, line 17)."""
        if len(slots) == 1:
            return list(self.feeds[slots[0] % len(self.G)])
        learners: list[int] = np.flatnonzero(self.G[slots % len(self.G)].any(axis=0)).tolist()
        return learners

    def lanes_of(self, learner: int) -> NDArray[np.intp]:
        """Lanes that feed a learner."""
        return self.columns[learner].lanes

    def encode(self, stripes: NDArray[Any]) -> NDArray[Any]:
        """Sum each stripe's rows into its coded rows (Algorithm 2, line 13).

        Parameters
        ----------
        stripes : array, shape (m, s, D)
            Whole stripes. Stripes do not depend on each other: any block of them can be encoded anywhere.

        Returns
        -------
        array, shape (r, m, D)
            One contiguous coded shard per learner.

        Examples
        --------
        >>> Code([[1, 0], [1, 0], [0, 1], [0, 1]]).encode(np.arange(8).reshape(2, 4, 1))[:, :, 0]
        array([[ 1,  9],
               [ 5, 13]])
        """
        return np.stack([column.sum(stripes[:, column.lanes]) for column in self.columns])

    def __reduce__(self) -> tuple[type["Code"], tuple[NDArray[np.int64]]]:
        return Code, (self.G,)  # a copy is checked and read-only, too

    def __repr__(self) -> str:
        return f"Code(shards={self.shards}, learners={self.learners}, density={self.density:.3g})"


class Echelon:
    """Vectors in echelon form modulo a prime: tells whether one more is independent of those there are."""

    def __init__(self, prime: int = _PRIMES[0]) -> None:
        self.prime = prime
        self._rows: list[tuple[int, NDArray[np.int64]]] = []

    def add(self, vector: NDArray[np.int64]) -> bool:
        rest = vector % self.prime
        for pivot, row in self._rows:
            if rest[pivot]:
                rest = (rest - rest[pivot] * row) % self.prime
        places = np.flatnonzero(rest)
        if not len(places):
            return False
        pivot = int(places[0])
        self._rows.append((pivot, rest * pow(int(rest[pivot]), -1, self.prime) % self.prime))
        return True


def _full_rank(G: NDArray[np.int64]) -> bool:
    return any(all(echelon.add(column) for column in G.T) for echelon in map(Echelon, _PRIMES))


def _checked(G: ArrayLike) -> NDArray[np.int64]:
    try:
        matrix = np.array(G)
    except ValueError:
        raise InvalidSetting("G must be a matrix of integers: its rows have different lengths") from None
    if matrix.dtype.kind not in "iub" or matrix.ndim != 2 or not matrix.size:
        raise InvalidSetting(
            f"G must be a matrix of integers, shape (shards, learners), got shape {matrix.shape}, dtype {matrix.dtype}"
        )
    if (np.abs(matrix.astype(np.float64)).sum(axis=0) > HEAVIEST).any():
        raise InvalidSetting(
            f"the columns of |G| must sum to at most {HEAVIEST}, or features would keep fewer than 20 bits; "
            "use more learners, a lower density or smaller integers"
        )
    matrix = matrix.astype(np.int64)
    s, r = matrix.shape
    if r > s:
        raise InvalidSetting(f"G must have at least as many rows (shards) as columns (learners), got shape {(s, r)}")
    if empty := int((matrix == 0).all(axis=1).sum()):
        raise InvalidSetting(
            f"every row of G must have a nonzero entry, or that lane is never learned; {empty} have none"
        )
    if not _full_rank(matrix):
        raise InvalidSetting(
            f"G must have full column rank {r}: as it is, one learner's shard follows from the others'"
        )
    matrix.flags.writeable = False
    return matrix
