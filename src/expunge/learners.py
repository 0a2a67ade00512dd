"""Weak learners that are scikit-learn regressors, each trained from scratch on its coded shard.

Only here do other people's estimators run: on one BLAS thread and with derived seeds, so that the same integers give
the same model wherever an estimator is deterministic.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier

from .encoding.codes import Code
from .encoding.encoder import Encoder
from .encoding.randomness import SEEDS, Key, derived_seed
from .errors import InvalidInput, InvalidSetting
from .exact.arrays import Floats
from .exact.threads import one_blas_thread
from .learning.description import class_name, described_estimator
from .learning.settings import Aggregate
from .stores.change import Change
from .stores.store import Store, coded_floats


@dataclass(frozen=True)
class EstimatorRule:
    """Any scikit-learn regressor, trained from scratch on its coded shard: the paper's protocol to the letter."""

    estimator: Any
    key: Key = field(repr=False)

    @classmethod
    def of(cls, estimator: Any, key: Key) -> Self:
        """The rule of a regressor that may be used further; what is none is refused."""
        check_regressor(estimator)
        return cls(clone(estimator), key)

    def check(self, code: Code) -> None:
        check_learner(self.estimator, code)

    def wants_ones(self, code: Code) -> bool:
        # A learner of plain rows has an intercept of its own, unless it is a linear model told to have none.
        return not code.is_selection or self.estimator.get_params(deep=False).get("fit_intercept") is False

    def learn(self, encoder: Encoder, store: Store, learner: int, change: Change | None = None) -> Any:
        X, y = coded_floats(encoder, store.shard(encoder, learner, change))
        if not len(X):
            return None
        return fit_estimator(self.estimator, X, y, seed=derived_seed(self.key, SEEDS, learner), code=encoder.code)

    def learned(self, encoder: Encoder, store: Store, change: Change | None = None) -> list[tuple[Any, Any]]:
        states = [self.learn(encoder, store, j, change) for j in range(encoder.code.learners)]
        return [(state, self.model(state, encoder)) for state in states]

    def relearn(self, state: Any, encoder: Encoder, store: Store, learner: int, change: Change) -> tuple[Any, Any]:
        state = self.learn(encoder, store, learner, change)
        return state, self.model(state, encoder)

    def model(self, state: Any, encoder: Encoder) -> Any:
        return state

    def aggregated(self, models: list[Any], aggregate: Aggregate) -> list[Any]:
        return models

    def predictor(self, aggregated: list[Any], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        reduce = np.mean if aggregate == "mean" else np.median

        def predict(phi: Floats) -> Floats:
            if intercept:
                phi = np.column_stack([phi, np.ones(len(phi))])
            return reduce([np.reshape(model.predict(phi), (len(phi), -1)) for model in aggregated], axis=0)

        return predict

    def fingerprint(self, state: Any, encoder: Encoder, store: Store, learner: int) -> bytes:
        hashed = hashlib.sha256()
        for block in store.shard(encoder, learner):  # the blocks' size must not show: hash row by row, index first
            hashed.update(np.column_stack([block.stripes, block.rows.astype(np.int64)]).astype("<i8").tobytes())
        return hashed.digest()

    def describe(self) -> dict[str, Any]:
        name = class_name(type(self.estimator))
        return {"learner": name, "params": described_estimator(self.estimator, name=f"learner {name}")}


def check_regressor(estimator: Any) -> None:
    """Refuse what is not an instance of a regressor."""
    if isinstance(estimator, type):
        raise InvalidSetting(f"learner must be an instance, got the class: write {estimator.__name__}()")
    for method in ("fit", "predict", "get_params"):
        if not hasattr(estimator, method):
            raise InvalidSetting(
                f"learner must be 'ridge' or a scikit-learn regressor, got {type(estimator).__name__} without {method}"
            )
    if is_classifier(estimator):
        raise InvalidSetting(f"learner must be a regressor, got the classifier {type(estimator).__name__}")


def check_learner(estimator: Any, code: Code) -> None:
    """Refuse an estimator that cannot learn from this code's coded rows, and say why."""
    check_regressor(estimator)
    if code.is_selection:
        return
    name = type(estimator).__name__
    if estimator.get_params(deep=False).get("fit_intercept"):
        raise InvalidSetting(
            f"learner: {name}(fit_intercept=True) would learn one intercept per coded row, but a coded row sums "
            f"several rows; use {name}(fit_intercept=False): the model encodes a column of ones of its own"
        )


def fit_estimator(estimator: Any, X: Floats, y: Floats, *, seed: int, code: Code) -> Any:
    """Train a clone from scratch on one coded shard (Algorithm 1, line 12), its randomness derived from ``seed``."""
    model = clone(estimator)
    model.set_params(
        **{
            name: seed
            for name, value in model.get_params().items()
            if name.split("__")[-1] == "random_state" and not isinstance(value, int | np.integer)
        }
    )
    with one_blas_thread():
        try:
            model.fit(X, y[:, 0] if y.shape[1] == 1 else y)
        except Exception as error:
            raise InvalidInput(
                f"learner: {type(model).__name__} cannot be trained on the {len(X)} coded rows that it would have "
                f"({error}); nothing was changed"
            ) from error
        if not code.is_selection:
            _check_linear(model, X)
    return model


def _check_linear(model: Any, X: Floats) -> None:
    """A coded row is a sum of rows: only a model that is linear in its features can learn rows from sums."""
    name = type(model).__name__
    reason = "a coded row is a sum of rows, from which only a model linear in its features can learn"
    if not hasattr(model, "coef_"):
        raise InvalidSetting(f"learner: {name} has no coef_; {reason}; use Code.uncoded or a linear model")
    predicted = np.reshape(model.predict(X), (len(X), -1))
    linear = X @ np.atleast_2d(model.coef_).T
    if predicted.shape != linear.shape or not np.allclose(predicted, linear, rtol=1e-6, atol=1e-9):
        raise InvalidSetting(f"learner: the coef_ of {name} does not reproduce its predictions; {reason}")
