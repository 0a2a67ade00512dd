"""Texts: columns of categories, of dates, or of numbers with some cells that are not.

A column of which all cells write numbers or dates in one notation is one of these (`NotationGuess`). A column of text
also counts as numbers if all other cells are marks for a missing value, like a question mark, or if at most
a tenth of the cells are words and there are many different numbers. Digits written like a code, with a leading zero,
are a word.
"""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..cells import NULL_TEXTS, Arrow, is_text, match_numerals, parse_numbers, to_mask, trim_text
from ..kinds import ANY_TEXT, OTHER, Category, Ignore, Number
from .guesses import NotationCandidate, NotationGuess
from .ranges import NumberSummary, RangeSummary
from .summaries import ColumnSample, ProposedKind, SampleOwners

MAX_CATEGORY_VALUES = 100
MAX_TRACKED_VALUES = 10_000  # different values of a column that are kept in memory
MAX_TEXT_LENGTH = 100  # characters; longer texts are not categories

_CODE = r"^[+-]?0\d"  # may be a post code or a telephone number
_MIN_DISTINCT_NUMBERS = 20  # up to this many different numbers may be codes
_MAX_WORD_SHARE = 0.1  # of the cells
_GAP_MARKS = {"?", "??", "-", "--", "---", ".", "..", "*", "none", "nil", "missing", "unknown", "unk", "not available"}
_GAP_MARKS |= {mark.lower() for mark in NULL_TEXTS}  # the empty text among them


class TextValues:
    """Different texts, each with the first ``min_people`` people who have it."""

    def __init__(self, min_people: int) -> None:
        self.min_people, self.overflowed = min_people, False  # overflowed: too many texts to keep
        self.people_by_text: dict[str, set[Any]] = {}

    def add(self, text: Arrow, people: Arrow) -> None:
        """Add texts with the people who have them."""
        if self.overflowed:
            return
        pairs = pa.table({"value": text, "person": people}).group_by(["value", "person"]).aggregate([])
        for value, person in zip(pairs["value"].to_pylist(), pairs["person"].to_pylist(), strict=True):
            known = self.people_by_text.setdefault(value, set())
            if len(known) < self.min_people:
                known.add(person)
        if len(self.people_by_text) > MAX_TRACKED_VALUES:
            self.overflowed = True
            self.people_by_text.clear()

    def shared_texts(self) -> list[str]:
        """Return the texts that at least ``min_people`` people have."""
        return sorted(value for value, people in self.people_by_text.items() if len(people) >= self.min_people)


# Cells of other notations, in columns of text of which nearly all cells are like that.
_UNREAD = {
    "dates like 31.12.2020": r"^\d{1,2}\.\d{1,2}\.\d{2,4}\b",
    "dates like 12/31/2020": r"^\d{1,2}/\d{1,2}/\d{2,4}\b",
    "dates like 2020-12-31": r"^\d{4}-\d\d-\d\d",
    "numbers with a decimal comma": r"^[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+$",
    "numbers with thousands separators": r"^[+-]?\d{1,3}([ ',]\d{3})+(\.\d+)?$",
    "amounts with a currency sign": r"^([$€£¥] ?[+-]?[\d.,]+|[+-]?[\d.,]+ ?[$€£¥])$",
}
_UNREAD_SHARE = 0.9


