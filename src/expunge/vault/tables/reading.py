"""Tables: rows from files and frames as blocks of floats, however large the table is.

A file is streamed: memory does not grow with its rows. pyarrow's errors quote cells, so none of them gets out: each is
replaced by one that names the file, the column or the number of the row.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from ...errors import ExpungeError, InvalidFile, InvalidInput
from ...exact.arrays import Floats
from .kinds import Arrow, Boolean, Number, WrongCell, is_text, listed, repeated, unpacked
from .schema import Schema, check_there

Source: TypeAlias = Any  # a path, an object with __arrow_c_stream__ or, to predict, an array

BLOCK_ROWS = 65_536  # slots are drawn block by block: another number would give another model
_BUFFER = 1 << 20  # bytes
_EXPECTED = {"double": Number.cells, "bool": Boolean.cells, "string": "text in UTF-8"}


@dataclass(frozen=True, eq=False)
class Block:
    """Rows in the order of the table."""

    X: Floats  # (n, d)
    y: Floats | None  # (n, t)
    ids: list[bytes] | None


def blocks(source: Source, schema: Schema, *, targets: bool, ids: bool) -> Iterator[Block]:
    """Blocks of `BLOCK_ROWS` rows, only the last is shorter. With ``targets`` the table is one to learn from."""
    table = _opened(_named(source, schema) if isinstance(source, np.ndarray) else source)
    schema.check(_names(table), targets=targets, ids=ids)
    rows = 0
    wanted = schema.wanted(targets=targets, ids=ids)
    for batch in _regular(table.batches(wanted), wanted):
        X, y = schema.encode(batch, targets=targets)
        rows += len(X)
        yield Block(X, y, id_bytes(batch.column(schema.id), name=f"column {schema.id!r}") if ids else None)
    if targets and not rows:
        raise InvalidInput(f"{table.name} has no rows")


def batches(source: Source, columns: Mapping[str, Arrow]) -> Iterator[Arrow]:
    """These columns in record batches of `BLOCK_ROWS` rows, only the last is shorter; from CSV in the types given."""
    table = _opened(source)
    check_there(_names(table), columns)
    return _regular(table.batches(columns), columns)


def types(source: Source) -> Arrow:
    """Names and types of the columns, as a schema of pyarrow. In a CSV file the first rows decide the types."""
    table = _opened(source)
    _names(table)
    return table.types


def id_bytes(ids: Any, *, name: str = "ids") -> list[bytes]:
    """Ids as UTF-8: one or many, text or whole numbers. 4711 and "4711" are the same."""
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        ids = pa.array(ids.ravel())
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if isinstance(ids, pa.Array):
        found: list[bytes] = id_text(ids, name).cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
        return found
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        ids = [ids]
    return [_id(one) for one in ids]


def id_text(array: Arrow, name: str) -> Arrow:
    """A column of ids as text."""
    array = unpacked(array)
    cells = array.type
    whole = pa.types.is_integer(cells) or (pa.types.is_decimal(cells) and cells.scale == 0)
    if not (whole or is_text(cells)):
        raise InvalidInput(f"{name} must hold ids, which are text or whole numbers, got {cells}")
    text = array.cast(pa.large_string())
    if is_text(cells) and len(text) and pc.all(pc.match_substring_regex(text, r"^-?\d+\.0+$")).as_py():
        raise InvalidInput(f"{name} holds whole numbers that were written as 1.0: nobody would be found by 1; write 1")
    if gaps := pc.sum(pc.equal(text.fill_null(""), "")).as_py():
        raise InvalidInput(f"{name} has {gaps} rows without an id; give each row the id of its person")
    return text


def _id(one: object) -> bytes:
    if isinstance(one, (str, int, np.integer)) and not isinstance(one, bool) and one != "":
        try:
            return str(one).encode()
        except UnicodeEncodeError:
            raise InvalidInput("an id has characters that UTF-8 does not have") from None
    raise InvalidInput(f"an id must be text that is not empty, or a whole number, got {type(one).__name__}")


class _Table(Protocol):
    name: str

    @property
    def types(self) -> Arrow: ...

    def batches(self, columns: Mapping[str, Arrow]) -> Iterator[Arrow]: ...


class _File:
    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)


class _Csv(_File):
    @cached_property
    def types(self) -> Arrow:
        with self._unquoted(()), self._reader() as reader:
            return pa.schema(zip(reader.schema.names, reader.schema.types, strict=True))

    def batches(self, columns: Mapping[str, Arrow]) -> Iterator[Arrow]:
        with self._unquoted(self.types.names), self._reader(columns) as reader:
            yield from reader

    def _unquoted(self, names: Sequence[str]) -> AbstractContextManager[None]:
        return _unquoted(partial(_csv_error, self.name, names))

    def _reader(self, columns: Mapping[str, Arrow] | None = None) -> Any:
        name = self.path.name.lower()
        delimiter = "\t" if name.removesuffix(".gz").endswith(".tsv") else ","
        return pyarrow.csv.open_csv(
            pa.input_stream(self.path, compression="gzip" if name.endswith(".gz") else None),
            # One thread: only then does an error know the number of its row. Two were not faster.
            pyarrow.csv.ReadOptions(use_threads=False, block_size=_BUFFER),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types=columns, include_columns=list(columns or ())),
        )


class _Binary(_File):
    def _unquoted(self) -> AbstractContextManager[None]:
        return _unquoted(lambda _: InvalidFile(f"{self.name} is damaged, or not of the format that its name says"))


class _Parquet(_Binary):
    @cached_property
    def types(self) -> Arrow:
        with self._unquoted(), self._file() as file:
            return file.schema_arrow

    def batches(self, columns: Mapping[str, Arrow]) -> Iterator[Arrow]:
        with self._unquoted(), self._file() as file:
            yield from file.iter_batches(BLOCK_ROWS, columns=list(columns))

    def _file(self) -> Any:
        # Without a buffer a whole row group is read at once, and that may be the whole file.
        return pyarrow.parquet.ParquetFile(self.path, buffer_size=_BUFFER, pre_buffer=False)


class _ArrowFile(_Binary):
    """Arrow's two formats: with an index at the end (also called Feather), and without (a stream)."""

    @cached_property
    def types(self) -> Arrow:
        with self._unquoted(), self._reader() as reader:
            return reader.schema

    def batches(self, columns: Mapping[str, Arrow]) -> Iterator[Arrow]:
        places = [self.types.names.index(name) for name in columns]
        with self._unquoted(), self._reader(places) as reader:
            for batch in map(reader.get_batch, range(reader.num_record_batches)) if self._indexed else reader:
                batch.validate(full=True)  # pyarrow believes the offsets in a file, and would read wherever they point
                yield batch

    @cached_property
    def _indexed(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(6) == b"ARROW1"

    def _reader(self, places: Sequence[int] | None = None) -> Any:
        # A map and not a read: one batch may be the whole file.
        data, options = pa.memory_map(self.name), pyarrow.ipc.IpcReadOptions(included_fields=places)
        return (pyarrow.ipc.open_file if self._indexed else pyarrow.ipc.open_stream)(data, options=options)


class _Stream:
    """A table in memory, or one that somebody else streams."""

    name = "the table"

    def __init__(self, source: Any) -> None:
        with self._unquoted():
            self.reader = pa.RecordBatchReader.from_stream(source)

    @property
    def types(self) -> Arrow:
        return self.reader.schema

    def batches(self, columns: Mapping[str, Arrow]) -> Iterator[Arrow]:
        with self._unquoted():
            yield from self.reader

    def _unquoted(self) -> AbstractContextManager[None]:
        return _unquoted(_stream_error)


_FORMATS: dict[tuple[str, ...], Callable[[Path], _Table]] = {
    (".csv", ".csv.gz", ".tsv", ".tsv.gz"): _Csv,
    (".parquet", ".pq"): _Parquet,
    (".arrow", ".feather", ".ipc"): _ArrowFile,
}


def _opened(source: Source) -> _Table:
    if isinstance(source, (str, Path)):
        return _file(Path(source))
    if hasattr(source, "__arrow_c_stream__"):
        return _Stream(source)
    raise InvalidInput(f"a table must be a path, or a frame of pyarrow, pandas or polars, got {type(source).__name__}")


def _file(path: Path) -> _Table:
    form = next((form for endings, form in _FORMATS.items() if path.name.lower().endswith(endings)), None)
    if form is None:
        endings = ", ".join(ending for endings in _FORMATS for ending in endings)
        raise InvalidInput(f"{path} must end in one of {endings}")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError:
        raise InvalidInput(f"no such file: {path}") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    if empty:
        raise InvalidInput(f"{path} is empty")
    return form(path)


def _names(table: _Table) -> list[str]:
    names: list[str] = table.types.names
    if twice := repeated(names):
        raise InvalidInput(f"{table.name}: columns must have different names; there more than once: {listed(twice)}")
    return names


def _named(array: Any, schema: Schema) -> Any:
    """An array whose columns are the schema's inputs, as a stream."""
    wanted = schema.wanted(targets=False, ids=False)
    if others := [name for name, cells in wanted.items() if is_text(cells)]:
        raise InvalidInput(f"an array holds only numbers, but {listed(others)} are not; give a table with names")
    if array.ndim != 2 or array.shape[1] != len(wanted) or array.dtype.kind not in "biuf":
        raise InvalidInput(f"an array must be numbers of shape (n, {len(wanted)}), got {array.dtype} {array.shape}")
    parts = (array[start : start + BLOCK_ROWS].T.astype(np.float64) for start in range(0, len(array), BLOCK_ROWS))
    types = pa.schema([(name, pa.float64()) for name in wanted])
    return pa.RecordBatchReader.from_batches(types, (pa.record_batch(list(part), schema=types) for part in parts))


def _regular(parts: Iterable[Arrow], columns: Iterable[str]) -> Iterator[Arrow]:
    """The same rows in batches of `BLOCK_ROWS`, and only these columns."""
    names = list(columns)
    held: list[Arrow] = []
    rows = 0
    for part in (part.select(names) for part in parts):
        while rows + len(part) >= BLOCK_ROWS:
            cut = BLOCK_ROWS - rows
            yield pa.concat_batches([*held, part.slice(0, cut)])
            held, rows, part = [], 0, part.slice(cut)
        if len(part):
            held.append(part)
            rows += len(part)
    if held:
        yield pa.concat_batches(held)


@contextmanager
def _unquoted(told: Callable[[str], ExpungeError]) -> Iterator[None]:
    """Tell an error of pyarrow in other words: its own quote cells."""
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise told(str(error)) from None


def _stream_error(message: str) -> ExpungeError:
    column = re.search(r"Conversion failed for column (.+) with type", message)
    where = f"column {column[1]!r}" if column else "a column"
    return InvalidInput(f"the table cannot be read: {where} is of mixed types, or a name is there twice")


def _csv_error(name: str, names: Sequence[str], message: str) -> ExpungeError:
    """What pyarrow says of a CSV file, without the cells that it quotes."""
    if found := re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+)", message):
        return WrongCell(names[int(found[1])], _EXPECTED.get(found[3], found[3]), f"row {found[2]} of {name}")
    if found := re.match(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message):
        return InvalidInput(f"{name}: row {found[1]} has {found[3]} cells, but the header {found[2]}")
    if re.match("(CSV parse error: )?Empty CSV file", message):
        return InvalidInput(f"{name} is empty")
    return InvalidFile(f"{name} is damaged, or not CSV in UTF-8")
