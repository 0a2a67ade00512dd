"""Schemas: whose row it is, what is to be predicted, and what each column is.

A schema is written down before training, and a row is encoded without a look at any other: so it can leak nothing about
a person, except where it leaves bounds to the data.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..errors import InvalidColumns, InvalidFile, InvalidInput, InvalidSetting, format_positions
from ..exact.arrays import Floats
from .ids import check_id_format, describe_id_format, find_misfits, id_bytes
from .kinds import KINDS, LINEAR, LOG, Boolean, ColumnKind, Date, Ignore, Number, is_text_list
from .messages import check_columns_exist, describe_positions, find_duplicates, printable_text, quote_names

# Documents: a schema's parts from what TOML or JSON holds, and back.


SchemaParts: TypeAlias = tuple[
    Any, tuple[Any, ...], tuple[tuple[str, ColumnKind | Ignore], ...], Any, Any
]  # id, targets, columns, fold_case, id_format
_SCHEMA_KEYS = ("id", "target", "fold_case", "id_format", "columns")


def parse_document(document: dict[str, Any]) -> SchemaParts:
    """Return the parts of a document; each column is checked, the whole is not."""
    if unknown := sorted(document.keys() - set(_SCHEMA_KEYS)):
        raise InvalidSetting(
            f"unknown keys {quote_names(unknown)}; a schema has {', '.join(_SCHEMA_KEYS[:-1])} and [columns.NAME]"
        )
    target, columns = document.get("target"), document.get("columns")
    if not isinstance(columns, dict):
        raise InvalidSetting("no columns; declare each under [columns.NAME]")
    targets = [target] if isinstance(target, str) else target
    if not isinstance(targets, list):
        raise InvalidSetting("target must be the name of a column, or a list of different ones")
    kinds = tuple((name, _parse_kind(name, keys)) for name, keys in columns.items())
    return document.get("id"), tuple(targets), kinds, document.get("fold_case", False), document.get("id_format")


def parse_json_document(document: Any) -> SchemaParts:
    """Return the parts of a document as `document_of` makes it, once it went through JSON."""
    columns = {column.pop("name"): _parse_dates(column) for column in document["columns"]}
    return parse_document({**document, "columns": columns})


def to_document(parts: SchemaParts) -> dict[str, Any]:
    """Return parts as a document for JSON, with a list of columns: their order counts."""
    id_, targets, columns, fold_case, id_format = parts
    document = {
        "id": id_,
        "target": targets,
        "columns": [{"name": name, **column_keys(kind)} for name, kind in columns],
    }
    document |= {"fold_case": True} if fold_case else {}
    return document | ({} if id_format is None else {"id_format": id_format})


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
        made: ColumnKind | Ignore = kind(**{key: keys[key] for key in keys if key != "kind"})
    except InvalidSetting as error:
        raise InvalidSetting(f"column {column!r}: {error}") from None
    return made


def _parse_dates(column: dict[str, Any]) -> dict[str, Any]:
    """Turn the texts of a date column into dates: JSON has none."""
    if column["kind"] != Date.kind:
        return column
    return {key: value if key == "kind" else _parse_date_value(value) for key, value in column.items()}


def _parse_date_value(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_parse_date_value, value))
    return datetime.fromisoformat(value) if isinstance(value, str) and value != LINEAR else value


_FORMAT_ADVICE = "correct them, or declare another id_format in the schema"


@dataclass(frozen=True)
class Schema:
    """The columns of a table; the inputs are in their order. Without ``id`` rows belong to nobody."""

    id: str | None
    targets: tuple[str, ...]
    columns: tuple[tuple[str, ColumnKind | Ignore], ...]
    fold_case: bool = False  # whether ids that differ only in case are the same
    id_format: str | None = None  # what ids look like: "integer", "uuid", "email" or a regular expression

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
            raise InvalidSetting("target must be the name of a column, or a list of different ones")
        for target in self.targets:
            _check_target(target, self._kinds.get(target))
        if not self.inputs:
            raise InvalidSetting("there are no inputs; declare a column that is neither a target nor ignored")
        if twice := find_duplicates(self.inputs):
            raise InvalidSetting(f"inputs must have different names; duplicates: {quote_names(twice)}")

    # Reading and writing

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
            found = cls(*parse_document(tomllib.loads(text)))
            if found.id_format is not None:
                find_misfits(found.id_format, [b"0"], fold_case=False)  # refuses an expression that cannot be read
            return found
        except (ValueError, OverflowError) as error:  # of TOML or of the schema; a date near the ends of time
            raise InvalidSetting(f"{name}: {error}") from None
        except RecursionError:
            raise InvalidSetting(f"{name}: values are nested too deep; a schema has two levels") from None

    @classmethod
    def from_json(cls, text: str) -> "Schema":
        """Read what `to_json` wrote, and nothing else."""
        try:
            schema = cls(*parse_json_document(json.loads(text)))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            raise InvalidFile("not a stored schema, or a damaged one") from None
        if schema.to_json() != text:
            raise InvalidFile("a stored schema was changed: it is not in its canonical form")
        return schema

    def to_json(self) -> str:
        """Return the canonical form: equal schemas give equal texts."""
        document = to_document((self.id, self.targets, self.columns, self.fold_case, self.id_format))
        return json.dumps(document, sort_keys=True, separators=(",", ":"), default=datetime.isoformat)

    # The same with another id or other bounds

    def with_id(self, column: str) -> "Schema":
        """Return the same schema with this column of ids, which is then no input."""
        return replace(self, id=column, columns=tuple((name, kind) for name, kind in self.columns if name != column))

    def with_bounds(self, bounds: Mapping[str, tuple[Any, Any] | None]) -> "Schema":
        """Return the same schema with other bounds.

        Parameters
        ----------
        bounds : mapping of str to (low, high) or None
            For columns of numbers two numbers, for columns of dates two dates; None has the bounds observed.
        """
        changed = {column: _with_bounds(column, self._kinds.get(column), pair) for column, pair in bounds.items()}
        return replace(self, columns=tuple((name, changed.get(name, kind)) for name, kind in self.columns))

    # What it says

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the d inputs."""
        return tuple(name for column, kind in self.input_kinds.items() for name in kind.input_names(column))

    def bounds(self) -> tuple[Floats, Floats]:
        """Return low and high of the inputs, (d,) each; NaN in both where they are observed."""
        return _split_bounds(
            [kind.bounds() for column, kind in self.input_kinds.items() for _ in kind.input_names(column)]
        )

    def target_bounds(self) -> tuple[Floats, Floats]:
        """Return low and high of the targets, (t,) each; NaN in both where they are observed."""
        return _split_bounds([kind.bounds() for kind in self.target_kinds.values()])

    def scales(self) -> list[Any]:
        """Return the scales of the inputs, one entry per input, as a model takes them."""
        return [kind.scales() for column, kind in self.input_kinds.items() for _ in kind.input_names(column)]

    def declared_scales(self) -> list[Any]:
        """Return the same with None for inputs whose column says nothing of a scale."""
        said = [kind.declares_scale for column, kind in self.input_kinds.items() for _ in kind.input_names(column)]
        return [scale if known else None for scale, known in zip(self.scales(), said, strict=True)]

    def target_scales(self) -> list[str | None]:
        """Return the scales on which the targets are learned; None where a column says nothing of it."""
        return [kind.scales() if kind.declares_scale else None for kind in self.target_kinds.values()]

    def clip(self, X: Floats) -> Floats:
        """Return rows in which inputs whose column says ``clip`` are moved to their bounds: (n, d) -> (n, d)."""
        low, high = self.bounds()
        unclipped = [not kind.clips for column, kind in self.input_kinds.items() for _ in kind.input_names(column)]
        if all(unclipped):
            return X
        low[unclipped], high[unclipped] = -np.inf, np.inf
        return np.clip(X, low, high)

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

    # Whose rows

    def normalise_ids(self, ids: Any) -> list[bytes]:
        """Return ids as a vault knows them; refuse them by count and place if some are not of the declared format."""
        known = id_bytes(ids, fold_case=self.fold_case)
        if misfits := self._find_misfits(known):
            text = f"ids that are not {describe_id_format(str(self.id_format))}: {len(misfits):,} of {len(known):,}"
            raise InvalidInput(f"{text}, {format_positions(misfits)}; {_FORMAT_ADVICE}")
        return known

    def read_id_column(self, column: Any) -> list[bytes]:
        """Return the ids in (a part of) the column of a table as a vault knows them; a refusal counts rows."""
        name = f"column {self.id!r}"
        known = id_bytes(column, name=name, fold_case=self.fold_case)
        if misfits := self._find_misfits(known):
            problem = f"ids that are not {describe_id_format(str(self.id_format))}"
            raise InvalidColumns(problem, {name: len(misfits)}, len(known), _FORMAT_ADVICE, first=misfits[0])
        return known

    def _find_misfits(self, known: list[bytes]) -> list[int]:
        return [] if self.id_format is None else find_misfits(self.id_format, known, fold_case=self.fold_case)

    # What it asks of a table

    def columns_to_read(self, *, targets: bool, ids: bool) -> dict[str, str]:
        """Return the columns to read, and the names of their types in CSV."""
        if ids and self.id is None:
            raise InvalidSetting('the schema does not say whose row it is; add a line like id = "customer_id"')
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
        """Refuse a table that lacks a column or, in training, has one that the schema does not mention.

        With ``more`` a table with targets may have others, too: it is not to be learned from. Without ``show`` the
        error gives places of columns and not their names, which may be people.
        """
        check_columns_exist(names, self.columns_to_read(targets=targets, ids=ids), show_names=show_names)
        unknown = [name for name in names if name not in self._kinds and name != self.id and not is_row_label(name)]
        if targets and unknown and not allow_extra:
            way_out = 'declare them; kind = "ignore" leaves a column out'
            which = quote_names(unknown) if show_names else describe_positions(names, unknown)
            raise InvalidInput(f"columns that the schema does not mention: {which}; {way_out}")


def is_row_label(name: str) -> bool:
    """Return whether pandas writes the labels of rows under this name: they are no column of the table."""
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def _check_target(target: str, kind: Any) -> None:
    if not isinstance(kind, (Number, Boolean)):
        raise InvalidSetting(f"target {target!r} must be declared under [columns], as a number or a boolean")
    if kind.fill is not None:
        raise InvalidSetting(f"target {target!r} must have no fill; leave rows without a target out of the data")
    if getattr(kind, "clip", None):
        raise InvalidSetting(f"target {target!r} must have no clip: that is for inputs")
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
    except (InvalidSetting, OverflowError) as error:  # a date near the ends of time
        raise InvalidSetting(f"column {column!r}: {error}") from None


def _split_bounds(bounds: list[tuple[float, float]]) -> tuple[Floats, Floats]:
    low, high = np.array(bounds, dtype=np.float64).T
    return low, high
