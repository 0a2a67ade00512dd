"""Limbs: how Q'Q of coded rows Q is kept in exact integers, and why it is exact.

A coded row holds integers of up to 36 bits, so Q'Q needs more than 64. Each integer is cut into two slices,
q = h * 2^18 + l, and Q'Q = 2^36 H'H + 2^18 (H'L + L'H) + L'L is kept as three integer matrices, its limbs. Adding and
subtracting rows is adding and subtracting limbs: it commutes, and what was subtracted leaves no trace.

The limbs come from ordinary BLAS (`dsyrk`) on floats that hold integers: H'H, L'L and (H + L)'(H + L), whose difference
is the middle limb (Karatsuba's trick: three products instead of four). On processors with AVX-512 `products.c` sums the
same products, faster than BLAS where a coded row is narrow. Why that is exact:

    |q| <= 2^36, h = rint(q / 2^18), l = q - h * 2^18   give   |h| <= 2^18, |l| <= 2^17, |h + l| <= 1.5 * 2^18.

A product of two entries is at most 2.25 * 2^36. Any partial sum over N coded rows, in whatever order and with
whatever signs, is an integer of at most 2.25 * 2^36 * N, which float64 holds exactly while it is at most 2^53, that is
for N <= 2^17 / 2.25 = 58,254. So at most that many rows are summed in floats before they are folded into int64. There
|H'H| <= 2^36 N and |H'L + L'H| <= 2 * 2^18 * 2^17 * N = 2^36 N, so int64 holds the limbs of fewer than 2^27 rows, and
float64 those of up to 2^17: while they are no more, the limbs are integers in floats, which spares a deletion the way
there and back.
"""

from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats

SLICE_BITS = 18
CODED_BITS = 2 * SLICE_BITS  # |q| <= 2^36
FLOAT_ROWS = 2**53 * 4 // (9 * 2**CODED_BITS)  # 58,254: what a float64 accumulator can take
LIMB_ROWS = 2 ** (53 - CODED_BITS)  # 131,072: what limbs in float64 can take
INT_ROWS = 2 ** (63 - CODED_BITS) - 1  # what limbs in int64 can take

Limbs: TypeAlias = NDArray[Any]  # (3, P), float64, or int64 where that does not hold them


def feature_bits(heaviest: int) -> int:
    """F: features are integers of up to 2^F so that a coded row, ``heaviest`` of them, stays within 2^36."""
    return CODED_BITS - (heaviest - 1).bit_length()


def slices(q: Floats) -> tuple[Floats, Floats]:
    """The two slices of integers: q = h * 2^18 + l."""
    high = q * 2.0**-SLICE_BITS
    np.rint(high, out=high)
    low = high * -(2.0**SLICE_BITS)
    low += q
    return high, low


@cache
def limb_scales(bits: int) -> Floats:
    """What the limbs are multiplied by, (3,), to be summed to Q'Q / 2^(2 bits): powers of two."""
    return np.array([2.0 ** (SLICE_BITS * k - 2 * bits) for k in (2, 1, 0)])


def limb_type(coded_rows: int) -> type[np.generic]:
    """The type that holds the limbs of this many coded rows."""
    return np.float64 if coded_rows <= LIMB_ROWS else np.int64
