"""A table: names and types of its columns, and its rows in batches, whatever it is stored in."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from ....errors import ExpungeError, InvalidFile
from ..cells.arrow import Arrow
from .disks import Place, unreadable
from .partitions import Partition, guessed_type, partition_of, repeated_value

AT_ONCE = 65_536  # rows of a batch, where the source does not decide it
BUFFER = 1 << 20  # bytes


class Table(Protocol):
    """What every source can do."""

    name: str  # as errors show it
    shows_names: bool  # whether errors may show names of columns that the schema does not have

    @property
    def types(self) -> Arrow:
        """Names and types of the columns, as a schema of pyarrow."""

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        """Yield record batches of any size that have at least these columns; from CSV in the types named."""

    def row(self, k: int) -> str:
        """Return how an error calls the k-th row, counted from one."""


class File(ABC):
    """A table in a file, with the columns that its path says unless it has them itself."""

    shows_names = True
    names_are_sure = True  # that the columns have the names that the file says: a CSV file may lack its header

    def __init__(self, place: Place, partition: Partition | None = None) -> None:
        self.place, self.name = place, place.name
        self._partition = partition_of(place.folders) if partition is None else partition

    @cached_property
    def types(self) -> Arrow:
        said = [pa.field(name, guessed_type(value)) for name, value in self.partition]
        return pa.schema([*self._inside, *said])

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
        return tuple(pair for pair in self._partition if pair[0] not in self._inside.names)

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        said = {name: value for name, value in self.partition if name in columns}
        inside = {name: cells for name, cells in columns.items() if name not in said}
        some = inside or dict.fromkeys(self.names[:1], "string")  # a batch without columns would not say how long it is
        for batch in self._batches_inside(some):
            arrays = {name: batch.column(name) for name in inside}
            for name, value in said.items():
                arrays[name] = repeated_value(name, value, columns[name], len(batch), self.row(1))
            yield pa.record_batch(arrays) if said else batch

    def type_read(self, name: str, columns: Mapping[str, str]) -> Arrow:
        """Return the type in which `batches` has a column."""
        said = any(name == one for one, _ in self.partition)
        return pa.type_for_alias(columns[name]) if said else self.types.field(name).type

    def row(self, k: int) -> str:
        return f"row {k} of {self.name}"

    @cached_property
    def _inside(self) -> Arrow:
        return self._types_inside()

    @abstractmethod
    def _types_inside(self) -> Arrow:
        """Return the columns that are in the file."""

    @abstractmethod
    def _batches_inside(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        """Yield batches with at least these columns, which are in the file."""

    @property
    def _or_away(self) -> str:
        """What else may be wrong with a file that cannot be understood."""
        return "" if self.place.filesystem is None else ", or cannot be reached"


def validated(batch: Arrow, columns: Iterable[str]) -> Arrow:
    """Return these columns of a batch, once all that pyarrow believes of them was checked: offsets, indices, UTF-8."""
    made = batch.select(list(columns))
    made.validate(full=True)
    return made


@contextmanager
def unquoted(told: Callable[[str], ExpungeError], name: str = "") -> Iterator[None]:
    """Replace an error of pyarrow by what ``told`` makes of its text: the text quotes cells.

    What the system says about the file with this name is told as it is.
    """
    try:
        yield
    except (MemoryError, ExpungeError):
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if name and isinstance(error, OSError) and error.errno:
            raise unreadable(name, error) from None
        raise told(str(error)) from None
