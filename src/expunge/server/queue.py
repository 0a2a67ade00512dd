"""The queue: requests with their states and clocks, and the sealed people of those that are not done."""

import json
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

from ..vault.sealing import Sealed
from .clocks import Clock, Regulation, as_text, as_time, due, utc_now
from .database import Database

State: TypeAlias = Literal["waiting", "held", "running", "done", "not_known", "cancelled", "failed"]
STATES: tuple[State, ...] = get_args(State)
OPEN: tuple[State, ...] = ("waiting", "held", "running")
CARRIED_OUT: tuple[State, ...] = ("done", "not_known")  # the second: an erasure of people of whom the vault knows none

Kind: TypeAlias = Literal[
    "erasure", "rectification", "addition", "readmission",
    "access", "access:categories", "access:specific", "sale:opt-out", "sale:opt-in",  # asked for by DRP, and denied
]  # fmt: skip
ERASURE: Kind = "erasure"
Way: TypeAlias = Literal["api", "dashboard", "opendsr", "drp", "fides"]
KEPT = timedelta(days=90)  # how long an idempotency key is known


@dataclass(frozen=True)
class NewJob:
    """What somebody asks for, before it has a number."""

    kind: Kind
    protocol: Way
    regulation: Regulation
    reference: str = ""
    actor: str = ""
    caller: str = ""  # the id of the token or agent that asks; names are not unique
    outside: str | None = None  # what the asking system calls it
    callbacks: tuple[str, ...] = ()
    since: datetime | None = None  # when the person asked, if somebody else took the request
    people: tuple[Sealed, ...] = ()
    mark: str | None = None  # of the people, so that the same request is found while it is open
    answers: tuple[str, str] | None = None  # an idempotency key and the mark of the body, both keyed
    facts: dict[str, Any] = field(default_factory=dict)  # that an asking system wants back
    id: str | None = None  # what it will be called, if somebody has to know that before


@dataclass(frozen=True)
class Job:
    """A request. Whose it is, is not in it."""

    number: int
    id: str
    kind: str
    protocol: str
    state: State
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
        return self.state in OPEN

    @property
    def carried_out(self) -> bool:
        """Whether the vault has answered it: people were erased, or are not known here."""
        return self.state in CARRIED_OUT


