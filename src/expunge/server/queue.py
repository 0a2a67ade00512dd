"""The queue: requests with their states and clocks, and the sealed people of those that are not done."""

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

JobState: TypeAlias = Literal["waiting", "held", "running", "done", "not_known", "cancelled", "failed"]
JOB_STATES: tuple[JobState, ...] = get_args(JobState)
OPEN_STATES: tuple[JobState, ...] = ("waiting", "held", "running")
CARRIED_OUT_STATES: tuple[JobState, ...] = (
    "done",
    "not_known",
)  # the second: an erasure of people of whom the vault knows none

JobKind: TypeAlias = Literal[
    "erasure", "rectification", "addition", "readmission",
    "access", "access:categories", "access:specific", "sale:opt-out", "sale:opt-in",  # asked for by DRP, and denied
]  # fmt: skip
ERASURE: JobKind = "erasure"
ProtocolName: TypeAlias = Literal["api", "dashboard", "opendsr", "drp", "fides"]
_KINDS_WITHOUT_DEADLINE = ("addition", "readmission")  # no law sets a deadline for these
KEY_LIFETIME = timedelta(days=90)  # how long an idempotency key is known


@dataclass(frozen=True)
class NewJob:
    """What somebody asks for, before it has a number."""

    kind: JobKind
    protocol: ProtocolName
    regulation: Regulation
    reference: str = ""
    actor: str = ""
    caller: str = ""  # the id of the token or agent that asks; names are not unique
    outside: str | None = None  # what the asking system calls it
    callbacks: tuple[str, ...] = ()
    since: datetime | None = None  # when the person asked, if somebody else took the request
    people: tuple[SealedId, ...] = ()
    mark: str | None = None  # of the people, so that the same request is found while it is open
    idempotency: tuple[str, str] | None = None  # an idempotency key and the mark of the body, both keyed
    facts: dict[str, Any] = field(default_factory=dict)  # that an asking system wants back
    id: str | None = None  # what it will be called, if somebody has to know that before


