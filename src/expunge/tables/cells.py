"""Cells: from columns of Arrow to floats and ids, with pyarrow.

Each cell becomes one float, as the kind of its column declares; dates become days since 1970-01-01 in UTC, to the
microsecond. A cell is read without looking at any other row. `encode_batch` turns a record batch into inputs and
targets, all of them finite.
"""

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
from .notations import NumberNotation, date_pattern
from .schema import Schema

Arrow: TypeAlias = Any  # an array, type, batch or schema of pyarrow, which ships no type hints

# Texts that count as empty cells in a CSV file's numbers, and therefore also among numbers and dates in text.
NULL_TEXTS = ConvertOptions().null_values
_NUMERAL = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"  # only after a time: the end of a date looks the same


def is_text(cells: Arrow) -> bool:
    """Return whether cells of this type are text."""
    return bool(pa.types.is_string(cells) or pa.types.is_large_string(cells) or pa.types.is_string_view(cells))


def unpack_type(cells: Arrow) -> Arrow:
    """Return the type of the cells, of a dictionary that of its values."""
    return unpack_type(cells.value_type) if pa.types.is_dictionary(cells) else cells


def unpack_array(array: Arrow) -> Arrow:
    """Return dictionaries and views as plain arrays, which many of pyarrow's functions require."""
    if pa.types.is_dictionary(array.type):
        return unpack_array(array.dictionary).take(array.indices)
    return array.cast(pa.large_string()) if is_text(array.type) else array


def to_floats(array: Arrow) -> Floats:
    """Return a copy as floats, NaN for null.

    Adding 0.0 turns -0.0 into 0.0; otherwise the bounds would reveal which of the two it was.
    """
    copy: Floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) + 0.0
    return copy


def to_mask(array: Arrow) -> NDArray[np.bool_]:
    """Return booleans without nulls as a NumPy array."""
    flags: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return flags


def encode_id_column(ids: Any, name: str) -> list[bytes]:
    """Return the ids in an Arrow array, or whole numbers in a NumPy array, as UTF-8."""
    if isinstance(ids, np.ndarray):
        ids = pa.array(ids.ravel())
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    encoded: list[bytes] = id_column_text(ids, name).cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
    return encoded


def id_column_text(array: Arrow, name: str) -> Arrow:
    """Return the ids in an Arrow array as text; errors refer to it as ``name``."""
    array = unpack_array(array)
    cells = array.type
    whole = pa.types.is_integer(cells) or (pa.types.is_decimal(cells) and cells.scale == 0)
    if not (whole or is_text(cells)):
        raise InvalidInput(f"{name} must hold ids, which are text or whole numbers, got {printable_text(cells)}")
    text = array.cast(pa.large_string())
    if is_text(cells) and len(text) and pc.all(pc.match_substring_regex(text, r"^\s*-?\d+\.0+\s*$")).as_py():
        raise InvalidInput(f"{name}: ids look like floats ('1.0'); write them as whole numbers ('1')")
    filled = text.fill_null("")
    try:
        empty = pc.or_(pc.equal(filled, ""), pc.utf8_is_space(filled))
    except pa.ArrowInvalid:  # Arrow does not check that strings are UTF-8
        raise InvalidInput(ID_NOT_UTF_8) from None
    if gaps := pc.sum(empty).as_py():
        raise InvalidColumns("rows without an id", {name: gaps}, len(text), "give each row the id of its person")
    return text


def trim_text(text: Arrow) -> Arrow:
    """Strip surrounding blanks, as the reader of CSV numbers does."""
    return pc.ascii_trim_whitespace(text)


def match_numerals(text: Arrow) -> Arrow:
    """Return which of these trimmed texts are finite numbers in decimal notation, null for null."""
    return pc.match_substring_regex(text, _NUMERAL)


def to_numerals(text: Arrow, example: str) -> Arrow:
    """Rewrite trimmed texts from the notation of this example to a plain one; the empty text for any other text."""
    notation = NumberNotation.parse(example)
    plain = pc.replace_substring_regex(text, notation.pattern, r"\1\2")
    if notation.group:
        plain = pc.replace_substring_regex(plain, notation.groups, "")
    plain = pc.replace_substring(plain, notation.decimal, ".")
    return pc.if_else(pc.match_substring_regex(text, notation.pattern), plain, "")


