"""Words: numbers, times and states as people read them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup

from ..clocks import as_text, as_time
from ..queue import Job
from ..verifications import Verification

STATES = {
    "waiting": "Waiting",
    "held": "On hold",
    "running": "Running",
    "done": "Done",
    "not_known": "Not known here",
    "cancelled": "Cancelled",
    "failed": "Failed",
}
_KINDS = {"erasure": "Erasure", "rectification": "Correction", "addition": "New rows", "readmission": "Readmission"}
_DONE = {
    "unlearn": "erased the rows of",
    "rectify": "replaced the rows of",
    "add": "added rows of",
    "readmit": "let come back, after an erasure,",
    "train": "trained a model on the rows of",
    "rebound": "set new bounds for the rows of",
    "restore": "repeated the erasures of",
    "clone": "recorded that another vault was made with the rows of",
    "cloned": "took over, as a clone of another vault, the rows of",
}
_MATTER_EVENTS = {
    "opened": "Opened",
    "people_added": "Put on hold",
    "review_changed": "Review date set",
    "review_due": "Review was due",
    "release_requested": "Release requested",
    "release_withdrawn": "Release withdrawn",
    "people_released": "Some people released",
    "released": "Released",
}
_PROTOCOLS = {
    "api": "API",
    "dashboard": "Dashboard",
    "opendsr": "OpenDSR",
    "drp": "Data Rights Protocol",
    "fides": "Fides",
}
_STARTERS = {"schedule": "the schedule", "api": "the API", "page": "this page", "command line": "the command line"}
_PLURALS = {"person": "people", "has": "have", "is": "are"}


def count(number: int) -> str:
    """A number with its thousands apart."""
    return f"{number:,}"


def many(number: int, word: str) -> str:
    """So many of something."""
    return f"{number:,} {word if number == 1 else _PLURALS.get(word, word + 's')}"


def moment(time: datetime | str | None) -> Markup:
    """A time to the minute, in UTC."""
    if time is None:
        return Markup("&ndash;")
    time = as_time(time) if isinstance(time, str) else time.astimezone(UTC)
    text = f"{time.day} {time:%b %Y, %H:%M}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(as_text(time), as_text(time), text)


def day(time: datetime | str) -> Markup:
    """A date."""
    time = as_time(time) if isinstance(time, str) else time.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        as_text(time), as_text(time), f"{time.day} {time:%b %Y}"
    )


def span(length: timedelta) -> str:
    """A length of time in its largest unit."""
    seconds = abs(length.total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return many(int(seconds // size), unit)
    return "less than a minute"


def clock(entry: Job, now: datetime) -> str:
    """How much of its time a request has left."""
    if not entry.open:
        return ""
    return f"{span(entry.due - now)} left" if entry.due >= now else f"{span(now - entry.due)} late"


def late(entry: Job, now: datetime) -> bool:
    """Whether an open request is overdue."""
    return entry.open and entry.due < now


def seconds(number: float) -> str:
    """How long something took."""
    if number >= 1:
        return f"{number:.1f} s" if number < 100 else f"{number:,.0f} s"
    return f"{1e3 * number:.0f} ms" if number >= 0.01 else f"{1e3 * number:.1f} ms"


def size(number: int) -> str:
    """A number of bytes."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000  # type: ignore[assignment]
    return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"


def kind(name: str) -> str:
    """What a request is for."""
    return _KINDS.get(name, name)


def features(text: str) -> str:
    """Return a feature map, which the status shows as code, in words."""
    name, given = text.partition("(")[0], dict(re.findall(r"(\w+)='?([\w+.-]+)", text))
    if name == "Identity":
        return "the inputs as they are"
    if name == "RandomFourier":
        kernels = given.get("kernel", "gaussian").replace("+", " and ")
        return f"{int(given.get('n_features', 100)):,} random cosines of the inputs ({kernels})"
    if name == "Powers":
        return f"powers of the inputs up to {given.get('degree', 2)}"
    return name


def did(name: str) -> str:
    """What a request of the vault did to somebody."""
    return _DONE.get(name, name)


def short(id_: str) -> str:
    """The beginning of a request's name, which tells requests apart well enough for people."""
    return id_[:8]


def source(protocol: str) -> str:
    """Return the name of what a request came through."""
    return _PROTOCOLS.get(protocol, protocol)


def starter(verification: Verification) -> str:
    """Who started a verification, and from where."""
    source = _STARTERS[verification.source]
    return f"{verification.actor} ({source})" if verification.actor else source


FILTERS: dict[str, Callable[..., Any]] = {
    "count": count,
    "many": many,
    "moment": moment,
    "day": day,
    "span": span,
    "clock": clock,
    "late": late,
    "seconds": seconds,
    "size": size,
    "kind": kind,
    "features": features,
    "did": did,
    "short": short,
    "matter_event": _MATTER_EVENTS.__getitem__,
    "source": source,
    "starter": starter,
    "state": STATES.__getitem__,
}
