"""Values of settings: each is read, or refused with a message that says what is allowed."""

import math
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..errors import InvalidSetting


def whole_number(name: str, value: object) -> int:
    """Return a setting that counts something as an int, or raise `InvalidSetting`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidSetting(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def as_float(value: object) -> float:
    """Return a number of any type as a float; NaN for anything else, so that every comparison fails."""
    try:
        return float(value) if isinstance(value, Real | Decimal) else math.nan
    except (OverflowError, ValueError):  # a fraction beyond float64, a signalling NaN
        return math.nan


def flag(name: str, value: object) -> bool:
    """Return a setting that is True or False as a bool, or raise `InvalidSetting`."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidSetting(f"{name} must be True or False, got {value!r}")
    return bool(value)


def plain_value(name: str, value: object) -> Any:
    """Return a setting as a JSON value; numbers of other types become floats."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain_value(name, item) for item in value]
    if isinstance(value, Real | Decimal):
        return float(value)
    raise InvalidSetting(
        f"{name} must be a number, a text, True, False, None, a list of these or an array of numbers, got {value!r}"
    )
