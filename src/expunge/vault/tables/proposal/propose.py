"""Proposals: a schema for a person to edit, from one look at the data.

What is read off the data tells about the people in it, so the text says that it is to be replaced by public facts.
"""

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from ....encoding.values import whole_number
from ....errors import InvalidInput
from ..cells.arrow import Arrow, unpacked, unpacked_type
from ..cells.by_kind import takes
from ..cells.ids import id_text
from ..id_format import NAMES, fitting_formats
from ..ids import id_bytes
from ..kinds import OTHER, Number
from ..messages import WrongCell, check_there, title
from ..reading import checked_batches, column_types
from ..schema import Schema, is_row_label
from ..sources import Source, read_once, taken
from .ranges import Dates, Numbers
from .sampling import Owners
from .summaries import Flags, Proposed, Summary
from .texts import Texts
from .toml import lines, quoted

_HEADER = """\
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

Looked: TypeAlias = tuple[dict[str, Proposed], str | None]  # what each column could be; the format of the ids


def propose(
    source: Source,
    *,
    target: str | Sequence[str],
    id: str | None = None,  # noqa: A002 (the key in a schema)
    people: int = 10,
) -> str:
    """Return a schema in TOML that takes this table. A value becomes a category if ``people`` ids (or rows) have it."""
    whole_number("people", people)
    targets = (target,) if isinstance(target, str) else tuple(target)
    source = taken(source)
    found, id_format = _patient_look(source, targets, id, people)
    columns = tuple((column, kind) for column, (kind, _) in found.items())
    schema = Schema(id, targets, columns, id_format=id_format)
    name = "a table" if hasattr(source, "__arrow_c_stream__") else quoted(title(source))
    header = _HEADER.format(name=name, people=people, whose="rows" if id is None else "people", other=OTHER)
    return "\n".join([header, *lines(schema, {column: note for column, (_, note) in found.items()}), ""])


def _patient_look(source: Source, targets: Sequence[str], id_: str | None, people: int) -> Looked:
    """Look again where a CSV file has a column that begins with numbers, say, and goes on with text."""
    as_text: set[str] = set()
    while True:
        try:
            return _look(source, targets, id_, people, as_text)
        except WrongCell as odd:
            if odd.column in as_text or read_once(source):
                raise
            as_text.add(odd.column)


def _look(source: Source, targets: Sequence[str], id_: str | None, people: int, as_text: set[str]) -> Looked:
    """Return what each column could be, and the format of the ids, from one pass over the rows."""
    types, whose = column_types(source), [] if id_ is None else [id_]
    check_there(types.names, [*targets, *whose])
    columns = {field.name: field.type for field in types if field.name != id_ and not is_row_label(field.name)}
    seen = {name: _summary(name, pa.string() if name in as_text else columns[name], people) for name in columns}
    rows, id_format = _summarise(source, seen, id_)
    if not rows:
        raise InvalidInput("a table without rows says nothing about its columns")
    return {name: _as_target(name, s) if name in targets else s.proposed() for name, s in seen.items()}, id_format


def _summary(name: str, cells: Arrow, people: int) -> Summary:
    """Return an empty summary for a column with cells of this type."""
    cells = unpacked_type(cells)
    if pa.types.is_boolean(cells):
        return Flags()
    if pa.types.is_date(cells) or pa.types.is_timestamp(cells):
        return Dates(name, people)
    return Numbers(name, people) if takes(Number(), cells) else Texts(name, people, typed=not pa.types.is_null(cells))


def _summarise(source: Source, seen: dict[str, Summary], id_: str | None) -> tuple[int, str | None]:
    """Show all rows of a table to the summaries of its columns; return how many there are, and the ids' format."""
    rows, formats = 0, () if id_ is None else NAMES

    def add(batch: Arrow) -> None:
        nonlocal rows, formats
        ids = None if id_ is None else id_text(batch.column(id_), f"column {id_!r}")
        formats = fitting_formats(id_bytes(ids), formats) if formats else ()
        owners = Owners.of(ids, rows, len(batch))
        rows += len(batch)
        for name, summary in seen.items():
            summary.add(unpacked(batch.column(name)), owners)

    wanted = {name: summary.in_csv for name, summary in seen.items()} | ({} if id_ is None else {id_: "string"})
    for _ in checked_batches(source, wanted, add):
        pass
    return rows, next(iter(formats), None)


def _as_target(name: str, summary: Summary) -> Proposed:
    if (found := summary.as_target()) is None:
        raise InvalidInput(f"target {name!r} must hold finite numbers, or true and false")
    return found
