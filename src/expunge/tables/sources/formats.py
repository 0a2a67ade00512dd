"""Formats: files of CSV, Parquet and Arrow, and Arrow's streams, which frames in memory offer as well.

CSV is separated by commas or tabs, plain or gzip, and its cells are read in the requested types, not in guessed ones.
Parquet is read whole or by row groups; its footer describes the content.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from ...errors import ExpungeError, InvalidFile, InvalidInput
from ..cells import Arrow
from ..kinds import Boolean, Number
from ..messages import InvalidCell, check_unique_names, separator_hint
from .locations import FileLocation
from .table import BATCH_ROWS, BUFFER_BYTES, FileTable, Partition, decode_names, replace_arrow_errors, validate_batch

_CSV_TYPE_NAMES = {"double": Number.cell_description, "bool": Boolean.cell_description, "string": "text in UTF-8"}
_HEADER_BYTES = 1 << 16  # searched for a header
_TAIL_BYTES = 1 << 16  # read first from the end of a Parquet file; most footers fit
_PARQUET_MAGIC = b"PAR1"


class BinaryTable(FileTable):
    """A file whose format stores the types of its columns."""

    @contextmanager
    def _replace_errors(self) -> Iterator[None]:
        damaged = f"{self.name} is damaged, or not in the format that its name suggests{self._unreachable_hint}"
        try:
            with replace_arrow_errors(lambda _: InvalidFile(damaged), self.name):
                yield
        except pa.ArrowMemoryError:  # most often a damaged length
            raise InvalidFile(f"{damaged}, or its batches do not fit into memory") from None


class ArrowTable(BinaryTable):
    """An Arrow file with an index at the end (also called Feather), or without (a stream)."""

    def _read_types(self) -> Arrow:
        with self._replace_errors(), self._open_reader() as reader:
            return reader.schema

    def _read_batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        places = [self.types.names.index(name) for name in columns]
        with self._replace_errors(), self._open_reader(places) as reader:
            for batch in map(reader.get_batch, range(reader.num_record_batches)) if self._is_indexed else reader:
                yield validate_batch(batch, columns)

    @cached_property
    def _is_indexed(self) -> bool:
        with self.place.open_file() as file:
            return bool(file.read(6) == b"ARROW1")

    def _open_reader(self, places: Sequence[int] | None = None) -> Any:
        # Map the file instead of reading it: one batch may be the whole file.
        data, options = self.place.map_file(), pyarrow.ipc.IpcReadOptions(included_fields=places)
        return (pyarrow.ipc.open_file if self._is_indexed else pyarrow.ipc.open_stream)(data, options=options)


class CsvTable(FileTable):
    """A CSV file; the ending .tsv means that cells are separated by tabs."""

    names_are_certain = False

    def __init__(self, place: FileLocation, partition: Partition | None = None) -> None:
        super().__init__(place, partition)
        name = place.path.lower()
        self._compression = "gzip" if name.endswith(".gz") else None
        self._separator = "\t" if name.removesuffix(".gz").endswith(".tsv") else ","

    def _read_types(self) -> Arrow:
        with self._replace_errors(()), self._open_reader() as reader:
            return pa.schema(zip(reader.schema.names, reader.schema.types, strict=True))

    def column_type(self, name: str, columns: Mapping[str, str]) -> Arrow:
        return pa.type_for_alias(columns[name])

    def _read_batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        types = {name: pa.type_for_alias(cells) for name, cells in columns.items()}
        with self._replace_errors(self.types.names), self._open_reader(types) as reader:
            yield from reader

    def describe_row(self, k: int) -> str:
        return f"row {k} of {self.name} (the header is not counted)"

    def _open_reader(self, columns: Mapping[str, Arrow] | None = None) -> Any:
        return pyarrow.csv.open_csv(
            self._open_stream(),
            # One thread: otherwise errors lack the number of the row. Two threads were not faster.
            pyarrow.csv.ReadOptions(use_threads=False, block_size=BUFFER_BYTES),
            pyarrow.csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types=columns, include_columns=list(columns or ())),
        )

    def _open_stream(self) -> Any:
        return pa.input_stream(self.place.open_file(), compression=self._compression)

    def _replace_errors(self, names: Sequence[str]) -> AbstractContextManager[None]:
        return replace_arrow_errors(partial(self._translate_error, names), self.name)

    def _translate_error(self, names: Sequence[str], message: str) -> ExpungeError:
        """Return an error with pyarrow's meaning, without the cells that it quotes. pyarrow's row 1 is the header."""
        if match := re.match(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+)", message):
            column, k, cells = names[int(match[1])], int(match[2]) - 1, match[3]
            return InvalidCell(column, _CSV_TYPE_NAMES.get(cells, cells), k - 1, self.describe_row(k))
        if match := re.match(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)", message):
            problem = f"has {match[3]} cells, but the header has {match[2]}"
            return InvalidInput(f"{self.describe_row(int(match[1]) - 1)} {problem}{self._separator_hint()}")
        if re.match("(CSV parse error: )?Empty CSV file", message):
            return InvalidInput(f"{self.name} is empty")
        return InvalidFile(f"{self.name} is damaged, or not CSV in UTF-8{self._unreachable_hint}")

    def _separator_hint(self) -> str:
        """Return a question about the separator, if the header seems to use another."""
        with self._open_stream() as stream:
            lines = stream.read(_HEADER_BYTES).decode(errors="replace").splitlines()
        return separator_hint(next(filter(None, lines), ""), self._separator)


@dataclass(frozen=True)
class RowGroups:
    """Consecutive row groups of the file with this footer."""

    first: int
    end: int
    footer: str  # SHA-256


@dataclass(frozen=True)
class ParquetFooter:
    """The metadata at the end of a Parquet file."""

    types: Arrow
    rows: tuple[int, ...]  # per row group
    digest: str  # SHA-256


class ParquetTable(BinaryTable):
    """A Parquet file, or some of its row groups."""

    def __init__(
        self, place: FileLocation, partition: Partition | None = None, groups: RowGroups | None = None
    ) -> None:
        super().__init__(place, partition)
        self._groups = groups

    @cached_property
    def footer(self) -> ParquetFooter:
        """The file's footer, read once."""
        with self._open_file() as (file, digest):
            metadata = file.metadata
            rows = tuple(metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))
            return ParquetFooter(file.schema_arrow, rows, digest)

    def describe_row(self, k: int) -> str:
        before = 0 if self._groups is None else sum(self.footer.rows[: self._groups.first])
        return super().describe_row(before + k)

    def _read_types(self) -> Arrow:
        return self.footer.types

    def _read_batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        groups = None if self._groups is None else range(self._groups.first, self._groups.end)
        with self._open_file() as (file, _):
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(columns)):
                yield validate_batch(batch, columns)

    @contextmanager
    def _open_file(self) -> Iterator[tuple[Any, str]]:
        """Open the file; yield it with the digest of the footer that it is read by."""
        with self._replace_errors(), self.place.open_file() as source:
            footer = _read_footer(source)
            digest = hashlib.sha256(footer).hexdigest()
            if self._groups is not None and digest != self._groups.footer:
                raise InvalidFile(f"{self.name} was changed while it was being read")
            end = pa.BufferReader(_PARQUET_MAGIC + footer + len(footer).to_bytes(4, "little") + _PARQUET_MAGIC)
            # Without a buffer a whole row group is read at once, which may be the whole file.
            options = {"buffer_size": BUFFER_BYTES, "pre_buffer": False}
            yield pyarrow.parquet.ParquetFile(source, metadata=pyarrow.parquet.read_metadata(end), **options), digest


def _read_footer(source: Any) -> bytes:
    """Return the metadata at the end of a file, which is followed by its length in four bytes and the magic."""
    size = source.size()
    source.seek(max(0, size - _TAIL_BYTES))
    tail: bytes = source.read()
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != _PARQUET_MAGIC or length + 12 > size:
        raise pa.ArrowInvalid("no footer")
    if length + 8 > len(tail):
        source.seek(size - 8 - length)
        tail = source.read()
    return tail[-8 - length : -8]


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
