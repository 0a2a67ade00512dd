"""Drawing a code: random binary matrices that keep the paper's two conditions."""

import math

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting
from .codes import Code, Echelon
from .randomness import Seed, as_generator
from .values import as_float, flag, whole_number


def random_code(
    shards: int, learners: int, *, density: float | None = None, balanced: bool = True, random_state: Seed = None
) -> Code:
    """Draw a random binary code (the paper's RandMatrix, given its two conditions).

    Parameters
    ----------
    shards : int
        Lanes, s.
    learners : int
        Weak learners, r <= s.
    density : float, optional
        Share of ones, rho: exactly ``round(density * s * r)`` of them. None is the minimum 1/r, one per lane, which
        makes unlearning cheapest: a row is then in one learner only.
    balanced : bool
        Whether all columns have the same number of ones (or one more): learners see equally much. If False and
        ``density`` is None, the code has the distribution of the paper's own draw (each row of G a random unit vector,
        redrawn until the rank is full) without the redrawing, which never ends for large s.
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
    ones = s if density is None else _ones(s, r, density)
    rng = as_generator(random_state)
    for attempt in range(1000):
        # Above the minimum density a draw of column sums may allow no full rank (two columns of ones): draw again, and
        # after many times with balanced sums, which do.
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


def _ones(s: int, r: int, density: float) -> int:
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
    """Column sums that differ by at most one, the larger ones in random places."""
    return s // r + (rng.permutation(r) < s % r).astype(np.int64)


def _surjection_sizes(s: int, r: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Column sums of a uniform map of s rows onto all of r columns.

    Given that no column is empty, they are independent zero-truncated Poisson variables given that they sum to s
    (whatever the Poisson mean; the best one makes the expected sum s). That sum is hit about once in sqrt(2 pi s)
    draws, where redrawing rows until no column is empty succeeds with probability 3e-12 at s=300, r=150.
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
    """One 1 per row, in random rows, with these column sums. Disjoint nonempty columns have full rank."""
    G = np.zeros((s, len(sizes)), dtype=np.int64)
    G[np.arange(s), rng.permutation(np.repeat(np.arange(len(sizes)), sizes))] = 1
    return G


def _even_extra(G: NDArray[np.int64], ones: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many ones each column gets on top of G so that the sums differ by at most one in the end."""
    base = G.sum(axis=0)
    total = np.full(G.shape[1], ones // G.shape[1])
    order = np.lexsort((rng.random(G.shape[1]), -base))  # larger columns first, ties at random
    total[order[: ones % G.shape[1]]] += 1
    extra: NDArray[np.int64] = total - base
    return extra


def _fill(G: NDArray[np.int64], extra: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64] | None:
    """Add ``extra[j]`` ones to column j, each column redrawn until it does not depend on those before it.

    The vectors of one weight span the whole space, so a column that depends on the others is the exception; where no
    choice is left (nearly square G) the caller starts again.
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
