"""Texts: categories, or numbers among which some cells are none.

A column of text is one of numbers if all other cells are marks that stand for nothing, such as a question mark, or if
at most a tenth of them are words and there are many different numbers. What is written like a code, with a zero in
front, is a word.
"""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..cells.arrow import Arrow, is_text, mask
from ..cells.numerals import GAPS, are_numerals, numbers, trimmed
from ..kinds import ANY_TEXT, OTHER, Category, Ignore, Number
from .ranges import Numbers
from .sampling import Owners
from .summaries import Proposed

MOST_VALUES = 100  # of a category
MOST_TRACKED = 10_000  # different values of a column that are kept in memory
LONGEST = 100  # characters: a longer text is no category

_CODE = r"^[+-]?0\d"  # a number that begins like this may be a post code or a telephone number
_DIFFERENT = 20  # numbers that are no codes for something are more than these
_FEW = 0.1  # of the cells
_MARKS = {"?", "??", "-", "--", "---", ".", "..", "*", "none", "nil", "missing", "unknown", "unk", "not available"}
_MARKS |= {mark.lower() for mark in GAPS}  # the empty text among them


class Values:
    """Different texts, and of each the first so many people who have it."""

    def __init__(self, people: int) -> None:
        self.people, self.many = people, False  # whether there are too many to be kept
        self.who: dict[str, set[Any]] = {}

    def add(self, text: Arrow, who: Arrow) -> None:
        """Look at more texts, and at whose they are."""
        if self.many:
            return
        pairs = pa.table({"value": text, "who": who}).group_by(["value", "who"]).aggregate([])
        for value, one in zip(pairs["value"].to_pylist(), pairs["who"].to_pylist(), strict=True):
            known = self.who.setdefault(value, set())
            if len(known) < self.people:
                known.add(one)
        if len(self.who) > MOST_TRACKED:
            self.many = True
            self.who.clear()

    def shared(self) -> list[str]:
        """Return the texts that enough people have."""
        return sorted(value for value, who in self.who.items() if len(who) >= self.people)


class Texts:
    """Cells of text."""

    in_csv = Category.in_csv

    def __init__(self, name: str, people: int, *, typed: bool = True) -> None:
        self.people, self._typed = people, typed  # a CSV file with a column that is empty at first says no type
        self._gaps, self._blank, self._long, self._obstacle = False, True, False, ""
        self._numerals, self._others, self._numbers = Values(people), Values(people), Numbers(name, people)
        self._numbers_seen, self._words_seen, self._marks_seen = 0, 0, 0  # cells
        self._marks: set[str] = set()

    def add(self, array: Arrow, owners: Owners) -> None:
        if not (is_text(array.type) or pa.types.is_null(array.type)):
            self._obstacle = "has cells of a type that cannot be used"
        if self._obstacle:
            return
        text = array.cast(pa.large_string()).fill_null("")
        length, plain = pc.utf8_length(text), trimmed(text)
        there, short = mask(pc.greater(length, 0)), mask(pc.less_equal(length, LONGEST))
        numeral = mask(pc.and_not(are_numerals(plain), pc.match_substring_regex(plain, _CODE)))
        mark = there & mask(pc.is_in(pc.utf8_lower(plain), pa.array(sorted(_MARKS), plain.type)))
        word = there & ~numeral & ~mark
        self._gaps |= not there.all()
        self._blank &= not there.any()
        self._long |= bool((word & ~short).any())
        self._numbers_seen += int(numeral.sum())
        self._words_seen += int(word.sum())
        self._marks_seen += int(mark.sum())
        self._marks.update(plain.filter(pa.array(mark)).unique().to_pylist())
        self._numbers.gaps |= not numeral.all()
        self._numbers.look(numbers(plain.filter(pa.array(numeral)), ()), owners.where(numeral))
        for values, some in ((self._numerals, numeral & short), (self._others, (mark | word) & short)):
            values.add(text.filter(pa.array(some)), owners.ids.filter(pa.array(some)))

    def proposed(self) -> Proposed:
        if not self._numeric():
            return self._category()
        kind, note = self._numbers.proposed()
        return self._with_gaps(kind, note)

    def as_target(self) -> Proposed | None:
        found = self._numbers.as_target() if self._numeric() else None
        return None if found is None else self._with_gaps(*found)

    def _numeric(self) -> bool:
        """Return whether these are numbers, but for a few cells."""
        seen, words, odd = self._numbers_seen, self._words_seen, self._words_seen + self._marks_seen
        if self._obstacle or not seen or words > _FEW * (seen + words) or (self._typed and not odd):
            return False
        return not words or self._numerals.many or len(self._numerals.who) > _DIFFERENT

    def _with_gaps(self, kind: Any, note: str) -> Proposed:
        """Say which cells are none of the numbers: by their text if that tells of nobody, else all at once."""
        odd = self._words_seen + self._marks_seen
        if not odd or not isinstance(kind, Number):
            return kind, note
        words = {text.strip(): who for text, who in self._others.who.items() if text.strip().lower() not in _MARKS}
        told = not (self._others.many or self._long) and all(len(who) >= self.people for who in words.values())
        gaps = tuple(sorted(self._marks.union(words) - {""})) if told else ANY_TEXT
        cells = "1 cell is no number: it counts" if odd == 1 else f"{odd:,} cells are no numbers: they count"
        return replace(kind, gaps=gaps), "; ".join(filter(None, [f"{cells} as empty", note]))

    def _category(self) -> Proposed:
        values = sorted({*self._numerals.shared(), *self._others.shared()} - {OTHER})
        tracked = len(self._numerals.who) + len(self._others.who)
        if self._numerals.many or self._others.many or tracked > MOST_TRACKED:
            return Ignore(), f"has more than {MOST_TRACKED:,} different values"
        if 0 < len(values) <= MOST_VALUES:
            return Category(tuple(values), OTHER if self._gaps else None), ""
        many = f"has more than {MOST_VALUES} values that would be a category each"
        few = "has no values" if self._blank else f"has no value that {self.people} or more have"
        return Ignore(), self._obstacle or (many if values else few)
