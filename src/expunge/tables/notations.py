"""Notations: how the cells of a column of text write numbers or dates, declared by one example (``format``).

A format of numbers is 1234.56 as written in the cells: ``"1.234,56 €"``. A format of dates is the last day of 2020:
``"31.12.2020"``, ``"12/31/2020"``. The example is unambiguous, and cells that do not match it are refused.
"""

import re
from dataclasses import dataclass

from ..errors import InvalidSetting

_UNIT = "[^\\d\\s.,'\u2019+\\-]{1,10}"  # a currency, a percent sign, a unit
_BLANK = "[ \u00a0\u202f]"
_NUMBER_EXAMPLE = re.compile(
    f"(?:(?P<before>{_UNIT}){_BLANK}?)?1(?P<group>{_BLANK}|[.,'\u2019]?)234(?P<decimal>[.,])56(?:{_BLANK}?(?P<after>{_UNIT}))?"
)
_DATE_PARTS = {"31": r"(?P<day>0?[1-9]|[12]\d|3[01])", "12": r"(?P<month>0?[1-9]|1[0-2])", "2020": r"(?P<year>\d{4})"}

DATE_FORMATS = tuple(
    example.replace(" ", mark)
    for example, marks in (("31 12 2020", "./-"), ("12 31 2020", "/-"), ("2020 12 31", "/."))
    for mark in marks
)


@dataclass(frozen=True)
class NumberNotation:
    """How numbers are written.

    Attributes
    ----------
    unit : str
        The unit before or after the number, such as ``"€"``; empty if there is none.
    group : str
        The thousands separator; empty if there is none.
    decimal : str
        The decimal separator.
    """

    unit: str
    group: str
    decimal: str

    @classmethod
    def parse(cls, example: object) -> "NumberNotation":
        """Read an example."""
        match = _NUMBER_EXAMPLE.fullmatch(example) if isinstance(example, str) else None
        if match is None or (match["before"] and match["after"]) or match["group"] == match["decimal"]:
            raise InvalidSetting(
                f'format must be the number 1234.56 as written in the cells: "1.234,56 €", got {example!r}'
            )
        return cls(match["before"] or match["after"] or "", match["group"], match["decimal"])

    @property
    def groups(self) -> str:
        """A regular expression (RE2) for the thousands separator; empty if there is none."""
        if self.group and self.group in " \u00a0\u202f":
            return _BLANK
        return "['\u2019]" if self.group and self.group in "'\u2019" else re.escape(self.group)

    @property
    def pattern(self) -> str:
        """A regular expression (RE2) for a cell: its groups are the sign and the digits."""
        unit = rf"(?:\Q{self.unit}\E{_BLANK}?)?" if self.unit else ""
        behind = rf"(?:{_BLANK}?\Q{self.unit}\E)?" if self.unit else ""
        grouped = rf"[1-9]\d{{0,2}}(?:{self.groups}\d{{3}})+|" if self.group else ""
        return rf"^{unit}([+-]?){unit}((?:{grouped}0|[1-9]\d*)(?:{re.escape(self.decimal)}\d+)?){behind}$"


def date_pattern(example: str) -> str:
    """Return a regular expression (RE2) for a cell with a date; a time may follow."""
    mark = next(mark for mark in "./-" if mark in example)
    parts = [_DATE_PARTS[part] for part in example.split(mark)]
    return rf"^{re.escape(mark).join(parts)}(?P<time>[T ]\d\d:\d\d.*)?$"


def check_date_format(example: object) -> None:
    """Refuse a format that is not one of `DATE_FORMATS`."""
    if example not in DATE_FORMATS:
        allowed = ", ".join(f'"{known}"' for known in DATE_FORMATS)
        raise InvalidSetting(
            f"format must be the last day of 2020 as written in the cells, one of {allowed}, got {example!r}; dates "
            "like 2020-12-31 need no format"
        )
