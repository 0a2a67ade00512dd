"""Moments: Q'Q of a learner's coded rows Q, in exact integers.

A coded row holds integers of up to 36 bits, so Q'Q needs more than 64. Each integer is cut into two slices,
q = h * 2^18 + l, and Q'Q = 2^36 H'H + 2^18 (H'L + L'H) + L'L is kept as three integer matrices, its limbs. Adding and
subtracting rows is adding and subtracting limbs: it commutes, and what was subtracted leaves no trace.

The limbs come from ordinary BLAS (`dsyrk`) on floats that hold integers: H'H, L'L and (H + L)'(H + L), whose difference
is the middle limb (Karatsuba's trick: three products instead of four). Why that is exact:

    |q| <= 2^36, h = rint(q / 2^18), l = q - h * 2^18   give   |h| <= 2^18, |l| <= 2^17, |h + l| <= 1.5 * 2^18.

A product of two entries is at most 2.25 * 2^36. Any partial sum over N coded rows, in whatever order and with
whatever signs, is an integer of at most 2.25 * 2^36 * N, which float64 holds exactly while it is at most 2^53, that is
for N <= 2^17 / 2.25 = 58,254. So at most that many rows are summed in floats before they are folded into int64. There
|H'H| <= 2^36 N and |H'L + L'H| <= 2 * 2^18 * 2^17 * N = 2^36 N, so int64 holds the limbs of fewer than 2^27 rows, and
float64 those of up to 2^17: while they are no more, the limbs are integers in floats, which spares a deletion the way
there and back.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dspr, dspr2

from ..errors import CapacityExceeded
from .arrays import Floats, cut
from .blas import add_gram, pack, unpack

SLICE_BITS = 18
CODED_BITS = 2 * SLICE_BITS  # |q| <= 2^36
FLOAT_ROWS = 2**53 * 4 // (9 * 2**CODED_BITS)  # 58,254: what a float64 accumulator can take
LIMB_ROWS = 2 ** (53 - CODED_BITS)  # 131,072: what limbs in float64 can take
INT_ROWS = 2 ** (63 - CODED_BITS) - 1  # what limbs in int64 can take

Limbs: TypeAlias = NDArray[Any]  # float64, or int64 where that does not hold them

_FEW_ROWS = 4  # up to here rank-one updates of the packed triangle are faster than dsyrk
_BUFFER_ROWS = 192  # rows a product, at least: fewer waste memory traffic


def feature_bits(heaviest: int) -> int:
    """F: features are integers of up to 2^F so that a coded row, ``heaviest`` of them, stays within 2^36."""
    return CODED_BITS - (heaviest - 1).bit_length()


@dataclass(frozen=True, eq=False)
class Moments:
    """The exact sum of q'q over the coded rows q of one learner, and the number of rows that are in them."""

    limbs: Limbs  # (3, P): lower triangles of H'H, H'L + L'H, L'L, packed by columns
    rows: int  # rows, not coded rows
    coded_rows: int

    @classmethod
    def zero(cls, width: int) -> "Moments":
        """The moments of no rows."""
        return cls(np.zeros((3, width * (width + 1) // 2)), 0, 0)

    @classmethod
    def of(cls, first: "Tally", *others: "Tally") -> "Moments":
        """The moments of coded rows that came."""
        limbs = first.limbs(_kind(sum(tally.seen for tally in (first, *others))))
        for tally in others:
            tally.add_to(limbs)
        rows, coded_rows = _counts(first, *others)
        return cls(limbs, rows, _held(coded_rows))

    @property
    def integers(self) -> NDArray[np.int64]:
        """The limbs as int64."""
        return self.limbs.astype(np.int64, copy=False)

    @property
    def width(self) -> int:
        """The number of columns of Q."""
        return (math.isqrt(8 * self.limbs.shape[1] + 1) - 1) // 2

    def __add__(self, other: "Moments") -> "Moments":
        limbs = self.integers + other.integers
        return Moments(limbs, self.rows + other.rows, _held(self.coded_rows + other.coded_rows))

    def __sub__(self, other: "Moments") -> "Moments":
        return Moments(self.integers - other.integers, self.rows - other.rows, self.coded_rows - other.coded_rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moments):
            return NotImplemented
        counts = (self.rows, self.coded_rows) == (other.rows, other.coded_rows)
        return counts and np.array_equal(self.integers, other.integers)

    __hash__ = None  # type: ignore[assignment]  # arrays inside: equal, but not hashable

    def to_bytes(self) -> bytes:
        """The canonical bytes: equal if and only if the moments are."""
        return b"".join(self._parts())

    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes."""
        hashed = hashlib.sha256()
        for part in self._parts():
            hashed.update(part)
        return hashed.digest()

    def _parts(self) -> tuple[bytes, memoryview]:
        counts = np.array([self.rows, self.coded_rows], dtype="<i8")
        return counts.tobytes(), np.ascontiguousarray(self.limbs, dtype="<i8").data.cast("B")

    def matrix(self, bits: int) -> Floats:
        """The lower triangle of Q'Q / 2^(2 bits) in float64, (w, w) in Fortran order; what is above it means nothing.

        Each limb is rounded once and each sum once: the same bits on every machine.
        """
        scales = [2.0 ** (SLICE_BITS * k - 2 * bits) for k in (2, 1, 0)]
        packed = np.empty(self.limbs.shape[1])
        for some in cut(len(packed), 1):
            high, middle, low = (limb[some] * scale for limb, scale in zip(self.limbs, scales, strict=True))
            middle += low
            np.add(high, middle, out=packed[some])
        full = np.empty((self.width, self.width))
        unpack(packed, full)
        return full.T

    def after(self, *changes: "Tally") -> "Moments":
        """The moments with coded rows added and subtracted; what is subtracted is in them, or is added as well."""
        # No partial sum has more products in it than rows that there were and rows that come or go.
        limbs = self.limbs.astype(_kind(self.coded_rows + sum(change.seen for change in changes)))  # a copy
        for change in changes:
            change.add_to(limbs)
        rows, coded_rows = _counts(*changes)
        return Moments(limbs, self.rows + rows, _held(self.coded_rows + coded_rows))


class Tally:
    """Coded rows that come and go, in blocks: their q'q is summed as they come, but for the last few."""

    def __init__(self, width: int) -> None:
        self.rows = self.coded_rows = 0  # that came, less those that went
        self.seen = 0  # coded rows that came or went
        self._width = width
        self._waiting: dict[int, list[Floats]] = {1: [], -1: []}  # by sign; small blocks make a slow dsyrk
        self._sums: Floats | None = None  # H'H, (H + L)'(H + L), L'L of the rows not folded yet, (3, w, w)
        self._summed = 0
        self._folded: NDArray[np.int64] | None = None

    def add(self, coded: Floats, rows: int, *, sign: int = 1) -> None:
        """Take coded rows, (m, w) integers in floats, none beyond 2^36, in which there are ``rows`` rows."""
        self.rows += sign * rows
        self.coded_rows += sign * len(coded)
        self.seen += len(coded)
        if len(coded):
            self._waiting[sign].append(coded)
        if sum(map(len, self._waiting[sign])) >= _BUFFER_ROWS:
            self._flush(sign)

    def add_to(self, limbs: Limbs) -> None:
        """Add it all to limbs, in place."""
        if self.seen <= _FEW_ROWS and self._sums is None and self._folded is None:  # a deletion: spare the matrices
            floats = limbs if limbs.dtype == np.float64 else np.zeros(limbs.shape)
            for sign, waiting in self._waiting.items():
                for coded in waiting:
                    _update(floats, coded, float(sign))
            if floats is not limbs:
                limbs += floats.astype(limbs.dtype)
            return
        limbs += self.limbs(limbs.dtype)

    def limbs(self, kind: "np.dtype[Any] | type[np.generic]") -> Limbs:
        """It all as limbs of this type, which holds them."""
        for sign in self._waiting:
            self._flush(sign)
        limbs: Limbs = self._packed().astype(kind, copy=False)
        if self._folded is not None:
            limbs += self._folded
        return limbs

    def _flush(self, sign: int) -> None:
        waiting, self._waiting[sign] = self._waiting[sign], []
        if not waiting:
            return
        coded = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
        for start in range(0, len(coded), 2 * _BUFFER_ROWS):  # more rows would leave the cache
            self._multiply(coded[start : start + 2 * _BUFFER_ROWS], float(sign))

    def _multiply(self, q: Floats, sign: float) -> None:
        if self._sums is not None and self._summed + len(q) > FLOAT_ROWS:
            self._fold()
        self._summed += len(q)
        high, low = _slices(np.ascontiguousarray(q))
        if self._sums is None:
            self._sums = np.zeros((3, self._width, self._width))
        for piece, total in zip((high, high + low, low), self._sums, strict=True):
            add_gram(total, piece, sign)

    def _fold(self) -> None:
        """Take the sums in floats over into integers, before they could be rounded."""
        limbs = self._packed().astype(np.int64)
        self._folded = limbs if self._folded is None else self._folded + limbs
        self._sums, self._summed = None, 0

    def _packed(self) -> Floats:
        """The sums in floats as limbs: H'H, H'L + L'H, L'L."""
        limbs = np.zeros((3, self._width * (self._width + 1) // 2))
        if self._sums is not None:
            for total, limb in zip(self._sums, limbs, strict=True):
                pack(total, limb)
            limbs[1] -= limbs[0]
            limbs[1] -= limbs[2]
        return limbs


def _update(limbs: Floats, coded: Floats, sign: float) -> None:
    """Add or subtract the products of a few coded rows, in place."""
    width = coded.shape[1]
    for high, low in zip(*_slices(coded), strict=True):
        dspr(width, sign, high, limbs[0], lower=1, overwrite_ap=1)
        dspr2(width, sign, high, low, limbs[1], lower=1, overwrite_ap=1)
        dspr(width, sign, low, limbs[2], lower=1, overwrite_ap=1)


def _slices(q: Floats) -> tuple[Floats, Floats]:
    """The two halves of integers: q = h * 2^18 + l."""
    high = q * 2.0**-SLICE_BITS
    np.rint(high, out=high)
    low = high * -(2.0**SLICE_BITS)
    low += q
    return high, low


def _kind(coded_rows: int) -> type[np.generic]:
    """What holds the limbs of this many coded rows."""
    return np.float64 if coded_rows <= LIMB_ROWS else np.int64


def _counts(*tallies: Tally) -> tuple[int, int]:
    """Rows and coded rows that came, less those that went."""
    return sum(tally.rows for tally in tallies), sum(tally.coded_rows for tally in tallies)


def _held(coded_rows: int) -> int:
    if coded_rows > INT_ROWS:
        raise CapacityExceeded(
            f"a learner can hold at most {INT_ROWS:,} coded rows exactly, got {coded_rows:,}; use more shards"
        )
    return coded_rows
