"""Proposals: a schema for a person to edit, from one look at the data.

What is read off the data tells about the people in it. So bounds are rounded outward, a category needs several people
who have it, and the text says that both are to be replaced by facts that are public.
"""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...encoding.values import whole_number
from ...errors import InvalidInput
from . import reading as tables
from .kinds import (
    OTHER,
    Arrow,
    Boolean,
    Category,
    Date,
    Ignore,
    Kind,
    Number,
    WrongCell,
    is_text,
    unpacked,
    unpacked_type,
)
from .schema import Schema, check_there, entry, is_row_label

Proposed: TypeAlias = tuple[Kind | Ignore, str]  # and what a person should know about it

MOST_VALUES = 100  # of a category
MOST_TRACKED = 10_000  # different values of a column that are kept in memory
LONGEST = 100  # characters: a longer text is no category

_HEADER = """\
# A proposal for a schema, read from {name}. Check it line by line before you train.
#
# Bounds and categories were read from the data: they tell about the people in it, and they stay in the model when
# these people leave. Replace them by facts that are public: what a form allows, what a device can measure.
#
# low, high   training refuses a row outside; without them the bounds are observed, and follow the rows there are
# values      what at least {people} {whose} have; every other value counts as "{other}"
# fill        stands for an empty cell; without it an empty cell is refused
# kind        number, boolean, date, category or ignore; codes made of digits, like post codes, are categories
"""


def propose(
    source: tables.Source,
    *,
    target: str | Sequence[str],
    id: str | None = None,  # noqa: A002 (the key in a schema)
    people: int = 10,
) -> str:
    """A schema in TOML that takes this table. A value becomes a category if ``people`` ids (or rows) have it."""
    whole_number("people", people)
    targets = (target,) if isinstance(target, str) else tuple(target)
    found = _patient_look(source, targets, id, people)
    schema = Schema(id, targets, tuple((column, kind) for column, (kind, _) in found.items()))
    name = _quoted(Path(source).name) if isinstance(source, (str, Path)) else "a table"
    header = _HEADER.format(name=name, people=people, whose="rows" if id is None else "people", other=OTHER)
    return "\n".join([header, *_lines(schema, {column: note for column, (_, note) in found.items()}), ""])


def _patient_look(source: tables.Source, targets: Sequence[str], id_: str | None, people: int) -> dict[str, Proposed]:
    """Look again where a CSV file has a column that begins with numbers, say, and goes on with text."""
    as_text: set[str] = set()
    while True:
        try:
            return _look(source, targets, id_, people, as_text)
        except WrongCell as odd:
            if odd.column in as_text:
                raise
            as_text.add(odd.column)


def _look(
    source: tables.Source, targets: Sequence[str], id_: str | None, people: int, as_text: set[str]
) -> dict[str, Proposed]:
    """What each column could be, from one pass over the rows."""
    types, whose = tables.types(source), [] if id_ is None else [id_]
    check_there(types.names, [*targets, *whose])
    columns = {field.name: field.type for field in types if field.name != id_ and not is_row_label(field.name)}
    seen = {name: _summary(name, pa.string() if name in as_text else columns[name], people) for name in columns}
    wanted = {name: summary.in_csv for name, summary in seen.items()} | dict.fromkeys(whose, pa.string())
    rows = 0
    for batch in tables.batches(source, wanted):
        numbers = pa.array(np.arange(rows, rows + len(batch)))
        who = numbers if id_ is None else tables.id_text(batch.column(id_), f"column {id_!r}")
        rows += len(batch)
        for name, summary in seen.items():
            summary.add(unpacked(batch.column(name)), who)
    if not rows:
        raise InvalidInput("a table without rows says nothing about its columns")
    return {name: _as_target(name, *s.proposed()) if name in targets else s.proposed() for name, s in seen.items()}


def _summary(name: str, cells: Arrow, people: int) -> "_Flags | _Range | _Texts":
    cells = unpacked_type(cells)
    if pa.types.is_boolean(cells):
        return _Flags()
    if pa.types.is_date(cells) or pa.types.is_timestamp(cells):
        return _Dates(name)
    return _Numbers(name) if Number().takes(cells) else _Texts(people)


def _as_target(name: str, kind: Any, note: str) -> Proposed:
    if not isinstance(kind, (Number, Boolean)):
        raise InvalidInput(f"target {name!r} must hold finite numbers, or true and false")
    if kind.fill is None:
        return kind, note
    return replace(kind, fill=None), "has gaps: leave rows without a target out of the data"


class _Flags:
    in_csv = Boolean.in_csv

    def __init__(self) -> None:
        self.gaps = 0

    def add(self, array: Arrow, who: Arrow) -> None:
        self.gaps += array.null_count

    def proposed(self) -> Proposed:
        return Boolean(fill=False if self.gaps else None), ""


