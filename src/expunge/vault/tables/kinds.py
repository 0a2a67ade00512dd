"""Kinds: what the cells of a column are, and how they become floats.

A cell is read without a look at any other row. Only a number or a date that declares no bounds leaves something to the
data: its bounds are then observed.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow.csv import ConvertOptions

from ...errors import InvalidInput, InvalidSetting
from ...exact.arrays import Floats

Arrow: TypeAlias = Any  # an array, type, batch or schema of pyarrow, which ships no types

OTHER = "other"
_LARGEST = sys.float_info.max
_RANGE = ("low", "high", "fill")
_DAY = 86_400_000_000  # microseconds
_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"  # after a time: the end of a date looks the same
_GAPS = ConvertOptions().null_values  # what is a gap among the numbers of a CSV file is one among its dates


class WrongCell(InvalidInput):
    """A cell is not of its column's kind. Which one is said by its place: what is in it must not get out."""

    def __init__(self, column: str, cells: str, where: str) -> None:
        super().__init__(
            f"column {column!r} must hold {cells}, but {where} does not; correct it or declare another kind"
        )
        self.column = column


class Kind(ABC):
    """What the cells of a column are. The fields of a kind are the keys that a column may have in a schema."""

    kind: ClassVar[str]
    cells: ClassVar[str]
    in_csv: ClassVar[Arrow]  # the type to read from CSV, whatever the first rows look like

    def bounds(self) -> tuple[float, float]:
        """Where the inputs begin and end; NaN where that is observed."""
        return 0.0, 1.0

    @abstractmethod
    def filler(self) -> float | None:
        """The fill, as `read` would have read it."""

    @abstractmethod
    def takes(self, cells: Arrow) -> bool:
        """Whether cells of this type can be read."""

    @abstractmethod
    def read(self, column: str, array: Arrow) -> Floats:
        """One float a cell, NaN for a gap: (n,)."""

    def inputs(self, column: str) -> tuple[str, ...]:
        """The names of the k inputs that the column becomes."""
        return (column,)

    def spread(self, values: Floats) -> Floats:
        """From what `read` gave to the inputs: (n,) -> (n, k)."""
        return values[:, None]


@dataclass(frozen=True)
class Number(Kind):
    """Whole numbers, floats and decimals."""

    low: float | None = None
    high: float | None = None
    fill: float | None = None

    kind = "number"
    cells = "numbers"
    in_csv = pa.float64()

    def __post_init__(self) -> None:
        _normalise(self, _finite)
        if not math.isfinite((self.high or 0.0) - (self.low or 0.0)):
            raise InvalidSetting("high - low must be finite; rescale the column")

    def bounds(self) -> tuple[float, float]:
        return _or_nan(self.low), _or_nan(self.high)

    def filler(self) -> float | None:
        return self.fill

    def takes(self, cells: Arrow) -> bool:
        return bool(pa.types.is_integer(cells) or pa.types.is_floating(cells) or pa.types.is_decimal(cells))

    def read(self, column: str, array: Arrow) -> Floats:
        # pyarrow's cast of a decimal is off by one bit in about one of a hundred; its reading of text is not.
        return _floats(array.cast(pa.large_string()) if pa.types.is_decimal(array.type) else array)


@dataclass(frozen=True)
class Boolean(Kind):
    """True and false, or 1 and 0."""

    fill: bool | None = None

    kind = "boolean"
    cells = "true and false, or 1 and 0"
    in_csv = pa.bool_()

    def __post_init__(self) -> None:
        if self.fill is not None and not isinstance(self.fill, bool):
            raise InvalidSetting(f"fill must be true or false, got {self.fill!r}")

    def filler(self) -> float | None:
        return None if self.fill is None else float(self.fill)

    def takes(self, cells: Arrow) -> bool:
        return bool(pa.types.is_boolean(cells) or pa.types.is_integer(cells) or pa.types.is_floating(cells))

    def read(self, column: str, array: Arrow) -> Floats:
        values = _floats(array)
        if ((values != 0) & (values != 1) & ~np.isnan(values)).any():
            raise WrongCell(column, self.cells, "some row")
        return values


