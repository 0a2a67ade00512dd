"""Binary files: Parquet and Arrow."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from ....errors import InvalidFile
from ..cells.arrow import Arrow
from .table import AT_ONCE, BUFFER, File, unquoted, validated


class _Binary(File):
    @contextmanager
    def _unquoted(self) -> Iterator[None]:
        damaged = f"{self.name} is damaged, or not of the format that its name says"
        try:
            with unquoted(lambda _: InvalidFile(damaged)):
                yield
        except pa.ArrowMemoryError:  # a length that was damaged, most often
            raise InvalidFile(f"{damaged}, or has larger batches than there is memory for") from None


class Parquet(_Binary):
    """A Parquet file."""

    @cached_property
    def types(self) -> Arrow:
        with self._unquoted(), self._file() as file:
            return file.schema_arrow

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        with self._unquoted(), self._file() as file:
            for batch in file.iter_batches(AT_ONCE, columns=list(columns)):
                yield validated(batch, columns)

    def _file(self) -> Any:
        # Without a buffer a whole row group is read at once, and that may be the whole file.
        return pyarrow.parquet.ParquetFile(self.path, buffer_size=BUFFER, pre_buffer=False)


class ArrowFile(_Binary):
    """Arrow's two formats: with an index at the end (also called Feather), and without (a stream)."""

    @cached_property
    def types(self) -> Arrow:
        with self._unquoted(), self._reader() as reader:
            return reader.schema

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        places = [self.types.names.index(name) for name in columns]
        with self._unquoted(), self._reader(places) as reader:
            for batch in map(reader.get_batch, range(reader.num_record_batches)) if self._indexed else reader:
                yield validated(batch, columns)

    @cached_property
    def _indexed(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(6) == b"ARROW1"

    def _reader(self, places: Sequence[int] | None = None) -> Any:
        # A map and not a read: one batch may be the whole file.
        data, options = pa.memory_map(str(self.path)), pyarrow.ipc.IpcReadOptions(included_fields=places)
        return (pyarrow.ipc.open_file if self._indexed else pyarrow.ipc.open_stream)(data, options=options)
