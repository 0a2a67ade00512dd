"""Sources: record batches from files of any size, from frames and from uploads.

`locations` finds the files of a path, glob, folder, list or URI; `table` states what every source offers, and reads
columns from the names of folders; `formats` reads CSV, Parquet and Arrow, and frames; `multi_file` reads several
files as one table; `upload` reads what a client sent, with limits. Files are streamed: memory does not grow
with the number of rows.

pyarrow's errors quote cells, so none of them is passed on: each is replaced by one that names the file, the column or
the number of the row.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import InvalidInput
from ..messages import hide_secrets, printable_text
from .formats import (
    ArrowTable,
    CsvTable,
    ParquetTable,
    RowGroups,
    StreamTable,
    is_read_once,
    load_stream,
    open_stream,
)
from .locations import find_files, locate_file
from .multi_file import MultiFileTable
from .table import FileTable, Table
from .upload import JsonTable, Upload, UploadTable

Source: TypeAlias = Any  # a path or several, an object with __arrow_c_stream__, an upload or, to predict, an array

__all__ = [
    "JsonTable",
    "MultiFileTable",
    "ParquetTable",
    "RowGroups",
    "Source",
    "Table",
    "Upload",
    "is_read_once",
    "load_stream",
    "locate_file",
    "open_stream",
    "open_table",
    "overwrites",
    "table_files",
]

_TABLE_CLASSES: dict[tuple[str, ...], type[FileTable]] = {
    (".csv", ".csv.gz", ".tsv", ".tsv.gz"): CsvTable,
    (".parquet", ".pq"): ParquetTable,
    (".arrow", ".feather", ".ipc"): ArrowTable,
}
_ENDINGS = tuple(ending for endings in _TABLE_CLASSES for ending in endings)


def open_table(source: Source) -> Table:
    """Return the table of a path or several, a frame or an upload."""
    if (paths := _source_paths(source)) is not None:
        files = _open_files(paths)
        name = printable_text(hide_secrets(str(paths[0]))) if len(paths) == 1 else "the table"
        return files[0] if len(files) == 1 else MultiFileTable(name, files)
    if isinstance(source, Upload):
        return JsonTable(source) if isinstance(source.data, (list, dict)) else UploadTable(source)
    if hasattr(source, "__arrow_c_stream__"):
        return StreamTable(source)
    kinds = "a path, a list of paths, or a frame of pyarrow, pandas or polars"
    raise InvalidInput(f"a table must be {kinds}, got {type(source).__name__}")


def table_files(table: Table) -> Sequence[FileTable]:
    """Return the files of a table, in order; a frame has none."""
    if isinstance(table, MultiFileTable):
        return table.files
    return [table] if isinstance(table, FileTable) else []


def overwrites(path: str | Path, source: Source) -> bool:
    """Return whether writing to ``path`` would overwrite a file that the table is read from."""
    out, paths = Path(path), _source_paths(source)
    if paths is None or not out.exists():
        return False
    return any(out.samefile(place.path) for place in find_files(paths, _ENDINGS) if place.filesystem is None)


def _source_paths(source: Source) -> Sequence[str | Path] | None:
    """Return the paths of a source; None if it is something else."""
    paths = [source] if isinstance(source, (str, Path)) else source
    are_paths = isinstance(paths, (list, tuple)) and all(isinstance(path, (str, Path)) for path in paths)
    return paths if are_paths else None


def _open_files(paths: Sequence[str | Path]) -> list[FileTable]:
    places, files = find_files(paths, _ENDINGS), list[FileTable]()
    for place in places:
        name = place.path.lower()
        table = next((table for endings, table in _TABLE_CLASSES.items() if name.endswith(endings)), None)
        if table is None:
            raise InvalidInput(f"{place.name} must end in one of {', '.join(_ENDINGS)}")
        files.append(table(place))
    if other := next((file for file in files if type(file) is not type(files[0])), None):
        raise InvalidInput(f"{files[0].name} and {other.name} have different formats: a table has one")
    return files
