"""Kinds: what a schema declares about the cells of a column, and which inputs the column becomes.

Nothing here reads a cell (see `cells`), so a stored schema is understood without pyarrow. Only a number or a date that
declares no bounds leaves something to the data: its bounds are then observed.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar

import numpy as np

from ...errors import InvalidSetting
from ...exact.arrays import Floats
from .messages import listed, repeated

OTHER = "other"
DAY = 86_400_000_000  # microseconds
_LARGEST = sys.float_info.max
_RANGE = ("low", "high", "fill")


class Kind(ABC):
    """What the cells of a column are. The fields of a kind are the keys that a column may have in a schema."""

    kind: ClassVar[str]
    in_words: ClassVar[str]  # what the cells are
    in_csv: ClassVar[str]  # Arrow's name of the type to read from CSV, whatever the first rows look like

    def bounds(self) -> tuple[float, float]:
        """Return low and high of the inputs; NaN where they are observed."""
        return 0.0, 1.0

    @abstractmethod
    def filler(self) -> float | None:
        """Return the fill as the float that its cell would be read as."""

    def inputs(self, column: str) -> tuple[str, ...]:
        """Return the names of the k inputs that the column becomes."""
        return (column,)

    def spread(self, values: Floats) -> Floats:
        """Turn one float per cell into the inputs: (n,) -> (n, k)."""
        return values[:, None]


@dataclass(frozen=True)
class Number(Kind):
    """Whole numbers, floats and decimals."""

    low: float | None = None
    high: float | None = None
    fill: float | None = None

    kind = "number"
    in_words = "numbers"
    in_csv = "float64"

    def __post_init__(self) -> None:
        _normalise(self, _finite)
        if not math.isfinite((self.high or 0.0) - (self.low or 0.0)):
            raise InvalidSetting("high - low must be finite; rescale the column")

    def bounds(self) -> tuple[float, float]:
        return _or_nan(self.low), _or_nan(self.high)

    def filler(self) -> float | None:
        return self.fill


@dataclass(frozen=True)
class Boolean(Kind):
    """True and false, or 1 and 0."""

    fill: bool | None = None

    kind = "boolean"
    in_words = "true and false, or 1 and 0"
    in_csv = "bool"

    def __post_init__(self) -> None:
        if self.fill is not None and not isinstance(self.fill, bool):
            raise InvalidSetting(f"fill must be true or false, got {self.fill!r}")

    def filler(self) -> float | None:
        return None if self.fill is None else float(self.fill)


@dataclass(frozen=True)
class Date(Kind):
    """Dates and times, as days since 1970-01-01 in UTC. A time counts to the microsecond."""

    low: datetime | None = None
    high: datetime | None = None
    fill: datetime | None = None

    kind = "date"
    in_words = "dates or times like 2024-12-31 or 2024-12-31T23:59:59"
    in_csv = "string"

    def __post_init__(self) -> None:
        _normalise(self, _moment)

    def bounds(self) -> tuple[float, float]:
        return _or_nan(_day(self.low)), _or_nan(_day(self.high))

    def filler(self) -> float | None:
        return _day(self.fill)


@dataclass(frozen=True)
class Category(Kind):
    """Text. Each declared value becomes an input that is 1 or 0; for any other text all of them are 0."""

    values: tuple[str, ...] = ()
    fill: str | None = None

    kind = "category"
    in_words = "text or whole numbers"
    in_csv = "string"

    def __post_init__(self) -> None:
        if not texts(self.values) or not self.values or "" in self.values:
            raise InvalidSetting('values must be a list of texts in quotes, like ["Berlin", "Paris"]')
        if twice := repeated(self.values):
            raise InvalidSetting(f"values must differ; duplicates: {listed(twice)}")
        if OTHER in self.values:
            raise InvalidSetting(f"values must not contain {OTHER!r}: that is every value which is not declared")
        if self.fill is not None and self.fill not in (*self.values, OTHER):
            raise InvalidSetting(f"fill must be one of the values or {OTHER!r}, got {self.fill!r}")
        object.__setattr__(self, "values", tuple(self.values))

    def filler(self) -> float | None:
        """Return the place of the fill in the list of values, -1 for "other"."""
        if self.fill is None:
            return None
        return -1.0 if self.fill == OTHER else float(self.values.index(self.fill))

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


def texts(names: object) -> bool:
    """Return whether this is a list of texts."""
    return isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)


def _normalise(kind: Any, read: Callable[[str, Any], Any]) -> None:
    """Check low, high and fill, each by ``read`` and then against each other."""
    low, high, fill = (None if (value := getattr(kind, key)) is None else read(key, value) for key in _RANGE)
    if (low is None) != (high is None):
        raise InvalidSetting("low and high come together: give both, or neither to have them observed")
    if low is not None and low > high:
        raise InvalidSetting(f"low must not be above high, got low = {low}, high = {high}")
    if low is not None and fill is not None and not low <= fill <= high:
        raise InvalidSetting(f"fill must be between low and high, got fill = {fill}, low = {low}, high = {high}")
    for key, value in zip(_RANGE, (low, high, fill), strict=True):
        object.__setattr__(kind, key, value)


def _finite(key: str, value: Any) -> float:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not -_LARGEST <= value <= _LARGEST:
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


def _day(moment: datetime | None) -> float | None:
    """Return days since 1970, to the last bit as `cells` reads them: a row on a bound must not be outside."""
    if moment is None:
        return None
    return float((moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)) / DAY
