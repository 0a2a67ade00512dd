"""The queue: requests with their states and clocks, and the sealed people of those that are not done."""

import json
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

from ..vault.sealing import Sealed
from .clocks import Clock, Regulation, as_text, as_time, due, utc_now
from .database import Database

State: TypeAlias = Literal["waiting", "held", "running", "done", "cancelled", "failed"]
STATES: tuple[State, ...] = get_args(State)
OPEN: tuple[State, ...] = ("waiting", "held", "running")

Kind: TypeAlias = Literal[
    "erasure", "rectification", "addition", "readmission",
    "access", "access:categories", "access:specific", "sale:opt-out", "sale:opt-in",  # asked for by DRP, and denied
]  # fmt: skip
ERASURE: Kind = "erasure"
Way: TypeAlias = Literal["api", "dashboard", "opendsr", "drp", "fides"]
KEPT = timedelta(days=90)  # how long an idempotency key is known


@dataclass(frozen=True)
class Asked:
    """What somebody asks for, before it has a number."""

    kind: Kind
    protocol: Way
    regulation: Regulation
    reference: str = ""
    actor: str = ""
    outside: str | None = None  # what the asking system calls it
    callbacks: tuple[str, ...] = ()
    since: datetime | None = None  # when the person asked, if somebody else took the request
    people: tuple[Sealed, ...] = ()
    mark: str | None = None  # of the people, so that the same request is found while it is open
    answers: tuple[str, str] | None = None  # an idempotency key and the mark of the body, both keyed
    facts: dict[str, Any] = field(default_factory=dict)  # that an asking system wants back


@dataclass(frozen=True)
class Entry:
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
    callbacks: tuple[str, ...]
    outcome: dict[str, Any]

    @property
    def open(self) -> bool:
        """Whether it is still to be carried out."""
        return self.state in OPEN


@dataclass(frozen=True)
class Filter:
    """Which requests are wanted, the newest first."""

    states: Sequence[str] = ()
    kind: str | None = None
    protocol: str | None = None
    overdue: bool | None = None
    before: int | None = None  # numbers below this
    limit: int = 50


class Queue:
    """The requests of a service."""

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self.database, self._clock = database, clock

    # New ones

    def add(self, asked: Asked, runs: datetime, state: State = "waiting", reason: str = "") -> Entry:
        """Write a request down, and its people; it is on the disk when this returns."""
        received, id_ = self._clock(), str(uuid.uuid4())
        since = min(received, asked.since or received)
        with self.database.writing() as database:
            database.execute(
                "INSERT INTO requests (id, kind, protocol, state, reason, regulation, received, since, runs, due,"
                " people, mark, outside, reference, actor, callbacks, outcome)"
                " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                id_, asked.kind, asked.protocol, state, reason, asked.regulation, as_text(received), as_text(since),
                runs.isoformat(), as_text(due(since, asked.regulation)), len(asked.people), asked.mark,
                asked.outside, asked.reference, asked.actor, json.dumps(asked.callbacks), json.dumps(asked.facts),
            )  # fmt: skip
            for one in asked.people:
                database.execute("INSERT INTO people VALUES (?, ?, ?)", id_, one.hash, one.text)
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

    def get(self, id_: str) -> Entry:
        """One request; LookupError if there is none."""
        row = self.database.one("SELECT * FROM requests WHERE id = ?", id_)
        if row is None:
            raise LookupError(id_)
        return _entry(row)

    def has(self, id_: str) -> bool:
        """Whether there is such a request."""
        return self.database.one("SELECT 1 FROM requests WHERE id = ?", id_) is not None

    def find(self, protocol: str, outside: str) -> Entry | None:
        """The newest request that another system calls so."""
        row = self.database.one(
            "SELECT * FROM requests WHERE protocol = ? AND outside = ? ORDER BY number DESC", protocol, outside
        )
        return None if row is None else _entry(row)

    def same(self, mark: str) -> Entry | None:
        """The open request about the same people, if there is one."""
        question = f"SELECT * FROM requests WHERE mark = ? AND state IN ({_places(OPEN)}) ORDER BY number"  # noqa: S608
        row = self.database.one(question, mark, *OPEN)
        return None if row is None else _entry(row)

    def answered(self, key: str) -> tuple[str, Entry] | None:
        """The mark of the body, and the request, that an idempotency key was used for."""
        row = self.database.one("SELECT * FROM answered WHERE key = ?", key)
        return None if row is None else (row["mark"], self.get(row["request"]))

    def page(self, wanted: Filter) -> list[Entry]:
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
        if wanted.before is not None:
            tests.append("number < ?")
            values.append(wanted.before)
        question = f"SELECT * FROM requests WHERE {' AND '.join(tests)} ORDER BY number DESC LIMIT ?"  # noqa: S608
        return [_entry(row) for row in self.database.all(question, *values, wanted.limit)]

    def pending(self) -> list[Entry]:
        """All that are to be carried out, the oldest first."""
        question = f"SELECT * FROM requests WHERE state IN ({_places(OPEN)}) ORDER BY number"  # noqa: S608
        return [_entry(row) for row in self.database.all(question, *OPEN)]

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How many there are, by kind, protocol and state."""
        rows = self.database.all("SELECT kind, protocol, state, COUNT(*) AS n FROM requests GROUP BY 1, 2, 3")
        return {(row["kind"], row["protocol"], row["state"]): row["n"] for row in rows}

    def people(self, id_: str) -> list[Sealed]:
        """The sealed people of a request that is not done."""
        rows = self.database.all("SELECT hash, sealed FROM people WHERE request = ?", id_)
        return [Sealed(row["hash"], row["sealed"]) for row in rows]

    # What becomes of them

    def move(self, id_: str, state: State, reason: str = "", **outcome: Any) -> Entry:
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
                database.execute("UPDATE requests SET mark = NULL WHERE id = ?", id_)
            if state == "failed":  # the same key may be used to try again
                database.execute("DELETE FROM answered WHERE request = ?", id_)
        return self.get(id_)

    def extend(self, id_: str, reason: str) -> Entry:
        """Give a request the longer time that its regulation allows for a reason."""
        with self.database.writing() as database:
            entry = self.get(id_)
            until = as_text(due(entry.since, entry.regulation, extended=True))
            database.execute("UPDATE requests SET due = ?, extension = ?, overdue = 0 WHERE id = ?", until, reason, id_)
        return self.get(id_)

    def late(self) -> list[Entry]:
        """Open requests that have become overdue since this was last asked; each is told once."""
        with self.database.writing() as database:
            question = f"SELECT * FROM requests WHERE overdue = 0 AND due < ? AND state IN ({_places(OPEN)})"  # noqa: S608
            found = [_entry(row) for row in database.all(question, as_text(self._clock()), *OPEN)]
            for one in found:
                database.execute("UPDATE requests SET overdue = 1 WHERE id = ?", one.id)
        return found


def _places(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _entry(row: sqlite3.Row) -> Entry:
    found = dict(row)
    del found["mark"]
    for name in ("received", "since", "runs", "due"):
        found[name] = as_time(found[name])
    found["ended"] = None if found["ended"] is None else as_time(found["ended"])
    found["overdue"] = bool(found["overdue"])
    found["callbacks"], found["outcome"] = tuple(json.loads(found["callbacks"])), json.loads(found["outcome"])
    return Entry(**found)
