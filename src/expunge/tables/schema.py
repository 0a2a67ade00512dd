"""Schemas: which column holds the ids, which columns are predicted, and the kind of each column.

A schema is fixed before training, and each row is encoded without looking at any other. So a schema reveals nothing
about a person, except where it leaves bounds to the data.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidColumns, InvalidFile, InvalidInput, InvalidSetting, format_positions
from ..exact.arrays import Floats
from .ids import check_id_format, describe_id_format, find_misfits, id_bytes
from .kinds import KINDS, LINEAR, LOG, Boolean, ColumnKind, Date, Ignore, Number, is_text_list
from .messages import check_columns_exist, describe_positions, find_duplicates, printable_text, quote_names

_SCHEMA_KEYS = ("id", "target", "fold_case", "id_format", "columns")
_FORMAT_ADVICE = "correct them, or declare another id_format in the schema"
_TARGET_RULE = "target must be the name of a column, or a list of different names"


@dataclass(frozen=True)
class Schema:
    """The columns of a table; inputs keep their order. Without ``id`` the rows belong to no person."""

    id: str | None
    targets: tuple[str, ...]
    columns: tuple[tuple[str, ColumnKind | Ignore], ...]
    fold_case: bool = False  # whether ids that differ only in case are the same
    id_format: str | None = None  # the form of all ids: "integer", "uuid", "email" or a regular expression

    def __post_init__(self) -> None:
        if not isinstance(self.fold_case, bool):
            raise InvalidSetting(f"fold_case must be true or false, got {self.fold_case!r}")
        if self.id_format is not None:
            check_id_format(self.id_format)
        if self.id is not None and (not isinstance(self.id, str) or self.id in self._kinds):
            raise InvalidSetting("id must be the name of a column that is not declared under [columns]")
        if not is_text_list([name for name, _ in self.columns]):
            raise InvalidSetting("columns must have names that are text")
        if not self.targets or not is_text_list(self.targets) or find_duplicates(self.targets):
            raise InvalidSetting(_TARGET_RULE)
        for target in self.targets:
            _check_target(target, self._kinds.get(target))
        if not self.inputs:
            raise InvalidSetting("there are no inputs; declare a column that is neither a target nor ignored")
        if twice := find_duplicates(self.inputs):
            raise InvalidSetting(f"inputs must have different names; duplicates: {quote_names(twice)}")

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise InvalidSetting(f"{printable_text(path)} cannot be read as a schema: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise InvalidSetting(f"{printable_text(path)} cannot be read as a schema: {error}") from None
        return cls.parse(text, name=printable_text(path))

    @classmethod
    def parse(cls, text: str, *, name: str = "schema") -> "Schema":
        """Read TOML."""
        try:
            schema = cls._from_document(tomllib.loads(text))
            if schema.id_format is not None:
                find_misfits(schema.id_format, [b"0"], fold_case=False)  # refuses an invalid expression
            return schema
        except (ValueError, OverflowError) as error:  # invalid TOML or schema; a date out of range
            raise InvalidSetting(f"{name}: {error}") from None
        except RecursionError:
            raise InvalidSetting(f"{name}: values are nested too deeply; a schema has two levels") from None

    @classmethod
    def from_json(cls, text: str) -> "Schema":
        """Read the text that `to_json` returned; any other text is refused."""
        try:
            document = json.loads(text)
            columns = {column.pop("name"): _parse_dates(column) for column in document["columns"]}
            schema = cls._from_document({**document, "columns": columns})
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            raise InvalidFile("not a stored schema, or a damaged one") from None
        if schema.to_json() != text:
            raise InvalidFile("a stored schema was changed: it is not in its canonical form")
        return schema

    def to_json(self) -> str:
        """Return the canonical form: equal schemas give equal texts."""
        document: dict[str, Any] = {"id": self.id, "target": self.targets}
        # A list, because the order of columns matters and the keys of an object are sorted.
        document["columns"] = [{"name": name, **column_keys(kind)} for name, kind in self.columns]
        if self.fold_case:
            document["fold_case"] = True
        if self.id_format is not None:
            document["id_format"] = self.id_format
        return json.dumps(document, sort_keys=True, separators=(",", ":"), default=datetime.isoformat)

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> "Schema":
        if unknown := sorted(document.keys() - set(_SCHEMA_KEYS)):
            known = f"{', '.join(_SCHEMA_KEYS[:-1])} and [columns.NAME]"
            raise InvalidSetting(f"unknown keys {quote_names(unknown)}; a schema has {known}")
        target, columns = document.get("target"), document.get("columns")
        if not isinstance(columns, dict):
            raise InvalidSetting("no columns; declare each under [columns.NAME]")
        targets = [target] if isinstance(target, str) else target
        if not isinstance(targets, list):
            raise InvalidSetting(_TARGET_RULE)
        kinds = tuple((name, _parse_kind(name, keys)) for name, keys in columns.items())
        fold_case, id_format = document.get("fold_case", False), document.get("id_format")
        return cls(document.get("id"), tuple(targets), kinds, fold_case, id_format)

    def with_id(self, column: str) -> "Schema":
        """Return the same schema with the ids in this column, which then is not an input."""
        return replace(self, id=column, columns=tuple((name, kind) for name, kind in self.columns if name != column))

    def with_bounds(self, bounds: Mapping[str, tuple[Any, Any] | None]) -> "Schema":
        """Return the same schema with other bounds.

        Parameters
        ----------
        bounds : mapping of str to (low, high) or None
            Two numbers for a column of numbers, two dates for a column of dates; None to observe the bounds.
        """
        changed = {column: _with_bounds(column, self._kinds.get(column), pair) for column, pair in bounds.items()}
        return replace(self, columns=tuple((name, changed.get(name, kind)) for name, kind in self.columns))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the d inputs."""
        return tuple(name for column, kind in self.input_kinds.items() for name in kind.input_names(column))

    @cached_property
    def _kind_by_input(self) -> list[ColumnKind]:
        """The kind of the column that each of the d inputs comes from."""
        return [kind for column, kind in self.input_kinds.items() for _ in kind.input_names(column)]

    def bounds(self) -> tuple[Floats, Floats]:
        """Return low and high of the inputs, (d,) each; NaN in both where they are observed."""
        return _split_bounds([kind.bounds() for kind in self._kind_by_input])

    def target_bounds(self) -> tuple[Floats, Floats]:
        """Return low and high of the targets, (t,) each; NaN in both where they are observed."""
        return _split_bounds([kind.bounds() for kind in self.target_kinds.values()])

    def scales(self) -> list[Any]:
        """Return the scales of the inputs, one entry per input, as a model takes them."""
        return [kind.scales() for kind in self._kind_by_input]

    def declared_scales(self) -> list[Any]:
        """Return the scales of the inputs, None for an input whose column declares none."""
        return [kind.scales() if kind.declares_scale else None for kind in self._kind_by_input]

    def scales_to_plan(self) -> list[Any] | None:
        """Return the scales of the inputs, with None for inputs that are left to a plan; None if all are.

        If any column declares "log" or knots, columns without a scale are linear.
        """
        declared = self.declared_scales()
        if any(scale not in (None, LINEAR) for scale in declared):
            return self.scales()
        return declared if LINEAR in declared else None

    def target_scales(self) -> list[str | None]:
        """Return the scales on which the targets are learned, None for a target that declares none."""
        return [kind.scales() if kind.declares_scale else None for kind in self.target_kinds.values()]

    def plan_options(self) -> dict[str, Any]:
        """Return what a plan takes as declared: bounds and scales of inputs and targets."""
        return {
            "bounds": self.bounds(),
            "target_bounds": self.target_bounds(),
            "scales": self.scales_to_plan(),
            "target_scales": self.target_scales(),
        }

    def clip(self, X: Floats) -> Floats:
        """Move inputs whose column declares ``clip`` to their bounds: (n, d) -> (n, d)."""
        unclipped = [not kind.clips for kind in self._kind_by_input]
        if all(unclipped):
            return X
        low, high = self.bounds()
        low[unclipped], high[unclipped] = -np.inf, np.inf
        return np.clip(X, low, high)

    def clip_targets(self, y: Floats) -> Floats:
        """Move targets whose column declares ``clip`` to their bounds, to train on: (n, t) -> (n, t)."""
        unclipped = [not kind.clips for kind in self.target_kinds.values()]
        if all(unclipped):
            return y
        low, high = self.target_bounds()
        low[unclipped], high[unclipped] = -np.inf, np.inf
        return np.clip(y, low, high)

    @cached_property
    def input_kinds(self) -> dict[str, ColumnKind]:
        """The columns that become inputs, in their order."""
        return {name: kind for name, kind in self.columns if isinstance(kind, ColumnKind) and name not in self.targets}

    @cached_property
    def target_kinds(self) -> dict[str, ColumnKind]:
        """The columns of the targets, in their order."""
        return {target: self._kinds[target] for target in self.targets}

    @cached_property
    def _kinds(self) -> dict[str, Any]:
        return dict(self.columns)

    def normalise_ids(self, ids: Any) -> list[bytes]:
        """Return ids in normal form; refuse those without the declared format, by count and position."""
        normal = id_bytes(ids, fold_case=self.fold_case)
        if misfits := self._find_misfits(normal):
            text = f"ids that are not {describe_id_format(str(self.id_format))}: {len(misfits):,} of {len(normal):,}"
            raise InvalidInput(f"{text}, {format_positions(misfits)}; {_FORMAT_ADVICE}")
        return normal

    def read_id_column(self, column: Any) -> list[bytes]:
        """Return the ids of a part of the id column in normal form, or refuse it with the number of invalid rows."""
        name = f"column {self.id!r}"
        normal = id_bytes(column, name=name, fold_case=self.fold_case)
        if misfits := self._find_misfits(normal):
            problem = f"ids that are not {describe_id_format(str(self.id_format))}"
            raise InvalidColumns(problem, {name: len(misfits)}, len(normal), _FORMAT_ADVICE, first=misfits[0])
        return normal

    def _find_misfits(self, ids: list[bytes]) -> list[int]:
        return [] if self.id_format is None else find_misfits(self.id_format, ids, fold_case=self.fold_case)

    def columns_to_read(self, *, targets: bool, ids: bool) -> dict[str, str]:
        """Return the columns to read, and the names of their types in CSV."""
        if ids and self.id is None:
            raise InvalidSetting('the schema declares no column of ids; add a line like id = "customer_id"')
        kinds = self.input_kinds | (self.target_kinds if targets else {})
        types = {name: kind.csv_type for name, kind in kinds.items()}
        return {**types, str(self.id): "string"} if ids else types

    def check_columns(
        self,
        names: Sequence[str],
        *,
        targets: bool,
        ids: bool = False,
        allow_extra: bool = False,
        show_names: bool = True,
    ) -> None:
        """Refuse a table that lacks a column or, with ``targets``, has one that the schema does not mention.

        ``allow_extra`` accepts unmentioned columns in a table with targets that is not trained on. Without
        ``show_names`` the error gives positions of columns instead of names, which could identify people.
        """
        check_columns_exist(names, self.columns_to_read(targets=targets, ids=ids), show_names=show_names)
        unknown = [name for name in names if name not in self._kinds and name != self.id and not is_row_label(name)]
        if targets and unknown and not allow_extra:
            which = quote_names(unknown) if show_names else describe_positions(names, unknown)
            raise InvalidInput(
                f'columns that the schema does not mention: {which}; declare them, with kind = "ignore" if not used'
            )


