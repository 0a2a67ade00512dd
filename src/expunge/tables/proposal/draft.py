"""Drafts: a schema in TOML for a person to edit, from one pass over the data.

What is read from the data reveals something about the people in it, so the text asks to replace it by public facts.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any, TypeAlias

import pyarrow as pa

from ...encoding.values import whole_number
from ...errors import InvalidInput
from ..cells import Arrow, accepts_type, id_column_text, unpack_array, unpack_type
from ..ids import ID_FORMAT_NAMES, find_fitting_formats, id_bytes
from ..kinds import OTHER, Boolean, Category, ColumnKind, Date, Ignore, Number
from ..messages import InvalidCell, check_columns_exist, quote_names, table_title
from ..reader import read_batches, read_column_types
from ..schema import Schema, column_keys, is_row_label
from ..sources import Source, is_read_once, open_stream
from ..toml import toml_literal
from .ranges import DateSummary, NumberSummary, RangeSummary
from .summaries import BooleanSummary, ColumnSummary, ProposedKind, SampleOwners
from .texts import TextSummary

_SCHEMA_HEADER = """\
# A proposal for a schema, read from {name}. Check it line by line before you train.
#
# Bounds, fills and categories are rounded and supported by at least {people} {whose}. In training they count as your
# declaration and stay in the model when people leave: prefer public facts, such as the limits of a form or a device.
#
# low, high   the range of the values; without them the bounds are observed, and change with the rows
# clip        a value outside the bounds counts as the bound in training; without it its row is refused
# fill        replaces an empty cell; without it empty cells are refused. The proposal is the rounded median of {whose}
# gaps        texts that count as empty cells in a column of numbers; "text" stands for any text that is not a number
# format      1234.56 or the last day of 2020 as written in the cells; not needed for 1234.56 or 2020-12-31
# scale       "linear", "log", or knots; without it the plan decides
# values      the texts that at least {people} {whose} have; all others count as "{other}"
# fold_case   true: ids that differ only in case are one person; proposed for e-mail addresses
# id_format   the form of every id: "integer", "uuid", "email" or "^a regular expression$"; others are refused
# kind        number, boolean, date, category or ignore; codes made of digits, like post codes, are categories
"""
_MISSING_ID_LINE = "# id = ...   the column with the ids of people; needed to find and erase a person"

ColumnProposals: TypeAlias = tuple[dict[str, ProposedKind], str | None, list[str]]  # by column; ids' format; notes
_MANY_CATEGORIES = 50
_NEARLY_EQUAL = 0.999  # R squared of a line from the column to the target


def propose_schema(
    source: Source,
    *,
    target: str | Sequence[str],
    id: str | None = None,  # noqa: A002 (the key in a schema)
    people: int = 10,
) -> str:
    """Return a schema in TOML for this table. A value becomes a category if ``people`` ids (or rows) have it."""
    return draft_schema(source, target=target, id=id, people=people).text


@dataclass(frozen=True)
class Draft:
    """A proposed schema, and what a person should know about it: notes name columns, never cells."""

    text: str
    notes: tuple[str, ...]


def draft_schema(
    source: Source,
    *,
    target: str | Sequence[str],
    id: str | None = None,  # noqa: A002 (the key in a schema)
    people: int = 10,
) -> Draft:
    """Return the schema of `propose_schema`, with notes on what was left out, could not be read, or looks odd."""
    whole_number("people", people)
    targets = (target,) if isinstance(target, str) else tuple(target)
    source = open_stream(source)
    proposals, id_format, notes = _inspect_patiently(source, targets, id, people)
    columns = tuple((column, kind) for column, (kind, _) in proposals.items())
    # E-mail addresses are written in any case: a request in another case must find the person.
    schema = Schema(id, targets, columns, fold_case=id_format == "email", id_format=id_format)
    name = "a table" if hasattr(source, "__arrow_c_stream__") else toml_literal(table_title(source))
    header = _SCHEMA_HEADER.format(name=name, people=people, whose="rows" if id is None else "people", other=OTHER)
    lines = schema_lines(schema, {column: note for column, (_, note) in proposals.items()})
    return Draft("\n".join([header, *lines, ""]), tuple(notes))


def plain_schema(source: Source, target: str | Sequence[str], id: str | None = None) -> Schema:  # noqa: A002 (the key)
    """Return a schema in which all columns but the id are numbers (targets may be booleans) with observed bounds."""
    return plain_schema_from_types(read_column_types(source), target, id)


def plain_schema_from_types(types: Arrow, target: str | Sequence[str], id: str | None = None) -> Schema:  # noqa: A002 (the key)
    """Return the schema of `plain_schema`, from names and types of columns, given as a pyarrow schema."""
    targets = (target,) if isinstance(target, str) else tuple(target)
    check_columns_exist(types.names, targets if id is None else [*targets, id])
    cells = {field.name: unpack_type(field.type) for field in types if not is_row_label(field.name)}
    if all(map(pa.types.is_null, cells.values())):
        raise InvalidInput("the table has no rows, or only empty cells")
    cells.pop(id, None)
    flags = [name for name in targets if pa.types.is_boolean(cells.get(name, pa.null()))]
    kinds: dict[str, ColumnKind] = {name: Boolean() if name in flags else Number() for name in cells}
    if others := [name for name, kind in kinds.items() if not accepts_type(kind, cells[name])]:
        id_option = "" if id is None else f" --id-column {_shell_word(id)}"
        way_out = f"`expunge schema FILE --target {_shell_word(targets[0])}{id_option}` writes a schema to edit"
        raise InvalidInput(f"columns that are not numbers: {quote_names(others)}; {way_out}")
    return Schema(id, targets, tuple(kinds.items()))


def _shell_word(name: str) -> str:
    """Return a name as a word of a shell command, or escaped if it cannot be typed."""
    return shlex.quote(name) if name.isprintable() else repr(name)


def schema_lines(schema: Schema, notes: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a schema; a column's note becomes a comment above it."""
    yield _MISSING_ID_LINE if schema.id is None else f"id = {toml_literal(schema.id)}"
    yield from ["fold_case = true"] if schema.fold_case else []
    yield from [] if schema.id_format is None else [f"id_format = {toml_literal(schema.id_format)}"]
    yield f"target = {toml_literal(schema.targets[0] if len(schema.targets) == 1 else schema.targets)}"
    for column, kind in schema.columns:
        yield ""
        yield from [f"# {notes[column]}"] if notes[column] else []
        yield f"[columns.{column if re.fullmatch('[A-Za-z0-9_-]+', column) else toml_literal(column)}]"
        yield from (f"{key} = {toml_literal(_shorten(value))}" for key, value in column_keys(kind).items())


