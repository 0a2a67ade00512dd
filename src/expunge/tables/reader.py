"""Reading: the rows of a table as blocks of floats; refusals are counted over the whole table."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..exact.arrays import Floats
from .blocks import BLOCK_ROWS, Block, Checked, check_parts
from .cells import Arrow, column_to_floats, encode_batch, fill_gaps, read_numbers, stack_columns, unpack_array
from .ids import encode_ids, hash_ids, sample_positions
from .kinds import Boolean, Number
from .messages import check_columns_exist, check_unique_names, quote_names
from .schema import Schema
from .sources import JsonTable, Source, Table, open_table


def read_blocks(
    source: Source, schema: Schema, *, targets: bool, ids: bool, allow_extra: bool = False
) -> Iterator[Block]:
    """Yield blocks of `BLOCK_ROWS` rows; only the last is shorter.

    Parameters
    ----------
    source : path, list of paths, frame or, to predict, array
        The table. A path may be a file, a glob, a folder or a URI.
    schema : Schema
        The kinds of its columns.
    targets, ids : bool
        Whether to read the targets (as for training) and the ids. With targets, ids are returned in the normal form of
        a vault; without, as written.
    allow_extra : bool
        Whether a table with targets may have columns that the schema does not mention. Without targets it always may.
    """
    if isinstance(source, np.ndarray):
        yield from _read_array(source, schema, targets=targets, ids=ids)
        return
    table, rows = open_table(source), 0
    for block in read_table_blocks(table, schema, targets=targets, ids=ids, allow_extra=allow_extra):
        rows += len(block)
        yield block
    if targets and not rows:
        raise InvalidInput(f"{table.name} has no rows")


def read_table_blocks(
    table: Table, schema: Schema, *, targets: bool, ids: bool, allow_extra: bool = False
) -> Iterator[Block]:
    """Yield the blocks of an opened table, as `read_blocks` does; a table without rows is accepted."""
    names = _check_column_names(table)
    schema.check_columns(names, targets=targets, ids=ids, allow_extra=allow_extra, show_names=table.shows_names)
    if isinstance(table, JsonTable) and not (targets or ids):
        yield from _read_json(table, schema)
        return
    read_ids = schema.read_id_column if targets else partial(encode_ids, name=f"column {schema.id!r}")

    def encode(batch: Arrow) -> Block:
        X, y = encode_batch(schema, batch, targets=targets)
        return Block(X, y, read_ids(batch.column(schema.id)) if ids else None)

    columns = schema.columns_to_read(targets=targets, ids=ids)
    yield from check_parts(_rebatch(table.batches(columns), columns), encode, table.describe_row)


def _read_json(table: JsonTable, schema: Schema) -> Iterator[Block]:
    """Yield the inputs of JSON rows. Columns of numbers become arrays directly, all others through Arrow."""
    kinds = schema.input_kinds

    def encode(rows: range) -> Block:
        values = dict[str, Floats]()
        for name, cells in table.read_columns(kinds, rows).items():
            kind: Any = kinds[name]
            read = read_numbers if isinstance(cells, np.ndarray) else column_to_floats
            values[name] = read(kind, name, cells)
        fill_gaps(kinds, values, len(rows))
        return Block(stack_columns(kinds, values, len(rows), len(schema.inputs)), None, None)

    return check_parts(table.row_ranges(BLOCK_ROWS), encode, table.describe_row)


def _read_array(array: NDArray[np.generic], schema: Schema, *, targets: bool, ids: bool) -> Iterator[Block]:
    """Yield the rows of an array whose columns are the schema's inputs, in their order."""
    kinds = {name: kind for name, kind in schema.input_kinds.items() if isinstance(kind, (Number, Boolean))}
    if others := [name for name in schema.input_kinds if name not in kinds]:
        raise InvalidInput(f"an array holds only numbers, but {quote_names(others)} are not; give a table with names")
    if array.ndim != 2 or array.shape[1] != len(kinds) or array.dtype.kind not in "biuf":
        raise InvalidInput(f"an array must be numbers of shape (n, {len(kinds)}), got {array.dtype} {array.shape}")
    schema.check_columns(list(kinds), targets=targets, ids=ids)  # refuses: an array has neither

    def encode(rows: NDArray[np.generic]) -> Block:
        X: Floats = rows.astype(np.float64, order="C") + 0.0  # a copy, without -0.0
        values = {name: read_numbers(kind, name, X[:, j]) for j, (name, kind) in enumerate(kinds.items())}
        fill_gaps(kinds, values, len(X))
        return Block(X, None, None)

    parts = (array[start : start + BLOCK_ROWS] for start in range(0, len(array), BLOCK_ROWS))
    return check_parts(parts, encode, "row {} of the table".format)


