"""Stores: what a model keeps of its rows. `Rows` keeps the rows themselves, `CodedStore` only the coded rows.

Every store returns a learner's coded rows, and those that a change touches, before and after it. A store changes only
in the function that `Store.prepare` returns, which only overwrites arrays and may be called again after an interrupt.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..encoding.codes import CodeColumn
from ..encoding.encoder import Encoder
from ..errors import InvalidInput
from ..exact.arrays import WHOLE, Floats, Integers, Part, Slots, cut, unsigned_zeros
from ..exact.moments import Moments
from .bits import Live
from .change import Change, TouchedRows

T = TypeVar("T", bound=np.generic)

# X, y, live and the first slot of the stripe; if that is -1, X and y have only the rows of the learner's lanes, and
# live says which of these lanes have a row.
Stripe: TypeAlias = tuple[Floats, Floats, NDArray[np.bool_], int]


@dataclass(frozen=True, eq=False)
class CodedBlock:
    """Some coded rows of one learner; empty ones are left out."""

    stripes: NDArray[np.intp]  # (m,)
    rows: Floats  # (m, width) integers in floats
    members: int  # number of rows in them

    @classmethod
    def from_stripes(cls, stripes: NDArray[np.intp], coded: Floats, live: NDArray[np.bool_]) -> "CodedBlock":
        """Make a block from coded rows of stripes, given which feeding lanes have a row: (m,), (m, width), (m, L)."""
        members = int(np.count_nonzero(live))
        if members < live.size:
            filled = live.any(axis=1)
            stripes, coded = stripes[filled], coded[filled]
        return cls(stripes, coded, members)


class Store(Protocol):
    """What a model keeps of its rows."""

    live: Live  # (slots,): which slots have a row; the slots fill whole stripes

    def shard(
        self, encoder: Encoder, learner: int, change: Change | None = None, part: Part = WHOLE
    ) -> Iterator[CodedBlock]:
        """Yield a learner's coded rows, as they are or as they will be after a change."""

    def touched_blocks(
        self, encoder: Encoder, learner: int, change: Change, part: Part = WHOLE
    ) -> Iterator[tuple[CodedBlock, CodedBlock]]:
        """Yield the coded rows that a change touches, before and after it."""

    def read_stripe(self, encoder: Encoder, learner: int, slot: int) -> Stripe | None:
        """Return the rows that share a learner's coded row with this slot, for its native column; None if not kept."""

    def table(self, encoder: Encoder) -> tuple[Floats, Floats, Live] | None:
        """Return X, y and live for a native column that reads rows in place; None if it cannot."""

    def stripes_per_block(self, encoder: Encoder) -> int | None:
        """Return how many stripes are best read together for all learners; None if each learner may read its own."""

    def sum_remotely(self, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        """Return every learner's moments over stripes if other machines sum them, else None; a change is sorted."""

    def read_stripes(self, shards: int, stripes: range, change: Change | None = None) -> "Rows":
        """Read the rows of some stripes into memory, as they are or as they will be after a sorted change."""

    def prepare(self, encoder: Encoder, change: Change) -> Callable[[], None]:
        """Prepare a change; the returned function carries it out, and may be called twice."""

    def grow(self, slots: int) -> Self:
        """Return a copy with this many slots."""

    def locate(self, slots: Slots, group: NDArray[np.intp], Z: Floats) -> Slots:
        """Return the slot of each row, passed as integers, given the slots of its group in order of arrival."""

    def as_rows(self) -> "Rows":
        """Return the rows themselves; a store that keeps none raises an error."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything that is kept, by name, for a file."""


def coded_floats(encoder: Encoder, shard: Iterable[CodedBlock]) -> tuple[Floats, Floats]:
    """Return a learner's coded rows and targets in the units of scaled rows: (m, n_weights), (m, t)."""
    coded = np.concatenate([np.empty((0, encoder.width)), *(block.rows for block in shard)])
    coded *= 2.0**-encoder.bits
    X, y = np.split(coded, [encoder.n_weights], axis=1)
    return X.copy(), y.copy()


def pad_rows(array: NDArray[T], rows: int) -> NDArray[T]:
    """Return the array with zero rows added up to ``rows``."""
    out = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    out[: len(array)] = array
    return out


class Rows:
    """The rows themselves, in slot order. X and y may be memory maps."""

    def __init__(self, X: Floats, y: Floats, live: Live) -> None:
        self.X, self.y, self.live = X, y, live  # (slots, d), (slots, t), (slots,)
        # Whether rows may be read in place; a subclass may override `take`.
        self._whole = type(self) is Rows and X.flags.c_contiguous and y.flags.c_contiguous

    def shard(
        self, encoder: Encoder, learner: int, change: Change | None = None, part: Part = WHOLE
    ) -> Iterator[CodedBlock]:
        column = encoder.code.columns[learner]
        touch = TouchedRows.from_change(encoder.code, learner, change)
        for block in cut(len(self.live) // encoder.code.shards, len(column.lanes) * encoder.width, part):
            stripes = np.arange(block.start, block.stop)
            slots = stripes[:, None] * encoder.code.shards + column.lanes
            live, in_block = self.live[slots], touch.restrict(block)
            live[in_block.index] = False  # a row that is replaced is not read: if a bound moved, it may be far outside
            coded = self._encode(encoder, column, slots, live[None], change, in_block)[-1]
            live[in_block.index] = change is not None and not change.erases
            yield CodedBlock.from_stripes(stripes, coded, live)

    def touched_blocks(
        self, encoder: Encoder, learner: int, change: Change, part: Part = WHOLE
    ) -> Iterator[tuple[CodedBlock, CodedBlock]]:
        column = encoder.code.columns[learner]
        stripes, touch = TouchedRows.from_change(encoder.code, learner, change).group_by_stripe()
        for block in cut(len(stripes), len(column.lanes) * encoder.width, part):
            touched = stripes[block]
            slots = touched[:, None] * encoder.code.shards + column.lanes
            in_block, live = touch.restrict(block), self.live[slots]
            kept = live.copy()
            kept[in_block.index] = False
            before, after = self._encode(encoder, column, slots, np.stack([live, kept]), change, in_block)
            kept[in_block.index] = not change.erases
            yield CodedBlock.from_stripes(touched, before, live), CodedBlock.from_stripes(touched, after, kept)

    def read_stripe(self, encoder: Encoder, learner: int, slot: int) -> Stripe:
        first = slot - slot % len(encoder.code.G)
        if self._whole and encoder.plain:
            return self.X, self.y, self.live, first
        slots = first + encoder.code.columns[learner].lanes
        live = self.live[slots]
        X, y = self.take(slots[live])
        return *encoder.column_inputs(X, y), live, -1

    def table(self, encoder: Encoder) -> tuple[Floats, Floats, Live] | None:
        return (self.X, self.y, self.live) if self._whole and encoder.plain else None

    def stripes_per_block(self, encoder: Encoder) -> int | None:
        return None

    def sum_remotely(self, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        return None

    def read_stripes(self, shards: int, stripes: range, change: Change | None = None) -> "Rows":
        first, last = stripes.start * shards, stripes.stop * shards
        live = self.live[first:last].copy()
        local_change = None if change is None else change.restrict(first, last)
        if local_change is not None:
            live[local_change.slots - first] = False  # a row that is replaced is not read: see `shard`
        X, y = np.zeros((last - first, self.X.shape[1])), np.zeros((last - first, self.y.shape[1]))
        X[live], y[live] = self.take(first + np.flatnonzero(live))
        if local_change is not None and local_change.X is not None and local_change.y is not None:
            at = local_change.slots - first
            X[at], y[at], live[at] = local_change.X, local_change.y, True
        return Rows(X, y, live)

    def _encode(
        self,
        encoder: Encoder,
        column: CodeColumn,
        slots: Slots,
        row_sets: NDArray[np.bool_],
        change: Change | None,
        touch: TouchedRows,
    ) -> Sequence[Floats]:
        """Return coded rows, (m, width), for each of ``row_sets``, (sets, m, L), of which the first contains the
        others; the new rows of a change are added to the last.
        """
        first = row_sets[0]
        if encoder.native is not None:
            owner, lane = first.nonzero()
            weights = row_sets[:, first] * column.floats[lane]
            sums = encoder.encode(*self.take(slots[first]), owner, weights, len(slots))
            if change is not None and change.X is not None and change.y is not None:
                X, y, weights = change.X[touch.indices], change.y[touch.indices], column.floats[None, touch.lane]
                sums[-1] += encoder.encode(X, y, touch.stripe, weights, len(slots))[0]
            return tuple(sums)
        Z = self.integers(encoder, slots, first)
        if change is None:
            return [column.sum(Z)]
        before = [column.sum(Z).copy()] if len(row_sets) > 1 else []  # a copy: with one lane the sum is Z itself
        Z[touch.index] = change.integers(encoder, touch.indices)
        return [*before, column.sum(Z)]

    def integers(self, encoder: Encoder, slots: Slots, live: NDArray[np.bool_]) -> Floats:
        """Return the rows in these slots as integers, zero in empty slots: (m, L), (m, L) -> (m, L, width)."""
        if np.count_nonzero(live) == live.size:
            return encoder.integers(*self.take(slots.ravel())).reshape(*slots.shape, -1)
        Z = np.zeros((*slots.shape, encoder.width))
        Z[live] = encoder.integers(*self.take(slots[live]))
        return Z

    def sweep(self, change: Change | None = None) -> Iterator[tuple[Floats, Floats]]:
        """Yield all rows in blocks, as they are or as they will be after a change."""
        live = self.live
        if change is not None:
            live = live.copy()
            live[change.slots] = False
        for block in cut(len(live), self.X.shape[1] + self.y.shape[1]):
            yield self.take(block.start + np.flatnonzero(live[block]))
        if change is not None and change.X is not None and change.y is not None:
            yield change.X, change.y

    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        """Return the rows in these slots, which must have one: (k,) -> (k, d), (k, t). All reads of rows go here."""
        return self.X.take(slots, axis=0), self.y.take(slots, axis=0)  # faster than indexing for few rows

    def prepare(self, encoder: Encoder, change: Change) -> Callable[[], None]:
        return lambda: self.commit(change)

    def commit(self, change: Change) -> None:
        """Carry out a change."""
        slots: Any = change.slots if len(change.slots) != 1 else int(change.slots[0])  # much faster for one slot
        self.X[slots] = 0.0 if change.X is None else change.X
        self.y[slots] = 0.0 if change.y is None else change.y
        self.live[slots] = not change.erases

    def grow(self, slots: int) -> Self:
        return type(self)(pad_rows(self.X, slots), pad_rows(self.y, slots), pad_rows(self.live, slots))

    @classmethod
    def place(cls, X: Floats, y: Floats, slots: Slots, room: int) -> Self:
        """Put rows into their slots, of ``room`` slots in all."""
        rows = cls(np.zeros((room, X.shape[1])), np.zeros((room, y.shape[1])), np.zeros(room, dtype=np.bool_))
        for block in cut(len(X), X.shape[1] + y.shape[1]):
            rows.commit(Change(slots[block], unsigned_zeros(X[block]), unsigned_zeros(y[block])))
        return rows

    def locate(self, slots: Slots, group: NDArray[np.intp], Z: Floats) -> Slots:
        return slots

    def as_rows(self) -> "Rows":
        return self

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"X": self.X, "y": self.y, "live": self.live}


FINGERPRINT_BYTES = 16


class CodedStore:
    """The coded rows (the paper's output of Algorithm 1) and a keyed fingerprint of each row: the paper's own setting.

    To unlearn a row the caller has to pass it; its fingerprint shows that it is the row that was learned.
    """

    def __init__(self, q: Integers, prints: NDArray[np.uint8], live: NDArray[np.bool_], key: bytes) -> None:
        self.q, self.prints, self.live, self.key = q, prints, live, key  # (r, stripes, width), (slots, 16), (slots,)

    @classmethod
    def encode(cls, encoder: Encoder, rows: Rows, key: bytes) -> Self:
        """Encode rows, a block of stripes at a time, without keeping any."""
        code = encoder.code
        stripes = len(rows.live) // code.shards
        q = np.empty((code.learners, stripes, encoder.width), dtype=np.int64)
        store = cls(q, np.zeros((len(rows.live), FINGERPRINT_BYTES), dtype=np.uint8), rows.live.copy(), key)
        for block in cut(stripes, code.shards * encoder.width):
            slots = np.arange(block.start * code.shards, block.stop * code.shards).reshape(-1, code.shards)
            live = rows.live[slots]
            Z = rows.integers(encoder, slots, live)
            q[:, block] = code.encode(Z)
            store.prints[slots[live]] = store.fingerprints(Z[live])
        return store

    def fingerprints(self, Z: Floats) -> NDArray[np.uint8]:
        """Return a keyed hash of each row's integers: (n, width) -> (n, 16)."""
        rows = Z.astype("<i8")
        hashes = [hashlib.blake2b(row.tobytes(), digest_size=FINGERPRINT_BYTES, key=self.key).digest() for row in rows]
        return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(len(Z), FINGERPRINT_BYTES)

    def locate(self, slots: Slots, group: NDArray[np.intp], Z: Floats) -> Slots:
        """Return the slot of each row, by its fingerprint among those of its group; refuse if one does not match."""
        kept, passed = self.prints[slots].view("<u8"), self.fingerprints(Z).view("<u8")  # (n, 2)
        kept_order, passed_order = (np.lexsort((p[:, 1], p[:, 0], group)) for p in (kept, passed))
        if not np.array_equal(kept[kept_order], passed[passed_order]):
            raise InvalidInput("these are not exactly the rows that were learned under these ids; nothing was changed")
        matched = np.empty_like(slots)
        matched[passed_order] = slots[kept_order]
        return matched

    def shard(
        self, encoder: Encoder, learner: int, change: Change | None = None, part: Part = WHOLE
    ) -> Iterator[CodedBlock]:
        touch = TouchedRows.from_change(encoder.code, learner, change)
        lanes = encoder.code.lanes_of(learner)
        for block in cut(self.q.shape[1], encoder.width, part):
            q, live = self.q[learner, block].astype(np.float64), self._members()[block][:, lanes]
            if change is not None:
                in_block = touch.restrict(block)
                self._add(encoder, learner, q, change, in_block)
                live[in_block.index] = not change.erases
            yield CodedBlock.from_stripes(np.arange(block.start, block.stop), q, live)

    def touched_blocks(
        self, encoder: Encoder, learner: int, change: Change, part: Part = WHOLE
    ) -> Iterator[tuple[CodedBlock, CodedBlock]]:
        stripes, touch = TouchedRows.from_change(encoder.code, learner, change).group_by_stripe()
        lanes = encoder.code.lanes_of(learner)
        for block in cut(len(stripes), encoder.width, part):
            touched = stripes[block]
            q, live = self.q[learner, touched].astype(np.float64), self._members()[np.ix_(touched, lanes)]
            before = CodedBlock.from_stripes(touched, q.copy(), live)
            in_block = touch.restrict(block)
            self._add(encoder, learner, q, change, in_block)
            live[in_block.index] = not change.erases
            yield before, CodedBlock.from_stripes(touched, q, live)

    def read_stripe(self, encoder: Encoder, learner: int, slot: int) -> None:
        return None

    def table(self, encoder: Encoder) -> None:
        return None

    def stripes_per_block(self, encoder: Encoder) -> None:
        return None

    def sum_remotely(self, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        return None

    def read_stripes(self, shards: int, stripes: range, change: Change | None = None) -> Rows:
        return self.as_rows()

    def _members(self) -> NDArray[np.bool_]:
        return self.live.reshape(self.q.shape[1], -1)  # (stripes, s)

    @staticmethod
    def _add(encoder: Encoder, learner: int, q: Floats, change: Change, touch: TouchedRows) -> None:
        """Add a change to coded rows (Algorithm 3, lines 12 and 13, for new and old rows)."""
        difference = change.integers(encoder, touch.indices)
        if change.old is not None:
            difference -= change.old[touch.indices]
        difference *= encoder.code.columns[learner].weights[touch.lane][:, None]
        np.add.at(q, touch.stripe, difference)

    def prepare(self, encoder: Encoder, change: Change) -> Callable[[], None]:
        all_rows = np.arange(len(change.slots))
        prints = 0 if change.erases else self.fingerprints(change.integers(encoder, all_rows))
        writes = []
        for learner in range(encoder.code.learners):
            stripes, touch = TouchedRows.from_change(encoder.code, learner, change).group_by_stripe()
            q = self.q[learner, stripes].astype(np.float64)
            self._add(encoder, learner, q, change, touch)
            writes.append((learner, stripes, q.astype(np.int64)))

        def commit() -> None:
            for learner, stripes, after in writes:
                self.q[learner, stripes] = after
            self.prints[change.slots] = prints
            self.live[change.slots] = not change.erases

        return commit

    def grow(self, slots: int) -> Self:
        shards = len(self.live) // self.q.shape[1]
        q = pad_rows(self.q.swapaxes(0, 1), slots // shards).swapaxes(0, 1).copy()
        return type(self)(q, pad_rows(self.prints, slots), pad_rows(self.live, slots), self.key)

    def as_rows(self) -> Rows:
        raise InvalidInput("keep='coded' keeps no rows: pass them")

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"q": self.q, "prints": self.prints, "live": self.live}
