"""Summaries: what one pass over a column's cells says about its kind.

What is read off the data tells about the people in it. So bounds are rounded outward, and a category needs several
people who have it.
"""

import math
from abc import ABC, abstractmethod
from datetime import date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..cells.arrow import Arrow, is_text, unpacked_type
from ..cells.by_kind import read, takes
from ..kinds import OTHER, Boolean, Category, Date, Ignore, Kind, Number

Proposed: TypeAlias = tuple[Kind | Ignore, str]  # and what a person should know about it

MOST_VALUES = 100  # of a category
MOST_TRACKED = 10_000  # different values of a column that are kept in memory
LONGEST = 100  # characters: a longer text is no category


class Summary(Protocol):
    """What is kept of a column while its table is read."""

    in_csv: str

    def add(self, array: Arrow, who: Arrow) -> None:
        """Look at more cells, and at whose they are."""

    def proposed(self) -> Proposed:
        """Return a kind for the column."""


def summary_of(name: str, cells: Arrow, people: int) -> Summary:
    """Return an empty summary for a column with cells of this type."""
    cells = unpacked_type(cells)
    if pa.types.is_boolean(cells):
        return Flags()
    if pa.types.is_date(cells) or pa.types.is_timestamp(cells):
        return Dates(name)
    return Numbers(name) if takes(Number(), cells) else Texts(people)


class Flags:
    """True and false."""

    in_csv = Boolean.in_csv

    def __init__(self) -> None:
        self.gaps = 0

    def add(self, array: Arrow, who: Arrow) -> None:
        self.gaps += array.null_count

    def proposed(self) -> Proposed:
        return Boolean(fill=False if self.gaps else None), ""


class Range(ABC):
    """The least and the largest value."""

    kind: Kind

    def __init__(self, name: str) -> None:
        self.name, self.in_csv = name, self.kind.in_csv
        self.low, self.high, self.gaps, self.infinite = math.inf, -math.inf, False, False

    def add(self, array: Arrow, who: Arrow) -> None:
        values = read(self.kind, self.name, array)
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


class Numbers(Range):
    """Numbers."""

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


class Dates(Range):
    """Dates and times, as days."""

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


class Texts:
    """Texts, and of each how many people have it."""

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