@dataclass(frozen=True)
class Job:
    """A request. Whose it is, is not in it."""

    number: int
    id: str
    kind: str
    protocol: str
    state: JobState
    reason: str
    regulation: Regulation
    received: datetime
    since: datetime  # from when the law counts: the person may have asked somebody else before
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

    @property
    def open(self) -> bool:
        """Whether it is still to be carried out."""
        return self.state in OPEN_STATES

    @property
    def carried_out(self) -> bool:
        """Whether the vault has answered it: people were erased, or are not known here."""
        return self.state in CARRIED_OUT_STATES

    def view(self, *, similar: bool = False) -> dict[str, Any]:
        """Return the request as JSON, without its people.

        With ``similar``, for callers who may erase, it says for how many unknown ids the vault has a similar one.
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
    """Which requests are wanted, the newest first."""

    states: Sequence[str] = ()
    kind: str | None = None
    protocol: str | None = None
    overdue: bool | None = None
    reference: str = ""  # part of what the caller calls it, in any case
    since: date | None = None  # received on this day or later
    until: date | None = None  # received on this day or earlier
    before: int | None = None  # numbers below this
    limit: int = 50


class Queue:
    """The requests of a service."""

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self.database, self._clock = database, clock

    # New ones

    def add(self, new_job: NewJob, runs: datetime, state: JobState = "waiting", reason: str = "") -> Job:
        """Write a request down, and its people; it is on the disk when this returns."""
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
            people = ((id_, one.hash, one.text) for one in new_job.people)
            database.execute_many("INSERT INTO people VALUES (?, ?, ?)", people)
            if new_job.mark is not None:
                database.execute("INSERT INTO marks VALUES (?, ?)", new_job.mark, id_)
            self.remember_key(new_job.idempotency, id_)
        return self.get(id_)

    def remember_key(self, idempotency: tuple[str, str] | None, id_: str) -> None:
        """Keep which request an idempotency key was used for, but not for ever."""
        if idempotency is not None:
            now = self._clock()
            with self.database.transaction() as database:
                database.execute("DELETE FROM answered WHERE time < ?", format_time(now - KEY_LIFETIME))
                database.execute(
                    "INSERT OR REPLACE INTO answered VALUES (?, ?, ?, ?)", *idempotency, id_, format_time(now)
                )

    # Those that are there

    def get(self, id_: str) -> Job:
        """One request; LookupError if there is none."""
        row = self.database.fetch_one("SELECT * FROM requests WHERE id = ?", id_)
        if row is None:
            raise LookupError(id_)
        return _read_job(row)

    def has(self, id_: str) -> bool:
        """Whether there is such a request."""
        return self.database.fetch_one("SELECT 1 FROM requests WHERE id = ?", id_) is not None

    def find(self, protocol: str, outside: str, caller: str | None = None) -> Job | None:
        """Return the newest job that another system calls ``outside``: one of this caller, or (None) of any."""
        row = self.database.fetch_one(
            "SELECT * FROM requests WHERE protocol = ? AND outside = ? AND (caller = ? OR ? IS NULL)"
            " ORDER BY number DESC",
            protocol, outside, caller, caller,
        )  # fmt: skip
        return None if row is None else _read_job(row)

    def find_same(self, mark: str) -> Job | None:
        """The open request about the same people, if there is one."""
        row = self.database.fetch_one(
            "SELECT r.* FROM requests r JOIN marks m ON m.request = r.id WHERE m.mark = ? ORDER BY r.number", mark
        )
        return None if row is None else _read_job(row)

    def find_answered(self, key: str) -> tuple[str, Job] | None:
        """The mark of the body, and the request, that an idempotency key was used for."""
        row = self.database.fetch_one("SELECT * FROM answered WHERE key = ?", key)
        return None if row is None else (row["mark"], self.get(row["request"]))

    def page(self, criteria: JobFilter) -> list[Job]:
        """The requests that a filter lets pass, the newest first."""
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
            found = "SELECT number FROM requests INDEXED BY requests_reference"  # no row is read that does not fit
            tests.append(f"number IN ({found} WHERE instr(lower(reference), lower(?)) > 0)")
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
        question = f"SELECT * FROM requests WHERE {' AND '.join(tests)} ORDER BY number DESC LIMIT ?"  # noqa: S608
        return [_read_job(row) for row in self.database.fetch_all(question, *values, criteria.limit)]

    def pending(self) -> list[Job]:
        """All that are to be carried out, the oldest first."""
        question = f"SELECT * FROM requests WHERE state IN ({_placeholders(OPEN_STATES)}) ORDER BY number"  # noqa: S608
        return [_read_job(row) for row in self.database.fetch_all(question, *OPEN_STATES)]

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
        """Return when the newest request came, or None if there is none."""
        row = self.database.fetch_one("SELECT received FROM requests ORDER BY number DESC LIMIT 1")
        return None if row is None else parse_time(row["received"])

    def running(self) -> list[Job]:
        """All that are being carried out, or were when something failed, the oldest first."""
        return [
            _read_job(row)
            for row in self.database.fetch_all("SELECT * FROM requests WHERE state = 'running' ORDER BY number")
        ]

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How many there are, by kind, protocol and state."""
        rows = self.database.fetch_all("SELECT kind, protocol, state, n FROM counts WHERE n > 0")
        return {(row["kind"], row["protocol"], row["state"]): row["n"] for row in rows}

    def people(self, id_: str) -> list[SealedId]:
        """The sealed people of a request that is not done."""
        rows = self.database.fetch_all("SELECT hash, sealed FROM people WHERE request = ? ORDER BY rowid", id_)
        return [SealedId(row["hash"], row["sealed"]) for row in rows]

    # What becomes of them

    def move(self, id_: str, state: JobState, reason: str = "", **outcome: Any) -> Job:
        """Give a request another state; what is over has no people any more."""
        with self.database.transaction() as database:
            before = self.get(id_)
            ended = None if state in OPEN_STATES else format_time(self._clock())
            database.execute(
                "UPDATE requests SET state = ?, reason = ?, ended = ?, outcome = ? WHERE id = ?",
                state, reason, ended, json.dumps(before.outcome | outcome), id_,
            )  # fmt: skip
            if ended is not None:
                database.execute("DELETE FROM people WHERE request = ?", id_)
                database.execute("DELETE FROM marks WHERE request = ?", id_)
            if state == "failed":  # the same key may be used to try again
                database.execute("DELETE FROM answered WHERE request = ?", id_)
        return self.get(id_)

    def restart_window(self, id_: str, runs: datetime) -> Job:
        """Let the time in which a request can be cancelled begin again."""
        with self.database.transaction() as database:
            database.execute("UPDATE requests SET runs = ? WHERE id = ?", runs.isoformat(), id_)
        return self.get(id_)

    def extend(self, id_: str, reason: str) -> Job:
        """Give a request the longer time that its regulation allows for a reason."""
        with self.database.transaction() as database:
            entry = self.get(id_)
            until = format_time(due_date(entry.since, entry.regulation, extended=True))
            database.execute("UPDATE requests SET due = ?, extension = ?, overdue = 0 WHERE id = ?", until, reason, id_)
        return self.get(id_)

    def mark_overdue(self) -> list[Job]:
        """Open requests that have become overdue since this was last asked; each is told once."""
        with self.database.transaction() as database:
            question = (
                f"SELECT * FROM requests WHERE overdue = 0 AND due < ? AND state IN ({_placeholders(OPEN_STATES)})"  # noqa: S608
            )
            found = [_read_job(row) for row in database.fetch_all(question, format_time(self._clock()), *OPEN_STATES)]
            for one in found:
                database.execute("UPDATE requests SET overdue = 1 WHERE id = ?", one.id)
        return found


