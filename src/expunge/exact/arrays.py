"""Arrays: the types that every room speaks of, and how rows are cut into pieces that stay in cache."""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Slots: TypeAlias = NDArray[np.int64]
Part: TypeAlias = tuple[int, int]  # (k, n): the k-th of n shares of the work

WHOLE: Part = (0, 1)

# Numbers that a step works on at once: 1 MiB. More leave the cache; with fewer, threads wait for each other.
AT_ONCE = 2**17


def cut(rows: int, width: int, part: Part = WHOLE) -> Iterator[slice]:
    """Cut rows of ``width`` numbers into pieces that stay in cache; ``part`` = (k, n): only the k-th of n shares."""
    k, n = part
    first, last = rows * k // n, rows * (k + 1) // n
    step = max(1, AT_ONCE // max(1, width))
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def unsigned_zeros(values: Floats) -> Floats:
    """The values with 0.0 for -0.0: the two are equal, so no digest and no bound may tell them apart."""
    return values + 0.0
