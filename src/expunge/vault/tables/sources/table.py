"""A table: names and types of its columns, and its rows in batches, whatever it is stored in."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ....errors import ExpungeError
from ..cells.arrow import Arrow
from ..messages import shown

AT_ONCE = 65_536  # rows of a batch, where the source does not decide it
BUFFER = 1 << 20  # bytes


class Table(Protocol):
    """What every source can do."""

    name: str  # as errors show it

    @property
    def types(self) -> Arrow:
        """Names and types of the columns, as a schema of pyarrow."""

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        """Yield record batches of any size that have at least these columns; from CSV in the types named."""

    def row(self, k: int) -> str:
        """Return how an error calls the k-th row, counted from one."""


class File:
    """A table in a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, shown(path)

    def row(self, k: int) -> str:
        return f"row {k} of {self.name}"


def validated(batch: Arrow, columns: Iterable[str]) -> Arrow:
    """Return these columns of a batch, once all that pyarrow believes of them was checked: offsets, indices, UTF-8."""
    made = batch.select(list(columns))
    made.validate(full=True)
    return made


@contextmanager
def unquoted(told: Callable[[str], ExpungeError]) -> Iterator[None]:
    """Replace an error of pyarrow by what ``told`` makes of its text: the text quotes cells."""
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise told(str(error)) from None
