"""CodedClassifier: a scikit-learn classifier that can forget, with calibrated probabilities."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from .encoding.bounds import BoundsLike, parse_bounds
from .encoding.codes import Code
from .encoding.encoder import Outside
from .encoding.features import FeatureMap
from .encoding.randomness import Key, Seed
from .encoding.scales import Scales, ScalesLike
from .encoding.values import as_float
from .errors import InvalidSetting
from .estimator import (
    CodedEstimator,
    ColumnLike,
    FittedModel,
    NothingToPredictFrom,
    Report,
    TableLike,
    exclusive,
)
from .exact.arrays import Floats
from .learners import ClassifierRule
from .learning.blueprint import Blueprint
from .learning.calibration import Calibrator, Pairs, calibrate
from .learning.calibration_rows import CalibrationPool, CalibrationRows
from .learning.class_rules import ClassRule, OneHotRule
from .learning.ensemble import Ensemble
from .learning.labels import Labels, as_labels
from .learning.rules import Rule, RuleFactory
from .learning.settings import Aggregate, Keep, Settings
from .learning.state import ModelState, Outcome
from .saving.archive import Archive
from .saving.format import Parts
from .stores.change import Change
from .stores.ids import IdIndex
from .stores.store import Rows

_FLOOR = 1e-3  # the least score of a class that has rows, where scores are not calibrated


@dataclass(frozen=True)
class ClassifierReport(Report):
    """What a request did to a classifier.

    Attributes
    ----------
    classes_moved : bool
        Whether an observed class came or lost its last row, so that everything was refitted.
    """

    classes_moved: bool


@dataclass(frozen=True, eq=False)
class FittedClassifier(FittedModel):
    """A trained classifier. Its targets are one column of zeros and ones per class."""

    labels: Labels
    counts: NDArray[np.int64]  # rows of each class
    pairs: Pairs
    pool: CalibrationPool | None = None  # of these rows, if it is known

    def apply(self, change: Change) -> tuple[Self, Outcome]:
        counts = self.counts - self._count_present(change)
        if change.y is not None:
            counts += change.y.sum(axis=0).astype(np.int64)
        if not self.labels.declared and not counts.all() and len(self.labels):
            return self._drop_classes(change, counts)
        outcome = self.state.prepare(change)
        pool = self._candidates[0] if "_candidates" in vars(self) else self.pool
        pool = pool.without(change.slots) if pool is not None and change.erases else None  # others: scan again
        return replace(self, state=outcome.state, counts=counts, pool=pool), outcome

    def with_labels(self, labels: Labels) -> Self:
        """Return the model, learned again, with other observed classes: all that have rows and maybe more."""
        if len(labels) == len(self.labels):
            return self
        blueprint, rows, columns = self._move_columns(labels)
        state = ModelState.learn(blueprint, rows, self.state.drawn)
        return replace(self, state=state, labels=labels, counts=_move(self.counts[None], columns)[0], pool=None)

    def retrain(self, rows: Rows) -> Self:
        return replace(super().retrain(rows), pool=None)

    @property
    def calibrated(self) -> bool:
        """Whether probabilities come from a calibrator."""
        blueprint = self.state.blueprint
        return blueprint.keep == "rows" and isinstance(blueprint.rule, OneHotRule) and blueprint.aggregate != "vote"

    @cached_property
    def link(self) -> tuple[Ensemble, Calibrator | None]:
        """What predictions are made from: learners, and the map from their outputs to probabilities."""
        ensemble, present = self.state.ensemble, self.counts > 0
        if not self.calibrated or not present.any():
            return ensemble, None
        if ensemble.aggregate == "pooled":
            ensemble = ensemble.pooled
        X, _ = ensemble.store.as_rows().take(self.calibration_rows.slots)
        return calibrate(ensemble, self.calibration_rows, X, present, self.pairs)

    @property
    def calibration_rows(self) -> CalibrationRows:
        """The rows that probabilities are calibrated on."""
        return self._candidates[1]

    @cached_property
    def _candidates(self) -> tuple[CalibrationPool, CalibrationRows]:
        """A pool and the rows chosen from it. The pool that is known does, unless too many of its rows were erased."""
        if self.pool is not None and (rows := self.pool.choose(self.counts)) is not None:
            return self.pool, rows
        store = self.state.ensemble.store
        slots = np.flatnonzero(store.live)
        classes = store.as_rows().y[slots].argmax(axis=1)
        pool = CalibrationPool.scan(self.state.blueprint.key, slots, classes, self.index.number_people(slots))
        rows = pool.choose(self.counts)
        assert rows is not None  # a new pool has enough
        return pool, rows

    def _count_present(self, change: Change) -> NDArray[np.int64]:
        """Return how many of the rows that a change replaces are of each class."""
        encoder, store = self.state.ensemble.encoder, self.state.ensemble.store
        if change.old is not None:
            present = change.old[:, encoder.n_weights :] * 2.0**-encoder.bits
        elif self.state.blueprint.keep == "coded":  # new rows
            present = np.zeros((0, len(self.counts)))
        else:
            present = store.as_rows().take(change.slots[store.live[change.slots]])[1]
        counts: NDArray[np.int64] = present.sum(axis=0).astype(np.int64)
        return counts

    def _drop_classes(self, change: Change, counts: NDArray[np.int64]) -> tuple[Self, Outcome]:
        """Apply a change that erases the last row of a class: learn everything again without its column."""
        labels = self.labels.keep(counts > 0)
        blueprint, rows, columns = self._move_columns(labels)
        change = change._replace(y=None if change.y is None else _move(change.y, columns))
        state = ModelState.learn(blueprint, rows, self.state.drawn, change)
        before, after = self.state.extents.inputs.bounds, state.extents.inputs.bounds
        moved = not (np.array_equal(before.low, after.low) and np.array_equal(before.high, after.high))
        overwrite = rows.prepare(state.ensemble.encoder, change)
        outcome = Outcome(state, len(change.slots), len(state.ensemble.states), moved, overwrite)
        return replace(self, state=state, labels=labels, counts=_move(counts[None], columns)[0], pool=None), outcome

    def _move_columns(self, labels: Labels) -> tuple[Blueprint, Rows, NDArray[np.int64]]:
        """Return blueprint and rows for other classes, and the present column of each class, -1 for a new one."""
        columns = self.labels.columns_of(labels) if len(labels) else np.array([-1])  # without rows, one empty column
        targets = parse_bounds("unit", len(columns), name="classes")
        scales = Scales.parse_targets(None, len(columns))
        store = self.state.ensemble.store.as_rows()
        blueprint = replace(self.state.blueprint, targets=targets, target_scales=scales)
        return blueprint, Rows(store.X, _move(store.y, columns), store.live), columns

    def parts(self) -> Parts:
        header, arrays = super().parts()
        described = {"labels": self.labels.describe(), "counts": self.counts.tolist(), "pairs": self.pairs}
        return header | {"classes": described}, arrays

    @classmethod
    def load(cls, archive: Archive, blueprint: Blueprint) -> Self:
        fitted = FittedModel.load(archive, blueprint)
        described = archive.get("classes", dict)
        try:
            labels = Labels.from_description(described["labels"])
            counts, pairs = np.array(described["counts"], dtype=np.int64), described["pairs"]
            valid = counts.shape == (max(1, len(labels)),) == blueprint.targets.low.shape and blueprint.targets.unit
        except (KeyError, TypeError, ValueError, OverflowError):
            valid = False
        if not valid or pairs not in ("auto", True, False):
            raise archive.inconsistency("it does not say what its classes are")
        if (
            (counts < 0).any()
            or counts.sum() != fitted.state.rows
            or (not labels.declared and not counts[: len(labels)].all())
        ):
            raise archive.inconsistency("the classes do not have as many rows as there are")
        if blueprint.keep == "rows":
            y = fitted.state.ensemble.store.as_rows().y[fitted.state.ensemble.store.live]
            if not (np.isin(y, (0.0, 1.0)).all() and (y.sum(axis=1) == 1.0).all() and (y.sum(axis=0) == counts).all()):
                raise archive.inconsistency("the classes of the rows are damaged")
        return cls(**vars(fitted), labels=labels, counts=counts, pairs=pairs)


def _move(columns: Any, places: NDArray[np.int64]) -> Any:
    """Return columns in other places, zeros where the place is -1: (n, K), (K',) -> (n, K')."""
    moved = np.zeros((len(columns), len(places)), dtype=columns.dtype)
    moved[:, places >= 0] = columns[:, places[places >= 0]]
    return moved


class CodedClassifier(ClassifierMixin, CodedEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that can forget, with calibrated probabilities.

    Scores come from least squares on one-hot targets, by exact integers; probabilities from a small calibrator on at
    most 2,000 rows, which is fitted from scratch at the first prediction after a change. Unlearning a row gives, bit
    for bit, the model that never saw it: ``fit(all).unlearn(some)`` and training on the other rows in their slots give
    the same digest, and on one machine the same weights and probabilities. Threads may share a model.

    Parameters
    ----------
    shards, rate, density, balanced, code
        As in `CodedRegressor`, but one learner on all rows by default. With another rate than 1, coded rows mix
        classes: ``class_power`` and ``pairs`` are then not used.
    features, alpha, fit_intercept, bounds, scales, clip, outside, random_state
        As in `CodedRegressor`.
    learner : "ridge" or a scikit-learn classifier
        The weak learner. A classifier is trained from scratch on the rows of its lane (each learner must have one:
        `Code.uncoded`, `Code.single`), and its own probabilities are used.
    classes : list, optional
        All classes there can be: a public fact. A class without rows has probability 0, and another label is refused.
        None observes them: a class that loses its last row leaves `classes_`, and everything is refitted.
    class_power : float
        How much rare classes count in the scores, from 0 (all rows alike) to 1 (all classes alike): a row of a class
        with n_k of n rows weighs (n / (K n_k)) to this power. Calibration undoes what this does to probabilities.
    pairs : {"auto", True, False}
        Whether a score for every pair of classes is learned, too. "auto" does so if the log loss, measured on rows left
        out, falls by at least a tenth (and there are 3 to 30 classes). Every pair costs a solve per learner.
    aggregate : {"mean", "median", "pooled", "vote"}
        How the learners' scores are combined. "pooled" solves once for the rows of all learners. "vote" is the majority
        vote of the paper, ties by the mean score; its probabilities are shares of votes, the mean score being one more.
    keep : {"rows", "coded"}
        As in `CodedRegressor`. "coded" needs declared ``classes``, and keeps no row to calibrate with: its
        probabilities are the scores, clipped at 0.001 and divided by their sum.

    Attributes
    ----------
    classes_ : array, shape (K,)
        The classes, sorted.
    code_ : Code
    features_ : FeatureMap
    bounds_ : Bounds
    n_rows_ : int
        The number of rows learned and not unlearned.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from expunge import CodedClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((300, 2))
    >>> y = np.where(X.sum(axis=1) + rng.normal(0, 0.1, 300) > 1, "stays", "leaves")
    >>> model = CodedClassifier(bounds=(0, 1), random_state=0).fit(X, y, ids=np.arange(1000, 1300))
    >>> model.predict([[0.1, 0.2], [0.9, 0.8]])
    array(['leaves', 'stays'], dtype='<U6')
    >>> model.predict_proba([[0.5, 0.5]]).round(2)
    array([[0.55, 0.45]])
    >>> report = model.unlearn([1007, 1003])
    >>> report.rows, report.classes_moved, model.digest() == model.retrained().digest()
    (2, False, True)
    """

    _task = "classification"
    _estimator_rule = ClassifierRule
    _fitted_class = FittedClassifier
    _fitted_model: FittedClassifier

    def __init__(
        self,
        *,
        shards: int = 1,
        rate: float = 1,
        density: float | None = None,
        balanced: bool = True,
        code: Code | None = None,
        features: FeatureMap | None = None,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        learner: Any = "ridge",
        classes: Any = None,
        class_power: float = 0.5,
        pairs: Pairs = "auto",
        aggregate: Aggregate = "mean",
        bounds: BoundsLike = None,
        scales: ScalesLike = None,
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
        self.classes = classes
        self.class_power = class_power
        self.pairs = pairs
        self.aggregate = aggregate
        self.bounds = bounds
        self.scales = scales
        self.clip = clip
        self.outside = outside
        self.keep = keep
        self.random_state = random_state

    @exclusive
    def partial_fit(self, X: TableLike, y: ColumnLike, ids: ColumnLike = None, classes: Any = None) -> Self:
        """Learn more rows; the first call is `fit`.

        Parameters
        ----------
        X, y, ids
            As in `fit`. Default ids continue counting; a model that was fitted with ids needs ids here as well.
        classes : array, optional
            In the first call, all classes there can be, if the parameter ``classes`` does not declare them.
        """
        if "_fitted_model" in self.__dict__:
            with self._room_for_classes(y):
                return super().partial_fit(X, y, ids)
        if self.classes is None and classes is not None:
            self.__dict__["_first_classes"] = classes
        try:
            return self.fit(X, y, ids)
        finally:
            self.__dict__.pop("_first_classes", None)

    @exclusive
    def unlearn(self, ids: Any, X: TableLike = None, y: ColumnLike = None) -> ClassifierReport:
        self._check_fitted()
        before = self._fitted_model.labels
        return self._report(super().unlearn(ids, X, y), before)

    @exclusive
    def rectify(
        self, ids: Any, X: TableLike, y: ColumnLike, *, old_X: TableLike = None, old_y: ColumnLike = None
    ) -> ClassifierReport:
        self._check_fitted()
        before = self._fitted_model.labels
        with self._room_for_classes(y):
            return self._report(super().rectify(ids, X, y, old_X=old_X, old_y=old_y), before)

    unlearn.__doc__, rectify.__doc__ = CodedEstimator.unlearn.__doc__, CodedEstimator.rectify.__doc__

    def predict(self, X: TableLike) -> NDArray[Any]:
        """Predict the most probable class of rows: (n, d) -> (n,)."""
        fitted, p = self._predict_all(X)
        predicted: NDArray[Any] = fitted.labels.values[p.argmax(axis=1)]
        return predicted

    def predict_proba(self, X: TableLike) -> Floats:
        """Predict the probability of every class, in the order of `classes_`: (n, d) -> (n, K)."""
        return self._predict_all(X)[1]

    def decision_function(self, X: TableLike) -> Floats:
        """Return log probabilities: (n, d) -> (n, K), for two classes their difference, (n,)."""
        log: Floats = np.log(np.maximum(self._predict_all(X)[1], np.finfo(np.float64).tiny))
        return log[:, 1] - log[:, 0] if log.shape[1] == 2 else log

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, sorted."""
        self._check_fitted()
        return self._fitted_model.labels.values

    @exclusive
    def digest(self) -> str:
        hashed = hashlib.sha256(super().digest().encode())
        fitted = self._fitted_model
        hashed.update(json.dumps([fitted.labels.describe(), fitted.pairs, fitted.calibrated], sort_keys=True).encode())
        if fitted.calibrated:
            rows, ensemble = fitted.calibration_rows, fitted.state.ensemble
            hashed.update(np.column_stack([rows.slots, rows.classes]).astype("<i8").tobytes())
            integers = ensemble.encoder.integers(*ensemble.store.as_rows().take(rows.slots))
            hashed.update(integers.astype("<i8").tobytes())
        return hashed.hexdigest()

    digest.__doc__ = CodedEstimator.digest.__doc__

    def _predict_all(self, X: TableLike) -> tuple[FittedClassifier, Floats]:
        """Return the model that predicts, and the probability of each of its classes: (n, d) -> (n, K)."""
        self._check_fitted()
        X = self._validate_inputs(X)
        fitted = self._link()
        present, (ensemble, calibrator) = fitted.counts > 0, fitted.link
        if not present.any():
            raise NothingToPredictFrom("every row was unlearned, so there is nothing to predict from; add rows first")
        outputs = ensemble.outputs(X)
        if calibrator is not None:
            return fitted, calibrator.probabilities(outputs)
        votes, scores = outputs[:, : -len(present)], outputs[:, -len(present) :]
        own = ensemble.aggregate == "mean" and isinstance(ensemble.rule, ClassifierRule)  # probabilities already
        p = np.where(present, np.clip(scores, 0.0 if own else _FLOOR, 1.0), 0.0)
        p /= p.sum(axis=1, keepdims=True)
        if votes.shape[1]:  # one more voter, who cannot turn a majority
            p = (votes + p) / (votes.sum(axis=1, keepdims=True) + 1.0)
        return fitted, p

    def _link(self) -> FittedClassifier:
        """Return the fitted model with its link computed."""
        fitted = self._fitted_model
        return fitted if "link" in vars(fitted) else self._compute_link()

    @exclusive
    def _compute_link(self) -> FittedClassifier:
        """Fit the calibrator while no request changes the rows."""
        fitted = self._fitted_model
        fitted.link  # noqa: B018 - computed at the first access
        return fitted

    def _read_targets(self, y: NDArray[Any], *, reset: bool) -> Floats:
        if y.dtype == object:  # scikit-learn sorts labels of mixed types, which fails
            y = as_labels(y)
        check_classification_targets(y)
        if not reset:
            return self._fitted_model.labels.one_hot(y)
        declared = self.__dict__.get("_first_classes", self.classes)
        if declared is None and self.keep == "coded":
            raise InvalidSetting("keep='coded' needs declared classes: without the rows none can be dropped")
        labels = Labels.observe(y) if declared is None else Labels.declare(declared)
        targets = labels.one_hot(y)
        self._observed = labels, targets.sum(axis=0).astype(np.int64)
        return targets

    def _make_fitted_model(self, state: ModelState, index: IdIndex, default_ids: bool, flat: bool) -> FittedClassifier:
        labels, counts = self.__dict__.pop("_observed")
        return FittedClassifier(state, index, default_ids, flat, labels=labels, counts=counts, pairs=self.pairs)

    @contextmanager
    def _room_for_classes(self, y: ColumnLike) -> Iterator[None]:
        """Give the model columns for new observed classes; if the request then fails, take them back."""
        before = self._fitted_model
        self._fitted_model = before.with_labels(before.labels.with_new(column_or_1d(y)))
        try:
            yield
        except BaseException:
            self._fitted_model = before
            raise

    def _report(self, report: Report, before: Labels) -> ClassifierReport:
        after = self._fitted_model.labels
        return ClassifierReport(**vars(report), classes_moved=not np.array_equal(before.values, after.values))

    def _settings(self) -> Settings:
        shared = {field.name: getattr(self, field.name) for field in fields(Settings) if hasattr(self, field.name)}
        return Settings(**shared, target_bounds="unit")

    def _choose_rule(self, settings: Settings) -> RuleFactory | None:
        if not 0 <= as_float(self.class_power) <= 1:
            raise InvalidSetting(f"class_power must be a number from 0 to 1, got {self.class_power!r}")
        if self.pairs not in ("auto", True, False):
            raise InvalidSetting(f"pairs must be 'auto', True or False, got {self.pairs!r}")

        def make_rule(code: Code, key: Key) -> Rule:
            alpha, power = as_float(settings.alpha), as_float(self.class_power)
            if self.pairs is True and not code.is_selection:
                raise InvalidSetting("pairs=True needs a code with one lane per learner: its coded rows mix classes")
            if code.is_selection and (power or self.pairs):
                return ClassRule(alpha, power)
            return OneHotRule(alpha)

        return make_rule if isinstance(settings.learner, str) else super()._choose_rule(settings)

    def _own_header(self) -> dict[str, Any]:
        return {"classifier": {"class_power": as_float(self.class_power), "pairs": self.pairs}}

    @classmethod
    def _from_archive(cls, archive: Archive, settings: Settings) -> Self:
        own, described = archive.get("classifier", dict), archive.get("classes", dict)["labels"]
        try:
            parameters = {"class_power": own["class_power"], "pairs": own["pairs"]}
        except KeyError:
            raise archive.inconsistency("it does not have the parameters of a classifier") from None
        parameters["classes"] = described["values"] if described["declared"] else None
        shared = {name: getattr(settings, name) for name in cls._get_param_names() if hasattr(settings, name)}
        return cls(**shared, **parameters)