def is_row_label(name: str) -> bool:
    """Return whether pandas stores its row index under this name; such a column is not part of the table."""
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def column_keys(kind: ColumnKind | Ignore) -> dict[str, Any]:
    """Return the keys of a column in a schema."""
    return {"kind": kind.kind} | {key: value for key, value in vars(kind).items() if value is not None}


def _parse_kind(column: str, keys: Any) -> ColumnKind | Ignore:
    kind = KINDS.get(str(keys.get("kind"))) if isinstance(keys, dict) else None
    if kind is None:
        raise InvalidSetting(f"column {column!r}: kind must be one of {quote_names(KINDS)}")
    allowed = [field.name for field in fields(kind)]
    if unknown := sorted(keys.keys() - {"kind", *allowed}):
        takes = quote_names(allowed) or "no other keys"
        raise InvalidSetting(
            f"column {column!r}: unknown keys {quote_names(unknown)}; kind {kind.kind!r} takes {takes}"
        )
    try:
        parsed: ColumnKind | Ignore = kind(**{key: keys[key] for key in keys if key != "kind"})
    except InvalidSetting as error:
        raise InvalidSetting(f"column {column!r}: {error}") from None
    return parsed


def _parse_dates(column: dict[str, Any]) -> dict[str, Any]:
    """Turn the texts of a date column into dates, which JSON lacks."""
    if column["kind"] != Date.kind:
        return column
    return {key: value if key in ("kind", "format") else _parse_date_value(value) for key, value in column.items()}


