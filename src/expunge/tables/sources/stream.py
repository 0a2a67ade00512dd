"""Streams: frames in memory, and streams that can be read only once."""

import re
from collections.abc import Iterator, Mapping, Sized
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from ...errors import ExpungeError, InvalidInput
from ..cells import Arrow
from ..messages import check_unique_names
from .table import decode_names, replace_arrow_errors, validate_batch


class StreamTable:
    """A frame in memory or a stream, by the Arrow PyCapsule interface."""

    name = "the table"
    shows_names = True

    def __init__(self, source: Any) -> None:
        self._source = source
        with self._replace_errors():
            self.reader = pa.RecordBatchReader.from_stream(source)

    @property
    def types(self) -> Arrow:
        return self.reader.schema

    @property
    def names(self) -> list[str]:
        return decode_names(self.types, self.name)

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        with self._replace_errors():
            for batch in self.reader:
                yield validate_batch(batch, columns)

    def read_all(self) -> Arrow:
        """Read all rows, as a pyarrow table."""
        with self._replace_errors():
            return self.reader.read_all()

    def describe_row(self, k: int) -> str:
        return f"row {k} of the table"

    def _translate_error(self, message: str) -> ExpungeError:
        """Return an error with pyarrow's meaning, without the cells and names that it quotes."""
        labels = list(map(str, self._source.keys())) if hasattr(self._source, "keys") else []  # pandas
        check_unique_names(labels, self.name)
        column = re.search(r"Conversion failed for column (.+) with type", message)
        where = f"column {labels.index(column[1]) + 1}" if column and column[1] in labels else "a column"
        return InvalidInput(f"the table cannot be read: {where} has cells of mixed types, or is damaged")

    def _replace_errors(self) -> AbstractContextManager[None]:
        return replace_arrow_errors(self._translate_error)


def is_read_once(source: Any) -> bool:
    """Return whether rows can be read only once: a frame knows its length, a stream does not."""
    return hasattr(source, "__arrow_c_stream__") and not isinstance(source, Sized)


def open_stream(source: Any) -> Any:
    """Return a source whose columns can be inspected before its rows are read once."""
    return StreamTable(source).reader if is_read_once(source) else source


def load_stream(source: Any) -> Any:
    """Return a source that can be read several times: a stream is read into memory."""
    return StreamTable(source).read_all() if is_read_once(source) else source
