"""Rounding: numbers and days that were read off data, told no more exactly than they have to be."""

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

import numpy as np

_DIGITS = 2_000  # enough for every digit from 1e308 down to 1e-326


def outward(low: float, high: float, *, log: bool = False) -> tuple[float, float]:
    """Return bounds of about two digits of the span, rounded outward.

    On a log scale a low end above zero stays above it, with one digit of its own.
    """
    with localcontext(prec=_DIGITS):
        least, most = Decimal(repr(low)), Decimal(repr(high))
        span = (most - least) or abs(least) or Decimal(1)
        step = Decimal(1).scaleb(span.adjusted() - 1)
        own = Decimal(1).scaleb(least.adjusted()) if log and least > 0 else step
        return float(least.quantize(min(own, step), ROUND_FLOOR)), float(most.quantize(step, ROUND_CEILING))


def nearest(values: Iterable[float], span: float) -> list[float]:
    """Return values rounded to 1, 2 or 5 times a power of ten, of which 40 to 100 are in the span."""
    with localcontext(prec=_DIGITS):
        width = Decimal(repr(span)) or Decimal(1)
        unit = Decimal(1).scaleb(width.adjusted() - 2)
        step = next(unit * times for times in (20, 10, 5, 2) if width >= 40 * unit * times)
        return [float((Decimal(repr(value)) / step).to_integral_value() * step) + 0.0 for value in values]


def outward_days(low: float, high: float) -> tuple[float, float]:
    """Return bounds of whole years, months or days, rounded outward."""
    span = high - low
    unit = "Y" if span > 3650 else "M" if span > 365 else "D"
    first = np.datetime64(math.floor(low), "D").astype(f"M8[{unit}]")
    last = np.datetime64(math.ceil(high), "D")
    end = last.astype(first.dtype) + int(last.astype(first.dtype).astype(last.dtype) < last)
    return _day(first), _day(end)


def nearest_days(values: Iterable[float], span: float) -> list[float]:
    """Return the first days of the months that days are in or, where they span a year or less, the days."""
    unit = "M8[M]" if span > 365 else "M8[D]"
    return [_day(np.datetime64(math.floor(value), "D").astype(unit)) for value in values]


def _day(moment: np.datetime64) -> float:
    return float(moment.astype("M8[D]").astype(np.int64))
