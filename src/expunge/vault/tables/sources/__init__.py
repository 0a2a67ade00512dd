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

from ....errors import InvalidInput
from ..messages import shown, without_secrets
from .binary import ArrowFile
from .body import Body, BodyTable
from .csvfile import Csv
from .disks import Place, place_at
from .finding import found_places
from .many import Many
from .parquet import Groups, Parquet
from .stream import Stream, kept, named, read_once, taken
from .table import File, Table

Source: TypeAlias = Any  # a path or many, an object with __arrow_c_stream__, a body or, to predict, an array

__all__ = [
    "Body",
    "Groups",
    "Many",
    "Parquet",
    "Source",
    "Table",
    "files_of",
    "kept",
    "named",
    "opened",
    "overwrites",
    "place_at",
    "read_once",
    "taken",
]

_FORMATS: dict[tuple[str, ...], type[File]] = {
    (".csv", ".csv.gz", ".tsv", ".tsv.gz"): Csv,
    (".parquet", ".pq"): Parquet,
    (".arrow", ".feather", ".ipc"): ArrowFile,
}
_ENDINGS = tuple(ending for endings in _FORMATS for ending in endings)


def opened(source: Source) -> Table:
    """Return the table behind a path, several of them, or a frame."""
    if (words := _words(source)) is not None:
        files = _files(words)
        name = shown(without_secrets(str(words[0]))) if len(words) == 1 else "the table"
        return files[0] if len(files) == 1 else Many(name, files)
    if isinstance(source, Body):
        return BodyTable(source)
    if hasattr(source, "__arrow_c_stream__"):
        return Stream(source)
    kinds = "a path, or a frame of pyarrow, pandas or polars, or a list of paths"
    raise InvalidInput(f"a table must be {kinds}, got {type(source).__name__}")


def files_of(table: Table) -> Sequence[File]:
    """Return the files of a table, in their order; those of a frame are none."""
    if isinstance(table, Many):
        return table.files
    return [table] if isinstance(table, File) else []


def overwrites(path: str | Path, source: Source) -> bool:
    """Return whether a file that is there is one that a table is read from."""
    out, words = Path(path), _words(source)
    if words is None or not out.exists():
        return False
    return any(out.samefile(place.path) for place in found_places(words, _ENDINGS) if place.filesystem is None)


def _words(source: Source) -> Sequence[str | Path] | None:
    """Return the paths that a source consists of; None if it is something else."""
    words = [source] if isinstance(source, (str, Path)) else source
    paths = isinstance(words, (list, tuple)) and all(isinstance(word, (str, Path)) for word in words)
    return words if paths else None


def _files(words: Sequence[str | Path]) -> list[File]:
    places = found_places(words, _ENDINGS)
    forms = [_form(place) for place in places]
    if other := next((place for place, form in zip(places, forms, strict=True) if form is not forms[0]), None):
        raise InvalidInput(f"{places[0].name} and {other.name} are of different formats: a table has one")
    return [forms[0](place) for place in places]


def _form(place: Place) -> type[File]:
    form = next((form for endings, form in _FORMATS.items() if place.path.lower().endswith(endings)), None)
    if form is None:
        raise InvalidInput(f"{place.name} must end in one of {', '.join(_ENDINGS)}")
    return form
