"""Ranges: columns of numbers and of dates.

Their bounds take all people but those who are fewer than ``people`` (and at most one of a hundred) and far off: further
from the others than these are from each other. If there are any, the column clips. Positive numbers of which most are
small have a log scale; other columns with many different values have knots as well, where these divide the people
otherwise than a linear scale does. The fill is the median of people.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import date, datetime, time
from typing import Any, ClassVar

import numpy as np

from ....exact.arrays import Floats
from ..cells.arrow import Arrow
from ..cells.by_kind import read
from ..kinds import Date, Ignore, Number
from ..scales import LINEAR, LOG
from . import rounding
from .layout import Layout, uneven
from .sampling import End, Owners, Sample
from .summaries import LEAVE_OUT, Proposed

_TOO_FAR = "has values that are too far apart for float64"


class Range(ABC):
    """Values from a least to a largest."""

    kind: Any  # Number or Date
    logs: ClassVar[bool]  # whether the scale may be "log"

    def __init__(self, name: str, people: int) -> None:
        self.name, self.people, self.in_csv = name, people, self.kind().in_csv
        self.gaps, self._infinite = False, False
        self._sample, self._low, self._high = Sample(), End(people, -1), End(people, 1)

    def add(self, array: Arrow, owners: Owners) -> None:
        self.look(read(self.kind(), self.name, array), owners)

    def look(self, values: Floats, owners: Owners) -> None:
        """Look at more values, NaN for a gap."""
        finite = np.isfinite(values)
        self.gaps |= bool(np.isnan(values).any())
        self._infinite |= bool(np.isinf(values).any())
        if not finite.all():
            values, owners = values[finite], owners.where(finite)
        for kept in (self._sample, self._low, self._high):
            kept.add(values, owners)

    def proposed(self) -> Proposed:
        if (seen := self._seen()) is None:
            return Ignore(), "has infinite values" if self._infinite else "has no values"
        log = self.logs and seen.skewed()
        low, high = self.outward(*seen.bounds(log=log), log=log)
        if not math.isfinite(high - low):
            return Ignore(), _TOO_FAR
        (middle,) = self.nearest([seen.quantile(0.5)], seen.span())
        fill = self.value(min(max(middle, low), high)) if self.gaps else None
        scale = LOG if log else self._scale(seen, low, high)
        clip = seen.low < low or seen.high > high
        note = f"fewer than {self.people} have values far outside these bounds: they count as the bound" if clip else ""
        return self.kind(self.value(low), self.value(high), fill, scale, clip=clip), note

    def as_target(self) -> Proposed | None:
        if (seen := self._seen()) is None:
            return None
        low, high = self.outward(seen.low, seen.high, log=False)
        if not math.isfinite(high - low):
            return None
        few = f"fewer than {self.people} have values that stretch these bounds by far: check them"
        notes = [LEAVE_OUT] * self.gaps + [few] * (seen.bounds(log=False) != (seen.low, seen.high))
        return self.kind(self.value(low), self.value(high)), "; ".join(notes)

    def _seen(self) -> Layout | None:
        """Return how the values lie; None if there are none, or infinite ones."""
        values, people = self._sample.values(), self._sample.people()
        if self._infinite or not people:
            return None
        few = min(self.people - 1, people // 100)
        lows, highs = ([end.beyond(k) for k in range(few + 1)] for end in (self._low, self._high))
        return Layout(values, people, lows, highs)

    def _scale(self, seen: Layout, low: float, high: float) -> Any:
        """Return a linear scale and one by knots, or None: a linear scale alone does as well."""
        parts = sorted(set(self.nearest(seen.parts(self.people), seen.span())))
        knots = [low, *(part for part in parts if low < part < high), high]
        return [LINEAR, list(map(self.value, knots))] if uneven(knots) else None

    @abstractmethod
    def outward(self, low: float, high: float, *, log: bool) -> tuple[float, float]:
        """Return bounds that tell less, rounded outward."""

    @abstractmethod
    def nearest(self, values: Iterable[float], span: float) -> list[float]:
        """Return values that tell less, rounded to some part of a span."""

    @abstractmethod
    def value(self, number: float) -> Any:
        """Return a number as a value of the column."""


class Numbers(Range):
    """Numbers."""

    kind, logs = Number, True

    def outward(self, low: float, high: float, *, log: bool) -> tuple[float, float]:
        return rounding.outward(low, high, log=log)

    def nearest(self, values: Iterable[float], span: float) -> list[float]:
        return rounding.nearest(values, span)

    def value(self, number: float) -> float:
        return number


class Dates(Range):
    """Dates and times, as days."""

    kind, logs = Date, False

    def proposed(self) -> Proposed:
        seen, (least, most) = self._seen(), Date(datetime.min, datetime.max).bounds()
        if seen is None or (least <= seen.low and seen.high <= most):
            return super().proposed()
        middle = min(max(seen.quantile(0.5), least), most)
        fill = self.value(*self.nearest([middle], seen.span())) if self.gaps else None
        return Date(fill=fill), "has dates beyond the years 1 to 9999, so the bounds are observed"

    def as_target(self) -> Proposed | None:
        return None

    def outward(self, low: float, high: float, *, log: bool) -> tuple[float, float]:
        return rounding.outward_days(low, high)

    def nearest(self, values: Iterable[float], span: float) -> list[float]:
        return rounding.nearest_days(values, span)

    def value(self, number: float) -> datetime:
        day = np.datetime64(int(number), "D").item()
        return datetime.combine(day, time()) if isinstance(day, date) else datetime.max  # rounded up beyond year 9999
