"""Proposals: a schema for a person to edit, from one look at the data.

What is read off the data tells about the people in it, so the text says that it is to be replaced by public facts.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, time
from typing import Any, TypeAlias

import pyarrow as pa

from ...encoding.values import whole_number
from ...errors import InvalidInput
from ..cells import Arrow, accepts_type, id_column_text, unpack_array, unpack_type
from ..ids import ID_FORMAT_NAMES, find_fitting_formats, id_bytes
from ..kinds import OTHER, Boolean, ColumnKind, Number
from ..messages import InvalidCell, check_columns_exist, quote_names, table_title
from ..reader import read_batches, read_column_types
from ..schema import Schema, column_keys, is_row_label
from ..sources import Source, is_read_once, open_stream
from .ranges import DateSummary, NumberSummary
from .summaries import BooleanSummary, ColumnSummary, ProposedKind, SampleOwners
from .texts import TextSummary

# Plain schemas: for a table of numbers that comes without one.


def plain_schema(source: Source, target: str | Sequence[str], id: str | None = None) -> Schema:  # noqa: A002 (the key)
    """Return a schema in which every column but id and target is a number, and all bounds are observed."""
    return plain_schema_from_types(read_column_types(source), target, id)


def plain_schema_from_types(types: Arrow, target: str | Sequence[str], id: str | None = None) -> Schema:  # noqa: A002 (the key)
    """Return the same from names and types of the columns, as a schema of pyarrow."""
    targets = (target,) if isinstance(target, str) else tuple(target)
    check_columns_exist(types.names, targets if id is None else [*targets, id])
    cells = {field.name: unpack_type(field.type) for field in types if not is_row_label(field.name)}
    if all(map(pa.types.is_null, cells.values())):
        raise InvalidInput("the table has no rows, or only empty cells")
    cells.pop(id, None)
    flags = [name for name in targets if pa.types.is_boolean(cells.get(name, pa.null()))]
    kinds: dict[str, ColumnKind] = {name: Boolean() if name in flags else Number() for name in cells}
    if others := [name for name, kind in kinds.items() if not accepts_type(kind, cells[name])]:
        whose = "" if id is None else f" --id-column {_shell_word(id)}"
        way_out = f"`expunge schema FILE --target {_shell_word(targets[0])}{whose}` writes a schema to edit"
        raise InvalidInput(f"columns that are not numbers: {quote_names(others)}; {way_out}")
    return Schema(id, targets, tuple(kinds.items()))


def _shell_word(name: str) -> str:
    """Return a name as a word of a command, or escaped where it could not be typed."""
    return shlex.quote(name) if name.isprintable() else repr(name)


# TOML: a schema as text for a person to edit.
# Names and values come from files of others, and the text may be printed to a terminal: whatever is not printable is
# written as an escape.


_SHORT_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def schema_lines(schema: Schema, notes: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a schema; a column's note stands above it as a comment."""
    whose = "# id = ...   the column that says whose row it is: by it a person is found and erased"
    yield whose if schema.id is None else f"id = {_toml_literal(schema.id)}"
    yield from [] if schema.id_format is None else [f"id_format = {_toml_literal(schema.id_format)}"]
    yield f"target = {_toml_literal(schema.targets[0] if len(schema.targets) == 1 else schema.targets)}"
    for column, kind in schema.columns:
        yield ""
        yield from [f"# {notes[column]}"] if notes[column] else []
        yield f"[columns.{column if re.fullmatch('[A-Za-z0-9_-]+', column) else quote_toml(column)}]"
        yield from (f"{key} = {_toml_literal(value)}" for key, value in column_keys(kind).items())


def quote_toml(text: str) -> str:
    """Return a text in quotes, as TOML reads it."""
    return '"' + "".join(map(_escape_char, text)) + '"'


