"""Ranges: columns of numbers and of dates.

No number here is one person's. A bound starts at the value that at least ``people`` people have or exceed (`Extremes`).
It is extended by an exponential tail, estimated from ten times as many people, and rounded outward. Nearly always
everybody is inside; values outside count as the bound (``clip``). The most extreme values themselves decide nothing. A
column in which nearly everybody has a value that others share ends at the last shared value. The fill is the rounded
median of people. Scales are left to the plan.
"""

import math
from abc import ABC, abstractmethod
from datetime import date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any

import numpy as np

from ...exact.arrays import Floats
from ..cells import Arrow, read_cells
from ..kinds import Date, Ignore, Number
from ..knots import quantile
from .summaries import TARGET_GAPS_NOTE, ColumnSample, DistinctValues, Extremes, ProposedKind, SampleOwners

_TAIL = 10  # times as many people as a bound needs, to estimate the tail
_REACH = 2.0  # times the expected length of the tail
_SHARED = 0.95  # of the people, if their values are such that enough others have them: a column of few values
_DIGITS = 2_000  # enough for every digit from 1e308 down to 1e-326
_TOO_FAR = "has values that are too far apart for float64"
_YEAR = 365.25


def coarse_step(span: float) -> Decimal:
    """Return 1, 2 or 5 times a power of ten, of which 10 to 25 fit into the span."""
    with localcontext(prec=_DIGITS):
        width = Decimal(repr(span)) or Decimal(1)
        unit = Decimal(1).scaleb(width.adjusted() - 1)
        return next(unit * times for times in (5, 2, 1) if width >= 10 * unit * times)


def round_to_step(value: float, span: float, rounding: str = ROUND_HALF_EVEN) -> float:
    """Round a value to a multiple of the coarse step of a span."""
    with localcontext(prec=_DIGITS):
        step = coarse_step(span)
        return float((Decimal(repr(value)) / step).to_integral_value(rounding) * step) + 0.0


def _day_number(moment: np.datetime64) -> float:
    return float(moment.astype("M8[D]").astype(np.int64))


