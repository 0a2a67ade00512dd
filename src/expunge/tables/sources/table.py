"""A table: names and types of its columns, and its rows in batches, whatever it is stored in."""

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

# Partitions: columns that are in no file, but in the names of the folders above it, like ``country=DE``.
# Their cells are read as those of a CSV file are: in the type that is asked for.


Partition: TypeAlias = tuple[tuple[str, str | None], ...]  # columns and their values, as text

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_CELL_DESCRIPTIONS = {"float64": Number.cell_description, "bool": Boolean.cell_description}


def parse_partition(folders: Sequence[str]) -> Partition:
    """Return what the folders right above a file say: those named ``column=value``."""
    said: list[tuple[str, str | None]] = []
    for folder in reversed(folders):
        name, mark, value = folder.partition("=")
        if not (name and mark):
            break
        said.append((unquote(name), None if value == _NULL_PARTITION else unquote(value)))
    return tuple(reversed(said))


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
    """Return a column of one value in a type, by Arrow's name of it; ``where`` is how errors call its first row."""
    kind = pa.type_for_alias(cells)
    if value is None or (cells in _CELL_DESCRIPTIONS and value in NULL_TEXTS):
        return pa.nulls(rows, kind)
    try:
        return pa.repeat(pa.scalar(value).cast(kind), rows)
    except ValueError:  # ArrowInvalid, and text that is not UTF-8
        raise InvalidCell(column, _CELL_DESCRIPTIONS.get(cells, "text in UTF-8"), 0, where) from None


BATCH_ROWS = 65_536  # rows of a batch, where the source does not decide it
BUFFER_BYTES = 1 << 20  # bytes


class Table(Protocol):
    """What every source can do."""

    name: str  # as errors show it
    shows_names: bool  # whether errors may show names of columns that the schema does not have

    @property
    def types(self) -> Arrow:
        """Names and types of the columns, as a schema of pyarrow."""

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        """Yield record batches of any size that have at least these columns; from CSV in the types named."""

    def describe_row(self, k: int) -> str:
        """Return how an error calls the k-th row, counted from one."""


class FileTable(ABC):
    """A table in a file, with the columns that its path says unless it has them itself."""

    shows_names = True
    names_are_certain = True  # that the columns have the names that the file says: a CSV file may lack its header

    def __init__(self, place: FileLocation, partition: Partition | None = None) -> None:
        self.place, self.name = place, place.name
        self._partition = parse_partition(place.folders) if partition is None else partition

    @cached_property
    def types(self) -> Arrow:
        said = [pa.field(name, guess_type(value)) for name, value in self.partition]
        return pa.schema([*self._file_types, *said])

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        try:
            names: list[str] = self.types.names
        except UnicodeDecodeError:
            raise InvalidFile(f"{self.name} is damaged: the names of its columns are not UTF-8") from None
        return names

    @cached_property
    def partition(self) -> Partition:
        """Columns that only the path says."""
        return tuple(pair for pair in self._partition if pair[0] not in self._file_types.names)

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        said = {name: value for name, value in self.partition if name in columns}
        inside = {name: cells for name, cells in columns.items() if name not in said}
        some = inside or dict.fromkeys(self.names[:1], "string")  # a batch without columns would not say how long it is
        for batch in self._read_batches(some):
            arrays = {name: batch.column(name) for name in inside}
            for name, value in said.items():
                arrays[name] = repeat_value(name, value, columns[name], len(batch), self.describe_row(1))
            yield pa.record_batch(arrays) if said else batch

    def column_type(self, name: str, columns: Mapping[str, str]) -> Arrow:
        """Return the type in which `batches` has a column."""
        said = any(name == one for one, _ in self.partition)
        return pa.type_for_alias(columns[name]) if said else self.types.field(name).type

    def describe_row(self, k: int) -> str:
        return f"row {k} of {self.name}"

    @cached_property
    def _file_types(self) -> Arrow:
        return self._read_types()

    @abstractmethod
    def _read_types(self) -> Arrow:
        """Return the columns that are in the file."""

    @abstractmethod
    def _read_batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        """Yield batches with at least these columns, which are in the file."""

    @property
    def _unreachable_hint(self) -> str:
        """What else may be wrong with a file that cannot be understood."""
        return "" if self.place.filesystem is None else ", or cannot be reached"


def validate_batch(batch: Arrow, columns: Iterable[str]) -> Arrow:
    """Return these columns of a batch, once all that pyarrow believes of them was checked: offsets, indices, UTF-8."""
    made = batch.select(list(columns))
    made.validate(full=True)
    return made


@contextmanager
def replace_arrow_errors(make_error: Callable[[str], ExpungeError], name: str = "") -> Iterator[None]:
    """Replace an error of pyarrow by what ``told`` makes of its text: the text quotes cells.

    What the system says about the file with this name is told as it is.
    """
    try:
        yield
    except (MemoryError, ExpungeError):
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if name and isinstance(error, OSError) and error.errno:
            raise make_access_error(name, error) from None
        raise make_error(str(error)) from None
