"""Tally: the sum of q'q over coded rows that come and go, in blocks, without a rounding."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats
from .blas import add_gram, add_outer, add_outer_pair, pack
from .limbs import FLOAT_ROWS, Limbs, slices
from .native import kernels, multiplying
from .threads import go_on

_FEW_ROWS = 4  # up to here rank-one updates of the packed triangle are faster than dsyrk
_BUFFER_ROWS = 192  # rows per product, at least: fewer waste memory traffic
_AT_ONCE = 48 * _BUFFER_ROWS  # stripes that are encoded and multiplied in one call: Ctrl-C waits for no more


class Room:
    """Memory for one tally after another, all of one width: to touch fresh memory takes longer than many a product."""

    def __init__(self) -> None:
        self._sums: Floats | None = None
        self._rows: Floats | None = None
        self._square: Floats | None = None

    def sums(self, width: int) -> Floats:
        """Three triangles of zeros: packed, (3, P), which will be limbs; or where BLAS multiplies the upper ones of
        squares, (3, w, w), and those of the tally before are gone.
        """
        if multiplying() is not None:
            return np.zeros((3, width * (width + 1) // 2))
        if self._sums is None or self._sums.shape[1] != width or (native := kernels()) is None:
            self._sums = np.zeros((3, width, width))
        else:
            native.clear(self._sums)
        return self._sums

    def rows(self, width: int) -> Floats:
        """Memory for a block of coded rows and what is made of it: see `Column.add` of the extension."""
        if self._rows is None:
            native, m = multiplying(), 2 * _BUFFER_ROWS
            self._rows = np.empty((4, m, width)) if native is None else native.room(m, width)
        return self._rows

    def square(self, width: int) -> Floats:
        """A matrix for whoever solves, (w, w); if sums are in squares, they are gone then."""
        if self._square is None:
            self._square = np.empty((width, width)) if self._sums is None else self._sums[0]
        return self._square

    def wipe(self) -> None:
        """Overwrite the rows that came last."""
        if self._rows is not None:
            self._rows.fill(0.0)


class Tally:
    """Coded rows that come and go, in blocks: their q'q is summed as they come, but for the last few."""

    def __init__(self, width: int, room: Room | None = None) -> None:
        self.rows = self.coded_rows = 0  # that came, less those that went
        self.seen = 0  # coded rows that came or went
        self._width = width
        self._waiting: dict[int, list[Floats]] = {1: [], -1: []}  # by sign; small blocks make a slow dsyrk
        self._sums: Floats | None = None  # H'H, (H + L)'(H + L), L'L of the rows not folded yet: see `Room.sums`
        self._summed = 0
        self._folded: NDArray[np.int64] | None = None
        self._memory = Room() if room is None else room
        self._room: Floats | None = None  # for slices: fresh memory for each block would cost more than they do

    def add(self, coded: Floats, rows: int, *, sign: int = 1) -> None:
        """Take coded rows, (m, w) integers in floats, none beyond 2^36, in which there are ``rows`` rows."""
        go_on()
        self.rows += sign * rows
        self.coded_rows += sign * len(coded)
        self.seen += len(coded)
        if len(coded):
            self._waiting[sign].append(coded)
        if sum(map(len, self._waiting[sign])) >= _BUFFER_ROWS:
            self._flush(sign)

    def add_stripes(self, column: Any, table: tuple[Any, ...], shards: int, stripes: range) -> None:
        """Take a learner's coded rows of stripes of a table (X, y, live), which a native column encodes."""
        step = min(FLOAT_ROWS, _AT_ONCE)
        for first in range(stripes.start, stripes.stop, step):
            go_on()
            last = min(first + step, stripes.stop)
            if self._summed + last - first > FLOAT_ROWS:
                self._fold()
            coded, rows = column.add(*table, shards, first, last, self._accumulated(), self._memory.rows(self._width))
            self.rows, self.coded_rows, self.seen = self.rows + rows, self.coded_rows + coded, self.seen + coded
            self._summed += coded

    def add_to(self, limbs: Limbs) -> None:
        """Add the products of all rows so far to limbs, in place."""
        if self.seen <= _FEW_ROWS and self._sums is None and self._folded is None:  # a deletion: spare the matrices
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

        After the ``last`` call no row may come: what is returned can be the tally's own memory.
        """
        for sign in self._waiting:
            self._flush(sign)
        limbs: Limbs = self._packed(last=last).astype(kind, copy=False)
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
        if (native := multiplying()) is not None:
            native.multiply(np.ascontiguousarray(q), sign, self._accumulated(), self._memory.rows(self._width))
            return
        for piece, total in zip(self._pieces(np.ascontiguousarray(q)), self._accumulated(), strict=True):
            add_gram(total, piece, sign)

    def _accumulated(self) -> Floats:
        if self._sums is None:
            self._sums = self._memory.sums(self._width)
        return self._sums

    def _pieces(self, q: Floats) -> Sequence[Floats]:
        """The slices h, h + l and l: what is multiplied by itself."""
        if (native := kernels()) is None:
            high, low = slices(q)
            return high, high + low, low
        if self._room is None or self._room.shape[1] < len(q):
            self._room = np.empty((3, len(q), self._width))
        native.slices(q, self._room)
        return [piece[: len(q)] for piece in self._room]

    def _fold(self) -> None:
        """Take the sums in floats over into integers, before they could be rounded."""
        limbs = self._packed(last=True).astype(np.int64)
        self._folded = limbs if self._folded is None else self._folded + limbs
        self._sums, self._summed = None, 0

    def _packed(self, *, last: bool) -> Floats:
        """The sums in floats as limbs: H'H, H'L + L'H, L'L; the ``last`` time in their place, if they are packed."""
        if self._sums is not None and (native := multiplying()) is not None:
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
