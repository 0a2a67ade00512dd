"""Messages: how names and places are shown in errors about tables.

An error names columns, files and rows, and never shows a cell, nor a first row that may be no header. Names come from
files of others: a control character or a terminal escape in one is shown escaped.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from ..errors import InvalidInput

ID_NOT_UTF_8 = "an id has characters that UTF-8 does not have"
_SEPARATORS = ",;\t|"  # what may separate the cells of a text file
_MAX_NAMES = 30  # that a message lists


class InvalidCell(InvalidInput):
    """A cell is not of its column's kind. The message gives its row: what is in it must not get out."""

    def __init__(self, column: str, cells: str, row: int, where: str | None = None) -> None:
        super().__init__(column, cells, row, where)
        self.column, self.cells, self.row, self.where = column, cells, row, where

    def __str__(self) -> str:
        where, way_out = self.where or f"row {self.row + 1}", "correct it or declare another kind"
        if self.cells == "numbers":
            way_out = "correct it, let its text count as a gap (gaps), or declare another kind"
        return f"column {self.column!r} must hold {self.cells}, but {where} does not; {way_out}"

    def with_place(self, where: str) -> "InvalidCell":
        """Return the same error with the row described by ``where``, as a place in the whole table."""
        return InvalidCell(self.column, self.cells, self.row, where)


def quote_names(names: Iterable[str]) -> str:
    """Return names as an error shows them: quoted, and so many that they can be read."""
    quoted = list(map(repr, names))
    more = f" and {len(quoted) - _MAX_NAMES:,} more" if len(quoted) > _MAX_NAMES else ""
    return ", ".join(quoted[:_MAX_NAMES]) + more


def describe_positions(names: Sequence[str], chosen: Collection[str]) -> str:
    """Return some of these names as an error gives them that must not show them: by their places, counted from one."""
    known = set(chosen)
    places = [k for k, name in enumerate(names, start=1) if name in known]
    more = f" and {len(places) - _MAX_NAMES:,} more" if len(places) > _MAX_NAMES else ""
    return f"number {', '.join(map(str, places[:_MAX_NAMES]))}{more}"


def printable_text(text: object) -> str:
    """Return a text as an error shows it: as it is, or quoted with escapes if a terminal would not just print it."""
    plain = str(text)
    return plain if plain.isprintable() else repr(plain)


def hide_secrets(address: str) -> str:
    """Return a path or URI as people may read it: a URI without its options, and without a password."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        return address
    site, slash, path = rest.partition("?")[0].partition("/")
    owner, at, host = site.rpartition("@")
    return f"{scheme}://{'***' if ':' in owner else owner}{at}{host}{slash}{path}"


def table_title(source: object) -> str:
    """Return what a table is called in a title: the name of a file, folder or glob, or how many there are."""
    words = [source] if isinstance(source, (str, Path)) else source
    if not isinstance(words, (list, tuple)):
        return "a table"
    if len(words) != 1:
        return f"{len(words):,} files"
    address = hide_secrets(str(words[0])).rstrip("/")
    return address.rpartition("/")[2] or address


def find_duplicates(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def check_columns_exist(names: Sequence[str], required: Collection[str], *, show_names: bool = True) -> None:
    """Refuse a table with these column names if it lacks a wanted one; without ``show`` the others are not named."""
    if missing := [name for name in required if name not in names]:
        columns = "column" if len(missing) == 1 else "columns"
        available = _describe_columns(names, required, show_names)
        raise InvalidInput(f"no {columns} {quote_names(missing)}; {available}{_missing_name_hint(names, missing)}")


def check_unique_names(names: Sequence[str], table: str) -> None:
    """Refuse a table in which columns have the same name; they are told by their place."""
    for name in find_duplicates(names):
        *places, last = [str(k) for k, one in enumerate(names, start=1) if one == name][:10]
        which = f"columns {', '.join(places)} and {last}"
        raise InvalidInput(f"{table}: columns must have different names, but {which} have the same")


def _describe_columns(names: Sequence[str], required: Collection[str], show_names: bool) -> str:
    """Return what columns there are. Without a header the first row, which is data, is taken for names: not shown."""
    if any(name in required for name in names):
        return f"there are {quote_names(names)}" if show_names else f"there are {len(names):,} columns"
    columns = (
        "1 column, and it has another name" if len(names) == 1 else f"{len(names):,} columns, and none has such a name"
    )
    return f"the table has {columns}: does it begin with a row of names?"


def separator_hint(header: str, separator: str) -> str:
    """Return a question to append to an error if another mark than ``separator`` seems to separate this header."""
    marks = [mark for mark in _SEPARATORS if header.count(mark) > header.count(separator)]
    return _separator_question(marks[0]) if marks else ""


def _missing_name_hint(names: Sequence[str], missing: Sequence[str]) -> str:
    """Return the same question if a missing name is part of a longer one, or if there is only one column."""
    for mark in _SEPARATORS:
        cells = {cell.strip(' "') for name in names if mark in name for cell in name.split(mark)}
        if cells & set(missing) or (cells and len(names) == 1 and mark != ","):
            return _separator_question(mark)
    return ""


def _separator_question(mark: str) -> str:
    return f"; is the table separated by {mark!r}? A CSV file has commas, a .tsv file tabs"
