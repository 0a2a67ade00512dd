"""What every fitted model has: a lock, what it holds, the checks of rows that come, and what can be read of it."""

import copy
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from .encoding.bounds import Bounds
from .encoding.codes import Code
from .encoding.features import FeatureMap
from .encoding.placement import draw_slots, slots_needed
from .errors import InvalidInput, InvalidSetting, format_positions
from .exact.arrays import Floats, Slots, unsigned_zeros
from .exact.native import kernels
from .learning.blueprint import Blueprint
from .learning.rules import RidgeRule, mean_weights
from .learning.state import ModelState, Outcome
from .saving.archive import Archive
from .saving.format import Parts, index_parts, load_index, load_state, state_parts
from .stores.change import Change
from .stores.ids import FoundRows, IdIndex, Ids, as_ids, slots_of_mentions
from .stores.store import Rows, coded_floats

# MERGED fitted: What a fitted `CodedRegressor` holds: a trained state, and whose rows are in it.


@dataclass(frozen=True)
class Report:
    """What a request did.

    Attributes
    ----------
    rows : int
        Rows that were erased or corrected.
    learners : int
        Weak learners that learned anew.
    bounds_moved : bool
        Whether an observed bound moved, so that everything was refitted.
    seconds : float
        How long it took.
    """

    rows: int
    learners: int
    bounds_moved: bool
    seconds: float


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A state and the index of its rows' ids. A change makes a new one; store and index are overwritten in place."""

    state: ModelState
    index: IdIndex
    default_ids: bool  # whether all ids so far were 0, 1, 2, ...
    flat: bool  # whether y was one-dimensional

    @classmethod
    def learn(cls, blueprint: Blueprint, rows: Rows, slots: Slots, ids: Ids | None, *, flat: bool) -> Self:
        """Learn a first batch of rows, which `placed` has put into their slots."""
        return cls(ModelState.learn(blueprint, rows, len(slots)), IdIndex(ids, slots), ids is None, flat)

    def add_rows(self, X: Floats, y: Floats, ids: Ids | None) -> tuple[Self, Change]:
        """The same with room for more rows, and the change that puts them there."""
        if ids is None and not self.default_ids:
            raise InvalidInput("this model was given ids: pass ids for the new rows too, or they could be another's")
        before = self.state.drawn
        state, slots = self.state.with_room(len(X))
        named = np.arange(before, state.drawn) if ids is None else ids
        index = self.index.with_rows(named, slots)
        return replace(self, state=state, index=index, default_ids=ids is None), Change(slots, X, y)

    def find_slots(self, row_ids: Ids) -> tuple[Slots, FoundRows]:
        """The slot of each row named by its id: the k-th time that an id is named is its k-th row."""
        wanted, group = np.unique(row_ids, return_inverse=True)
        found = self.index.find(wanted)
        where, way_out = "in the model than were given", "unlearn the id and use partial_fit"
        return slots_of_mentions(group, found.slots, found.counts, where=where, way_out=way_out), found

    def match_rows(self, row_ids: Ids, X: Floats, y: Floats) -> tuple[Change, FoundRows]:
        """The removal of rows that are brought along, each matched with its slot by id and fingerprint."""
        slots, found = self.find_slots(row_ids)
        ensemble = self.state.ensemble
        Z = ensemble.encoder.integers(X, y)
        located = ensemble.store.locate(slots, np.unique(row_ids, return_inverse=True)[1], Z)
        return Change(located, old=Z), found

    def retrain(self, rows: Rows) -> Self:
        """The same, trained from scratch on these rows."""
        state = ModelState.learn(self.state.blueprint, rows, self.state.drawn)
        return replace(self, state=state, index=IdIndex(*self.index.entries()))

    def parts(self) -> Parts:
        """A header and arrays for a file."""
        header, arrays = state_parts(self.state)
        more, named = index_parts(self.index)
        return header | more | {"default_ids": self.default_ids, "flat": self.flat}, arrays | named

    @classmethod
    def load(cls, archive: Archive, blueprint: Blueprint) -> Self:
        """Read what `parts` wrote."""
        state = load_state(archive, blueprint)
        index = load_index(archive, state.ensemble.store.live)
        return cls(state, index, archive.get("default_ids", bool), archive.get("flat", bool))


