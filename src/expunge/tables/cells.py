"""Cells by kind: one float per cell, read as the kind of its column says."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial, singledispatch
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow.csv import ConvertOptions

from ..errors import InvalidColumns, InvalidInput
from ..exact.arrays import Floats
from .kinds import ANY_TEXT, MICROSECONDS_PER_DAY, Boolean, Category, ColumnKind, Date, Number
from .messages import ID_NOT_UTF_8, InvalidCell, printable_text
from .schema import Schema

# From cells to floats, with pyarrow: arrays of Arrow (`arrow`), dates (`times`), cells of each kind (`by_kind`) and
# ids (`ids`). A cell is read without a look at any other row.


# Arrays of Arrow: what their cells are, and how they become arrays of NumPy.


Arrow: TypeAlias = Any  # an array, type, batch or schema of pyarrow, which ships no types


def is_text(cells: Arrow) -> bool:
    """Return whether cells of this type are text."""
    return bool(pa.types.is_string(cells) or pa.types.is_large_string(cells) or pa.types.is_string_view(cells))


def unpack_type(cells: Arrow) -> Arrow:
    """Return the type of the cells that a dictionary stands for."""
    return unpack_type(cells.value_type) if pa.types.is_dictionary(cells) else cells


def unpack_array(array: Arrow) -> Arrow:
    """Return dictionaries and views as plain arrays: many of pyarrow's functions take no others."""
    if pa.types.is_dictionary(array.type):
        return unpack_array(array.dictionary).take(array.indices)
    return array.cast(pa.large_string()) if is_text(array.type) else array


def to_floats(array: Arrow) -> Floats:
    """Return a copy as floats, NaN for null.

    Adding 0.0 turns -0.0 into 0.0: which of the two it was would else show in the bounds.
    """
    copy: Floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) + 0.0
    return copy


def to_mask(array: Arrow) -> NDArray[np.bool_]:
    """Return booleans without nulls as an array of NumPy."""
    flags: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return flags


# Columns of ids, as text and as bytes.


def encode_id_column(ids: Any, name: str) -> list[bytes]:
    """Return ids in an array of Arrow, or whole numbers in one of NumPy, as UTF-8."""
    if isinstance(ids, np.ndarray):
        ids = pa.array(ids.ravel())
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    found: list[bytes] = id_column_text(ids, name).cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
    return found


def id_column_text(array: Arrow, name: str) -> Arrow:
    """Return ids in an array of Arrow as text; errors call it ``name``."""
    array = unpack_array(array)
    cells = array.type
    whole = pa.types.is_integer(cells) or (pa.types.is_decimal(cells) and cells.scale == 0)
    if not (whole or is_text(cells)):
        raise InvalidInput(f"{name} must hold ids, which are text or whole numbers, got {printable_text(cells)}")
    text = array.cast(pa.large_string())
    if is_text(cells) and len(text) and pc.all(pc.match_substring_regex(text, r"^\s*-?\d+\.0+\s*$")).as_py():
        raise InvalidInput(f"{name} holds whole numbers that were written as 1.0: nobody would be found by 1; write 1")
    given = text.fill_null("")
    try:
        empty = pc.or_(pc.equal(given, ""), pc.utf8_is_space(given))
    except pa.ArrowInvalid:  # Arrow does not check what others say is text
        raise InvalidInput(ID_NOT_UTF_8) from None
    if gaps := pc.sum(empty).as_py():
        raise InvalidColumns("rows without an id", {name: gaps}, len(text), "give each row the id of its person")
    return text


# Numerals: numbers that are written as text, among texts that are none.


NULL_TEXTS = ConvertOptions().null_values  # of a CSV file's numbers: they are gaps among numbers and dates in text, too

_NUMERAL = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def trim_text(text: Arrow) -> Arrow:
    """Return texts without the blanks around them, which do not count in the numbers of a CSV file either."""
    return pc.ascii_trim_whitespace(text)


def match_numerals(text: Arrow) -> Arrow:
    """Return which of some trimmed texts are finite numbers as people write them, null for null."""
    return pc.match_substring_regex(text, _NUMERAL)


