"""Numbers: what the charts of the dashboard show, asked of the queue and of the vault's log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import median

from ...vault import LoggedRequest
from ..clocks import as_text, as_time
from ..queue import ERASURE, OPEN
from ..service import Service

DAYS = 30
_ERASURES = 60  # whose times are shown


@dataclass(frozen=True)
class Totals:
    """How many requests there are."""

    open: int
    held: int
    overdue: int
    done: int
    all: int


def totals(service: Service) -> Totals:
    """Count the requests."""
    states = dict[str, int]()
    for (_, _, state), number in service.queue.counts().items():
        states[state] = states.get(state, 0) + number
    row = service.database.one(
        "SELECT COUNT(*) AS n FROM requests WHERE due < ? AND state IN (?, ?, ?)", as_text(service.clock()), *OPEN
    )
    return Totals(
        open=sum(states.get(one, 0) for one in OPEN),
        held=states.get("held", 0),
        overdue=0 if row is None else row["n"],
        done=states.get("done", 0),
        all=sum(states.values()),
    )


def per_day(service: Service) -> list[tuple[date, int]]:
    """How many requests came on each of the last days."""
    today = service.clock().date()
    first = today - timedelta(days=DAYS - 1)
    rows = service.database.all(
        "SELECT substr(received, 1, 10) AS day, COUNT(*) AS n FROM requests WHERE received >= ? GROUP BY 1",
        first.isoformat(),
    )
    found = {row["day"]: row["n"] for row in rows}
    days = [first + timedelta(days=k) for k in range(DAYS)]
    return [(one, found.get(one.isoformat(), 0)) for one in days]


def forgetting(service: Service) -> list[float]:
    """The seconds that the newest erasures took in the vault, the oldest first."""
    rows = service.database.all(
        "SELECT json_extract(outcome, '$.seconds') AS s FROM requests WHERE kind = ? AND state = 'done'"
        " AND json_extract(outcome, '$.request') IS NOT NULL ORDER BY number DESC LIMIT ?",
        ERASURE,
        _ERASURES,
    )
    return [float(row["s"]) for row in reversed(rows) if row["s"] is not None]


def middle(times: Sequence[float]) -> float:
    """The median."""
    return float(median(times))


def rows_over_time(log: Sequence[LoggedRequest], rows: int) -> list[tuple[datetime, int]]:
    """How many rows the vault held after each of its requests, back to the training, from how many it holds now.

    What was there before a folder was restored is not told by the log.
    """
    found = list[tuple[datetime, int]]()
    for one in reversed(log):
        found.append((as_time(one.time), rows))
        if one.kind in ("train", "restore", "cloned"):
            break
        rows += {"unlearn": one.rows, "add": -one.rows}.get(one.kind, 0)
    return found[::-1]
