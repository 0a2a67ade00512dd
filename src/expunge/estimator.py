"""The estimator that learns, forgets and corrects rows: what every model of this package has in common.

Rows, targets, ids and parameters are checked here, once; ids become slots; and a change is either carried out whole or
not at all. The mathematics is in the rooms below.

A subclass names its parameters, turns y into columns of numbers (`CodedEstimator._read_targets`) and outputs of the
ensemble into predictions (``predict``).
"""

import copy
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial, wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from .encoding.bounds import Bounds
from .encoding.codes import Code
from .encoding.features import FeatureMap
from .errors import InvalidInput, InvalidSetting, NothingLearned, format_positions
from .exact.arrays import Floats, Slots, unsigned_zeros
from .exact.native import kernels
from .learners import EstimatorRule
from .learning.blueprint import Blueprint, draw_blueprint
from .learning.rules import RuleFactory
from .learning.settings import Settings
from .learning.state import ModelState, Outcome, place_rows
from .saving.archive import Archive, write_archive
from .saving.format import (
    Parts,
    index_parts,
    load_blueprint,
    load_index,
    load_settings,
    load_state,
    settings_parts,
    state_parts,
)
from .stores.change import Change
from .stores.ids import FoundRows, IdIndex, Ids, as_ids, slots_of_mentions
from .stores.store import Rows, coded_floats
from .transformers import MAPS, Identity

TableLike: TypeAlias = Any  # an array, or a pandas or polars frame
ColumnLike: TypeAlias = Any  # one or more columns of a table

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound="CodedEstimator")


class NothingToPredictFrom(NotFittedError, NothingLearned):  # type: ignore[misc]  # scikit-learn has no types
    """Every row was unlearned: to scikit-learn, the model is not fitted."""


@dataclass(frozen=True)
class Report:
    """What a request did.

    Attributes
    ----------
    rows : int
        Rows that were erased or corrected.
    learners : int
        Weak learners that were trained again.
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
    """A trained state and the index of its rows' ids. A change makes a new one; store and index change in place."""

    state: ModelState
    index: IdIndex
    default_ids: bool  # whether all ids so far were 0, 1, 2, ...
    flat: bool  # whether y was one-dimensional

    def add_rows(self, X: Floats, y: Floats, ids: Ids | None) -> tuple[Self, Change]:
        """Return the model with room for more rows, and the change that puts them there."""
        if ids is None and not self.default_ids:
            raise InvalidInput("this model was given ids: pass ids for the new rows as well")
        first = self.state.drawn
        state, slots = self.state.with_room(len(X))
        index = self.index.with_rows(np.arange(first, state.drawn) if ids is None else ids, slots)
        return replace(self, state=state, index=index, default_ids=ids is None), Change(slots, X, y)

    def find_slots(self, row_ids: Ids) -> tuple[Slots, FoundRows]:
        """Return the slot of each row named by its id: the k-th mention of an id is its k-th row."""
        unique_ids, group = np.unique(row_ids, return_inverse=True)
        found = self.index.find(unique_ids)
        where, way_out = "in the model than were given", "unlearn the id and use partial_fit"
        return slots_of_mentions(group, found.slots, found.counts, where=where, way_out=way_out), found

    def match_rows(self, row_ids: Ids, X: Floats, y: Floats) -> tuple[Change, FoundRows]:
        """Return the removal of rows that the caller passed, each matched with its slot by id and fingerprint."""
        slots, found = self.find_slots(row_ids)
        ensemble = self.state.ensemble
        Z = ensemble.encoder.integers(X, y)
        located = ensemble.store.locate(slots, np.unique(row_ids, return_inverse=True)[1], Z)
        return Change(located, old=Z), found

    def apply(self, change: Change) -> tuple[Self, Outcome]:
        """Return the model after a change, and the outcome to commit; nothing is overwritten yet."""
        outcome = self.state.prepare(change)
        return replace(self, state=outcome.state), outcome

    def retrain(self, rows: Rows) -> Self:
        """Return the same model, trained from scratch on these rows."""
        state = ModelState.learn(self.state.blueprint, rows, self.state.drawn)
        return replace(self, state=state, index=IdIndex(*self.index.entries()))

    def parts(self) -> Parts:
        """Return a header and arrays for a file."""
        header, arrays = state_parts(self.state)
        index_header, index_arrays = index_parts(self.index)
        header |= index_header | {"default_ids": self.default_ids, "flat": self.flat}
        return header, arrays | index_arrays

    @classmethod
    def load(cls, archive: Archive, blueprint: Blueprint) -> Self:
        """Read a model from the header and arrays that `parts` returned."""
        state = load_state(archive, blueprint)
        index = load_index(archive, state.ensemble.store.live)
        return cls(state, index, archive.get("default_ids", bool), archive.get("flat", bool))


