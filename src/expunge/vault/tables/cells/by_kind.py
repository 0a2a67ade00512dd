"""Cells by kind: one float per cell, read as the kind of its column says."""

from collections.abc import Callable
from functools import partial, singledispatch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....errors import InvalidInput
from ....exact.arrays import Floats
from ..kinds import Boolean, Category, Date, Kind, Number
from ..messages import WrongCell, shown
from .arrow import Arrow, floats, is_text, mask, unpacked
from .numerals import numbers, without_marks
from .times import days


def cells_as_floats(column: str, kind: Kind, array: Arrow) -> Floats:
    """Return one float per cell, NaN for a gap: (n,)."""
    cells = unpacked(array if not pa.types.is_null(array.type) else array.cast(pa.type_for_alias(kind.in_csv)))
    if not takes(kind, cells.type):
        raise InvalidInput(
            f"column {column!r} must hold {kind.in_words}, got {shown(array.type)}; declare another kind"
        )
    return read(kind, column, cells)


@singledispatch
def takes(kind: Kind, cells: Arrow) -> bool:
    """Return whether cells of this type can be read."""
    raise NotImplementedError(kind.kind)


@singledispatch
def read(kind: Kind, column: str, array: Arrow) -> Floats:
    """Return one float per cell of an array whose type the kind takes, NaN for a gap: (n,)."""
    raise NotImplementedError(kind.kind)


@takes.register
def _(kind: Number, cells: Arrow) -> bool:
    if is_text(cells):
        return kind.gaps is not None
    return bool(pa.types.is_integer(cells) or pa.types.is_floating(cells) or pa.types.is_decimal(cells))


@read.register
def _(kind: Number, column: str, array: Arrow) -> Floats:
    gaps = kind.gaps or ()
    if is_text(array.type):
        try:
            return without_marks(numbers(array, gaps), gaps)
        except pa.ArrowInvalid:  # it quotes the cell
            raise WrongCell(column, kind.in_words, _first_failing(partial(numbers, gaps=gaps), array)) from None
    # pyarrow's cast of a decimal is off by one bit in about one of a hundred; its reading of text is not.
    return without_marks(floats(array.cast(pa.large_string()) if pa.types.is_decimal(array.type) else array), gaps)


@takes.register
def _(kind: Boolean, cells: Arrow) -> bool:
    return bool(pa.types.is_boolean(cells) or pa.types.is_integer(cells) or pa.types.is_floating(cells))


@read.register
def _(kind: Boolean, column: str, array: Arrow) -> Floats:
    values = floats(array)
    if len(odd := np.flatnonzero((values != 0) & (values != 1) & ~np.isnan(values))):
        raise WrongCell(column, kind.in_words, int(odd[0]))
    return values


@takes.register
def _(kind: Date, cells: Arrow) -> bool:
    return is_text(cells) or bool(pa.types.is_date(cells) or pa.types.is_timestamp(cells))


@read.register
def _(kind: Date, column: str, array: Arrow) -> Floats:
    try:
        return days(array)
    except pa.ArrowInvalid:  # it quotes the cell
        raise WrongCell(column, kind.in_words, _first_failing(days, array)) from None


@takes.register
def _(kind: Category, cells: Arrow) -> bool:
    return is_text(cells) or bool(pa.types.is_integer(cells))


@read.register
def _(kind: Category, column: str, array: Arrow) -> Floats:
    """Return each value's place in the list of values, or -1."""
    text = array.cast(pa.large_string())
    places = floats(pc.index_in(text, pa.array(kind.values, pa.large_string())).fill_null(-1))
    places[mask(pc.equal(text, "").fill_null(True))] = np.nan
    return places


def _first_failing(function: Callable[[Arrow], object], array: Arrow) -> int:
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
