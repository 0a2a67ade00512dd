"""Several files as one table: read one after the other, with the same columns in all.

Files may store a column in different types. The common type is chosen so that every cell is read as in its own file:
a cell is one float or one text whatever its type is. 7 as int32, float or decimal is the same number, and 7 the same
category or id as "7". Only casts that preserve this are allowed.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import pyarrow as pa

from ...errors import InvalidInput
from ..cells import Arrow, is_text, to_microseconds, unpack_array, unpack_type
from ..messages import check_unique_names, printable_text, quote_names
from ..schema import is_row_label
from .table import FileTable, decode_names

_WHOLE_NUMBER = pa.decimal128(38, 0)  # fits any integer
_PARALLEL_READS = 16  # reading types from a remote file is mostly waiting


def find_common_type(types: Iterable[Arrow]) -> Arrow | None:
    """Return a type for the cells of all these types; None if there is none."""
    distinct = list(dict.fromkeys(types))
    if len(distinct) == 1:
        return distinct[0]
    plain = [cells for cells in map(unpack_type, distinct) if not pa.types.is_null(cells)]
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
        array = array.cast(pa.large_string())  # as `cells` reads it
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


class MultiFileTable:
    """Files of one format, read one after the other."""

    shows_names = True

    def __init__(self, name: str, files: Sequence[FileTable]) -> None:
        self.name, self.files = name, files
        self._starts: list[int] = []  # rows before each file read so far

    @cached_property
    def types(self) -> Arrow:
        fields = [field for field in self._distinct_files[0].types if not is_row_label(field.name)]
        return pa.schema([(field.name, self._find_common_type(field)) for field in fields])

    @property
    def names(self) -> list[str]:
        return decode_names(self.types, self.name)

    def batches(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        types = self.check_types(columns)
        before, self._starts = 0, []
        for file in self.files:
            self._starts.append(before)
            for batch in file.batches(columns):
                yield _cast_batch(batch, types, file)
                before += len(batch)

    def check_types(self, columns: Mapping[str, str]) -> dict[str, Arrow]:
        """Return the types in which columns are read, or refuse files whose types are incompatible."""
        return {name: self._resolve_type(name, columns) for name in columns}

    def describe_row(self, k: int) -> str:
        file = bisect_left(self._starts, k) - 1
        return self.files[file].describe_row(k - self._starts[file])

    @cached_property
    def _distinct_files(self) -> list[FileTable]:
        """The first of the files with the same types and the same partition columns."""
        if any(file.place.filesystem is not None for file in self.files):
            with ThreadPoolExecutor(_PARALLEL_READS) as pool:
                list(pool.map(lambda file: file.types, self.files))
        first_of_kind = dict[tuple[object, ...], FileTable]()
        for file in self.files:
            _check_same_columns(file, self.files[0])
            first_of_kind.setdefault((file.types, *(name for name, _ in file.partition)), file)
        return list(first_of_kind.values())

    def _find_common_type(self, field: Arrow) -> Arrow:
        """Return the common type of a column, or that of the first file: no common type matters only on reading."""
        return find_common_type(file.types.field(field.name).type for file in self._distinct_files) or field.type

    def _resolve_type(self, name: str, columns: Mapping[str, str]) -> Arrow:
        """Return the type in which a column is read, or refuse the first file with an incompatible type."""
        types = [file.column_type(name, columns) for file in self._distinct_files]
        for k, file in enumerate(self._distinct_files):
            common = find_common_type(types[: k + 1])
            mixed = common is not None and is_text(common) and not all(map(is_text, types[: k + 1]))
            if common is None or (mixed and columns[name] != "string"):
                type_in_file = f"{printable_text(types[k])} in {file.name}"
                type_in_first = f"{printable_text(types[0])} in {self._distinct_files[0].name}"
                raise InvalidInput(
                    f"column {name!r} is {type_in_file}, but {type_in_first}; write it in one type to all files"
                )
        return common


def _cast_batch(batch: Arrow, types: Mapping[str, Arrow], file: FileTable) -> Arrow:
    """Return columns of a batch in these types."""
    arrays = []
    for name, cells in types.items():
        try:
            arrays.append(cast_cells(batch.column(name), cells))
        except pa.ArrowInvalid:  # it quotes the cell
            raise InvalidInput(f"column {name!r} of {file.name} has cells that do not fit into {cells}") from None
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def _check_same_columns(file: FileTable, first: FileTable) -> None:
    """Refuse a file whose columns have other names than those of the first file."""
    check_unique_names(file.names, file.name)
    missing, more = _names_missing_from(first.names, file.names), _names_missing_from(file.names, first.names)
    if not (missing or more):
        return
    if file.names_are_certain:
        details = [
            f"{quote_names(names)} {how}" for names, how in ((missing, "missing"), (more, "only in this file")) if names
        ]
        way_out = "write the same columns to all files"
    else:  # the names may be cells
        places = ", ".join(str(file.names.index(name) + 1) for name in more[:10])
        details = [f"{len(missing):,} missing"] * bool(missing) + [f"column {places} only in this file"] * bool(more)
        way_out = "does each begin with the same row of names?"
    raise InvalidInput(
        f"the columns of {file.name} differ from those of {first.name} ({'; '.join(details)}); {way_out}"
    )


def _names_missing_from(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the names of columns that are not among others."""
    known = set(others)
    return [name for name in names if name not in known and not is_row_label(name)]