def exclusive(method: Callable[Concatenate[E, P], T]) -> Callable[Concatenate[E, P], T]:
    """Let one thread at a time in: a request reads the state and replaces it, and two at once would lose one."""

    @wraps(method)
    def locked(self: E, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.__dict__.setdefault("_lock", threading.RLock()):
            return method(self, *args, **kwargs)

    return locked


class CodedEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scikit-learn estimator on coded shards, from which rows can be unlearned: the base of all models."""

    code_: Code
    features_: FeatureMap
    learner: Any
    _fitted_model: FittedModel

    _task: ClassVar[str]
    """What the model predicts; a file can only be loaded by a model with the same task."""

    _estimator_rule: ClassVar[type[EstimatorRule]] = EstimatorRule
    """The rule of a learner that is a scikit-learn estimator."""

    _fitted_class: ClassVar[type[FittedModel]] = FittedModel

    _target_checks: ClassVar[dict[str, Any]] = {}
    """How scikit-learn checks y: further arguments of ``validate_data``."""

    def _read_targets(self, y: NDArray[Any], *, reset: bool) -> Floats:
        """Turn a checked y into columns of numbers, (n, t); ``reset`` is True in `fit`."""
        raise NotImplementedError

    @exclusive
    def fit(self, X: TableLike, y: ColumnLike, ids: ColumnLike = None) -> Self:
        """Learn rows (Algorithm 1). Anything learned before is discarded.

        Parameters
        ----------
        X : array or frame, shape (n, d)
            The inputs.
        y : array, shape (n,) or (n, t)
            The target or targets.
        ids : array of int or str, shape (n,), optional
            The id of each row's owner; an id may have many rows. Default: 0, 1, ..., n - 1.
        """
        before = self.__dict__.copy()
        try:
            X, y, flat = self._validate_rows(X, y, reset=True)
            row_ids = None if ids is None else as_ids(ids, rows=len(X))
            _warn_if_standardised(X, self._column_names())
            blueprint = self._draw_blueprint(self._choose_settings(X, y, row_ids), X.shape[1], y.shape[1])
            rows, slots = place_rows(blueprint, *blueprint.admit(X, y, self._column_names()))
            del X, y  # if they were converted, they are copies: free them
            state = ModelState.learn(blueprint, rows, len(slots))
            self._set_fitted_model(self._make_fitted_model(state, IdIndex(row_ids, slots), ids is None, flat))
        except BaseException:
            self.__dict__ = before  # a failed fit leaves the previous model
            raise
        return self

    @exclusive
    def partial_fit(self, X: TableLike, y: ColumnLike, ids: ColumnLike = None) -> Self:
        """Learn more rows; the first call is `fit`.

        Parameters
        ----------
        X, y, ids
            As in `fit`. Default ids continue counting; a model that was fitted with ids needs ids here as well.
        """
        if "_fitted_model" not in self.__dict__:
            return self.fit(X, y, ids)
        X, y = self._admit_rows(X, y)
        roomy, change = self._fitted_model.add_rows(X, y, None if ids is None else as_ids(ids, rows=len(X)))
        self._commit(*roomy.apply(change))
        return self

    @exclusive
    def unlearn(self, ids: Any, X: TableLike = None, y: ColumnLike = None) -> Report:
        """Unlearn all rows of these ids (Algorithm 3): afterwards the model is the one that never saw them.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, in any order, each once. An unknown id is an error, and nothing is changed.
        X, y : array, only with ``keep="coded"``
            The rows of these ids, with one entry of ``ids`` per row. They are checked against their fingerprints.
        """
        started = time.perf_counter()
        fitted = self._check_fitted()
        if self._needs_rows(X, y, "unlearn"):
            change, found = self._match_rows(ids, X, y)
        else:
            found = fitted.index.find(_check_distinct(as_ids(ids)))
            change = Change(found.slots)
        return self._commit(*fitted.apply(change), forget=found, started=started)

    @exclusive
    def rectify(
        self, ids: Any, X: TableLike, y: ColumnLike, *, old_X: TableLike = None, old_y: ColumnLike = None
    ) -> Report:
        """Replace all rows of these ids by corrected ones, in their slots.

        Parameters
        ----------
        ids : int, str or a sequence of them
            The id of each row. An id with several rows gets as many, in their order of arrival.
        X, y : array
            The corrected rows.
        old_X, old_y : array, only with ``keep="coded"``
            The rows as they were learned, in the same order.
        """
        started = time.perf_counter()
        fitted = self._check_fitted()
        if self._needs_rows(old_X, old_y, "rectify"):
            change, _ = self._match_rows(ids, old_X, old_y)
        else:
            change = Change(fitted.find_slots(_ids_per_row(ids, X))[0])
        X, y = self._admit_rows(X, y)
        if len(X) != len(change.slots):
            raise InvalidInput(f"rectify needs one id per row, got {len(change.slots)} ids for {len(X)} rows")
        return self._commit(*fitted.apply(change._replace(X=X, y=y)), started=started)

    def outside_rows(self, X: TableLike) -> NDArray[np.bool_]:
        """Return which rows have an input outside the bounds in force, (n,).

        The parameter ``outside`` says what is predicted for them.
        """
        return self._check_fitted().state.ensemble.encoder.inputs.outside_rows(self._validate_inputs(X))

    @exclusive
    def digest(self) -> str:
        """Return a fingerprint of the model, 64 hex characters: models with equal digests predict the same.

        It covers everything that predictions follow from: the code, what the features drew, the bounds, the rule of
        the learners, the slots in use and each learner's integers. It does not cover the ids, nor what is kept of the
        rows. It is the same on every machine. Keep the digest of an *earlier* state as secret as the rows that were
        unlearned since: anyone who also has the other rows can test guesses against it.
        """
        return self._check_fitted().state.ensemble.digest()

    @exclusive
    def retrained(self, X: TableLike = None, y: ColumnLike = None, ids: ColumnLike = None) -> Self:
        """Return the same model, trained from scratch on the surviving rows in their slots: an auditor's reference.

        Parameters
        ----------
        X, y, ids : array, only with ``keep="coded"``
            All surviving rows and their ids, in any order.
        """
        fitted = self._check_fitted()
        if self._needs_rows(X, y, "retrained"):
            rows = self._place_survivors(X, y, ids)
        else:
            store = fitted.state.ensemble.store
            rows = store.as_rows().grow(len(store.live))
        twin = type(self)(**self.get_params(deep=False))
        for name in ("n_features_in_", "feature_names_in_"):
            if name in self.__dict__:
                setattr(twin, name, self.__dict__[name])
        return twin._set_fitted_model(fitted.retrain(rows))

    @exclusive
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file of plain arrays and JSON (never a pickle), replacing any file there.

        The file contains the rows (or coded rows) and ids of the model: keep it as safe as the data. Only its owner can
        read it. It is first written beside the old one (``.name.xxxxxxxx``): if the process is killed meanwhile, that
        draft is left, and the next save deletes it.
        """
        header, arrays = self._check_fitted().parts()
        names = getattr(self, "feature_names_in_", None)
        header |= {"task": self._task, "feature_names": None if names is None else names.tolist()}
        write_archive(path, header | settings_parts(self._settings()) | self._own_header(), arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, learner: Any = None, features: FeatureMap | None = None) -> Self:
        """Read a saved model. A damaged or inconsistent file is refused, and nothing in it is executed.

        The learners' moments are taken from the file unchecked: compare digests with `retrained` if you doubt them.

        Parameters
        ----------
        path : path
            The file.
        learner : estimator, optional
            Required for a model that was saved with an estimator as learner, because code never comes from a file:
            the same estimator. It is fitted again.
        features : FeatureMap, optional
            Required for a model that was saved with a feature map of your own: the same map with the same parameters.
            What it drew comes from the file.
        """
        with Archive(path) as archive:
            if (task := archive.choice("task", ("regression", "classification", "planned regression"))) != cls._task:
                raise InvalidSetting(f"the file is a model for {task}, which {cls.__name__} cannot load")
            blueprint = load_blueprint(archive, rule=cls._rule_factory(learner), features=features, maps=MAPS)
            fitted = cls._fitted_class.load(archive, blueprint)
            settings = load_settings(archive, blueprint, "ridge" if learner is None else learner)
            names, inputs = archive.header.get("feature_names"), len(blueprint.inputs.low)
            if names is not None and not (isinstance(names, list) and len(names) == inputs):
                raise archive.inconsistency("the number of column names differs from that of the columns")
            model = cls._from_archive(archive, settings)
        model.n_features_in_ = inputs
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
        return model._set_fitted_model(fitted)

    @exclusive
    def coded_shard(self, learner: int) -> tuple[Floats, Floats]:
        """Return what one weak learner sees: its coded rows and targets, as floats (the paper's Algorithm 1).

        Parameters
        ----------
        learner : int
            The learner's number, from 0.

        Returns
        -------
        X : array, shape (m, D) or, with an intercept, (m, D + 1)
            Coded features; with an intercept the last column is the coded column of ones.
        y : array, shape (m,) or (m, t)
            Coded targets, scaled.
        """
        fitted = self._check_fitted()
        ensemble = fitted.state.ensemble
        if not 0 <= learner < ensemble.encoder.code.learners:
            raise InvalidSetting(f"learner must be from 0 to {ensemble.encoder.code.learners - 1}, got {learner!r}")
        X, y = coded_floats(ensemble.encoder, ensemble.store.shard(ensemble.encoder, learner))
        return X, y[:, 0] if fitted.flat else y

    @property
    def bounds_(self) -> Bounds:
        """The bounds of the inputs in force."""
        return self._check_fitted().state.ensemble.encoder.inputs

    @property
    def n_rows_(self) -> int:
        """The number of rows learned and not unlearned."""
        return self._check_fitted().state.rows

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # a shallow copy would share the store, and unlearn the original's rows

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

    def _set_fitted_model(self, fitted: FittedModel) -> Self:
        blueprint = fitted.state.blueprint
        self.code_, self.features_ = blueprint.code, blueprint.features
        self._fitted_model = fitted
        return self

    def _settings(self) -> Settings:
        """Return the settings in use."""
        return Settings.from_model(self)

    def _choose_settings(self, X: Floats, y: Floats, ids: Ids | None) -> Settings:
        """Return the settings with which to learn these rows, in `fit`."""
        return self._settings()

    def _draw_blueprint(self, settings: Settings, inputs: int, targets: int) -> Blueprint:
        if settings.features is None:
            settings = replace(settings, features=Identity())
        return draw_blueprint(settings, inputs, targets, rule=self._choose_rule(settings))

    def _choose_rule(self, settings: Settings) -> RuleFactory | None:
        """Return what makes the rule of the learners; None for ridge regression."""
        return self._rule_factory(settings.learner)

    @classmethod
    def _rule_factory(cls, learner: Any) -> RuleFactory | None:
        """Return a function that makes the rule of a scikit-learn estimator; None for "ridge"."""
        return (
            None
            if learner is None or isinstance(learner, str)
            else partial(cls._estimator_rule.from_estimator, learner)
        )

    def _make_fitted_model(self, state: ModelState, index: IdIndex, default_ids: bool, flat: bool) -> FittedModel:
        return FittedModel(state, index, default_ids, flat)

    def _own_header(self) -> dict[str, Any]:
        """Return what a saved model of this class has in its header besides rows and settings."""
        return {}

    @classmethod
    def _from_archive(cls, archive: Archive, settings: Settings) -> Self:
        """Return a model with the parameters that were saved; it is not fitted yet."""
        return cls(**{name: getattr(settings, name) for name in cls._get_param_names()})

    def _predict_outputs(self, X: TableLike) -> Floats:
        """Predict the columns that `_read_targets` returned, in their own units: (n, d) -> (n, t)."""
        ensemble = self._check_fitted().state.ensemble
        try:
            return ensemble.predict(self._validate_inputs(X))
        except NothingLearned as error:
            raise NothingToPredictFrom(str(error)) from None

    def _commit(
        self, after: FittedModel, outcome: Outcome, *, forget: FoundRows | None = None, started: float = 0.0
    ) -> Report:
        """Replace the model by the one after a change, overwrite the old rows, and erase the ids to forget."""

        def overwrite() -> None:
            outcome.commit()
            if forget is not None:
                after.index.erase(forget)
            self._fitted_model = after

        try:
            overwrite()
        except BaseException:  # Ctrl-C within these few microseconds: finish first
            overwrite()
            raise
        return Report(outcome.rows, outcome.learners, outcome.bounds_moved, time.perf_counter() - started)

    def _validate_rows(self, X: TableLike, y: ColumnLike, *, reset: bool) -> tuple[Floats, Floats, bool]:
        """Check rows and targets and return them as float64 matrices, and whether y was one-dimensional."""
        X, y = self._validate(X, y, reset=reset, dtype=np.float64, order="C", **self._target_checks)
        return X, self._read_targets(y, reset=reset), y.ndim == 1

    def _validate(self, X: TableLike, *others: Any, **checks: Any) -> Any:
        """Check data as scikit-learn does, with our own error where its own would quote cells."""
        try:
            return validate_data(self, X, *others, **checks)
        except (TypeError, ValueError):
            error = explain_inputs(X)
            if error is None and others and checks.get("y_numeric"):
                error = explain_targets(others[0])
            if error is not None:
                raise error from None
            raise

    def _validate_inputs(self, X: TableLike) -> Floats:
        """Check rows without targets. Rows that need no conversion skip scikit-learn's slower checks."""
        if (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.flags.c_contiguous
            and "feature_names_in_" not in self.__dict__
            and X.ndim == 2
            and X.shape[0] > 0
            and X.shape[1] == self.n_features_in_
            and _is_finite(X)
        ):
            return X
        # In C order, because BLAS rounds differently in other orders.
        checked: Floats = self._validate(X, dtype=np.float64, order="C", reset=False)
        return checked

    def _admit_rows(self, X: TableLike, y: ColumnLike) -> tuple[Floats, Floats]:
        """Check rows for a fitted model; return them as they will be kept."""
        X, y, _ = self._validate_rows(X, y, reset=False)
        X, y = self._state.blueprint.admit(X, y, self._column_names())
        return unsigned_zeros(X), unsigned_zeros(y)

    def _needs_rows(self, X: TableLike, y: ColumnLike, method: str) -> bool:
        """Return whether the caller has to pass the rows. Refuse missing rows, and rows that are not needed."""
        coded = self._state.blueprint.keep == "coded"
        if coded and (X is None or y is None):
            raise InvalidInput(f"keep='coded' keeps no rows: {method} needs the ids and the rows as they were learned")
        if not coded and not (X is None and y is None):
            raise InvalidInput(f"{method} takes these rows only with keep='coded'; this model keeps its rows")
        return coded

    def _match_rows(self, ids: Any, X: TableLike, y: ColumnLike) -> tuple[Change, FoundRows]:
        if ids is None:
            raise InvalidInput("ids are missing: pass one id per row")
        X, y = self._admit_rows(X, y)
        return self._fitted_model.match_rows(_ids_per_row(ids, X), X, y)

    def _place_survivors(self, X: TableLike, y: ColumnLike, ids: ColumnLike) -> Rows:
        """Put all surviving rows, which the caller passed, into their slots."""
        state = self._state
        encoder, room = state.ensemble.encoder, len(state.ensemble.store.live)
        if not state.rows and not len(X):
            no_rows = np.zeros((0, len(encoder.inputs.low))), np.zeros((0, encoder.n_targets))
            return Rows.place(*no_rows, np.zeros(0, dtype=np.int64), room)
        change, _ = self._match_rows(ids, X, y)
        if len(change.slots) != state.rows:
            raise InvalidInput(f"retrained needs all {state.rows} surviving rows, got {len(change.slots)}")
        return Rows.place(*self._admit_rows(X, y), change.slots, room)

    def _column_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]


