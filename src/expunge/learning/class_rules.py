"""Rules for classes: least squares on one-hot targets, from one set of moments per learner or from one per class.

Where every learner has one lane, a coded row is a row and has one class. The moments of [phi, 1] are then kept per
class (`ClassRule`): the last column is the sum of phi, so no target columns are needed, classes can have weights, and
any two classes can be told apart by a pair of moments. Where coded rows mix classes, there is one set of moments with
the classes as targets (`OneHotRule`).

Every score of a row that was learned from is too good. `leverages` says by how much: the mean over a class's rows of
h = w phi' A^-1 phi, the share of a row's own target in its score (A is the system that was solved).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from ..encoding.codes import Code
from ..encoding.encoder import Encoder
from ..exact.arrays import Floats
from ..exact.moments import Moments, Tally
from ..exact.ridge import ridge_inverse, ridge_weights
from ..exact.threads import spread
from ..stores.change import Change
from ..stores.store import CodedBlock, Store
from .rules import ROWS_PER_THREAD, RidgeRule, feeding_rows, touches_most
from .settings import Aggregate


@dataclass(frozen=True)
class OneHotRule(RidgeRule):
    """Ridge regression of one-hot targets on the coded rows of all classes: the model is (n_weights, K) weights."""

    def check(self, code: Code, aggregate: Aggregate) -> None:
        pass

    def combine(self, models: list[Floats], aggregate: Aggregate) -> list[Floats]:
        return models if aggregate == "vote" else super().combine(models, aggregate)

    def predictor(self, models: list[Floats], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        if aggregate != "vote":
            return super().predictor(models, aggregate, intercept)
        each = [RidgeRule.predictor(self, [model], "mean", intercept) for model in models]
        return lambda phi: count_votes([predict(phi) for predict in each])

    def leverages(self, state: Any, encoder: Encoder) -> Floats:
        """Return the mean leverage of the rows of each class, (K,): here the mean of all rows.

        A row is one of several in a coded row; erasing it changes its own score by h times its residual, plus noise
        from the others whose mean is zero.
        """
        p, classes = encoder.n_weights, encoder.n_targets
        inverse = ridge_inverse(
            state, bits=encoder.bits, targets=classes, alpha=self.alpha, intercept=encoder.intercept
        )
        total = trace_of_product(inverse, state.matrix(encoder.bits)[:p, :p])
        return np.full(classes, total / state.rows)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"learner": "one-hot ridge"}


class Pair(NamedTuple):
    """The weights that tell two classes apart, +1 for the first and -1 for the second, and their mean leverages."""

    weights: Floats  # (n_weights,)
    leverages: tuple[float, float]


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """The moments of [phi, 1] over the rows of each class of one learner."""

    parts: tuple[Moments, ...]  # (K,)
    pairs: dict[tuple[int, int], Pair] = field(default_factory=dict)
    """Pairs of classes that were solved so far; a change of a class drops its pairs."""

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def coded_rows(self) -> int:
        return sum(part.coded_rows for part in self.parts)

    def replace_parts(self, parts: Iterable[Moments]) -> Self:
        """Return the moments with other parts, and the pairs of parts that are the same objects."""
        parts = tuple(parts)
        same = [old is new for old, new in zip(self.parts, parts, strict=True)]
        return type(self)(parts, {pair: known for pair, known in self.pairs.items() if same[pair[0]] and same[pair[1]]})

    def plus(self, other: "ClassMoments") -> "ClassMoments":
        """Return the moments of the rows of both."""
        return ClassMoments(tuple(a.plus(b) for a, b in zip(self.parts, other.parts, strict=True)))


@dataclass(frozen=True)
class _ClassSystem:
    """The weighted sum of class moments as one system with ``targets`` columns, as `ridge_weights` takes it."""

    parts: list[Moments]
    weights: list[float]
    targets: Floats  # (parts, t): the targets of each class's rows
    intercept: bool

    def matrix(self, bits: int) -> Floats:
        t = self.targets.shape[1]
        p = self.parts[0].width - 1 + self.intercept
        M = np.zeros((p + t, p + t), order="F")
        with np.errstate(all="ignore"):  # above the diagonals there is anything
            for part, weight, targets in zip(self.parts, self.weights, self.targets, strict=True):
                G = part.matrix(bits)  # of [phi, 1]: its last row is the sum of [phi, 1]
                M[:p, :p] += weight * G[:p, :p]
                M[p:, :p] += weight * targets[:, None] * G[-1, :p]
        return M


@dataclass(frozen=True)
class ClassRule(OneHotRule):
    """Ridge regression of one-hot targets from moments per class, each class weighted by a power of its row count.

    A row of a class with n_k of the learner's n rows weighs (n / (K n_k)) ** ``class_power``; K classes have rows.
    """

    class_power: float

    def learn_all(self, encoder: Encoder, store: Store, change: Change | None = None) -> list[tuple[Any, Any]]:
        states = [self.learn(encoder, store, j, change) for j in range(encoder.code.learners)]
        return [(state, self.model(state, encoder)) for state in states]

    def learn(self, encoder: Encoder, store: Store, learner: int, change: Change | None = None) -> Any:
        def part(k: int, n: int) -> list[Tally]:
            tallies = _new_tallies(encoder)
            for block in store.shard(encoder, learner, change, part=(k, n)):
                _add_classes(tallies, encoder, block)
            return tallies

        parts = spread(part, feeding_rows(encoder, learner, store.live.size) // ROWS_PER_THREAD)
        return ClassMoments(tuple(Moments.from_tallies(*tallies, last=True) for tallies in zip(*parts, strict=True)))

    def relearn(self, state: Any, encoder: Encoder, store: Store, learner: int, change: Change) -> tuple[Any, Any]:
        state = self._apply_to_classes(state, encoder, store, learner, change)
        return state, self.model(state, encoder)

    def _apply_to_classes(
        self, state: ClassMoments, encoder: Encoder, store: Store, learner: int, change: Change
    ) -> ClassMoments:
        if len(change.slots) == 1:
            ((before, after),) = store.touched_blocks(encoder, learner, change)
            parts = list(state.parts)
            pieces = zip(split_classes(encoder, before.rows), split_classes(encoder, after.rows), strict=True)
            for k, (old, new) in enumerate(pieces):
                if len(old) or len(new):
                    parts[k] = parts[k].exchange_row(old, new, len(new) - len(old))
            return state.replace_parts(parts)
        if touches_most(encoder, store, change, state.coded_rows):
            learned: ClassMoments = self.learn(encoder, store, learner, change)
            return learned

        def part(k: int, n: int) -> list[Tally]:
            tallies = _new_tallies(encoder)
            for before, after in store.touched_blocks(encoder, learner, change, part=(k, n)):
                _add_classes(tallies, encoder, before, sign=-1)
                _add_classes(tallies, encoder, after)
            return tallies

        changes = zip(*spread(part, feeding_rows(encoder, learner, change.slots.size) // ROWS_PER_THREAD), strict=True)
        return state.replace_parts(
            old.apply(*tallies) if any(tally.seen for tally in tallies) else old
            for old, tallies in zip(state.parts, changes, strict=True)
        )

    def model(self, state: Any, encoder: Encoder, scratch: Floats | None = None) -> Floats | None:
        if not state.rows:
            return None
        return self._solve(encoder, self._system(state.parts, np.eye(len(state.parts)), encoder))

    def leverages(self, state: Any, encoder: Encoder) -> Floats:
        return self._leverages(self._system(state.parts, np.eye(len(state.parts)), encoder), encoder)

    def pair(self, state: ClassMoments, first: int, second: int, encoder: Encoder) -> Pair:
        """Return the weights that tell two classes apart, solved once for the same moments."""
        known = state.pairs.get((first, second))
        if known is None:
            parts = state.parts[first], state.parts[second]
            if not sum(part.rows for part in parts):
                known = Pair(np.zeros(encoder.n_weights), (0.0, 0.0))
            else:
                system = self._system(parts, np.array([[1.0], [-1.0]]), encoder)
                high, low = self._leverages(system, encoder).tolist()
                known = Pair(self._solve(encoder, system)[:, 0], (high, low))
            state.pairs[first, second] = known
        return known

    def _system(self, parts: tuple[Moments, ...], targets: Floats, encoder: Encoder) -> _ClassSystem:
        counts = [part.rows for part in parts]
        rows, present = sum(counts), sum(map(bool, counts))
        weights = [(rows / (present * count)) ** self.class_power if count else 0.0 for count in counts]
        return _ClassSystem(list(parts), weights, targets, encoder.intercept)

    def _solve(self, encoder: Encoder, system: _ClassSystem) -> Floats:
        t = system.targets.shape[1]
        return ridge_weights(system, bits=encoder.bits, targets=t, alpha=self.alpha, intercept=encoder.intercept)

    def _leverages(self, system: _ClassSystem, encoder: Encoder) -> Floats:
        p, bits = encoder.n_weights, encoder.bits
        t = system.targets.shape[1]
        inverse = ridge_inverse(system, bits=bits, targets=t, alpha=self.alpha, intercept=encoder.intercept)
        return np.array(
            [
                weight * trace_of_product(inverse, part.matrix(bits)[:p, :p]) / part.rows if part.rows else 0.0
                for part, weight in zip(system.parts, system.weights, strict=True)
            ]
        )

    def fingerprint(self, state: Any, encoder: Encoder, store: Store, learner: int) -> bytes:
        return b"".join(part.digest() for part in state.parts)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"learner": "class ridge", "class_power": float(self.class_power).hex()}


def count_votes(scores: Sequence[Floats]) -> Floats:
    """Return how many learners vote for each class, and their mean scores: (n, K) each -> (n, 2 K)."""
    votes = np.zeros_like(scores[0])
    for each in scores:
        votes[np.arange(len(each)), each.argmax(axis=1)] += 1.0
    return np.column_stack([votes, np.mean(scores, axis=0)])


def split_classes(encoder: Encoder, rows: Floats) -> list[Floats]:
    """Split rows as integers, each of one class, by class, as [phi, 1]: (m, width) -> K arrays (m_k, D + 1)."""
    one_hot = rows[:, encoder.n_weights :]
    D = encoder.features.n_out
    return [np.column_stack([rows[mine, :D], one_hot[mine, k]]) for k, mine in enumerate((one_hot != 0.0).T)]


def trace_of_product(symmetric: Floats, lower: Floats) -> float:
    """Return trace(S L), where of the symmetric matrix L only the lower triangle is given: (p, p), (p, p)."""
    below = (symmetric * np.tril(lower, -1)).sum()
    return float(2.0 * below + (np.diagonal(symmetric) * np.diagonal(lower)).sum())


def _new_tallies(encoder: Encoder) -> list[Tally]:
    return [Tally(encoder.features.n_out + 1) for _ in range(encoder.n_targets)]


def _add_classes(tallies: list[Tally], encoder: Encoder, block: CodedBlock, *, sign: int = 1) -> None:
    for tally, rows in zip(tallies, split_classes(encoder, block.rows), strict=True):
        if len(rows):
            tally.add(rows, len(rows), sign=sign)
