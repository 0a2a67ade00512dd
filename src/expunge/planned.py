"""PlannedRegressor: a regressor that chooses its own settings, and whose settings forget as well.

A model that unlearned a row equals the model that never saw it. But its settings (features, penalty, code) were chosen
by looking at rows, and can retain information about them. Here the settings are a function of the current rows:
`PlannedRegressor.replan` chooses them again, and gets those that would have been chosen without the people who left.
"""

import hashlib
import os
import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags, check_consistent_length

from .encoding.placement import Placement, slots_needed
from .encoding.randomness import Key
from .errors import InvalidSetting
from .estimator import ColumnLike, Report, TableLike, exclusive, explain_targets
from .exact.arrays import Floats
from .learning.settings import Settings
from .learning.state import ModelState
from .planning.choice import choose_settings
from .planning.planner import check_seed
from .planning.sample import hash_people
from .preprocessing import SchemaTransformer
from .regressor import CodedRegressor
from .saving.archive import Archive
from .stores.ids import IdIndex, Ids, as_ids
from .stores.store import Rows
from .tables.messages import check_unique_names
from .tables.schema import Schema

_TARGET, _PERSON = "the target", "the person"  # columns that a proposal looks at beside the inputs
_PARAMETERS = ("quick", "forget_ms", "max_features", "random_state")


@dataclass(frozen=True)
class PlannedReport(Report):
    """What a request to a `PlannedRegressor` did.

    Attributes
    ----------
    complete : bool
        Whether these people had no part in choosing the settings in use: the plan did not use their rows, and without
        them the number of rows is the same, to a power of two. If False, `PlannedRegressor.replan` chooses
        settings without them.
    """

    complete: bool


@dataclass(frozen=True)
class PlanningPeople:
    """The people whose rows a plan used: those with hashes up to ``largest_hash`` who had rows then."""

    rows: int  # row numbers given out when the plan was made
    people: int
    largest_hash: int
    counted: int  # rows at that time; predicted costs depend on their number, to a power of two
    gone: int = 0  # how many of these people were unlearned or corrected since
    gone_rows: int = 0  # how many of the rows counted were unlearned since

    @property
    def complete(self) -> bool:
        """Whether the same settings would have been chosen without everybody who left."""
        return not self.gone and (self.counted - self.gone_rows).bit_length() == self.counted.bit_length()


