"""Moments: Q'Q of a learner's coded rows Q, in exact integers: see `limbs`."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CapacityExceeded
from .arrays import Floats, cut
from .blas import add_gram, add_outer, add_outer_pair, pack, unpack
from .limbs import FLOAT_ROWS, INT_ROWS, Limbs, limb_scales, limb_type, slices
from .native import kernels, product_kernels
from .threads import stop_if_cancelled

_FEW_ROWS = 4  # up to this many rows, rank-one updates of the packed triangle are faster than dsyrk
_BUFFER_ROWS = 192  # minimum rows per product: fewer waste memory traffic
_STRIPES_PER_CALL = 48 * _BUFFER_ROWS  # stripes that are encoded and multiplied in one call, which Ctrl-C waits for


class TallyMemory:
    """Memory that tallies of one width use in turn: touching fresh memory takes longer than many products."""

    def __init__(self) -> None:
        self._sums: Floats | None = None
        self._rows: Floats | None = None
        self._square: Floats | None = None

    def sums(self, width: int) -> Floats:
        """Return zeros to sum products in, one triangle per limb.

        The native product kernels sum into packed triangles, (3, P), in new memory, because they become the limbs. BLAS
        sums into the upper triangles of squares, (3, w, w), which reuse the memory of the previous tally.
        """
        if product_kernels() is not None:
            return np.zeros((3, width * (width + 1) // 2))
        if self._sums is None or self._sums.shape[1] != width or (native := kernels()) is None:
            self._sums = np.zeros((3, width, width))
        else:
            native.clear(self._sums)
        return self._sums

    def rows(self, width: int) -> Floats:
        """Return memory for a block of coded rows and its slices: see `Column.add` of the extension."""
        if self._rows is None:
            native, m = product_kernels(), 2 * _BUFFER_ROWS
            self._rows = np.empty((4, m, width)) if native is None else native.room(m, width)
        return self._rows

    def square(self, width: int) -> Floats:
        """Return memory for the matrix of the ridge solve, (w, w); it may be that of the sums."""
        if self._square is None:
            self._square = np.empty((width, width)) if self._sums is None else self._sums[0]
        return self._square

    def wipe(self) -> None:
        """Overwrite the rows that were summed last."""
        if self._rows is not None:
            self._rows.fill(0.0)


class Tally:
    """The exact sum of q'q over coded rows q that are added and subtracted, in blocks."""

    def __init__(self, width: int, memory: TallyMemory | None = None) -> None:
        self.rows = self.coded_rows = 0  # added minus subtracted
        self.seen = 0  # coded rows added or subtracted
        self._width = width
        self._waiting: dict[int, list[Floats]] = {1: [], -1: []}  # by sign; dsyrk is slow on small blocks
        self._sums: Floats | None = None  # H'H, (H + L)'(H + L), L'L of the rows not folded yet: `TallyMemory.sums`
        self._summed_rows = 0
        self._folded_limbs: NDArray[np.int64] | None = None
        self._memory = TallyMemory() if memory is None else memory
        self._slice_buffer: Floats | None = None  # fresh memory for each block would cost more than the slices

    def add(self, coded: Floats, rows: int, *, sign: int = 1) -> None:
        """Add coded rows, which are sums of ``rows`` rows: (m, w), integers in floats, none above 2^36 in size."""
        stop_if_cancelled()
        self.rows += sign * rows
        self.coded_rows += sign * len(coded)
        self.seen += len(coded)
        if len(coded):
            self._waiting[sign].append(coded)
        if sum(map(len, self._waiting[sign])) >= _BUFFER_ROWS:
            self._flush(sign)

    def add_stripes(self, column: Any, table: tuple[Any, ...], shards: int, stripes: range) -> None:
        """Add a learner's coded rows from stripes of a table (X, y, live), which a native column encodes."""
        step = min(FLOAT_ROWS, _STRIPES_PER_CALL)
        for first in range(stripes.start, stripes.stop, step):
            stop_if_cancelled()
            last = min(first + step, stripes.stop)
            if self._summed_rows + last - first > FLOAT_ROWS:
                self._fold()
            coded, rows = column.add(*table, shards, first, last, self._accumulator(), self._memory.rows(self._width))
            self.rows, self.coded_rows, self.seen = self.rows + rows, self.coded_rows + coded, self.seen + coded
            self._summed_rows += coded

    def add_to(self, limbs: Limbs) -> None:
        """Add the products of all rows so far to limbs, in place."""
        if self.seen <= _FEW_ROWS and self._sums is None and self._folded_limbs is None:  # a deletion needs no matrices
            floats = limbs if limbs.dtype == np.float64 else np.zeros(limbs.shape)
            for sign, waiting in self._waiting.items():
                for coded in waiting:
                    _update(floats, coded, float(sign))
            if floats is not limbs:
                limbs += floats.astype(limbs.dtype)
            return
        limbs += self.limbs(limbs.dtype)

    def limbs(self, kind: "np.dtype[Any] | type[np.generic]", *, last: bool = False) -> Limbs:
        """Return the products of all rows so far as limbs of this type, which must hold them.

        After the ``last`` call no row may be added: the result can be the tally's own memory.
        """
        for sign in self._waiting:
            self._flush(sign)
        limbs: Limbs = self._pack_sums(last=last).astype(kind, copy=False)
        if self._folded_limbs is not None:
            limbs += self._folded_limbs
        return limbs

    def _flush(self, sign: int) -> None:
        waiting, self._waiting[sign] = self._waiting[sign], []
        if not waiting:
            return
        coded = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
        for start in range(0, len(coded), 2 * _BUFFER_ROWS):  # more rows would not fit the cache
            self._multiply(coded[start : start + 2 * _BUFFER_ROWS], float(sign))

    def _multiply(self, q: Floats, sign: float) -> None:
        if self._sums is not None and self._summed_rows + len(q) > FLOAT_ROWS:
            self._fold()
        self._summed_rows += len(q)
        if (native := product_kernels()) is not None:
            native.multiply(np.ascontiguousarray(q), sign, self._accumulator(), self._memory.rows(self._width))
            return
        for piece, total in zip(self._pieces(np.ascontiguousarray(q)), self._accumulator(), strict=True):
            add_gram(total, piece, sign)

    def _accumulator(self) -> Floats:
        if self._sums is None:
            self._sums = self._memory.sums(self._width)
        return self._sums

    def _pieces(self, q: Floats) -> Sequence[Floats]:
        """Return the slices h, h + l and l, each of which is multiplied by itself."""
        if (native := kernels()) is None:
            high, low = slices(q)
            return high, high + low, low
        if self._slice_buffer is None or self._slice_buffer.shape[1] < len(q):
            self._slice_buffer = np.empty((3, len(q), self._width))
        native.slices(q, self._slice_buffer)
        return [piece[: len(q)] for piece in self._slice_buffer]

    def _fold(self) -> None:
        """Move the float sums into integers, before they grow so large that float64 would round them."""
        limbs = self._pack_sums(last=True).astype(np.int64)
        self._folded_limbs = limbs if self._folded_limbs is None else self._folded_limbs + limbs
        self._sums, self._summed_rows = None, 0

    def _pack_sums(self, *, last: bool) -> Floats:
        """Return the float sums as limbs H'H, H'L + L'H, L'L; the ``last`` call may return the sums' own memory."""
        if self._sums is not None and (native := product_kernels()) is not None:
            limbs = self._sums if last else self._sums.copy()
            native.middle(limbs)
            return limbs
        if self._sums is not None and (native := kernels()) is not None:
            packed: Floats = native.packed(self._sums)
            return packed
        limbs = np.zeros((3, self._width * (self._width + 1) // 2))
        if self._sums is not None:
            for total, limb in zip(self._sums, limbs, strict=True):
                pack(total, limb)
            limbs[1] -= limbs[0]
            limbs[1] -= limbs[2]
        return limbs


def _update(limbs: Floats, coded: Floats, sign: float) -> None:
    """Add or subtract the products of a few coded rows, in place."""
    for high, low in zip(*slices(coded), strict=True):
        add_outer(limbs[0], high, sign)
        add_outer_pair(limbs[1], high, low, sign)
        add_outer(limbs[2], low, sign)


@dataclass(frozen=True, eq=False)
class Moments:
    """The exact sum of q'q over the coded rows q of one learner, and the number of rows in them."""

    limbs: Limbs  # (3, P): lower triangles of H'H, H'L + L'H, L'L, packed by columns
    rows: int  # rows, not coded rows
    coded_rows: int

    @classmethod
    def from_tallies(cls, first: Tally, *others: Tally, last: bool = False) -> "Moments":
        """Make moments from tallies. With ``last`` the first tally's memory is reused: it cannot be used again."""
        limbs = first.limbs(limb_type(sum(tally.seen for tally in (first, *others))), last=last)
        for tally in others:
            tally.add_to(limbs)
        rows, coded_rows = _count_rows(first, *others)
        return cls(limbs, rows, check_capacity(coded_rows))

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
        """Return SHA-256 of the counts and the limbs as little-endian int64."""
        hashed = hashlib.sha256(np.array([self.rows, self.coded_rows], dtype="<i8").tobytes())
        hashed.update(np.ascontiguousarray(self.limbs, dtype="<i8").data.cast("B"))
        return hashed.digest()

    def matrix(self, bits: int) -> Floats:
        """Return the lower triangle of Q'Q / 2^(2 bits) in float64, (w, w) in Fortran order; ignore the upper one.

        Each limb is rounded once and each sum once: the same bits on every machine.
        """
        scales = limb_scales(bits)
        if (native := kernels()) is not None:
            square: Floats = native.matrix(self.limbs, scales, self.width)
            return square.T
        packed = np.empty(self.limbs.shape[1])
        for block in cut(len(packed), 1):
            high, middle, low = (limb[block] * scale for limb, scale in zip(self.limbs, scales, strict=True))
            middle += low
            np.add(high, middle, out=packed[block])
        full = np.empty((self.width, self.width))
        unpack(packed, full)
        return full.T

    def apply(self, *changes: Tally) -> "Moments":
        """Return the moments with coded rows added and subtracted; rows that are subtracted must be in them."""
        # A partial sum has at most as many products as there were coded rows, plus those added or subtracted.
        limbs = self.limbs.astype(limb_type(self.coded_rows + sum(change.seen for change in changes)))  # a copy
        for change in changes:
            change.add_to(limbs)
        rows, coded_rows = _count_rows(*changes)
        return Moments(limbs, self.rows + rows, check_capacity(self.coded_rows + coded_rows))

    def plus(self, other: "Moments") -> "Moments":
        """Return the moments of the coded rows of both."""
        coded_rows = check_capacity(self.coded_rows + other.coded_rows)
        kind = limb_type(coded_rows)
        limbs = self.limbs.astype(kind) + other.limbs.astype(kind, copy=False)
        return Moments(limbs, self.rows + other.rows, coded_rows)

    def minus(self, other: "Moments") -> "Moments":
        """Return the moments without the coded rows of the other, all of which must be in these."""
        kind = limb_type(self.coded_rows)
        limbs = self.limbs.astype(kind) - other.limbs.astype(kind, copy=False)
        return Moments(limbs, self.rows - other.rows, self.coded_rows - other.coded_rows)

    def exchange_row(self, before: Floats, after: Floats, rows: int) -> "Moments":
        """Return the moments with one coded row replaced by another, either of which may be missing.

        They are (1, w), or (0, w) if missing; the new one has ``rows`` more rows in it (fewer, if negative).
        """
        native = kernels()
        if native is None:
            tally = Tally(self.width)
            tally.add(before, 0, sign=-1)
            tally.add(after, rows)
            return self.apply(tally)
        kind = limb_type(self.coded_rows + len(before) + len(after))
        limbs = native.exchanged(self.limbs, before, after, kind)
        return Moments(limbs, self.rows + rows, check_capacity(self.coded_rows + len(after) - len(before)))


@dataclass(frozen=True, eq=False)
class FloatMoments:
    """The sum of q'q over coded rows q, in rounded floats: a third of the work of `Moments`.

    For trials only, which choose settings and are thrown away. `ridge_weights` takes it in place of `Moments`.
    """

    total: Floats  # (w, w), the upper triangle

    @classmethod
    def from_coded_rows(cls, width: int, blocks: Iterable[Floats]) -> "FloatMoments":
        """Sum the products of coded rows, (m, w) integers in floats."""
        total = np.zeros((width, width))
        for rows in blocks:
            add_gram(total, np.ascontiguousarray(rows), 1.0)
        return cls(total)

    def __add__(self, other: "FloatMoments") -> "FloatMoments":
        return FloatMoments(self.total + other.total)

    def matrix(self, bits: int) -> Floats:
        """Return the lower triangle of Q'Q / 2^(2 bits), (w, w) in Fortran order; ignore the upper one."""
        return (self.total * 2.0 ** (-2 * bits)).T


def _count_rows(*tallies: Tally) -> tuple[int, int]:
    """Return the numbers of rows and of coded rows, those added minus those subtracted."""
    return sum(tally.rows for tally in tallies), sum(tally.coded_rows for tally in tallies)


def check_capacity(coded_rows: int) -> int:
    """Return the number of coded rows, or raise an error if limbs cannot hold that many exactly."""
    if coded_rows > INT_ROWS:
        raise CapacityExceeded(
            f"a learner can hold at most {INT_ROWS:,} coded rows exactly, got {coded_rows:,}; use more shards"
        )
    return coded_rows
