"""Tables: names and types of the columns, and the rows in batches, independent of the storage.

Columns may be partition columns: they are in no file, but in the names of the folders above it, like ``country=DE``.
Their cells are read as those of a CSV file, in the requested type.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from ...errors import ExpungeError, InvalidFile
from ..cells import NULL_TEXTS, Arrow, match_numerals
from ..kinds import Boolean, Number
from ..messages import InvalidCell
from .locations import FileLocation, make_access_error

BATCH_ROWS = 65_536  # rows per batch, where the source does not decide
BUFFER_BYTES = 1 << 20

Partition: TypeAlias = tuple[tuple[str, str | None], ...]  # columns and their values, as text

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_CELL_DESCRIPTIONS = {"float64": Number.cell_description, "bool": Boolean.cell_description}


def parse_partition(folders: Sequence[str]) -> Partition:
    """Return the columns and values in the folders directly above a file that are named ``column=value``."""
    pairs: list[tuple[str, str | None]] = []
    for folder in reversed(folders):
        name, mark, value = folder.partition("=")
        if not (name and mark):
            break
        pairs.append((unquote(name), None if value == _NULL_PARTITION else unquote(value)))
    return tuple(reversed(pairs))


def guess_type(value: str | None) -> Arrow:
    """Return the type that a value looks like."""
    if not value:
        return pa.null()
    try:
        text = pa.scalar(value)
        if re.fullmatch(r"-?[0-9]{1,18}", value):
            return pa.int64()
        return pa.float64() if match_numerals(text).as_py() else text.cast(pa.date32()).type
    except ValueError:  # ArrowInvalid, and text that is not UTF-8
        return pa.string()


def repeat_value(column: str, value: str | None, cells: str, rows: int, where: str) -> Arrow:
    """Return a column that repeats one value, in the type with this Arrow name; errors call its first row ``where``."""
    kind = pa.type_for_alias(cells)
    if value is None or (cells in _CELL_DESCRIPTIONS and value in NULL_TEXTS):
        return pa.nulls(rows, kind)
    try:
        return pa.repeat(pa.scalar(value).cast(kind), rows)
    except ValueError:  # ArrowInvalid, and text that is not UTF-8
        raise InvalidCell(column, _CELL_DESCRIPTIONS.get(cells, "text in UTF-8"), 0, where) from None


class Table(Protocol):
    """The interface of every source."""

    name: str  # as errors show it
    shows_names: bool  # whether errors may show names of columns that the schema does not have

    @property
    def names(self) -> list[str]:
        """The names of the columns."""

    @property
    def types(self) -> Arrow:
        """Names and types of the columns, as a pyarrow schema."""

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        """Yield record batches of any size with at least these columns; CSV is read in the named types."""

    def describe_row(self, k: int) -> str:
        """Return the words for the k-th row in an error, counted from one."""


class FileTable(ABC):
    """A table in a file, with the partition columns of its path unless the file has them itself."""

    shows_names = True
    names_are_certain = True  # False for CSV: a file without a header has data in its first row

    def __init__(self, place: FileLocation, partition: Partition | None = None) -> None:
        self.place, self.name = place, place.name
        self._partition = parse_partition(place.folders) if partition is None else partition

    @cached_property
    def types(self) -> Arrow:
        return pa.schema([*self._file_types, *(pa.field(name, guess_type(value)) for name, value in self.partition)])

    @property
    def names(self) -> list[str]:
        return decode_names(self.types, self.name)

    @cached_property
    def partition(self) -> Partition:
        """The columns that only the path has."""
        return tuple(pair for pair in self._partition if pair[0] not in self._file_types.names)

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        in_path = {name: value for name, value in self.partition if name in columns}
        in_file = {name: cells for name, cells in columns.items() if name not in in_path}
        # Read at least one column: a batch without columns would not know its length.
        for batch in self._read_batches(in_file or dict.fromkeys(self.names[:1], "string")):
            arrays = {name: batch.column(name) for name in in_file}
            for name, value in in_path.items():
                arrays[name] = repeat_value(name, value, columns[name], len(batch), self.describe_row(1))
            yield pa.record_batch(arrays) if in_path else batch

    def column_type(self, name: str, columns: Mapping[str, str]) -> Arrow:
        """Return the type in which `batches` returns a column."""
        return pa.type_for_alias(columns[name]) if name in dict(self.partition) else self.types.field(name).type

    def describe_row(self, k: int) -> str:
        return f"row {k} of {self.name}"

    @cached_property
    def _file_types(self) -> Arrow:
        return self._read_types()

    @abstractmethod
    def _read_types(self) -> Arrow:
        """Return names and types of the columns in the file."""

    @abstractmethod
    def _read_batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        """Yield batches with at least these columns of the file."""

    @property
    def _unreachable_hint(self) -> str:
        """The second possible cause of an unreadable file, for errors."""
        return "" if self.place.filesystem is None else ", or cannot be reached"


def decode_names(types: Arrow, table: str) -> list[str]:
    """Return the column names of a pyarrow schema, or refuse the table if they are not UTF-8."""
    try:
        names: list[str] = types.names
    except UnicodeDecodeError:
        raise InvalidFile(f"{table} is damaged: the names of its columns are not UTF-8") from None
    return names


def validate_batch(batch: Arrow, columns: Iterable[str]) -> Arrow:
    """Return these columns of a batch after checking what pyarrow assumes: offsets, indices and UTF-8."""
    selected = batch.select(list(columns))
    selected.validate(full=True)
    return selected


@contextmanager
def replace_arrow_errors(make_error: Callable[[str], ExpungeError], name: str = "") -> Iterator[None]:
    """Replace an error of pyarrow, which quotes cells, by the result of ``make_error`` for its text.

    System errors about the file with this name are reported as they are.
    """
    try:
        yield
    except (MemoryError, ExpungeError):
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if name and isinstance(error, OSError) and error.errno:
            raise make_access_error(name, error) from None
        raise make_error(str(error)) from None
