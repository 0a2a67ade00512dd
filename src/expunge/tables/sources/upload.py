"""Bodies: tables that somebody sent, read with limits that hold before anything is unpacked.

A body can stand for far more than its bytes: by compression, by a text that every row refers to, by lists within lists,
or by a header that claims it. So what describes the table is bounded first, nested types are refused from the schema,
only the columns that are needed are read, what they unpack to is bounded before it is unpacked, and rows are counted
while they are read. Errors call columns that the schema does not have by their place: their names may be people.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet

from ...errors import InvalidFile, InvalidInput
from ..cells import Arrow, is_text
from .formats import ArrowTable, CsvTable, ParquetTable
from .locations import FileLocation
from .table import BATCH_ROWS, BUFFER_BYTES, Table

MAX_COLUMNS = 10_000
_MAX_UNPACKED_BYTES = 2**28  # bytes that are unpacked together
_MAX_METADATA_BYTES = 2**21  # bytes of a footer, or of a schema
_MAX_PARTS = 50_000  # batches, or pages of the columns that are read
_UPLOAD_FORMATS: dict[str, type[CsvTable | ParquetTable | ArrowTable]] = {
    ".csv": CsvTable,
    ".parquet": ParquetTable,
    ".arrow": ArrowTable,
}
_DAMAGED = "the body is damaged, or not of the type that it says"


@dataclass(frozen=True, eq=False)
class Upload:
    """A table that was sent.

    Attributes
    ----------
    data : bytes or another buffer, list of dicts, or dict of lists
        What was sent: a file, or the rows or columns of JSON.
    max_rows : int
        How many rows it may have.
    suffix : str
        The format of a file: ".csv", ".parquet" or ".arrow" (with an index or as a stream).
    """

    data: Any
    max_rows: int
    suffix: str = ""


@dataclass(frozen=True, eq=False)
class _MemoryLocation(FileLocation):
    """A place in memory."""

    data: Any = None

    def open_file(self) -> Arrow:
        return pa.BufferReader(self.data)

    def map_file(self) -> Arrow:
        return self.open_file()


class UploadTable:
    """The table in a body."""

    name = "the body"
    shows_names = False

    def __init__(self, upload: Upload) -> None:
        self._max_rows = upload.max_rows
        if isinstance(upload.data, (list, dict)):
            self._inner: Table = JsonTable(upload.data)
            return
        self._data = pa.py_buffer(upload.data)
        if not self._data.size:
            raise InvalidInput("the body is empty")
        if upload.suffix == ".arrow" and self._data[:6].to_pybytes() == b"ARROW1":
            self._data = self._data.slice(8)  # a stream follows: its index could lead to batches that nobody looked at
        self._inner = _UPLOAD_FORMATS[upload.suffix](
            _MemoryLocation(self.name, "", "", (), f"body{upload.suffix}", data=self._data), ()
        )

    @cached_property
    def types(self) -> Arrow:
        if isinstance(self._inner, CsvTable):
            _check_header(self._data)
        elif isinstance(self._inner, ParquetTable):
            _check_footer(self._data)
        elif isinstance(self._inner, ArrowTable):
            _check_messages(self._data)
        found = _hide_details(lambda: self._inner.types)
        if len(found) > MAX_COLUMNS:
            raise InvalidInput(f"a body has at most {MAX_COLUMNS:,} columns, got {len(found):,}")
        for k, cells in enumerate(found.types, start=1):
            _check_flat(cells, k)
        return found

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        if isinstance(self._inner, ParquetTable):
            self._check_parquet(self._inner, columns)
        rows, parts = 0, self._inner.batches(columns)
        while (batch := _hide_details(lambda: next(parts, None))) is not None:
            rows += len(batch)
            self._check_rows(rows)
            for k, column in enumerate(batch.columns, start=1):
                _check_flat(column.type, k)
                _check_text(column)
            yield batch

    def describe_row(self, k: int) -> str:
        return self._inner.describe_row(k) if isinstance(self._inner, CsvTable) else f"row {k} of the body"

    def _check_rows(self, rows: int) -> None:
        if rows > self._max_rows:
            raise InvalidInput(f"a body has at most {self._max_rows:,} rows")

    def _check_parquet(self, file: ParquetTable, columns: Mapping[str, str]) -> None:
        """Refuse columns that unpack to too much, by what every page says that it has."""

        def check() -> None:
            self._check_rows(sum(file.footer.rows))
            with pyarrow.parquet.ParquetFile(pa.BufferReader(self._data)) as opened:
                _check_pages(memoryview(self._data).cast("B"), opened.metadata, columns)
            texts = [name for name in columns if is_text(file.types.field(name).type)]
            if texts:  # a long text is there once, and every row can refer to it
                with pyarrow.parquet.ParquetFile(pa.BufferReader(self._data), read_dictionary=texts) as opened:
                    for batch in opened.iter_batches(columns=texts):
                        for column in batch.columns:
                            _check_text(column)

        _hide_details(check)


def _hide_details(read: Any) -> Any:
    """Return what ``read`` returns; an error about a damaged body does not quote it."""
    try:
        return read()
    except InvalidInput:
        raise
    except (InvalidFile, pa.ArrowException, OSError, ValueError, struct.error, IndexError):
        raise InvalidInput(_DAMAGED) from None


class JsonTable:
    """The rows of JSON: a list of objects, in which a member that is missing is a gap, or an object of columns."""

    name = "the body"
    shows_names = False

    def __init__(self, data: list[Any] | dict[str, Any]) -> None:
        self._data = data
        if isinstance(data, list):
            if not all(isinstance(row, dict) for row in data):
                raise InvalidInput('each row must be an object, like {"id": 7, "age": 31}')
            self._rows, self._names = len(data), dict.fromkeys(name for row in data for name in row)
        else:
            lengths = {len(cells) if isinstance(cells, list) else -1 for cells in data.values()}
            if len(lengths) > 1 or -1 in lengths:
                raise InvalidInput("the columns must be lists of one length")
            self._rows, self._names = max(lengths, default=0), dict.fromkeys(data)

    @property
    def types(self) -> Arrow:
        """The names; which types they have is known once they are read."""
        return pa.schema([(name, pa.null()) for name in self._names])

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        for start in range(0, self._rows, BATCH_ROWS):
            some = slice(start, start + BATCH_ROWS)
            yield pa.record_batch({name: self._read_column(name, some) for name in columns})

    def _read_column(self, name: str, some: slice) -> Arrow:
        data = self._data
        cells = [row.get(name) for row in data[some]] if isinstance(data, list) else data[name][some]
        try:
            return pa.array(cells)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise InvalidInput(f"column {name!r} of the body must hold one kind of values, or gaps") from None

    def describe_row(self, k: int) -> str:
        return f"row {k} of the body"


def _check_flat(cells: Arrow, place: int) -> None:
    if not _is_flat(cells):
        raise InvalidInput(f"column {place} of the body must hold plain cells: numbers, booleans, dates or text")


def _is_flat(cells: Arrow) -> bool:
    """Return whether cells of this type are plain, or a dictionary of plain ones."""
    if pa.types.is_dictionary(cells):
        return _is_flat(cells.value_type) and not pa.types.is_dictionary(cells.value_type)
    tests = (
        *(pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean),
        *(pa.types.is_date, pa.types.is_time, pa.types.is_timestamp, pa.types.is_null, is_text),
    )
    return any(test(cells) for test in tests)


def _check_text(column: Arrow) -> None:
    """Refuse text that would take too much room once each row has its own."""
    cells = column.type
    if pa.types.is_dictionary(cells) and is_text(cells.value_type):
        longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
        size = longest * len(column)
    elif pa.types.is_string_view(cells):
        size = pc.sum(pc.binary_length(column)).as_py() or 0
    else:
        return
    if size > _MAX_UNPACKED_BYTES:
        raise InvalidInput("the texts of the body are too long")


def _too_large_error() -> InvalidInput:
    return InvalidInput("the body is too large once it is unpacked")


# CSV


def _check_header(data: Arrow) -> None:
    """Refuse a CSV body with very many columns."""
    head = re.sub(rb'"[^"]*"', b"", data[:BUFFER_BYTES].to_pybytes()).lstrip(b"\r\n")
    if (columns := re.split(rb"[\r\n]", head, maxsplit=1)[0].count(b",") + 1) > MAX_COLUMNS:
        raise InvalidInput(f"a body has at most {MAX_COLUMNS:,} columns, got {columns:,}")


# Parquet


def _check_footer(data: Arrow) -> None:
    """Refuse a Parquet body that was cut short, and one whose description of itself is very large."""
    if data[-4:].to_pybytes() not in (b"PAR1", b"PARE"):
        raise InvalidInput(_DAMAGED)
    if int.from_bytes(data[-8:].to_pybytes()[:4], "little") > _MAX_METADATA_BYTES:
        raise InvalidInput("the body describes itself in too many bytes: write fewer columns and larger row groups")


def _check_pages(data: memoryview, metadata: Any, columns: Mapping[str, str]) -> None:
    """Refuse columns whose pages unpack to too much: one of each column is in memory at a time, and its dictionary."""
    pages = 0
    for k in range(metadata.num_row_groups):
        group, at_once = metadata.row_group(k), 0
        for j in range(group.num_columns):
            chunk = group.column(j)
            if chunk.path_in_schema not in columns:
                continue
            sizes = [0]
            for size in _page_sizes(data, chunk):
                sizes.append(size)
                pages += 1
                if pages > _MAX_PARTS:
                    raise InvalidInput("the body has too many pages: write larger ones")
            at_once += sum(sorted(sizes)[-2:])
            if at_once > _MAX_UNPACKED_BYTES:
                raise _too_large_error()


def _page_sizes(data: memoryview, chunk: Any) -> Iterator[int]:
    """Yield how many bytes each page of a column chunk unpacks to."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end = at + chunk.total_compressed_size
    if at < 0 or chunk.total_compressed_size < 0 or end > len(data):
        raise InvalidInput(_DAMAGED)
    while at < end:
        header = _ThriftReader(data, at)
        fields = header.read_struct()
        unpacked, packed = fields.get(2, -1), fields.get(3, -1)
        if unpacked < 0 or packed < 0:
            raise InvalidInput(_DAMAGED)
        yield unpacked
        at = header.position + packed


