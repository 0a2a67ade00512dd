"""Limbs: how Q'Q of coded rows Q is kept in exact integers, and why it is exact.

A coded row holds integers of up to 36 bits, so Q'Q needs more than 64. Each integer is cut into two slices,
q = h * 2^18 + l, and Q'Q = 2^36 H'H + 2^18 (H'L + L'H) + L'L is kept as three integer matrices, its limbs. Adding and
subtracting rows is adding and subtracting limbs: it commutes, and what was subtracted leaves no trace.

The limbs come from ordinary BLAS (`dsyrk`) on integers in floats: H'H, L'L and (H + L)'(H + L), whose difference is the
middle limb (Karatsuba's trick: three products instead of four). On processors with AVX-512 `products.c` sums the same
products, faster than BLAS if coded rows are narrow. Why this is exact:

    |q| <= 2^36, h = rint(q / 2^18), l = q - h * 2^18   give   |h| <= 2^18, |l| <= 2^17, |h + l| <= 1.5 * 2^18.

A product of two entries is at most 2.25 * 2^36. Any partial sum over N coded rows, in whatever order and with
whatever signs, is an integer of at most 2.25 * 2^36 * N, which float64 holds exactly while it is at most 2^53, that is
for N <= 2^17 / 2.25 = 58,254. So at most that many rows are summed in floats before they are folded into int64. There
|H'H| <= 2^36 N and |H'L + L'H| <= 2 * 2^18 * 2^17 * N = 2^36 N, so int64 holds the limbs of fewer than 2^27 rows, and
float64 those of up to 2^17: up to there the limbs are kept as integers in floats, which saves a deletion two
conversions.
"""

from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats

SLICE_BITS = 18
CODED_BITS = 2 * SLICE_BITS  # |q| <= 2^36
FLOAT_ROWS = 2**53 * 4 // (9 * 2**CODED_BITS)  # 58,254: coded rows that a float64 accumulator sums exactly
LIMB_ROWS = 2 ** (53 - CODED_BITS)  # 131,072: coded rows whose limbs fit float64
INT_ROWS = 2 ** (63 - CODED_BITS) - 1  # coded rows whose limbs fit int64

Limbs: TypeAlias = NDArray[Any]  # (3, P), float64, or int64 if float64 cannot hold them


def feature_bits(heaviest: int) -> int:
    """Return F: features are integers of up to 2^F, so that a sum of ``heaviest`` of them stays within 2^36."""
    return CODED_BITS - (heaviest - 1).bit_length()


def slices(q: Floats) -> tuple[Floats, Floats]:
    """Return the two slices of integers, q = h * 2^18 + l."""
    high = q * 2.0**-SLICE_BITS
    np.rint(high, out=high)
    low = high * -(2.0**SLICE_BITS)
    low += q
    return high, low


@cache
def limb_scales(bits: int) -> Floats:
    """Return the factors, (3,), with which the limbs add up to Q'Q / 2^(2 bits): powers of two."""
    return np.array([2.0 ** (SLICE_BITS * k - 2 * bits) for k in (2, 1, 0)])


def limb_type(coded_rows: int) -> type[np.generic]:
    """Return the type that holds the limbs of this many coded rows."""
    return np.float64 if coded_rows <= LIMB_ROWS else np.int64
