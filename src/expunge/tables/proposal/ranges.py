"""Ranges: columns of numbers and of dates.

Bounds include all people but a few outliers: fewer than ``people`` (and at most one in a hundred) who are further from
the others than these are from each other. With outliers the column clips. Positive numbers that are mostly small get a
log scale. Other columns with many different values get knots beside the linear scale, where knots divide the people
otherwise than the linear scale does. The fill is the median of people.

Numbers and days read from data are rounded as coarsely as their use allows.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...exact.arrays import Floats
from ..cells import Arrow, read_cells
from ..kinds import LINEAR, LOG, Date, Ignore, Number
from ..knots import has_more_values, place_knots, quantile
from .summaries import TARGET_GAPS_NOTE, ColumnSample, Extremes, ProposedKind, SampleOwners

_MAX_PARTS = 10  # into which knots divide the people
_MIN_PARTS = 4
_MIN_DISTINCT_VALUES = 20  # a column with at most this many different values keeps a linear scale
_MIN_UNEVENNESS = 0.05  # distance of knots from a linear scale, as a share of the range
_SKEW_RATIO = 2.5  # times as far above the median as below it
_SPARSE_SHARE = 0.1  # of the range, if nine of ten people are in it
_LOG_SPAN = 1023  # the range of a log scale that begins at zero, in units of its first step
_DIGITS = 2_000  # enough for every digit from 1e308 down to 1e-326
_TOO_FAR = "has values that are too far apart for float64"


@dataclass(frozen=True, eq=False)
class ValueDistribution:
    """The distribution of a column's values, with one value per person."""

    values: Floats  # (n,) of a sample of people, sorted
    people: int  # with a value
    lows: Sequence[float]  # (k + 1,) the least values of k people, the least first, then that of all others
    highs: Sequence[float]  # (k + 1,) the largest, likewise

    @property
    def low(self) -> float:
        """The least value."""
        return self.lows[0]

    @property
    def high(self) -> float:
        """The largest value."""
        return self.highs[0]

    @property
    def inner_low(self) -> float:
        """The least value of all people but a few."""
        return self.lows[-1]

    @property
    def inner_high(self) -> float:
        """The largest value of all people but a few."""
        return self.highs[-1]

    @cached_property
    def is_varied(self) -> bool:
        """Whether there are many different values."""
        return has_more_values(self.values, _MIN_DISTINCT_VALUES)

    def is_skewed(self) -> bool:
        """Return whether there are many values, none below zero, and most small compared with the largest.

        That is: from the median to the ninth decile it is more than `_SKEW_RATIO` times as far as from the first decile
        to the median, and from there to the end further still; or nine of ten people are in the lowest tenth of the
        range.
        """
        if self.low < 0 or self.inner_high <= self.inner_low or not self.is_varied:
            return False
        low, middle, high = map(self.quantile, (0.1, 0.5, 0.9))
        sparse = high - self.inner_low <= _SPARSE_SHARE * (self.inner_high - self.inner_low)
        return sparse or (high - middle > _SKEW_RATIO * (middle - low) and self.inner_high - high > high - middle)

    def bounds(self, *, log: bool) -> tuple[float, float]:
        """Return the range without outliers: people further from the others than these are from each other."""
        begin = self._log_start if log else self.low
        lows = [max(begin, value) for value in self.lows]
        low, high = self._position(lows[-1], log=log), self._position(self.inner_high, log=log)
        span = high - low if high > low else math.inf
        return (
            next(value for value in (begin, *lows) if low - self._position(value, log=log) <= span),
            next(value for value in self.highs if self._position(value, log=log) - high <= span),
        )

    @cached_property
    def _log_start(self) -> float:
        """Where a log scale begins: at zero if otherwise half of the scale would serve the lowest tenth of people."""
        if self.low == 0 or math.log(self.quantile(0.1) / self.low) > 0.5 * math.log(self.inner_high / self.low):
            return 0.0
        return self.low

    def _position(self, value: float, *, log: bool) -> float:
        """Return the position of a value on the scale, up to a factor."""
        if not log:
            return value
        return math.log(value) if self._log_start else math.log1p(_LOG_SPAN * value / self.inner_high)

    def span(self) -> float:
        """Return the distance between the first and ninth decile, or else the whole range, or the distance to zero."""
        return self.quantile(0.9) - self.quantile(0.1) or self.high - self.low or abs(self.high)

    def quantile(self, fraction: float) -> float:
        """Return the least value that at least this fraction of the people does not exceed."""
        return quantile(self.values, fraction)

    def split_fractions(self, people: int) -> list[float]:
        """Return the fractions that divide the people into at most ten equal parts of at least ``people`` each.

        The list is empty if there are not enough people, or not enough different values.
        """
        count = min(_MAX_PARTS, self.people // people)
        if count < _MIN_PARTS or not self.is_varied:
            return []
        return [k / count for k in range(1, count)]


def is_uneven(knots: list[float]) -> bool:
    """Return whether a scale with these knots differs enough from a linear one."""
    even = np.linspace(knots[0], knots[-1], len(knots))
    return len(knots) > _MIN_PARTS and bool(np.abs(even - knots).max() > _MIN_UNEVENNESS * (knots[-1] - knots[0]))


def round_outward(low: float, high: float, *, log: bool = False) -> tuple[float, float]:
    """Round bounds outward, to about two digits of their span.

    On a log scale a low end above zero stays above it, with one digit of its own.
    """
    with localcontext(prec=_DIGITS):
        least, largest = Decimal(repr(low)), Decimal(repr(high))
        span = (largest - least) or abs(least) or Decimal(1)
        step = Decimal(1).scaleb(span.adjusted() - 1)
        low_step = min(Decimal(1).scaleb(least.adjusted()), step) if log and least > 0 else step
        return float(least.quantize(low_step, ROUND_FLOOR)), float(largest.quantize(step, ROUND_CEILING))


def round_to_step(values: Iterable[float], span: float) -> list[float]:
    """Round values to a multiple of 1, 2 or 5 times a power of ten, of which 40 to 100 fit into the span."""
    with localcontext(prec=_DIGITS):
        width = Decimal(repr(span)) or Decimal(1)
        unit = Decimal(1).scaleb(width.adjusted() - 2)
        step = next(unit * times for times in (20, 10, 5, 2) if width >= 40 * unit * times)
        return [float((Decimal(repr(value)) / step).to_integral_value() * step) + 0.0 for value in values]


def round_days_outward(low: float, high: float) -> tuple[float, float]:
    """Round bounds outward, to whole years, months or days."""
    span = high - low
    unit = "Y" if span > 3650 else "M" if span > 365 else "D"
    first = np.datetime64(math.floor(low), "D").astype(f"M8[{unit}]")
    last = np.datetime64(math.ceil(high), "D")
    end = last.astype(first.dtype) + int(last.astype(first.dtype).astype(last.dtype) < last)
    return _day_number(first), _day_number(end)


def round_days(values: Iterable[float], span: float) -> list[float]:
    """Round days down to the first of the month or, if the span is a year or less, to whole days."""
    unit = "M8[M]" if span > 365 else "M8[D]"
    return [_day_number(np.datetime64(math.floor(value), "D").astype(unit)) for value in values]


def _day_number(moment: np.datetime64) -> float:
    return float(moment.astype("M8[D]").astype(np.int64))


class RangeSummary(ABC):
    """The summary of a column of ordered values."""

    kind: Any  # Number or Date
    allows_log: ClassVar[bool]  # whether the scale may be "log"

    def __init__(self, name: str, people: int) -> None:
        self.name, self.people, self.csv_type = name, people, self.kind().csv_type
        self.gaps, self._infinite = False, False
        self._sample, self._low, self._high = ColumnSample(), Extremes(people, -1), Extremes(people, 1)

    def add(self, array: Arrow, owners: SampleOwners) -> None:
        self.add_values(read_cells(self.kind(), self.name, array), owners)

    def add_values(self, values: Floats, owners: SampleOwners) -> None:
        """Add values, NaN for a gap."""
        finite = np.isfinite(values)
        self.gaps |= bool(np.isnan(values).any())
        self._infinite |= bool(np.isinf(values).any())
        if not finite.all():
            values, owners = values[finite], owners.select(finite)
        for kept in (self._sample, self._low, self._high):
            kept.add(values, owners)

    def propose(self) -> ProposedKind:
        if (values := self._distribution()) is None:
            return Ignore(), "has infinite values" if self._infinite else "has no values"
        log = self.allows_log and values.is_skewed()
        low, high = self.round_bounds(*values.bounds(log=log), log=log)
        if not math.isfinite(high - low):
            return Ignore(), _TOO_FAR
        (middle,) = self.round_values([values.quantile(0.5)], values.span())
        fill = self.to_value(min(max(middle, low), high)) if self.gaps else None
        scale = LOG if log else self._propose_scale(values, low, high)
        clip = values.low < low or values.high > high
        note = f"fewer than {self.people} have values far outside these bounds: they count as the bound" if clip else ""
        return self.kind(self.to_value(low), self.to_value(high), fill, scale, clip=clip), note

    def propose_target(self) -> ProposedKind | None:
        if (values := self._distribution()) is None:
            return None
        low, high = self.round_bounds(values.low, values.high, log=False)
        if not math.isfinite(high - low):
            return None
        few = f"fewer than {self.people} have values that stretch these bounds by far: check them"
        notes = [TARGET_GAPS_NOTE] * self.gaps + [few] * (values.bounds(log=False) != (values.low, values.high))
        return self.kind(self.to_value(low), self.to_value(high)), "; ".join(notes)

    def _distribution(self) -> ValueDistribution | None:
        """Return the distribution of the values; None if there are none, or infinite ones."""
        values, people = self._sample.values(), self._sample.people()
        if self._infinite or not people:
            return None
        few = min(self.people - 1, people // 100)
        lows, highs = ([end.value_beyond(k) for k in range(few + 1)] for end in (self._low, self._high))
        return ValueDistribution(values, people, lows, highs)

    def _propose_scale(self, distribution: ValueDistribution, low: float, high: float) -> Any:
        """Return a linear scale and one with knots, or None if a linear scale alone does as well."""
        span, fractions = distribution.span(), distribution.split_fractions(self.people)
        inner = place_knots(distribution.values, fractions, lambda values: self.round_values(values, span))
        knots = [low, *(knot for knot in inner if low < knot < high), high]
        return [LINEAR, list(map(self.to_value, knots))] if is_uneven(knots) else None

    @abstractmethod
    def round_bounds(self, low: float, high: float, *, log: bool) -> tuple[float, float]:
        """Round bounds outward."""

    @abstractmethod
    def round_values(self, values: Iterable[float], span: float) -> list[float]:
        """Round values to a fraction of a span."""

    @abstractmethod
    def to_value(self, number: float) -> Any:
        """Return a number as a value of the column."""


class NumberSummary(RangeSummary):
    """The summary of a column of numbers."""

    kind, allows_log = Number, True

    def round_bounds(self, low: float, high: float, *, log: bool) -> tuple[float, float]:
        return round_outward(low, high, log=log)

    def round_values(self, values: Iterable[float], span: float) -> list[float]:
        return round_to_step(values, span)

    def to_value(self, number: float) -> float:
        return number


class DateSummary(RangeSummary):
    """The summary of a column of dates and times, as days."""

    kind, allows_log = Date, False

    def propose(self) -> ProposedKind:
        values, (first, last) = self._distribution(), Date(datetime.min, datetime.max).bounds()
        if values is None or (first <= values.low and values.high <= last):
            return super().propose()
        middle = min(max(values.quantile(0.5), first), last)
        fill = self.to_value(*self.round_values([middle], values.span())) if self.gaps else None
        return Date(fill=fill), "has dates beyond the years 1 to 9999, so the bounds are observed"

    def propose_target(self) -> ProposedKind | None:
        return None

    def round_bounds(self, low: float, high: float, *, log: bool) -> tuple[float, float]:
        return round_days_outward(low, high)

    def round_values(self, values: Iterable[float], span: float) -> list[float]:
        return round_days(values, span)

    def to_value(self, number: float) -> datetime:
        day = np.datetime64(int(number), "D").item()
        return datetime.combine(day, time()) if isinstance(day, date) else datetime.max  # rounded up beyond year 9999
