"""Matters: legal holds. People on a matter are not erased until everybody's last matter was released.

A matter is what legal teams call a case: it has a name, a reason, people, who opened it, and a date on which somebody
has to look at it again. It never ends by itself, because its end erases people: somebody releases it, types its name
and says why, and with ``--two-person-release`` another token confirms. Requests that waited for it then start their
cancellation window again.

People are known here by the keyed hashes of their ids. A release forgets them; that the matter was there, how many
people it held, and who did what and why, stays in its log.
"""

import json
import sqlite3
import unicodedata
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..errors import InvalidInput, OnHold, ReleaseRefused, UnknownId
from ..vault import Vault
from ..vault.sealing import Sealed
from .clocks import Clock, as_text, as_time, utc_now
from .database import Database, queue_path

What: TypeAlias = Literal[
    "opened", "people_added", "review_changed", "review_due",
    "release_requested", "release_withdrawn", "people_released", "released",
]  # fmt: skip

_LONGEST = 200  # characters of a name or a reason
_BATCH = 500  # hashes in one query


@dataclass(frozen=True)
class Author:
    """Who changes a matter: a name, and the id of the token that was used, if there was one."""

    name: str = ""
    token: str = ""


@dataclass(frozen=True)
class Policy:
    """How the service treats releases; the command line reads what the service was last started with."""

    window: timedelta = timedelta(0)
    two_person: bool = False


@dataclass(frozen=True)
class Matter:
    """A matter. Whom it holds is not in it."""

    id: str
    name: str
    reason: str
    opened: datetime
    actor: str
    review: datetime | None  # when somebody has to look at it again
    released: datetime | None
    people: int  # whom it holds; once it is released, whom it held at the end
    requests: int  # that wait on it
    release: "Entry | None"  # that one token asked for and another has to confirm

    def review_due(self, now: datetime) -> bool:
        """Whether somebody has to look at it."""
        return self.released is None and self.review is not None and self.review <= now


@dataclass(frozen=True)
class Entry:
    """What somebody did to a matter, which stays in its log."""

    number: int
    matter: str
    time: datetime
    what: What
    actor: str
    token: str
    people: int
    reason: str


@dataclass(frozen=True)
class Added:
    """People who were put on a matter, and what the vault has of them."""

    matter: Matter
    people: int  # who were not on it before
    present: int  # of all who were named: who have rows,
    erased: int  # who were erased before,
    unknown: int  # and whom the vault does not know
    similar: int  # of the unknown: for how many a similar id has rows, which is not on hold


@dataclass(frozen=True)
class Release:
    """What a release will do."""

    matter: Matter
    people: int  # whom it releases
    elsewhere: int  # of these, who stay on hold for another matter
    requests: int  # that will be carried out
    waiting: int  # requests that go on waiting, for other people or matters
    erased: int  # people who will be erased
    rows: int  # of theirs
    window: timedelta  # until then

    @property
    def text(self) -> str:
        """What will happen, in one sentence."""
        if not self.erased:
            return f"{_count(self.people, 'person', 'people')} will be released, and nobody will be erased"
        when = f"in {_length(self.window)}" if self.window else "at once"
        rows = _count(self.rows, "row", "rows")
        return f"{_count(self.erased, 'person', 'people')} ({rows}) will be erased {when}"


