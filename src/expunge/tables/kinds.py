"""Kinds: what a schema declares about the cells of a column, and which inputs the column becomes.

No cell is read here (see `cells`), so a stored schema can be used without pyarrow. Only a number or a date without
declared bounds depends on the data: its bounds are then observed.

A scale maps a column of numbers or dates to values between 0 and 1. It is "linear", "log" or a list of knots; a list of
several scales gives the input once on each. A schema stores one form of equivalent scales: a single scale has no list
around it. Without a declared scale (None) an input is linear, but a plan may choose knots for it.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ..errors import InvalidSetting
from ..exact.arrays import Floats
from .messages import find_duplicates, quote_names
from .notations import NumberNotation, check_date_format

Scale: TypeAlias = Any  # None, "linear", "log", knots (a tuple), or a tuple of these

LINEAR, LOG = "linear", "log"
OTHER = "other"
ANY_TEXT = "text"  # instead of a list of gaps: any text that is not a number
MICROSECONDS_PER_DAY = 86_400_000_000
_MAX_KNOTS = 256  # that the encoder accepts
_MAX_FLOAT = sys.float_info.max
_RANGE_KEYS = ("low", "high", "fill")


@dataclass(frozen=True)
class ScaleRules:
    """The scales that a kind of column may have, and how their knots are read."""

    names: Sequence[str]  # "linear", and "log" if allowed
    check_value: Callable[[str, Any], Any]  # checks a value of the column; errors refer to it by the text
    to_float: Callable[[Any], float]  # the float that a cell with this value would be

    def normalise(self, scale: Any) -> Scale:
        """Return the stored form of a scale as written in a schema."""
        several = isinstance(scale, (list, tuple)) and any(isinstance(part, (str, list, tuple)) for part in scale)
        scales = tuple(map(self._normalise_single, scale if several else [scale]))
        if len(set(scales)) < len(scales):
            raise InvalidSetting("scale must not give an input twice on the same scale")
        return scales[0] if len(scales) == 1 else scales

    def to_model(self, scale: Scale) -> Any:
        """Return a scale as a model takes it: a name, a list of numbers, or a list of these."""
        if scale is None or isinstance(scale, str):
            return scale or LINEAR
        return [self.to_model(part) if isinstance(part, (str, tuple)) else self.to_float(part) for part in scale]

    def _normalise_single(self, scale: Any) -> Any:
        if isinstance(scale, str) and scale in self.names:
            return scale
        if not isinstance(scale, (list, tuple)):
            words = " or ".join(f'"{name}"' for name in self.names)
            raise InvalidSetting(f"scale must be {words}, a list of knots, or a list of these, got {scale!r}")
        knots = tuple(self.check_value("every knot of scale", knot) for knot in scale)
        floats = list(map(self.to_float, knots))
        if not 2 <= len(knots) <= _MAX_KNOTS or any(left >= right for left, right in pairwise(floats)):
            raise InvalidSetting(f"scale must have 2 to {_MAX_KNOTS} knots, each above the one before")
        if not math.isfinite(floats[-1] - floats[0]):
            raise InvalidSetting("the knots of scale must not be too far apart for float64; rescale the column")
        return knots


def _check_number(key: str, value: Any) -> float:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not -_MAX_FLOAT <= value <= _MAX_FLOAT:
        raise InvalidSetting(f"{key} must be a finite number, got {value!r}")
    return float(value) + 0.0  # -0.0 and 0.0 are one bound


def _check_date(key: str, value: Any) -> datetime:
    if not isinstance(value, date):
        raise InvalidSetting(f"{key} must be a date without quotes, like 2024-12-31, got {value!r}")
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value


def _days_since_1970(moment: datetime) -> float:
    """Return days since 1970, bit for bit as `cells` reads them: a row on a bound must not be outside."""
    return float((moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)) / MICROSECONDS_PER_DAY


_NUMBER_SCALES = ScaleRules((LINEAR, LOG), _check_number, float)
_DATE_SCALES = ScaleRules((LINEAR,), _check_date, _days_since_1970)


class ColumnKind(ABC):
    """The kind of a column's cells. Its fields are the keys that the column may have in a schema."""

    kind: ClassVar[str]
    cell_description: ClassVar[str]  # for errors

    @property
    @abstractmethod
    def csv_type(self) -> str:
        """Arrow's name of the type to read from CSV, independent of what the first rows look like."""

    def bounds(self) -> tuple[float, float]:
        """Return low and high of the inputs; NaN where they are observed."""
        return 0.0, 1.0

    @abstractmethod
    def fill_value(self) -> float | None:
        """Return the fill as the float that a cell with this value would be read as."""

    def scales(self) -> Any:
        """Return the scales of an input, as a model takes them: "linear" where nothing else is declared."""
        return LINEAR

    @property
    def declares_scale(self) -> bool:
        """Whether a scale is declared, if only "linear"."""
        return False

    @property
    def clips(self) -> bool:
        """Whether values outside the bounds count as the bound; otherwise their rows are refused."""
        return False

    def input_names(self, column: str) -> tuple[str, ...]:
        """Return the names of the k inputs that the column becomes."""
        return (column,)

    def to_inputs(self, values: Floats) -> Floats:
        """Turn one float per cell into the inputs: (n,) -> (n, k)."""
        return values[:, None]


