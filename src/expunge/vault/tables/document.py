"""Documents: a schema's parts from what TOML or JSON holds, and back."""

from dataclasses import fields
from datetime import datetime
from typing import Any, TypeAlias

from ...errors import InvalidSetting
from .kinds import KINDS, Date, Ignore, Kind
from .messages import listed
from .scales import LINEAR

Parts: TypeAlias = tuple[
    Any, tuple[Any, ...], tuple[tuple[str, Kind | Ignore], ...], Any, Any
]  # id, targets, columns, fold_case, id_format
_KEYS = ("id", "target", "fold_case", "id_format", "columns")


def parts_of(document: dict[str, Any]) -> Parts:
    """Return the parts of a document; each column is checked, the whole is not."""
    if unknown := sorted(document.keys() - set(_KEYS)):
        raise InvalidSetting(f"unknown keys {listed(unknown)}; a schema has {', '.join(_KEYS[:-1])} and [columns.NAME]")
    target, columns = document.get("target"), document.get("columns")
    if not isinstance(columns, dict):
        raise InvalidSetting("no columns; declare each under [columns.NAME]")
    targets = [target] if isinstance(target, str) else target
    if not isinstance(targets, list):
        raise InvalidSetting("target must be the name of a column, or a list of different ones")
    kinds = tuple((name, _kind(name, keys)) for name, keys in columns.items())
    return document.get("id"), tuple(targets), kinds, document.get("fold_case", False), document.get("id_format")


def parts_of_json(document: Any) -> Parts:
    """Return the parts of a document as `document_of` makes it, once it went through JSON."""
    columns = {column.pop("name"): _with_dates(column) for column in document["columns"]}
    return parts_of({**document, "columns": columns})


def document_of(parts: Parts) -> dict[str, Any]:
    """Return parts as a document for JSON, with a list of columns: their order counts."""
    id_, targets, columns, fold_case, id_format = parts
    document = {"id": id_, "target": targets, "columns": [{"name": name, **entry(kind)} for name, kind in columns]}
    document |= {"fold_case": True} if fold_case else {}
    return document | ({} if id_format is None else {"id_format": id_format})


def entry(kind: Kind | Ignore) -> dict[str, Any]:
    """Return the keys of a column in a schema."""
    return {"kind": kind.kind} | {key: value for key, value in vars(kind).items() if value is not None}


def _kind(column: str, keys: Any) -> Kind | Ignore:
    kind = KINDS.get(str(keys.get("kind"))) if isinstance(keys, dict) else None
    if kind is None:
        raise InvalidSetting(f"column {column!r}: kind must be one of {listed(KINDS)}")
    allowed = [field.name for field in fields(kind)]
    if unknown := sorted(keys.keys() - {"kind", *allowed}):
        takes = listed(allowed) or "no other keys"
        raise InvalidSetting(f"column {column!r}: unknown keys {listed(unknown)}; kind {kind.kind!r} takes {takes}")
    try:
        made: Kind | Ignore = kind(**{key: keys[key] for key in keys if key != "kind"})
    except InvalidSetting as error:
        raise InvalidSetting(f"column {column!r}: {error}") from None
    return made


def _with_dates(column: dict[str, Any]) -> dict[str, Any]:
    """Turn the texts of a date column into dates: JSON has none."""
    if column["kind"] != Date.kind:
        return column
    return {key: value if key == "kind" else _dated(value) for key, value in column.items()}


def _dated(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_dated, value))
    return datetime.fromisoformat(value) if isinstance(value, str) and value != LINEAR else value