def _shorten(value: Any) -> Any:
    """Return whole floats as integers and midnights as dates, as people write them; also within lists."""
    if isinstance(value, (list, tuple)):
        return list(map(_shorten, value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value.date() if isinstance(value, datetime) and value.time() == time() else value


def _inspect_patiently(source: Source, targets: Sequence[str], id_: str | None, people: int) -> ColumnProposals:
    """Inspect a table; start again when a CSV column that begins with numbers, say, turns out to be text."""
    as_text: set[str] = set()
    while True:
        try:
            return _inspect_columns(source, targets, id_, people, as_text)
        except InvalidCell as error:
            if error.column in as_text or is_read_once(source):
                raise
            as_text.add(error.column)


def _inspect_columns(
    source: Source, targets: Sequence[str], id_: str | None, people: int, as_text: set[str]
) -> ColumnProposals:
    """Return a proposal for each column, and the format of the ids, from one pass over the rows."""
    types = read_column_types(source)
    check_columns_exist(types.names, targets if id_ is None else [*targets, id_])
    columns = {field.name: field.type for field in types if field.name != id_ and not is_row_label(field.name)}
    summaries = {
        name: _new_summary(name, pa.string() if name in as_text else columns[name], people) for name in columns
    }
    rows, id_format = _summarise(source, summaries, id_)
    if not rows:
        raise InvalidInput("the table has no rows, so its columns cannot be described")
    proposals = dict[str, ProposedKind]()
    for name, summary in summaries.items():
        proposal = summary.propose_target() if name in targets else summary.propose()
        if proposal is None:
            hint = summary.find_unread() if isinstance(summary, TextSummary) else None
            unread = "" if hint is None else f"; it {hint}"
            raise InvalidInput(f"target {name!r} must hold finite numbers, or true and false{unread}")
        if name not in targets and is_index_name(name) and _looks_like_an_id(summary):
            proposal = Ignore(), "has no real name and looks like row numbers"
        proposals[name] = proposal
    return proposals, id_format, list(_find_notes(proposals, summaries, targets, "rows" if id_ is None else "people"))


def _find_notes(
    proposals: dict[str, ProposedKind], summaries: dict[str, ColumnSummary], targets: Sequence[str], whose: str
) -> Iterator[str]:
    """Yield what a person should know about the proposal."""
    for name, (kind, note) in proposals.items():
        summary, column = summaries[name], f"column {name!r}"
        unread = summary.find_unread() if isinstance(summary, TextSummary) else None
        if isinstance(kind, Ignore):
            yield f'{column} is left out (kind = "ignore"): it {unread or note}'
            continue
        if isinstance(kind, Category) and len(kind.values) > _MANY_CATEGORIES:
            yield f"{column} becomes {len(kind.values)} categories, one input each: is that intended?"
        elif note:
            yield f"{column}: {note}"
        if unread:
            yield f"{column} {unread}"
        ranged = summary.ranges if isinstance(summary, TextSummary) else summary
        if (
            isinstance(ranged, RangeSummary)
            and isinstance(kind, (Number, Date))
            and (outside := ranged.count_outside(kind))
        ):
            singular = "1 row has" if whose == "rows" else "1 person has"
            who = singular if outside == 1 else f"{outside} {whose} have"
            yield (
                f"{column}: {who} values outside the proposed bounds; training counts them as the "
                "bound (clip = true). Widen low and high to what is possible"
            )
        if name in targets:
            continue
        for target in targets:
            if summary.sample.correlation(summaries[target].sample) ** 2 > _NEARLY_EQUAL:
                yield (
                    f"{column} nearly equals a linear function of the target {target!r}: is it known before the "
                    "target is?"
                )
        if is_index_name(name):
            yield f'{column} has no real name: if it numbers the rows, leave it out (kind = "ignore")'
        elif _looks_like_an_id(summary):
            yield (
                f"{column} looks like an id: nearly every value is a different whole number; leave it out if it is one"
            )


def _looks_like_an_id(summary: ColumnSummary) -> bool:
    return isinstance(summary, NumberSummary) and summary.looks_like_an_id()


def is_index_name(name: str) -> bool:
    """Return whether a program gave this name to a column without one."""
    return not name.strip() or re.fullmatch(r"Unnamed: \d+|index|level_\d+|\.\.\.1|rownames|X", name) is not None


def _new_summary(name: str, cells: Arrow, people: int) -> ColumnSummary:
    """Return an empty summary for a column with cells of this type."""
    cells = unpack_type(cells)
    if pa.types.is_boolean(cells):
        return BooleanSummary(people)
    if pa.types.is_date(cells) or pa.types.is_timestamp(cells):
        return DateSummary(name, people)
    return (
        NumberSummary(name, people)
        if accepts_type(Number(), cells)
        else TextSummary(name, people, typed=not pa.types.is_null(cells))
    )


def _summarise(source: Source, summaries: dict[str, ColumnSummary], id_: str | None) -> tuple[int, str | None]:
    """Add all rows of a table to the summaries of its columns; return the number of rows and the ids' format."""
    rows, formats = 0, () if id_ is None else ID_FORMAT_NAMES

    def add(batch: Arrow) -> None:
        nonlocal rows, formats
        ids = None if id_ is None else id_column_text(batch.column(id_), f"column {id_!r}")
        formats = find_fitting_formats(id_bytes(ids), formats) if formats else ()
        owners = SampleOwners.from_ids(ids, rows, len(batch))
        rows += len(batch)
        for name, summary in summaries.items():
            summary.add(unpack_array(batch.column(name)), owners)

    types = {name: summary.csv_type for name, summary in summaries.items()} | ({} if id_ is None else {id_: "string"})
    for _ in read_batches(source, types, add):
        pass
    return rows, next(iter(formats), None)
