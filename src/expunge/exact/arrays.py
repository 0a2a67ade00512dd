"""Arrays: types used everywhere, blocks of rows that stay in cache, and sets of numbers.

Sets are made by sorting: since 2.3 NumPy's own functions hash, which takes many times as long for large arrays.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Slots: TypeAlias = NDArray[np.int64]
Part: TypeAlias = tuple[int, int]  # (k, n): the k-th of n shares of the work

WHOLE: Part = (0, 1)

# Numbers that a step works on at once: 1 MiB. More do not fit the cache; with fewer, threads wait for each other.
NUMBERS_PER_BLOCK = 2**17

_FEW = 64  # up to this many comparisons are faster than sorting
_WIDE = 16  # up to this many flags per number, a table of flags is faster than sorting
_Numbers = TypeVar("_Numbers", bound=np.generic)


def cut(rows: int, width: int, part: Part = WHOLE) -> Iterator[slice]:
    """Yield slices of rows of ``width`` numbers that fit the cache; ``part`` = (k, n) selects the k-th of n shares."""
    k, n = part
    first, last = rows * k // n, rows * (k + 1) // n
    step = max(1, NUMBERS_PER_BLOCK // max(1, width))
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def unsigned_zeros(values: Floats) -> Floats:
    """Return the values with 0.0 for -0.0: the two are equal, so no digest and no bound may distinguish them."""
    return values + 0.0


def unique(values: NDArray[_Numbers]) -> NDArray[_Numbers]:
    """Return the distinct values, sorted."""
    if len(values) < 2:
        return values
    values = np.sort(values)
    first = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first]


def isin(values: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of the values are among ``others``."""
    if values.size * others.size <= _FEW:  # most requests are about one person
        few: NDArray[np.bool_] = (values[:, None] == others).any(axis=1)
        return few
    if values.dtype.kind == "i" and int(others.max()) - int(others.min()) <= _WIDE * (values.size + others.size):
        return np.isin(values, others, kind="table")
    others = np.sort(others)
    place = others.searchsorted(values)
    place[place == len(others)] = 0
    found: NDArray[np.bool_] = others[place] == values
    return found
