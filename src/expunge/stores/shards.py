"""Shards: from rows in their slots to the coded rows that a learner sees.

An `Encoder` turns a row into integers. A store holds what is kept of the rows: `Rows` the rows themselves, `Coded` only
the coded rows, which is the paper's own setting. Both answer the same two questions: what are a learner's coded rows,
and what were and will be those that a `Change` touches. A store changes only in the function that `prepare` returns,
which does nothing but plain stores and may be called twice: whoever is interrupted calls it again.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..encoding.bounds import Bounds
from ..encoding.codes import Code
from ..encoding.features import FeatureMap
from ..errors import InvalidInput
from ..exact.arrays import WHOLE, Floats, Integers, Part, Slots, cut, unsigned_zeros
from ..exact.moments import feature_bits

T = TypeVar("T", bound=np.generic)

PRINT_BYTES = 16  # of a row's fingerprint


@dataclass(frozen=True, eq=False)
class Encoder:
    """All that it takes to turn a row into integers: scale, map to features, put on a grid. Knows no row."""

    code: Code
    features: FeatureMap
    inputs: Bounds
    targets: Bounds
    intercept: bool

    @cached_property
    def bits(self) -> int:
        """F: a feature phi becomes the integer rint(phi * 2^F)."""
        return feature_bits(self.code.heaviest)

    @cached_property
    def n_targets(self) -> int:
        """Columns of y, t."""
        return len(self.targets.low)

    @cached_property
    def n_weights(self) -> int:
        """Columns of a coded row that a learner weighs: D features and, with an intercept, the ones."""
        return self.features.n_out + self.intercept

    @cached_property
    def width(self) -> int:
        """Columns of a coded row: features, ones, targets."""
        return self.n_weights + self.n_targets

    def integers(self, X: Floats, y: Floats) -> Floats:
        """Rows as integers in floats, (n, d) and (n, t) -> (n, width). No entry exceeds 2^F."""
        Z = np.empty((len(X), self.width))
        for block in cut(len(X), self.width):
            self._fill(Z[block], X[block], y[block])
        return Z

    def _fill(self, Z: Floats, X: Floats, y: Floats) -> None:
        p, unit = self.n_weights, 2.0**self.bits
        np.rint(self.features.map_block(self.inputs.scale(X), unit), out=Z[:, : p - self.intercept])
        if self.intercept:
            Z[:, p - 1] = unit
        np.rint(self.targets.scale(y) * unit, out=Z[:, p:])


@dataclass(frozen=True, eq=False)
class Change:
    """Rows to be replaced, in their slots. Without new rows, they go."""

    slots: Slots  # (k,), each once
    X: Floats | None = None  # (k, d), the new rows
    y: Floats | None = None  # (k, t)
    old: Floats | None = None  # (k, width), the integers of the rows that are there, for a store that has only sums

    @property
    def erases(self) -> bool:
        """Whether the rows go."""
        return self.X is None

    def integers(self, encoder: Encoder, which: NDArray[np.intp]) -> Floats:
        """These of the new rows as integers; zeros if the rows go."""
        if self.X is None or self.y is None:
            return np.zeros((len(which), encoder.width))
        return encoder.integers(self.X[which], self.y[which])


@dataclass(frozen=True, eq=False)
class CodedBlock:
    """A few coded rows of one learner; those without any row in them are left out."""

    stripes: NDArray[np.intp]  # (m,)
    rows: Floats  # (m, width) integers in floats
    members: int  # how many rows are in them

    @classmethod
    def of(cls, stripes: NDArray[np.intp], coded: Floats, live: NDArray[np.bool_]) -> "CodedBlock":
        """Coded rows of these stripes, and which of the feeding lanes have a row: (m, width), (m, L)."""
        members = int(np.count_nonzero(live))
        if members < live.size:
            filled = live.any(axis=1)
            stripes, coded = stripes[filled], coded[filled]
        return cls(stripes, coded, members)


class Store(Protocol):
    """What is kept of the rows."""

    live: NDArray[np.bool_]  # (slots,): which slots have a row; the slots fill whole stripes

    def shard(
        self, encoder: Encoder, learner: int, change: Change | None = None, part: Part = WHOLE
    ) -> Iterator[CodedBlock]:
        """A learner's coded rows, as they are or as they will be after a change."""

    def touched(
        self, encoder: Encoder, learner: int, change: Change, part: Part = WHOLE
    ) -> Iterator[tuple[CodedBlock, CodedBlock]]:
        """The coded rows that a change touches, before and after it."""

    def prepare(self, encoder: Encoder, change: Change) -> Callable[[], None]:
        """Get ready to carry out a change; the function returned does it, and may be called twice."""

    def grown(self, slots: int) -> Self:
        """A copy with room for more slots."""


