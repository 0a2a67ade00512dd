"""Common types: one for a column that files hold in several, such that every cell is read as in its own.

A cell is one float or one text whatever its type is: 7 as int32, as float or as decimal is the same number, and 7 the
same category or id as "7". So casts that keep this are allowed, and no others.
"""

from collections.abc import Iterable

import pyarrow as pa

from ..cells.arrow import Arrow, is_text, unpacked, unpacked_type
from ..cells.times import microseconds

_WHOLE = pa.decimal128(38, 0)  # has room for any integer


def common_type(types: Iterable[Arrow]) -> Arrow | None:
    """Return a type for the cells of all these; None if there is none."""
    some = list(dict.fromkeys(types))
    if len(some) == 1:
        return some[0]
    plain = [cells for cells in map(unpacked_type, some) if not pa.types.is_null(cells)]
    if len(set(plain)) <= 1 and not any(map(is_text, plain)):
        return plain[0] if plain else pa.null()
    for fits, kind in (
        (is_text, pa.large_string()),
        (_small, pa.int64()),
        (_whole, _WHOLE),
        (_number, pa.float64()),
        (pa.types.is_date, pa.date32()),
        (lambda cells: pa.types.is_date(cells) or pa.types.is_timestamp(cells), pa.timestamp("us")),
        (lambda cells: is_text(cells) or _whole(cells), pa.large_string()),
    ):
        if all(map(fits, plain)):
            return kind
    return None


def cast(array: Arrow, kind: Arrow) -> Arrow:
    """Return cells in the common type of their column; a time out of range raises ``ArrowInvalid``."""
    if array.type == kind:
        return array
    array = unpacked(array)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        array = array.cast(pa.large_string())  # as `by_kind` reads it
    if pa.types.is_timestamp(array.type):
        array = microseconds(array)
    return array.cast(kind, safe=not pa.types.is_floating(kind))


def _small(cells: Arrow) -> bool:
    return bool(pa.types.is_integer(cells) and cells != pa.uint64())


def _whole(cells: Arrow) -> bool:
    decimal = pa.types.is_decimal(cells) and not pa.types.is_decimal256(cells) and cells.scale == 0
    return bool(pa.types.is_integer(cells) or decimal)


def _number(cells: Arrow) -> bool:
    return bool(pa.types.is_integer(cells) or pa.types.is_floating(cells) or pa.types.is_decimal(cells))