def _placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _read_job(row: sqlite3.Row) -> Job:
    found = dict(row)
    for name in ("received", "since", "runs", "due", "ended"):
        found[name] = parse_time(found[name])
    found["overdue"] = bool(found["overdue"])
    found["callbacks"], found["outcome"] = tuple(json.loads(found["callbacks"])), json.loads(found["outcome"])
    return Job(**found)


# Outcomes: what is kept of a request once it is over, without whose it was.


SIMILAR_KEY = "_similar"  # for how many unknown ids a similar one is here: only callers who may erase are told
_MAX_REASON_CHARS = 500  # characters of a reason


def receipt_outcome(receipt: Receipt) -> dict[str, Any]:
    """What is kept of a vault's receipt."""
    names = ("request", "rows", "people", "skipped", "known", "clipped")
    return {name: getattr(receipt, name) for name in names} | {"seconds": round(receipt.seconds, 6)}


def erasure_outcome(people: Sequence[PersonOutcome], receipt: Receipt | None) -> dict[str, Any]:
    """What became of the people of one erasure, which may have been carried out together with others.

    ``request`` is the one that erased them: an earlier one if they had no rows any more, none if they never had any.
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
        "request": earlier[-1] if number is None and earlier else number,
        "seconds": 0.0 if receipt is None else round(receipt.seconds, 6),
        SIMILAR_KEY: sum(person.similar for person in people),
    }


def erasure_state(outcome: dict[str, Any]) -> Literal["done", "not_known"]:
    """Return the final state of an erasure: people of whom the vault knows none were not erased."""
    return "done" if outcome["erased"] or outcome["erased_earlier"] else "not_known"


def was_repeated(outcome: dict[str, Any]) -> bool:
    """Whether an erasure erased nobody because earlier requests had: its certificate is that of the last of them."""
    return not outcome.get("erased") and bool(outcome.get("erased_earlier"))


def describe_error(error: BaseException) -> str:
    """Return the reason that people read for an error: a vault's own messages name nobody, others are only logged."""
    if isinstance(error, ExpungeError):
        return str(error)[:_MAX_REASON_CHARS]
    return (isinstance(error, OSError) and error.strerror) or "an unexpected error; the log of the service has details"
