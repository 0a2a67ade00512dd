"""The queue: requests with states and deadlines, the sealed people of waiting ones, and the outcome of the others.

An erasure is *erased* as soon as rows, moments and weights are gone, and *done*, which is complete, when no setting in
use was chosen with the help of rows of its people: at once, or with the vault's next renewal (`renewals`). Likewise a
correction is *corrected*, then done. Deadlines run until then.
"""

import json
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

from ..errors import ExpungeError
from ..vault import PersonOutcome, Receipt
from ..vault.sealed_ids import SealedId
from .clocks import Clock, Regulation, due_date, format_time, parse_time, utc_now
from .database import Database

JobState: TypeAlias = Literal[
    "waiting", "held", "running", "erased", "corrected", "done", "not_known", "cancelled", "failed"
]
JOB_STATES: tuple[JobState, ...] = get_args(JobState)
PENDING_STATES: tuple[JobState, ...] = ("waiting", "held", "running")  # still to be carried out
INCOMPLETE_STATES: tuple[JobState, ...] = ("erased", "corrected")  # carried out; complete with the next renewal
OPEN_STATES: tuple[JobState, ...] = (*PENDING_STATES, *INCOMPLETE_STATES)
COMPLETE_STATES: tuple[JobState, ...] = ("done", "not_known")  # not_known: the vault has none of the people

JobKind: TypeAlias = Literal[
    "erasure", "rectification", "addition", "readmission",
    "access", "access:categories", "access:specific", "sale:opt-out", "sale:opt-in",  # requested by DRP, and denied
]  # fmt: skip
ERASURE: JobKind = "erasure"
ProtocolName: TypeAlias = Literal["api", "dashboard", "opendsr", "drp", "fides"]
_KINDS_WITHOUT_DEADLINE = ("addition", "readmission")  # no law sets a deadline for these
SIMILAR_KEY = "_similar"  # in an outcome: for how many unknown ids the vault has a similar one; needs the scope erase
KEY_LIFETIME = timedelta(days=90)  # of an idempotency key
_MAX_REASON_CHARS = 500


@dataclass(frozen=True)
class NewJob:
    """A request before it is stored."""

    kind: JobKind
    protocol: ProtocolName
    regulation: Regulation
    reference: str = ""
    actor: str = ""
    caller: str = ""  # the id of the token or agent; names are not unique
    outside: str | None = None  # the external id, from the system that sent it
    callbacks: tuple[str, ...] = ()
    since: datetime | None = None  # when the person asked, if that was earlier, elsewhere
    people: tuple[SealedId, ...] = ()
    mark: str | None = None  # keyed hash of caller, reference and people, to find the same open request
    idempotency: tuple[str, str] | None = None  # keyed hashes of an idempotency key and of the body
    facts: dict[str, Any] = field(default_factory=dict)  # that the protocol needs in answers
    id: str | None = None  # chosen by the caller, if it is needed before the request is stored


@dataclass(frozen=True)
class Job:
    """A stored request, without its people."""

    number: int
    id: str
    kind: str
    protocol: str
    state: JobState
    reason: str
    regulation: Regulation
    received: datetime
    since: datetime  # start of the legal deadline: the person may have asked elsewhere before
    runs: datetime
    due: datetime
    extension: str
    overdue: bool
    ended: datetime | None
    people: int
    outside: str | None
    reference: str
    actor: str
    caller: str
    callbacks: tuple[str, ...]
    outcome: dict[str, Any]
    awaits: int | None  # in an incomplete state: complete once a later request of the vault has chosen the settings

    @property
    def open(self) -> bool:
        """Whether it is not complete yet: its deadline runs."""
        return self.state in OPEN_STATES

    @property
    def pending(self) -> bool:
        """Whether it still has to be carried out."""
        return self.state in PENDING_STATES

    @property
    def incomplete(self) -> bool:
        """Whether it was carried out, and is complete with the next renewal."""
        return self.state in INCOMPLETE_STATES

    @property
    def complete(self) -> bool:
        """Whether people were erased or are not known, and no setting in use was chosen with the help of their rows."""
        return self.state in COMPLETE_STATES

    @property
    def carried_out(self) -> bool:
        """Whether it reached the vault: people were erased, or are not known there."""
        return self.complete or self.incomplete

    @property
    def half_time(self) -> datetime:
        """Half of its deadline, by which the service renews the vault."""
        return self.since + (self.due - self.since) / 2

    def view(self, *, similar: bool = False, complete_by: datetime | None = None) -> dict[str, Any]:
        """Return the request as JSON, without its people.

        With ``similar``, for callers who may erase, it says for how many unknown ids the vault has a similar one.
        ``complete_by`` is when the vault is renewed next, shown in an incomplete request.
        """
        outcome = {name: value for name, value in self.outcome.items() if not name.startswith("_")}
        if similar and SIMILAR_KEY in self.outcome:
            outcome["similar"] = self.outcome[SIMILAR_KEY]
        return {
            "id": self.id,
            "kind": self.kind,
            "protocol": self.protocol,
            "state": self.state,
            "reason": self.reason,
            "regulation": self.regulation,
            "received": format_time(self.received),
            "since": format_time(self.since),
            "runs": format_time(self.runs),
            "due": None if self.kind in _KINDS_WITHOUT_DEADLINE else format_time(self.due),
            "extension": self.extension,
            "overdue": self.overdue,
            "ended": format_time(self.ended),
            "complete": self.complete,
            "complete_by": format_time(complete_by) if self.incomplete else None,
            "people": self.people or self.outcome.get("people", 0),
            "reference": self.reference,
            "actor": self.actor,
            "outcome": outcome,
        }

    def accepted_view(self) -> dict[str, Any]:
        """Return the part of `view` for callers who must not learn whether the people are in the vault."""
        names = ("id", "kind", "protocol", "regulation", "received", "since", "reference", "actor")
        view = self.view()
        return {name: view[name] for name in names}


