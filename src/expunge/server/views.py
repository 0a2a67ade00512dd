"""Views: what is told of requests, holds and tokens, as JSON; whose they are is never in them."""

import json
from typing import Any

from ..vault import PersonalReceipt
from .clocks import as_text
from .holds import Hold
from .queue import Entry

_NO_CLOCK = ("addition", "readmission")  # nobody asked for these by right


def request_view(entry: Entry) -> dict[str, Any]:
    """A request as it is told."""
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
        "outcome": {name: value for name, value in entry.outcome.items() if not name.startswith("_")},
    }


def receipt_view(receipt: PersonalReceipt | None) -> Any:
    """A person's receipt: the same JSON that the command line writes to a file."""
    return None if receipt is None else json.loads(receipt.to_json())


def hold_view(hold: Hold) -> dict[str, Any]:
    """A hold as it is told."""
    return {
        "id": hold.id,
        "reason": hold.reason,
        "since": as_text(hold.since),
        "until": None if hold.until is None else as_text(hold.until),
        "actor": hold.actor,
    }