def _escape_char(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _toml_literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case datetime():
            return value.isoformat() if value.time() != time() else value.date().isoformat()
        case str():
            return quote_toml(value)
        case _:
            return "[" + ", ".join(map(_toml_literal, value)) + "]"


_SCHEMA_HEADER = """\
# A proposal for a schema, read from {name}. Check it line by line before you train.
#
# Bounds, fills, scales, gaps and categories were read from the data: they tell about the people in it, and they stay
# in the model when these people leave. Replace them by facts that are public: what a form allows, what a device can
# measure.
#
# low, high   training refuses a row outside; without them the bounds are observed, and follow the rows there are
# clip        a value outside the bounds counts as the bound, instead of being refused
# fill        stands for an empty cell; without it an empty cell is refused. Proposed is the median of {whose}, rounded
# gaps        texts that count as empty cells of a number; "text": whatever is no number
# scale       "linear" (the default), "log", or knots: between any two of those proposed are about as many {whose}
# values      what at least {people} {whose} have; every other value counts as "{other}"
# id_format   what every id must look like ("integer", "uuid", "email" or "^a regular expression$"); others are refused
# kind        number, boolean, date, category or ignore; codes made of digits, like post codes, are categories
"""

ColumnProposals: TypeAlias = tuple[
    dict[str, ProposedKind], str | None
]  # what each column could be; the format of the ids


def propose_schema(
    source: Source,
    *,
    target: str | Sequence[str],
    id: str | None = None,  # noqa: A002 (the key in a schema)
    people: int = 10,
) -> str:
    """Return a schema in TOML that takes this table. A value becomes a category if ``people`` ids (or rows) have it."""
    whole_number("people", people)
    targets = (target,) if isinstance(target, str) else tuple(target)
    source = open_stream(source)
    found, id_format = _inspect_patiently(source, targets, id, people)
    columns = tuple((column, kind) for column, (kind, _) in found.items())
    schema = Schema(id, targets, columns, id_format=id_format)
    name = "a table" if hasattr(source, "__arrow_c_stream__") else quote_toml(table_title(source))
    header = _SCHEMA_HEADER.format(name=name, people=people, whose="rows" if id is None else "people", other=OTHER)
    return "\n".join([header, *schema_lines(schema, {column: note for column, (_, note) in found.items()}), ""])


def _inspect_patiently(source: Source, targets: Sequence[str], id_: str | None, people: int) -> ColumnProposals:
    """Look again where a CSV file has a column that begins with numbers, say, and goes on with text."""
    as_text: set[str] = set()
    while True:
        try:
            return _inspect_columns(source, targets, id_, people, as_text)
        except InvalidCell as odd:
            if odd.column in as_text or is_read_once(source):
                raise
            as_text.add(odd.column)


def _inspect_columns(
    source: Source, targets: Sequence[str], id_: str | None, people: int, as_text: set[str]
) -> ColumnProposals:
    """Return what each column could be, and the format of the ids, from one pass over the rows."""
    types, whose = read_column_types(source), [] if id_ is None else [id_]
    check_columns_exist(types.names, [*targets, *whose])
    columns = {field.name: field.type for field in types if field.name != id_ and not is_row_label(field.name)}
    seen = {name: _new_summary(name, pa.string() if name in as_text else columns[name], people) for name in columns}
    rows, id_format = _summarise(source, seen, id_)
    if not rows:
        raise InvalidInput("a table without rows says nothing about its columns")
    return {name: _propose_target(name, s) if name in targets else s.propose() for name, s in seen.items()}, id_format


def _new_summary(name: str, cells: Arrow, people: int) -> ColumnSummary:
    """Return an empty summary for a column with cells of this type."""
    cells = unpack_type(cells)
    if pa.types.is_boolean(cells):
        return BooleanSummary()
    if pa.types.is_date(cells) or pa.types.is_timestamp(cells):
        return DateSummary(name, people)
    return (
        NumberSummary(name, people)
        if accepts_type(Number(), cells)
        else TextSummary(name, people, typed=not pa.types.is_null(cells))
    )


def _summarise(source: Source, summaries: dict[str, ColumnSummary], id_: str | None) -> tuple[int, str | None]:
    """Show all rows of a table to the summaries of its columns; return how many there are, and the ids' format."""
    rows, formats = 0, () if id_ is None else ID_FORMAT_NAMES

    def add(batch: Arrow) -> None:
        nonlocal rows, formats
        ids = None if id_ is None else id_column_text(batch.column(id_), f"column {id_!r}")
        formats = find_fitting_formats(id_bytes(ids), formats) if formats else ()
        owners = SampleOwners.from_ids(ids, rows, len(batch))
        rows += len(batch)
        for name, summary in summaries.items():
            summary.add(unpack_array(batch.column(name)), owners)

    wanted = {name: summary.csv_type for name, summary in summaries.items()} | ({} if id_ is None else {id_: "string"})
    for _ in read_batches(source, wanted, add):
        pass
    return rows, next(iter(formats), None)


def _propose_target(name: str, summary: ColumnSummary) -> ProposedKind:
    if (found := summary.propose_target()) is None:
        raise InvalidInput(f"target {name!r} must hold finite numbers, or true and false")
    return found
