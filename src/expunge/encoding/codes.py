"""Codes: which lanes are summed into which weak learner.

A code is the paper's generator matrix G (Algorithm 2, LinearEnc). It never looks at data, so it cannot leak anything
about a row. It meets the paper's two conditions: no lane is left out (no all-zero row), and no learner's shard follows
from the others' (full column rank).
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidSetting
from ..exact.arrays import Slots
from .randomness import Seed, as_generator
from .values import as_float, flag, whole_number

# A coded row must fit in 36 bits and a feature needs 20 of them (see limbs.py), so a column of G may sum to 2^16.
MAX_COLUMN_SUM = 2**16

# Full rank modulo any prime proves full rank over the rationals; the converse fails only if the prime divides every
# r x r minor. With three primes below 2^31, whose products fit int64, that does not happen in practice.
_PRIMES = (2_147_483_647, 2_147_483_629, 2_147_483_587)


@dataclass(frozen=True, eq=False)
class CodeColumn:
    """A column of G: the L lanes that feed one learner, and their weights."""

    lanes: NDArray[np.intp]  # (L,)
    weights: NDArray[np.int64]  # (L,)
    place: NDArray[np.intp]  # (s,): each lane's position among the L; -1 if it does not feed this learner
    plain: bool  # whether all weights are 1
    floats: NDArray[np.float64]  # (L,), the weights

    @classmethod
    def from_weights(cls, g: NDArray[np.int64]) -> "CodeColumn":
        """Read a column of G."""
        lanes = np.flatnonzero(g)
        place = np.full(len(g), -1)
        place[lanes] = np.arange(len(lanes))
        return cls(lanes, g[lanes], place, bool((g[lanes] == 1).all()), g[lanes].astype(np.float64))

    def sum(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Sum the rows of the learner's lanes to coded rows, exactly: (m, L, D) -> (m, D), maybe a view."""
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
    """The largest column sum of absolute weights: how much larger than a row a coded row can be."""
    is_selection: bool = field(init=False)
    """Whether every coded row is a single row (each column of G is a unit vector)."""
    columns: tuple["CodeColumn", ...] = field(init=False)
    """The nonzero entries of each column of G: the lanes that feed each learner."""
    feeds: tuple[tuple[int, ...], ...] = field(init=False)
    """The learners that each lane feeds."""

    def __init__(self, G: ArrayLike) -> None:
        G = _check_generator(G)
        one_lane = (np.count_nonzero(G, axis=0) == 1) & (G.sum(axis=0) == 1)
        derived = {
            "G": G,
            "heaviest": int(np.abs(G).sum(axis=0).max()),
            "is_selection": bool(one_lane.all()),
            "columns": tuple(CodeColumn.from_weights(column) for column in G.T),
            "feeds": tuple(tuple(np.flatnonzero(row).tolist()) for row in G),
        }
        for name, value in derived.items():  # now, not on first use: using a parameter must not change it
            object.__setattr__(self, name, value)

    @classmethod
    def uncoded(cls, shards: int) -> "Code":
        """Return G = I: plain sharding, known as SISA (Bourtoule et al. 2021)."""
        return cls(np.eye(whole_number("shards", shards), dtype=np.int64))

    @classmethod
    def single(cls) -> "Code":
        """Return the code of one learner that sees all rows."""
        return cls.uncoded(1)

    @property
    def shards(self) -> int:
        """Lanes, s: a stripe has one row per lane."""
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
        """Return the learners that the rows in these slots feed: those that a change affects (Algorithm 3, line 17)."""
        if len(slots) == 1:
            return list(self.feeds[slots[0] % len(self.G)])
        learners: list[int] = np.flatnonzero(self.G[slots % len(self.G)].any(axis=0)).tolist()
        return learners

    def lanes_of(self, learner: int) -> NDArray[np.intp]:
        """Return the lanes that feed a learner."""
        return self.columns[learner].lanes

    def encode(self, stripes: NDArray[Any]) -> NDArray[Any]:
        """Sum each stripe's rows into its coded rows (Algorithm 2, line 13).

        Parameters
        ----------
        stripes : array, shape (m, s, D)
            Whole stripes. They are independent: any block of stripes can be encoded anywhere.

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
        return Code, (self.G,)  # so that a copy is checked and read-only as well

    def __repr__(self) -> str:
        return f"Code(shards={self.shards}, learners={self.learners}, density={self.density:.3g})"


class Echelon:
    """Vectors in echelon form modulo a prime, to test whether another vector is independent of them."""

    def __init__(self, prime: int = _PRIMES[0]) -> None:
        self.prime = prime
        self._rows: list[tuple[int, NDArray[np.int64]]] = []

    def add(self, vector: NDArray[np.int64]) -> bool:
        """Add a vector if it is independent of the others, and return whether it was."""
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


def _has_full_rank(G: NDArray[np.int64]) -> bool:
    return any(all(echelon.add(column) for column in G.T) for echelon in map(Echelon, _PRIMES))


def _check_generator(G: ArrayLike) -> NDArray[np.int64]:
    try:
        matrix = np.array(G)
    except ValueError:
        raise InvalidSetting("G must be a matrix of integers: its rows have different lengths") from None
    if matrix.dtype.kind not in "iub" or matrix.ndim != 2 or not matrix.size:
        raise InvalidSetting(
            f"G must be a matrix of integers, shape (shards, learners), got shape {matrix.shape}, dtype {matrix.dtype}"
        )
    if (np.abs(matrix.astype(np.float64)).sum(axis=0) > MAX_COLUMN_SUM).any():
        raise InvalidSetting(
            f"the columns of |G| must sum to at most {MAX_COLUMN_SUM}, or features would keep fewer than 20 bits; "
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
    if not _has_full_rank(matrix):
        raise InvalidSetting(
            f"G must have full column rank {r}; with this G one learner's shard follows from the others'"
        )
    matrix.flags.writeable = False
    return matrix


def random_code(
    shards: int, learners: int, *, density: float | None = None, balanced: bool = True, random_state: Seed = None
) -> Code:
    """Draw a random binary code that meets the paper's two conditions (its RandMatrix).

    Parameters
    ----------
    shards : int
        Lanes, s.
    learners : int
        Weak learners, r <= s.
    density : float, optional
        Share of ones, rho: G has exactly ``round(density * s * r)`` of them. None is the minimum 1/r, one per lane,
        which makes unlearning cheapest: each row feeds one learner only.
    balanced : bool
        Whether all columns have the same number of ones (or one more), so that learners see equally many lanes. If
        False and ``density`` is None, the code has the distribution of the paper's own draw (each row of G a random
        unit vector, redrawn until the rank is full) without the redrawing, which takes too long for large s.
    random_state : int, Generator, RandomState or None
        The seed.

    Examples
    --------
    >>> random_code(20, 4, random_state=0)
    Code(shards=20, learners=4, density=0.25)
    >>> random_code(20, 4, density=0.5, random_state=0).G.sum(axis=0)
    array([10, 10, 10, 10])
    """
    s, r = whole_number("shards", shards), whole_number("learners", learners)
    balanced = flag("balanced", balanced)
    if r > s:
        raise InvalidSetting(f"learners must be at most shards, got learners={r}, shards={s}: G would lack full rank")
    ones = s if density is None else _count_ones(s, r, density)
    rng = as_generator(random_state)
    for attempt in range(1000):
        # Above the minimum density some column sums do not allow full rank (two columns of ones): draw again, and after
        # ten attempts with balanced sums, which do.
        even = balanced or attempt >= 10
        G = _cover(s, _even_sizes(s, r, rng) if even else _surjection_sizes(s, r, rng), rng)
        if ones == s:
            return Code(G)
        extra = _even_extra(G, ones, rng) if even else rng.multivariate_hypergeometric(s - G.sum(axis=0), ones - s)
        if (dense := _fill(G, extra, rng)) is not None:
            return Code(dense)
    raise InvalidSetting(  # pragma: no cover - not reached for any s <= 6 (tested exhaustively) nor seen above
        f"no code with shards={s}, learners={r}, density={density} was found; change the density a little"
    )


def _count_ones(s: int, r: int, density: float) -> int:
    share = as_float(density)
    if not 0 < share <= 1:
        raise InvalidSetting(f"density must be a number in (0, 1], got {density!r}")
    ones = round(share * s * r)
    if ones < s:
        raise InvalidSetting(
            f"density must be at least 1/learners = {1 / r:.4g}, one 1 for each of the {s} lanes, got {density}"
        )
    if ones > (most := s * r - (r - 1)):
        raise InvalidSetting(
            f"density must be at most {most / (s * r):.4g}, or G cannot have full column rank, got {density}"
        )
    return ones


def _even_sizes(s: int, r: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return column sums that differ by at most one, the larger ones at random positions."""
    return s // r + (rng.permutation(r) < s % r).astype(np.int64)


