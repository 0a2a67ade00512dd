"""Rules: how a weak learner learns from its coded rows, and relearns when some of them change.

The moments of disjoint stripes add up to those of all stripes, exactly and in any order: a range of stripes can be
summed in a thread, in another process or on another machine.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..encoding.codes import Code
from ..encoding.encoder import Encoder
from ..encoding.randomness import Key
from ..errors import InvalidSetting
from ..exact.arrays import NUMBERS_PER_BLOCK, WHOLE, Floats, Part
from ..exact.moments import Moments, Tally, TallyMemory
from ..exact.ridge import OneRow, relearn_row, ridge_weights
from ..exact.threads import one_blas_thread, spread, worker_count
from ..stores.change import Change
from ..stores.store import Store
from .settings import Aggregate

ROWS_PER_THREAD = 512  # rows that make another thread worth starting


class Rule(Protocol):
    """How a weak learner learns: from its coded rows to its state, and from its state to its model."""

    def check(self, code: Code, aggregate: Aggregate) -> None:
        """Refuse a code whose coded rows it cannot learn from, and an aggregate that it does not have."""

    def wants_ones(self, code: Code) -> bool:
        """Return whether an intercept is the weight of an encoded column of ones; if not, the learner fits its own."""

    def learn_all(self, encoder: Encoder, store: Store, change: Change | None = None) -> list[tuple[Any, Any]]:
        """Train each learner on all its coded rows, before or after a change; return states and models."""

    def relearn(self, state: Any, encoder: Encoder, store: Store, learner: int, change: Change) -> tuple[Any, Any]:
        """Return state and model after a change: bit for bit those of `learn_all` afterwards."""

    def model(self, state: Any, encoder: Encoder) -> Any:
        """Return the model of a state, or None if no row is left."""

    def combine(self, models: list[Any], aggregate: Aggregate) -> list[Any]:
        """Return the models that `predictor` takes: a single one, if their aggregate is a model itself."""

    def predictor(self, models: list[Any], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        """Return a function from features to aggregated predictions: (b, D) -> (b, t)."""

    def fingerprint(self, state: Any, encoder: Encoder, store: Store, learner: int) -> bytes:
        """Return a hash of the integers that a learner has seen."""

    def describe(self) -> dict[str, Any]:
        """Return the public parameters, for the digest."""


@dataclass(frozen=True)
class RidgeRule:
    """Ridge regression from exact moments; ``alpha`` = 0 is least squares. The model is (n_weights, t) weights."""

    alpha: float

    def check(self, code: Code, aggregate: Aggregate) -> None:
        if aggregate == "vote":
            raise InvalidSetting("aggregate='vote' is for classes; use 'mean', 'median' or 'pooled'")

    def wants_ones(self, code: Code) -> bool:
        return True

    def learn_all(
        self, encoder: Encoder, store: Store, change: Change | None = None
    ) -> list[tuple[Moments, Floats | None]]:
        if store.stripes_per_block(encoder) is not None:
            states = sum_in_parallel(encoder, store, range(store.live.size // encoder.code.shards), change)
            return [(state, self.model(state, encoder)) for state in states]
        r, n = encoder.code.learners, worker_count(store.live.size // ROWS_PER_THREAD)
        whole_learners = 0 if n > r else r - r % n  # each trained by one thread; threads share the rows of the others

        def learn_every_nth(k: int, n: int) -> list[tuple[Moments, Floats | None]]:
            memory = TallyMemory()
            tallies = (tally_shard(encoder, store, j, change, memory=memory) for j in range(k, whole_learners, n))
            states = (Moments.from_tallies(tally, last=True) for tally in tallies)
            learned = [(state, self.model(state, encoder, memory.square(encoder.width))) for state in states]
            memory.wipe()
            return learned

        parts = spread(learn_every_nth, n)
        whole = [parts[j % len(parts)][j // len(parts)] for j in range(whole_learners)]
        rest = (self.learn(encoder, store, j, change) for j in range(whole_learners, r))
        return whole + [(state, self.model(state, encoder)) for state in rest]

    def learn(self, encoder: Encoder, store: Store, learner: int, change: Change | None = None) -> Moments:
        """Train one learner, its rows divided among threads."""

        def part(k: int, n: int) -> Tally:
            return tally_shard(encoder, store, learner, change, part=(k, n))

        return Moments.from_tallies(
            *spread(part, feeding_rows(encoder, learner, store.live.size) // ROWS_PER_THREAD), last=True
        )

    def relearn(
        self, state: Moments, encoder: Encoder, store: Store, learner: int, change: Change
    ) -> tuple[Moments, Floats | None]:
        if len(change.slots) == 1 and (native := _native_row_change(encoder, store, learner, change)) is not None:
            moments, W = relearn_row(state, *native, bits=encoder.bits, alpha=self.alpha)
            return moments, self.model(moments, encoder) if W is None or not moments.rows else W
        moments = self._apply(state, encoder, store, learner, change)
        return moments, self.model(moments, encoder)

    def _apply(self, state: Moments, encoder: Encoder, store: Store, learner: int, change: Change) -> Moments:
        if len(change.slots) == 1:
            ((before, after),) = store.touched_blocks(encoder, learner, change)
            return state.exchange_row(before.rows, after.rows, after.members - before.members)
        if touches_most(encoder, store, change, state.coded_rows):
            return self.learn(encoder, store, learner, change)

        def part(k: int, n: int) -> Tally:
            tally = Tally(encoder.width)
            for before, after in store.touched_blocks(encoder, learner, change, part=(k, n)):
                tally.add(before.rows, before.members, sign=-1)
                tally.add(after.rows, after.members)
            return tally

        return state.apply(*spread(part, feeding_rows(encoder, learner, change.slots.size) // ROWS_PER_THREAD))

    def model(self, state: Moments, encoder: Encoder, scratch: Floats | None = None) -> Floats | None:
        if not state.rows:
            return None
        bits, targets, intercept = encoder.bits, encoder.n_targets, encoder.intercept
        return ridge_weights(state, bits=bits, targets=targets, alpha=self.alpha, intercept=intercept, scratch=scratch)

    def combine(self, models: list[Floats], aggregate: Aggregate) -> list[Floats]:
        # The mean of linear models is the linear model of mean weights (Algorithm 1, line 16).
        return models if aggregate == "median" else [mean_weights(models)]

    def predictor(self, models: list[Floats], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        parts = [(W[:-1], W[-1]) if intercept else (W, 0.0) for W in models]
        if len(parts) == 1:
            return lambda phi: phi @ parts[0][0] + parts[0][1]
        return lambda phi: np.median([phi @ coef + constant for coef, constant in parts], axis=0)

    def fingerprint(self, state: Moments, encoder: Encoder, store: Store, learner: int) -> bytes:
        return state.digest()

    def describe(self) -> dict[str, Any]:
        return {"learner": "ridge", "alpha": float(self.alpha).hex()}


RuleFactory: TypeAlias = Callable[[Code, Key], Rule]  # makes another rule than `RidgeRule`; the key seeds estimators


def touches_most(encoder: Encoder, store: Store, change: Change, coded_rows: int | None = None) -> bool:
    """Return whether a change touches so many coded rows that learning all of them again is less work."""
    shards = encoder.code.shards
    coded_rows = store.live.size // shards if coded_rows is None else coded_rows
    if 2 * len(change.slots) <= coded_rows:
        return False
    stripes = np.sort(change.slots[store.live[change.slots]] // shards)
    return 2 * int(np.count_nonzero(np.diff(stripes, prepend=-1))) > coded_rows


def _native_row_change(encoder: Encoder, store: Store, learner: int, change: Change) -> tuple[Any, OneRow] | None:
    """Return the native column that relearns one row and its arguments; None if there is none."""
    if (column := encoder.column(learner)) is None:
        return None
    slot = int(change.slots[0])
    stripe = store.read_stripe(encoder, learner, slot)
    if stripe is None:
        return None
    new = (None, None) if change.X is None or change.y is None else encoder.column_inputs(change.X, change.y)
    return column, (*stripe, slot % len(encoder.code.G), *new)


def feeding_rows(encoder: Encoder, learner: int, rows: int) -> int:
    """Return about how many of these rows feed a learner."""
    return rows * len(encoder.code.lanes_of(learner)) // encoder.code.shards


def mean_weights(models: list[Floats]) -> Floats:
    """Return the mean of the learners' weights, summed in the learners' order."""
    total = models[0].copy()
    for W in models[1:]:
        total += W
    return total / len(models)


def sum_moments(
    encoder: Encoder, store: Store, stripes: range, change: Change | None = None, learners: Sequence[int] | None = None
) -> list[Moments]:
    """Sum the moments of learners (None: all) over some stripes, reading the rows once, block by block.

    With a ``change``, whose slots are sorted, the rows are those after it.
    """
    tallies = {j: Tally(encoder.width) for j in (range(encoder.code.learners) if learners is None else learners)}
    for block in cut_stripes(stripes, stripes_per_block(encoder, store)):
        rows = store.read_stripes(encoder.code.shards, block, change)
        for j, tally in tallies.items():
            add_shard(tally, encoder, rows, j)
    return [Moments.from_tallies(tally, last=True) for tally in tallies.values()]


def cut_stripes(stripes: range, size: int) -> Iterator[range]:
    """Cut stripes into blocks at the multiples of ``size``."""
    starts = range(stripes.start // size * size, stripes.stop, size)
    return (range(max(stripes.start, first), min(first + size, stripes.stop)) for first in starts)


def sum_in_parallel(encoder: Encoder, store: Store, stripes: range, change: Change | None = None) -> list[Moments]:
    """Sum the moments of every learner over some stripes, on other machines or in threads of this process."""
    change = None if change is None else change.sort_slots()
    if (known := store.sum_remotely(encoder, stripes, change)) is not None:
        return known
    blocks = list(cut_stripes(stripes, stripes_per_block(encoder, store)))

    def part(k: int, n: int) -> list[Moments]:
        share = blocks[len(blocks) * k // n : len(blocks) * (k + 1) // n]
        return sum_moments(encoder, store, range(share[0].start, share[-1].stop), change)

    with one_blas_thread():
        return add_moments(spread(part, len(blocks)))


def stripes_per_block(encoder: Encoder, store: Store) -> int:
    """Return how many stripes are read together."""
    return store.stripes_per_block(encoder) or max(1, NUMBERS_PER_BLOCK // encoder.code.shards)


def add_moments(parts: Iterable[list[Moments]]) -> list[Moments]:
    """Add the moments of disjoint stripes, learner by learner."""
    return reduce(lambda total, more: [a.plus(b) for a, b in zip(total, more, strict=True)], parts)


def add_shard(
    tally: Tally, encoder: Encoder, store: Store, learner: int, change: Change | None = None, part: Part = WHOLE
) -> None:
    """Add the coded rows of a learner to a tally, or a share of them."""
    column, table = encoder.column(learner), store.table(encoder)
    if change is None and column is not None and table is not None:
        (k, n), shards = part, encoder.code.shards
        stripes = store.live.size // shards
        tally.add_stripes(column, table, shards, range(stripes * k // n, stripes * (k + 1) // n))
        return
    for block in store.shard(encoder, learner, change, part=part):
        tally.add(block.rows, block.members)


def tally_shard(
    encoder: Encoder,
    store: Store,
    learner: int,
    change: Change | None,
    *,
    part: Part = WHOLE,
    memory: TallyMemory | None = None,
) -> Tally:
    """Sum the coded rows of a learner, or a share of them."""
    tally = Tally(encoder.width, memory)
    add_shard(tally, encoder, store, learner, change, part)
    return tally