class PlannedRegressor(CodedRegressor):
    """A regressor that plans its settings, learns, forgets, and plans again without the people who left.

    It takes a pandas or polars frame with text, gaps, dates and booleans, and needs no pipeline: a schema, given or
    proposed, says how each column becomes numbers. The values in a schema (bounds, categories, fills) are declared:
    they do not change when people leave.

    Unlearning removes a person's rows from the model at once, exactly. `complete_` says whether the settings in use
    were chosen without everybody who was unlearned. If not, `replan` makes it so: the model is then, bit for bit, the
    one that planning and learning the other rows gives (`retrained`).

    Parameters
    ----------
    schema : Schema or path, optional
        How columns become numbers. None: proposed for a frame, with bounds that at least ten people support; an array
        of numbers needs none, its bounds are observed. So the same numbers may be predicted differently.
    quick : bool
        Whether to search for settings in seconds rather than minutes, as ``expunge train`` does.
    forget_ms : float, optional
        The longest time to forget one row, as predicted from counts of operations.
    max_features : int
        The largest number of cosines to try.
    random_state : int
        The seed of the features and the code, and the key by which people are chosen to plan on.

    Attributes
    ----------
    schema_ : Schema or None
    settings_ : Settings
        The settings in use.
    complete_ : bool
        Whether nobody who was unlearned or corrected had a part in choosing the settings: the plan did not use their
        rows, and without them the number of rows, on which predicted costs depend, is the same, to a power of two.
    planning_people_ : int
        The number of people whose rows the plan used.

    Examples
    --------
    >>> import numpy as np
    >>> from expunge import PlannedRegressor
    >>> X = np.random.default_rng(0).random((30, 2))
    >>> model = PlannedRegressor().fit(X, X @ [1.0, 2.0], ids=np.arange(100, 130))
    >>> model.unlearn([103, 107]).rows
    2
    >>> model.replan().complete_
    True
    >>> model.digest() == model.retrained().digest()
    True
    """

    _task = "planned regression"

    schema_: Schema | None
    settings_: Settings
    _looked_at: PlanningPeople | None  # None: the table was too small for a plan
    _batches: tuple[int, ...]  # the first row number of each batch

    def __init__(
        self,
        *,
        schema: Any = None,
        quick: bool = True,
        forget_ms: float | None = 5.0,
        max_features: int = 600,
        random_state: int = 0,
    ) -> None:
        self.schema = schema
        self.quick = quick
        self.forget_ms = forget_ms
        self.max_features = max_features
        self.random_state = random_state

    @exclusive
    def fit(self, X: TableLike, y: ColumnLike, ids: ColumnLike = None) -> Self:
        """Propose a schema if there is none, plan, and learn. Anything learned before is discarded.

        Parameters
        ----------
        X : frame or array, shape (n, d)
            The inputs.
        y : array, shape (n,) or (n, t)
            The target or targets.
        ids : array of int or str, shape (n,), optional
            The person of each row; a person may have many rows. Default: 0, 1, ..., n - 1.

        Warns
        -----
        UserWarning
            If a proposed schema leaves columns out, or reads cells in a notation of their own; see ``schema``.
        """
        before = self.__dict__.copy()
        try:
            self.schema_, self._batches = self._find_schema(X, y, ids), (0,)
            super().fit(X, y, ids)
            self._note_planned()
        except BaseException:
            self.__dict__ = before
            raise
        return self

    @exclusive
    def partial_fit(self, X: TableLike, y: ColumnLike, ids: ColumnLike = None) -> Self:
        """Learn more rows, with the settings in use; the first call is `fit`. See `CodedRegressor.partial_fit`."""
        first = self._state.drawn if "_fitted_model" in self.__dict__ else 0
        super().partial_fit(X, y, ids)
        self._batches = (*self._batches, first) if first else self._batches
        return self

    @exclusive
    def unlearn(self, ids: Any) -> PlannedReport:  # type: ignore[override]  # it always keeps its rows
        """Unlearn all rows of these ids, each named once: no weight or stored value depends on them afterwards."""
        return self._note_gone(ids, lambda: super(PlannedRegressor, self).unlearn(ids), erased=True)

    @exclusive
    def rectify(self, ids: Any, X: TableLike, y: ColumnLike) -> PlannedReport:  # type: ignore[override]  # likewise
        """Replace all rows of these ids, one per row, by corrected ones, in their slots."""
        return self._note_gone(ids, lambda: super(PlannedRegressor, self).rectify(ids, X, y), erased=False)

    def _note_gone(self, ids: Any, change: Any, *, erased: bool) -> PlannedReport:
        """Carry out a change, and count the people among these whom the plan looked at, and the rows it counted."""
        fitted, looked_at = self._check_fitted(), self._looked_at
        after = None if looked_at is None else self._count_gone(looked_at, np.unique(as_ids(ids)), erased)
        self._looked_at = after  # first: if the change is carried out, it must be counted
        try:
            report = change()
        finally:
            if self._fitted_model is fitted:
                self._looked_at = looked_at
        if looked_at is None or after is None:
            return PlannedReport(**vars(report), complete=True)
        return PlannedReport(**vars(report), complete=replace(after, gone=after.gone - looked_at.gone).complete)

    def _count_gone(self, looked_at: PlanningPeople, ids: Ids, erased: bool) -> PlanningPeople:
        """Count which of these people the plan looked at and, if they are erased, how many of the rows it counted."""
        found = self._fitted_model.index.find(ids)
        blueprint = self._state.blueprint
        numbers = self._place(blueprint.key, blueprint.code.shards).rows(found.slots)
        early = np.bincount(
            np.repeat(np.arange(len(ids)), found.counts), weights=numbers < looked_at.rows, minlength=len(ids)
        )
        small = hash_people(ids, len(ids), check_seed(self.random_state)) <= looked_at.largest_hash
        gone, rows = int((small & (early > 0)).sum()), int(early.sum()) if erased else 0
        return replace(looked_at, gone=looked_at.gone + gone, gone_rows=looked_at.gone_rows + rows)

    @exclusive
    def replan(self) -> Self:
        """Choose the settings again from the people who remain, and learn their rows with these.

        Rows keep their numbers, so the result depends only on the current rows and their numbers.
        """
        before = self.__dict__.copy()
        try:
            fitted = self._check_fitted()
            state, blueprint = fitted.state, fitted.state.blueprint
            ids, slots = fitted.index.entries()
            numbers = self._place(blueprint.key, blueprint.code.shards).rows(slots)
            order = np.argsort(numbers)
            ids, numbers = ids[order], numbers[order]
            X, y = state.ensemble.store.as_rows().take(slots[order])
            blueprint = self._draw_blueprint(self._choose_settings(X, y, ids), X.shape[1], y.shape[1])
            slots = self._place(blueprint.key, blueprint.code.shards).slots(numbers)
            rows = Rows.place(X, y, slots, slots_needed(state.drawn, blueprint.code.shards))
            learned = ModelState.learn(blueprint, rows, state.drawn)
            self._set_fitted_model(replace(fitted, state=learned, index=IdIndex(ids, slots)))
            self._note_planned()
        except BaseException:
            self.__dict__ = before  # a failed plan leaves the previous model
            raise
        return self

    def _note_planned(self) -> None:
        """Record that the plan used all current rows: people whose rows come later had no part in it."""
        if self._looked_at is not None:
            self._looked_at = replace(self._looked_at, rows=self._state.drawn)

    @exclusive
    def retrained(self) -> Self:  # type: ignore[override]  # it always keeps its rows
        """Return the model that planning and learning the surviving rows from scratch gives: an auditor's reference.

        The rows keep their numbers, and the schema is the same: its values are declared. It equals this model after
        `replan`, and also before it if `complete_` is True and no rows were added since the last plan.
        """
        twin = super().retrained()
        twin.schema_, twin._batches, twin.settings_ = self.schema_, self._batches, self.settings_
        return twin.replan()

    @exclusive
    def digest(self) -> str:
        """Return a fingerprint of rows, settings and schema, 64 hex characters; see `CodedRegressor.digest`."""
        inner, schema = super().digest(), "" if self.schema_ is None else self.schema_.to_json()
        return hashlib.sha256(f"{inner}\n{schema}".encode()).hexdigest()

    @property
    def complete_(self) -> bool:
        """Whether nobody who was unlearned or corrected had a part in choosing the settings in use."""
        self._check_fitted()
        return self._looked_at is None or self._looked_at.complete

    @property
    def planning_people_(self) -> int:
        """The number of people whose rows the plan used."""
        self._check_fitted()
        return 0 if self._looked_at is None else self._looked_at.people

    def _place(self, key: Key, shards: int) -> Placement:
        return Placement(key, shards, self._batches, self._state.drawn)

    def _settings(self) -> Settings:
        return self.settings_

    def _choose_settings(self, X: Floats, y: Floats, ids: Ids | None) -> Settings:
        """Plan on these rows; a table that is too small for a plan gets one linear learner."""
        seed = check_seed(self.random_state)
        chosen = choose_settings(
            X,
            y,
            hash_people(ids, len(X), seed),
            self.schema_,
            clip=self.schema is None and self.schema_ is not None,  # proposed bounds leave out what few people have
            seed=seed,
            quick=self.quick,
            forget_ms=self.forget_ms,
            max_features=self.max_features,
        )
        self._looked_at = (
            PlanningPeople(len(X), chosen.people, chosen.largest_hash, counted=len(X)) if chosen.people else None
        )
        self.settings_ = chosen.settings
        return self.settings_

    # Frames

    def _find_schema(self, X: TableLike, y: ColumnLike, ids: ColumnLike) -> Schema | None:
        """Return the given schema, or propose one for a frame; an array of numbers has none."""
        if isinstance(self.schema, (str, os.PathLike)):
            return Schema.load(os.fspath(self.schema))
        if isinstance(self.schema, Schema):
            return self.schema
        if self.schema is not None:
            raise InvalidSetting(f"schema must be a Schema, a path or None, got {type(self.schema).__name__}")
        if not hasattr(X, "__arrow_c_stream__"):
            return None
        if (error := explain_targets(y)) is not None:
            raise error
        import pyarrow as pa

        from .tables.proposal import draft_schema
        from .tables.sources.formats import StreamTable

        # An index of pandas is no input, although Arrow's stream of a frame has a column for it.
        table = StreamTable(X.reset_index(drop=True) if hasattr(X, "reset_index") else X).read_all()
        check_consistent_length(table, y)
        check_unique_names(table.column_names, "X")
        targets = np.asarray(y, dtype=np.float64).reshape(len(table), -1)
        names = [_TARGET] if targets.shape[1] == 1 else [f"{_TARGET} {j}" for j in range(targets.shape[1])]
        for name, column in zip(names, targets.T, strict=True):
            table = table.append_column(name, pa.array(column))
        if ids is not None:
            table = table.append_column(_PERSON, pa.array(as_ids(ids, rows=len(table)).tolist()))
        draft = draft_schema(table, target=names, id=None if ids is None else _PERSON)
        if draft.notes:
            notes = "\n".join(f"- {note}" for note in draft.notes)
            warnings.warn(
                f"columns of X that you may want to declare otherwise (schema=...; schema_ is the proposal):\n{notes}",
                stacklevel=4,  # the caller of fit
            )
        return Schema.parse(draft.text)

    def _encode(self, X: TableLike) -> Any:
        """Turn the columns of a frame into numbers, as the schema says: (n, d)."""
        return X if self.schema_ is None else SchemaTransformer(self.schema_).transform(X)

    def _validate_rows(self, X: TableLike, y: ColumnLike, *, reset: bool) -> tuple[Floats, Floats, bool]:
        Z, targets, flat = super()._validate_rows(self._encode(X), y, reset=reset)
        return Z, targets if self.schema_ is None else self.schema_.clip_targets(targets), flat

    def _validate_inputs(self, X: TableLike) -> Floats:
        self._check_fitted()
        return super()._validate_inputs(self._encode(X))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.schema is not None
        return tags

    # Files

    def _own_header(self) -> dict[str, Any]:
        looked_at = self._looked_at
        planned = {
            "parameters": {name: getattr(self, name) for name in _PARAMETERS},
            "schema": None if self.schema_ is None else self.schema_.to_json(),
            "proposed": self.schema is None,
            "batches": list(self._batches),
            # As text: JSON readers may round whole numbers beyond 2**53.
            "looked_at": None if looked_at is None else [str(number) for number in vars(looked_at).values()],
        }
        return {"planned": planned}

    @classmethod
    def _from_archive(cls, archive: Archive, settings: Settings) -> Self:
        planned = archive.get("planned", dict)
        try:
            model = cls(**planned["parameters"])
            model.settings_ = settings
            model.schema_ = None if planned["schema"] is None else Schema.from_json(planned["schema"])
            model.schema = None if planned["proposed"] is True else model.schema_
            model._batches = tuple(map(int, planned["batches"]))
            looked_at = planned["looked_at"]
            model._looked_at = None if looked_at is None else PlanningPeople(*map(int, looked_at))
        except (KeyError, TypeError, ValueError):
            raise archive.inconsistency("it does not say how its settings were planned") from None
        if model._batches[:1] != (0,) or list(model._batches) != sorted(set(model._batches)):
            raise archive.inconsistency("its batches are not in order")
        return model
