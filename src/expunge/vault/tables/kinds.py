"""Kinds: what a schema declares about the cells of a column, and which inputs the column becomes.

Nothing here reads a cell (see `cells`), so a stored schema is understood without pyarrow. Only a number or a date that
declares no bounds leaves something to the data: its bounds are then observed.
"""

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar

import numpy as np

from ...errors import InvalidSetting
from ...exact.arrays import Floats
from .messages import listed, repeated
from .scales import LINEAR, LOG, Scale, Scaling

OTHER = "other"
ANY_TEXT = "text"  # in place of a list of gaps: whatever is no number
DAY = 86_400_000_000  # microseconds
_LARGEST = sys.float_info.max
_RANGE = ("low", "high", "fill")


class Kind(ABC):
    """What the cells of a column are. The fields of a kind are the keys that a column may have in a schema."""

    kind: ClassVar[str]
    in_words: ClassVar[str]  # what the cells are

    @property
    @abstractmethod
    def in_csv(self) -> str:
        """Arrow's name of the type to read from CSV, whatever the first rows look like."""

    def bounds(self) -> tuple[float, float]:
        """Return low and high of the inputs; NaN where they are observed."""
        return 0.0, 1.0

    @abstractmethod
    def filler(self) -> float | None:
        """Return the fill as the float that its cell would be read as."""

    def scales(self) -> Any:
        """Return the scales of an input, as a model takes them: "linear" where nothing else is declared."""
        return LINEAR

    @property
    def says_scale(self) -> bool:
        """Whether a scale is declared, if only "linear"."""
        return False

    @property
    def clips(self) -> bool:
        """Whether a value outside the bounds counts as the bound; otherwise a row that has one is refused."""
        return False

    def inputs(self, column: str) -> tuple[str, ...]:
        """Return the names of the k inputs that the column becomes."""
        return (column,)

    def spread(self, values: Floats) -> Floats:
        """Turn one float per cell into the inputs: (n,) -> (n, k)."""
        return values[:, None]


@dataclass(frozen=True)
class Number(Kind):
    """Whole numbers, floats and decimals; with ``gaps`` also text that is read as numbers."""

    low: float | None = None
    high: float | None = None
    fill: float | None = None
    scale: Scale = None
    gaps: tuple[str, ...] | str | None = None  # texts that count as empty cells, or "text": whatever is no number
    clip: bool | None = None

    kind = "number"
    in_words = "numbers"

    def __post_init__(self) -> None:
        _normalise(self, _NUMBERS)
        if not math.isfinite((self.high or 0.0) - (self.low or 0.0)):
            raise InvalidSetting("high - low must be finite; rescale the column")
        if self.gaps is not None and self.gaps != ANY_TEXT:
            object.__setattr__(self, "gaps", _gaps(self.gaps))

    @property
    def in_csv(self) -> str:
        return "float64" if self.gaps is None else "string"

    def bounds(self) -> tuple[float, float]:
        return _or_nan(self.low), _or_nan(self.high)

    def filler(self) -> float | None:
        return self.fill

    def scales(self) -> Any:
        return _NUMBERS.plain(self.scale)

    @property
    def says_scale(self) -> bool:
        return self.scale is not None

    @property
    def clips(self) -> bool:
        return bool(self.clip)


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
    scale: Scale = None
    clip: bool | None = None

    kind = "date"
    in_words = "dates or times like 2024-12-31 or 2024-12-31T23:59:59"
    in_csv = "string"

    def __post_init__(self) -> None:
        _normalise(self, _DATES)

    def bounds(self) -> tuple[float, float]:
        low, high = (math.nan if end is None else _day(end) for end in (self.low, self.high))
        return low, high

    def filler(self) -> float | None:
        return None if self.fill is None else _day(self.fill)

    def scales(self) -> Any:
        return _DATES.plain(self.scale)

    @property
    def says_scale(self) -> bool:
        return self.scale is not None

    @property
    def clips(self) -> bool:
        return bool(self.clip)


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


def _normalise(kind: Any, scaling: Scaling) -> None:
    """Check low, high and fill, each by itself and then against each other; then scale and clip."""
    low, high, fill = (None if (value := getattr(kind, key)) is None else scaling.read(key, value) for key in _RANGE)
    if (low is None) != (high is None):
        raise InvalidSetting("low and high come together: give both, or neither to have them observed")
    if low is not None and low > high:
        raise InvalidSetting(f"low must not be above high, got low = {low}, high = {high}")
    if low is not None and fill is not None and not low <= fill <= high:
        raise InvalidSetting(f"fill must be between low and high, got fill = {fill}, low = {low}, high = {high}")
    if kind.clip is not None and not isinstance(kind.clip, bool):
        raise InvalidSetting(f"clip must be true or false, got {kind.clip!r}")
    if kind.clip and low is None:
        raise InvalidSetting("clip moves values to the bounds: declare low and high")
    scale = None if kind.scale is None else scaling.normal(kind.scale)
    for key, value in zip((*_RANGE, "scale", "clip"), (low, high, fill, scale, kind.clip or None), strict=True):
        object.__setattr__(kind, key, value)


def _gaps(gaps: Any) -> tuple[str, ...]:
    if not texts(gaps) or any(not text or text != text.strip() for text in gaps):
        advice = f'without blanks around them, like ["?", "-"], or "{ANY_TEXT}": whatever is no number'
        raise InvalidSetting(f"gaps must be a list of texts {advice}")
    if twice := repeated(gaps):
        raise InvalidSetting(f"gaps must differ; duplicates: {listed(twice)}")
    return tuple(sorted(gaps))


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


def _day(moment: datetime) -> float:
    """Return days since 1970, to the last bit as `cells` reads them: a row on a bound must not be outside."""
    return float((moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)) / DAY


_NUMBERS = Scaling((LINEAR, LOG), _finite, float)
_DATES = Scaling((LINEAR,), _moment, _day)
