"""Requests as OpenDSR has them, and as they are seen in the wild: strict about whom and what, lenient about form."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from ....errors import InvalidInput
from ...addresses import checked
from ...clocks import REGULATIONS, Regulation
from ...problems import Problem

TYPES = ("access", "portability", "erasure")
IDENTITY, FORMAT = "controller_customer_id", "raw"
EMAIL = "email"

_IDENTITIES = {f"identity_{part}": {"type": "string"} for part in ("type", "value", "format")}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["subject_request_id", "subject_request_type", "submitted_time", "subject_identities"],
    "properties": {
        "regulation": {"enum": list(REGULATIONS)},
        "subject_request_id": {"type": "string", "format": "uuid"},
        "subject_request_type": {"enum": list(TYPES)},
        "submitted_time": {"type": "string", "format": "date-time"},
        "subject_identities": {"type": "array", "items": {"type": "object", "properties": _IDENTITIES}},
        "api_version": {"type": "string"},
        "status_callback_urls": {"type": "array", "items": {"type": "string"}},
        "extensions": {"type": "object"},
    },
}

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[Tt ]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.[0-9]+)?)?"
    r" ?(?:[Zz]|([+-])([0-9]{1,2}):?([0-9]{2}))?)?"
)
_MOST_IDENTITIES, _MOST_CALLBACKS = 100, 20
_LONGEST_ID = 1000


@dataclass(frozen=True)
class Wanted:
    """What a request asks for: `ids` are the vault's, `emails` have to be looked up."""

    id: str
    submitted: datetime  # since when the law's clock runs
    regulation: Regulation | None
    ids: tuple[str, ...]
    emails: tuple[str, ...]
    callbacks: tuple[str, ...]


def read_request(found: Any, domain: str, allowed: Collection[str] = ()) -> Wanted:
    """A request to erase; what is wrong is named by its field, never by its value.

    ``domain`` is ours, under which extensions are for us; ``allowed`` are hosts inside that may be called back.
    """
    if not isinstance(found, dict):
        raise refusal("invalid", "the body must be an object")
    id_ = request_id(_required(found, "subject_request_id"))
    kind = _required(found, "subject_request_type")
    if kind not in TYPES:
        raise refusal("invalid", f"subject_request_type must be one of {', '.join(TYPES)}")
    if kind != "erasure":
        raise refusal("not-supported", f"{kind} is not supported: a model has no copy to hand out; erasure is")
    submitted = read_time(_required(found, "submitted_time"))
    identities = list(_identities(found, domain))
    if len(identities) > _MOST_IDENTITIES:
        raise refusal("invalid", f"subject_identities must be at most {_MOST_IDENTITIES}")
    ids, emails = (tuple(dict.fromkeys(v for kind, v in identities if kind == name)) for name in (IDENTITY, EMAIL))
    callbacks = _callbacks(found.get("status_callback_urls"), allowed)
    return Wanted(id_, submitted, _regulation(found.get("regulation")), ids, emails, callbacks)


def refusal(reason: str, message: str) -> Problem:
    """What is answered to a request that cannot be taken."""
    return Problem(400, reason, message)


def request_id(found: Any) -> str:
    """The name of a request: a UUID, in lower case."""
    text = found.lower() if isinstance(found, str) else ""
    if not _UUID.fullmatch(text):
        raise refusal("invalid", "subject_request_id must be a UUID")
    return text


def read_time(found: Any) -> datetime:
    """A time of RFC 3339, or one whose parts are not padded, or a mere date; without a zone it is UTC."""
    match = _TIME.fullmatch(found) if isinstance(found, str) else None
    if match is None:
        raise refusal("invalid", "submitted_time must be a time like 2026-01-31T12:00:00Z")
    *parts, sign, hours, minutes = match.groups(default="0")
    year, month, day, hour, minute, second = map(int, parts)
    ahead = timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone(ahead))  # 60: a leap second
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise refusal("invalid", "submitted_time must be a time that there is") from None


def _required(found: dict[str, Any], name: str) -> Any:
    if found.get(name) is None:
        raise refusal("required", f"{name} field is required")
    return found[name]


def _regulation(found: Any) -> Regulation | None:
    if found is None or found == "":
        return None
    text = found.lower() if isinstance(found, str) else ""
    for one in REGULATIONS:
        if one == text:
            return one
    raise refusal("not-supported", f"regulation must be one of {', '.join(REGULATIONS)}")


def _identities(found: dict[str, Any], domain: str) -> Iterator[tuple[str, str]]:
    """The identities of types and formats that we know; there must be some of any type."""
    extensions = found.get("extensions")
    ours = extensions.get(domain) if isinstance(extensions, dict) else None
    places = [found, ours] if isinstance(ours, dict) else [found]
    given = [one for place in places for one in _listed(place.get("subject_identities"))]
    if not given:
        raise refusal("required", "subject_identities field is required")
    for one in given:
        kind, value = one.get("identity_type"), one.get("identity_value")
        format_ = one.get("identity_format")
        if kind in (IDENTITY, EMAIL) and format_ in (None, "", FORMAT):
            yield str(kind), _text(value)


def _listed(found: Any) -> list[dict[str, Any]]:
    """Identities as a list of objects, whether they came as such or as a map: {"email": {"value", "encoding"}}."""
    if found is None:
        return []
    if isinstance(found, dict):
        found = [_named(kind, one) for kind, some in found.items() for one in (some if _is_list(some) else [some])]
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise refusal("invalid", "subject_identities must be a list of objects")
    return found


def _is_list(found: Any) -> bool:
    return isinstance(found, list)


def _named(kind: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        return {"identity_type": kind, "identity_value": found}
    value, format_ = found.get("identity_value", found.get("value")), found.get("identity_format")
    return {"identity_type": kind, "identity_value": value, "identity_format": format_ or found.get("encoding")}


def _text(found: Any) -> str:
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise refusal("invalid", "identity_value must be a string")
    text = str(found)
    if not 0 < len(text) <= _LONGEST_ID:
        raise refusal("invalid", f"identity_value must have 1 to {_LONGEST_ID:,} characters")
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise refusal("invalid", "identity_value must be valid Unicode")
    return text


def _callbacks(found: Any, allowed: Collection[str]) -> tuple[str, ...]:
    if found is None:
        return ()
    urls = [found] if isinstance(found, str) else found
    if not isinstance(urls, list) or len(urls) > _MOST_CALLBACKS or not all(isinstance(url, str) for url in urls):
        raise refusal("invalid", f"status_callback_urls must be a list of at most {_MOST_CALLBACKS} addresses")
    try:
        for url in urls:
            checked(url, allowed)
    except InvalidInput as error:
        raise refusal("invalid", f"status_callback_urls: {error}") from None
    return tuple(dict.fromkeys(urls))
