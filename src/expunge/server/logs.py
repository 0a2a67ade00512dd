"""Logs: one JSON object a line, on standard error. No id, row value or token is ever in one."""

import json
import sys
import threading
from typing import Any

from .clocks import as_text, utc_now

_lock = threading.Lock()
_process = dict[str, Any]()  # what every line of this process has


def sign(**facts: Any) -> None:
    """Have every line of this process say this, too."""
    _process.update(facts)


def log(event: str, **facts: Any) -> None:
    """Write a line."""
    line = json.dumps({"time": as_text(utc_now()), "event": event, **_process, **facts}, default=str)
    with _lock:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