def parse_numbers(text: Arrow, gaps: Iterable[str] | str, example: str | None = None) -> Floats:
    """Parse texts as numbers, NaN for a gap; any other text raises ``ArrowInvalid``, which quotes it."""
    text = trim_text(text)
    listed = [] if gaps == ANY_TEXT else list(gaps)
    empty = pc.is_in(text, pa.array([*NULL_TEXTS, *listed], text.type))
    text = text if example is None else to_numerals(text, example)
    if gaps == ANY_TEXT:
        empty = pc.or_(empty, pc.invert(match_numerals(text).fill_null(False)))
    return to_floats(pc.if_else(empty, pa.scalar(None, text.type), text))


def blank_gap_values(values: Floats, gaps: Iterable[str] | str) -> Floats:
    """Replace values that are declared as gaps, for example -999, by NaN in place, however they are written."""
    marks = [] if gaps == ANY_TEXT else [float(gap) for gap in gaps if re.search(_NUMERAL, gap, re.ASCII)]
    if marks:
        values[np.isin(values, marks)] = np.nan
    return values


def to_days(array: Arrow, example: str | None = None) -> Floats:
    """Return days since 1970, NaN for null; text that is not a time raises ``ArrowInvalid``, which quotes it."""
    if is_text(array.type):
        array = _parse_times(array if example is None else to_iso_dates(array, example))
    if pa.types.is_date(array.type):
        return to_floats(array.cast(pa.date32()).cast(pa.int32()))
    return to_floats(to_microseconds(array)) / MICROSECONDS_PER_DAY


def to_iso_dates(text: Arrow, example: str) -> Arrow:
    """Rewrite texts that hold a date like this example in ISO form; leave all others unchanged."""
    parts = pc.extract_regex(trim_text(text), date_pattern(example))
    day, month, year, time = (pc.struct_field(parts, name) for name in ("day", "month", "year", "time"))
    pad = partial(pc.utf8_lpad, width=2, padding="0")
    date = pc.binary_join_element_wise(year, pad(month), pad(day), pa.scalar("-", text.type))
    return pc.coalesce(pc.binary_join_element_wise(date, time, pa.scalar("", text.type)), text)


