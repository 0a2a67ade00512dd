"""Many files as one table: one after the other, with the same columns in all."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import pyarrow as pa

from ....errors import InvalidInput
from ..cells.arrow import Arrow, is_text
from ..messages import check_different, listed, shown
from ..schema import is_row_label
from .common import cast, common_type
from .table import File

_LOOKS = 16  # at a time: a look at a file of another filesystem is mostly a wait for its answer


class Many:
    """Files of one format, read one after the other."""

    shows_names = True

    def __init__(self, name: str, files: Sequence[File]) -> None:
        self.name, self.files = name, files
        self._starts: list[int] = []  # rows before each file that was begun

    @cached_property
    def types(self) -> Arrow:
        return pa.schema([(field.name, self._common(field)) for field in self._kinds[0].types if _counts(field.name)])

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        types = self.check_types(columns)
        before, self._starts = 0, []
        for file in self.files:
            self._starts.append(before)
            for batch in file.batches(columns):
                yield _cast(batch, types, file)
                before += len(batch)

    def check_types(self, columns: Mapping[str, str]) -> dict[str, Arrow]:
        """Return the types that columns are read in, or refuse files that do not go together."""
        return {name: self._type_read(name, columns) for name in columns}

    def row(self, k: int) -> str:
        file = bisect_left(self._starts, k) - 1
        return self.files[file].row(k - self._starts[file])

    @cached_property
    def _kinds(self) -> list[File]:
        """The first file of each kind: those with the same types, and the same columns from their paths."""
        if any(file.place.filesystem is not None for file in self.files):
            with ThreadPoolExecutor(_LOOKS) as pool:
                list(pool.map(lambda file: file.types, self.files))
        found = dict[tuple[object, ...], File]()
        for file in self.files:
            _check_same(file, self.files[0])
            found.setdefault((file.types, *(name for name, _ in file.partition)), file)
        return list(found.values())

    def _common(self, field: Arrow) -> Arrow:
        """Return the type of a column; the first file's if there is none for all, which matters only if it is read."""
        return common_type(file.types.field(field.name).type for file in self._kinds) or field.type

    def _type_read(self, name: str, columns: Mapping[str, str]) -> Arrow:
        """Return the type that a column is read in, or refuse the first file whose cells do not go with the others'."""
        types = [file.type_read(name, columns) for file in self._kinds]
        for k, file in enumerate(self._kinds):
            common = common_type(types[: k + 1])
            mixed = common is not None and is_text(common) and not all(map(is_text, types[: k + 1]))
            if common is None or (mixed and columns[name] != "string"):
                here, there = f"{shown(types[k])} in {file.name}", f"{shown(types[0])} in {self._kinds[0].name}"
                raise InvalidInput(f"column {name!r} is {here}, but {there}; write it in one type to all files")
        return common


def _cast(batch: Arrow, types: Mapping[str, Arrow], file: File) -> Arrow:
    """Return columns of a batch in these types."""
    arrays = []
    for name, cells in types.items():
        try:
            arrays.append(cast(batch.column(name), cells))
        except pa.ArrowInvalid:  # it quotes the cell
            raise InvalidInput(f"column {name!r} of {file.name} has cells that have no room in {cells}") from None
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def _check_same(file: File, first: File) -> None:
    """Refuse a file whose columns have other names than the first's."""
    check_different(file.names, file.name)
    missing, more = _besides(first.names, file.names), _besides(file.names, first.names)
    if not (missing or more):
        return
    if file.names_are_sure:
        told = [f"{listed(names)} {how}" for names, how in ((missing, "missing"), (more, "only there")) if names]
        way_out = "write the same columns to all files"
    else:  # what look like names may be cells
        places = ", ".join(str(file.names.index(name) + 1) for name in more[:10])
        told = [f"{len(missing):,} missing"] * bool(missing) + [f"column {places} only there"] * bool(more)
        way_out = "does each begin with the same row of names?"
    raise InvalidInput(f"{file.name} has other columns than {first.name} ({'; '.join(told)}); {way_out}")


def _besides(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the columns that are not among others."""
    known = set(others)
    return [name for name in names if name not in known and _counts(name)]


def _counts(name: str) -> bool:
    return not is_row_label(name)