@dataclass(frozen=True)
class Date(Kind):
    """Dates and times, as days since 1970-01-01 in UTC. A time counts to the microsecond."""

    low: datetime | None = None
    high: datetime | None = None
    fill: datetime | None = None

    kind = "date"
    cells = "dates or times like 2024-12-31 or 2024-12-31T23:59:59"
    in_csv = pa.string()

    def __post_init__(self) -> None:
        _normalise(self, _moment)

    def bounds(self) -> tuple[float, float]:
        return _or_nan(_day(self.low)), _or_nan(_day(self.high))

    def filler(self) -> float | None:
        return _day(self.fill)

    def takes(self, cells: Arrow) -> bool:
        return is_text(cells) or bool(pa.types.is_date(cells) or pa.types.is_timestamp(cells))

    def read(self, column: str, array: Arrow) -> Floats:
        try:
            return _days(_parsed(array) if is_text(array.type) else array)
        except pa.ArrowInvalid:  # it quotes the cell
            raise WrongCell(column, self.cells, "some row") from None


@dataclass(frozen=True)
class Category(Kind):
    """Text. Each declared value becomes an input that is 1 or 0; for any other text all of them are 0."""

    values: tuple[str, ...] = ()
    fill: str | None = None

    kind = "category"
    cells = "text or whole numbers"
    in_csv = pa.string()

    def __post_init__(self) -> None:
        if not texts(self.values) or not self.values or "" in self.values:
            raise InvalidSetting('values must be a list of texts in quotes, like ["Berlin", "Paris"]')
        if twice := repeated(self.values):
            raise InvalidSetting(f"values must differ; there more than once: {listed(twice)}")
        if OTHER in self.values:
            raise InvalidSetting(f"values must not contain {OTHER!r}: that is every value which is not declared")
        if self.fill is not None and self.fill not in (*self.values, OTHER):
            raise InvalidSetting(f"fill must be one of the values or {OTHER!r}, got {self.fill!r}")
        object.__setattr__(self, "values", tuple(self.values))

    def filler(self) -> float | None:
        if self.fill is None:
            return None
        return -1.0 if self.fill == OTHER else float(self.values.index(self.fill))

    def takes(self, cells: Arrow) -> bool:
        return is_text(cells) or bool(pa.types.is_integer(cells))

    def read(self, column: str, array: Arrow) -> Floats:
        """A value's place in the list, or -1."""
        text = array.cast(pa.large_string())
        places = _floats(pc.index_in(text, pa.array(self.values, pa.large_string())).fill_null(-1))
        places[_mask(pc.equal(text, "").fill_null(True))] = np.nan
        return places

    def inputs(self, column: str) -> tuple[str, ...]:
        return tuple(f"{column}={value}" for value in self.values)

    def spread(self, values: Floats) -> Floats:
        hot: Floats = (values[:, None] == np.arange(len(self.values))).astype(np.float64)
        return hot


@dataclass(frozen=True)
class Ignore:
    """A column that is left out."""

    kind: ClassVar[str] = "ignore"


KINDS: dict[str, Any] = {kind.kind: kind for kind in (Number, Boolean, Date, Category, Ignore)}


def filled(column: str, kind: Kind, array: Arrow) -> Floats:
    """One finite float a cell, gaps filled: (n,)."""
    cells = unpacked(array if not pa.types.is_null(array.type) else array.cast(kind.in_csv))
    if not kind.takes(cells.type):
        raise InvalidInput(f"column {column!r} must hold {kind.cells}, got {array.type}; declare another kind")
    read, fill = kind.read(column, cells), kind.filler()
    if np.isfinite(read).all():
        return read
    gaps = np.isnan(read)
    if fill is None and gaps.any():
        way_out = "leave those rows out or, for an input, declare a fill"
        raise InvalidInput(f"column {column!r} has {gaps.sum()} gaps in {len(read)} rows; {way_out}")
    if infinite := np.isinf(read).sum():
        raise InvalidInput(f"column {column!r} has {infinite} infinite values in {len(read)} rows; leave them out")
    read[gaps] = fill
    return read


