"""Times: how they are written, and when a request is due by law."""

import calendar
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, get_args, overload

from ..errors import InvalidSetting

Clock: TypeAlias = Callable[[], datetime]
Regulation: TypeAlias = Literal["gdpr", "ccpa"]
REGULATIONS: tuple[Regulation, ...] = get_args(Regulation)


@dataclass(frozen=True)
class Law:
    """The deadline of a regulation, and how far it can be extended for a reason."""

    months: int = 0
    days: int = 0
    more_months: int = 0
    more_days: int = 0


_LAWS: dict[Regulation, Law] = {
    "gdpr": Law(months=1, more_months=2),  # Art. 12 (3)
    "ccpa": Law(days=45, more_days=45),  # 11 CCR 7021
}


_MAX_CORRECTION = timedelta(seconds=2)  # clocks are adjusted by that much without a warning


@dataclass
class ClockCheck:
    """Detects a clock that is set back: deadlines and windows then last longer than they should."""

    newest: datetime | None = None  # the latest time seen

    def step_back(self, now: datetime) -> timedelta | None:
        """Return by how much the clock was set back since the last call, or None."""
        before, self.newest = self.newest, now
        return before - now if before is not None and now + _MAX_CORRECTION < before else None


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


@overload
def format_time(moment: datetime) -> str: ...
@overload
def format_time(moment: datetime | None) -> str | None: ...
def format_time(moment: datetime | None) -> str | None:
    """Format a time as it is stored and sent: RFC 3339, UTC, to the second. None stays None."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@overload
def parse_time(text: str) -> datetime: ...
@overload
def parse_time(text: str | None) -> datetime | None: ...
def parse_time(text: str | None) -> datetime | None:
    """Parse what `format_time` wrote; a time without a zone is UTC. None stays None."""
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def due_date(received: datetime, regulation: Regulation, *, extended: bool = False) -> datetime:
    """Return when a request is due: months end on the same day, or on the last day of a shorter month."""
    law = _LAWS[regulation]
    months, days = law.months, law.days
    if extended:
        months, days = months + law.more_months, days + law.more_days
    year, month = divmod(received.month - 1 + months, 12)
    year, month = received.year + year, month + 1
    day = min(received.day, calendar.monthrange(year, month)[1])
    return received.replace(year=year, month=month, day=day) + timedelta(days=days)


_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> timedelta:
    """Parse a duration like 90s, 15m, 24h or 7d."""
    number, unit = text[:-1], text[-1:]
    if unit not in _SECONDS_PER_UNIT or not (number.isascii() and number.isdecimal()) or len(number) > 6:
        raise InvalidSetting(f"a duration must look like 90s, 15m, 24h or 7d, got {text!r}")
    return timedelta(seconds=int(number) * _SECONDS_PER_UNIT[unit])