class TextSummary:
    """The summary of a column of text."""

    csv_type = Category.csv_type

    def __init__(self, name: str, people: int, *, typed: bool = True) -> None:
        self.min_people, self._typed = people, typed  # a CSV column without values in the first rows has no type
        self._gaps, self._blank, self._long, self._obstacle = False, True, False, ""
        self._numerals, self._others = TextValues(people), TextValues(people)
        self._numbers, self._guess = NumberSummary(name, people), NotationGuess(name, people)
        self._numbers_seen, self._words_seen, self._marks_seen = 0, 0, 0  # cells
        self._marks: set[str] = set()
        self._unread = dict.fromkeys(_UNREAD, 0)  # cells

    def add(self, array: Arrow, owners: SampleOwners) -> None:
        if not (is_text(array.type) or pa.types.is_null(array.type)):
            self._obstacle = "has cells of a type that cannot be used"
        if self._obstacle:
            return
        text = array.cast(pa.large_string()).fill_null("")
        length, plain = pc.utf8_length(text), trim_text(text)
        present, short = to_mask(pc.greater(length, 0)), to_mask(pc.less_equal(length, MAX_TEXT_LENGTH))
        numeral = to_mask(pc.and_not(match_numerals(plain), pc.match_substring_regex(plain, _CODE)))
        mark = present & to_mask(pc.is_in(pc.utf8_lower(plain), pa.array(sorted(_GAP_MARKS), plain.type)))
        word = present & ~numeral & ~mark
        self._gaps |= not present.all()
        self._blank &= not present.any()
        self._long |= bool((word & ~short).any())
        for what, pattern in _UNREAD.items() if word.any() else ():
            self._unread[what] += int((to_mask(pc.match_substring_regex(plain, pattern)) & present).sum())
        self._numbers_seen += int(numeral.sum())
        self._words_seen += int(word.sum())
        self._marks_seen += int(mark.sum())
        self._marks.update(plain.filter(pa.array(mark)).unique().to_pylist())
        self._numbers.gaps |= not numeral.all()
        self._numbers.add_values(parse_numbers(plain.filter(pa.array(numeral)), ()), owners.select(numeral))
        self._guess.add(plain.filter(pa.array(present & ~mark)), owners.select(present & ~mark))
        for values, chosen in ((self._numerals, numeral & short), (self._others, (mark | word) & short)):
            values.add(text.filter(pa.array(chosen)), owners.ids.filter(pa.array(chosen)))

    def propose(self) -> ProposedKind:
        if (notation := self._find_notation()) is not None:
            notation.summary.gaps |= self._gaps or self._marks_seen > 0
            return self._propose_notation(notation, notation.summary.propose())
        if not self._is_numeric():
            return self._propose_category()
        kind, note = self._numbers.propose()
        return self._add_gaps(kind, note)

    def propose_target(self) -> ProposedKind | None:
        if (notation := self._find_notation()) is not None:
            notation.summary.gaps |= self._gaps or self._marks_seen > 0
            proposal = notation.summary.propose_target()
            return None if proposal is None else self._propose_notation(notation, proposal)
        proposal = self._numbers.propose_target() if self._is_numeric() else None
        return None if proposal is None else self._add_gaps(*proposal)

    @property
    def ranges(self) -> RangeSummary:
        """The summary of the cells as numbers or dates."""
        notation = self._find_notation()
        return self._numbers if notation is None else notation.summary

    @property
    def sample(self) -> ColumnSample:
        return self.ranges.sample

    def find_unread(self) -> str | None:
        """Return what the cells look like if they are numbers or dates that are not read as such."""
        cells = self._numbers_seen + self._words_seen
        if not self._words_seen or self._find_notation() is not None:
            return None
        if fitting := self._guess.fitting():
            formats = " or ".join(f'format = "{self._guess.format(candidate)}"' for candidate in fitting)
            kind = "number" if fitting[0].is_number else "date"
            return f'has {kind}s that can be read in more than one way: declare kind = "{kind}" with {formats}'
        for what, count in self._unread.items():
            if count and count >= _UNREAD_SHARE * cells:
                kind = "date" if what.startswith("dates") else "number"
                way = f'write all in one notation, and declare kind = "{kind}" with a format'
                return f"has {what}, which are not read as {kind}s, because some cells are written differently: {way}"
        return None

    def _find_notation(self) -> NotationCandidate | None:
        """Return the only notation of dates or numbers that fits all cells, unless they are plain numbers."""
        notation = self._guess.find() if self._words_seen and not self._obstacle else None
        marks = self._marks - set(NULL_TEXTS)
        return None if notation is not None and marks and not notation.is_number else notation

    def _propose_notation(self, notation: NotationCandidate, proposal: ProposedKind) -> ProposedKind:
        """Declare the notation in what was proposed for the values."""
        kind: Any = proposal[0]
        note, example = proposal[1], self._guess.format(notation)
        if example is None or isinstance(kind, Ignore):
            return kind, note
        gaps = {"gaps": tuple(sorted(marks))} if (marks := self._marks - set(NULL_TEXTS)) else {}
        what = "numbers" if notation.is_number else "dates"
        fields: dict[str, Any] = {"format": example, **gaps}
        return replace(kind, **fields), "; ".join(filter(None, [f"the {what} are read like {example} (format)", note]))

    def _is_numeric(self) -> bool:
        """Return whether all but a few cells are numbers."""
        seen, words, odd = self._numbers_seen, self._words_seen, self._words_seen + self._marks_seen
        if self._obstacle or not seen or words > _MAX_WORD_SHARE * (seen + words) or (self._typed and not odd):
            return False
        return not words or self._numerals.overflowed or len(self._numerals.people_by_text) > _MIN_DISTINCT_NUMBERS

    def _add_gaps(self, kind: Any, note: str) -> ProposedKind:
        """Declare the cells that are not numbers as gaps: by their texts if these are shared by enough people."""
        odd = self._words_seen + self._marks_seen
        if not odd or not isinstance(kind, Number):
            return kind, note
        texts = self._others.people_by_text.items()
        words = {text.strip(): people for text, people in texts if text.strip().lower() not in _GAP_MARKS}
        shared = all(len(people) >= self.min_people for people in words.values())
        listed = shared and not (self._others.overflowed or self._long)
        gaps = tuple(sorted(self._marks.union(words) - {""})) if listed else ANY_TEXT
        cells = "1 cell is not a number: it counts" if odd == 1 else f"{odd:,} cells are not numbers: they count"
        return replace(kind, gaps=gaps), "; ".join(filter(None, [f"{cells} as empty", note]))

    def _propose_category(self) -> ProposedKind:
        values = sorted({*self._numerals.shared_texts(), *self._others.shared_texts()} - {OTHER})
        tracked = len(self._numerals.people_by_text) + len(self._others.people_by_text)
        if self._numerals.overflowed or self._others.overflowed or tracked > MAX_TRACKED_VALUES:
            return Ignore(), f"has more than {MAX_TRACKED_VALUES:,} different values"
        if 0 < len(values) <= MAX_CATEGORY_VALUES:
            return Category(tuple(values), OTHER if self._gaps else None), ""
        many = f"has more than {MAX_CATEGORY_VALUES} values, each of which would be a category"
        few = "has no values" if self._blank else f"has no value shared by at least {self.min_people} people (or rows)"
        return Ignore(), self._obstacle or (many if values else few)
