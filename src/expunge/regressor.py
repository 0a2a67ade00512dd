"""CodedRegressor: the scikit-learn face of an ensemble that can forget.

Here rows, targets, ids and parameters are checked, once; ids become slots; and a change is either carried out whole or
not at all. The mathematics is in the rooms below.
"""

import copy
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from .encoding.bounds import Bounds, BoundsLike
from .encoding.codes import Code
from .encoding.features import FeatureMap
from .encoding.randomness import Seed
from .errors import InvalidInput, InvalidSetting, NothingLearned
from .exact.arrays import Floats, unsigned_zeros
from .fitted import Fitted, distinct, placed, row_ids
from .learners import EstimatorRule
from .learning.blueprint import draw_blueprint
from .learning.rules import RidgeRule, RuleOf, mean_weights
from .learning.settings import Aggregate, Keep, Settings
from .learning.state import Outcome, State
from .saving.archive import Archive, write
from .saving.blueprints import load_blueprint
from .saving.parameters import load_settings, settings_parts
from .stores.change import Change
from .stores.ids import Found, as_ids
from .stores.rows import Rows
from .stores.store import coded_floats
from .transformers import MAPS, Identity

Table: TypeAlias = Any  # an array, or a pandas or polars frame
Column: TypeAlias = Any  # one or more columns of such


P = ParamSpec("P")
T = TypeVar("T")


