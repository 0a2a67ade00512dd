"""Splitting: pieces of a Parquet table that several processes can read, each on its own, and how many rows it has."""

from collections.abc import Iterator, Sized
from itertools import pairwise

import numpy as np

from ..encoding.values import whole_number
from .blocks import BLOCK_ROWS, Block, Piece
from .reader import read_table_blocks
from .schema import Schema
from .sources import MultiFileTable, ParquetTable, RowGroups, Source, locate_file, open_table, table_files

MAX_PIECE_ROWS = 16 * BLOCK_ROWS


def split_table(source: Source, schema: Schema | None = None, *, max_rows: int = MAX_PIECE_ROWS) -> list[Piece] | None:
    """Return the pieces that make up a table, in its order; None if it has none, as it is no Parquet.

    Only the footers of the files are read.

    Parameters
    ----------
    source : path, list of paths or frame
        The table.
    schema : Schema, optional
        What will be read: files whose types do not go together are then refused, as `read_blocks` does.
    max_rows : int
        The most rows of a piece; one that is a single row group has as many as that has.
    """
    whole_number("max_rows", max_rows)
    files = _parquet_files(source, schema)
    if files is None:
        return None
    found, before = list[Piece](), 0
    for file in files:
        rows, footer = file.footer.rows, file.footer.digest
        for first, end in pairwise(_cut_points(rows, max_rows)):
            if n := sum(rows[first:end]):
                found.append(Piece(file.place.address, (first, end), n, before, footer, file.partition))
                before += n
    return found


def read_piece(piece: Piece, schema: Schema, *, targets: bool = True, ids: bool = True) -> Iterator[Block]:
    """Yield the blocks of a piece: all pieces one after the other have the rows of `read_blocks`.

    Numbers of rows in errors are those of the file, counts those of the piece. A file with another footer than when the
    piece was made is refused (`InvalidFile`).

    Parameters
    ----------
    piece : Piece
        One of `pieces`.
    schema, targets, ids
        As in `read_blocks`.
    """
    groups = RowGroups(*piece.groups, piece.footer)
    table = ParquetTable(locate_file(piece.path), piece.partition, groups)
    return read_table_blocks(table, schema, targets=targets, ids=ids)


def count_rows(source: Source) -> int | None:
    """Return how many rows a table has, if that is known without reading them: of Parquet, a frame or an array."""
    if isinstance(source, np.ndarray) or hasattr(source, "__arrow_c_stream__"):
        return len(source) if isinstance(source, Sized) else None
    files = _parquet_files(source, None)
    return None if files is None else sum(sum(file.footer.rows) for file in files)


def _parquet_files(source: Source, schema: Schema | None) -> list[ParquetTable] | None:
    """Return the files of a Parquet table, once their columns were compared; None if it is something else."""
    if hasattr(source, "__arrow_c_stream__") or isinstance(source, np.ndarray):
        return None
    table = open_table(source)
    files = [file for file in table_files(table) if isinstance(file, ParquetTable)]
    if not files:
        return None
    names = table.types.names
    if schema is not None and isinstance(table, MultiFileTable):
        schema.check_columns(names, targets=True, ids=True)
        table.check_types(schema.columns_to_read(targets=True, ids=True))
    return files


def _cut_points(rows: tuple[int, ...], max_rows: int) -> list[int]:
    """Return where the pieces of a file begin and end: consecutive row groups with at most so many rows, or one."""
    cuts, held = [0], 0
    for k, n in enumerate(rows):
        if held and held + n > max_rows:
            cuts.append(k)
            held = 0
        held += n
    return [*cuts, len(rows)]