def place_rows(blueprint: Blueprint, X: Floats, y: Floats) -> tuple[Rows, Slots]:
    """Put the rows of a first batch into their slots; return them, and the slots."""
    s, n = blueprint.code.shards, len(X)
    if n < s:
        raise InvalidInput(
            f"fit needs at least as many rows as shards, got n_samples={n}, shards={s}; use fewer shards"
        )
    slots = draw_slots(blueprint.key, 0, n, s)
    return Rows.place(X, y, slots, slots_needed(n, s)), slots


def ids_per_row(ids: Any, X: Any) -> Ids:
    """Each row's id; one id alone is that of all rows."""
    array = as_ids(ids)
    return np.repeat(array, len(X)) if len(array) == 1 and hasattr(X, "__len__") else array


def check_distinct(ids: Ids) -> Ids:
    """Return the ids, or refuse duplicates."""
    if not len(ids):
        raise InvalidInput("ids is empty: name at least one id")
    if len(ids) == 1:
        return ids
    values, first = np.unique(ids, return_index=True)
    if len(values) < len(ids):
        again = np.setdiff1d(np.arange(len(ids)), first)
        raise InvalidInput(f"duplicates in ids: {len(again)}, {format_positions(again.tolist())}; name each id once")
    return ids


TableLike: TypeAlias = Any  # an array, or a pandas or polars frame
ColumnLike: TypeAlias = Any  # one or more columns of such

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound="CodedEstimator")


