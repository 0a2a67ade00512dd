"""The ensemble: what every weak learner has learned, how it changes with a row, and its digest.

`Ensemble.learn` is Algorithm 1 (Learn) and `Ensemble.changed` is Algorithm 3 (Unlearn), made general: to delete, add or
correct rows is to replace the coded rows of the stripes that they are in. Neither touches the store: a caller computes
the new ensemble first and commits the change afterwards, so a failure in between changes nothing.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..encoding.features import FeatureMap
from ..encoding.randomness import Key, derived_seed
from ..errors import NothingLearned
from ..exact.arrays import Floats, cut
from ..exact.moments import Moments, Tally
from ..exact.threads import one_blas_thread, spread
from ..stores.shards import Change, CodedBlock, Encoder, Store
from ..stores.slots import SEEDS
from .learners import fit_estimator, ridge_weights

Aggregate: TypeAlias = Literal["mean", "median"]

DIGEST_VERSION = 1

SPREAD_ROWS = 512  # rows for which another thread is worth its start


class Rule(Protocol):
    """How a weak learner learns: what it knows of its coded rows (its state) and its model."""

    def learn(self, encoder: Encoder, store: Store, learner: int, change: Change | None = None) -> Any:
        """The state, from all coded rows, as they are or as they will be after a change."""

    def relearn(self, state: Any, encoder: Encoder, store: Store, learner: int, change: Change) -> Any:
        """The state after a change: the same as that of `learn` afterwards, bit for bit."""

    def model(self, state: Any, encoder: Encoder) -> Any:
        """What predicts, or None if there is no row left to learn from."""

    def predictor(self, models: list[Any], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        """A function from features to aggregated predictions: (b, D) -> (b, t)."""

    def fingerprint(self, state: Any, encoder: Encoder, store: Store, learner: int) -> bytes:
        """A hash of the integers that a learner has seen."""

    def describe(self) -> dict[str, Any]:
        """Public parameters, for the digest."""


@dataclass(frozen=True)
class RidgeRule:
    """Ridge regression from exact moments; ``alpha`` = 0 is least squares. The model is (n_weights, t) weights."""

    alpha: float

    def learn(self, encoder: Encoder, store: Store, learner: int, change: Change | None = None) -> Moments:
        def part(k: int, n: int) -> Tally:
            tally = Tally(encoder.width)
            for block in store.shard(encoder, learner, change, part=(k, n)):
                tally.add(block.rows, block.members)
            return tally

        return Moments.of(*spread(part, _share(encoder, learner, store.live.size) // SPREAD_ROWS))

    def relearn(self, state: Moments, encoder: Encoder, store: Store, learner: int, change: Change) -> Moments:
        if _touches_most(store, change, encoder.code.shards, state.coded_rows):
            return self.learn(encoder, store, learner, change)

        def part(k: int, n: int) -> Tally:
            tally = Tally(encoder.width)
            for before, after in store.touched(encoder, learner, change, part=(k, n)):
                tally.add(before.rows, before.members, sign=-1)
                tally.add(after.rows, after.members)
            return tally

        return state.after(*spread(part, _share(encoder, learner, change.slots.size) // SPREAD_ROWS))

    def model(self, state: Moments, encoder: Encoder) -> Floats | None:
        if not state.rows:
            return None
        return ridge_weights(
            state, bits=encoder.bits, targets=encoder.n_targets, alpha=self.alpha, intercept=encoder.intercept
        )

    def predictor(self, models: list[Floats], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        if aggregate == "mean":  # the mean of linear models is the linear model of mean weights (Algorithm 1, line 16)
            models = [mean_weights(models)]
        parts = [(W[:-1], W[-1]) if intercept else (W, 0.0) for W in models]
        if len(parts) == 1:
            return lambda phi: phi @ parts[0][0] + parts[0][1]
        return lambda phi: np.median([phi @ coef + constant for coef, constant in parts], axis=0)

    def fingerprint(self, state: Moments, encoder: Encoder, store: Store, learner: int) -> bytes:
        return state.digest()

    def describe(self) -> dict[str, Any]:
        return {"learner": "ridge", "alpha": float(self.alpha).hex()}


@dataclass(frozen=True)
class EstimatorRule:
    """Any scikit-learn regressor, trained from scratch on its coded shard: the paper's protocol to the letter."""

    estimator: Any
    key: Key = field(repr=False)

    def learn(self, encoder: Encoder, store: Store, learner: int, change: Change | None = None) -> Any:
        X, y = coded_floats(encoder, store.shard(encoder, learner, change))
        if not len(X):
            return None
        return fit_estimator(self.estimator, X, y, seed=derived_seed(self.key, SEEDS, learner), code=encoder.code)

    def relearn(self, state: Any, encoder: Encoder, store: Store, learner: int, change: Change) -> Any:
        return self.learn(encoder, store, learner, change)

    def model(self, state: Any, encoder: Encoder) -> Any:
        return state

    def predictor(self, models: list[Any], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        reduce = np.mean if aggregate == "mean" else np.median

        def predict(phi: Floats) -> Floats:
            if intercept:
                phi = np.column_stack([phi, np.ones(len(phi))])
            return reduce([np.reshape(model.predict(phi), (len(phi), -1)) for model in models], axis=0)

        return predict

    def fingerprint(self, state: Any, encoder: Encoder, store: Store, learner: int) -> bytes:
        hashed = hashlib.sha256()
        for block in store.shard(encoder, learner):  # the blocks' size must not show: hash row by row, index first
            hashed.update(np.column_stack([block.stripes, block.rows.astype(np.int64)]).astype("<i8").tobytes())
        return hashed.digest()

    def describe(self) -> dict[str, Any]:
        params = {name: _described(value) for name, value in self.estimator.get_params().items()}
        return {"learner": type(self.estimator).__name__, "params": params}


@dataclass(frozen=True, eq=False)
class Ensemble:
    """r weak learners on the coded rows of one store."""

    encoder: Encoder
    store: Store
    rule: Rule
    aggregate: Aggregate
    states: list[Any]  # (r,)
    models: list[Any]  # (r,), None where no row is left
    _prints: list[bytes | None]  # (r,), what `digest` has computed so far

    @classmethod
    def learn(
        cls, encoder: Encoder, store: Store, rule: Rule, aggregate: Aggregate, change: Change | None = None
    ) -> "Ensemble":
        """Train every learner on its coded shard (Algorithm 1), as it is or as it will be after a change."""
        with one_blas_thread():
            states = [rule.learn(encoder, store, j, change) for j in range(encoder.code.learners)]
            return cls.of(encoder, store, rule, aggregate, states)

    @classmethod
    def of(cls, encoder: Encoder, store: Store, rule: Rule, aggregate: Aggregate, states: list[Any]) -> "Ensemble":
        """The ensemble with these states."""
        models = [rule.model(state, encoder) for state in states]
        return cls(encoder, store, rule, aggregate, states, models, [None] * len(states))

    def changed(self, change: Change) -> tuple["Ensemble", list[int]]:
        """The ensemble after a change that its store has yet to carry out, and the learners that it touches."""
        lanes = change.slots % self.encoder.code.shards
        touched: list[int] = np.flatnonzero(self.encoder.code.G[lanes].any(axis=0)).tolist()  # Algorithm 3, line 17
        states, models, prints = self.states.copy(), self.models.copy(), self._prints.copy()
        with one_blas_thread():
            for j in touched:
                states[j] = self.rule.relearn(states[j], self.encoder, self.store, j, change)
                models[j] = self.rule.model(states[j], self.encoder)
                prints[j] = None
        return replace(self, states=states, models=models, _prints=prints), touched

    def predict(self, X: Floats) -> Floats:
        """Predict rows in their own units: (n, d) -> (n, t)."""
        models = [model for model in self.models if model is not None]
        if not models:
            raise NothingLearned("every row was unlearned: there is nothing to predict from; add rows first")
        encoder, out = self.encoder, np.empty((len(X), self.encoder.n_targets))
        predict = self.rule.predictor(models, self.aggregate, encoder.intercept)

        def part(k: int, n: int) -> None:
            for block in cut(len(X), encoder.n_weights, part=(k, n)):
                out[block] = predict(encoder.features.map_block(encoder.inputs.scale(X[block])))

        with one_blas_thread():
            spread(part, len(X) // SPREAD_ROWS)
        return encoder.targets.unscale(out)

    def digest(self) -> str:
        """SHA-256 over the public parameters, the slots in use and each learner's integers: 64 hex characters."""
        prints = [self.fingerprint(j) for j in range(len(self.states))]
        slots = np.packbits(self.store.live).tobytes().rstrip(b"\0")  # empty slots at the end do not count
        header = json.dumps(self._describe(), sort_keys=True).encode()
        arrays = [f"{array.dtype.str}{array.shape}".encode() + array.tobytes() for array in self._public_arrays()]
        hashed = hashlib.sha256()
        for part in (header, *arrays, slots, *prints):
            hashed.update(hashlib.sha256(part).digest())  # a hash a part: no byte can move from one to the next
        return hashed.hexdigest()

    def fingerprint(self, learner: int) -> bytes:
        """A hash of the integers that a learner has seen, computed once."""
        known = self._prints[learner]
        if known is None:
            known = self.rule.fingerprint(self.states[learner], self.encoder, self.store, learner)
            self._prints[learner] = known
        return known

    def _describe(self) -> dict[str, Any]:
        encoder = self.encoder
        return {
            "version": DIGEST_VERSION,
            "aggregate": self.aggregate,
            "bits": encoder.bits,
            "intercept": encoder.intercept,
            "unit": [encoder.inputs.unit, encoder.targets.unit],
            "features": describe_features(encoder.features),
        } | self.rule.describe()

    def _public_arrays(self) -> list[NDArray[Any]]:
        encoder = self.encoder
        bounds = (encoder.inputs.low, encoder.inputs.high, encoder.targets.low, encoder.targets.high)
        drawn = [array for _, array in sorted(encoder.features.arrays().items())]
        return [
            np.ascontiguousarray(encoder.code.G, dtype="<i8"),
            *(np.ascontiguousarray(array, dtype="<i8") for array in drawn),
            *(np.ascontiguousarray(side, dtype="<f8") for side in bounds),
        ]


def _described(value: Any) -> str:
    """A parameter of an estimator as text that is the same in every process."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return f"array {value.dtype.str} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(_described, value))})"
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    return str(getattr(value, "__qualname__", type(value).__qualname__))  # a function, or an estimator: its own follow


def coded_floats(encoder: Encoder, shard: Iterator[CodedBlock]) -> tuple[Floats, Floats]:
    """A learner's coded rows and targets in the units of scaled rows: (m, n_weights), (m, t)."""
    coded = np.concatenate([np.empty((0, encoder.width)), *(block.rows for block in shard)])
    coded *= 2.0**-encoder.bits
    X, y = np.split(coded, [encoder.n_weights], axis=1)
    return X.copy(), y.copy()


def _touches_most(store: Store, change: Change, shards: int, coded_rows: int) -> bool:
    """Whether the coded rows in which rows go or are replaced, before and after, are more than all that there are."""
    if 2 * len(change.slots) <= coded_rows:
        return False
    return 2 * len(np.unique(change.slots[store.live[change.slots]] // shards)) > coded_rows


def _share(encoder: Encoder, learner: int, rows: int) -> int:
    """About how many of these rows feed a learner."""
    return rows * len(encoder.code.lanes_of(learner)) // encoder.code.shards


def mean_weights(models: list[Floats]) -> Floats:
    """The mean of the learners' weights, summed in the learners' order."""
    total = models[0].copy()
    for W in models[1:]:
        total += W
    return total / len(models)


def describe_features(features: FeatureMap) -> dict[str, Any]:
    """A feature map's name and parameters, without its seed: what it drew is kept as integers."""
    params = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in features.get_params().items()
        if name != "random_state"
    }
    return {"name": type(features).__name__, "params": params}