def is_text(cells: Arrow) -> bool:
    """Whether cells of this type are text."""
    return bool(pa.types.is_string(cells) or pa.types.is_large_string(cells) or pa.types.is_string_view(cells))


def unpacked_type(cells: Arrow) -> Arrow:
    """The type of the cells that a dictionary stands for."""
    return unpacked_type(cells.value_type) if pa.types.is_dictionary(cells) else cells


def unpacked(array: Arrow) -> Arrow:
    """Dictionaries and views as plain arrays: many of pyarrow's functions take no others."""
    if pa.types.is_dictionary(array.type):
        return unpacked(array.dictionary).take(array.indices)
    return array.cast(pa.large_string()) if is_text(array.type) else array


def texts(names: object) -> bool:
    """Whether this is a list of texts."""
    return isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)


def repeated(names: Iterable[str]) -> list[str]:
    """The names that are there more than once."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def listed(names: Iterable[str]) -> str:
    """Names as an error shows them."""
    return ", ".join(map(repr, names))


def _normalise(kind: Any, read: Callable[[str, Any], Any]) -> None:
    """Check low, high and fill, each by ``read`` and then against each other."""
    low, high, fill = (None if (value := getattr(kind, key)) is None else read(key, value) for key in _RANGE)
    if (low is None) != (high is None):
        raise InvalidSetting("low and high come together: give both, or neither to have them observed")
    if low is not None and low > high:
        raise InvalidSetting(f"low must not be above high, got low = {low}, high = {high}")
    if low is not None and fill is not None and not low <= fill <= high:
        raise InvalidSetting(f"fill must be between low and high, got {fill}")
    for key, value in zip(_RANGE, (low, high, fill), strict=True):
        object.__setattr__(kind, key, value)


def _finite(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_LARGEST <= value <= _LARGEST:
        raise InvalidSetting(f"{key} must be a finite number, got {value!r}")
    return float(value) + 0.0  # -0.0 and 0.0 are one bound


def _moment(key: str, value: Any) -> datetime:
    if not isinstance(value, date):
        raise InvalidSetting(f"{key} must be a date without quotes, like 2024-12-31, got {value!r}")
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _floats(array: Arrow) -> Floats:
    """A copy, NaN for null. Adding 0.0 turns -0.0 into 0.0: which of the two it was would else show in the bounds."""
    floats: Floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) + 0.0
    return floats


def _mask(array: Arrow) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return mask


def _parsed(text: Arrow) -> Arrow:
    """Times from ISO text. One with a zone is moved to UTC, one without is taken for UTC."""
    nothing = pa.scalar(None, text.type)
    text = pc.if_else(pc.is_in(text, pa.array(_GAPS, text.type)), nothing, text)
    text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(text, _ZONE)
    local = pc.if_else(zoned, nothing, text).cast(pa.timestamp("us"))
    return pc.coalesce(local, pc.if_else(zoned, text, nothing).cast(pa.timestamp("us", "UTC")).cast(local.type))


def _days(array: Arrow) -> Floats:
    """Days since 1970, NaN for null."""
    if pa.types.is_date(array.type):
        return _floats(array.cast(pa.date32()).cast(pa.int32()))
    return _floats(_microseconds(array)) / _DAY


def _microseconds(array: Arrow) -> Arrow:
    ticks, unit = array.cast(pa.int64()), array.type.unit
    if unit != "ns":
        return pc.multiply_checked(ticks, {"s": 10**6, "ms": 10**3, "us": 1}[unit])
    # Downward, also before 1970: as cutting digits off a text does.
    return pa.array(ticks.fill_null(0).to_numpy() // 1000, mask=_mask(ticks.is_null()))


def _day(moment: datetime | None) -> float | None:
    """The same of a date in a schema, to the last bit: a row on a bound must not be outside."""
    if moment is None:
        return None
    return float((moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)) / _DAY
