"""TOML: a schema as text for a person to edit.

Names and values come from files of others, and the text may be printed to a terminal: whatever is not printable is
written as an escape.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, time
from typing import Any

from ..document import entry
from ..schema import Schema

_SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def lines(schema: Schema, notes: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a schema; a column's note stands above it as a comment."""
    whose = "# id = ...   the column that says whose row it is: by it a person is found and erased"
    yield whose if schema.id is None else f"id = {_literal(schema.id)}"
    yield from [] if schema.id_format is None else [f"id_format = {_literal(schema.id_format)}"]
    yield f"target = {_literal(schema.targets[0] if len(schema.targets) == 1 else schema.targets)}"
    for column, kind in schema.columns:
        yield ""
        yield from [f"# {notes[column]}"] if notes[column] else []
        yield f"[columns.{column if re.fullmatch('[A-Za-z0-9_-]+', column) else quoted(column)}]"
        yield from (f"{key} = {_literal(value)}" for key, value in entry(kind).items())


def quoted(text: str) -> str:
    """Return a text in quotes, as TOML reads it."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case datetime():
            return value.isoformat() if value.time() != time() else value.date().isoformat()
        case str():
            return quoted(value)
        case _:
            return "[" + ", ".join(map(_literal, value)) + "]"