class Rows:
    """The rows themselves, in slot order. X and y may be memory maps."""

    def __init__(self, X: Floats, y: Floats, live: NDArray[np.bool_]) -> None:
        self.X, self.y, self.live = X, y, live  # (slots, d), (slots, t), (slots,)

    def shard(
        self, encoder: Encoder, learner: int, change: Change | None = None, part: Part = WHOLE
    ) -> Iterator[CodedBlock]:
        column = encoder.code.columns[learner]
        touch = Touch.of(encoder.code, learner, change)
        for block in cut(len(self.live) // encoder.code.shards, len(column.lanes) * encoder.width, part):
            stripes = np.arange(block.start, block.stop)
            slots = stripes[:, None] * encoder.code.shards + column.lanes
            live, here = self.live[slots], touch.within(block)
            live[here.at] = False  # a row that goes is not read: where a bound moved, it may be far outside
            Z = self.integers(encoder, slots, live)
            if change is not None:
                _replace(encoder, Z, live, change, here)
            yield CodedBlock.of(stripes, column.sum(Z), live)

    def touched(
        self, encoder: Encoder, learner: int, change: Change, part: Part = WHOLE
    ) -> Iterator[tuple[CodedBlock, CodedBlock]]:
        column = encoder.code.columns[learner]
        stripes, touch = Touch.of(encoder.code, learner, change).by_stripe()
        for block in cut(len(stripes), len(column.lanes) * encoder.width, part):
            some = stripes[block]
            slots = some[:, None] * encoder.code.shards + column.lanes
            live = self.live[slots]
            Z = self.integers(encoder, slots, live)
            before = CodedBlock.of(some, column.sum(Z).copy(), live)  # a copy: with one lane the sum is Z itself
            _replace(encoder, Z, live, change, touch.within(block))
            yield before, CodedBlock.of(some, column.sum(Z), live)

    def integers(self, encoder: Encoder, slots: Slots, live: NDArray[np.bool_]) -> Floats:
        """The rows in these slots as integers, zero where none is live: (m, L), (m, L) -> (m, L, width)."""
        if np.count_nonzero(live) == live.size:
            return encoder.integers(*self.take(slots.ravel())).reshape(*slots.shape, -1)
        Z = np.zeros((*slots.shape, encoder.width))
        Z[live] = encoder.integers(*self.take(slots[live]))
        return Z

    def sweep(self, change: Change | None = None) -> Iterator[tuple[Floats, Floats]]:
        """All rows, a block at a time, as they are or as they will be after a change."""
        live = self.live
        if change is not None:
            live = live.copy()
            live[change.slots] = False
        for block in cut(len(live), self.X.shape[1] + self.y.shape[1]):
            yield self.take(block.start + np.flatnonzero(live[block]))
        if change is not None and change.X is not None and change.y is not None:
            yield change.X, change.y

    def take(self, slots: Slots) -> tuple[Floats, Floats]:
        """The rows in slots that have one: (k,) -> (k, d), (k, t). Every row that is read is read here."""
        return self.X[slots], self.y[slots]

    def prepare(self, encoder: Encoder, change: Change) -> Callable[[], None]:
        return lambda: self.commit(change)

    def commit(self, change: Change) -> None:
        """Carry a change out."""
        self.X[change.slots] = 0.0 if change.X is None else change.X
        self.y[change.slots] = 0.0 if change.y is None else change.y
        self.live[change.slots] = not change.erases

    def grown(self, slots: int) -> Self:
        return type(self)(_padded(self.X, slots), _padded(self.y, slots), _padded(self.live, slots))

    @classmethod
    def place(cls, X: Floats, y: Floats, slots: Slots, room: int) -> Self:
        """Rows put into their slots, of which there are ``room``."""
        rows = cls(np.zeros((room, X.shape[1])), np.zeros((room, y.shape[1])), np.zeros(room, dtype=np.bool_))
        for block in cut(len(X), X.shape[1] + y.shape[1]):
            rows.commit(Change(slots[block], unsigned_zeros(X[block]), unsigned_zeros(y[block])))
        return rows


class Coded:
    """Only the coded rows (the paper's output of Algorithm 1) and a keyed fingerprint of each row.

    A row that is to be unlearned has to be brought along; its fingerprint shows that it is the one that was learned.
    """

    def __init__(self, q: Integers, prints: NDArray[np.uint8], live: NDArray[np.bool_], key: bytes) -> None:
        self.q, self.prints, self.live, self.key = q, prints, live, key  # (r, stripes, width), (slots, 16), (slots,)

    @classmethod
    def of(cls, encoder: Encoder, rows: Rows, key: bytes) -> Self:
        """Encode rows, a block of stripes at a time, and keep none of them."""
        code = encoder.code
        stripes = len(rows.live) // code.shards
        q = np.empty((code.learners, stripes, encoder.width), dtype=np.int64)
        store = cls(q, np.zeros((len(rows.live), PRINT_BYTES), dtype=np.uint8), rows.live.copy(), key)
        for block in cut(stripes, code.shards * encoder.width):
            slots = np.arange(block.start * code.shards, block.stop * code.shards).reshape(-1, code.shards)
            live = rows.live[slots]
            Z = rows.integers(encoder, slots, live)
            q[:, block] = code.encode(Z)
            store.prints[slots[live]] = store.fingerprints(Z[live])
        return store

    def fingerprints(self, Z: Floats) -> NDArray[np.uint8]:
        """A keyed hash of each row's integers: (n, width) -> (n, 16)."""
        rows = Z.astype("<i8")
        hashes = [hashlib.blake2b(row.tobytes(), digest_size=PRINT_BYTES, key=self.key).digest() for row in rows]
        return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(len(Z), PRINT_BYTES)

    def match(self, slots: Slots, group: NDArray[np.intp], Z: Floats) -> Slots:
        """The slot of each row, given the slots of its group (its id's rows) in any order; all rows must be there."""
        have, brought = self.prints[slots].view("<u8"), self.fingerprints(Z).view("<u8")  # (n, 2)
        by_have, by_brought = (np.lexsort((p[:, 1], p[:, 0], group)) for p in (have, brought))
        if not np.array_equal(have[by_have], brought[by_brought]):
            raise InvalidInput("not all of these are the rows that were learned under these ids; nothing was changed")
        matched = np.empty_like(slots)
        matched[by_brought] = slots[by_have]
        return matched

    def shard(
        self, encoder: Encoder, learner: int, change: Change | None = None, part: Part = WHOLE
    ) -> Iterator[CodedBlock]:
        touch = Touch.of(encoder.code, learner, change)
        lanes = encoder.code.lanes_of(learner)
        for block in cut(self.q.shape[1], encoder.width, part):
            q, live = self.q[learner, block].astype(np.float64), self._members()[block][:, lanes]
            if change is not None:
                here = touch.within(block)
                self._add(encoder, learner, q, change, here)
                live[here.at] = not change.erases
            yield CodedBlock.of(np.arange(block.start, block.stop), q, live)

    def touched(
        self, encoder: Encoder, learner: int, change: Change, part: Part = WHOLE
    ) -> Iterator[tuple[CodedBlock, CodedBlock]]:
        stripes, touch = Touch.of(encoder.code, learner, change).by_stripe()
        lanes = encoder.code.lanes_of(learner)
        for block in cut(len(stripes), encoder.width, part):
            some = stripes[block]
            q, live = self.q[learner, some].astype(np.float64), self._members()[np.ix_(some, lanes)]
            before = CodedBlock.of(some, q.copy(), live)
            here = touch.within(block)
            self._add(encoder, learner, q, change, here)
            live[here.at] = not change.erases
            yield before, CodedBlock.of(some, q, live)

    def _members(self) -> NDArray[np.bool_]:
        return self.live.reshape(self.q.shape[1], -1)  # (stripes, s)

    @staticmethod
    def _add(encoder: Encoder, learner: int, q: Floats, change: Change, touch: "Touch") -> None:
        """Add a change to coded rows (Algorithm 3, lines 12 and 13, for new rows as well as old)."""
        difference = change.integers(encoder, touch.which)
        if change.old is not None:
            difference -= change.old[touch.which]
        difference *= encoder.code.columns[learner].weights[touch.lane][:, None]
        np.add.at(q, touch.stripe, difference)

    def prepare(self, encoder: Encoder, change: Change) -> Callable[[], None]:
        everyone = np.arange(len(change.slots))
        prints = 0 if change.erases else self.fingerprints(change.integers(encoder, everyone))
        writes = []
        for learner in range(encoder.code.learners):
            stripes, touch = Touch.of(encoder.code, learner, change).by_stripe()
            q = self.q[learner, stripes].astype(np.float64)
            self._add(encoder, learner, q, change, touch)
            writes.append((learner, stripes, q.astype(np.int64)))

        def commit() -> None:
            for learner, stripes, after in writes:
                self.q[learner, stripes] = after
            self.prints[change.slots] = prints
            self.live[change.slots] = not change.erases

        return commit

    def grown(self, slots: int) -> Self:
        shards = len(self.live) // self.q.shape[1]
        q = _padded(self.q.swapaxes(0, 1), slots // shards).swapaxes(0, 1).copy()
        return type(self)(q, _padded(self.prints, slots), _padded(self.live, slots), self.key)


@dataclass(frozen=True, eq=False)
class Touch:
    """Which of the changed rows feed a learner, and where."""

    which: NDArray[np.intp]  # (k,) among the changed rows
    stripe: NDArray[np.int64]  # (k,)
    lane: NDArray[np.intp]  # (k,) among the lanes that feed the learner

    @classmethod
    def of(cls, code: Code, learner: int, change: Change | None) -> Self:
        """Look up the slots of a change."""
        slots = np.empty(0, dtype=np.int64) if change is None else change.slots
        stripe, lane = np.divmod(slots, code.shards)
        place = code.columns[learner].place[lane]
        which = np.flatnonzero(place >= 0)
        return cls(which, stripe[which], place[which])

    def by_stripe(self) -> tuple[NDArray[np.int64], Self]:
        """The stripes that are touched, sorted, and the same rows with positions among those."""
        if len(self.stripe) == 1:
            return self.stripe, type(self)(self.which, np.zeros_like(self.which), self.lane)
        stripes, position = np.unique(self.stripe, return_inverse=True)
        return stripes, type(self)(self.which, position, self.lane)

    def within(self, block: slice) -> Self:
        """The rows in a block of stripes, which are counted from its first."""
        if len(self.stripe) == 1 and block.start <= self.stripe[0] < block.stop:
            return type(self)(self.which, self.stripe - block.start, self.lane)
        here = (self.stripe >= block.start) & (self.stripe < block.stop)
        return type(self)(self.which[here], self.stripe[here] - block.start, self.lane[here])

    @property
    def at(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Where they are in an array of stripes and lanes."""
        return self.stripe, self.lane


def _replace(encoder: Encoder, Z: Floats, live: NDArray[np.bool_], change: Change, touch: Touch) -> None:
    """Put new rows, or none, into a block of stripes."""
    Z[touch.at] = 0.0 if change.erases else change.integers(encoder, touch.which)
    live[touch.at] = not change.erases


def _padded(array: NDArray[T], rows: int) -> NDArray[T]:
    """The array with zero rows added up to ``rows``."""
    out = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    out[: len(array)] = array
    return out