class RangeKind(ColumnKind):
    """A kind whose values are in order: it may have bounds, a fill between them, and a scale."""

    rules: ClassVar[ScaleRules]

    low: Any
    high: Any
    fill: Any
    scale: Scale
    clip: bool | None

    def __post_init__(self) -> None:
        """Check low, high, fill, scale and clip, and store each in one form of those that are equivalent."""
        low, high, fill = (
            None if (value := getattr(self, key)) is None else self.rules.check_value(key, value) for key in _RANGE_KEYS
        )
        if (low is None) != (high is None):
            raise InvalidSetting("low and high belong together: give both, or neither to have them observed")
        if low is not None and low > high:
            raise InvalidSetting(f"low must not be above high, got low = {low}, high = {high}")
        if low is not None and fill is not None and not low <= fill <= high:
            raise InvalidSetting(f"fill must be between low and high, got fill = {fill}, low = {low}, high = {high}")
        if self.clip is not None and not isinstance(self.clip, bool):
            raise InvalidSetting(f"clip must be true or false, got {self.clip!r}")
        if self.clip and low is None:
            raise InvalidSetting("clip moves values to the bounds: declare low and high")
        scale = None if self.scale is None else self.rules.normalise(self.scale)
        values = (low, high, fill, scale, self.clip or None)
        for key, value in zip((*_RANGE_KEYS, "scale", "clip"), values, strict=True):
            object.__setattr__(self, key, value)

    def bounds(self) -> tuple[float, float]:
        low, high = (math.nan if end is None else self.rules.to_float(end) for end in (self.low, self.high))
        return low, high

    def fill_value(self) -> float | None:
        return None if self.fill is None else self.rules.to_float(self.fill)

    def scales(self) -> Any:
        return self.rules.to_model(self.scale)

    @property
    def declares_scale(self) -> bool:
        return self.scale is not None

    @property
    def clips(self) -> bool:
        return bool(self.clip)


@dataclass(frozen=True)
class Number(RangeKind):
    """Whole numbers, floats and decimals; with ``gaps`` or a ``format`` also numbers written as text."""

    low: float | None = None
    high: float | None = None
    fill: float | None = None
    scale: Scale = None
    gaps: tuple[str, ...] | str | None = None  # texts that count as empty cells, or "text": any that is not a number
    clip: bool | None = None
    format: str | None = None  # 1234.56 as the cells of a column of text write it, if not like this

    kind = "number"
    cell_description = "numbers"
    rules = _NUMBER_SCALES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite((self.high or 0.0) - (self.low or 0.0)):
            raise InvalidSetting("high - low must be finite; rescale the column")
        if self.format is not None:
            NumberNotation.parse(self.format)
        if self.gaps is not None and self.gaps != ANY_TEXT:
            object.__setattr__(self, "gaps", _normalise_gaps(self.gaps))

    @property
    def csv_type(self) -> str:
        return "string" if self.reads_text else "float64"

    @property
    def reads_text(self) -> bool:
        """Whether cells may be text."""
        return self.gaps is not None or self.format is not None