def _surjection_sizes(s: int, r: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the column sums of a uniform map of s rows onto all of r columns.

    Given that no column is empty, they are independent zero-truncated Poisson variables given that they sum to s
    (for any Poisson mean; the best one makes the expected sum s). About one draw in sqrt(2 pi s) has that sum, while
    redrawing rows until no column is empty succeeds with probability 3e-12 at s=300, r=150.
    """
    if s == r:
        return np.ones(r, dtype=np.int64)
    mean = _truncated_poisson_mean(s / r)
    while True:
        # A Poisson count given that it is not zero: the first event's time, given that there is one, then the rest.
        first = -np.log1p(rng.random(r) * np.expm1(-mean))
        sizes: NDArray[np.int64] = 1 + rng.poisson(np.maximum(mean - first, 0.0))
        if sizes.sum() == s:
            return sizes


def _truncated_poisson_mean(target: float) -> float:
    """Solve mean / (1 - exp(-mean)) = target by bisection: the left side grows with the mean."""
    low, high = 0.0, target
    for _ in range(80):
        mean = (low + high) / 2
        low, high = (mean, high) if mean < -target * math.expm1(-mean) else (low, mean)
    return high


def _cover(s: int, sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a matrix with one 1 per row and these column sums. Disjoint nonempty columns have full rank."""
    G = np.zeros((s, len(sizes)), dtype=np.int64)
    G[np.arange(s), rng.permutation(np.repeat(np.arange(len(sizes)), sizes))] = 1
    return G


def _even_extra(G: NDArray[np.int64], ones: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return how many ones to add to each column of G so that the column sums differ by at most one."""
    base = G.sum(axis=0)
    total = np.full(G.shape[1], ones // G.shape[1])
    order = np.lexsort((rng.random(G.shape[1]), -base))  # larger columns first, ties at random
    total[order[: ones % G.shape[1]]] += 1
    extra: NDArray[np.int64] = total - base
    return extra


def _fill(G: NDArray[np.int64], extra: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64] | None:
    """Add ``extra[j]`` ones to column j, redrawing each column until it is independent of those before it.

    The vectors of one weight span the whole space, so a dependent column is the exception. Return None if no choice is
    left (nearly square G): the caller starts again.
    """
    G = G.copy()
    basis = Echelon()
    for j in rng.permutation(G.shape[1]):
        free = np.flatnonzero(G[:, j] == 0)
        choices = 1 if extra[j] in (0, len(free)) else 20 * len(G)
        for _ in range(choices):
            column = G[:, j].copy()
            column[rng.choice(free, extra[j], replace=False)] = 1
            if basis.add(column):
                break
        else:
            return None
        G[:, j] = column
    return G