@dataclass(frozen=True)
class Filter:
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

    def add(self, asked: NewJob, runs: datetime, state: State = "waiting", reason: str = "") -> Job:
        """Write a request down, and its people; it is on the disk when this returns."""
        received, id_ = self._clock(), asked.id or str(uuid.uuid4())
        since = min(received, asked.since or received)
        with self.database.writing() as database:
            database.execute(
                "INSERT INTO requests (id, kind, protocol, state, reason, regulation, received, since, runs, due,"
                " people, outside, reference, actor, caller, callbacks, outcome)"
                " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                id_, asked.kind, asked.protocol, state, reason, asked.regulation, as_text(received), as_text(since),
                runs.isoformat(), as_text(due(since, asked.regulation)), len(asked.people),
                asked.outside, asked.reference, asked.actor, asked.caller, json.dumps(asked.callbacks),
                json.dumps(asked.facts),
            )  # fmt: skip
            people = ((id_, one.hash, one.text) for one in asked.people)
            database.execute_many("INSERT INTO people VALUES (?, ?, ?)", people)
            if asked.mark is not None:
                database.execute("INSERT INTO marks VALUES (?, ?)", asked.mark, id_)
            self.remember(asked.answers, id_)
        return self.get(id_)

    def remember(self, answers: tuple[str, str] | None, id_: str) -> None:
        """Keep which request an idempotency key was used for, but not for ever."""
        if answers is not None:
            now = self._clock()
            with self.database.writing() as database:
                database.execute("DELETE FROM answered WHERE time < ?", as_text(now - KEPT))
                database.execute("INSERT OR REPLACE INTO answered VALUES (?, ?, ?, ?)", *answers, id_, as_text(now))

    # Those that are there

    def get(self, id_: str) -> Job:
        """One request; LookupError if there is none."""
        row = self.database.one("SELECT * FROM requests WHERE id = ?", id_)
        if row is None:
            raise LookupError(id_)
        return _job(row)

    def has(self, id_: str) -> bool:
        """Whether there is such a request."""
        return self.database.one("SELECT 1 FROM requests WHERE id = ?", id_) is not None

    def find(self, protocol: str, outside: str, caller: str | None = None) -> Job | None:
        """Return the newest job that another system calls ``outside``: one of this caller, or (None) of any."""
        row = self.database.one(
            "SELECT * FROM requests WHERE protocol = ? AND outside = ? AND (caller = ? OR ? IS NULL)"
            " ORDER BY number DESC",
            protocol, outside, caller, caller,
        )  # fmt: skip
        return None if row is None else _job(row)

    def same(self, mark: str) -> Job | None:
        """The open request about the same people, if there is one."""
        row = self.database.one(
            "SELECT r.* FROM requests r JOIN marks m ON m.request = r.id WHERE m.mark = ? ORDER BY r.number", mark
        )
        return None if row is None else _job(row)

    def answered(self, key: str) -> tuple[str, Job] | None:
        """The mark of the body, and the request, that an idempotency key was used for."""
        row = self.database.one("SELECT * FROM answered WHERE key = ?", key)
        return None if row is None else (row["mark"], self.get(row["request"]))

    def page(self, wanted: Filter) -> list[Job]:
        """The requests that a filter lets pass, the newest first."""
        tests, values = ["1"], list[Any]()
        if wanted.states:
            tests.append(f"state IN ({_places(wanted.states)})")
            values += wanted.states
        for name in ("kind", "protocol"):
            if (value := getattr(wanted, name)) is not None:
                tests.append(f"{name} = ?")
                values.append(value)
        if wanted.overdue is not None:
            tests.append(f"({'' if wanted.overdue else 'NOT '}(due < ? AND state IN ({_places(OPEN)})))")
            values += [as_text(self._clock()), *OPEN]
        if wanted.reference:
            found = "SELECT number FROM requests INDEXED BY requests_reference"  # no row is read that does not fit
            tests.append(f"number IN ({found} WHERE instr(lower(reference), lower(?)) > 0)")
            values.append(wanted.reference)
        if wanted.since is not None:
            tests.append("received >= ?")
            values.append(wanted.since.isoformat())
        if wanted.until is not None:
            tests.append("received < ?")
            values.append((wanted.until + timedelta(days=1)).isoformat())
        if wanted.before is not None:
            tests.append("number < ?")
            values.append(wanted.before)
        question = f"SELECT * FROM requests WHERE {' AND '.join(tests)} ORDER BY number DESC LIMIT ?"  # noqa: S608
        return [_job(row) for row in self.database.all(question, *values, wanted.limit)]

    def pending(self) -> list[Job]:
        """All that are to be carried out, the oldest first."""
        question = f"SELECT * FROM requests WHERE state IN ({_places(OPEN)}) ORDER BY number"  # noqa: S608
        return [_job(row) for row in self.database.all(question, *OPEN)]

    def nearest_due(self) -> datetime | None:
        """Return when the first open request is due, or None if none is open."""
        row = self.database.one(f"SELECT MIN(due) AS due FROM requests WHERE state IN ({_places(OPEN)})", *OPEN)  # noqa: S608
        return None if row is None or row["due"] is None else as_time(row["due"])

    def newest_time(self) -> datetime | None:
        """Return when the newest request came, or None if there is none."""
        row = self.database.one("SELECT received FROM requests ORDER BY number DESC LIMIT 1")
        return None if row is None else as_time(row["received"])

    def running(self) -> list[Job]:
        """All that are being carried out, or were when something failed, the oldest first."""
        return [
            _job(row) for row in self.database.all("SELECT * FROM requests WHERE state = 'running' ORDER BY number")
        ]

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How many there are, by kind, protocol and state."""
        rows = self.database.all("SELECT kind, protocol, state, n FROM counts WHERE n > 0")
        return {(row["kind"], row["protocol"], row["state"]): row["n"] for row in rows}

    def people(self, id_: str) -> list[Sealed]:
        """The sealed people of a request that is not done."""
        rows = self.database.all("SELECT hash, sealed FROM people WHERE request = ? ORDER BY rowid", id_)
        return [Sealed(row["hash"], row["sealed"]) for row in rows]

    # What becomes of them

    def move(self, id_: str, state: State, reason: str = "", **outcome: Any) -> Job:
        """Give a request another state; what is over has no people any more."""
        with self.database.writing() as database:
            before = self.get(id_)
            ended = None if state in OPEN else as_text(self._clock())
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
        with self.database.writing() as database:
            database.execute("UPDATE requests SET runs = ? WHERE id = ?", runs.isoformat(), id_)
        return self.get(id_)

    def extend(self, id_: str, reason: str) -> Job:
        """Give a request the longer time that its regulation allows for a reason."""
        with self.database.writing() as database:
            entry = self.get(id_)
            until = as_text(due(entry.since, entry.regulation, extended=True))
            database.execute("UPDATE requests SET due = ?, extension = ?, overdue = 0 WHERE id = ?", until, reason, id_)
        return self.get(id_)

    def late(self) -> list[Job]:
        """Open requests that have become overdue since this was last asked; each is told once."""
        with self.database.writing() as database:
            question = f"SELECT * FROM requests WHERE overdue = 0 AND due < ? AND state IN ({_places(OPEN)})"  # noqa: S608
            found = [_job(row) for row in database.all(question, as_text(self._clock()), *OPEN)]
            for one in found:
                database.execute("UPDATE requests SET overdue = 1 WHERE id = ?", one.id)
        return found


def _places(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _job(row: sqlite3.Row) -> Job:
    found = dict(row)
    for name in ("received", "since", "runs", "due"):
        found[name] = as_time(found[name])
    found["ended"] = None if found["ended"] is None else as_time(found["ended"])
    found["overdue"] = bool(found["overdue"])
    found["callbacks"], found["outcome"] = tuple(json.loads(found["callbacks"])), json.loads(found["outcome"])
    return Job(**found)
