"""Numerals: numbers that are written as text, among texts that are none."""

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import ConvertOptions

from ....exact.arrays import Floats
from ..kinds import ANY_TEXT
from .arrow import Arrow, floats

GAPS = ConvertOptions().null_values  # of a CSV file's numbers: they are gaps among numbers and dates in text, too

_NUMERAL = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def trimmed(text: Arrow) -> Arrow:
    """Return texts without the blanks around them, which do not count in the numbers of a CSV file either."""
    return pc.ascii_trim_whitespace(text)


def are_numerals(text: Arrow) -> Arrow:
    """Return which of some trimmed texts are finite numbers as people write them, null for null."""
    return pc.match_substring_regex(text, _NUMERAL)


def numbers(text: Arrow, gaps: Iterable[str] | str) -> Floats:
    """Return the numbers that texts stand for, NaN for a gap; other text raises ``ArrowInvalid``, which quotes it."""
    text = trimmed(text)
    listed = [] if gaps == ANY_TEXT else list(gaps)
    empty = pc.is_in(text, pa.array([*GAPS, *listed], text.type))
    if gaps == ANY_TEXT:
        empty = pc.or_(empty, pc.invert(are_numerals(text).fill_null(False)))
    return floats(pc.if_else(empty, pa.scalar(None, text.type), text))


def without_marks(values: Floats, gaps: Iterable[str] | str) -> Floats:
    """Return values with NaN for those that a gap stands for, such as -999, however they are written."""
    marks = [] if gaps == ANY_TEXT else [float(gap) for gap in gaps if re.search(_NUMERAL, gap, re.ASCII)]
    if marks:
        values[np.isin(values, marks)] = np.nan
    return values
