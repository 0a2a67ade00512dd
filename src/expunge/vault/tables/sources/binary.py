"""Arrow files, and what all binary files have in common."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from ....errors import InvalidFile
from ..cells.arrow import Arrow
from .table import File, unquoted, validated


class Binary(File):
    """A file whose format says what its columns are."""

    @contextmanager
    def _unquoted(self) -> Iterator[None]:
        damaged = f"{self.name} is damaged, or not of the format that its name says{self._or_away}"
        try:
            with unquoted(lambda _: InvalidFile(damaged), self.name):
                yield
        except pa.ArrowMemoryError:  # a length that was damaged, most often
            raise InvalidFile(f"{damaged}, or has larger batches than there is memory for") from None


class ArrowFile(Binary):
    """Arrow's two formats: with an index at the end (also called Feather), and without (a stream)."""

    def _types_inside(self) -> Arrow:
        with self._unquoted(), self._reader() as reader:
            return reader.schema

    def _batches_inside(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        places = [self.types.names.index(name) for name in columns]
        with self._unquoted(), self._reader(places) as reader:
            for batch in map(reader.get_batch, range(reader.num_record_batches)) if self._indexed else reader:
                yield validated(batch, columns)

    @cached_property
    def _indexed(self) -> bool:
        with self.place.opened() as file:
            return bool(file.read(6) == b"ARROW1")

    def _reader(self, places: Sequence[int] | None = None) -> Any:
        # A map and not a read: one batch may be the whole file.
        data, options = self.place.mapped(), pyarrow.ipc.IpcReadOptions(included_fields=places)
        return (pyarrow.ipc.open_file if self._indexed else pyarrow.ipc.open_stream)(data, options=options)