class Matters:
    """The matters of a vault, in the database of its service, for the service and the command line alike."""

    def __init__(self, vault: Vault, database: Database, clock: Clock = utc_now, policy: Policy | None = None) -> None:
        self._vault, self._database, self._clock = vault, database, clock
        self.policy = self._saved_policy() if policy is None else policy
        self.changed: Callable[[], None] = lambda: None  # called when people were put on hold or released

    # Which there are

    def all(self, *, released: bool = False) -> list[Matter]:
        """Return the matters in force, or those that were released, in the order in which they were opened."""
        return self._select(f"released IS {'NOT ' if released else ''}NULL")

    def get(self, id_: str) -> Matter:
        """Return one matter; LookupError if there is none."""
        for found in self._select("id = ?", id_):
            return found
        raise LookupError(id_)

    def find(self, name: str) -> Matter:
        """Return the matter with this name or id."""
        for found in self._select("name = ? OR id = ?", _line(name, "name"), name):
            return found
        raise UnknownId("there is no matter of this name; expunge matter list tells which there are")

    def log(self, id_: str) -> list[Entry]:
        """Return what was done to a matter, the oldest first."""
        return [
            _entry(row) for row in self._database.all("SELECT * FROM matter_log WHERE matter = ? ORDER BY number", id_)
        ]

    def look_up(self, ids: Sequence[str | int]) -> list[list[Matter]]:
        """Return the matters that each of these people is on."""
        hashes = self._hashes(ids)
        known = {matter.id: matter for matter in self.all()}
        found = {hash_: list[Matter]() for hash_ in hashes}
        for hold in _find_holds(self._database, list(found)):
            found[hold["hash"]].append(known[hold["matter"]])
        return [found[hash_] for hash_ in hashes]

    def held(self, hashes: Iterable[bytes]) -> set[bytes]:
        """Return those of these people who are on hold."""
        return {hold["hash"] for hold in _find_holds(self._database, list(hashes))}

    def holding(self, job: str) -> list[Matter]:
        """Return the matters that a request waits for."""
        of_job = "SELECT h.matter FROM holds h JOIN people p ON p.hash = h.hash WHERE p.request = ?"
        return self._select(f"id IN ({of_job})", job)

    def reasons(self) -> dict[str, str]:
        """Return, by the id of each request that matters keep waiting, what `describe_hold` says of it."""
        names = dict[str, list[str]]()
        for row in self._database.all(
            "SELECT DISTINCT p.request, m.rowid, m.name FROM holds h JOIN people p ON p.hash = h.hash"
            " JOIN matters m ON m.id = h.matter ORDER BY m.rowid"
        ):
            names.setdefault(row["request"], []).append(row["name"])
        return {job: _describe_names(found) for job, found in names.items()}

    def waiting(self, id_: str) -> list[str]:
        """Return the ids of the requests that wait on a matter, the oldest first."""
        rows = self._database.all(
            "SELECT id FROM requests WHERE id IN (SELECT p.request FROM people p JOIN holds h ON h.hash = p.hash"
            " WHERE h.matter = ?) ORDER BY number",
            id_,
        )
        return [row["id"] for row in rows]

    def totals(self) -> dict[str, int]:
        """Count the matters in force, those to be reviewed, releases to be confirmed, and people on hold."""
        found, now = self.all(), self._clock()
        row = self._database.one("SELECT COUNT(DISTINCT hash) AS n FROM holds")
        return {
            "open": len(found),
            "review_due": sum(matter.review_due(now) for matter in found),
            "release_requested": sum(matter.release is not None for matter in found),
            "people": 0 if row is None else row["n"],
        }

    def _select(self, test: str, *values: Any) -> list[Matter]:
        people = "SELECT COUNT(*) FROM holds WHERE matter = m.id"
        requests = (
            "SELECT COUNT(DISTINCT p.request) FROM people p JOIN holds h ON h.hash = p.hash WHERE h.matter = m.id"
        )
        columns = f"m.*, ({people}) AS people, ({requests}) AS requests"
        question = f"SELECT {columns} FROM matters m WHERE {test} ORDER BY m.rowid"  # noqa: S608
        return [self._matter(row) for row in self._database.all(question, *values)]

    def _matter(self, row: sqlite3.Row) -> Matter:
        released = None if row["released"] is None else as_time(row["released"])
        asked = None
        if row["asked"] is not None:
            asked = self._database.one("SELECT * FROM matter_log WHERE number = ?", row["asked"])
        return Matter(
            row["id"],
            row["name"],
            row["reason"],
            as_time(row["opened"]),
            row["actor"],
            None if row["review"] is None else as_time(row["review"]),
            released,
            row["people"] if released is None else row["held"],
            row["requests"],
            None if asked is None else _entry(asked),
        )

    # Putting people on hold

    def open(
        self, name: str, reason: str, review: datetime | None, author: Author, ids: Sequence[str | int] = ()
    ) -> Added:
        """Open a matter, for these people and for others who are added later.

        Opening it twice with the same name, reason and date, as a caller does that got no answer, adds to it.
        """
        name, reason = _line(name, "name"), _line(reason, "reason")
        hashes = self._hashes(ids) if ids else []
        review = self._future(review)
        with self._database.writing() as database:
            known = next(iter(self._select("name = ?", name)), None)
            if known is None:
                known = self._insert(name, reason, review, author)
            elif (known.released, known.reason, known.review, known.actor) != (None, reason, review, author.name):
                raise InvalidInput("there is a matter of this name already, or there was one: choose another name")
            people = self._insert_people(database, known, hashes, author)
        return self._added(known.id, ids, people)

    def add_people(self, id_: str, ids: Sequence[str | int], author: Author) -> Added:
        """Put more people on a matter. A release that waits for a second token is withdrawn: it did not know them."""
        hashes = self._hashes(ids)
        with self._database.writing() as database:
            matter = self._in_force(id_)
            people = self._insert_people(database, matter, hashes, author)
            if people and matter.release is not None:
                self._withdraw(matter, author)
        return self._added(id_, ids, people)

    def set_review(self, id_: str, review: datetime | None, author: Author) -> Matter:
        """Say when somebody has to look at a matter again; None: nobody has to."""
        review = self._future(review)
        with self._database.writing() as database:
            self._in_force(id_)
            text = None if review is None else as_text(review)
            database.execute("UPDATE matters SET review = ?, reminded = 0 WHERE id = ?", text, id_)
            self._write(id_, "review_changed", author, reason=text or "")
        return self.get(id_)

    def _insert(self, name: str, reason: str, review: datetime | None, author: Author) -> Matter:
        id_, date = str(uuid.uuid4()), None if review is None else as_text(review)
        self._database.execute(
            "INSERT INTO matters (id, name, reason, opened, actor, review) VALUES (?, ?, ?, ?, ?, ?)",
            id_, name, reason, as_text(self._clock()), author.name, date,
        )  # fmt: skip
        self._write(id_, "opened", author, reason=reason)
        return self.get(id_)

    def _insert_people(self, database: Database, matter: Matter, hashes: Sequence[bytes], author: Author) -> int:
        added = sum(
            database.execute("INSERT OR IGNORE INTO holds (matter, hash) VALUES (?, ?)", matter.id, hash_)
            for hash_ in dict.fromkeys(hashes)
        )
        if added:
            self._write(matter.id, "people_added", author, added)
        return added

    def _added(self, id_: str, ids: Sequence[str | int], people: int) -> Added:
        """Look people up once they are on hold.

        That takes the vault's lock, so an erasure that did not see the hold is over when this returns; each that comes
        later sees it.
        """
        self.changed()
        found = self._vault.holds(list(ids)) if ids else []
        states, similar = Counter(holding.state for holding in found), sum(holding.similar for holding in found)
        return Added(self.get(id_), people, states["present"], states["erased"], states["unknown"], similar)

    # Releasing

    def plan_release(self, id_: str, ids: Sequence[str | int] = ()) -> Release:
        """Say what the release of a matter will do, or that of these people alone."""
        matter = self._in_force(id_)
        leaving = self._leaving(matter, self._hashes(ids) if ids else None)
        rows = self._database.all(
            "SELECT p.request, h.matter, h.hash FROM people p JOIN holds h ON h.hash = p.hash WHERE p.request IN"
            " (SELECT q.request FROM people q JOIN holds g ON g.hash = q.hash WHERE g.matter = ?)",
            id_,
        )
        ends, holds = {(id_, hash_) for hash_ in leaving}, dict[str, set[tuple[str, bytes]]]()
        for row in rows:
            holds.setdefault(row["request"], set()).add((row["matter"], row["hash"]))
        freed = [job for job, those in holds.items() if those <= ends]
        sealed = dict[bytes, Sealed]()
        for job in freed:
            for row in self._database.all("SELECT hash, sealed FROM people WHERE request = ?", job):
                sealed[row["hash"]] = Sealed(row["hash"], row["sealed"])
        found = self._vault.holds(self._vault.unseal(list(sealed.values()))) if sealed else []
        present = [holding for holding in found if holding.state == "present"]
        return Release(
            matter,
            len(leaving),
            len({hold["hash"] for hold in _find_holds(self._database, leaving) if hold["matter"] != id_}),
            len(freed),
            len(holds) - len(freed),
            len(present),
            sum(holding.rows for holding in present),
            self.policy.window,
        )

    def release(self, id_: str, name: str, reason: str, author: Author, ids: Sequence[str | int] = ()) -> Matter:
        """Release a matter, or only these people from it, or ask for that if a second token has to confirm it.

        Whoever releases types the matter's name and says why.
        """
        reason, hashes = _line(reason, "reason"), self._hashes(ids) if ids else None
        with self._database.writing() as database:
            matter = self._in_force(id_)
            _check_name(matter, name)
            leaving = self._leaving(matter, hashes)
            if not self.policy.two_person:
                self._end(matter, leaving, author, reason)
            elif not author.token:
                raise ReleaseRefused("a release needs two tokens here: release the matter over HTTP or on its page")
            elif matter.release is not None:
                raise ReleaseRefused("a release was asked for already: another token confirms or withdraws it")
            else:
                number = self._write(id_, "release_requested", author, len(leaving), reason)
                database.execute("UPDATE matters SET asked = ? WHERE id = ?", number, id_)
                for hash_ in leaving:
                    database.execute("UPDATE holds SET leaving = 1 WHERE matter = ? AND hash = ?", id_, hash_)
        self.changed()
        return self.get(id_)

    def confirm_release(self, id_: str, name: str, author: Author, valid: Callable[[str], bool]) -> Matter:
        """Carry out the release that another token asked for, if that token is still ``valid``."""
        with self._database.writing():
            matter = self._in_force(id_)
            if matter.release is None:
                raise ReleaseRefused("nobody asked for a release of this matter, or it was withdrawn")
            _check_name(matter, name)
            if not author.token or author.token == matter.release.token:
                raise ReleaseRefused("another token has to confirm a release than the one that asked for it")
            if not valid(matter.release.token):
                raise ReleaseRefused("the token that asked for this release was revoked or has expired: withdraw it")
            self._end(matter, self._leaving(matter, None), author, matter.release.reason)
        self.changed()
        return self.get(id_)

    def withdraw_release(self, id_: str, author: Author) -> Matter:
        """Forget a release that waits for its second token."""
        with self._database.writing():
            matter = self._in_force(id_)
            if matter.release is None:
                raise ReleaseRefused("nobody asked for a release of this matter, or it was withdrawn")
            self._withdraw(matter, author)
        return self.get(id_)

    def _leaving(self, matter: Matter, hashes: Sequence[bytes] | None) -> list[bytes]:
        """Return the people whom a release is about: those named, those of a release that waits, or everybody."""
        rows = self._database.all("SELECT hash, leaving FROM holds WHERE matter = ?", matter.id)
        on_it = [row["hash"] for row in rows]
        if hashes is None:
            return on_it if matter.release is None else [row["hash"] for row in rows if row["leaving"]]
        wanted = dict.fromkeys(hashes)
        if missing := len(wanted.keys() - set(on_it)):
            raise UnknownId(f"{missing:,} of these {len(wanted):,} people are not on this matter; nothing was changed")
        return list(wanted)

    def _end(self, matter: Matter, leaving: Sequence[bytes], author: Author, reason: str) -> None:
        """Take people off a matter, which is released with the last of them."""
        whole = len(leaving) == matter.people
        for hash_ in leaving:
            self._database.execute("DELETE FROM holds WHERE matter = ? AND hash = ?", matter.id, hash_)
        self._database.execute("UPDATE holds SET leaving = 0 WHERE matter = ?", matter.id)
        self._database.execute("UPDATE matters SET asked = NULL WHERE id = ?", matter.id)
        if whole:
            self._database.execute(
                "UPDATE matters SET released = ?, held = ? WHERE id = ?",
                as_text(self._clock()), matter.people, matter.id,
            )  # fmt: skip
        self._write(matter.id, "released" if whole else "people_released", author, len(leaving), reason)

    def _withdraw(self, matter: Matter, author: Author) -> None:
        self._database.execute("UPDATE matters SET asked = NULL WHERE id = ?", matter.id)
        self._database.execute("UPDATE holds SET leaving = 0 WHERE matter = ?", matter.id)
        self._write(matter.id, "release_withdrawn", author)

    # The log

    def remind(self) -> None:
        """Write down that a matter's review is due, once."""
        question = "SELECT id FROM matters WHERE released IS NULL AND reminded = 0 AND review <= ?"
        if self._database.one(question, as_text(self._clock())) is None:
            return
        with self._database.writing() as database:
            for row in database.all(question, as_text(self._clock())):
                database.execute("UPDATE matters SET reminded = 1 WHERE id = ?", row["id"])
                self._write(row["id"], "review_due", Author())

    def announce(self, send: Callable[[Entry, Matter], None]) -> None:
        """Send what is in the log and was not sent yet, also what the command line wrote."""
        if self._database.one("SELECT 1 FROM matter_log WHERE sent = 0") is None:
            return
        with self._database.writing() as database:
            for row in database.all("SELECT * FROM matter_log WHERE sent = 0 ORDER BY number"):
                database.execute("UPDATE matter_log SET sent = 1 WHERE number = ?", row["number"])
                send(_entry(row), self.get(row["matter"]))

    def _write(self, id_: str, what: What, author: Author, people: int = 0, reason: str = "") -> int:
        self._database.execute(
            "INSERT INTO matter_log (matter, time, what, actor, token, people, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
            id_, as_text(self._clock()), what, author.name, author.token, people, reason,
        )  # fmt: skip
        row = self._database.one("SELECT MAX(number) AS number FROM matter_log")
        assert row is not None
        return int(row["number"])

    # What they share

    def wipe(self) -> None:
        """Remove from the file whom a release forgot; a service that is running does it in any case."""
        with suppress(sqlite3.OperationalError):  # it is writing just now
            self._database.wipe()

    def save_policy(self) -> None:
        """Keep how this service treats releases, for the command line."""
        text = json.dumps({"window": self.policy.window.total_seconds(), "two_person": self.policy.two_person})
        with self._database.writing() as database:
            database.execute("INSERT OR REPLACE INTO settings VALUES ('releases', ?)", text)

    def _saved_policy(self) -> Policy:
        row = self._database.one("SELECT value FROM settings WHERE name = 'releases'")
        if row is None:
            return Policy()
        saved = json.loads(row["value"])
        return Policy(timedelta(seconds=saved["window"]), saved["two_person"])

    def _in_force(self, id_: str) -> Matter:
        matter = self.get(id_)
        if matter.released is not None:
            raise ReleaseRefused("this matter was released already")
        return matter

    def _hashes(self, ids: Sequence[str | int]) -> list[bytes]:
        return [one.hash for one in self._vault.seal(list(ids))]

    def _future(self, review: datetime | None) -> datetime | None:
        if review is not None and review <= self._clock():
            raise InvalidInput("the review date must be in the future")
        return review