def read_batches(source: Source, columns: Mapping[str, str], check: Callable[[Arrow], Checked]) -> Iterator[Checked]:
    """Yield the result of ``check`` for batches of `BLOCK_ROWS` rows of these columns; CSV is read in the named types.

    A refusal has numbers of the whole table, as in `read_blocks`.
    """
    table = open_table(source)
    check_columns_exist(_check_column_names(table), columns, show_names=table.shows_names)
    return check_parts(_rebatch(table.batches(columns), columns), check, table.describe_row)


def read_column_types(source: Source) -> Arrow:
    """Return names and types of the columns, as a pyarrow schema. In a CSV file the first rows decide the types."""
    table = open_table(source)
    _check_column_names(table)
    return table.types


def has_ids(source: Source, schema: Schema) -> bool:
    """Return whether a table to predict has the column of ids."""
    return not isinstance(source, np.ndarray) and schema.id in read_column_types(source).names


def read_ids(source: Source, schema: Schema) -> list[bytes]:
    """Return the distinct ids in a table, each as first written, in the order of the table."""
    name, first_written = str(schema.id), dict[bytes, bytes]()
    columns = read_batches(
        source, {name: "string"}, lambda batch: (schema.read_id_column(batch.column(name)), batch.column(name))
    )
    for ids, written in columns:
        for normal, text in zip(ids, encode_ids(written), strict=True):
            first_written.setdefault(normal, text)
    return list(first_written.values())


def _check_column_names(table: Table) -> list[str]:
    check_unique_names(table.names, table.name)
    return table.names


def _rebatch(batches: Iterable[Arrow], columns: Iterable[str]) -> Iterator[Arrow]:
    """Yield the same rows in batches of `BLOCK_ROWS`, with only these columns."""
    names = list(columns)
    held: list[Arrow] = []
    rows = 0
    for batch in (_unpack_dictionaries(batch.select(names)) for batch in batches):
        while rows + len(batch) >= BLOCK_ROWS:
            cut = BLOCK_ROWS - rows
            yield _join_batches([*held, batch.slice(0, cut)])
            held, rows, batch = [], 0, batch.slice(cut)
        if len(batch):
            held.append(batch)
            rows += len(batch)
    if held:
        yield _join_batches(held)


def _unpack_dictionaries(batch: Arrow) -> Arrow:
    """Return a batch without dictionaries: those of two batches may be too large for one."""
    cells = [unpack_array(column) if pa.types.is_dictionary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(cells, names=batch.schema.names)


def _join_batches(batches: list[Arrow]) -> Arrow:
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid:  # more than 2**31 bytes
        raise InvalidInput(f"{BLOCK_ROWS:,} rows of text must have less than 2 GB; shorten the cells") from None


@dataclass(frozen=True, eq=False)
class RowSample:
    """Rows of some people of a table, for a plan; ``total`` is the number of rows in the table."""

    X: Floats  # (n, d)
    y: Floats  # (n, t)
    people: NDArray[np.uint64]  # (n,), the keyed hash of each row's id
    total: int


def sample_rows(source: Source, schema: Schema, max_rows: int, key: bytes) -> RowSample:
    """Read a table and keep up to ``max_rows`` rows of the people with the smallest keyed hashes (`sample_positions`).

    Which people these are depends on the key and their ids alone.
    """
    kept, total, limit = _RowCollector(), 0, 2**64 - 1
    for block in read_blocks(source, schema, targets=True, ids=schema.id is not None):
        assert block.y is not None
        # Without ids each row counts as a person of its own.
        ids = [str(number).encode() for number in range(total, total + len(block))] if block.ids is None else block.ids
        people = hash_ids(ids, key)
        total += len(block)
        kept.add(block.X, block.y, people, people <= limit)
        if kept.rows > 2 * max_rows:
            limit = kept.thin(max_rows)
    kept.thin(max_rows)
    if not kept.rows:
        raise InvalidInput("the table has no rows to plan on")
    return RowSample(*kept.arrays(), total)


class _RowCollector:
    """The rows kept so far."""

    def __init__(self) -> None:
        self._parts: list[tuple[Floats, Floats, NDArray[np.uint64]]] = []
        self.rows = 0

    def add(self, X: Floats, y: Floats, people: NDArray[np.uint64], chosen: NDArray[np.bool_]) -> None:
        self._parts.append((X[chosen], y[chosen], people[chosen]))
        self.rows += int(chosen.sum())

    def arrays(self) -> tuple[Floats, Floats, NDArray[np.uint64]]:
        X, y, people = zip(*self._parts, strict=True)
        return np.concatenate(X), np.concatenate(y), np.concatenate(people)

    def thin(self, max_rows: int) -> int:
        """Keep the rows of a sample of this size, in the order of the table; return the largest hash that counts."""
        X, y, people = self.arrays()
        chosen = np.sort(sample_positions(people, max_rows))
        self._parts, self.rows = [(X[chosen], y[chosen], people[chosen])], len(chosen)
        return int(self._parts[0][2].max()) if len(chosen) == max_rows else 2**64 - 1
