"""The audit trail: everything that happened to a vault and its service, and who did it, ordered by time.

It has two sources. The ledger has every request that changed the vault, from the service, the command line or Python,
and every key. The service's database has jobs, matters, verifications, and the events that are recorded here: tokens,
webhooks, aliases, logins, cancellations and extensions. Nothing in the trail identifies the people of a request.
"""

import csv
import heapq
import io
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..errors import ExpungeError
from ..vault import Vault
from .clocks import Clock, due_date, format_time, parse_time, utc_now
from .database import Database, queue_path


@dataclass(frozen=True)
class AuditEntry:
    """One entry of the audit trail.

    Attributes
    ----------
    time : str
        ISO 8601, UTC.
    action : str
        ``vault.`` and the kind of a request, ``key.introduced``, ``job.`` and its state, ``token.created`` ...
    actor : str
        The name of the caller; empty if it was not given.
    subject : str
        What was changed: the number of a request, the id of a job or token, the name of a matter.
    reference : str
        The caller's reference.
    details : dict
        Further facts, by name.
    """

    time: str
    action: str
    actor: str = ""
    subject: str = ""
    reference: str = ""
    details: dict[str, Any] = field(default_factory=dict)


class AuditTrail:
    """The events of a service that no other table has."""

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self._database, self._clock = database, clock

    def record(self, action: str, *, actor: str, subject: str = "", **details: Any) -> None:
        """Store an event, as part of the current transaction if there is one.

        A detail named ``reference`` becomes the entry's reference.
        """
        with self._database.transaction() as database:
            database.execute(
                "INSERT INTO audit (time, action, actor, subject, details) VALUES (?, ?, ?, ?, ?)",
                format_time(self._clock()), action, actor, subject, json.dumps(details),
            )  # fmt: skip

    def entries(self) -> Iterator[AuditEntry]:
        """Yield the recorded events, the oldest first."""
        for row in self._iterate_rows("SELECT * FROM audit WHERE number > ? ORDER BY number LIMIT 1000"):
            details = json.loads(row["details"])
            reference = details.pop("reference", "")
            yield AuditEntry(row["time"], row["action"], row["actor"], row["subject"], reference, details)

    def received_jobs(self) -> Iterator[AuditEntry]:
        """Yield an entry for the arrival of each job, the oldest first."""
        return (_job_entry(row, "received") for row in self._iterate_rows(_RECEIVED_JOBS))

    def ended_jobs(self) -> Iterator[AuditEntry]:
        """Yield an entry for the end of each job, in that order; cancellations are recorded events."""
        ended, number = "", 0
        while rows := self._database.fetch_all(_ENDED_JOBS, ended, number):
            yield from (_job_entry(row, "ended") for row in rows)
            ended, number = rows[-1]["ended"], rows[-1]["number"]

    def matters(self) -> Iterator[AuditEntry]:
        """Yield the log of all matters, the oldest first."""
        for row in self._iterate_rows(_MATTER_LOG):
            details = {"people": row["people"], "reason": row["reason"], "token": row["token"]}
            yield AuditEntry(row["time"], f"matter.{row['what']}", row["actor"], row["name"], details=details)

    def verifications(self) -> list[AuditEntry]:
        """Return an entry for the end of each verification, the oldest first."""
        rows = self._database.fetch_all("SELECT * FROM verifications WHERE ended IS NOT NULL")
        entries = []
        for row in rows:
            wrong = [check["name"] for check in json.loads(row["checks"]) if not check["ok"]]
            details = {"source": row["source"], "token": row["caller"], "seconds": row["seconds"], "wrong": wrong}
            action = f"verification.{row['state']}"
            entries.append(AuditEntry(row["ended"], action, row["actor"], row["id"], details=details))
        return sorted(entries, key=_sort_key)

    def _iterate_rows(self, query: str) -> Iterator[sqlite3.Row]:
        """Yield the rows of a query, a thousand per read, so that other threads do not wait for all of them."""
        number = 0
        while rows := self._database.fetch_all(query, number):
            yield from rows
            number = rows[-1]["number"]