def _ids_per_row(ids: Any, X: Any) -> Ids:
    """Return one id per row; a single id applies to all rows."""
    array = as_ids(ids)
    return np.repeat(array, len(X)) if len(array) == 1 and hasattr(X, "__len__") else array


def _check_distinct(ids: Ids) -> Ids:
    """Return the ids, or refuse duplicates."""
    if not len(ids):
        raise InvalidInput("ids is empty: name at least one id")
    if len(ids) == 1:
        return ids
    _, first = np.unique(ids, return_index=True)
    if len(first) < len(ids):
        repeated = np.setdiff1d(np.arange(len(ids)), first).tolist()
        raise InvalidInput(f"duplicates in ids: {len(repeated)}, {format_positions(repeated)}; name each id once")
    return ids


def _is_finite(X: Floats) -> bool:
    """Return whether all values are finite. Without native kernels, False is also possible if their sum overflows."""
    if (native := kernels()) is not None:
        return bool(native.finite(X))
    with np.errstate(all="ignore"):
        return math.isfinite(X.sum())


def _warn_if_standardised(X: Floats, names: Sequence[str] | None) -> None:
    """Warn about columns that were standardised by these rows: the last step of a Pipeline does not see the others."""
    close = 1e-6  # far closer than the mean of rows that were scaled by anything else
    centred: list[int] = np.flatnonzero(np.abs(X.mean(axis=0)) <= close).tolist()
    # One column at a time, to hold no copy of X. Balanced columns of -1 and 1 need no scaler.
    if scaled := [j for j in centred if abs(X[:, j].std() - 1) <= close and X[:, j].max() > 1 + close]:
        which = _name_columns(names, scaled)
        warnings.warn(
            f"mean 0 and standard deviation 1 over exactly these rows: {which}; the scaler that did this keeps a trace "
            "of each row, even after it is unlearned. Pass unscaled values, with declared bounds or scales",
            stacklevel=4,  # the caller of fit
        )


