"""Coded: a store that keeps only the coded rows, which is the paper's own setting."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..encoding.encoder import Encoder
from ..errors import InvalidInput
from ..exact.arrays import WHOLE, Floats, Integers, Part, Slots, cut
from ..exact.moments import Moments
from .change import Change, Touch
from .rows import Rows
from .store import CodedBlock, padded

PRINT_BYTES = 16  # of a row's fingerprint


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

    def located(self, slots: Slots, group: NDArray[np.intp], Z: Floats) -> Slots:
        """The slot of each row, by its fingerprint among its group's (its id's rows); all rows must be there."""
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

    def stripe(self, encoder: Encoder, learner: int, slot: int) -> None:
        return None

    def table(self, encoder: Encoder) -> None:
        return None

    def at_once(self, encoder: Encoder) -> None:
        return None

    def summed(self, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        return None

    def stripes(self, shards: int, stripes: range, change: Change | None = None) -> Rows:
        return self.as_rows()

    def _members(self) -> NDArray[np.bool_]:
        return self.live.reshape(self.q.shape[1], -1)  # (stripes, s)

    @staticmethod
    def _add(encoder: Encoder, learner: int, q: Floats, change: Change, touch: Touch) -> None:
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
        q = padded(self.q.swapaxes(0, 1), slots // shards).swapaxes(0, 1).copy()
        return type(self)(q, padded(self.prints, slots), padded(self.live, slots), self.key)

    def as_rows(self) -> Rows:
        raise InvalidInput("keep='coded' keeps no rows: bring them along")

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"q": self.q, "prints": self.prints, "live": self.live}