def _parse_date_value(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_parse_date_value, value))
    return datetime.fromisoformat(value) if isinstance(value, str) and value != LINEAR else value


def _check_target(target: str, kind: Any) -> None:
    if not isinstance(kind, (Number, Boolean)):
        raise InvalidSetting(f"target {target!r} must be declared under [columns], as a number or a boolean")
    if kind.fill is not None:
        raise InvalidSetting(f"target {target!r} must have no fill; leave rows without a target out of the data")
    if getattr(kind, "scale", None) not in (None, LINEAR, LOG):
        raise InvalidSetting(f"the scale of target {target!r} must be {LINEAR!r} or {LOG!r}: knots are for inputs")


def _with_bounds(column: str, kind: Any, pair: Any) -> ColumnKind:
    """Return a column's kind with other bounds."""
    if kind is None:
        raise InvalidSetting(f"no column {column!r} is declared in the schema, so it has no bounds to change")
    if not isinstance(kind, (Number, Date)):
        raise InvalidSetting(f"column {column!r} is of kind {kind.kind!r}; only numbers and dates have bounds")
    if pair is not None and not (isinstance(pair, (tuple, list)) and len(pair) == 2):
        raise InvalidSetting(f"column {column!r}: bounds must be a pair (low, high), or None to observe them")
    low, high = (None, None) if pair is None else pair
    try:
        return replace(kind, low=low, high=high, clip=None if low is None else kind.clip)
    except (InvalidSetting, OverflowError) as error:  # OverflowError: a date out of range
        raise InvalidSetting(f"column {column!r}: {error}") from None


def _split_bounds(bounds: list[tuple[float, float]]) -> tuple[Floats, Floats]:
    low, high = np.array(bounds, dtype=np.float64).T
    return low, high
