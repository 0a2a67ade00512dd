"""Rebound: change declared bounds without a new table. Everything is learned again from the vault's rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from ...encoding.bounds import Bounds
from ...errors import InvalidColumns, InvalidSetting
from ...learning.blueprint import Blueprint
from ...learning.state import ModelState
from ...tables import Block, Schema, check_parts
from ...tables.kinds import Date
from ..disk.rowfile import RowFile
from .intake import ProgressCallback
from .plan import ModelDefinition, RequestContext, RequestPlan
from .request import Request, Texts

if TYPE_CHECKING:
    from .restore import MissedChanges

BoundTexts: TypeAlias = Mapping[str, tuple[str, str]]  # column -> low and high as text; both empty: observed


@dataclass(frozen=True, eq=False)
class Rebound(Request):
    """Columns with new bounds."""

    columns: Texts
    low: Texts  # numbers, or dates in ISO 8601; empty where the bound is observed from now on
    high: Texts

    kind: ClassVar[str] = "rebound"
    same_length_fields: ClassVar[tuple[str, ...]] = ("columns", "low", "high")

    @classmethod
    def plan(
        cls, context: RequestContext, bounds: Mapping[str, tuple[Any, Any] | None], progress: ProgressCallback
    ) -> RequestPlan:
        """Plan to learn the rows again with these bounds; None observes a column. A row outside them is refused."""
        if not isinstance(bounds, Mapping) or not bounds:
            raise InvalidSetting("name at least one column and its bounds, as a mapping like {'age': (0, 130)}")
        ends = {column: ("", "") if pair is None else _format_bounds(column, pair) for column, pair in bounds.items()}
        snapshot = context.snapshot
        schema, blueprint = change_bounds(snapshot.schema, snapshot.state.blueprint, ends)
        _check_inside(snapshot.rows, schema, blueprint)
        definition = ModelDefinition.write(context, schema, blueprint)
        rows = snapshot.state.rows * (1 + blueprint.observed)
        with snapshot.rows.report_reads(lambda k: progress("learning", k, rows)):
            state = ModelState.learn(blueprint, snapshot.rows, snapshot.state.drawn)
        low, high = zip(*ends.values(), strict=True)
        return RequestPlan(
            cls(0, 0, tuple(ends), low, high),
            state,
            snapshot.manifest.owners,
            snapshot.manifest.erased,
            blueprint.code.learners,
            definition=definition,
        )

    def replay(self, missed: "MissedChanges", number: int, *, done: bool) -> None:
        missed.bounds.update(zip(self.columns, zip(self.low, self.high, strict=True), strict=True))


def change_bounds(schema: Schema, blueprint: Blueprint, ends: BoundTexts) -> tuple[Schema, Blueprint]:
    """Return the schema and blueprint with new bounds for these columns."""
    kinds = dict(schema.columns)
    parsed = {column: _parse_bounds(column, kinds.get(column), pair) for column, pair in ends.items()}
    schema = schema.with_bounds(parsed)
    return schema, replace(
        blueprint,
        inputs=_replace_bounds(blueprint.inputs, schema.inputs, schema.bounds(), ends),
        targets=_replace_bounds(blueprint.targets, schema.targets, schema.target_bounds(), ends),
    )


def _replace_bounds(bounds: Bounds, names: Texts, declared: tuple[Any, Any], columns: Iterable[str]) -> Bounds:
    """Return the bounds with those of these columns replaced by the declared ones."""
    low, high = bounds.low.copy(), bounds.high.copy()
    for j in (names.index(column) for column in columns if column in names):
        if bounds.unit:
            raise InvalidSetting("the model uses its values unscaled (bounds='unit'), so its bounds cannot be changed")
        low[j], high[j] = declared[0][j], declared[1][j]
    return Bounds(low, high, bounds.unit)


def _check_inside(rows: RowFile, schema: Schema, blueprint: Blueprint) -> None:
    """Refuse bounds that leave rows outside; the error counts all of them."""
    way_out = "choose wider bounds, or correct or erase these rows first"

    def check(block: Block) -> None:
        assert block.y is not None
        try:
            blueprint.admit(block.X, block.y, schema.inputs, schema.targets, clip=False)
        except InvalidColumns as refusal:
            raise InvalidColumns("rows outside these bounds", refusal.counts, refusal.rows, way_out) from None

    for _ in check_parts((Block(X, y, None) for X, y in rows.sweep()), check):
        pass


def _format_bounds(column: str, pair: Any) -> tuple[str, str]:
    """Return low and high as text."""
    if not isinstance(pair, (tuple, list, np.ndarray)) or len(pair) != 2:
        raise InvalidSetting(f"bounds of {column!r} must be a pair (low, high), or None to observe them")
    low, high = map(_format_bound, pair)
    if low == high == "":  # in a record that means: observed
        raise _bounds_error(column, "numbers or dates", (low, high))
    return low, high


def _format_bound(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, str) else repr(value)


def _parse_bounds(column: str, kind: object, pair: tuple[str, str]) -> tuple[Any, Any] | None:
    """Return low and high in the type of the column's kind; None if they are observed."""
    if pair == ("", ""):
        return None
    try:
        low, high = map(datetime.fromisoformat if isinstance(kind, Date) else float, pair)
    except ValueError:
        raise _bounds_error(column, "dates like 2024-12-31" if isinstance(kind, Date) else "numbers", pair) from None
    return low, high


def _bounds_error(column: str, expected: str, pair: tuple[str, str]) -> InvalidSetting:
    return InvalidSetting(f"the bounds of column {column!r} must be {expected}, got {pair[0]!r} and {pair[1]!r}")
