"""Layout: between which bounds values lie, on which scale, and where their middle is, by one value per person."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....exact.arrays import Floats

_PARTS = 10  # into which knots divide the people
_FEWEST_PARTS = 4
_DIFFERENT = 20  # a column with another scale than a linear one has more values than these
_UNEVEN = 0.05  # that knots are off a linear scale
_SKEWED = 2.5  # times as far above the median as below it
_SPARSE = 0.1  # of the range: nine of ten people are in it
_LOG_SPAN = 1023  # how much larger than its first step a log scale is that begins at zero


@dataclass(frozen=True, eq=False)
class Layout:
    """What was seen of a column of numbers."""

    values: Floats  # (n,) of a sample of people, one each, sorted
    people: int  # who have a value
    lows: Sequence[float]  # (k + 1,) the least values of a few people, the least first, and of all others
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
    def most_low(self) -> float:
        """The least value of all people but a few."""
        return self.lows[-1]

    @property
    def most_high(self) -> float:
        """The largest value of all people but a few."""
        return self.highs[-1]

    @cached_property
    def varied(self) -> bool:
        """Whether there are many different values."""
        return len(np.unique(self.values)) > _DIFFERENT

    def skewed(self) -> bool:
        """Return whether most of many values are small beside the largest ones, and none is below zero.

        From the lowest tenth of the people to the median it is then not half as far as on to the highest tenth, and
        from there it is further still; or nine of ten people are in the lowest tenth of the range.
        """
        if self.low < 0 or self.most_high <= self.most_low or not self.varied:
            return False
        low, middle, high = map(self.quantile, (0.1, 0.5, 0.9))
        sparse = high - self.most_low <= _SPARSE * (self.most_high - self.most_low)
        return sparse or (high - middle > _SKEWED * (middle - low) and self.most_high - high > high - middle)

    def bounds(self, *, log: bool) -> tuple[float, float]:
        """Return the range of all but those few who are further off from the others than these from each other."""
        begin = self._log_begin if log else self.low
        lows = [max(begin, value) for value in self.lows]
        low, high = self._place(lows[-1], log=log), self._place(self.most_high, log=log)
        span = high - low if high > low else math.inf
        return (
            next(value for value in (begin, *lows) if low - self._place(value, log=log) <= span),
            next(value for value in self.highs if self._place(value, log=log) - high <= span),
        )

    @cached_property
    def _log_begin(self) -> float:
        """Where a log scale begins: at zero, if from the least value on half of it were for a tenth of the people."""
        if self.low == 0 or math.log(self.quantile(0.1) / self.low) > 0.5 * math.log(self.most_high / self.low):
            return 0.0
        return self.low

    def _place(self, value: float, *, log: bool) -> float:
        """Return where a value lies on the scale, up to a factor."""
        if not log:
            return value
        return math.log(value) if self._log_begin else math.log1p(_LOG_SPAN * value / self.most_high)

    def span(self) -> float:
        """Return how far apart the middle eight tenths of the people are, or else all values, or these and zero."""
        return self.quantile(0.9) - self.quantile(0.1) or self.high - self.low or abs(self.high)

    def quantile(self, part: float) -> float:
        """Return the least value that at least this part of the people does not exceed."""
        return float(self.values[max(0, math.ceil(part * len(self.values)) - 1)])

    def parts(self, people: int) -> list[float]:
        """Return what divides the people into parts of the same size, tenths or fewer: each of at least so many people.

        Nothing if there are not enough people, or not enough different values.
        """
        count = min(_PARTS, self.people // people)
        if count < _FEWEST_PARTS or not self.varied:
            return []
        return [self.quantile(k / count) for k in range(1, count)]


def uneven(knots: list[float]) -> bool:
    """Return whether a scale by knots is any other than a linear one."""
    even = np.linspace(knots[0], knots[-1], len(knots))
    return len(knots) > _FEWEST_PARTS and bool(np.abs(even - knots).max() > _UNEVEN * (knots[-1] - knots[0]))
