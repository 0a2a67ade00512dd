"""Moments: Q'Q of a learner's coded rows Q, in exact integers: see `limbs`."""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import CapacityExceeded
from .arrays import Floats, cut
from .blas import unpack
from .limbs import INT_ROWS, Limbs, limb_scales, limb_type
from .native import kernels
from .tally import Tally


@dataclass(frozen=True, eq=False)
class Moments:
    """The exact sum of q'q over the coded rows q of one learner, and the number of rows that are in them."""

    limbs: Limbs  # (3, P): lower triangles of H'H, H'L + L'H, L'L, packed by columns
    rows: int  # rows, not coded rows
    coded_rows: int

    @classmethod
    def of(cls, first: Tally, *others: Tally, last: bool = False) -> "Moments":
        """The moments of coded rows that came; the ``last`` time that a tally is asked, its memory becomes theirs."""
        limbs = first.limbs(limb_type(sum(tally.seen for tally in (first, *others))), last=last)
        for tally in others:
            tally.add_to(limbs)
        rows, coded_rows = _counts(first, *others)
        return cls(limbs, rows, held(coded_rows))

    @property
    def integers(self) -> NDArray[np.int64]:
        """The limbs as int64."""
        return self.limbs.astype(np.int64, copy=False)

    @property
    def width(self) -> int:
        """The number of columns of Q."""
        return (math.isqrt(8 * self.limbs.shape[1] + 1) - 1) // 2

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moments):
            return NotImplemented
        counts = (self.rows, self.coded_rows) == (other.rows, other.coded_rows)
        return counts and np.array_equal(self.integers, other.integers)

    __hash__ = None  # type: ignore[assignment]  # arrays inside: equal, but not hashable

    def digest(self) -> bytes:
        """SHA-256 of the counts and the limbs as little-endian int64: equal if and only if the moments are."""
        hashed = hashlib.sha256(np.array([self.rows, self.coded_rows], dtype="<i8").tobytes())
        hashed.update(np.ascontiguousarray(self.limbs, dtype="<i8").data.cast("B"))
        return hashed.digest()

    def matrix(self, bits: int) -> Floats:
        """The lower triangle of Q'Q / 2^(2 bits) in float64, (w, w) in Fortran order; what is above it means nothing.

        Each limb is rounded once and each sum once: the same bits on every machine.
        """
        scales = limb_scales(bits)
        if (native := kernels()) is not None:
            square: Floats = native.matrix(self.limbs, scales, self.width)
            return square.T
        packed = np.empty(self.limbs.shape[1])
        for some in cut(len(packed), 1):
            high, middle, low = (limb[some] * scale for limb, scale in zip(self.limbs, scales, strict=True))
            middle += low
            np.add(high, middle, out=packed[some])
        full = np.empty((self.width, self.width))
        unpack(packed, full)
        return full.T

    def after(self, *changes: Tally) -> "Moments":
        """The moments with coded rows added and subtracted; what is subtracted is in them, or is added as well."""
        # No partial sum has more products in it than rows that there were and rows that come or go.
        limbs = self.limbs.astype(limb_type(self.coded_rows + sum(change.seen for change in changes)))  # a copy
        for change in changes:
            change.add_to(limbs)
        rows, coded_rows = _counts(*changes)
        return Moments(limbs, self.rows + rows, held(self.coded_rows + coded_rows))

    def plus(self, other: "Moments") -> "Moments":
        """The moments of the coded rows of both."""
        coded_rows = held(self.coded_rows + other.coded_rows)
        kind = limb_type(coded_rows)
        limbs = self.limbs.astype(kind) + other.limbs.astype(kind, copy=False)
        return Moments(limbs, self.rows + other.rows, coded_rows)

    def minus(self, other: "Moments") -> "Moments":
        """The moments without the coded rows of the other, all of which are in these."""
        kind = limb_type(self.coded_rows)
        limbs = self.limbs.astype(kind) - other.limbs.astype(kind, copy=False)
        return Moments(limbs, self.rows - other.rows, self.coded_rows - other.coded_rows)

    def exchanged(self, before: Floats, after: Floats, rows: int) -> "Moments":
        """The moments with one coded row in the place of another, (1, w) or none each, and so many rows more."""
        native = kernels()
        if native is None:
            tally = Tally(self.width)
            tally.add(before, 0, sign=-1)
            tally.add(after, rows)
            return self.after(tally)
        kind = limb_type(self.coded_rows + len(before) + len(after))
        limbs = native.exchanged(self.limbs, before, after, kind)
        return Moments(limbs, self.rows + rows, held(self.coded_rows + len(after) - len(before)))


def _counts(*tallies: Tally) -> tuple[int, int]:
    """Rows and coded rows that came, less those that went."""
    return sum(tally.rows for tally in tallies), sum(tally.coded_rows for tally in tallies)


def held(coded_rows: int) -> int:
    """So many coded rows, or an error if no limbs hold them exactly."""
    if coded_rows > INT_ROWS:
        raise CapacityExceeded(
            f"a learner can hold at most {INT_ROWS:,} coded rows exactly, got {coded_rows:,}; use more shards"
        )
    return coded_rows
