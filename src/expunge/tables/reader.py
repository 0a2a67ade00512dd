"""Reading: the rows of a table as blocks of floats, refusals counted over the whole table."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import InvalidFile, InvalidInput
from ..exact.arrays import Floats
from .blocks import BLOCK_ROWS, Block, Made, check_parts
from .cells import Arrow, encode_batch, unpack_array
from .ids import encode_ids
from .messages import check_columns_exist, check_unique_names
from .schema import Schema
from .sources import Source, Table, array_to_stream, open_table


def read_blocks(
    source: Source, schema: Schema, *, targets: bool, ids: bool, allow_extra: bool = False
) -> Iterator[Block]:
    """Yield blocks of `BLOCK_ROWS` rows, only the last is shorter.

    Parameters
    ----------
    source : path, list of paths, frame or, to predict, array
        The table. A path may be a file, a glob, a folder or a URI.
    schema : Schema
        What its columns are.
    targets, ids : bool
        Whether to read the targets (the table is then one to learn from) and the ids. To learn from, ids are as the
        vault knows them; to predict, as they are written.
    allow_extra : bool
        Whether a table with targets may have columns that the schema does not mention, as one to predict for may.
    """
    table = open_table(array_to_stream(source, schema) if isinstance(source, np.ndarray) else source)
    rows = 0
    for block in read_table_blocks(table, schema, targets=targets, ids=ids, allow_extra=allow_extra):
        rows += len(block)
        yield block
    if targets and not rows:
        raise InvalidInput(f"{table.name} has no rows")


def read_table_blocks(
    table: Table, schema: Schema, *, targets: bool, ids: bool, allow_extra: bool = False
) -> Iterator[Block]:
    """Yield the blocks of a table that was opened, as `read_blocks` does; it may be without rows."""
    known = schema.read_id_column if targets else partial(encode_ids, name=f"column {schema.id!r}")
    schema.check_columns(
        _check_column_names(table), targets=targets, ids=ids, allow_extra=allow_extra, show_names=table.shows_names
    )

    def block(batch: Arrow) -> Block:
        X, y = encode_batch(schema, batch, targets=targets)
        return Block(X, y, known(batch.column(schema.id)) if ids else None)

    wanted = schema.columns_to_read(targets=targets, ids=ids)
    yield from check_parts(_rebatch(table.batches(wanted), wanted), block, table.describe_row)


def read_batches(source: Source, columns: Mapping[str, str], check: Callable[[Arrow], Made]) -> Iterator[Made]:
    """Yield what ``check`` makes of batches of `BLOCK_ROWS` rows with these columns; from CSV in the types named.

    A refusal has numbers of the whole table, as those of `read_blocks` do.
    """
    table = open_table(source)
    check_columns_exist(_check_column_names(table), columns, show_names=table.shows_names)
    return check_parts(_rebatch(table.batches(columns), columns), check, table.describe_row)


def read_column_types(source: Source) -> Arrow:
    """Return names and types of the columns, as a schema of pyarrow. In a CSV file the first rows decide the types."""
    table = open_table(source)
    _check_column_names(table)
    return table.types


def has_ids(source: Source, schema: Schema) -> bool:
    """Return whether a table to predict has the column of the ids."""
    return not isinstance(source, np.ndarray) and schema.id in read_column_types(source).names


def read_ids(source: Source, schema: Schema) -> list[bytes]:
    """Return the ids in a table, each once as it is first written, in the order in which they come."""
    name, found = str(schema.id), dict[bytes, bytes]()
    columns = read_batches(
        source, {name: "string"}, lambda batch: (schema.read_id_column(batch.column(name)), batch.column(name))
    )
    for ids, written in columns:
        for one, text in zip(ids, encode_ids(written), strict=True):
            found.setdefault(one, text)
    return list(found.values())


def _check_column_names(table: Table) -> list[str]:
    try:
        names: list[str] = table.types.names
    except UnicodeDecodeError:
        raise InvalidFile(f"{table.name} is damaged: the names of its columns are not UTF-8") from None
    check_unique_names(names, table.name)
    return names


def _rebatch(parts: Iterable[Arrow], columns: Iterable[str]) -> Iterator[Arrow]:
    """Yield the same rows in batches of `BLOCK_ROWS`, with only these columns."""
    names = list(columns)
    held: list[Arrow] = []
    rows = 0
    for part in (_unpack_dictionaries(part.select(names)) for part in parts):
        while rows + len(part) >= BLOCK_ROWS:
            cut = BLOCK_ROWS - rows
            yield _join_batches([*held, part.slice(0, cut)])
            held, rows, part = [], 0, part.slice(cut)
        if len(part):
            held.append(part)
            rows += len(part)
    if held:
        yield _join_batches(held)


def _unpack_dictionaries(batch: Arrow) -> Arrow:
    """Return a batch whose dictionaries are unpacked: those of two batches may have no room in one."""
    cells = [unpack_array(column) if pa.types.is_dictionary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(cells, names=batch.schema.names)


def _join_batches(parts: list[Arrow]) -> Arrow:
    try:
        return pa.concat_batches(parts)
    except pa.ArrowInvalid:  # more than 2**31 bytes
        raise InvalidInput(f"{BLOCK_ROWS:,} rows of text must have less than 2 GB; shorten the cells") from None


# Sampled rows: all rows of some people of a table, for a plan. Who they are depends on their ids alone.


_PERSON_HASH_KEY = b"expunge plan"


@dataclass(frozen=True, eq=False)
class RowSample:
    """Rows of a table, and whose they are; ``total`` is how many the table has."""

    X: Floats  # (n, d)
    y: Floats  # (n, t)
    people: NDArray[np.uint64]  # (n,), a hash of the id
    total: int


def sample_rows(source: Source, schema: Schema, max_rows: int) -> RowSample:
    """Read a table and keep the rows of as many people as have about ``most`` rows, those with the least hashes."""
    kept, total, limit = _RowCollector(), 0, 2**64 - 1
    for block in read_blocks(source, schema, targets=True, ids=schema.id is not None):
        assert block.y is not None
        people = _hash_people(block.ids, total, len(block))
        total += len(block)
        kept.add(block.X, block.y, people, people <= limit)
        if kept.rows > 2 * max_rows:
            limit = kept.thin(max_rows)
    kept.thin(max_rows)
    if not kept.rows:
        raise InvalidInput("the table has no rows to plan on")
    return RowSample(*kept.arrays(), total)


class _RowCollector:
    """Rows that are kept so far."""

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
        """Keep the people with the least hashes, who have at most ``most`` rows (or one of them more); their last."""
        X, y, people = self.arrays()
        if self.rows <= max_rows:
            return 2**64 - 1
        hashes, counts = np.unique(people, return_counts=True)
        last = hashes[max(0, int(np.searchsorted(np.cumsum(counts), max_rows, side="right")) - 1)]
        chosen = people <= last
        self._parts, self.rows = [(X[chosen], y[chosen], people[chosen])], int(chosen.sum())
        return int(last)


def _hash_people(ids: list[bytes] | None, before: int, rows: int) -> NDArray[np.uint64]:
    """A hash per row of whose it is; without ids each row is somebody else's."""
    named = [str(number).encode() for number in range(before, before + rows)] if ids is None else ids
    digests = b"".join(hashlib.blake2b(one, digest_size=8, key=_PERSON_HASH_KEY).digest() for one in named)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
