"""Sources: where record batches come from, be it files or a frame, however large they are.

`finding` says which files a path, glob, folder, list or URI stands for, `disks` where they lie, `partitions` what their
folders say about them. A file is streamed: memory does not grow with its rows; `many` are read one after the other.
A `body` is a table that somebody sent, read with limits.
pyarrow's errors quote cells, so none of them gets out: each is replaced by one that names the file, the column or the
number of the row.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import InvalidInput
from ..messages import hide_secrets, printable_text
from .formats import ArrowTable, CsvTable, ParquetTable, RowGroups
from .locations import FileLocation, find_files, locate_file
from .multi_file import MultiFileTable
from .stream import StreamTable, array_to_stream, is_read_once, load_stream, open_stream
from .table import FileTable, Table
from .upload import Upload, UploadTable

Source: TypeAlias = Any  # a path or many, an object with __arrow_c_stream__, a body or, to predict, an array

__all__ = [
    "MultiFileTable",
    "ParquetTable",
    "RowGroups",
    "Source",
    "Table",
    "Upload",
    "array_to_stream",
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
    """Return the table behind a path, several of them, or a frame."""
    if (words := _source_paths(source)) is not None:
        files = _open_files(words)
        name = printable_text(hide_secrets(str(words[0]))) if len(words) == 1 else "the table"
        return files[0] if len(files) == 1 else MultiFileTable(name, files)
    if isinstance(source, Upload):
        return UploadTable(source)
    if hasattr(source, "__arrow_c_stream__"):
        return StreamTable(source)
    kinds = "a path, or a frame of pyarrow, pandas or polars, or a list of paths"
    raise InvalidInput(f"a table must be {kinds}, got {type(source).__name__}")


def table_files(table: Table) -> Sequence[FileTable]:
    """Return the files of a table, in their order; those of a frame are none."""
    if isinstance(table, MultiFileTable):
        return table.files
    return [table] if isinstance(table, FileTable) else []


def overwrites(path: str | Path, source: Source) -> bool:
    """Return whether a file that is there is one that a table is read from."""
    out, words = Path(path), _source_paths(source)
    if words is None or not out.exists():
        return False
    return any(out.samefile(place.path) for place in find_files(words, _ENDINGS) if place.filesystem is None)


def _source_paths(source: Source) -> Sequence[str | Path] | None:
    """Return the paths that a source consists of; None if it is something else."""
    words = [source] if isinstance(source, (str, Path)) else source
    paths = isinstance(words, (list, tuple)) and all(isinstance(word, (str, Path)) for word in words)
    return words if paths else None


def _open_files(paths: Sequence[str | Path]) -> list[FileTable]:
    places = find_files(paths, _ENDINGS)
    forms = [_table_class(place) for place in places]
    if other := next((place for place, form in zip(places, forms, strict=True) if form is not forms[0]), None):
        raise InvalidInput(f"{places[0].name} and {other.name} are of different formats: a table has one")
    return [forms[0](place) for place in places]


def _table_class(place: FileLocation) -> type[FileTable]:
    form = next((form for endings, form in _TABLE_CLASSES.items() if place.path.lower().endswith(endings)), None)
    if form is None:
        raise InvalidInput(f"{place.name} must end in one of {', '.join(_ENDINGS)}")
    return form
