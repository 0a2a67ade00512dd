"""Streams: a table in memory, one that somebody else streams, or an array of NumPy."""

import re
from collections.abc import Iterator, Mapping, Sized
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import ExpungeError, InvalidInput
from ..cells import Arrow
from ..kinds import Boolean, Number
from ..messages import check_unique_names, quote_names
from ..schema import Schema
from .table import BATCH_ROWS, replace_arrow_errors, validate_batch


class StreamTable:
    """A table in memory, or one that somebody else streams."""

    name = "the table"
    shows_names = True

    def __init__(self, source: Any) -> None:
        self._source = source
        with self._replace_errors():
            self.reader = pa.RecordBatchReader.from_stream(source)

    @property
    def types(self) -> Arrow:
        return self.reader.schema

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        with self._replace_errors():
            for batch in self.reader:
                yield validate_batch(batch, columns)

    def read_all(self) -> Arrow:
        """Read all rows, as a table of pyarrow."""
        with self._replace_errors():
            return self.reader.read_all()

    def describe_row(self, k: int) -> str:
        return f"row {k} of the table"

    def _translate_error(self, message: str) -> ExpungeError:
        """Say what pyarrow says, without the cells and names that it quotes."""
        labels = list(map(str, self._source.keys())) if hasattr(self._source, "keys") else []  # of pandas
        check_unique_names(labels, self.name)
        column = re.search(r"Conversion failed for column (.+) with type", message)
        where = f"column {labels.index(column[1]) + 1}" if column and column[1] in labels else "a column"
        return InvalidInput(f"the table cannot be read: {where} has cells of mixed types, or is damaged")

    def _replace_errors(self) -> AbstractContextManager[None]:
        return replace_arrow_errors(self._translate_error)


def is_read_once(source: Any) -> bool:
    """Return whether rows that were read cannot be read again: a frame knows how long it is, a stream does not."""
    return hasattr(source, "__arrow_c_stream__") and not isinstance(source, Sized)


def open_stream(source: Any) -> Any:
    """Return a source whose columns can be looked at before its rows are read, once."""
    return StreamTable(source).reader if is_read_once(source) else source


def load_stream(source: Any) -> Any:
    """Return a source that can be read again: a stream is read to its end, into memory."""
    return StreamTable(source).read_all() if is_read_once(source) else source


def array_to_stream(array: Any, schema: Schema) -> Any:
    """Return an array whose columns are the schema's inputs as a stream with their names."""
    kinds = schema.input_kinds
    if others := [name for name, kind in kinds.items() if not isinstance(kind, (Number, Boolean))]:
        raise InvalidInput(f"an array holds only numbers, but {quote_names(others)} are not; give a table with names")
    if array.ndim != 2 or array.shape[1] != len(kinds) or array.dtype.kind not in "biuf":
        raise InvalidInput(f"an array must be numbers of shape (n, {len(kinds)}), got {array.dtype} {array.shape}")
    parts = (array[start : start + BATCH_ROWS].T.astype(np.float64) for start in range(0, len(array), BATCH_ROWS))
    types = pa.schema([(name, pa.float64()) for name in kinds])
    return pa.RecordBatchReader.from_batches(types, (pa.record_batch(list(part), schema=types) for part in parts))
