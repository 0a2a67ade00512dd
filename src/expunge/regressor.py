"""CodedRegressor: the scikit-learn face of an ensemble that can forget.

Here rows, targets, ids and parameters are checked, once; ids become slots; and a change is either carried out whole or
not at all. The mathematics is in the rooms below.
"""

import os
import time
import warnings
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags

from .encoding.bounds import BoundsLike
from .encoding.codes import Code
from .encoding.encoder import Outside
from .encoding.features import FeatureMap
from .encoding.randomness import Seed
from .encoding.scales import ScalesLike
from .errors import InvalidInput, NothingLearned
from .estimator import (
    CodedEstimator,
    ColumnLike,
    FittedModel,
    Report,
    TableLike,
    check_distinct,
    exclusive,
    ids_per_row,
    place_rows,
)
from .exact.arrays import Floats
from .learners import EstimatorRule
from .learning.blueprint import draw_blueprint
from .learning.rules import RuleFactory
from .learning.settings import Aggregate, Keep, Settings
from .saving.archive import Archive, write_archive
from .saving.format import load_blueprint, load_settings, settings_parts
from .stores.change import Change
from .stores.ids import as_ids
from .transformers import MAPS, Identity


class NothingToPredictFrom(NotFittedError, NothingLearned):  # type: ignore[misc]  # scikit-learn has no types
    """Every row was unlearned: to scikit-learn, the model is not fitted."""