@dataclass(frozen=True)
class JobFilter:
    """Criteria for a page of requests."""

    states: Sequence[str] = ()
    kind: str | None = None
    protocol: str | None = None
    overdue: bool | None = None
    reference: str = ""  # part of the reference, case-insensitive
    since: date | None = None  # received on this day or later
    until: date | None = None  # received on this day or earlier
    before: int | None = None  # numbers below this
    limit: int = 50


class Queue:
    """The requests of a service."""

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self.database, self._clock = database, clock

    def add(self, new_job: NewJob, runs: datetime, state: JobState = "waiting", reason: str = "") -> Job:
        """Store a request and its people; it is on the disk when this returns."""
        received, id_ = self._clock(), new_job.id or str(uuid.uuid4())
        since = min(received, new_job.since or received)
        with self.database.transaction() as database:
            database.execute(
                "INSERT INTO requests (id, kind, protocol, state, reason, regulation, received, since, runs, due,"
                " people, outside, reference, actor, caller, callbacks, outcome)"
                " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                id_, new_job.kind, new_job.protocol, state, reason, new_job.regulation, format_time(received),
                format_time(since), runs.isoformat(), format_time(due_date(since, new_job.regulation)),
                len(new_job.people), new_job.outside, new_job.reference, new_job.actor, new_job.caller,
                json.dumps(new_job.callbacks), json.dumps(new_job.facts),
            )  # fmt: skip
            people = ((id_, person.hash, person.text) for person in new_job.people)
            database.execute_many("INSERT INTO people VALUES (?, ?, ?)", people)
            if new_job.mark is not None:
                database.execute("INSERT INTO marks VALUES (?, ?)", new_job.mark, id_)
            self.remember_key(new_job.idempotency, id_)
        return self.get(id_)

    def remember_key(self, idempotency: tuple[str, str] | None, id_: str) -> None:
        """Store which request an idempotency key was used for, and delete expired keys."""
        if idempotency is not None:
            now = self._clock()
            with self.database.transaction() as database:
                database.execute("DELETE FROM answered WHERE time < ?", format_time(now - KEY_LIFETIME))
                database.execute(
                    "INSERT OR REPLACE INTO answered VALUES (?, ?, ?, ?)", *idempotency, id_, format_time(now)
                )

    def get(self, id_: str) -> Job:
        """Return a request; raise LookupError if it does not exist."""
        row = self.database.fetch_one("SELECT * FROM requests WHERE id = ?", id_)
        if row is None:
            raise LookupError(id_)
        return _read_job(row)

    def has(self, id_: str) -> bool:
        """Return whether a request exists."""
        return self.database.fetch_one("SELECT 1 FROM requests WHERE id = ?", id_) is not None

    def find(self, protocol: str, outside: str, caller: str | None = None) -> Job | None:
        """Return the newest request with this external id, of one caller or (None) of any; None if there is none."""
        row = self.database.fetch_one(
            "SELECT * FROM requests WHERE protocol = ? AND outside = ? AND (caller = ? OR ? IS NULL)"
            " ORDER BY number DESC",
            protocol, outside, caller, caller,
        )  # fmt: skip
        return None if row is None else _read_job(row)

    def find_same(self, mark: str) -> Job | None:
        """Return the open request with this mark, or None."""
        row = self.database.fetch_one(
            "SELECT r.* FROM requests r JOIN marks m ON m.request = r.id WHERE m.mark = ? ORDER BY r.number", mark
        )
        return None if row is None else _read_job(row)

    def find_answered(self, key: str) -> tuple[str, Job] | None:
        """Return the body's mark and the request that an idempotency key was used for, or None."""
        row = self.database.fetch_one("SELECT * FROM answered WHERE key = ?", key)
        return None if row is None else (row["mark"], self.get(row["request"]))

    def page(self, criteria: JobFilter) -> list[Job]:
        """Return the requests that match, the newest first."""
        tests, values = ["1"], list[Any]()
        if criteria.states:
            tests.append(f"state IN ({_placeholders(criteria.states)})")
            values += criteria.states
        for name in ("kind", "protocol"):
            if (value := getattr(criteria, name)) is not None:
                tests.append(f"{name} = ?")
                values.append(value)
        if criteria.overdue is not None:
            tests.append(f"({'' if criteria.overdue else 'NOT '}(due < ? AND state IN ({_placeholders(OPEN_STATES)})))")
            values += [format_time(self._clock()), *OPEN_STATES]
        if criteria.reference:
            matching = "SELECT number FROM requests INDEXED BY requests_reference"  # reads no row that does not match
            tests.append(f"number IN ({matching} WHERE instr(lower(reference), lower(?)) > 0)")
            values.append(criteria.reference)
        if criteria.since is not None:
            tests.append("received >= ?")
            values.append(criteria.since.isoformat())
        if criteria.until is not None:
            tests.append("received < ?")
            values.append((criteria.until + timedelta(days=1)).isoformat())
        if criteria.before is not None:
            tests.append("number < ?")
            values.append(criteria.before)
        query = f"SELECT * FROM requests WHERE {' AND '.join(tests)} ORDER BY number DESC LIMIT ?"  # noqa: S608
        return [_read_job(row) for row in self.database.fetch_all(query, *values, criteria.limit)]

    def pending(self) -> list[Job]:
        """Return the requests that still have to be carried out, the oldest first."""
        return self._list_in_states(PENDING_STATES)

    def incomplete(self) -> list[Job]:
        """Return the requests that are complete with the next renewal, the oldest first."""
        return self._list_in_states(INCOMPLETE_STATES)

    def _list_in_states(self, states: Sequence[JobState]) -> list[Job]:
        query = f"SELECT * FROM requests WHERE state IN ({_placeholders(states)}) ORDER BY number"  # noqa: S608
        return [_read_job(row) for row in self.database.fetch_all(query, *states)]

    def find_settled(self, request: int) -> list[Job]:
        """Return the incomplete requests that are complete once this request of the vault has chosen the settings."""
        rows = self.database.fetch_all("SELECT * FROM requests WHERE awaits < ? ORDER BY number", request)
        return [_read_job(row) for row in rows]

    def nearest_due(self) -> datetime | None:
        """Return when the first open request is due, or None if none is open."""
        row = self.database.fetch_one(
            f"SELECT MIN(due) AS due FROM requests WHERE state IN ({_placeholders(OPEN_STATES)})",  # noqa: S608
            *OPEN_STATES,
        )
        return None if row is None else parse_time(row["due"])

    def overdue_count(self) -> int:
        """Return how many open requests are past their deadline."""
        row = self.database.fetch_one(
            f"SELECT COUNT(*) AS n FROM requests WHERE due < ? AND state IN ({_placeholders(OPEN_STATES)})",  # noqa: S608
            format_time(self._clock()),
            *OPEN_STATES,
        )
        return 0 if row is None else int(row["n"])

    def newest_time(self) -> datetime | None:
        """Return when the newest request was received, or None if there is none."""
        row = self.database.fetch_one("SELECT received FROM requests ORDER BY number DESC LIMIT 1")
        return None if row is None else parse_time(row["received"])

    def running(self) -> list[Job]:
        """Return the requests that are running, or were interrupted while running, the oldest first."""
        return [
            _read_job(row)
            for row in self.database.fetch_all("SELECT * FROM requests WHERE state = 'running' ORDER BY number")
        ]

    def counts(self) -> dict[tuple[str, str, str], int]:
        """Count the requests by kind, protocol and state."""
        rows = self.database.fetch_all("SELECT kind, protocol, state, n FROM counts WHERE n > 0")
        return {(row["kind"], row["protocol"], row["state"]): row["n"] for row in rows}

    def people(self, id_: str) -> list[SealedId]:
        """Return the sealed people of an open request."""
        rows = self.database.fetch_all("SELECT hash, sealed FROM people WHERE request = ? ORDER BY rowid", id_)
        return [SealedId(row["hash"], row["sealed"]) for row in rows]

    def move(self, id_: str, state: JobState, reason: str = "", *, awaits: int | None = None, **outcome: Any) -> Job:
        """Change the state of a request; delete its people once it is carried out or closed.

        ``awaits`` is the request of the vault that an incomplete one waits to be followed by a renewal.
        """
        with self.database.transaction() as database:
            before = self.get(id_)
            ended = None if state in OPEN_STATES else format_time(self._clock())
            database.execute(
                "UPDATE requests SET state = ?, reason = ?, ended = ?, outcome = ?, awaits = ? WHERE id = ?",
                state, reason, ended, json.dumps(before.outcome | outcome), awaits, id_,
            )  # fmt: skip
            if state not in PENDING_STATES:
                database.execute("DELETE FROM people WHERE request = ?", id_)
                database.execute("DELETE FROM marks WHERE request = ?", id_)
            if state == "failed":  # so that the same key can be used to retry
                database.execute("DELETE FROM answered WHERE request = ?", id_)
        return self.get(id_)

    def restart_window(self, id_: str, runs: datetime) -> Job:
        """Restart the time in which a request can be cancelled."""
        with self.database.transaction() as database:
            database.execute("UPDATE requests SET runs = ? WHERE id = ?", runs.isoformat(), id_)
        return self.get(id_)

    def extend(self, id_: str, reason: str) -> Job:
        """Extend the deadline of a request as its regulation allows."""
        with self.database.transaction() as database:
            job = self.get(id_)
            until = format_time(due_date(job.since, job.regulation, extended=True))
            database.execute("UPDATE requests SET due = ?, extension = ?, overdue = 0 WHERE id = ?", until, reason, id_)
        return self.get(id_)

    def mark_overdue(self) -> list[Job]:
        """Mark open requests that became overdue, and return those that were not marked before."""
        with self.database.transaction() as database:
            query = f"SELECT * FROM requests WHERE overdue = 0 AND due < ? AND state IN ({_placeholders(OPEN_STATES)})"  # noqa: S608
            jobs = [_read_job(row) for row in database.fetch_all(query, format_time(self._clock()), *OPEN_STATES)]
            for job in jobs:
                database.execute("UPDATE requests SET overdue = 1 WHERE id = ?", job.id)
        return jobs


