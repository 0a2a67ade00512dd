"""Messages: how names and places are shown in errors about tables.

An error names columns, files and rows. It never shows a cell, nor a first row that may be data instead of a header.
Names come from other people's files, so control characters and terminal escapes in them are shown escaped.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from ..errors import InvalidInput

ID_NOT_UTF_8 = "an id has characters that are not valid in UTF-8"
_SEPARATORS = ",;\t|"  # that text files commonly use
_MAX_NAMES = 30  # listed in a message


class InvalidCell(InvalidInput):
    """The error for a cell that is not of its column's kind. It gives the row, never the cell's content."""

    def __init__(self, column: str, cells: str, row: int, where: str | None = None) -> None:
        super().__init__(column, cells, row, where)
        self.column, self.cells, self.row, self.where = column, cells, row, where

    def __str__(self) -> str:
        where, way_out = self.where or f"row {self.row + 1}", "correct it or declare another kind"
        if self.cells == "numbers":
            way_out = "correct it, list its text under gaps, or declare another kind"
        return f"column {self.column!r} must hold {self.cells}, but {where} does not; {way_out}"

    def with_place(self, where: str) -> "InvalidCell":
        """Return the same error with ``where`` as the description of its row in the whole table."""
        return InvalidCell(self.column, self.cells, self.row, where)


def quote_names(names: Iterable[str]) -> str:
    """Return names as a message lists them: quoted, at most 30, then how many more there are."""
    return _join_first([repr(name) for name in names])


def describe_positions(names: Sequence[str], chosen: Collection[str]) -> str:
    """Return the positions of the chosen names, counted from one, for errors that must not show the names."""
    known = set(chosen)
    return f"number {_join_first([str(k) for k, name in enumerate(names, start=1) if name in known])}"


def _join_first(items: list[str]) -> str:
    more = f" and {len(items) - _MAX_NAMES:,} more" if len(items) > _MAX_NAMES else ""
    return ", ".join(items[:_MAX_NAMES]) + more


def printable_text(text: object) -> str:
    """Return a text unchanged if a terminal just prints it, else quoted and escaped."""
    plain = str(text)
    return plain if plain.isprintable() else repr(plain)


def hide_secrets(address: str) -> str:
    """Return a path or URI that is safe to show: a URI loses its query and its password."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        return address
    site, slash, path = rest.partition("?")[0].partition("/")
    owner, at, host = site.rpartition("@")
    return f"{scheme}://{'***' if ':' in owner else owner}{at}{host}{slash}{path}"


def table_title(source: object) -> str:
    """Return a table's name for a title: that of its file, folder or glob, or the number of files."""
    paths = [source] if isinstance(source, (str, Path)) else source
    if not isinstance(paths, (list, tuple)):
        return "a table"
    if len(paths) != 1:
        return f"{len(paths):,} files"
    address = hide_secrets(str(paths[0])).rstrip("/")
    return address.rpartition("/")[2] or address


def find_duplicates(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def check_columns_exist(names: Sequence[str], required: Collection[str], *, show_names: bool = True) -> None:
    """Refuse a table that lacks a required column; without ``show_names`` its own columns are only counted."""
    present = set(names)
    if missing := [name for name in required if name not in present]:
        columns = "column" if len(missing) == 1 else "columns"
        available = _describe_columns(names, required, show_names)
        raise InvalidInput(f"no {columns} {quote_names(missing)}; {available}{_missing_name_hint(names, missing)}")


def check_unique_names(names: Sequence[str], table: str) -> None:
    """Refuse a table in which two columns have the same name; the error gives their positions."""
    for duplicate in find_duplicates(names):
        *places, last = [str(k) for k, name in enumerate(names, start=1) if name == duplicate][:10]
        which = f"columns {', '.join(places)} and {last}"
        raise InvalidInput(f"{table}: columns must have different names, but {which} have the same")


def _describe_columns(names: Sequence[str], required: Collection[str], show_names: bool) -> str:
    """Describe a table's columns. If none is known the header may be missing and the names be data: only count them."""
    if any(name in required for name in names):
        return f"there are {quote_names(names)}" if show_names else f"there are {len(names):,} columns"
    columns = "1 column with another name" if len(names) == 1 else f"{len(names):,} columns, none of these"
    return f"the table has {columns}: does it begin with a row of names?"


def separator_hint(header: str, separator: str) -> str:
    """Return a question to append to an error if the header seems to use another separator."""
    marks = [mark for mark in _SEPARATORS if header.count(mark) > header.count(separator)]
    return _separator_question(marks[0]) if marks else ""


def _missing_name_hint(names: Sequence[str], missing: Sequence[str]) -> str:
    """Return a question about the separator if a missing name is part of a longer one, or there is only one column."""
    for mark in _SEPARATORS:
        cells = {cell.strip(' "') for name in names if mark in name for cell in name.split(mark)}
        if cells & set(missing) or (cells and len(names) == 1 and mark != ","):
            return _separator_question(mark)
    return ""


def _separator_question(mark: str) -> str:
    return f"; is the table separated by {mark!r}? A CSV file has commas, a .tsv file tabs"
