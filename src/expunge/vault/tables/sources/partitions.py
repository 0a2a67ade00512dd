"""Partitions: columns that are in no file, but in the names of the folders above it, like ``country=DE``.

Their cells are read as those of a CSV file are: in the type that is asked for.
"""

import re
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from ..cells.arrow import Arrow
from ..cells.numerals import GAPS, are_numerals
from ..kinds import Boolean, Number
from ..messages import WrongCell

Partition: TypeAlias = tuple[tuple[str, str | None], ...]  # columns and their values, as text

_EMPTY = "__HIVE_DEFAULT_PARTITION__"
_WORDS = {"float64": Number.in_words, "bool": Boolean.in_words}


def partition_of(folders: Sequence[str]) -> Partition:
    """Return what the folders right above a file say: those named ``column=value``."""
    said: list[tuple[str, str | None]] = []
    for folder in reversed(folders):
        name, mark, value = folder.partition("=")
        if not (name and mark):
            break
        said.append((unquote(name), None if value == _EMPTY else unquote(value)))
    return tuple(reversed(said))


def guessed_type(value: str | None) -> Arrow:
    """Return the type that a value looks like."""
    if not value:
        return pa.null()
    try:
        text = pa.scalar(value)
        if re.fullmatch(r"-?[0-9]{1,18}", value):
            return pa.int64()
        return pa.float64() if are_numerals(text).as_py() else text.cast(pa.date32()).type
    except ValueError:  # ArrowInvalid, and text that is not UTF-8
        return pa.string()


def repeated_value(column: str, value: str | None, cells: str, rows: int, where: str) -> Arrow:
    """Return a column of one value in a type, by Arrow's name of it; ``where`` is how errors call its first row."""
    kind = pa.type_for_alias(cells)
    if value is None or (cells in _WORDS and value in GAPS):
        return pa.nulls(rows, kind)
    try:
        return pa.repeat(pa.scalar(value).cast(kind), rows)
    except ValueError:  # ArrowInvalid, and text that is not UTF-8
        raise WrongCell(column, _WORDS.get(cells, "text in UTF-8"), 0, where) from None
