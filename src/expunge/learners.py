"""Weak learners that are scikit-learn estimators, each trained from scratch on its coded shard.

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
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier

from .encoding.codes import Code
from .encoding.encoder import Encoder
from .encoding.randomness import SEEDS, Key, derive_seed
from .errors import InvalidInput, InvalidSetting
from .exact.arrays import Floats
from .exact.threads import one_blas_thread
from .learning.class_rules import count_votes
from .learning.settings import Aggregate
from .stores.change import Change
from .stores.store import Store, coded_floats


@dataclass(frozen=True)
class EstimatorRule:
    """Any scikit-learn regressor, trained from scratch on its coded shard, exactly as in the paper."""

    estimator: Any
    key: Key = field(repr=False)

    _aggregates: ClassVar[tuple[Aggregate, ...]] = ("mean", "median")

    @classmethod
    def from_estimator(cls, estimator: Any, code: Code, key: Key) -> Self:
        """Make the rule of a clone of a regressor; refuse anything else."""
        check_regressor(estimator)
        return cls(clone(estimator), key)

    def check(self, code: Code, aggregate: Aggregate) -> None:
        if aggregate not in self._aggregates:
            raise InvalidSetting(
                f"aggregate must be one of {self._aggregates} where the learner is an estimator, got {aggregate!r}"
            )
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
            phi = _with_ones(phi, intercept)
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


@dataclass(frozen=True)
class ClassifierRule(EstimatorRule):
    """Any scikit-learn classifier, trained from scratch on the rows of its lane.

    It learns the numbers of the classes, and predicts their probabilities (1 for its prediction, if it has none).
    """

    _aggregates: ClassVar[tuple[Aggregate, ...]] = ("mean", "median", "vote")

    @classmethod
    def from_estimator(cls, estimator: Any, code: Code, key: Key) -> Self:
        """Make the rule of a clone of a classifier; refuse anything else."""
        _check_estimator(estimator, "classifier")
        if not code.is_selection:
            raise InvalidSetting(
                "learner: a coded row is a sum of rows of several classes, from which no scikit-learn classifier can "
                "learn; use Code.uncoded, Code.single or learner='ridge'"
            )
        return cls(clone(estimator), key)

    def check(self, code: Code, aggregate: Aggregate) -> None:
        if aggregate not in self._aggregates:
            raise InvalidSetting(
                f"aggregate must be one of {self._aggregates} where the learner is an estimator, got {aggregate!r}"
            )

    def learn(self, encoder: Encoder, store: Store, learner: int, change: Change | None = None) -> Any:
        X, one_hot = coded_floats(encoder, store.shard(encoder, learner, change))
        if not len(X):
            return None
        classes = one_hot.argmax(axis=1)
        several = (classes != classes[0]).any()
        estimator = self.estimator if several else DummyClassifier()  # most classifiers refuse to learn one class
        seed = derive_seed(self.key, SEEDS, learner)
        return _Spread(fit_estimator(estimator, X, classes[:, None], seed=seed, code=encoder.code), one_hot.shape[1])

    def predictor(self, models: list[Any], aggregate: Aggregate, intercept: bool) -> Callable[[Floats], Floats]:
        if aggregate != "vote":
            return super().predictor(models, aggregate, intercept)
        return lambda phi: count_votes([model.predict(_with_ones(phi, intercept)) for model in models])


@dataclass(frozen=True)
class _Spread:
    """A trained classifier that predicts a column of probabilities for every class, also those it has not seen."""

    model: Any
    classes: int

    def predict(self, phi: Floats) -> Floats:
        p = np.zeros((len(phi), self.classes))
        if hasattr(self.model, "predict_proba"):
            p[:, self.model.classes_.astype(np.intp)] = self.model.predict_proba(phi)
        else:
            p[np.arange(len(phi)), self.model.predict(phi).astype(np.intp)] = 1.0
        return p


def _with_ones(phi: Floats, intercept: bool) -> Floats:
    return np.column_stack([phi, np.ones(len(phi))]) if intercept else phi


def check_regressor(estimator: Any) -> None:
    """Refuse anything but an instance of a regressor."""
    _check_estimator(estimator, "regressor")
    if is_classifier(estimator):
        raise InvalidSetting(f"learner must be a regressor, got the classifier {type(estimator).__name__}")


def _check_estimator(estimator: Any, kind: str) -> None:
    """Refuse anything but an instance of an estimator."""
    if isinstance(estimator, type):
        raise InvalidSetting(f"learner must be an instance, got the class: write {estimator.__name__}()")
    for method in ("fit", "predict", "get_params"):
        if not hasattr(estimator, method):
            raise InvalidSetting(
                f"learner must be 'ridge' or a scikit-learn {kind}, got {type(estimator).__name__} without {method}"
            )
    if kind == "classifier" and not is_classifier(estimator):
        raise InvalidSetting(f"learner must be a classifier, got {type(estimator).__name__}")


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