def parse_numbers(text: Arrow, gaps: Iterable[str] | str) -> Floats:
    """Return the numbers that texts stand for, NaN for a gap; other text raises ``ArrowInvalid``, which quotes it."""
    text = trim_text(text)
    listed = [] if gaps == ANY_TEXT else list(gaps)
    empty = pc.is_in(text, pa.array([*NULL_TEXTS, *listed], text.type))
    if gaps == ANY_TEXT:
        empty = pc.or_(empty, pc.invert(match_numerals(text).fill_null(False)))
    return to_floats(pc.if_else(empty, pa.scalar(None, text.type), text))


def blank_gap_values(values: Floats, gaps: Iterable[str] | str) -> Floats:
    """Return values with NaN for those that a gap stands for, such as -999, however they are written."""
    marks = [] if gaps == ANY_TEXT else [float(gap) for gap in gaps if re.search(_NUMERAL, gap, re.ASCII)]
    if marks:
        values[np.isin(values, marks)] = np.nan
    return values


# Times: dates, timestamps and ISO text as days since 1970-01-01 in UTC, to the microsecond.


_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"  # after a time: the end of a date looks the same


def to_days(array: Arrow) -> Floats:
    """Return days since 1970, NaN for null; text that is no time raises ``ArrowInvalid``, which quotes it."""
    if is_text(array.type):
        array = _parse_times(array)
    if pa.types.is_date(array.type):
        return to_floats(array.cast(pa.date32()).cast(pa.int32()))
    return to_floats(to_microseconds(array)) / MICROSECONDS_PER_DAY


def _parse_times(text: Arrow) -> Arrow:
    """Return times from ISO text. One with a zone is moved to UTC, one without is taken for UTC."""
    nothing = pa.scalar(None, text.type)
    text = pc.if_else(pc.is_in(text, pa.array(NULL_TEXTS, text.type)), nothing, text)
    text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(text, _ZONE)
    local = pc.if_else(zoned, nothing, text).cast(pa.timestamp("us"))
    return pc.coalesce(local, pc.if_else(zoned, text, nothing).cast(pa.timestamp("us", "UTC")).cast(local.type))


