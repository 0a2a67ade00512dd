"""Legal holds: people who must not be erased yet, and why."""

import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .clocks import Clock, as_text, as_time, utc_now
from .database import Database
from .queue import Entry


@dataclass(frozen=True)
class Hold:
    """A hold of one person, whose keyed hash alone is known."""

    id: str
    hash: bytes
    reason: str
    since: datetime
    until: datetime | None
    actor: str


class Holds:
    """The holds of a service. They lie beside the vault, so that a restored folder does not lose them."""

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self._database, self._clock = database, clock

    def set(self, hashes: Iterable[bytes], reason: str, until: datetime | None, actor: str) -> list[Hold]:
        """Hold people, until a time or until somebody releases them. A hold that is there just so is not made again."""
        now, wanted = self._clock(), list(hashes)
        with self._database.writing() as database:
            alike = {one.hash: one for one in self.of(wanted) if (one.reason, one.until) == (reason, until)}
            made = [alike.get(one) or Hold(str(uuid.uuid4()), one, reason, now, until, actor) for one in wanted]
            end = None if until is None else as_text(until)
            for hold in (one for one in made if one.hash not in alike):
                values = (hold.id, hold.hash, reason, as_text(now), end, actor)
                database.execute("INSERT INTO holds VALUES (?, ?, ?, ?, ?, ?)", *values)
        return made

    def release(self, id_: str) -> bool:
        """End a hold; whether there was one. That it was there stays known, whose it was does not."""
        now = as_text(self._clock())
        question = "UPDATE holds SET until = ?, hash = x'' WHERE id = ? AND (until IS NULL OR until > ?)"
        with self._database.writing() as database:
            return database.execute(question, now, id_, now) > 0

    def every(self) -> list[Hold]:
        """The holds in force."""
        return self._found("1")

    def past(self) -> list[Hold]:
        """The holds that are over; whose they were is not known any more."""
        question = "SELECT * FROM holds WHERE until <= ? ORDER BY since, rowid"
        return [_hold(row) for row in self._database.all(question, as_text(self._clock()))]

    def of(self, hashes: Sequence[bytes]) -> list[Hold]:
        """The holds of these people."""
        wanted = set(hashes)
        return [hold for hold in self.every() if hold.hash in wanted]

    def of_request(self, id_: str) -> list[Hold]:
        """The holds of the people of a request that is in the queue."""
        return self._found("hash IN (SELECT hash FROM people WHERE request = ?)", id_)

    def _found(self, test: str, *values: str) -> list[Hold]:
        question = f"SELECT * FROM holds WHERE (until IS NULL OR until > ?) AND {test} ORDER BY since, rowid"  # noqa: S608
        return [_hold(row) for row in self._database.all(question, as_text(self._clock()), *values)]

    def forget(self) -> int:
        """Forget whose the holds were whose time is over; return how many that are."""
        question = "UPDATE holds SET hash = x'' WHERE until <= ? AND hash != x''"
        return self._database.execute(question, as_text(self._clock()))


def _hold(row: sqlite3.Row) -> Hold:
    until = None if row["until"] is None else as_time(row["until"])
    return Hold(row["id"], row["hash"], row["reason"], as_time(row["since"]), until, row["actor"])


def begun(entry: Entry, holds: Sequence[Hold], now: datetime) -> list[dict[str, Any]]:
    """What a request keeps of being held: why, and from when on."""
    reasons = list(dict.fromkeys(hold.reason for hold in holds))
    return [*entry.outcome.get("held", ()), {"reasons": reasons, "from": as_text(now), "to": None}]


def over(entry: Entry, now: datetime) -> list[dict[str, Any]]:
    """The same once it is held no more."""
    *before, last = entry.outcome["held"]
    return [*before, {**last, "to": as_text(now)}]


def on_hold(holds: Sequence[Hold]) -> str:
    """Why a request for these people is not carried out yet."""
    until = [hold.until for hold in holds]
    end = "until it is released" if None in until else f"until {as_text(max(filter(None, until)))}"
    reasons = ", ".join(dict.fromkeys(hold.reason for hold in holds))
    return f"on legal hold {end}: {reasons}"[:500]
