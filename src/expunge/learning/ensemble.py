"""The ensemble: what every weak learner has learned, how it changes with a row, and what it predicts.

`Ensemble.learn` is Algorithm 1 (Learn) and `Ensemble.apply` is Algorithm 3 (Unlearn), generalised: deleting, adding and
correcting rows all replace coded rows of the stripes they are in. Neither touches the store: a caller computes the new
ensemble first and commits the change afterwards, so a failure in between changes nothing.

The digest is one hash of everything that predictions follow from, the same on every machine.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..encoding.encoder import Encoder
from ..errors import NothingLearned
from ..exact.arrays import Floats, cut
from ..exact.native import native_predictor
from ..exact.threads import one_blas_thread, spread
from ..stores.bits import Live, hash_slots
from ..stores.change import Change
from ..stores.store import Store
from .rules import ROWS_PER_THREAD, RidgeRule, Rule, sum_in_parallel, sum_moments, touches_most
from .settings import Aggregate

DIGEST_VERSION = 5


@dataclass(frozen=True, eq=False)
class Ensemble:
    """r weak learners on the coded rows of one store."""

    encoder: Encoder
    store: Store
    rule: Rule
    aggregate: Aggregate
    states: list[Any]  # (r,)
    models: list[Any]  # (r,), None where no row is left
    _fingerprints: list[bytes | None]  # (r,), what `digest` has computed so far

    @classmethod
    def learn(
        cls, encoder: Encoder, store: Store, rule: Rule, aggregate: Aggregate, change: Change | None = None
    ) -> "Ensemble":
        """Train every learner on its coded shard (Algorithm 1), as it is or as it will be after a change."""
        with one_blas_thread():
            states, models = map(list, zip(*rule.learn_all(encoder, store, change), strict=True))
        return cls(encoder, store, rule, aggregate, states, models, [None] * len(states))

    @classmethod
    def from_states(
        cls, encoder: Encoder, store: Store, rule: Rule, aggregate: Aggregate, states: list[Any]
    ) -> "Ensemble":
        """Make the ensemble from the learners' states."""
        models = [rule.model(state, encoder) for state in states]
        return cls(encoder, store, rule, aggregate, states, models, [None] * len(states))

    def apply(self, change: Change) -> tuple["Ensemble", list[int]]:
        """Return the ensemble after a change that its store has yet to carry out, and the learners it touches."""
        touched = self.encoder.code.learners_of(change.slots)
        if self.store.stripes_per_block(self.encoder) is not None and touches_most(self.encoder, self.store, change):
            return Ensemble.learn(self.encoder, self.store, self.rule, self.aggregate, change), touched
        states, models, prints = self.states.copy(), self.models.copy(), self._fingerprints.copy()
        # For one row BLAS sums nothing, and the solver limits BLAS to one thread itself.
        if len(change.slots) == 1:
            self._relearn(touched, change, states, models)
        else:
            with one_blas_thread():
                self._relearn(touched, change, states, models)
        for j in touched:
            prints[j] = None
        return Ensemble(self.encoder, self.store, self.rule, self.aggregate, states, models, prints), touched

    def extend(self, store: Store, stripes: range, had: range, touched: list[int]) -> "Ensemble":
        """Return the ensemble on a store that has more rows in some stripes, which touch these learners.

        ``had`` are the stripes among them in which the ensemble's own store has rows already.
        """
        with one_blas_thread():
            before = sum_moments(self.encoder, self.store, had, learners=touched)
            if len(touched) == len(self.states):
                after = sum_in_parallel(self.encoder, store, stripes)
            else:
                after = sum_moments(self.encoder, store, stripes, learners=touched)
            states, models, prints = self.states.copy(), self.models.copy(), self._fingerprints.copy()
            for j, old, new in zip(touched, before, after, strict=True):
                states[j], prints[j] = states[j].minus(old).plus(new), None
                models[j] = self.rule.model(states[j], self.encoder)
        return Ensemble(self.encoder, store, self.rule, self.aggregate, states, models, prints)

    def _relearn(self, touched: list[int], change: Change, states: list[Any], models: list[Any]) -> None:
        for j in touched:
            states[j], models[j] = self.rule.relearn(states[j], self.encoder, self.store, j, change)

    def predict(self, X: Floats) -> Floats:
        """Predict rows in their own units: (n, d) -> (n, t)."""
        return self.encoder.unscale(self.outputs(X))

    def outputs(self, X: Floats) -> Floats:
        """Return the combined outputs of the models for rows in their own units: (n, d) -> (n, t), scaled targets."""
        encoder = self.encoder
        if self._native_predictor is not None:
            return self._predict_natively(X)
        if not len(X):
            return np.empty((0, encoder.n_targets))
        predict = self.rule.predictor(self._combined_models, self.aggregate, encoder.intercept)

        def part(k: int, n: int) -> list[Floats]:
            blocks = cut(len(X), encoder.n_weights, part=(k, n))
            return [predict(encoder.features_of(encoder.nearest(X[block]))) for block in blocks]

        with one_blas_thread():
            return np.concatenate([block for blocks in spread(part, len(X) // ROWS_PER_THREAD) for block in blocks])

    def _predict_natively(self, X: Floats) -> Floats:
        """Predict scaled targets natively. A row alone gets the same bits as among others."""
        if len(X) < ROWS_PER_THREAD:
            predicted: Floats = self._native_predictor.predict(self.encoder.scale_nearest(X))
            return predicted
        out = np.empty((len(X), self._combined_models[0].shape[1]))

        def part(k: int, n: int) -> None:
            for block in cut(len(X), X.shape[1], part=(k, n)):
                out[block] = self._native_predictor.predict(self.encoder.scale_nearest(X[block]))

        spread(part, len(X) // ROWS_PER_THREAD)
        return out

    @cached_property
    def _native_predictor(self) -> Any:
        """The `Predictor` of the extension; None if it cannot predict with this rule or these features."""
        encoder, features = self.encoder, self.encoder.features
        if self.aggregate not in ("mean", "pooled") or not isinstance(self.rule, RidgeRule) or features.is_custom:
            return None
        (weights,) = self._combined_models
        return native_predictor(features.native(1.0), weights, encoder.intercept)

    @cached_property
    def _combined_models(self) -> list[Any]:
        """The models that predictions are made from."""
        models = [model for model in self.models if model is not None]
        if not models:
            raise NothingLearned("every row was unlearned, so there is nothing to predict from; add rows first")
        return self.pooled.models if self.aggregate == "pooled" else self.rule.combine(models, self.aggregate)

    @cached_property
    def pooled(self) -> "Ensemble":
        """One learner that has learned all coded rows of all learners: the sum of their moments."""
        total = reduce(lambda total, state: total.plus(state), self.states)
        return Ensemble.from_states(self.encoder, self.store, self.rule, "mean", [total])

    def digest(self) -> str:
        """Return SHA-256 over the public parameters, the slots in use and each learner's integers, in hex."""
        prints = [self.fingerprint(j) for j in range(len(self.states))]
        description = {"aggregate": self.aggregate} | self.rule.describe()
        return compute_digest(self.encoder, description, self.store.live, prints)

    def fingerprint(self, learner: int, state: Any = None) -> bytes:
        """Return a hash of the integers that a learner has seen, computed once; ``state`` defaults to its own."""
        known = self._fingerprints[learner]
        if known is None:
            state = self.states[learner] if state is None else state
            known = self.rule.fingerprint(state, self.encoder, self.store, learner)
            self._fingerprints[learner] = known
        return known


def compute_digest(encoder: Encoder, description: dict[str, Any], live: Live, fingerprints: Sequence[bytes]) -> str:
    """Return SHA-256 over the public parameters, the slots in use and each learner's fingerprint, in hex.

    ``description`` has the public parameters of aggregate and rule, as plain JSON values.
    """
    if (known := _encoder_hashes.get(encoder)) is None:
        arrays = [f"{array.dtype.str}{array.shape}".encode() + array.tobytes() for array in _public_arrays(encoder)]
        known = _encoder_hashes[encoder] = _public_values(encoder), b"".join(map(_hash, arrays))
    values, array_hashes = known
    header = json.dumps(values | description, sort_keys=True).encode()
    # A hash per part: no byte can move from one to the next.
    return _hash(b"".join([_hash(header), array_hashes, hash_slots(live), *map(_hash, fingerprints)])).hex()


def _hash(part: bytes) -> bytes:
    return hashlib.sha256(part).digest()


# The public values of an encoder and the hashes of its arrays, as long as it is in use.
_encoder_hashes: WeakKeyDictionary[Encoder, tuple[dict[str, Any], bytes]] = WeakKeyDictionary()


def _public_values(encoder: Encoder) -> dict[str, Any]:
    return {
        "version": DIGEST_VERSION,
        "bits": encoder.bits,
        "intercept": encoder.intercept,
        "unit": [encoder.inputs.unit, encoder.targets.unit],
        "features": encoder.features.describe(),
        "scales": encoder.scales.spec(),
        "target_scales": encoder.target_scales.spec(),
        "outside": encoder.outside,
    }


def _public_arrays(encoder: Encoder) -> list[NDArray[Any]]:
    bounds = (encoder.inputs.low, encoder.inputs.high, encoder.targets.low, encoder.targets.high)
    drawn = [array for _, array in sorted(encoder.features.arrays().items())]
    return [
        np.ascontiguousarray(encoder.code.G, dtype="<i8"),
        *(np.ascontiguousarray(array, dtype="<i8") for array in drawn),
        *(np.ascontiguousarray(side, dtype="<f8") for side in bounds),
    ]