def to_microseconds(array: Arrow) -> Arrow:
    """Return timestamps as microseconds since 1970; one out of range raises ``ArrowInvalid``."""
    ticks, unit = array.cast(pa.int64()), array.type.unit
    if unit != "ns":
        return pc.multiply_checked(ticks, {"s": 10**6, "ms": 10**3, "us": 1}[unit])
    # Downward, also before 1970: as cutting digits off a text does.
    return pa.array(ticks.fill_null(0).to_numpy() // 1000, mask=to_mask(ticks.is_null()))


def column_to_floats(column: str, kind: ColumnKind, array: Arrow) -> Floats:
    """Return one float per cell, NaN for a gap: (n,)."""
    cells = unpack_array(array if not pa.types.is_null(array.type) else array.cast(pa.type_for_alias(kind.csv_type)))
    if not accepts_type(kind, cells.type):
        cell_type = printable_text(array.type)
        raise InvalidInput(
            f"column {column!r} must hold {kind.cell_description}, got {cell_type}; declare another kind"
        )
    return read_cells(kind, column, cells)


@singledispatch
def accepts_type(kind: ColumnKind, cells: Arrow) -> bool:
    """Return whether cells of this type can be read."""
    raise NotImplementedError(kind.kind)


@singledispatch
def read_cells(kind: ColumnKind, column: str, array: Arrow) -> Floats:
    """Return one float per cell of an array whose type the kind takes, NaN for a gap: (n,)."""
    raise NotImplementedError(kind.kind)


@accepts_type.register
def _(kind: Number, cells: Arrow) -> bool:
    if is_text(cells):
        return kind.gaps is not None
    return bool(pa.types.is_integer(cells) or pa.types.is_floating(cells) or pa.types.is_decimal(cells))


@read_cells.register
def _(kind: Number, column: str, array: Arrow) -> Floats:
    gaps = kind.gaps or ()
    if is_text(array.type):
        try:
            return blank_gap_values(parse_numbers(array, gaps), gaps)
        except pa.ArrowInvalid:  # it quotes the cell
            raise InvalidCell(
                column, kind.cell_description, _find_first_failing(partial(parse_numbers, gaps=gaps), array)
            ) from None
    # pyarrow's cast of a decimal is off by one bit in about one of a hundred; its reading of text is not.
    return blank_gap_values(
        to_floats(array.cast(pa.large_string()) if pa.types.is_decimal(array.type) else array), gaps
    )


@accepts_type.register
def _(kind: Boolean, cells: Arrow) -> bool:
    return bool(pa.types.is_boolean(cells) or pa.types.is_integer(cells) or pa.types.is_floating(cells))


@read_cells.register
def _(kind: Boolean, column: str, array: Arrow) -> Floats:
    values = to_floats(array)
    if len(odd := np.flatnonzero((values != 0) & (values != 1) & ~np.isnan(values))):
        raise InvalidCell(column, kind.cell_description, int(odd[0]))
    return values


@accepts_type.register
def _(kind: Date, cells: Arrow) -> bool:
    return is_text(cells) or bool(pa.types.is_date(cells) or pa.types.is_timestamp(cells))


@read_cells.register
def _(kind: Date, column: str, array: Arrow) -> Floats:
    try:
        return to_days(array)
    except pa.ArrowInvalid:  # it quotes the cell
        raise InvalidCell(column, kind.cell_description, _find_first_failing(to_days, array)) from None


@accepts_type.register
def _(kind: Category, cells: Arrow) -> bool:
    return is_text(cells) or bool(pa.types.is_integer(cells))


@read_cells.register
def _(kind: Category, column: str, array: Arrow) -> Floats:
    """Return each value's place in the list of values, or -1."""
    text = array.cast(pa.large_string())
    places = to_floats(pc.index_in(text, pa.array(kind.values, pa.large_string())).fill_null(-1))
    places[to_mask(pc.equal(text, "").fill_null(True))] = np.nan
    return places


def _find_first_failing(function: Callable[[Arrow], object], array: Arrow) -> int:
    """Return the place of the first cell that a function refuses, by halving."""
    first, end = 0, len(array)  # a function that refuses the array refuses array[first:end], and takes all before
    while end - first > 1:
        middle = (first + end) // 2
        try:
            function(array.slice(first, middle - first))
            first = middle
        except pa.ArrowInvalid:
            end = middle
    return first


# Batches: a record batch as inputs and targets, all of them finite.


def encode_batch(schema: Schema, batch: Arrow, *, targets: bool) -> tuple[Floats, Floats | None]:
    """Return the inputs (n, d) and the targets (n, t) of a record batch, gaps filled."""
    schema.check_columns(batch.schema.names, targets=targets)
    kinds = schema.input_kinds | (schema.target_kinds if targets else {})
    values = {name: column_to_floats(name, kind, batch.column(name)) for name, kind in kinds.items()}
    _fill_gaps(kinds, values, len(batch))
    X = _stack_inputs(schema.input_kinds, values, len(batch), len(schema.inputs))
    if not targets:
        return X, None
    return X, _stack_inputs(schema.target_kinds, values, len(batch), len(schema.targets))


def _fill_gaps(kinds: Mapping[str, ColumnKind], values: Mapping[str, Floats], rows: int) -> None:
    """Fill gaps in place, or refuse those that have no fill, and infinite values: all columns in one message."""
    odd = {name: column for name, column in values.items() if not np.isfinite(column).all()}
    fills = {name: kinds[name].fill_value() for name in odd}
    gaps = {name: np.isnan(column) for name, column in odd.items()}
    if counts := {
        _column_label(name): int(gaps[name].sum()) for name in odd if fills[name] is None and gaps[name].any()
    }:
        raise InvalidColumns("gaps", counts, rows, "leave those rows out or, for an input, declare a fill")
    if counts := {
        _column_label(name): int(np.isinf(column).sum()) for name, column in odd.items() if np.isinf(column).any()
    }:
        raise InvalidColumns("infinite values", counts, rows, "leave those rows out")
    for name, column in odd.items():
        column[gaps[name]] = fills[name]


def _column_label(name: str) -> str:
    return f"column {name!r}"


def _stack_inputs(kinds: Mapping[str, ColumnKind], values: Mapping[str, Floats], rows: int, width: int) -> Floats:
    table, j = np.empty((rows, width)), 0
    for name, kind in kinds.items():
        columns = kind.to_inputs(values[name])  # (n, k)
        table[:, j : j + columns.shape[1]] = columns
        j += columns.shape[1]
    return table
