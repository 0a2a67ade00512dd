"""Views: what is told of requests, matters and tokens, as JSON; whose they are is never in them."""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..vault import PersonalReceipt
from .addresses import REASONS
from .clocks import as_text
from .deliveries import Delivery
from .matters import Entry, Matter, Release
from .outcomes import SIMILAR
from .queue import Job

if TYPE_CHECKING:
    from .hooks import Hook

_NO_CLOCK = ("addition", "readmission")  # nobody asked for these by right


def request_view(entry: Job, *, similar: bool = False) -> dict[str, Any]:
    """A request as it is told.

    With ``similar``, for callers who may erase, an erasure tells for how many unknown ids a similar one is here.
    """
    outcome = {name: value for name, value in entry.outcome.items() if not name.startswith("_")}
    if similar and SIMILAR in entry.outcome:
        outcome["similar"] = entry.outcome[SIMILAR]
    return {
        "id": entry.id,
        "kind": entry.kind,
        "protocol": entry.protocol,
        "state": entry.state,
        "reason": entry.reason,
        "regulation": entry.regulation,
        "received": as_text(entry.received),
        "since": as_text(entry.since),
        "runs": as_text(entry.runs),
        "due": None if entry.kind in _NO_CLOCK else as_text(entry.due),
        "extension": entry.extension,
        "overdue": entry.overdue,
        "ended": None if entry.ended is None else as_text(entry.ended),
        "people": entry.people or entry.outcome.get("people", 0),
        "reference": entry.reference,
        "actor": entry.actor,
        "outcome": outcome,
    }


def accepted_view(entry: Job) -> dict[str, Any]:
    """A request as it is told to who may not learn whether its people are in the vault: not what became of it."""
    names = ("id", "kind", "protocol", "regulation", "received", "since", "reference", "actor")
    view = request_view(entry)
    return {name: view[name] for name in names}


def delivery_view(delivery: Delivery) -> dict[str, Any]:
    """A delivery to a webhook as it is told."""
    times = {name: getattr(delivery, name) for name in ("made", "tried", "next")}
    told = {name: None if time is None else as_text(time) for name, time in times.items()}
    return {
        "id": delivery.id,
        "webhook": delivery.hook,
        "event": delivery.event,
        "state": delivery.state,
        "reason": delivery.reason,
        "detail": REASONS.get(delivery.reason, ""),
        "answer": delivery.answer,
        "tries": delivery.tries,
        **told,
    }


def webhook_view(hook: "Hook") -> dict[str, Any]:
    """A webhook as it is told, without its secret."""
    return {
        "id": hook.id,
        "url": hook.url,
        "events": list(hook.events),
        "made": as_text(hook.made),
        "off": None if hook.off is None else as_text(hook.off),
    }


def receipt_view(receipt: PersonalReceipt | None) -> Any:
    """A person's receipt: the same JSON that the command line writes to a file."""
    return None if receipt is None else json.loads(receipt.to_json())


def matter_view(matter: Matter, now: datetime) -> dict[str, Any]:
    """A matter as JSON."""
    return {
        "id": matter.id,
        "name": matter.name,
        "reason": matter.reason,
        "opened": as_text(matter.opened),
        "actor": matter.actor,
        "review": None if matter.review is None else as_text(matter.review),
        "review_due": matter.review_due(now),
        "released": None if matter.released is None else as_text(matter.released),
        "people": matter.people,
        "requests": matter.requests,
        "release": None if matter.release is None else matter_entry_view(matter.release),
    }


def matter_entry_view(entry: Entry) -> dict[str, Any]:
    """What somebody did to a matter, as JSON."""
    return {
        "time": as_text(entry.time),
        "what": entry.what,
        "actor": entry.actor,
        "token": entry.token,
        "people": entry.people,
        "reason": entry.reason,
    }


def release_view(release: Release) -> dict[str, Any]:
    """What a release will do, as JSON."""
    return {
        "text": release.text,
        "people": release.people,
        "elsewhere": release.elsewhere,
        "requests": release.requests,
        "waiting": release.waiting,
        "erased": release.erased,
        "rows": release.rows,
        "window_seconds": release.window.total_seconds(),
    }
