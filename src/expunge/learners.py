"""Weak learners that are scikit-learn regressors, each trained from scratch on its coded shard.

Estimators of other packages run only here: on one BLAS thread and with derived seeds, so that the same integers give
the same model if the estimator is deterministic.

A digest and a saved file describe an estimator by its parameters as text, the same in every process and different for
different values. A value without a description, such as a lambda, is refused: two models would share a digest and
predict differently.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier

from .encoding.codes import Code
from .encoding.encoder import Encoder
from .encoding.randomness import SEEDS, Key, derive_seed
from .errors import InvalidInput, InvalidSetting
from .exact.arrays import Floats
from .exact.threads import one_blas_thread
from .learning.settings import Aggregate
from .stores.change import Change
from .stores.store import Store, coded_floats


@dataclass(frozen=True)
class EstimatorRule:
    """Any scikit-learn regressor, trained from scratch on its coded shard, exactly as in the paper."""

    estimator: Any
    key: Key = field(repr=False)

    @classmethod
    def from_estimator(cls, estimator: Any, key: Key) -> Self:
        """Make the rule of a clone of a regressor; refuse anything else."""
        check_regressor(estimator)
        return cls(clone(estimator), key)

    def check(self, code: Code) -> None:
        check_learner(self.estimator, code)

    def wants_ones(self, code: Code) -> bool:
        # A learner of plain rows fits its own intercept, unless it is a linear model with fit_intercept=False.
        return not code.is_selection or self.estimator.get_params(deep=False).get("fit_intercept") is False

    def learn(self, encoder: Encoder, store: Store, learner: int, change: Change | None = None) -> Any:
        X, y = coded_floats(encoder, store.shard(encoder, learner, change))
        if not len(X):
            return None
        return fit_estimator(self.estimator, X, y, seed=derive_seed(self.key, SEEDS, learner), code=encoder.code)

    def learn_all(self, encoder: Encoder, store: Store, change: Change | None = None) -> list[tuple[Any, Any]]:
        states = [self.learn(encoder, store, j, change) for j in range(encoder.code.learners)]
        return [(state, self.model(state, encoder)) for state in states]

    def relearn(self, state: Any, encoder: Encoder, store: Store, learner: int, change: Change) -> tuple[Any, Any]:
        state = self.learn(encoder, store, learner, change)
        return state, self.model(state, encoder)

    def model(self, state: Any, encoder: Encoder) -> Any:
        return state

    def combine(self, models: list[Any], aggregate: Aggregate) -> list[Any]:
        return models

    def predictor(self, models: list[Any], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        reduce = np.mean if aggregate == "mean" else np.median

        def predict(phi: Floats) -> Floats:
            if intercept:
                phi = np.column_stack([phi, np.ones(len(phi))])
            return reduce([np.reshape(model.predict(phi), (len(phi), -1)) for model in models], axis=0)

        return predict

    def fingerprint(self, state: Any, encoder: Encoder, store: Store, learner: int) -> bytes:
        hashed = hashlib.sha256()
        for block in store.shard(encoder, learner):  # the hash must not depend on block sizes: row by row, index first
            hashed.update(np.column_stack([block.stripes, block.rows.astype(np.int64)]).astype("<i8").tobytes())
        return hashed.digest()

    def describe(self) -> dict[str, Any]:
        name = class_name(type(self.estimator))
        return {"learner": name, "params": describe_estimator(self.estimator, name=f"learner {name}")}


def check_regressor(estimator: Any) -> None:
    """Refuse anything but an instance of a regressor."""
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
    """Refuse an estimator that cannot learn from the coded rows of this code, with the reason."""
    check_regressor(estimator)
    if code.is_selection:
        return
    name = type(estimator).__name__
    if estimator.get_params(deep=False).get("fit_intercept"):
        raise InvalidSetting(
            f"learner: {name}(fit_intercept=True) would learn one intercept per coded row, but a coded row sums "
            f"several rows; use {name}(fit_intercept=False): the model encodes a column of ones instead"
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
                f"learner: {type(model).__name__} cannot be trained on its {len(X)} coded rows ({error}); "
                "nothing was changed"
            ) from error
        if not code.is_selection:
            _check_linear(model, X)
    return model


def _check_linear(model: Any, X: Floats) -> None:
    """Refuse a model that is not linear in its features: a coded row is a sum of rows."""
    name = type(model).__name__
    reason = "a coded row is a sum of rows, from which only a model linear in its features can learn"
    if not hasattr(model, "coef_"):
        raise InvalidSetting(f"learner: {name} has no coef_; {reason}; use Code.uncoded or a linear model")
    predicted = np.reshape(model.predict(X), (len(X), -1))
    linear = X @ np.atleast_2d(model.coef_).T
    if predicted.shape != linear.shape or not np.allclose(predicted, linear, rtol=1e-6, atol=1e-9):
        raise InvalidSetting(f"learner: the coef_ of {name} does not reproduce its predictions; {reason}")


def describe_estimator(estimator: Any, *, name: str) -> dict[str, str]:
    """Describe each parameter of an estimator as text; errors call the estimator ``name``."""
    return {
        key: describe_value(None if _is_seeded(key, value) else value, name=f"the parameter {key} of {name}")
        for key, value in sorted(estimator.get_params(deep=False).items())
    }


def describe_value(value: Any, *, name: str) -> str:
    """Describe a value as text, with everything inside it; raise `InvalidSetting` if that is not possible."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return _describe_array(value, name)
    if isinstance(value, list | tuple):
        return f"{class_name(type(value))}({', '.join(describe_value(item, name=name) for item in value)})"
    if isinstance(value, set | frozenset):
        return f"{class_name(type(value))}({', '.join(sorted(describe_value(item, name=name) for item in value))})"
    if isinstance(value, dict):
        items = sorted((describe_value(key, name=name), describe_value(item, name=name)) for key, item in value.items())
        return f"{class_name(type(value))}({', '.join(f'{key}: {item}' for key, item in items)})"
    if isinstance(value, partial):
        parts = (value.func, value.args, value.keywords)
        return f"partial({', '.join(describe_value(part, name=name) for part in parts)})"
    if hasattr(value, "get_params") and not isinstance(value, type):
        inside = describe_estimator(value, name=class_name(type(value)))
        return f"{class_name(type(value))}({', '.join(f'{key}={text}' for key, text in inside.items())})"
    if callable(value) and (path := _importable_name(value)) is not None:
        return path
    what = "a function that cannot be imported by name" if callable(value) else f"of type {type(value).__name__}"
    raise InvalidSetting(
        f"{name} is {what}, which cannot be described in a digest; use numbers, text, arrays, lists, sets, dicts, "
        "estimators, or functions at the top level of a module"
    )


def class_name(kind: type) -> str:
    """Return the name of a class, with its module."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _describe_array(array: Any, name: str) -> str:
    if array.dtype.hasobject:  # its bytes are addresses
        return f"array object {array.shape} {describe_value(array.ravel().tolist(), name=name)}"
    return f"array {array.dtype.str} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"


def _is_seeded(key: str, value: Any) -> bool:
    """Return whether a parameter is a seed that training replaces by one derived from the model's key."""
    return key == "random_state" and not isinstance(value, int | np.integer)


def _importable_name(value: Any) -> str | None:
    """Return the name under which a function or class can be imported, or None."""
    module = "numpy" if isinstance(value, np.ufunc) else getattr(value, "__module__", None)
    path = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
    target: Any = sys.modules.get(str(module))
    for part in path.split("."):
        target = getattr(target, part, None)
    same = target is value or (isinstance(value, MethodType) and target == value)  # each access makes a new method
    return f"{module}.{path}" if same else None
