"""Rules: how a weak learner learns from its coded rows, and learns anew when some of them change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..encoding.codes import Code
from ..encoding.encoder import Encoder
from ..encoding.randomness import Key
from ..exact.arrays import Floats
from ..exact.moments import Moments
from ..exact.ridge import OneRow, relearned, ridge_weights
from ..exact.tally import Room, Tally
from ..exact.threads import spread, workers
from ..stores.change import Change
from ..stores.store import Store
from .settings import Aggregate
from .summing import summed_stripes, tally_of

SPREAD_ROWS = 512  # rows for which another thread is worth its start


class Rule(Protocol):
    """How a weak learner learns: what it knows of its coded rows (its state) and its model."""

    def check(self, code: Code) -> None:
        """Refuse a code from whose coded rows it cannot learn."""

    def wants_ones(self, code: Code) -> bool:
        """Whether an intercept is a column of ones that the model encodes; if not, a learner has its own."""

    def learned(self, encoder: Encoder, store: Store, change: Change | None = None) -> list[tuple[Any, Any]]:
        """State and model of each learner, from all coded rows, as they are or as they will be after a change."""

    def relearn(self, state: Any, encoder: Encoder, store: Store, learner: int, change: Change) -> tuple[Any, Any]:
        """The state and the model after a change: the same as those of `learned` afterwards, bit for bit."""

    def model(self, state: Any, encoder: Encoder) -> Any:
        """What predicts, or None if there is no row left to learn from."""

    def aggregated(self, models: list[Any], aggregate: Aggregate) -> list[Any]:
        """What `predictor` takes, kept for as long as the models are: one model instead of many, where that is one."""

    def predictor(self, aggregated: list[Any], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        """A function from features to aggregated predictions: (b, D) -> (b, t)."""

    def fingerprint(self, state: Any, encoder: Encoder, store: Store, learner: int) -> bytes:
        """A hash of the integers that a learner has seen."""

    def describe(self) -> dict[str, Any]:
        """Public parameters, for the digest."""


@dataclass(frozen=True)
class RidgeRule:
    """Ridge regression from exact moments; ``alpha`` = 0 is least squares. The model is (n_weights, t) weights."""

    alpha: float

    def check(self, code: Code) -> None:
        pass

    def wants_ones(self, code: Code) -> bool:
        return True

    def learned(
        self, encoder: Encoder, store: Store, change: Change | None = None
    ) -> list[tuple[Moments, Floats | None]]:
        if store.at_once(encoder) is not None:
            states = summed_stripes(encoder, store, range(store.live.size // encoder.code.shards), change)
            return [(state, self.model(state, encoder)) for state in states]
        r, n = encoder.code.learners, workers(store.live.size // SPREAD_ROWS)
        shared_out = 0 if n > r else r - r % n  # whole learners for each thread; the rows of the others are shared out

        def some(k: int, n: int) -> list[tuple[Moments, Floats | None]]:
            room = Room()
            tallies = (tally_of(encoder, store, j, change, room=room) for j in range(k, shared_out, n))
            states = (Moments.of(tally, last=True) for tally in tallies)
            learned = [(state, self.model(state, encoder, room.square(encoder.width))) for state in states]
            room.wipe()
            return learned

        parts = spread(some, n)
        whole = [parts[j % len(parts)][j // len(parts)] for j in range(shared_out)]
        rest = (self.learn(encoder, store, j, change) for j in range(shared_out, r))
        return whole + [(state, self.model(state, encoder)) for state in rest]

    def learn(self, encoder: Encoder, store: Store, learner: int, change: Change | None = None) -> Moments:
        """The state of one learner, its rows shared out to threads."""

        def part(k: int, n: int) -> Tally:
            return tally_of(encoder, store, learner, change, part=(k, n))

        return Moments.of(*spread(part, _share(encoder, learner, store.live.size) // SPREAD_ROWS), last=True)

    def relearn(
        self, state: Moments, encoder: Encoder, store: Store, learner: int, change: Change
    ) -> tuple[Moments, Floats | None]:
        if len(change.slots) == 1 and (one := _one_row(encoder, store, learner, change)) is not None:
            moments, W = relearned(state, *one, bits=encoder.bits, alpha=self.alpha)
            return moments, self.model(moments, encoder) if W is None or not moments.rows else W
        moments = self._after(state, encoder, store, learner, change)
        return moments, self.model(moments, encoder)

    def _after(self, state: Moments, encoder: Encoder, store: Store, learner: int, change: Change) -> Moments:
        if len(change.slots) == 1:
            ((before, after),) = store.touched(encoder, learner, change)
            return state.exchanged(before.rows, after.rows, after.members - before.members)
        if touches_most(encoder, store, change, state.coded_rows):
            return self.learn(encoder, store, learner, change)

        def part(k: int, n: int) -> Tally:
            tally = Tally(encoder.width)
            for before, after in store.touched(encoder, learner, change, part=(k, n)):
                tally.add(before.rows, before.members, sign=-1)
                tally.add(after.rows, after.members)
            return tally

        return state.after(*spread(part, _share(encoder, learner, change.slots.size) // SPREAD_ROWS))

    def model(self, state: Moments, encoder: Encoder, room: Floats | None = None) -> Floats | None:
        if not state.rows:
            return None
        bits, targets, intercept = encoder.bits, encoder.n_targets, encoder.intercept
        return ridge_weights(state, bits=bits, targets=targets, alpha=self.alpha, intercept=intercept, room=room)

    def aggregated(self, models: list[Floats], aggregate: Aggregate) -> list[Floats]:
        # The mean of linear models is the linear model of mean weights (Algorithm 1, line 16).
        return [mean_weights(models)] if aggregate == "mean" else models

    def predictor(self, aggregated: list[Floats], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        parts = [(W[:-1], W[-1]) if intercept else (W, 0.0) for W in aggregated]
        if len(parts) == 1:
            return lambda phi: phi @ parts[0][0] + parts[0][1]
        return lambda phi: np.median([phi @ coef + constant for coef, constant in parts], axis=0)

    def fingerprint(self, state: Moments, encoder: Encoder, store: Store, learner: int) -> bytes:
        return state.digest()

    def describe(self) -> dict[str, Any]:
        return {"learner": "ridge", "alpha": float(self.alpha).hex()}


RuleOf: TypeAlias = Callable[[Key], Rule]  # brings the rule of a learner that is not ours; the key seeds it


def touches_most(encoder: Encoder, store: Store, change: Change, coded_rows: int | None = None) -> bool:
    """Whether the coded rows in which rows go or are replaced, before and after, are more than all that there are."""
    shards = encoder.code.shards
    coded_rows = store.live.size // shards if coded_rows is None else coded_rows
    if 2 * len(change.slots) <= coded_rows:
        return False
    stripes = np.sort(change.slots[store.live[change.slots]] // shards)
    return 2 * int(np.count_nonzero(np.diff(stripes, prepend=-1))) > coded_rows


def _one_row(encoder: Encoder, store: Store, learner: int, change: Change) -> tuple[Any, OneRow] | None:
    """What computes natively what becomes of a learner, and what it takes; None if nothing can."""
    if (column := encoder.column(learner)) is None:
        return None
    slot = int(change.slots[0])
    stripe = store.stripe(encoder, learner, slot)
    if stripe is None:
        return None
    new = (None, None) if change.X is None or change.y is None else encoder.as_column_takes(change.X, change.y)
    return column, (*stripe, slot % len(encoder.code.G), *new)


def _share(encoder: Encoder, learner: int, rows: int) -> int:
    """About how many of these rows feed a learner."""
    return rows * len(encoder.code.lanes_of(learner)) // encoder.code.shards


def mean_weights(models: list[Floats]) -> Floats:
    """The mean of the learners' weights, summed in the learners' order."""
    total = models[0].copy()
    for W in models[1:]:
        total += W
    return total / len(models)
