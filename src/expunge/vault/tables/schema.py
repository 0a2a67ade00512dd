"""Schemas: whose row it is, what is to be predicted, and what each column is.

A schema is written down before training, and a row is encoded without a look at any other: so it can leak nothing about
a person, except where it leaves bounds to the data.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import InvalidFile, InvalidInput, InvalidSetting
from ...exact.arrays import Floats
from .kinds import KINDS, Arrow, Boolean, Date, Ignore, Kind, Number, filled, listed, repeated, texts, unpacked_type


@dataclass(frozen=True)
class Schema:
    """The columns of a table; the inputs are in their order. Without ``id`` no row is anybody's."""

    id: str | None
    targets: tuple[str, ...]
    columns: tuple[tuple[str, Kind | Ignore], ...]

    def __post_init__(self) -> None:
        if self.id is not None and (not isinstance(self.id, str) or self.id in self._kinds):
            raise InvalidSetting("id must be the name of a column that is not declared under [columns]")
        if not self.targets or not texts(self.targets) or repeated(self.targets):
            raise InvalidSetting("target must be the name of a column, or a list of different ones")
        for target in self.targets:
            _check_target(target, self._kinds.get(target))
        if not self.inputs:
            raise InvalidSetting("there are no inputs; declare a column that is neither a target nor ignored")
        if twice := repeated(self.inputs):
            raise InvalidSetting(f"inputs must have different names; there more than once: {listed(twice)}")

    def owned_by(self, column: str) -> "Schema":
        """The same schema with this column of ids, which is then no input."""
        return replace(self, id=column, columns=tuple((name, kind) for name, kind in self.columns if name != column))

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSetting(f"{path} cannot be read as a schema: {error}") from None
        return cls.parse(text, name=str(path))

    @classmethod
    def parse(cls, text: str, *, name: str = "schema") -> "Schema":
        """Read TOML."""
        try:
            return _from_document(tomllib.loads(text))
        except (ValueError, OverflowError) as error:  # of TOML or of the schema; a date near the ends of time
            raise InvalidSetting(f"{name}: {error}") from None

    @classmethod
    def plain(cls, types: Arrow, target: str | Sequence[str], id: str | None = None) -> "Schema":  # noqa: A002 (the key)
        """For a table without a schema: every column but id and target is a number, and all bounds are observed."""
        targets = (target,) if isinstance(target, str) else tuple(target)
        check_there(types.names, targets if id is None else [*targets, id])
        cells = {field.name: unpacked_type(field.type) for field in types if not is_row_label(field.name)}
        if all(map(pa.types.is_null, cells.values())):
            raise InvalidInput("the table has no rows, or only empty cells")
        cells.pop(id, None)
        flags = [name for name in targets if pa.types.is_boolean(cells.get(name, pa.null()))]
        kinds: dict[str, Kind] = {name: Boolean() if name in flags else Number() for name in cells}
        if others := [name for name, kind in kinds.items() if not kind.takes(cells[name])]:
            whose = "" if id is None else f" --id {id}"
            way_out = f"`expunge schema FILE --target {targets[0]}{whose}` writes a schema to edit"
            raise InvalidInput(f"columns that are not numbers: {listed(others)}; {way_out}")
        return cls(id, targets, tuple(kinds.items()))

    @classmethod
    def from_json(cls, text: str) -> "Schema":
        """Read what `to_json` wrote, and nothing else."""
        try:
            document = json.loads(text)
            entries = {column.pop("name"): _with_dates(column) for column in document["columns"]}
            schema = _from_document({**document, "columns": entries})
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            raise InvalidFile("not a stored schema, or a damaged one") from None
        if schema.to_json() != text:
            raise InvalidFile("a stored schema was changed: it is not in its canonical form")
        return schema

    def to_json(self) -> str:
        """The canonical form: equal schemas give equal texts."""
        columns = [{"name": name, **entry(kind)} for name, kind in self.columns]
        document = {"id": self.id, "target": self.targets, "columns": columns}
        return json.dumps(document, sort_keys=True, separators=(",", ":"), default=datetime.isoformat)

    def hash(self) -> str:
        """SHA-256 of the canonical form, in hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the d inputs."""
        return tuple(name for column, kind in self._sources.items() for name in kind.inputs(column))

    def bounds(self) -> tuple[Floats, Floats]:
        """Low and high of the inputs, (d,) each; NaN in both where they are observed."""
        return _ends([kind.bounds() for column, kind in self._sources.items() for _ in kind.inputs(column)])

    def target_bounds(self) -> tuple[Floats, Floats]:
        """Low and high of the targets, (t,) each; NaN in both where they are observed."""
        return _ends([self._kinds[target].bounds() for target in self.targets])

    def wanted(self, *, targets: bool, ids: bool) -> dict[str, Arrow]:
        """The columns to read, and their types in CSV."""
        if ids and self.id is None:
            raise InvalidSetting('the schema does not say whose a row is; add a line like id = "customer_id"')
        names = [*self._sources, *(self.targets if targets else ())]
        types = {name: self._kinds[name].in_csv for name in names}
        return {**types, str(self.id): pa.string()} if ids else types

    def check(self, names: Sequence[str], *, targets: bool, ids: bool = False) -> None:
        """Refuse a table that lacks a column or, in training, has one of which the schema says nothing."""
        check_there(names, self.wanted(targets=targets, ids=ids))
        unknown = [name for name in names if name not in self._kinds and name != self.id and not is_row_label(name)]
        if targets and unknown:
            way_out = 'declare them; kind = "ignore" leaves a column out'
            raise InvalidInput(f"columns that the schema does not mention: {listed(unknown)}; {way_out}")

    def encode(self, batch: Arrow, *, targets: bool) -> tuple[Floats, Floats | None]:
        """The inputs (n, d) and the targets (n, t) of a record batch."""
        self.check(batch.schema.names, targets=targets)
        X = _encoded(batch, self._sources, len(self.inputs))
        if not targets:
            return X, None
        return X, _encoded(batch, {name: self._kinds[name] for name in self.targets}, len(self.targets))

    @cached_property
    def _kinds(self) -> dict[str, Any]:
        return dict(self.columns)

    @cached_property
    def _sources(self) -> dict[str, Kind]:
        """The columns that become inputs."""
        return {name: kind for name, kind in self.columns if isinstance(kind, Kind) and name not in self.targets}


