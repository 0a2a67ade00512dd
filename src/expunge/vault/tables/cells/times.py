"""Times: dates, timestamps and ISO text as days since 1970-01-01 in UTC, to the microsecond."""

import pyarrow as pa
import pyarrow.compute as pc

from ....exact.arrays import Floats
from ..kinds import DAY
from .arrow import Arrow, floats, is_text, mask
from .numerals import GAPS

_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"  # after a time: the end of a date looks the same


def days(array: Arrow) -> Floats:
    """Return days since 1970, NaN for null; text that is no time raises ``ArrowInvalid``, which quotes it."""
    if is_text(array.type):
        array = _parsed(array)
    if pa.types.is_date(array.type):
        return floats(array.cast(pa.date32()).cast(pa.int32()))
    return floats(microseconds(array)) / DAY


def _parsed(text: Arrow) -> Arrow:
    """Return times from ISO text. One with a zone is moved to UTC, one without is taken for UTC."""
    nothing = pa.scalar(None, text.type)
    text = pc.if_else(pc.is_in(text, pa.array(GAPS, text.type)), nothing, text)
    text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(text, _ZONE)
    local = pc.if_else(zoned, nothing, text).cast(pa.timestamp("us"))
    return pc.coalesce(local, pc.if_else(zoned, text, nothing).cast(pa.timestamp("us", "UTC")).cast(local.type))


def microseconds(array: Arrow) -> Arrow:
    """Return timestamps as microseconds since 1970; one out of range raises ``ArrowInvalid``."""
    ticks, unit = array.cast(pa.int64()), array.type.unit
    if unit != "ns":
        return pc.multiply_checked(ticks, {"s": 10**6, "ms": 10**3, "us": 1}[unit])
    # Downward, also before 1970: as cutting digits off a text does.
    return pa.array(ticks.fill_null(0).to_numpy() // 1000, mask=mask(ticks.is_null()))
