"""Parquet bodies, looked at before they are unpacked: a small one can say that it is very large."""

from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from ..errors import InvalidInput

_MOST_BYTES = 2**30  # of a table in memory
_AT_ONCE = 65_536  # rows that are unpacked together


def check_parquet(source: Path | BinaryIO, most_rows: int) -> None:
    """Refuse what has too many rows, or becomes too large; what is damaged as far as it is looked at, too."""
    try:
        with pa.parquet.ParquetFile(source) as file:
            about = file.metadata
            if about.num_rows > most_rows:
                raise InvalidInput(f"a request brings at most {most_rows:,} rows, got {about.num_rows:,}")
            groups = [about.row_group(k) for k in range(about.num_row_groups)]
            size = sum(group.total_byte_size for group in groups)
            if size > _MOST_BYTES or about.num_rows * about.num_columns * 8 > _MOST_BYTES:
                raise InvalidInput("the table is too large once it is unpacked")
            texts = [name for name, kind in zip(file.schema_arrow.names, file.schema_arrow.types, strict=True)
                     if _is_text(kind)]  # fmt: skip
        if texts:
            _check_texts(source, texts)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("the body cannot be read as Parquet") from None


def _check_texts(source: Path | BinaryIO, names: list[str]) -> None:
    """A long text is there once, and can be meant by every row: it is not unpacked before its length is known."""
    with pa.parquet.ParquetFile(source, read_dictionary=names) as file:
        for batch in file.iter_batches(_AT_ONCE, columns=names):
            for column in batch.columns:
                if _longest(column) * min(_AT_ONCE, batch.num_rows) > _MOST_BYTES:
                    raise InvalidInput("the texts of the table are too long")


def _longest(column: Any) -> int:
    words = column.dictionary if pa.types.is_dictionary(column.type) else column
    return pa.compute.max(pa.compute.binary_length(words)).as_py() or 0


def _is_text(kind: Any) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(test(kind) for test in tests)
