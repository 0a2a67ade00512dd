"""Guesses: the notation of the numbers or dates in a column of text, where only one notation fits.

A notation is proposed if every cell fits it, and if enough people have cells that fit no other: 11/12/2020 alone may be
a day in November or in December, and 1,234 may be more than a thousand or a little more than one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..cells import Arrow, parse_numbers, to_days, to_mask
from ..notations import DATE_FORMATS, NumberNotation, date_pattern
from .ranges import DateSummary, NumberSummary, RangeSummary
from .summaries import SampleOwners

_UNITS = r"[$€£¥₹%]|EUR|USD|GBP|CHF"
_BLANK = "[ \u00a0\u202f]"
_UNIT_BEFORE, _UNIT_BEHIND = rf"^(?P<sign>[+-]?)(?P<unit>{_UNITS}){_BLANK}?", rf"{_BLANK}?(?P<unit>{_UNITS})$"
_ISO_DATE = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?$"

_POINT, _COMMA, _DAY_FIRST, _MONTH_FIRST, _YEAR_FIRST = "point", "comma", "day first", "month first", "year first"
_RIVALS = {_POINT: _COMMA, _COMMA: _POINT, _DAY_FIRST: _MONTH_FIRST, _MONTH_FIRST: _DAY_FIRST}
_NUMBER_FORMATS = {
    _POINT: ("1234.56", "1,234.56", "1 234.56", "1'234.56"),
    _COMMA: ("1234,56", "1.234,56", "1 234,56", "1'234,56"),
}
_DATE_FAMILIES = {"31": _DAY_FIRST, "12": _MONTH_FIRST, "20": _YEAR_FIRST}  # by how the example begins


@dataclass(eq=False)
class NotationCandidate:
    """A notation, and the summary of a column that is read in this notation while all its cells fit.

    A cell that fits notations of two families has a different meaning in each.
    """

    family: str
    example: str | None  # None: ISO dates
    pattern: str
    summary: RangeSummary
    fits: bool = True

    @property
    def is_number(self) -> bool:
        return self.family in _NUMBER_FORMATS

    def add(self, cells: Arrow, owners: SampleOwners) -> Any:
        """Add cells to the summary if all fit; return which do, (n,)."""
        fitting = to_mask(pc.match_substring_regex(cells, self.pattern))
        self.fits &= bool(fitting.all())
        try:
            if self.fits:
                values = parse_numbers(cells, (), self.example) if self.is_number else to_days(cells, self.example)
                self.summary.add_values(values, owners)
        except pa.ArrowInvalid:  # no such day
            self.fits = False
        return fitting


class NotationGuess:
    """The notation of a column of text, from its cells."""

    def __init__(self, name: str, people: int) -> None:
        self._candidates = [
            NotationCandidate(family, example, NumberNotation.parse(example).pattern, NumberSummary(name, people))
            for family, examples in _NUMBER_FORMATS.items()
            for example in examples
        ]
        self._candidates += [
            NotationCandidate(_DATE_FAMILIES[example[:2]], example, date_pattern(example), DateSummary(name, people))
            for example in DATE_FORMATS
        ]
        self._candidates.append(NotationCandidate(_YEAR_FIRST, None, _ISO_DATE, DateSummary(name, people)))
        self._min_people, self._people = people, set[int]()
        self._against = {candidate.family: set[int]() for candidate in self._candidates}  # people with other cells
        self._units: dict[str, set[int]] = {}
        self._unit_leads = False

    def add(self, text: Arrow, owners: SampleOwners) -> None:
        """Add trimmed cells that are neither empty nor markers of a gap."""
        if not len(text):
            return
        self._note_people(self._people, owners)
        amounts = self._strip_units(text, owners)
        for family, against in self._against.items():
            candidates = [candidate for candidate in self._candidates if candidate.family == family]
            if len(against) < self._min_people or any(candidate.fits for candidate in candidates):
                cells = amounts if family in _NUMBER_FORMATS else text
                some_fit = np.any([candidate.add(cells, owners) for candidate in candidates], axis=0)
                self._note_people(against, owners.select(~some_fit))

    def find(self) -> NotationCandidate | None:
        """Return the only notation that fits, if enough people have cells that rule out the others."""
        fitting = self.fitting()
        if len(fitting) != 1:
            return None
        rival = _RIVALS.get(fitting[0].family)
        alike = any(other.fits and _means_the_same(other, fitting[0]) for other in self._candidates)
        enough = rival is None or alike or len(self._against[rival]) >= self._enough_people
        return fitting[0] if enough else None

    def fitting(self) -> list[NotationCandidate]:
        """Return the notations that all cells fit, one per meaning."""
        by_family = {candidate.family: candidate for candidate in reversed(self._candidates) if candidate.fits}
        if len(self._units) > 1 or any(len(people) < self._enough_people for people in self._units.values()):
            return [candidate for candidate in by_family.values() if not candidate.is_number]
        point, comma = by_family.get(_POINT), by_family.get(_COMMA)
        if point is not None and comma is not None and _means_the_same(point, comma):
            del by_family[_COMMA]
        return [by_family[family] for family in self._against if family in by_family]

    def format(self, candidate: NotationCandidate) -> str | None:
        """Return the format to declare; None for dates in ISO form."""
        if not candidate.is_number or not self._units:
            return candidate.example
        unit = next(iter(self._units))
        blank = "" if unit == "%" else " "
        return f"{unit}{candidate.example}" if self._unit_leads else f"{candidate.example}{blank}{unit}"

    @property
    def _enough_people(self) -> int:
        return min(self._min_people, len(self._people))

    def _note_people(self, people: set[int], owners: SampleOwners) -> None:
        if len(people) < self._min_people:
            people.update(np.unique(owners.person_hashes)[: self._min_people].tolist())

    def _strip_units(self, text: Arrow, owners: SampleOwners) -> Arrow:
        """Return the cells without the unit before or after the number."""
        for pattern in (_UNIT_BEFORE, _UNIT_BEHIND):
            units = pc.struct_field(pc.extract_regex(text, pattern), "unit").fill_null("")
            for unit in filter(None, pc.unique(units).to_pylist()):
                having = owners.select(to_mask(pc.equal(units, unit)))
                self._note_people(self._units.setdefault(unit, set()), having)
                self._unit_leads |= pattern is _UNIT_BEFORE
        return pc.replace_substring_regex(pc.replace_substring_regex(text, _UNIT_BEFORE, r"\1"), _UNIT_BEHIND, "")


def _means_the_same(left: NotationCandidate, right: NotationCandidate) -> bool:
    """Return whether numbers that fit both notations are the same in both: they have no fractions."""
    if not (left.is_number and right.is_number) or left.family == right.family:
        return False
    return NumberNotation.parse(left.example).group == NumberNotation.parse(right.example).group