def _parse_times(text: Arrow) -> Arrow:
    """Parse ISO text. A time with a zone is converted to UTC, one without is taken as UTC."""
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
    # Round down, also before 1970, as cutting digits off a text does.
    return pa.array(ticks.fill_null(0).to_numpy() // 1000, mask=to_mask(ticks.is_null()))


def column_to_floats(kind: ColumnKind, column: str, array: Arrow) -> Floats:
    """Return one float per cell, NaN for a gap: (n,)."""
    cells = unpack_array(array if not pa.types.is_null(array.type) else array.cast(pa.type_for_alias(kind.csv_type)))
    if not accepts_type(kind, cells.type):
        expected, actual = kind.cell_description, printable_text(array.type)
        raise InvalidInput(f"column {column!r} must hold {expected}, got {actual}; declare another kind")
    return read_cells(kind, column, cells)


@singledispatch
def accepts_type(kind: ColumnKind, cells: Arrow) -> bool:
    """Return whether a column of this kind can be read from cells of this type."""
    raise NotImplementedError(kind.kind)


@singledispatch
def read_cells(kind: ColumnKind, column: str, array: Arrow) -> Floats:
    """Return one float per cell of an array whose type the kind accepts, NaN for a gap: (n,)."""
    raise NotImplementedError(kind.kind)


@accepts_type.register
def _(kind: Number, cells: Arrow) -> bool:
    if is_text(cells):
        return kind.reads_text
    return bool(pa.types.is_integer(cells) or pa.types.is_floating(cells) or pa.types.is_decimal(cells))


@read_cells.register
def _(kind: Number, column: str, array: Arrow) -> Floats:
    if not is_text(array.type):
        # pyarrow's cast from decimal is off by one bit in about one cell of a hundred; its parsing of text is exact.
        exact = array.cast(pa.large_string()) if pa.types.is_decimal(array.type) else array
        return read_numbers(kind, column, to_floats(exact))
    parse = partial(parse_numbers, gaps=kind.gaps or (), example=kind.format)
    try:
        return read_numbers(kind, column, parse(array))
    except pa.ArrowInvalid:  # it quotes the cell
        raise InvalidCell(column, kind.cell_description, _find_first_failing(parse, array)) from None


@accepts_type.register
def _(kind: Boolean, cells: Arrow) -> bool:
    return bool(pa.types.is_boolean(cells) or pa.types.is_integer(cells) or pa.types.is_floating(cells))


@read_cells.register
def _(kind: Boolean, column: str, array: Arrow) -> Floats:
    return read_numbers(kind, column, to_floats(array))


@accepts_type.register
def _(kind: Date, cells: Arrow) -> bool:
    return is_text(cells) or bool(pa.types.is_date(cells) or pa.types.is_timestamp(cells))


@read_cells.register
def _(kind: Date, column: str, array: Arrow) -> Floats:
    parse = partial(to_days, example=kind.format)
    try:
        return parse(array)
    except pa.ArrowInvalid:  # it quotes the cell
        raise InvalidCell(column, kind.cell_description, _find_first_failing(parse, array)) from None


@accepts_type.register
def _(kind: Category, cells: Arrow) -> bool:
    return is_text(cells) or bool(pa.types.is_integer(cells))


@read_cells.register
def _(kind: Category, column: str, array: Arrow) -> Floats:
    """Return each value's position in the list of values, or -1."""
    text = array.cast(pa.large_string())
    places = to_floats(pc.index_in(text, pa.array(kind.values, pa.large_string())).fill_null(-1))
    places[to_mask(pc.equal(text, "").fill_null(True))] = np.nan
    return places


def read_numbers(kind: Number | Boolean, column: str, values: Floats) -> Floats:
    """Return cells that are floats already, as their kind reads them; declared gaps become NaN in place: (n,)."""
    if isinstance(kind, Number):
        return blank_gap_values(values, kind.gaps or ())
    if len(odd := np.flatnonzero((values != 0) & (values != 1) & ~np.isnan(values))):
        raise InvalidCell(column, kind.cell_description, int(odd[0]))
    return values


def _find_first_failing(function: Callable[[Arrow], object], array: Arrow) -> int:
    """Return the position of the first cell that a function refuses, by bisection."""
    first, end = 0, len(array)  # invariant: the function refuses array[first:end] and accepts all cells before
    while end - first > 1:
        middle = (first + end) // 2
        try:
            function(array.slice(first, middle - first))
            first = middle
        except pa.ArrowInvalid:
            end = middle
    return first


def encode_batch(schema: Schema, batch: Arrow, *, targets: bool) -> tuple[Floats, Floats | None]:
    """Return the inputs (n, d) and the targets (n, t) of a record batch, gaps filled."""
    schema.check_columns(batch.schema.names, targets=targets)
    kinds = schema.input_kinds | (schema.target_kinds if targets else {})
    values = {name: column_to_floats(kind, name, batch.column(name)) for name, kind in kinds.items()}
    fill_gaps(kinds, values, len(batch))
    X = stack_columns(schema.input_kinds, values, len(batch), len(schema.inputs))
    return X, stack_columns(schema.target_kinds, values, len(batch), len(schema.targets)) if targets else None


def fill_gaps(kinds: Mapping[str, ColumnKind], values: Mapping[str, Floats], rows: int) -> None:
    """Fill gaps in place. Gaps without a fill and infinite values are refused, all columns in one message."""
    odd = {name: column for name, column in values.items() if not np.isfinite(column).all()}
    fills = {name: kinds[name].fill_value() for name in odd}
    gaps = {name: np.isnan(column) for name, column in odd.items()}
    counts = {name: int(gaps[name].sum()) for name in odd if fills[name] is None}
    _refuse_counted("gaps", counts, rows, "leave those rows out or, for an input, declare a fill")
    counts = {name: int(np.isinf(column).sum()) for name, column in odd.items()}
    _refuse_counted("infinite values", counts, rows, "leave those rows out")
    for name, column in odd.items():
        column[gaps[name]] = fills[name]


def _refuse_counted(problem: str, counts: Mapping[str, int], rows: int, way_out: str) -> None:
    if affected := {f"column {name!r}": count for name, count in counts.items() if count}:
        raise InvalidColumns(problem, affected, rows, way_out)


def stack_columns(kinds: Mapping[str, ColumnKind], values: Mapping[str, Floats], rows: int, width: int) -> Floats:
    """Return the inputs that the columns of these kinds become, side by side: (n, width)."""
    table, j = np.empty((rows, width)), 0
    for name, kind in kinds.items():
        columns = kind.to_inputs(values[name])  # (n, k)
        table[:, j : j + columns.shape[1]] = columns
        j += columns.shape[1]
    return table