class CodedRegressor(RegressorMixin, CodedEstimator):  # type: ignore[misc]  # scikit-learn has no types
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
    scales : None, str or a list with one entry per input
        On which scale an input is given to the features: "linear" (None), from the low bound to the high one; "log", in
        orders of magnitude; or knots, a list of 2 to 256 rising numbers in the input's own units, which a piecewise
        linear map takes to 0, 1/m, 2/m, ..., 1. A list of such entries gives the input several times, once on each:
        ``scales=["linear", "log", ["linear", [0, 1, 5, 20]]]`` makes four scaled columns of three inputs.
    target_scales : None, "linear", "log" or a list with one of these names per target
        On which scale a target is learned. "log" is for amounts such as prices, where a tenth more matters alike for
        small and for large ones: orders of magnitude are learned and predicted, and predictions come back in the
        target's own units. They are then nearer to the median of what can be expected than to its mean.
    clip : bool
        Whether training rows outside declared bounds are clipped instead of refused.
    outside : {"clamp", "extrapolate"}
        What is predicted for a row with an input outside the bounds in force. "clamp": as for the nearest row inside,
        and no prediction lies outside the bounds of the targets, declared or observed, as trees do. "extrapolate": what
        the formula gives, which can be anything. `outside_rows` tells which rows that concerns.
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
        scales: ScalesLike = None,
        target_scales: ScalesLike = None,
        clip: bool = False,
        outside: Outside = "clamp",
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
        self.scales = scales
        self.target_scales = target_scales
        self.clip = clip
        self.outside = outside
        self.keep = keep
        self.random_state = random_state

    @exclusive
    def fit(self, X: TableLike, y: ColumnLike, ids: ColumnLike = None) -> Self:
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
            X, y, flat = self._validate_rows(X, y, reset=True)
            named = None if ids is None else as_ids(ids, rows=len(X))
            _warn_if_standardised(X)
            settings = Settings.from_model(self)
            if settings.features is None:
                settings = replace(settings, features=Identity())
            blueprint = draw_blueprint(settings, X.shape[1], y.shape[1], rule=_rule_factory(self.learner))
            rows, slots = place_rows(blueprint, *blueprint.admit(X, y, self._column_names()))
            del X, y  # where they had to be converted, they are copies: free them
            self._set_fitted_model(FittedModel.learn(blueprint, rows, slots, named, flat=flat))
        except BaseException:
            self.__dict__ = before  # a failed fit leaves the model that there was
            raise
        return self

    @exclusive
    def partial_fit(self, X: TableLike, y: ColumnLike, ids: ColumnLike = None) -> Self:
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
        if "_fitted_model" not in self.__dict__:
            return self.fit(X, y, ids)
        X, y = self._admit_rows(X, y)
        roomy, change = self._fitted_model.add_rows(X, y, None if ids is None else as_ids(ids, rows=len(X)))
        self._commit(roomy, roomy.state.prepare(change))
        return self

    @exclusive
    def unlearn(self, ids: Any, X: TableLike = None, y: ColumnLike = None) -> Report:
        """Unlearn all rows of these ids (Algorithm 3): afterwards the model is the one that never saw them.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, in any order, each once. An id that is not there is an error, and nothing is changed.
        X, y : array, only with ``keep="coded"``
            The rows of these ids, ``ids`` then naming each row's. They are checked against their fingerprints.
        """
        started = time.perf_counter()
        held = self._check_fitted()
        if self._needs_rows(X, y, "unlearn"):
            change, found = self._match_rows(ids, X, y)
        else:
            found = held.index.find(check_distinct(as_ids(ids)))
            change = Change(found.slots)
        return self._commit(held, held.state.prepare(change), forget=found, started=started)

    @exclusive
    def rectify(
        self, ids: Any, X: TableLike, y: ColumnLike, *, old_X: TableLike = None, old_y: ColumnLike = None
    ) -> Report:
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
        held = self._check_fitted()
        if self._needs_rows(old_X, old_y, "rectify"):
            change, _ = self._match_rows(ids, old_X, old_y)
        else:
            change = Change(held.find_slots(ids_per_row(ids, X))[0])
        X, y = self._admit_rows(X, y)
        if len(X) != len(change.slots):
            raise InvalidInput(f"rectify needs one id per row, got {len(change.slots)} ids for {len(X)} rows")
        return self._commit(held, held.state.prepare(change._replace(X=X, y=y)), started=started)

    def predict(self, X: TableLike) -> Floats:
        """Predict the target of rows: (n, d) -> (n,) or (n, t); for rows outside the bounds see ``outside``."""
        held = self._check_fitted()
        try:
            predicted = held.state.ensemble.predict(self._validate_inputs(X))
        except NothingLearned as error:
            raise NothingToPredictFrom(str(error)) from None
        return predicted[:, 0] if held.flat else predicted

    def outside_rows(self, X: TableLike) -> NDArray[np.bool_]:
        """Which rows have an input outside the bounds in force, (n,): ``outside`` says what is predicted for them."""
        held = self._check_fitted()
        return held.state.ensemble.encoder.inputs.outside_rows(self._validate_inputs(X))

    @exclusive
    def digest(self) -> str:
        """A fingerprint of the model, 64 hex characters: models with equal digests predict the same.

        It covers everything that predictions follow from: the code, what the features drew, the bounds, the rule of
        the learners, the slots in use and each learner's integers; not whose rows they are, nor what is kept of them.
        It is the same on every machine. Keep the digest of an *earlier* state as secret as the rows that were unlearned
        since: whoever also has the other rows can test guesses against it.
        """
        return self._check_fitted().state.ensemble.digest()

    @exclusive
    def retrained(self, X: TableLike = None, y: ColumnLike = None, ids: ColumnLike = None) -> Self:
        """The same model, built from scratch on the surviving rows in their slots: what an auditor compares with.

        Parameters
        ----------
        X, y, ids : array, only with ``keep="coded"``
            All surviving rows and their ids, in any order.
        """
        held = self._check_fitted()
        store = held.state.ensemble.store
        own = not self._needs_rows(X, y, "retrained")
        rows = store.as_rows().grow(len(store.live)) if own else self._place_survivors(X, y, ids)
        return self._clone_with(held.retrain(rows))

    @exclusive
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file of plain arrays and JSON (never a pickle), in place of the file that was there.

        The file holds the rows (or coded rows) and ids that the model holds: keep it as safe as the data. It is
        readable by its owner alone. It is written beside the old one first (``.name.xxxxxxxx``): whoever kills the
        process at that moment has that file to delete.
        """
        header, arrays = self._check_fitted().parts()
        names = getattr(self, "feature_names_in_", None)
        header["feature_names"] = None if names is None else names.tolist()
        write_archive(path, header | settings_parts(Settings.from_model(self)), arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, learner: Any = None, features: FeatureMap | None = None) -> Self:
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
            blueprint = load_blueprint(archive, rule=_rule_factory(learner), features=features, maps=MAPS)
            held = FittedModel.load(archive, blueprint)
            settings = load_settings(archive, blueprint, "ridge" if learner is None else learner)
            names, inputs = archive.header.get("feature_names"), len(blueprint.inputs.low)
            if names is not None and not (isinstance(names, list) and len(names) == inputs):
                raise archive.inconsistency("the names of the columns are not as many as the columns")
        model = cls(**vars(settings))
        model.n_features_in_ = inputs
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
        return model._set_fitted_model(held)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _warn_if_standardised(X: Floats) -> None:
    """Warn of rows that were standardised by their own mean: the last step of a Pipeline cannot see the others."""
    close = 1e-6  # far closer than the mean of rows that were scaled by anything else
    if abs(X[:, 0].mean()) > close:
        return  # most tables: spare a pass over all columns
    if (np.abs(X.mean(axis=0)) > close).any() or X.max() <= 1 + close:  # balanced columns of -1 and 1 are no scaler's
        return
    deviation = X.std(axis=0)
    if (np.abs(deviation[deviation > 0] - 1) <= close).all():
        warnings.warn(
            "every column has mean 0 and standard deviation 1 over exactly these rows: the scaler that did it keeps a "
            "share of each row, also when it is unlearned; pass the values as they are, with declared bounds or scales",
            stacklevel=4,  # whoever called fit
        )


def _rule_factory(learner: Any) -> RuleFactory | None:
    """What brings the rule of an estimator; None for our own."""
    return None if learner is None or isinstance(learner, str) else partial(EstimatorRule.from_estimator, learner)