def record_backup(vault: Path, request: int, *, actor: str, with_key: bool) -> str:
    """Record a backup in the audit trail of a vault's service; return a note if that failed, else "".

    The backup is there at this point: a database that cannot be written must not make that look like a failure.
    """
    try:
        with closing(Database(queue_path(vault))) as database:
            AuditTrail(database).record("backup.made", actor=actor, subject=str(request), with_key=with_key)
    except (sqlite3.Error, OSError, ExpungeError):
        return "the backup could not be recorded in the audit trail of the service"
    return ""


_RECEIVED_JOBS = "SELECT * FROM requests WHERE number > ? ORDER BY number LIMIT 1000"
_ENDED_JOBS = (
    "SELECT * FROM requests WHERE ended IS NOT NULL AND state != 'cancelled' AND (ended, number) > (?, ?)"
    " ORDER BY ended, number LIMIT 1000"
)
_MATTER_LOG = (
    "SELECT log.*, matters.name FROM matter_log AS log JOIN matters ON matters.id = log.matter"
    " WHERE log.number > ? ORDER BY log.number LIMIT 1000"
)
_OUTCOME_NAMES = ("rows", "erased", "erased_earlier", "earlier", "unknown", "request", "held", "open", "renewal")


def _job_entry(row: sqlite3.Row, when: str) -> AuditEntry:
    details = {name: row[name] for name in ("kind", "protocol", "regulation")}
    due = due_date(parse_time(row["since"]), row["regulation"])  # before any extension
    details["due"] = format_time(due)
    if when == "ended":
        outcome = json.loads(row["outcome"])
        details = {"reason": row["reason"]} | {name: outcome[name] for name in _OUTCOME_NAMES if name in outcome}
    action = f"job.{'received' if when == 'received' else row['state']}"
    return AuditEntry(row[when], action, row["actor"], row["id"], row["reference"], details)


def read_trail(vault: Vault, database: Database | None) -> Iterator[AuditEntry]:
    """Yield the whole trail, the oldest first; without a database only what is in the ledger."""
    keys = [
        AuditEntry(change.time, "key.introduced", change.actor, change.key, details={"endorsed": change.endorsed})
        for change in vault.key_log()
    ]
    sources: list[Iterable[AuditEntry]] = [keys, _ledger_entries(vault)]
    if database is not None:  # within a second, a job arrives before its request in the vault, and ends after it
        trail = AuditTrail(database)
        sources.insert(0, trail.received_jobs())
        sources += [trail.ended_jobs(), trail.entries(), trail.matters(), trail.verifications()]
    for entry in heapq.merge(*sources, key=_sort_key):
        yield replace(entry, time=entry.time.replace("+00:00", "Z"))


def _ledger_entries(vault: Vault) -> Iterator[AuditEntry]:
    for request in vault.requests:
        details: dict[str, Any] = {"rows": request.rows, "people": request.people, "state": request.state}
        if jobs := [caller.job for caller in request.callers if caller.job]:
            details["jobs"] = jobs
        if reasons := [caller.despite_hold for caller in request.callers if caller.despite_hold]:
            details["despite_hold"] = reasons[0]  # such an erasure has one caller
        details |= request.facts
        yield AuditEntry(
            request.time, f"vault.{request.kind}", request.actor, str(request.number), request.reference, details
        )


def _sort_key(entry: AuditEntry) -> str:
    return entry.time[:19]  # to the second: fractions and zones are written in several ways


COLUMNS = tuple(column.name for column in fields(AuditEntry))


def format_json(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """Yield a JSON array with one entry per line."""
    lead = "[\n"
    for entry in entries:
        yield lead + json.dumps(asdict(entry))
        lead = ",\n"
    yield "[]\n" if lead == "[\n" else "\n]\n"


def format_csv(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """Yield a CSV table; the details are one JSON object per row."""
    yield _format_csv_line(COLUMNS)
    for entry in entries:
        cells = asdict(entry) | {"details": json.dumps(entry.details)}
        yield _format_csv_line(_guard_formula(cells[name]) for name in COLUMNS)


def _format_csv_line(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _guard_formula(cell: str) -> str:
    """Return the cell, quoted if a spreadsheet would evaluate it as a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t") else cell
