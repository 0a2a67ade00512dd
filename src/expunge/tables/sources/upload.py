"""Uploads: tables sent by a client, read with limits that apply before anything is unpacked.

A body can expand to far more than its bytes: by compression, by a text that every row refers to, by nested lists, or by
a header that claims it. Therefore the metadata is bounded first, nested types are refused by the schema, only required
columns are read, their unpacked size is bounded before unpacking, and rows are counted while they are read. Errors
refer to columns that the schema does not have by position: their names could identify people.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet

from ...errors import InvalidFile, InvalidInput
from ...exact.arrays import Floats
from ..cells import Arrow, is_text
from ..kinds import Boolean, ColumnKind, Number
from .formats import ArrowTable, CsvTable, ParquetTable
from .locations import FileLocation
from .table import BATCH_ROWS, BUFFER_BYTES, decode_names

MAX_COLUMNS = 10_000
_MAX_UNPACKED_BYTES = 2**28  # unpacked at the same time
_MAX_METADATA_BYTES = 2**21  # of a footer or a schema
_MAX_PARTS = 50_000  # batches, or pages of the columns that are read
_UPLOAD_FORMATS: dict[str, type[CsvTable | ParquetTable | ArrowTable]] = {
    ".csv": CsvTable,
    ".parquet": ParquetTable,
    ".arrow": ArrowTable,
}
_DAMAGED = "the body is damaged, or not of its declared type"


@dataclass(frozen=True, eq=False)
class Upload:
    """A table sent by a client.

    Attributes
    ----------
    data : bytes or another buffer, list of dicts, or dict of lists
        The content: a file, or the rows or columns of JSON.
    max_rows : int
        The maximum number of rows.
    suffix : str
        The format of a file: ".csv", ".parquet" or ".arrow" (with an index or as a stream).
    """

    data: Any
    max_rows: int
    suffix: str = ""


@dataclass(frozen=True, eq=False)
class _MemoryLocation(FileLocation):
    """A file in memory."""

    data: Any = None

    def open_file(self) -> Arrow:
        return pa.BufferReader(self.data)

    def map_file(self) -> Arrow:
        return self.open_file()


class UploadTable:
    """The table in an uploaded file."""

    name = "the body"
    shows_names = False

    def __init__(self, upload: Upload) -> None:
        self._max_rows = upload.max_rows
        self._data = pa.py_buffer(upload.data)
        if not self._data.size:
            raise InvalidInput("the body is empty")
        if upload.suffix == ".arrow" and self._data[:6].to_pybytes() == b"ARROW1":
            self._data = self._data.slice(8)  # read the stream inside: the index could lead to unchecked batches
        location = _MemoryLocation(self.name, "", "", (), f"body{upload.suffix}", data=self._data)
        self._file = _UPLOAD_FORMATS[upload.suffix](location, ())

    @cached_property
    def types(self) -> Arrow:
        if isinstance(self._file, CsvTable):
            _check_header(self._data)
        elif isinstance(self._file, ParquetTable):
            _check_footer(self._data)
        else:
            _check_messages(self._data)
        types = _hide_details(lambda: self._file.types)
        _check_column_count(len(types))
        for place, cells in enumerate(types.types, start=1):
            _check_flat(cells, place)
        return types

    @property
    def names(self) -> list[str]:
        return decode_names(self.types, self.name)

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        if isinstance(self._file, ParquetTable):
            self._check_parquet(self._file, columns)
        rows, batches = 0, self._file.batches(columns)
        while (batch := _hide_details(lambda: next(batches, None))) is not None:
            rows += len(batch)
            _check_row_count(rows, self._max_rows)
            for place, column in enumerate(batch.columns, start=1):
                _check_column(column, place)
            yield batch

    def describe_row(self, k: int) -> str:
        return self._file.describe_row(k) if isinstance(self._file, CsvTable) else f"row {k} of the body"

    def _check_parquet(self, file: ParquetTable, columns: Mapping[str, str]) -> None:
        """Refuse columns that unpack to too much, by the sizes in the headers of their pages."""

        def check() -> None:
            _check_row_count(sum(file.footer.rows), self._max_rows)
            with pyarrow.parquet.ParquetFile(pa.BufferReader(self._data)) as opened:
                _check_pages(memoryview(self._data).cast("B"), opened.metadata, columns)
            texts = [name for name in columns if is_text(file.types.field(name).type)]
            if texts:  # a long text is stored once, and every row can refer to it
                with pyarrow.parquet.ParquetFile(pa.BufferReader(self._data), read_dictionary=texts) as opened:
                    for batch in opened.iter_batches(columns=texts):
                        for column in batch.columns:
                            _check_text(column)

        _hide_details(check)


def _hide_details(read: Any) -> Any:
    """Return the result of ``read()``; replace errors about a damaged body, which may quote it."""
    try:
        return read()
    except InvalidInput:
        raise
    except (InvalidFile, pa.ArrowException, OSError, ValueError, struct.error, IndexError):
        raise InvalidInput(_DAMAGED) from None


class JsonTable:
    """Rows in JSON: a list of objects, in which a missing member is a gap, or an object of columns."""

    name = "the body"
    shows_names = False

    def __init__(self, upload: Upload) -> None:
        self._data, self._max_rows = upload.data, upload.max_rows
        if isinstance(self._data, list):
            if not all(isinstance(row, dict) for row in self._data):
                raise InvalidInput('each row must be an object, like {"id": 7, "age": 31}')
            self._rows, self.names = len(self._data), list(dict.fromkeys(name for row in self._data for name in row))
        else:
            lengths = {len(cells) if isinstance(cells, list) else -1 for cells in self._data.values()}
            if len(lengths) > 1 or -1 in lengths:
                raise InvalidInput("the columns must be lists of one length")
            self._rows, self.names = max(lengths, default=0), list(self._data)
        try:
            "".join(self.names).encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            raise InvalidInput(_DAMAGED) from None
        _check_column_count(len(self.names))

    @property
    def types(self) -> Arrow:
        """The names; types are known only once the cells are read."""
        return pa.schema([(name, pa.null()) for name in self.names])

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        for rows in self.row_ranges(BATCH_ROWS):
            yield pa.record_batch(self.read_columns(dict.fromkeys(columns), rows))

    def row_ranges(self, size: int) -> Iterator[range]:
        """Yield consecutive ranges of row numbers, of this size but for the last."""
        for start in range(0, self._rows, size):
            yield range(start, min(start + size, self._rows))

    def read_columns(self, kinds: Mapping[str, ColumnKind | None], rows: range) -> dict[str, Any]:
        """Return the cells of columns: plain numbers of a column whose kind takes them as floats, others in Arrow."""
        columns = {name: self._read_column(name, kind, rows) for name, kind in kinds.items()}
        _check_row_count(rows.stop, self._max_rows)
        for place, cells in enumerate(columns.values(), start=1):
            if not isinstance(cells, np.ndarray):
                _check_column(cells, place)
        return columns

    def _read_column(self, name: str, kind: ColumnKind | None, rows: range) -> Any:
        data, chosen = self._data, slice(rows.start, rows.stop)
        cells = [row.get(name) for row in data[chosen]] if isinstance(data, list) else data[name][chosen]
        if (numbers := _to_numbers(kind, cells)) is not None:
            return numbers
        try:
            return pa.array(cells)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise InvalidInput(f"column {name!r} of the body must hold values of one kind, or gaps") from None

    def describe_row(self, k: int) -> str:
        return f"row {k} of the body"


def _to_numbers(kind: ColumnKind | None, cells: list[Any]) -> Floats | None:
    """Return the numbers of a column as Arrow would convert them, NaN for null; None if Arrow has to look at them."""
    types = set(map(type, cells)) - {type(None)}
    plain = isinstance(kind, (Number, Boolean)) and types <= {int, float}
    if not plain and not (isinstance(kind, Boolean) and types <= {bool}):
        return None
    try:
        numbers: Floats = np.array(cells, dtype=np.float64) + 0.0  # without -0.0
    except OverflowError:
        return None
    # Arrow refuses integers beyond 2**53 among floats, and those beyond 64 bits.
    return None if int in types and (np.abs(numbers) >= 2**53).any() else numbers


def _check_column_count(count: int) -> None:
    if count > MAX_COLUMNS:
        raise InvalidInput(f"a body has at most {MAX_COLUMNS:,} columns, got {count:,}")


def _check_row_count(count: int, max_rows: int) -> None:
    if count > max_rows:
        raise InvalidInput(f"a body has at most {max_rows:,} rows")


def _check_column(column: Arrow, place: int) -> None:
    _check_flat(column.type, place)
    _check_text(column)


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
    """Refuse text that would take too much memory once each row has its own copy."""
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


def _check_header(data: Arrow) -> None:
    """Refuse a CSV body with very many columns."""
    head = re.sub(rb'"[^"]*"', b"", data[:BUFFER_BYTES].to_pybytes()).lstrip(b"\r\n")
    _check_column_count(re.split(rb"[\r\n]", head, maxsplit=1)[0].count(b",") + 1)


def _check_footer(data: Arrow) -> None:
    """Refuse a Parquet body that is truncated, or whose metadata is very large."""
    if data[-4:].to_pybytes() not in (b"PAR1", b"PARE"):
        raise InvalidInput(_DAMAGED)
    if int.from_bytes(data[-8:].to_pybytes()[:4], "little") > _MAX_METADATA_BYTES:
        raise InvalidInput("the metadata of the body is too large: write fewer columns and larger row groups")


def _check_pages(data: memoryview, metadata: Any, columns: Mapping[str, str]) -> None:
    """Refuse columns whose pages unpack to too much: of each column one page and its dictionary are in memory."""
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
    """Yield the unpacked size of each page of a column chunk, in bytes."""
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
    """A reader of Thrift's compact protocol, in which Parquet writes the header of a page."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data, self.position = data, position

    def read_struct(self, depth: int = 0) -> dict[int, int]:
        """Read a struct; return its integers by field number."""
        if depth > 8:
            raise ValueError("nested too deep")
        integers, number = dict[int, int](), 0
        while head := self._read_byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._read_integer()
            if kind in (4, 5, 6):
                integers[number] = self._read_integer()
            else:
                self._skip(kind, depth)
        return integers

    def _skip(self, kind: int, depth: int) -> None:
        """Skip a value that is not an integer."""
        if kind in (1, 2):  # true and false, stored in the head of the field
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
        else:  # lists, sets and maps, which page headers do not contain
            raise ValueError("not the header of a page")

    def _read_byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]

    def _read_varint(self) -> int:
        value = shift = 0
        while (byte := self._read_byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("not a number")
        return value | byte << shift

    def _read_integer(self) -> int:
        value = self._read_varint()
        return value >> 1 ^ -(value & 1)


def _check_messages(data: Arrow) -> None:
    """Refuse an Arrow stream whose schema is very large, or whose batches unpack to too much."""

    def check() -> None:
        reader, dictionaries = pyarrow.ipc.MessageReader.open_stream(pa.BufferReader(data)), 0
        for _ in range(_MAX_PARTS):
            try:
                message = reader.read_next_message()
            except StopIteration:
                return
            if message.type == "schema" and message.metadata.size > _MAX_METADATA_BYTES:
                raise InvalidInput("the metadata of the body is too large: write fewer columns")
            if message.type in ("record batch", "dictionary"):
                size = _unpacked_size(memoryview(message.metadata), memoryview(message.body), message.type)
                dictionaries += size if message.type == "dictionary" else 0
                if max(size, dictionaries) > _MAX_UNPACKED_BYTES:
                    raise _too_large_error()
        raise InvalidInput("the body has too many batches: write larger ones")

    _hide_details(check)


def _unpacked_size(metadata: memoryview, body: memoryview, kind: str) -> int:
    """Return the size of a message's buffers once they are unpacked, in bytes.

    In Arrow's `Message.fbs` a message has its header as field 2; a dictionary has its record batch as field 1; a record
    batch has its buffers (pairs of offset and length) as field 2 and its compression as field 3. A compressed buffer
    begins with its unpacked length, or -1 if it is stored uncompressed.
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
    """Return the position of a field in a FlatBuffers table; None if it has its default value."""
    (back,) = struct.unpack_from("<i", data, table)
    (size,) = struct.unpack_from("<H", data, table - back)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", data, table - back + 4 + 2 * number)
    return table + offset if offset else None


def _follow_field(data: memoryview, table: int, number: int | None) -> int:
    """Return the position that a field points to; with None as its number, that the table's own offset points to."""
    place = table if number is None else _find_field(data, table, number)
    if place is None:
        raise ValueError("a field is missing")
    (offset,) = struct.unpack_from("<I", data, place)
    return place + int(offset)