class _ThriftReader:
    """Thrift's compact protocol, in which Parquet writes the header of a page."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data, self.position = data, position

    def read_struct(self, depth: int = 0) -> dict[int, int]:
        """Read a struct; return its integers by their numbers."""
        if depth > 8:
            raise ValueError("nested too deep")
        found, number = dict[int, int](), 0
        while head := self._read_byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._read_integer()
            if kind in (4, 5, 6):
                found[number] = self._read_integer()
            else:
                self._skip(kind, depth)
        return found

    def _skip(self, kind: int, depth: int) -> None:
        """Pass over a value of another kind than an integer."""
        if kind in (1, 2):  # true and false, which are in the head of a field
            return
        if kind == 3:
            self.position += 1
        elif kind == 7:
            self.position += 8
        elif kind == 8:
            length = self._read_varint()
            self.position += length
        elif kind == 12:
            self.read_struct(depth + 1)
        else:  # lists, sets and maps: no header of a page has any
            raise ValueError("not the header of a page")

    def _read_byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]

    def _read_varint(self) -> int:
        found = shift = 0
        while (byte := self._read_byte()) & 128:
            found |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("not a number")
        return found | byte << shift

    def _read_integer(self) -> int:
        found = self._read_varint()
        return found >> 1 ^ -(found & 1)


# Arrow


def _check_messages(data: Arrow) -> None:
    """Refuse a stream of Arrow whose schema is very large, or whose batches unpack to too much."""

    def check() -> None:
        reader, dictionaries = pyarrow.ipc.MessageReader.open_stream(pa.BufferReader(data)), 0
        for _ in range(_MAX_PARTS):
            try:
                message = reader.read_next_message()
            except StopIteration:
                return
            if message.type == "schema" and message.metadata.size > _MAX_METADATA_BYTES:
                raise InvalidInput("the body describes itself in too many bytes: write fewer columns")
            if message.type in ("record batch", "dictionary"):
                size = _unpacked_size(memoryview(message.metadata), memoryview(message.body), message.type)
                dictionaries += size if message.type == "dictionary" else 0
                if max(size, dictionaries) > _MAX_UNPACKED_BYTES:
                    raise _too_large_error()
        raise InvalidInput("the body has too many batches: write larger ones")

    _hide_details(check)


def _unpacked_size(metadata: memoryview, body: memoryview, kind: str) -> int:
    """Return how many bytes the buffers of a message have once they are unpacked.

    `Message.fbs` of Arrow: a message has its header as field 2; a dictionary has its record batch as field 1; a record
    batch has its buffers (pairs of offset and length) as field 2, and how they are packed as field 3. A packed buffer
    begins with its length, or -1 if it is stored as it is.
    """
    batch = _follow_field(metadata, _follow_field(metadata, 0, None), 2)
    if kind == "dictionary":
        batch = _follow_field(metadata, batch, 1)
    place = _find_field(metadata, batch, 3)
    if place is None:
        return len(body)
    vector = _follow_field(metadata, batch, 2)
    (count,) = struct.unpack_from("<I", metadata, vector)
    total = 0
    for offset, length in struct.iter_unpack("<qq", metadata[vector + 4 : vector + 4 + 16 * count]):
        if length:
            (size,) = struct.unpack_from("<q", body, offset)
            total += length if size < 0 else size
    return total


def _find_field(data: memoryview, table: int, number: int) -> int | None:
    """Return where a field of a table of FlatBuffers is; None if it has its default value."""
    (back,) = struct.unpack_from("<i", data, table)
    (size,) = struct.unpack_from("<H", data, table - back)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", data, table - back + 4 + 2 * number)
    return table + offset if offset else None


def _follow_field(data: memoryview, table: int, number: int | None) -> int:
    """Return where a field leads to; with None as its number, what stands at the place itself."""
    place = table if number is None else _find_field(data, table, number)
    if place is None:
        raise ValueError("a field is missing")
    (offset,) = struct.unpack_from("<I", data, place)
    return place + int(offset)
