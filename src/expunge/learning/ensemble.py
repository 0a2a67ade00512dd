"""The ensemble: what every weak learner has learned, how it changes with a row, and what it predicts.

`Ensemble.learn` is Algorithm 1 (Learn) and `Ensemble.changed` is Algorithm 3 (Unlearn), made general: to delete, add or
correct rows is to replace the coded rows of the stripes that they are in. Neither touches the store: a caller computes
the new ensemble first and commits the change afterwards, so a failure in between changes nothing.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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

# MERGED digest: The digest: one hash of everything that predictions follow from, the same on every machine.


DIGEST_VERSION = 5


def compute_digest(encoder: Encoder, description: dict[str, Any], live: Live, fingerprints: Sequence[bytes]) -> str:
    """SHA-256 over the public parameters, the slots in use and each learner's fingerprint: 64 hex characters.

    ``described`` is what is public of aggregate and rule, as plain JSON values.
    """
    if (known := _encoder_hashes.get(encoder)) is None:
        arrays = [f"{array.dtype.str}{array.shape}".encode() + array.tobytes() for array in _public_arrays(encoder)]
        known = _encoder_hashes[encoder] = _public_values(encoder), b"".join(map(_hash, arrays))
    values, arrays_hashed = known
    header = json.dumps(values | description, sort_keys=True).encode()
    # A hash per part: no byte can move from one to the next.
    return _hash(b"".join([_hash(header), arrays_hashed, hash_slots(live), *map(_hash, fingerprints)])).hex()


def _hash(part: bytes) -> bytes:
    return hashlib.sha256(part).digest()


# What is public of an encoder, and the hashes of its arrays, as long as it is in use.
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
        """The ensemble with these states."""
        models = [rule.model(state, encoder) for state in states]
        return cls(encoder, store, rule, aggregate, states, models, [None] * len(states))

    def apply(self, change: Change) -> tuple["Ensemble", list[int]]:
        """The ensemble after a change that its store has yet to carry out, and the learners that it touches."""
        touched = self.encoder.code.learners_of(change.slots)
        if self.store.stripes_per_block(self.encoder) is not None and touches_most(self.encoder, self.store, change):
            return Ensemble.learn(self.encoder, self.store, self.rule, self.aggregate, change), touched
        states, models, prints = self.states.copy(), self.models.copy(), self._fingerprints.copy()
        # Of one row nothing is summed by BLAS, and who solves holds it to one thread.
        if len(change.slots) == 1:
            self._relearn(touched, change, states, models)
        else:
            with one_blas_thread():
                self._relearn(touched, change, states, models)
        for j in touched:
            prints[j] = None
        return Ensemble(self.encoder, self.store, self.rule, self.aggregate, states, models, prints), touched

    def extend(self, store: Store, stripes: range, had: range, touched: list[int]) -> "Ensemble":
        """The ensemble on a store that has more rows in some stripes, which touch these learners.

        Of these stripes its own store has rows in ``had`` at most.
        """
        with one_blas_thread():
            every = len(touched) == len(self.states)
            before = sum_moments(self.encoder, self.store, had, learners=touched)
            after = (
                sum_in_parallel(self.encoder, store, stripes)
                if every
                else sum_moments(self.encoder, store, stripes, learners=touched)
            )
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
        encoder = self.encoder
        if self._native_predictor is not None:
            return encoder.unscale(self._predict_natively(X))
        out = np.empty((len(X), encoder.n_targets))
        predict = self.rule.predictor(self._combined_models, self.aggregate, encoder.intercept)

        def part(k: int, n: int) -> None:
            for block in cut(len(X), encoder.n_weights, part=(k, n)):
                out[block] = predict(encoder.features_of(encoder.nearest(X[block])))

        with one_blas_thread():
            spread(part, len(X) // ROWS_PER_THREAD)
        return encoder.unscale(out)

    def _predict_natively(self, X: Floats) -> Floats:
        """Predict rows natively, in scaled targets; a row alone has the same bits as among others."""
        if len(X) < ROWS_PER_THREAD:
            few: Floats = self._native_predictor.predict(self.encoder.scale_nearest(X))
            return few
        out = np.empty((len(X), self.encoder.n_targets))

        def part(k: int, n: int) -> None:
            for block in cut(len(X), X.shape[1], part=(k, n)):
                out[block] = self._native_predictor.predict(self.encoder.scale_nearest(X[block]))

        spread(part, len(X) // ROWS_PER_THREAD)
        return out

    @cached_property
    def _native_predictor(self) -> Any:
        """What predicts natively; None if nothing can."""
        encoder, features = self.encoder, self.encoder.features
        if self.aggregate != "mean" or not isinstance(self.rule, RidgeRule) or features.is_custom:
            return None
        (weights,) = self._combined_models
        return native_predictor(features.native(1.0), weights, encoder.intercept)

    @cached_property
    def _combined_models(self) -> list[Any]:
        """What predicts."""
        models = [model for model in self.models if model is not None]
        if not models:
            raise NothingLearned("every row was unlearned: there is nothing to predict from; add rows first")
        return self.rule.combine(models, self.aggregate)

    def digest(self) -> str:
        """SHA-256 over the public parameters, the slots in use and each learner's integers: 64 hex characters."""
        prints = [self.fingerprint(j) for j in range(len(self.states))]
        described = {"aggregate": self.aggregate} | self.rule.describe()
        return compute_digest(self.encoder, described, self.store.live, prints)

    def fingerprint(self, learner: int, state: Any = None) -> bytes:
        """A hash of the integers that a learner has seen, computed once; ``state`` has them in a form at hand."""
        known = self._fingerprints[learner]
        if known is None:
            state = self.states[learner] if state is None else state
            known = self.rule.fingerprint(state, self.encoder, self.store, learner)
            self._fingerprints[learner] = known
        return known
