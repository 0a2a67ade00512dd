"""Many files as one table: one after the other, with the same columns in all."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import pyarrow as pa

from ...errors import InvalidInput
from ..cells import Arrow, is_text, to_microseconds, unpack_array, unpack_type
from ..messages import check_unique_names, printable_text, quote_names
from ..schema import is_row_label
from .table import FileTable

# Common types: one for a column that files hold in several, such that every cell is read as in its own.
# A cell is one float or one text whatever its type is: 7 as int32, as float or as decimal is the same number, and 7
# the same category or id as "7". So casts that keep this are allowed, and no others.


_WHOLE_NUMBER = pa.decimal128(38, 0)  # has room for any integer


def find_common_type(types: Iterable[Arrow]) -> Arrow | None:
    """Return a type for the cells of all these; None if there is none."""
    some = list(dict.fromkeys(types))
    if len(some) == 1:
        return some[0]
    plain = [cells for cells in map(unpack_type, some) if not pa.types.is_null(cells)]
    if len(set(plain)) <= 1 and not any(map(is_text, plain)):
        return plain[0] if plain else pa.null()
    for fits, kind in (
        (is_text, pa.large_string()),
        (_is_small_integer, pa.int64()),
        (_is_whole_number, _WHOLE_NUMBER),
        (_is_number, pa.float64()),
        (pa.types.is_date, pa.date32()),
        (lambda cells: pa.types.is_date(cells) or pa.types.is_timestamp(cells), pa.timestamp("us")),
        (lambda cells: is_text(cells) or _is_whole_number(cells), pa.large_string()),
    ):
        if all(map(fits, plain)):
            return kind
    return None


def cast_cells(array: Arrow, kind: Arrow) -> Arrow:
    """Return cells in the common type of their column; a time out of range raises ``ArrowInvalid``."""
    if array.type == kind:
        return array
    array = unpack_array(array)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        array = array.cast(pa.large_string())  # as `by_kind` reads it
    if pa.types.is_timestamp(array.type):
        array = to_microseconds(array)
    return array.cast(kind, safe=not pa.types.is_floating(kind))


def _is_small_integer(cells: Arrow) -> bool:
    return bool(pa.types.is_integer(cells) and cells != pa.uint64())


def _is_whole_number(cells: Arrow) -> bool:
    decimal = pa.types.is_decimal(cells) and not pa.types.is_decimal256(cells) and cells.scale == 0
    return bool(pa.types.is_integer(cells) or decimal)


def _is_number(cells: Arrow) -> bool:
    return bool(pa.types.is_integer(cells) or pa.types.is_floating(cells) or pa.types.is_decimal(cells))


_PARALLEL_READS = 16  # at a time: a look at a file of another filesystem is mostly a wait for its answer


class MultiFileTable:
    """Files of one format, read one after the other."""

    shows_names = True

    def __init__(self, name: str, files: Sequence[FileTable]) -> None:
        self.name, self.files = name, files
        self._starts: list[int] = []  # rows before each file that was begun

    @cached_property
    def types(self) -> Arrow:
        return pa.schema(
            [
                (field.name, self._find_common_type(field))
                for field in self._distinct_files[0].types
                if _is_column(field.name)
            ]
        )

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        types = self.check_types(columns)
        before, self._starts = 0, []
        for file in self.files:
            self._starts.append(before)
            for batch in file.batches(columns):
                yield _cast_batch(batch, types, file)
                before += len(batch)

    def check_types(self, columns: Mapping[str, str]) -> dict[str, Arrow]:
        """Return the types that columns are read in, or refuse files that do not go together."""
        return {name: self._resolve_type(name, columns) for name in columns}

    def describe_row(self, k: int) -> str:
        file = bisect_left(self._starts, k) - 1
        return self.files[file].describe_row(k - self._starts[file])

    @cached_property
    def _distinct_files(self) -> list[FileTable]:
        """The first file of each kind: those with the same types, and the same columns from their paths."""
        if any(file.place.filesystem is not None for file in self.files):
            with ThreadPoolExecutor(_PARALLEL_READS) as pool:
                list(pool.map(lambda file: file.types, self.files))
        found = dict[tuple[object, ...], FileTable]()
        for file in self.files:
            _check_same_columns(file, self.files[0])
            found.setdefault((file.types, *(name for name, _ in file.partition)), file)
        return list(found.values())

    def _find_common_type(self, field: Arrow) -> Arrow:
        """Return the type of a column; the first file's if there is none for all, which matters only if it is read."""
        return find_common_type(file.types.field(field.name).type for file in self._distinct_files) or field.type

    def _resolve_type(self, name: str, columns: Mapping[str, str]) -> Arrow:
        """Return the type that a column is read in, or refuse the first file whose cells do not go with the others'."""
        types = [file.column_type(name, columns) for file in self._distinct_files]
        for k, file in enumerate(self._distinct_files):
            common = find_common_type(types[: k + 1])
            mixed = common is not None and is_text(common) and not all(map(is_text, types[: k + 1]))
            if common is None or (mixed and columns[name] != "string"):
                here, there = (
                    f"{printable_text(types[k])} in {file.name}",
                    f"{printable_text(types[0])} in {self._distinct_files[0].name}",
                )
                raise InvalidInput(f"column {name!r} is {here}, but {there}; write it in one type to all files")
        return common


def _cast_batch(batch: Arrow, types: Mapping[str, Arrow], file: FileTable) -> Arrow:
    """Return columns of a batch in these types."""
    arrays = []
    for name, cells in types.items():
        try:
            arrays.append(cast_cells(batch.column(name), cells))
        except pa.ArrowInvalid:  # it quotes the cell
            raise InvalidInput(f"column {name!r} of {file.name} has cells that have no room in {cells}") from None
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def _check_same_columns(file: FileTable, first: FileTable) -> None:
    """Refuse a file whose columns have other names than the first's."""
    check_unique_names(file.names, file.name)
    missing, more = _names_missing_from(first.names, file.names), _names_missing_from(file.names, first.names)
    if not (missing or more):
        return
    if file.names_are_certain:
        told = [f"{quote_names(names)} {how}" for names, how in ((missing, "missing"), (more, "only there")) if names]
        way_out = "write the same columns to all files"
    else:  # what look like names may be cells
        places = ", ".join(str(file.names.index(name) + 1) for name in more[:10])
        told = [f"{len(missing):,} missing"] * bool(missing) + [f"column {places} only there"] * bool(more)
        way_out = "does each begin with the same row of names?"
    raise InvalidInput(f"{file.name} has other columns than {first.name} ({'; '.join(told)}); {way_out}")


def _names_missing_from(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the columns that are not among others."""
    known = set(others)
    return [name for name in names if name not in known and _is_column(name)]


def _is_column(name: str) -> bool:
    return not is_row_label(name)