class _Range(ABC):
    """The least and the largest value."""

    kind: Kind

    def __init__(self, name: str) -> None:
        self.name, self.in_csv = name, self.kind.in_csv
        self.low, self.high, self.gaps, self.infinite = math.inf, -math.inf, False, False

    def add(self, array: Arrow, who: Arrow) -> None:
        values = self.kind.read(self.name, array)
        finite = values[np.isfinite(values)]
        self.low = min(self.low, float(finite.min(initial=math.inf)))
        self.high = max(self.high, float(finite.max(initial=-math.inf)))
        self.gaps |= bool(np.isnan(values).any())
        self.infinite |= bool(np.isinf(values).any())

    def proposed(self) -> Proposed:
        if self.infinite:
            return Ignore(), "has infinite values"
        return self.rounded() if self.low <= self.high else (Ignore(), "has no values")

    @abstractmethod
    def rounded(self) -> Proposed: ...


class _Numbers(_Range):
    kind = Number()

    def rounded(self) -> Proposed:
        """Bounds of about two digits of the span, rounded outward."""
        with localcontext(prec=2_000):  # enough for every digit from 1e308 down to 1e-326
            low, high = Decimal(repr(self.low)), Decimal(repr(self.high))
            span = (high - low) or abs(low) or Decimal(1)
            step = Decimal(1).scaleb(span.adjusted() - 1)
            low, high = low.quantize(step, ROUND_FLOOR), high.quantize(step, ROUND_CEILING)
            middle = (low + high) / 2
        if not math.isfinite(float(high) - float(low)):
            return Ignore(), "has values that are too far apart for float64"
        return Number(float(low), float(high), float(middle) if self.gaps else None), ""


class _Dates(_Range):
    kind = Date()

    def rounded(self) -> Proposed:
        """Bounds of whole years, months or days, rounded outward."""
        least, most = Date(datetime.min, datetime.max).bounds()
        if self.low < least or self.high > most:
            fill = datetime(1970, 1, 1) if self.gaps else None
            return Date(fill=fill), "has dates beyond the years 1 to 9999, so the bounds are observed"
        days = self.high - self.low
        unit = "Y" if days > 3650 else "M" if days > 365 else "D"
        low = np.datetime64(math.floor(self.low), "D").astype(f"M8[{unit}]")
        last = np.datetime64(math.ceil(self.high), "D")
        high = last.astype(low.dtype) + int(last.astype(low.dtype).astype(last.dtype) < last)
        return Date(_date(low), _date(high), _date(low) if self.gaps else None), ""


class _Texts:
    in_csv = Category.in_csv

    def __init__(self, people: int) -> None:
        self.people, self.gaps, self.blank, self.obstacle = people, False, True, ""
        self.who: dict[str, set[Any]] = {}  # of each value, the first so many people who have it

    def add(self, array: Arrow, who: Arrow) -> None:
        if not (is_text(array.type) or pa.types.is_null(array.type)):
            self.obstacle = "has cells of a type that cannot be used"
        if self.obstacle:
            return
        text = array.cast(pa.large_string()).fill_null("")
        length = pc.utf8_length(text)
        self.gaps |= pc.min(length).as_py() == 0
        self.blank &= pc.max(length).as_py() == 0
        self._count(text.filter(short := pc.is_in(length, pa.array(range(1, LONGEST + 1)))), who.filter(short))
        if len(self.who) > MOST_TRACKED:
            self.obstacle = f"has more than {MOST_TRACKED:,} different values"
            self.who.clear()

    def proposed(self) -> Proposed:
        values = sorted(value for value, who in self.who.items() if len(who) >= self.people and value != OTHER)
        if 0 < len(values) <= MOST_VALUES:
            return Category(tuple(values), OTHER if self.gaps else None), ""
        many = f"has more than {MOST_VALUES} values that would be a category each"
        few = "has no values" if self.blank else f"has no value that {self.people} or more have"
        return Ignore(), self.obstacle or (many if values else few)

    def _count(self, text: Arrow, who: Arrow) -> None:
        pairs = pa.table({"value": text, "who": who}).group_by(["value", "who"]).aggregate([])
        for value, one in zip(pairs["value"].to_pylist(), pairs["who"].to_pylist(), strict=True):
            known = self.who.setdefault(value, set())
            if len(known) < self.people:
                known.add(one)


def _date(moment: np.datetime64) -> datetime:
    day = moment.astype("M8[D]").item()
    return datetime.combine(day, time()) if isinstance(day, date) else datetime.max  # rounded up beyond the year 9999


def _lines(schema: Schema, notes: dict[str, str]) -> Iterator[str]:
    whose = "# id = ...   the column that says whose a row is: by it a person is found and erased"
    yield whose if schema.id is None else f"id = {_literal(schema.id)}"
    yield f"target = {_literal(schema.targets[0] if len(schema.targets) == 1 else schema.targets)}"
    for column, kind in schema.columns:
        yield ""
        yield from [f"# {notes[column]}"] if notes[column] else []
        yield f"[columns.{column if re.fullmatch('[A-Za-z0-9_-]+', column) else _quoted(column)}]"
        yield from (f"{key} = {_literal(value)}" for key, value in entry(kind).items())


def _literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case datetime():
            return value.isoformat() if value.time() != time() else value.date().isoformat()
        case str():
            return _quoted(value)
        case _:
            return "[" + ", ".join(map(_literal, value)) + "]"


def _quoted(text: str) -> str:
    """JSON's escapes are TOML's, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
