"""Comparison: whether a training may replace the live model.

Three things are compared before the training is accepted: the schema, the number of rows, and the quality. The live
model has learned its people, so judging it on them would flatter it. Both models are therefore judged without them:
a group of people, chosen by their keyed hashes alone, is unlearned from both, which gives exactly the models that were
trained without them. Both then predict the vault's rows of these people.

Why the rows of the vault and not those of the new table: a new table with a garbage target would judge by that garbage,
and the model that learned it would win. If the world has changed and the vault's targets are no longer true, name
another table to judge by (``evaluate_on``).

Everything happens in memory, on files that no manifest names yet. The ledger records a count and rounded errors of at
least `MIN_PEOPLE` people.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import tables
from ...errors import InvalidInput, InvalidSetting, NothingLearned, ReplacementRefused
from ...exact.arrays import Floats, Slots, unique
from ...learning.ensemble import Ensemble
from ...learning.state import ModelState
from ...stores.change import Change
from ...tables import Block, Schema, printable_text, quote_names
from ..disk.manifest import PeopleSegment
from ..disk.people import People, count_distinct_ids, hash_ids
from ..disk.snapshot import Snapshot, load_people
from ..evaluation.scores import MIN_PEOPLE, Score, format_score
from .intake import ProgressCallback
from .plan import RequestContext

TOLERANCE = 0.05
MIN_GROUPS = 10  # groups of people; each is held out in turn, until enough rows are judged
ENOUGH_ROWS = 1_000
MAX_GROUP_ROWS = 10_000  # rows of one group, about: with more rows there are more groups
NEGLIGIBLE_SHARE = 0.001  # of a target's standard deviation: smaller differences do not count if errors are near zero


@dataclass(frozen=True)
class ReplacementRules:
    """The changes that a training which replaces a model is allowed to make.

    Attributes
    ----------
    new_schema, fewer_rows, accept_worse : bool
        Whether it may have another schema; less than half of the rows; a larger error, or no comparable one.
    tolerance : float
        By which share an error may be larger without ``accept_worse``.
    evaluate_on : path, list of paths or table, optional
        A table with the targets to judge both models by, instead of the vault's own rows.
    """

    new_schema: bool = False
    fewer_rows: bool = False
    accept_worse: bool = False
    tolerance: float = TOLERANCE
    evaluate_on: Any = None

    def __post_init__(self) -> None:
        number = isinstance(self.tolerance, (int, float)) and not isinstance(self.tolerance, bool)
        if not number or not 0 <= self.tolerance <= 1:
            raise InvalidSetting(f"tolerance must be a share from 0 to 1, like 0.05, got {self.tolerance!r}")

    @property
    def any_set(self) -> bool:
        """Whether any rule differs from its default, which makes sense only if there is a model to replace."""
        flags = self.new_schema, self.fewer_rows, self.accept_worse, self.evaluate_on is not None
        return any(flags) or self.tolerance != TOLERANCE


class ModelComparison:
    """The comparison of a training with the live model. Raises `ReplacementRefused` for what the rules do not allow."""

    def __init__(self, context: RequestContext, schema: Schema, rules: ReplacementRules) -> None:
        """Compare the schemas, before a row of the new table is read."""
        self._context, self._live, self._schema, self._rules = context, context.snapshot, schema, rules
        self.accepted: list[str] = []  # what would have been refused without the rules
        self._table = None if rules.evaluate_on is None else tables.load_stream(rules.evaluate_on)
        if differences := list_schema_differences(self._live.schema, schema):
            text = f"the schema differs from the vault's: {'; '.join(differences)}"
            self._allow("new schema", "new_schema", text)
        self._obstacle = self._find_obstacle()
        if self._obstacle is not None:
            self._allow_uncompared(self._obstacle)
        elif self._table is not None:  # refuse an unreadable table now, not after the training
            for table_schema in (self._live.schema, schema):
                next(_read_blocks(self._table, table_schema), None)

    def check_rows(self, rows: int) -> None:
        """Refuse a table with less than half of the rows that the vault has."""
        current = self._live.manifest.rows
        if 2 * rows < current:
            text = f"the table has {rows:,} row{'s'[: rows != 1]} to learn, less than half of the vault's {current:,}"
            self._allow("fewer rows", "fewer_rows", text)

    def judge(self, state: ModelState, people: tuple[PeopleSegment, ...], progress: ProgressCallback) -> str:
        """Compare the errors of both models; return the numbers as text, for the ledger."""
        if not self._live.manifest.rows:
            return ""
        if self._obstacle is not None:
            return f"not compared: {self._obstacle}"
        live = _ComparedModel(self._live.schema, self._live.state, self._live.people, self._live)
        new = _ComparedModel(
            self._schema, state, load_people(self._context.folder, people, self._context.identity.seal)
        )
        errors = (
            self._judge_by_vault(live, new, progress)
            if self._table is None
            else self._judge_by_table(live, new, progress)
        )
        if errors.people < MIN_PEOPLE:
            too_few = f"fewer than {MIN_PEOPLE} people can be judged"
            self._allow_uncompared(too_few)
            return f"not compared: {too_few}"
        text = errors.describe(self._schema.targets)
        if errors.are_worse(self._rules.tolerance):
            larger = (
                f"the new model is worse than the live one by more than {100 * self._rules.tolerance:.3g} %: {text}"
            )
            self._allow("worse", "accept_worse", larger, " (--evaluate-on TABLE compares both on other rows)")
        return text

    def _find_obstacle(self) -> str | None:
        """Return why the errors of both models cannot be compared, or None."""
        live = self._live
        if not live.manifest.rows:
            return None
        if set(live.schema.targets) != set(self._schema.targets):
            return "they predict different targets"
        if self._table is not None:
            return None
        if find_input_positions(live.schema, self._schema) is None:
            return "the rows in the vault lack inputs of the new schema"
        if live.manifest.owners < MIN_PEOPLE:
            return f"the vault has rows of fewer than {MIN_PEOPLE} people"
        return None

    def _allow(self, what: str, option: str, text: str, advice: str = "") -> None:
        """Refuse, or note what was accepted."""
        if not getattr(self._rules, option):
            words = f"--{option.replace('_', '-')} or {option}=True"
            raise ReplacementRefused(f"{text}; nothing was changed{advice}. To accept it, use {words}")
        self.accepted.append(what)

    def _allow_uncompared(self, why: str) -> None:
        text = f"the new model cannot be compared with the live one: {why}"
        self._allow("not compared", "accept_worse", text, " (--evaluate-on TABLE compares both on other rows)")

    def _judge_by_vault(
        self, live: "_ComparedModel", new: "_ComparedModel", progress: ProgressCallback
    ) -> "ComparedErrors":
        """Judge by the vault's rows of people whom neither model has learned, one group after the other."""
        errors = ComparedErrors(len(new.schema.targets), "{rows} of {people} whom neither had learned")
        groups = max(MIN_GROUPS, -(-self._live.manifest.rows // MAX_GROUP_ROWS))
        positions, order = find_input_positions(live.schema, new.schema), _find_target_order(live.schema, new.schema)
        assert positions is not None  # it would be an obstacle
        for group in range(groups):
            hashes, slots = live.people.read_part(group, groups)
            hashes, slots = hashes[slots >= 0], slots[slots >= 0]
            if not len(slots):
                continue
            without = live.unlearn_slots(slots)
            X, y = self._live.rows.take(slots[:MAX_GROUP_ROWS])
            try:
                before = without.predict(X)
            except NothingLearned:  # the vault has no other people
                continue
            new_X = np.where(positions >= 0, X[:, positions], 0.0)
            try:
                after = new.unlearn_slots(new.people.read_part(group, groups)[1]).predict(new_X)
            except NothingLearned:
                after = np.full_like(before, np.inf)
            errors.add(y[:, order], before[:, order], after, count_distinct_ids(hashes))
            progress(self._context.describe_stage("comparing"), len(y), None)
            if errors.rows >= ENOUGH_ROWS and errors.people >= MIN_PEOPLE:
                break
        return errors

    def _judge_by_table(
        self, live: "_ComparedModel", new: "_ComparedModel", progress: ProgressCallback
    ) -> "ComparedErrors":
        """Judge by another table; the people in it are unlearned from both models first."""
        errors, order = (
            ComparedErrors(len(new.schema.targets), "{rows} of another table"),
            _find_target_order(live.schema, new.schema),
        )
        models = [side.unlearn_slots(self._slots_in_table(side)) for side in (live, new)]
        for old_block, block in zip(
            _read_blocks(self._table, live.schema), _read_blocks(self._table, new.schema), strict=True
        ):
            assert block.y is not None
            try:
                before, after = models[0].predict(old_block.X), models[1].predict(block.X)
            except NothingLearned:
                raise InvalidInput("all people are in the table to evaluate on: nobody is left to learn from") from None
            errors.add(block.y, before[:, order], after, len(block))
            progress(self._context.describe_stage("comparing"), len(block), None)
        return errors

    def _slots_in_table(self, side: "_ComparedModel") -> Slots:
        """Return the slots that a model has of the people in the table."""
        none = np.empty(0, dtype=np.int64)
        if not tables.has_ids(self._table, side.schema):
            return none
        ids = (list(set(block.ids or ())) for block in _read_blocks(self._table, side.schema))
        slots = (side.people.find(hash_ids(self._context.identity.key, block_ids)).live.slot for block_ids in ids)
        return unique(np.concatenate([none, *slots]))


@dataclass(frozen=True, eq=False)
class _ComparedModel:
    """One of the two models, with what is needed to unlearn people from it."""

    schema: Schema
    state: ModelState
    people: People
    snapshot: Snapshot | None = None  # of the live model, whose moments are on disk

    def unlearn_slots(self, slots: Slots) -> Ensemble:
        """Return the model that never saw the rows in these slots; nothing is overwritten."""
        slots, state = slots[slots >= 0], self.state  # others are tombstones
        if not len(slots):
            return state.ensemble
        if self.snapshot is not None:
            self.snapshot.rows.check_live(slots)
            state = self.snapshot.with_moments(state, state.blueprint.code.learners_of(slots))
        return state.prepare(Change(slots)).state.ensemble


class ComparedErrors:
    """Squared errors of two models on the same rows, summed by target; ``where`` describes the rows."""

    def __init__(self, targets: int, where: str) -> None:
        self.rows = self.people = 0
        self._where = where
        self._squares = np.zeros((2, targets))
        self._first: Floats | None = None  # a row to centre the targets by, so that no large numbers cancel
        self._sums = np.zeros((2, targets))

    def add(self, y: Floats, before: Floats, after: Floats, people: int) -> None:
        """Add rows that both models predicted: (n, t) each."""
        if not len(y):
            return
        self.rows, self.people = self.rows + len(y), self.people + people
        self._first = y[0] if self._first is None else self._first
        centred = y - self._first
        with np.errstate(all="ignore"):  # an error that float64 cannot hold is infinite, and worse than any other
            self._squares += [((before - y) ** 2).sum(axis=0), ((after - y) ** 2).sum(axis=0)]
            self._sums += [centred.sum(axis=0), (centred**2).sum(axis=0)]

    @property
    def rmse(self) -> Floats:
        """The root of the mean squared error by target, before and after: (2, t)."""
        root: Floats = np.sqrt(self._squares / max(self.rows, 1))
        return root

    def are_worse(self, tolerance: float) -> bool:
        """Return whether the error of a target grew by more than this share."""
        before, after = self.rmse
        mean, square = self._sums / max(self.rows, 1)
        spread = np.sqrt(np.maximum(square - mean**2, 0.0))
        return not bool((after <= (1 + tolerance) * before + NEGLIGIBLE_SHARE * spread).all())

    def describe(self, targets: tuple[str, ...]) -> str:
        """Return both errors by target, as text."""
        parts = []
        for target, before, after in zip(targets, *self.rmse.tolist(), strict=True):
            grown = f" ({after / before - 1:+.1%})" if before > 0 else ""
            parts.append(
                f"RMSE of {printable_text(target)} {_format_error(after)} instead of {_format_error(before)}{grown}"
            )
        rows = f"{self.rows:,} row{'s'[: self.rows != 1]}"
        people = f"{self.people:,} {'person' if self.people == 1 else 'people'}"
        return f"{', '.join(parts)}; on {self._where.format(rows=rows, people=people)}"


def list_schema_differences(old: Schema, new: Schema) -> list[str]:
    """Return what makes two schemas incompatible, as texts: names and kinds of columns, targets, and the id."""
    before, after = ({name: kind.kind for name, kind in schema.input_kinds.items()} for schema in (old, new))
    differences = []
    if old.id != new.id:
        differences.append(f"the id column is {printable_text(new.id)} instead of {printable_text(old.id)}")
    if old.targets != new.targets:
        differences.append(f"the target is {quote_names(new.targets)} instead of {quote_names(old.targets)}")
    if missing := [name for name in before if name not in after]:
        differences.append(f"it lacks {quote_names(missing)}")
    if added := [name for name in after if name not in before]:
        differences.append(f"{quote_names(added)} {'are' if len(added) > 1 else 'is'} new")
    before |= {name: kind.kind for name, kind in old.target_kinds.items()}
    after |= {name: kind.kind for name, kind in new.target_kinds.items()}
    differences += [
        f"{name!r} is a {after[name]} instead of a {kind}"
        for name, kind in before.items()
        if after.get(name, kind) != kind
    ]
    return differences


def find_input_positions(old: Schema, new: Schema) -> NDArray[np.intp] | None:
    """Return the positions of the inputs of a new schema among those of an old one, (d,); None if one is missing.

    -1 is an input that is 0 in all rows of the old schema: a value of a category that it did not declare.
    """
    names = [(column, name) for column, kind in old.input_kinds.items() for name in kind.input_names(column)]
    position = {name: k for k, name in enumerate(names)}
    positions = []
    for column, kind in new.input_kinds.items():
        old_kind = old.input_kinds.get(column)
        if old_kind is None or old_kind.kind != kind.kind:
            return None
        positions += [position.get((column, name), -1) for name in kind.input_names(column)]
    return np.array(positions, dtype=np.intp)


def _find_target_order(old: Schema, new: Schema) -> list[int]:
    """Return the positions of the targets of a new schema among those of an old one."""
    return [old.targets.index(target) for target in new.targets]


def _read_blocks(table: Any, schema: Schema) -> Iterator[Block]:
    """Yield the rows of a table to evaluate on, which may have extra columns."""
    return tables.read_blocks(table, schema, targets=True, ids=tables.has_ids(table, schema), allow_extra=True)


def _format_error(number: float) -> str:
    return format_score(Score(number, None, None))
