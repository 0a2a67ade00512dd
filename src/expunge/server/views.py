"""Views: what is told of requests, matters and tokens, as JSON; whose they are is never in them."""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..vault import PersonalReceipt
from .clocks import format_time
from .deliveries import FAILURE_REASONS, Delivery
from .matters import Matter, MatterLogEntry, ReleasePreview
from .queue import SIMILAR_KEY, Job

if TYPE_CHECKING:
    from .webhooks import Hook

_KINDS_WITHOUT_DEADLINE = ("addition", "readmission")  # nobody asked for these by right


def request_view(job: Job, *, similar: bool = False) -> dict[str, Any]:
    """A request as it is told.

    With ``similar``, for callers who may erase, an erasure tells for how many unknown ids a similar one is here.
    """
    outcome = {name: value for name, value in job.outcome.items() if not name.startswith("_")}
    if similar and SIMILAR_KEY in job.outcome:
        outcome["similar"] = job.outcome[SIMILAR_KEY]
    return {
        "id": job.id,
        "kind": job.kind,
        "protocol": job.protocol,
        "state": job.state,
        "reason": job.reason,
        "regulation": job.regulation,
        "received": format_time(job.received),
        "since": format_time(job.since),
        "runs": format_time(job.runs),
        "due": None if job.kind in _KINDS_WITHOUT_DEADLINE else format_time(job.due),
        "extension": job.extension,
        "overdue": job.overdue,
        "ended": None if job.ended is None else format_time(job.ended),
        "people": job.people or job.outcome.get("people", 0),
        "reference": job.reference,
        "actor": job.actor,
        "outcome": outcome,
    }


def accepted_view(job: Job) -> dict[str, Any]:
    """A request as it is told to who may not learn whether its people are in the vault: not what became of it."""
    names = ("id", "kind", "protocol", "regulation", "received", "since", "reference", "actor")
    view = request_view(job)
    return {name: view[name] for name in names}


def delivery_view(delivery: Delivery) -> dict[str, Any]:
    """A delivery to a webhook as it is told."""
    times = {name: getattr(delivery, name) for name in ("made", "tried", "next")}
    told = {name: None if time is None else format_time(time) for name, time in times.items()}
    return {
        "id": delivery.id,
        "webhook": delivery.hook,
        "event": delivery.event,
        "state": delivery.state,
        "reason": delivery.reason,
        "detail": FAILURE_REASONS.get(delivery.reason, ""),
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
        "made": format_time(hook.made),
        "off": None if hook.off is None else format_time(hook.off),
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
        "opened": format_time(matter.opened),
        "actor": matter.actor,
        "review": None if matter.review is None else format_time(matter.review),
        "review_due": matter.review_due(now),
        "released": None if matter.released is None else format_time(matter.released),
        "people": matter.people,
        "requests": matter.requests,
        "release": None if matter.release is None else matter_entry_view(matter.release),
    }


def matter_entry_view(entry: MatterLogEntry) -> dict[str, Any]:
    """What somebody did to a matter, as JSON."""
    return {
        "time": format_time(entry.time),
        "what": entry.what,
        "actor": entry.actor,
        "token": entry.token,
        "people": entry.people,
        "reason": entry.reason,
    }


def release_view(release: ReleasePreview) -> dict[str, Any]:
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