# Requests that wait on matters


def describe_hold(matters: Iterable[Matter]) -> str:
    """Say why a request is not carried out yet."""
    return _describe_names(matter.name for matter in matters)


def _describe_names(names: Iterable[str]) -> str:
    return f"on legal hold: {', '.join(names)}"[:500]


def begin_hold(before: Sequence[dict[str, Any]], matters: Sequence[Matter], now: datetime) -> list[dict[str, Any]]:
    """Return the times that a request was on hold, with one that begins now or, if one goes on, its new matters."""
    names = [matter.name for matter in matters]
    if before and before[-1]["to"] is None:
        *earlier, last = before
        return [*earlier, {**last, "matters": list(dict.fromkeys([*last["matters"], *names]))}]
    return [*before, {"matters": names, "from": as_text(now), "to": None}]


def end_hold(before: Sequence[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Return the times that a request was on hold, of which the last one ends now."""
    *earlier, last = before
    return [*earlier, {**last, "to": as_text(now)}]


def refuse_held(vault: Path, hashes: Sequence[bytes]) -> None:
    """Refuse to erase people whom the service beside a vault has on hold; a vault asks this before every erasure.

    It opens a connection of its own: the caller has the vault's lock, and must not wait for the service's.
    """
    database = Database(queue_path(vault))
    try:
        found = _find_holds(database, hashes)
    finally:
        database.close()
    if found:
        count = _count(len({hold["hash"] for hold in found}), "of these people is", "of these people are")
        names = ", ".join(dict.fromkeys(hold["name"] for hold in found))[:_LONGEST]
        raise OnHold(f"{count} on legal hold: {names}; nothing was erased. Release the matter first (expunge matter)")


def _find_holds(database: Database, hashes: Sequence[bytes]) -> list[sqlite3.Row]:
    """Return the holds of these people: matter, name and hash of each."""
    found = list[sqlite3.Row]()
    if database.one("SELECT 1 FROM holds") is None:
        return found
    for start in range(0, len(hashes), _BATCH):
        some = hashes[start : start + _BATCH]
        columns, places = "h.matter, h.hash, m.name", ", ".join("?" * len(some))
        joined = f"SELECT {columns} FROM holds h JOIN matters m ON m.id = h.matter"  # noqa: S608
        found += database.all(f"{joined} WHERE h.hash IN ({places}) ORDER BY m.rowid", *some)
    return found


# Texts


def _check_name(matter: Matter, typed: str) -> None:
    if _normalise(typed) != matter.name:
        raise InvalidInput("this is not the matter's name: type it exactly as it is written; nothing was changed")


def _normalise(text: str) -> str:
    """Return text with single blanks and composed letters: what looks alike on a page is alike."""
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _line(text: str, what: str) -> str:
    text = _normalise(text)
    if not 0 < len(text) <= _LONGEST or not text.isprintable():
        raise InvalidInput(f"the {what} of a matter must be one line of 1 to {_LONGEST} characters")
    return text


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _length(window: timedelta) -> str:
    """Return a length of time in its largest unit that divides it."""
    seconds = int(window.total_seconds())
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0 and not (unit == "day" and seconds == size):  # 24 hours, as --window says it
            return _count(seconds // size, unit, f"{unit}s")
    return _count(seconds, "second", "seconds")


def _entry(row: sqlite3.Row) -> Entry:
    return Entry(
        row["number"], row["matter"], as_time(row["time"]), row["what"], row["actor"], row["token"], row["people"],
        row["reason"],
    )  # fmt: skip
