"""Fields: what people type into forms, checked."""

import re
from datetime import UTC, date, datetime, time

from ...errors import InvalidInput
from ...vault.tables import id_lines
from ..problems import Problem

_LONGEST = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def line(text: str, what: str, *, empty: bool = True) -> str:
    """One line of text that is not too long."""
    if not text and not empty:
        raise Problem(422, "invalid-input", f"Fill in {what}.")
    if len(text) > _LONGEST or _CONTROL.search(text):
        raise Problem(422, "invalid-input", f"Write {what} in one line of at most {_LONGEST} characters.")
    return text


def ids(text: str, most: int) -> list[str]:
    """Ids, one per line; spaces around them and lines without one do not count."""
    found = list(dict.fromkeys(id_lines(text)))
    if not found:
        raise InvalidInput("Write at least one id, each on a line of its own.")
    if len(found) > most:
        raise InvalidInput(f"A request names at most {most:,} ids, got {len(found):,}.")
    if max(map(len, found)) > 1000:
        raise InvalidInput("An id has at most 1,000 characters.")
    return found


def future(text: str, now: datetime) -> datetime | None:
    """The beginning of a day to come, in UTC, or None if none is given."""
    if not text:
        return None
    try:
        found = datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise Problem(422, "invalid-input", "Write the date like 2027-01-31.") from None
    if found <= now:
        raise Problem(422, "invalid-input", "The date must be in the future.")
    return found