def _name_columns(names: Sequence[str] | None, chosen: Sequence[int]) -> str:
    """Return columns as a message names them: by name or, without names, by position from 0; at most ten."""
    shown = [str(j) if names is None else repr(names[j]) for j in chosen[:10]]
    more = f" and {len(chosen) - 10:,} more" if len(chosen) > 10 else ""
    return f"column{'s'[: len(chosen) > 1]} {', '.join(shown)}{more}"


def explain_inputs(X: TableLike) -> InvalidInput | None:
    """Return our own error for inputs with text, dates or empty cells; None if they have none of these.

    scikit-learn's error quotes the cell, and advises an imputer, which keeps people's values.
    """
    try:
        names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        columns = list(np.asarray(X).T) if names is None else [np.asarray(X[name]) for name in X.columns]
    except (TypeError, ValueError):
        return None  # neither a frame nor an array
    found: dict[str, list[int]] = {"text": [], "dates": [], "empty cells (NaN)": []}
    for j, column in enumerate(columns):
        if column.ndim != 1:
            return None
        kinds = {type(cell) for cell in column} if column.dtype.kind == "O" else set()
        if column.dtype.kind in "mM" or any(issubclass(kind, date) for kind in kinds):
            found["dates"].append(j)
        elif column.dtype.kind in "UST" or str in kinds:
            found["text"].append(j)
        elif bool(np.not_equal(column, column).any()) if column.dtype.kind == "f" else _has_gaps(column, kinds):
            found["empty cells (NaN)"].append(j)
    if not any(found.values()):
        return None
    what = ", ".join(f"{problem} in {_name_columns(names, chosen)}" for problem, chosen in found.items() if chosen)
    return InvalidInput(
        f"X has {what}; declare the columns in a schema (expunge.Schema, in a pipeline SchemaTransformer, or a vault). "
        "An imputer or encoder that learns from these rows would keep people's values after they are unlearned"
    )


