"""Reading: the rows of a table as blocks of floats, refusals counted over the whole table."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from ...errors import InvalidFile, InvalidInput
from .batches import encode
from .blocks import BLOCK_ROWS, Block, Made, checked
from .cells.arrow import Arrow, unpacked
from .ids import written_ids
from .messages import check_different, check_there
from .schema import Schema
from .sources import Source, Table, named, opened


def read_blocks(source: Source, schema: Schema, *, targets: bool, ids: bool, more: bool = False) -> Iterator[Block]:
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
    more : bool
        Whether a table with targets may have columns that the schema does not mention, as one to predict for may.
    """
    table = opened(named(source, schema) if isinstance(source, np.ndarray) else source)
    rows = 0
    for block in table_blocks(table, schema, targets=targets, ids=ids, more=more):
        rows += len(block)
        yield block
    if targets and not rows:
        raise InvalidInput(f"{table.name} has no rows")


def table_blocks(table: Table, schema: Schema, *, targets: bool, ids: bool, more: bool = False) -> Iterator[Block]:
    """Yield the blocks of a table that was opened, as `read_blocks` does; it may be without rows."""
    known = schema.ids_in if targets else partial(written_ids, name=f"column {schema.id!r}")
    schema.check(_names(table), targets=targets, ids=ids, more=more, show=table.shows_names)

    def block(batch: Arrow) -> Block:
        X, y = encode(schema, batch, targets=targets)
        return Block(X, y, known(batch.column(schema.id)) if ids else None)

    wanted = schema.wanted(targets=targets, ids=ids)
    yield from checked(_regular(table.batches(wanted), wanted), block, table.row)


def checked_batches(source: Source, columns: Mapping[str, str], check: Callable[[Arrow], Made]) -> Iterator[Made]:
    """Yield what ``check`` makes of batches of `BLOCK_ROWS` rows with these columns; from CSV in the types named.

    A refusal has numbers of the whole table, as those of `read_blocks` do.
    """
    table = opened(source)
    check_there(_names(table), columns, show=table.shows_names)
    return checked(_regular(table.batches(columns), columns), check, table.row)


def column_types(source: Source) -> Arrow:
    """Return names and types of the columns, as a schema of pyarrow. In a CSV file the first rows decide the types."""
    table = opened(source)
    _names(table)
    return table.types


def has_ids(source: Source, schema: Schema) -> bool:
    """Return whether a table to predict has the column of the ids."""
    return not isinstance(source, np.ndarray) and schema.id in column_types(source).names


def read_ids(source: Source, schema: Schema) -> list[bytes]:
    """Return the ids in a table, each once as it is first written, in the order in which they come."""
    name, found = str(schema.id), dict[bytes, bytes]()
    columns = checked_batches(
        source, {name: "string"}, lambda batch: (schema.ids_in(batch.column(name)), batch.column(name))
    )
    for ids, written in columns:
        for one, text in zip(ids, written_ids(written), strict=True):
            found.setdefault(one, text)
    return list(found.values())


def _names(table: Table) -> list[str]:
    try:
        names: list[str] = table.types.names
    except UnicodeDecodeError:
        raise InvalidFile(f"{table.name} is damaged: the names of its columns are not UTF-8") from None
    check_different(names, table.name)
    return names


def _regular(parts: Iterable[Arrow], columns: Iterable[str]) -> Iterator[Arrow]:
    """Yield the same rows in batches of `BLOCK_ROWS`, with only these columns."""
    names = list(columns)
    held: list[Arrow] = []
    rows = 0
    for part in (_without_dictionaries(part.select(names)) for part in parts):
        while rows + len(part) >= BLOCK_ROWS:
            cut = BLOCK_ROWS - rows
            yield _joined([*held, part.slice(0, cut)])
            held, rows, part = [], 0, part.slice(cut)
        if len(part):
            held.append(part)
            rows += len(part)
    if held:
        yield _joined(held)


def _without_dictionaries(batch: Arrow) -> Arrow:
    """Return a batch whose dictionaries are unpacked: those of two batches may have no room in one."""
    cells = [unpacked(column) if pa.types.is_dictionary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(cells, names=batch.schema.names)


def _joined(parts: list[Arrow]) -> Arrow:
    try:
        return pa.concat_batches(parts)
    except pa.ArrowInvalid:  # more than 2**31 bytes
        raise InvalidInput(f"{BLOCK_ROWS:,} rows of text must have less than 2 GB; shorten the cells") from None
