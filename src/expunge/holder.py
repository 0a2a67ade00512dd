"""What every fitted model has: a lock, what it holds, the checks of rows that come, and what can be read of it."""

import copy
import math
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from .encoding.bounds import Bounds
from .encoding.codes import Code
from .encoding.features import FeatureMap
from .errors import InvalidInput, InvalidSetting
from .exact.arrays import Floats, unsigned_zeros
from .exact.native import kernels
from .fitted import Fitted, Report, row_ids
from .learning.rules import RidgeRule, mean_weights
from .learning.state import Outcome, State
from .stores.change import Change
from .stores.ids import Found
from .stores.rows import Rows
from .stores.store import coded_floats

TableLike: TypeAlias = Any  # an array, or a pandas or polars frame
ColumnLike: TypeAlias = Any  # one or more columns of such

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound="Holder")


def exclusive(method: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """Let one thread at a time in: a request reads the state and replaces it, and two at once would lose one."""

    @wraps(method)
    def locked(self: H, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.__dict__.setdefault("_lock", threading.RLock()):
            return method(self, *args, **kwargs)

    return locked


class Holder(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scikit-learn estimator that holds a trained state and whose rows are in it."""

    code_: Code
    features_: FeatureMap
    _held: Fitted

    @property
    def bounds_(self) -> Bounds:
        """The bounds of the inputs in force."""
        return self._fitted().state.ensemble.encoder.inputs

    @property
    def target_bounds_(self) -> Bounds:
        """The bounds of the target in force."""
        return self._fitted().state.ensemble.encoder.targets

    @property
    def n_rows_(self) -> int:
        """Rows learned and not unlearned."""
        return self._fitted().state.rows

    @property
    def coef_(self) -> Floats:
        """Mean weights of the ridge learners, for the features of a scaled row and the scaled target."""
        W = self._mean_weights()
        W = W[: self._state.ensemble.encoder.features.n_out].T
        return W[0] if self._held.flat else W

    @property
    def intercept_(self) -> Any:
        """Mean intercept of the ridge learners, for the scaled target."""
        W = self._mean_weights()
        constant = W[-1] if self._state.ensemble.encoder.intercept else np.zeros(W.shape[1])
        return float(constant[0]) if self._held.flat else constant

    def _mean_weights(self) -> Floats:
        if not isinstance(self._fitted().state.blueprint.rule, RidgeRule):
            raise AttributeError("only a model with learner='ridge' has coef_ and intercept_")
        models = [W for W in self._state.ensemble.models if W is not None]
        if not models:
            raise AttributeError("every row was unlearned: there are no weights")
        return mean_weights(models)

    @exclusive
    def coded_shard(self, learner: int) -> tuple[Floats, Floats]:
        """What one weak learner sees: its coded rows and their targets, as floats (the paper's output of Algorithm 1).

        Parameters
        ----------
        learner : int
            Which one, from 0.

        Returns
        -------
        X : array, shape (m, D) or, with an intercept, (m, D + 1)
            Coded features; the last column is then the coded column of ones.
        y : array, shape (m,) or (m, t)
            Coded targets, scaled.
        """
        held = self._fitted()
        ensemble = held.state.ensemble
        if not 0 <= learner < ensemble.encoder.code.learners:
            raise InvalidSetting(f"learner must be from 0 to {ensemble.encoder.code.learners - 1}, got {learner!r}")
        X, y = coded_floats(ensemble.encoder, ensemble.store.shard(ensemble.encoder, learner))
        return X, y[:, 0] if held.flat else y

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # two models that shared their rows would forget each other's

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_lock", None)
        return state

    def _fitted(self) -> Fitted:
        if "_held" not in self.__dict__:
            check_is_fitted(self)
        return self._held

    @property
    def _state(self) -> State:
        return self._held.state

    def _like(self, held: Fitted) -> Self:
        """Another model with the same parameters, which holds this."""
        twin = type(self)(**self.get_params(deep=False))
        for name in ("n_features_in_", "feature_names_in_"):
            if name in self.__dict__:
                setattr(twin, name, self.__dict__[name])
        return twin._take(held)

    def _take(self, held: Fitted) -> Self:
        blueprint = held.state.blueprint
        self.code_, self.features_ = blueprint.code, blueprint.features
        self._held = held
        return self

    def _commit(self, held: Fitted, outcome: Outcome, *, forget: Found | None = None, started: float = 0.0) -> Report:
        """Make an outcome what the model holds."""

        def overwrite() -> None:
            after = Fitted(outcome.commit(), held.index, held.default_ids, held.flat)
            if forget is not None:
                held.index.erase(forget)
            self._held = after

        try:
            overwrite()
        except BaseException:  # Ctrl-C within these few microseconds: finish what was begun
            overwrite()
            raise
        return Report(outcome.rows, outcome.learners, outcome.bounds_moved, time.perf_counter() - started)

    def _read(self, X: TableLike, y: ColumnLike, *, reset: bool) -> tuple[Floats, Floats, bool]:
        """Check rows and targets and return them as float64 matrices, and whether y was one-dimensional."""
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, order="C", multi_output=True, y_numeric=True)
        flat = y.ndim == 1
        y = y.reshape(len(y), -1).astype(np.float64, copy=False)
        if not reset and y.shape[1] != (t := self._state.ensemble.encoder.n_targets):
            raise InvalidInput(f"y must have {t} columns as in fit, got {y.shape[1]}")
        return X, y, flat

    def _inputs(self, X: TableLike) -> Floats:
        """Check rows without targets; rows that need no conversion are only looked at."""
        if (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.flags.c_contiguous
            and self._fits(X.shape)
            and _finite(X)
        ):
            return X
        # In C order, because BLAS rounds other orders otherwise.
        checked: Floats = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return checked

    def _fits(self, shape: tuple[int, ...]) -> bool:
        """Whether rows without names of columns may have this shape."""
        named = "feature_names_in_" in self.__dict__
        return not named and len(shape) == 2 and shape[0] > 0 and shape[1] == self.n_features_in_

    def _rows(self, X: TableLike, y: ColumnLike) -> tuple[Floats, Floats]:
        """Check rows for a model that is fitted; return them as they will be kept."""
        X, y, _ = self._read(X, y, reset=False)
        X, y = self._state.blueprint.admit(X, y, self._column_names())
        return unsigned_zeros(X), unsigned_zeros(y)

    def _wants_rows(self, X: TableLike, y: ColumnLike, what: str) -> bool:
        """Whether the caller has to bring the rows, which must then be there, and otherwise not."""
        coded = self._state.blueprint.keep == "coded"
        if coded and (X is None or y is None):
            raise InvalidInput(f"keep='coded' keeps no rows: {what} needs the ids and the rows as they were learned")
        if not coded and not (X is None and y is None):
            raise InvalidInput(f"{what} takes these rows only with keep='coded'; this model keeps its rows")
        return coded

    def _brought(self, ids: Any, X: TableLike, y: ColumnLike) -> tuple[Change, Found]:
        if ids is None:
            raise InvalidInput("ids are missing: name each row's")
        X, y = self._rows(X, y)
        return self._held.brought(row_ids(ids, X), X, y)

    def _surviving(self, X: TableLike, y: ColumnLike, ids: ColumnLike) -> Rows:
        """All surviving rows, brought along, in their slots."""
        state = self._state
        encoder, room = state.ensemble.encoder, len(state.ensemble.store.live)
        if not state.rows and not len(X):
            none = np.zeros((0, len(encoder.inputs.low))), np.zeros((0, encoder.n_targets))
            return Rows.place(*none, np.zeros(0, dtype=np.int64), room)
        change, _ = self._brought(ids, X, y)
        if len(change.slots) != state.rows:
            raise InvalidInput(f"retrained needs all {state.rows} surviving rows, got {len(change.slots)}")
        return Rows.place(*self._rows(X, y), change.slots, room)

    def _column_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]


def _finite(X: Floats) -> bool:
    """Whether all values are finite; without native kernels, large ones may be taken for others."""
    if (native := kernels()) is not None:
        return bool(native.finite(X))
    with np.errstate(all="ignore"):
        return math.isfinite(X.sum())