def explain_targets(y: ColumnLike) -> InvalidInput | None:
    """Return our own error for targets that are not finite numbers, by position; None if all are."""
    cells = np.asarray(y, dtype=object)
    if (
        not cells.size
        or cells.ndim not in (1, 2)
        or any(isinstance(cell, (complex, np.complexfloating)) for cell in cells.flat)
    ):
        return None  # scikit-learn's error says so
    if odd := [k for k, row in enumerate(cells.reshape(len(cells), -1)) if not all(map(_is_finite_number, row))]:
        rows = f"{len(odd):,} of {len(cells):,} rows, {format_positions(odd)}"
        return InvalidInput(f"y has cells that are not finite numbers (text, NaN or infinite): {rows}; leave them out")
    return None


def _is_finite_number(cell: object) -> bool:
    try:
        return math.isfinite(float(cell))  # type: ignore[arg-type]  # that is the question
    except (TypeError, ValueError, OverflowError):
        return False


def _has_gaps(column: NDArray[Any], kinds: set[type]) -> bool:
    """Return whether a column of objects has empty cells: None, NaN or the NA of pandas."""
    return any(kind.__name__ in ("NoneType", "NAType", "NaTType") for kind in kinds) or any(
        cell != cell for cell in column if isinstance(cell, float)
    )