def _exclusive(
    method: "Callable[Concatenate[CodedRegressor, P], T]",
) -> "Callable[Concatenate[CodedRegressor, P], T]":
    """Let one thread at a time in: a request reads the state and replaces it, and two at once would lose one."""

    @wraps(method)
    def locked(self: "CodedRegressor", /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.__dict__.setdefault("_lock", threading.RLock()):
            return method(self, *args, **kwargs)

    return locked


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


class NothingToPredictFrom(NotFittedError, NothingLearned):  # type: ignore[misc]  # scikit-learn has no types
    """Every row was unlearned: to scikit-learn, the model is not fitted."""


class CodedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A regression model that can forget: coded shards, exact integers, one weak learner per shard.

    Unlearning a row gives, bit for bit, the model that never saw it: ``fit(all).unlearn(some)`` and training on the
    other rows in their slots have the same digest, and the same weights on one machine. Threads may share a model:
    requests wait for each other, predictions do not wait.

    Parameters
    ----------
    shards : int
        Lanes, s: how many rows a coded stripe has.
    rate : float
        Rows per coded row, tau = s / r; there are ``shards / rate`` weak learners.
    density : float, optional
        Share of ones in the code, rho. None is the minimum: each row is in one learner.
    balanced : bool
        Whether all learners see equally many lanes.
    code : Code, optional
        A code of your own, instead of the four parameters above.
    features : FeatureMap, optional
        `RandomFourier`, `Powers`, or None for the scaled inputs as they are.
    alpha : float
        The ridge penalty in scikit-learn's convention (not divided by n); 0 is least squares.
    fit_intercept : bool
        Whether to learn an intercept: a column of ones, encoded like any other and not penalised.
    learner : "ridge" or a scikit-learn regressor
        The weak learner. An estimator is trained from scratch on its coded shard. Unless each learner has one lane
        (`Code.uncoded`, `Code.single`) it must be linear and have ``fit_intercept=False``: the encoded column of ones
        takes that part, and the estimator's penalty, if it has one, falls on it too. ``alpha`` is then not used.
    aggregate : {"mean", "median"}
        How the learners' predictions become one.
    bounds, target_bounds : None, "unit" or (low, high)
        The range of the inputs and of the target. None observes it (a row that moves it makes everything refit); a
        pair of scalars, or of one value per column, declares it, except in columns where both are None or NaN: these
        are observed; "unit" says that the values are in [-1, 1] and taken as they are.
    clip : bool
        Whether training rows outside declared bounds are clipped instead of refused.
    keep : {"rows", "coded"}
        What the model keeps: the rows, so that an id is enough to unlearn them; or only the coded rows, as in the
        paper, so that the rows must be brought along. "coded" needs bounds of which none is observed.
    random_state : int, Generator, RandomState or None
        The seed of the code, the features and the slots.

    Attributes
    ----------
    code_ : Code
    features_ : FeatureMap
    bounds_, target_bounds_ : Bounds
    coef_ : array, shape (D,) or (t, D)
        Mean weights of the ridge learners on the features of the scaled row, for the scaled target.
    intercept_ : float or array of shape (t,)
    n_rows_ : int
        Rows that the model has learned and not unlearned.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from expunge import CodedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((100, 3))
    >>> y = X @ [1.0, 2.0, 3.0]
    >>> model = CodedRegressor(shards=10, rate=5, bounds=(0, 1), random_state=0).fit(X, y, ids=np.arange(1000, 1100))
    >>> report = model.unlearn([1007, 1003])
    >>> report.rows, model.n_rows_
    (2, 98)
    >>> model.digest() == model.retrained().digest()
    True
    """

    def __init__(
        self,
        *,
        shards: int = 5,
        rate: float = 5,
        density: float | None = None,
        balanced: bool = True,
        code: Code | None = None,
        features: FeatureMap | None = None,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        learner: Any = "ridge",
        aggregate: Aggregate = "mean",
        bounds: BoundsLike = None,
        target_bounds: BoundsLike = None,
        clip: bool = False,
        keep: Keep = "rows",
        random_state: Seed = None,
    ) -> None:
        self.shards = shards
        self.rate = rate
        self.density = density
        self.balanced = balanced
        self.code = code
        self.features = features
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.learner = learner
        self.aggregate = aggregate
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.clip = clip
        self.keep = keep
        self.random_state = random_state

    @_exclusive
    def fit(self, X: Table, y: Column, ids: Column = None) -> Self:
        """Learn rows (Algorithm 1). What was learned before is gone.

        Parameters
        ----------
        X : array or frame, shape (n, d)
            The inputs.
        y : array, shape (n,) or (n, t)
            The target or targets.
        ids : array of int or str, shape (n,), optional
            Whose row it is; one id may have many rows. Default: 0, 1, ..., n - 1.
        """
        before = self.__dict__.copy()
        try:
            X, y, flat = self._read(X, y, reset=True)
            named = None if ids is None else as_ids(ids, rows=len(X))
            settings = Settings.of(self)
            if settings.features is None:
                settings = replace(settings, features=Identity())
            blueprint = draw_blueprint(settings, X.shape[1], y.shape[1], rule=_rule_of(self.learner))
            rows, slots = placed(blueprint, *blueprint.admit(X, y, self._column_names()))
            del X, y  # where they had to be converted, they are copies: free them
            self._take(Fitted.learn(blueprint, rows, slots, named, flat=flat))
        except BaseException:
            self.__dict__ = before  # a failed fit leaves the model that there was
            raise
        return self

    @_exclusive
    def partial_fit(self, X: Table, y: Column, ids: Column = None) -> Self:
        """Learn more rows; the first call is `fit`.

        Parameters
        ----------
        X : array or frame, shape (n, d)
            The inputs.
        y : array, shape (n,) or (n, t)
            The target or targets.
        ids : array of int or str, shape (n,), optional
            As in `fit`. Default ids go on counting; a model that was given ids wants ids.
        """
        if "_held" not in self.__dict__:
            return self.fit(X, y, ids)
        X, y = self._rows(X, y)
        roomy, change = self._held.adding(X, y, None if ids is None else as_ids(ids, rows=len(X)))
        self._commit(roomy, roomy.state.after(change))
        return self

    @_exclusive
    def unlearn(self, ids: Any, X: Table = None, y: Column = None) -> Report:
        """Unlearn all rows of these ids (Algorithm 3): afterwards the model is the one that never saw them.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, in any order, each once. An id that is not there is an error, and nothing is changed.
        X, y : array, only with ``keep="coded"``
            The rows of these ids, ``ids`` then naming each row's. They are checked against their fingerprints.
        """
        started = time.perf_counter()
        held = self._fitted()
        if self._wants_rows(X, y, "unlearn"):
            change, found = self._brought(ids, X, y)
        else:
            found = held.index.find(distinct(as_ids(ids)))
            change = Change(found.slots)
        return self._commit(held, held.state.after(change), forget=found, started=started)

    @_exclusive
    def rectify(self, ids: Any, X: Table, y: Column, *, old_X: Table = None, old_y: Column = None) -> Report:
        """Replace all rows of these ids by right ones, in their slots.

        Parameters
        ----------
        ids : int, str or a sequence of them
            Each row's id. An id with several rows gets as many, in the order in which they first came.
        X, y : array
            The right rows.
        old_X, old_y : array, only with ``keep="coded"``
            The rows as they were learned, row by row.
        """
        started = time.perf_counter()
        held = self._fitted()
        if self._wants_rows(old_X, old_y, "rectify"):
            change, _ = self._brought(ids, old_X, old_y)
        else:
            change = Change(held.slots_of(row_ids(ids, X))[0])
        X, y = self._rows(X, y)
        if len(X) != len(change.slots):
            raise InvalidInput(f"rectify needs one id per row, got {len(change.slots)} ids for {len(X)} rows")
        return self._commit(held, held.state.after(replace(change, X=X, y=y)), started=started)

    def predict(self, X: Table) -> Floats:
        """Predict the target of rows: (n, d) -> (n,) or (n, t). Rows outside the bounds are extrapolated."""
        held = self._fitted()
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)  # BLAS rounds other orders otherwise
        try:
            predicted = held.state.ensemble.predict(X)
        except NothingLearned as error:
            raise NothingToPredictFrom(str(error)) from None
        return predicted[:, 0] if held.flat else predicted

    @_exclusive
    def digest(self) -> str:
        """A fingerprint of the model, 64 hex characters: models with equal digests predict the same.

        It covers everything that predictions follow from: the code, what the features drew, the bounds, the rule of
        the learners, the slots in use and each learner's integers; not whose rows they are, nor what is kept of them.
        It is the same on every machine. Keep the digest of an *earlier* state as secret as the rows that were unlearned
        since: whoever also has the other rows can test guesses against it.
        """
        return self._fitted().state.ensemble.digest()

    @_exclusive
    def retrained(self, X: Table = None, y: Column = None, ids: Column = None) -> "CodedRegressor":
        """The same model, built from scratch on the surviving rows in their slots: what an auditor compares with.

        Parameters
        ----------
        X, y, ids : array, only with ``keep="coded"``
            All surviving rows and their ids, in any order.
        """
        held = self._fitted()
        store = held.state.ensemble.store
        own = not self._wants_rows(X, y, "retrained")
        rows = store.as_rows().grown(len(store.live)) if own else self._surviving(X, y, ids)
        return self._like(held.retrained(rows))

    def _surviving(self, X: Table, y: Column, ids: Column) -> Rows:
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

    def __copy__(self) -> "CodedRegressor":
        return copy.deepcopy(self)  # two models that shared their rows would forget each other's

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_lock", None)
        return state

    @_exclusive
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

    @_exclusive
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file of plain arrays and JSON (never a pickle), in place of the file that was there.

        The file holds the rows (or coded rows) and ids that the model holds: keep it as safe as the data. It is
        readable by its owner alone. It is written beside the old one first (``.name.xxxxxxxx``): whoever kills the
        process at that moment has that file to delete.
        """
        header, arrays = self._fitted().parts()
        names = getattr(self, "feature_names_in_", None)
        header["feature_names"] = None if names is None else names.tolist()
        write(path, header | settings_parts(Settings.of(self)), arrays)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, learner: Any = None, features: FeatureMap | None = None
    ) -> "CodedRegressor":
        """Read a model that was saved; a file that is damaged or cannot be is refused, and nothing in it is run.

        The learners' moments are taken from the file as they are: compare digests with `retrained` if you doubt them.

        Parameters
        ----------
        path : path
            The file.
        learner : estimator, optional
            The estimator of a model that was saved with one: code never comes from a file. It is fitted anew.
        features : FeatureMap, optional
            The feature map of a model that was saved with one of your own, with the same parameters. What it drew
            comes from the file.
        """
        with Archive(path) as archive:
            blueprint = load_blueprint(archive, rule=_rule_of(learner), features=features, maps=MAPS)
            held = Fitted.load(archive, blueprint)
            settings = load_settings(archive, blueprint, "ridge" if learner is None else learner)
            names, inputs = archive.header.get("feature_names"), blueprint.features.n_features_in_
            if names is not None and not (isinstance(names, list) and len(names) == inputs):
                raise archive.refuse("the names of the columns are not as many as the columns")
        model = cls(**vars(settings))
        model.n_features_in_ = inputs
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
        return model._take(held)

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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _fitted(self) -> Fitted:
        if "_held" not in self.__dict__:
            check_is_fitted(self)
        return self._held

    @property
    def _state(self) -> State:
        return self._held.state

    def _like(self, held: Fitted) -> "CodedRegressor":
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
            after = replace(held, state=outcome.commit())
            if forget is not None:
                held.index.erase(forget)
            self._held = after

        try:
            overwrite()
        except BaseException:  # Ctrl-C within these few microseconds: finish what was begun
            overwrite()
            raise
        return Report(outcome.rows, outcome.learners, outcome.bounds_moved, time.perf_counter() - started)

    def _read(self, X: Table, y: Column, *, reset: bool) -> tuple[Floats, Floats, bool]:
        """Check rows and targets and return them as float64 matrices, and whether y was one-dimensional."""
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, order="C", multi_output=True, y_numeric=True)
        flat = y.ndim == 1
        y = y.reshape(len(y), -1).astype(np.float64, copy=False)
        if not reset and y.shape[1] != (t := self._state.ensemble.encoder.n_targets):
            raise InvalidInput(f"y must have {t} columns as in fit, got {y.shape[1]}")
        return X, y, flat

    def _rows(self, X: Table, y: Column) -> tuple[Floats, Floats]:
        """Check rows for a model that is fitted; return them as they will be kept."""
        X, y, _ = self._read(X, y, reset=False)
        X, y = self._state.blueprint.admit(X, y, self._column_names())
        return unsigned_zeros(X), unsigned_zeros(y)

    def _wants_rows(self, X: Table, y: Column, what: str) -> bool:
        """Whether the caller has to bring the rows, which must then be there, and otherwise not."""
        coded = self._state.blueprint.keep == "coded"
        if coded and (X is None or y is None):
            raise InvalidInput(f"keep='coded' keeps no rows: {what} needs the ids and the rows as they were learned")
        if not coded and not (X is None and y is None):
            raise InvalidInput(f"{what} takes these rows only with keep='coded'; this model keeps its rows")
        return coded

    def _brought(self, ids: Any, X: Table, y: Column) -> tuple[Change, Found]:
        if ids is None:
            raise InvalidInput("ids are missing: name each row's")
        X, y = self._rows(X, y)
        return self._held.brought(row_ids(ids, X), X, y)

    def _column_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]


def _rule_of(learner: Any) -> RuleOf | None:
    """What brings the rule of an estimator; None for our own."""
    return None if learner is None or isinstance(learner, str) else partial(EstimatorRule.of, learner)