def _placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _read_job(row: sqlite3.Row) -> Job:
    fields = dict(row)
    for name in ("received", "since", "runs", "due", "ended"):
        fields[name] = parse_time(fields[name])
    fields["overdue"] = bool(fields["overdue"])
    fields["callbacks"], fields["outcome"] = tuple(json.loads(fields["callbacks"])), json.loads(fields["outcome"])
    return Job(**fields)


def receipt_outcome(receipt: Receipt) -> dict[str, Any]:
    """Return the part of a vault's receipt that the queue keeps."""
    names = ("request", "rows", "people", "skipped", "known", "clipped", "open")
    return {name: getattr(receipt, name) for name in names} | {"seconds": round(receipt.seconds, 6)}


def erasure_outcome(people: Sequence[PersonOutcome], receipt: Receipt | None) -> dict[str, Any]:
    """Return the outcome of one erasure, which may have been carried out together with others.

    Its ``request`` is the vault's request that erased the people: an earlier one if all of them had been erased before,
    None if the vault knows none of them.
    """
    erased = [person for person in people if person.state == "erased"]
    earlier = sorted({person.request for person in people if person.state == "earlier" and person.request is not None})
    number = receipt.request if receipt is not None and erased else None
    return {
        "rows": sum(person.rows for person in erased),
        "erased": len(erased),
        "erased_earlier": sum(person.state == "earlier" for person in people),
        "earlier": earlier,
        "unknown": sum(person.state == "unknown" for person in people),
        "open": sum(not person.complete for person in people),
        "request": earlier[-1] if number is None and earlier else number,
        "seconds": 0.0 if receipt is None else round(receipt.seconds, 6),
        SIMILAR_KEY: sum(person.similar for person in people),
    }


def erasure_state(people: Sequence[PersonOutcome]) -> tuple[JobState, int | None]:
    """Return the state of an erasure that was carried out, and the request that it waits to be followed by a renewal.

    It is not_known if the vault knows none of its people.
    """
    if open_requests := [person.request or 0 for person in people if not person.complete]:
        return "erased", max(open_requests)
    return "done" if any(person.state != "unknown" for person in people) else "not_known", None


def was_repeated(outcome: dict[str, Any]) -> bool:
    """Return whether all people had been erased before; the certificate is then that of the latest such request."""
    return not outcome.get("erased") and bool(outcome.get("erased_earlier"))


def describe_error(error: BaseException) -> str:
    """Return the reason to show for an error: our own messages identify no person, others are only logged."""
    if isinstance(error, ExpungeError):
        return str(error)[:_MAX_REASON_CHARS]
    return (isinstance(error, OSError) and error.strerror) or "unexpected error; see the service's log"