@dataclass(frozen=True)
class Boolean(ColumnKind):
    """True and false, or 1 and 0."""

    fill: bool | None = None

    kind = "boolean"
    cell_description = "true and false, or 1 and 0"
    csv_type = "bool"

    def __post_init__(self) -> None:
        if self.fill is not None and not isinstance(self.fill, bool):
            raise InvalidSetting(f"fill must be true or false, got {self.fill!r}")

    def fill_value(self) -> float | None:
        return None if self.fill is None else float(self.fill)


@dataclass(frozen=True)
class Date(RangeKind):
    """Dates and times, as days since 1970-01-01 in UTC, to the microsecond."""

    low: datetime | None = None
    high: datetime | None = None
    fill: datetime | None = None
    scale: Scale = None
    clip: bool | None = None
    format: str | None = None  # the last day of 2020 as the cells of a column of text write it, if not like 2020-12-31

    kind = "date"
    csv_type = "string"
    rules = _DATE_SCALES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format is not None:
            check_date_format(self.format)

    @property
    def cell_description(self) -> str:  # type: ignore[override]  # that of the others is constant
        also = "" if self.format is None else f"{self.format}, "
        return f"dates or times like {also}2024-12-31 or 2024-12-31T23:59:59"


@dataclass(frozen=True)
class Category(ColumnKind):
    """Text. Each declared value becomes an input that is 1 or 0; for any other text all inputs are 0."""

    values: tuple[str, ...] = ()
    fill: str | None = None

    kind = "category"
    cell_description = "text or whole numbers"
    csv_type = "string"

    def __post_init__(self) -> None:
        if not is_text_list(self.values) or not self.values or "" in self.values:
            raise InvalidSetting('values must be a list of texts in quotes, like ["Berlin", "Paris"]')
        if twice := find_duplicates(self.values):
            raise InvalidSetting(f"values must differ; duplicates: {quote_names(twice)}")
        if OTHER in self.values:
            raise InvalidSetting(f"values must not contain {OTHER!r}: it stands for all values that are not declared")
        if self.fill is not None and self.fill not in (*self.values, OTHER):
            raise InvalidSetting(f"fill must be one of the values or {OTHER!r}, got {self.fill!r}")
        object.__setattr__(self, "values", tuple(self.values))

    def fill_value(self) -> float | None:
        """Return the position of the fill in the list of values, -1 for "other"."""
        if self.fill is None:
            return None
        return -1.0 if self.fill == OTHER else float(self.values.index(self.fill))

    def input_names(self, column: str) -> tuple[str, ...]:
        return tuple(f"{column}={value}" for value in self.values)

    def to_inputs(self, values: Floats) -> Floats:
        hot: Floats = (values[:, None] == np.arange(len(self.values))).astype(np.float64)
        return hot


@dataclass(frozen=True)
class Ignore:
    """A column that is not used."""

    kind: ClassVar[str] = "ignore"


KINDS: dict[str, Any] = {kind.kind: kind for kind in (Number, Boolean, Date, Category, Ignore)}


def is_text_list(value: object) -> bool:
    """Return whether this is a list or tuple of texts."""
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)


def _normalise_gaps(gaps: Any) -> tuple[str, ...]:
    if not is_text_list(gaps) or any(not text or text != text.strip() for text in gaps):
        advice = f'without blanks around them, like ["?", "-"], or "{ANY_TEXT}" for any text that is not a number'
        raise InvalidSetting(f"gaps must be a list of texts {advice}")
    if twice := find_duplicates(gaps):
        raise InvalidSetting(f"gaps must differ; duplicates: {quote_names(twice)}")
    return tuple(sorted(gaps))
