"""Pieces: a Parquet table split into parts that several processes read independently, and the number of its rows."""

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
    """Return the pieces of a table, in order; None if it is not Parquet.

    Only the footers of the files are read.

    Parameters
    ----------
    source : path, list of paths or frame
        The table.
    schema : Schema, optional
        The columns that will be read; files with incompatible types are then refused, as in `read_blocks`.
    max_rows : int
        The maximum number of rows in a piece; a single row group may have more.
    """
    whole_number("max_rows", max_rows)
    files = _parquet_files(source, schema)
    if files is None:
        return None
    pieces, before = list[Piece](), 0
    for file in files:
        rows, footer = file.footer.rows, file.footer.digest
        for first, end in pairwise(_cut_points(rows, max_rows)):
            if n := sum(rows[first:end]):
                pieces.append(Piece(file.place.address, (first, end), n, before, footer, file.partition))
                before += n
    return pieces


def read_piece(piece: Piece, schema: Schema, *, targets: bool = True, ids: bool = True) -> Iterator[Block]:
    """Yield the blocks of a piece. All pieces of a table together have the rows of `read_blocks`.

    Errors give row numbers within the file and counts within the piece. A file whose footer changed since the split is
    refused (`InvalidFile`).

    Parameters
    ----------
    piece : Piece
        A piece from `split_table`.
    schema, targets, ids
        As in `read_blocks`.
    """
    groups = RowGroups(*piece.groups, piece.footer)
    table = ParquetTable(locate_file(piece.path), piece.partition, groups)
    return read_table_blocks(table, schema, targets=targets, ids=ids)


def count_rows(source: Source) -> int | None:
    """Return the number of rows in Parquet, a frame or an array; None if counting would need to read them."""
    if isinstance(source, np.ndarray) or hasattr(source, "__arrow_c_stream__"):
        return len(source) if isinstance(source, Sized) else None
    files = _parquet_files(source, None)
    return None if files is None else sum(sum(file.footer.rows) for file in files)


def _parquet_files(source: Source, schema: Schema | None) -> list[ParquetTable] | None:
    """Return the files of a Parquet table after comparing their columns; None if it is not Parquet."""
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
    """Return the row groups at which pieces begin and end: at most ``max_rows`` rows each, or one row group."""
    cuts, held = [0], 0
    for k, n in enumerate(rows):
        if held and held + n > max_rows:
            cuts.append(k)
            held = 0
        held += n
    return [*cuts, len(rows)]