def exclusive(method: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """Let one thread at a time in: a request reads the state and replaces it, and two at once would lose one."""

    @wraps(method)
    def locked(self: H, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.__dict__.setdefault("_lock", threading.RLock()):
            return method(self, *args, **kwargs)

    return locked


class CodedEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scikit-learn estimator that holds a trained state and whose rows are in it."""

    code_: Code
    features_: FeatureMap
    _fitted_model: FittedModel

    @property
    def bounds_(self) -> Bounds:
        """The bounds of the inputs in force."""
        return self._check_fitted().state.ensemble.encoder.inputs

    @property
    def target_bounds_(self) -> Bounds:
        """The bounds of the target in force."""
        return self._check_fitted().state.ensemble.encoder.targets

    @property
    def n_rows_(self) -> int:
        """Rows learned and not unlearned."""
        return self._check_fitted().state.rows

    @property
    def coef_(self) -> Floats:
        """Mean weights of the ridge learners, for the features of a scaled row and the scaled target."""
        W = self._mean_weights()
        W = W[: self._state.ensemble.encoder.features.n_out].T
        return W[0] if self._fitted_model.flat else W

    @property
    def intercept_(self) -> Any:
        """Mean intercept of the ridge learners, for the scaled target."""
        W = self._mean_weights()
        constant = W[-1] if self._state.ensemble.encoder.intercept else np.zeros(W.shape[1])
        return float(constant[0]) if self._fitted_model.flat else constant

    def _mean_weights(self) -> Floats:
        if not isinstance(self._check_fitted().state.blueprint.rule, RidgeRule):
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
        held = self._check_fitted()
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

    def _check_fitted(self) -> FittedModel:
        if "_fitted_model" not in self.__dict__:
            check_is_fitted(self)
        return self._fitted_model

    @property
    def _state(self) -> ModelState:
        return self._fitted_model.state

    def _clone_with(self, held: FittedModel) -> Self:
        """Another model with the same parameters, which holds this."""
        twin = type(self)(**self.get_params(deep=False))
        for name in ("n_features_in_", "feature_names_in_"):
            if name in self.__dict__:
                setattr(twin, name, self.__dict__[name])
        return twin._set_fitted_model(held)

    def _set_fitted_model(self, held: FittedModel) -> Self:
        blueprint = held.state.blueprint
        self.code_, self.features_ = blueprint.code, blueprint.features
        self._fitted_model = held
        return self

    def _commit(
        self, held: FittedModel, outcome: Outcome, *, forget: FoundRows | None = None, started: float = 0.0
    ) -> Report:
        """Make an outcome what the model holds."""

        def overwrite() -> None:
            after = FittedModel(outcome.commit(), held.index, held.default_ids, held.flat)
            if forget is not None:
                held.index.erase(forget)
            self._fitted_model = after

        try:
            overwrite()
        except BaseException:  # Ctrl-C within these few microseconds: finish what was begun
            overwrite()
            raise
        return Report(outcome.rows, outcome.learners, outcome.bounds_moved, time.perf_counter() - started)

    def _validate_rows(self, X: TableLike, y: ColumnLike, *, reset: bool) -> tuple[Floats, Floats, bool]:
        """Check rows and targets and return them as float64 matrices, and whether y was one-dimensional."""
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, order="C", multi_output=True, y_numeric=True)
        flat = y.ndim == 1
        y = y.reshape(len(y), -1).astype(np.float64, copy=False)
        if not reset and y.shape[1] != (t := self._state.ensemble.encoder.n_targets):
            raise InvalidInput(f"y must have {t} columns as in fit, got {y.shape[1]}")
        return X, y, flat

    def _validate_inputs(self, X: TableLike) -> Floats:
        """Check rows without targets; rows that need no conversion are only looked at."""
        if (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.flags.c_contiguous
            and self._has_fitted_shape(X.shape)
            and _is_finite(X)
        ):
            return X
        # In C order, because BLAS rounds other orders otherwise.
        checked: Floats = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return checked

    def _has_fitted_shape(self, shape: tuple[int, ...]) -> bool:
        """Whether rows without names of columns may have this shape."""
        named = "feature_names_in_" in self.__dict__
        return not named and len(shape) == 2 and shape[0] > 0 and shape[1] == self.n_features_in_

    def _admit_rows(self, X: TableLike, y: ColumnLike) -> tuple[Floats, Floats]:
        """Check rows for a model that is fitted; return them as they will be kept."""
        X, y, _ = self._validate_rows(X, y, reset=False)
        X, y = self._state.blueprint.admit(X, y, self._column_names())
        return unsigned_zeros(X), unsigned_zeros(y)

    def _needs_rows(self, X: TableLike, y: ColumnLike, method: str) -> bool:
        """Whether the caller has to bring the rows, which must then be there, and otherwise not."""
        coded = self._state.blueprint.keep == "coded"
        if coded and (X is None or y is None):
            raise InvalidInput(f"keep='coded' keeps no rows: {method} needs the ids and the rows as they were learned")
        if not coded and not (X is None and y is None):
            raise InvalidInput(f"{method} takes these rows only with keep='coded'; this model keeps its rows")
        return coded

    def _match_rows(self, ids: Any, X: TableLike, y: ColumnLike) -> tuple[Change, FoundRows]:
        if ids is None:
            raise InvalidInput("ids are missing: name each row's")
        X, y = self._admit_rows(X, y)
        return self._fitted_model.match_rows(ids_per_row(ids, X), X, y)

    def _place_survivors(self, X: TableLike, y: ColumnLike, ids: ColumnLike) -> Rows:
        """All surviving rows, brought along, in their slots."""
        state = self._state
        encoder, room = state.ensemble.encoder, len(state.ensemble.store.live)
        if not state.rows and not len(X):
            none = np.zeros((0, len(encoder.inputs.low))), np.zeros((0, encoder.n_targets))
            return Rows.place(*none, np.zeros(0, dtype=np.int64), room)
        change, _ = self._match_rows(ids, X, y)
        if len(change.slots) != state.rows:
            raise InvalidInput(f"retrained needs all {state.rows} surviving rows, got {len(change.slots)}")
        return Rows.place(*self._admit_rows(X, y), change.slots, room)

    def _column_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]


def _is_finite(X: Floats) -> bool:
    """Whether all values are finite; without native kernels, large ones may be taken for others."""
    if (native := kernels()) is not None:
        return bool(native.finite(X))
    with np.errstate(all="ignore"):
        return math.isfinite(X.sum())