def entry(kind: Kind | Ignore) -> dict[str, Any]:
    """The keys of a column in a schema."""
    return {"kind": kind.kind} | {key: value for key, value in vars(kind).items() if value is not None}


def is_row_label(name: str) -> bool:
    """Whether pandas writes the labels of rows under this name: they are no column of the table."""
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def _from_document(document: dict[str, Any]) -> Schema:
    if unknown := sorted(document.keys() - {"id", "target", "columns"}):
        raise InvalidSetting(f"unknown keys {listed(unknown)}; a schema has id, target and [columns.NAME]")
    target, columns = document.get("target"), document.get("columns")
    if not isinstance(columns, dict):
        raise InvalidSetting("no columns; declare each under [columns.NAME]")
    targets = [target] if isinstance(target, str) else target
    if not isinstance(targets, list):
        raise InvalidSetting("target must be the name of a column, or a list of different ones")
    kinds = ((name, _kind(name, keys)) for name, keys in columns.items())
    return Schema(document.get("id"), tuple(targets), tuple(kinds))


def _kind(column: str, keys: Any) -> Kind | Ignore:
    kind = KINDS.get(str(keys.get("kind"))) if isinstance(keys, dict) else None
    if kind is None:
        raise InvalidSetting(f"column {column!r}: kind must be one of {listed(KINDS)}")
    allowed = [field.name for field in fields(kind)]
    if unknown := sorted(keys.keys() - {"kind", *allowed}):
        raise InvalidSetting(f"column {column!r}: unknown keys {listed(unknown)}; kind {kind.kind!r} takes {allowed}")
    try:
        made: Kind | Ignore = kind(**{key: keys[key] for key in keys if key != "kind"})
    except InvalidSetting as error:
        raise InvalidSetting(f"column {column!r}: {error}") from None
    return made


def _with_dates(column: dict[str, Any]) -> dict[str, Any]:
    """JSON has no dates: they are texts there."""
    if column["kind"] != Date.kind:
        return column
    return {key: value if key == "kind" else datetime.fromisoformat(value) for key, value in column.items()}


def _check_target(target: str, kind: Any) -> None:
    if not isinstance(kind, (Number, Boolean)):
        raise InvalidSetting(f"target {target!r} must be declared under [columns], as a number or a boolean")
    if kind.fill is not None:
        raise InvalidSetting(f"target {target!r} must have no fill; leave rows without a target out of the data")


def check_there(names: Sequence[str], wanted: Iterable[str]) -> None:
    """Refuse a table that lacks a column."""
    if missing := [name for name in wanted if name not in names]:
        columns = "column" if len(missing) == 1 else "columns"
        odd = [mark for mark in ";\t|" if len(names) == 1 and mark in names[0]]
        hint = f"; is the table separated by {odd[0]!r}? A CSV file has commas" if odd else ""
        raise InvalidInput(f"no {columns} {listed(missing)}; there are {listed(names)}{hint}")


def _encoded(batch: Arrow, kinds: Mapping[str, Kind], width: int) -> Floats:
    table, j = np.empty((len(batch), width)), 0
    for name, kind in kinds.items():
        columns = kind.spread(filled(name, kind, batch.column(name)))  # (n, k)
        table[:, j : j + columns.shape[1]] = columns
        j += columns.shape[1]
    return table


def _ends(bounds: list[tuple[float, float]]) -> tuple[Floats, Floats]:
    low, high = np.array(bounds, dtype=np.float64).T
    return low, high
