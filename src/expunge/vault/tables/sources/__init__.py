"""Sources: where record batches come from, be it a file or a frame, however large it is.

A file is streamed: memory does not grow with its rows. pyarrow's errors quote cells, so none of them gets out: each is
replaced by one that names the file, the column or the number of the row.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from ....errors import InvalidInput
from ..messages import shown
from .binary import ArrowFile, Parquet
from .csvfile import Csv
from .stream import Stream, kept, named, read_once, taken
from .table import Table

Source: TypeAlias = Any  # a path, an object with __arrow_c_stream__ or, to predict, an array

__all__ = ["Source", "Table", "kept", "named", "opened", "read_once", "taken"]

_FORMATS: dict[tuple[str, ...], Callable[[Path], Table]] = {
    (".csv", ".csv.gz", ".tsv", ".tsv.gz"): Csv,
    (".parquet", ".pq"): Parquet,
    (".arrow", ".feather", ".ipc"): ArrowFile,
}


def opened(source: Source) -> Table:
    """Return the table behind a path or a frame."""
    if isinstance(source, (str, Path)):
        return _file(Path(source))
    if hasattr(source, "__arrow_c_stream__"):
        return Stream(source)
    raise InvalidInput(f"a table must be a path, or a frame of pyarrow, pandas or polars, got {type(source).__name__}")


def _file(path: Path) -> Table:
    form = next((form for endings, form in _FORMATS.items() if path.name.lower().endswith(endings)), None)
    if form is None:
        endings = ", ".join(ending for endings in _FORMATS for ending in endings)
        raise InvalidInput(f"{shown(path)} must end in one of {endings}")
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would be waited for, with the lock held
            raise InvalidInput(f"{shown(path)} is not a plain file: a table is read more than once, write it to one")
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError:
        raise InvalidInput(f"no such file: {shown(path)}") from None
    except OSError as error:
        raise InvalidInput(f"{shown(path)} cannot be read: {error.strerror}") from None
    if empty:
        raise InvalidInput(f"{shown(path)} is empty")
    return form(path)