class RangeSummary(ABC):
    """The summary of a column of ordered values."""

    kind: Any  # Number or Date

    def __init__(self, name: str, people: int) -> None:
        self.name, self.people, self.csv_type = name, people, self.kind().csv_type
        self.gaps, self._infinite = False, False
        self.sample, self._low, self._high = ColumnSample(), Extremes(_TAIL * people, -1), Extremes(_TAIL * people, 1)
        self.distinct = DistinctValues()

    def add(self, array: Arrow, owners: SampleOwners) -> None:
        self.add_values(read_cells(self.kind(), self.name, array), owners)

    def add_values(self, values: Floats, owners: SampleOwners) -> None:
        """Add values, NaN for a gap."""
        finite = np.isfinite(values)
        self.gaps |= bool(np.isnan(values).any())
        self._infinite |= bool(np.isinf(values).any())
        if not finite.all():
            values, owners = values[finite], owners.select(finite)
        for collector in (self.sample, self._low, self._high):
            collector.add(values, owners)
        self.distinct.add(values)

    def propose(self) -> ProposedKind:
        values, count = self.sample.values(), self.sample.people()
        if self._infinite or not count:
            return Ignore(), "has infinite values" if self._infinite else "has no values"
        if not math.isfinite(float(values[-1]) - float(values[0])):
            return Ignore(), _TOO_FAR
        if self.gaps and count < 2 * self.people:
            return Ignore(), f"has gaps, and fewer than {2 * self.people} people (or rows) have a value"
        if (ends := self._find_bounds(values, count)) is None:
            need = 4 * self.people
            note = f"fewer than {need} people (or rows) have a value that could be a bound, so the bounds are observed"
            return self.kind(fill=self._find_fill(values, None)), note
        low, high = map(self.to_value, ends)
        return self.kind(low, high, self._find_fill(values, ends), clip=True), ""

    def propose_target(self) -> ProposedKind | None:
        """Return a kind for the column as a target: as an input, without a fill."""
        values = self.sample.values()
        if self._infinite or not len(values) or not math.isfinite(float(values[-1]) - float(values[0])):
            return None
        note, ends = (
            TARGET_GAPS_NOTE if self.gaps else "",
            self._find_bounds(values, self.sample.people()),
        )
        return (self.kind(), note) if ends is None else (self.kind(*map(self.to_value, ends), clip=True), note)

    def count_outside(self, kind: Any) -> int:
        """Return how many people have values outside the bounds that were proposed."""
        low, high = kind.bounds()
        return 0 if math.isnan(low) else len(self._low.owners_beyond(low) | self._high.owners_beyond(high))

    def _find_fill(self, values: Floats, ends: tuple[float, float] | None) -> Any:
        """Return the rounded median of people, inside the bounds; None if there are no gaps."""
        if not self.gaps:
            return None
        span = quantile(values, 0.9) - quantile(values, 0.1) or abs(quantile(values, 0.5))
        middle = self.round_fill(quantile(values, 0.5), span)
        return self.to_value(middle if ends is None else min(max(middle, ends[0]), ends[1]))

    def _find_bounds(self, values: Floats, count: int) -> tuple[float, float] | None:
        """Return bounds that enough people support; None if there are too few people, or no finite range."""
        if count < 4 * self.people:
            return None
        low, high = self._low.value_beyond(self.people - 1), self._high.value_beyond(self.people - 1)
        tail = min(_TAIL * self.people, count // 2)
        _, times = np.unique(values, return_counts=True)
        if times[times >= self.people].sum() >= _SHARED * len(values):
            reaches = (0.0, 0.0)
        else:  # as far as the tail goes on if it is that of an exponential distribution
            factor = _REACH * math.log(max(10, self.people)) / math.log(tail / self.people)
            reaches = (
                factor * (self._low.value_beyond(tail - 1) - low),
                factor * (high - self._high.value_beyond(tail - 1)),
            )
        for below, above in (reaches, (0.0, 0.0)):
            if math.isfinite((high + above) - (low - below)):
                ends = self.round_bounds(low, high, below, above)
                if math.isfinite(ends[1] - ends[0]):
                    return ends
        return None

    @abstractmethod
    def round_bounds(self, low: float, high: float, below: float, above: float) -> tuple[float, float]:
        """Return bounds at least so far below and above, rounded outward."""

    @abstractmethod
    def round_fill(self, value: float, span: float) -> float:
        """Round a value to a fraction of a span."""

    @abstractmethod
    def to_value(self, number: float) -> Any:
        """Return a number as a value of the column."""


class NumberSummary(RangeSummary):
    """The summary of a column of numbers."""

    kind = Number

    def round_bounds(self, low: float, high: float, below: float, above: float) -> tuple[float, float]:
        least = max(low - below, 0.0) if low >= 0 else low - below  # what is never negative stays so
        largest = min(high + above, 0.0) if high <= 0 else high + above
        span = largest - least or abs(least)
        return round_to_step(least, span, ROUND_FLOOR), round_to_step(largest, span, ROUND_CEILING)

    def round_fill(self, value: float, span: float) -> float:
        return round_to_step(value, span)

    def to_value(self, number: float) -> float:
        return number

    def looks_like_an_id(self) -> bool:
        """Return whether nearly all people, or rows, have whole numbers of their own, in a narrow range as counters."""
        values = self.sample.values()
        if len(values) < 4 * self.people or (values != np.rint(values)).any():
            return False
        span = self._high.value_beyond(self.people - 1) - self._low.value_beyond(self.people - 1)
        own = len(np.unique(values)) > 0.99 * len(values) and span <= 2 * self.sample.people()
        return own or (self.distinct.share() > 0.99 and span <= 2 * self.distinct.cells)


class DateSummary(RangeSummary):
    """The summary of a column of dates and times, as days."""

    kind = Date

    def propose_target(self) -> ProposedKind | None:
        return None

    def _find_bounds(self, values: Floats, count: int) -> tuple[float, float] | None:
        first, last = Date(datetime.min, datetime.max).bounds()
        ends = super()._find_bounds(values, count)
        return None if ends is None or ends[1] < first or ends[0] > last else (max(ends[0], first), min(ends[1], last))

    def round_bounds(self, low: float, high: float, below: float, above: float) -> tuple[float, float]:
        """Return the first day of a year or month, and the end of a year that leaves room for the time to come.

        The room is as long as the dates go back, but at least one year and at most five.
        """
        room = max(above, min(max(high - low, _YEAR), 5 * _YEAR))
        first = np.datetime64(math.floor(low - below), "D").astype("M8[Y]" if high - low > 2 * _YEAR else "M8[M]")
        after = np.datetime64(math.ceil(high + room), "D").astype("M8[Y]") + 1
        return _day_number(first), _day_number(after) - 1

    def round_fill(self, value: float, span: float) -> float:
        first, last = Date(datetime.min, datetime.max).bounds()
        value = min(max(value, first), math.floor(last))
        if span <= 300:
            return round_to_step(value, max(span, 10), ROUND_FLOOR)
        return _day_number(np.datetime64(math.floor(value), "D").astype("M8[Y]" if span > 10 * _YEAR else "M8[M]"))

    def to_value(self, number: float) -> datetime:
        day = np.datetime64(math.floor(number), "D").item()
        return datetime.combine(day, time()) if isinstance(day, date) else datetime.max  # rounded up beyond year 9999
