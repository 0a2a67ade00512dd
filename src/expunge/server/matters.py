"""Matters: legal holds. A person on a matter is not erased until their last matter is released.

A matter is what legal teams call a case: it has a name, a reason, people, an author, and a date for its next review. It
never ends by itself, because its end erases people: a release requires typing the matter's name and a reason, and with
``--two-person-release`` a confirmation by a second token. Requests that waited for the matter then start their
cancellation window again.

People are stored as keyed hashes of their ids. A release deletes these; the matter, the number of people it held, and
every change with its author and reason stay in its log.
"""

import json
import sqlite3
import unicodedata
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..errors import InvalidInput, OnHold, ReleaseRefused, UnknownId
from ..vault import Vault
from ..vault.sealed_ids import SealedId
from .clocks import Clock, format_time, parse_time, utc_now
from .database import Database, queue_path

MatterAction: TypeAlias = Literal[
    "opened", "people_added", "review_changed", "review_due",
    "release_requested", "release_withdrawn", "people_released", "released",
]  # fmt: skip

_MAX_TEXT_CHARS = 200  # of a name or a reason
_HASHES_PER_QUERY = 500


@dataclass(frozen=True)
class Author:
    """The author of a change: a name, and the id of the token that was used, if any."""

    name: str = ""
    token: str = ""


@dataclass(frozen=True)
class ReleasePolicy:
    """How releases work; the command line uses the policy that the service was last started with."""

    window: timedelta = timedelta(0)
    two_person: bool = False


@dataclass(frozen=True)
class Matter:
    """A matter, without the people it holds."""

    id: str
    name: str
    reason: str
    opened: datetime
    actor: str
    review: datetime | None  # when it has to be reviewed
    released: datetime | None
    people: int  # on hold now; for a released matter, at its end
    requests: int  # that wait for it
    release: "MatterLogEntry | None"  # requested with one token, to be confirmed with another

    def review_due(self, now: datetime) -> bool:
        """Return whether its review is due."""
        return self.released is None and self.review is not None and self.review <= now

    def view(self, now: datetime) -> dict[str, Any]:
        """Return the matter as JSON."""
        return {
            "id": self.id,
            "name": self.name,
            "reason": self.reason,
            "opened": format_time(self.opened),
            "actor": self.actor,
            "review": format_time(self.review),
            "review_due": self.review_due(now),
            "released": format_time(self.released),
            "people": self.people,
            "requests": self.requests,
            "release": None if self.release is None else self.release.view(),
        }


@dataclass(frozen=True)
class MatterLogEntry:
    """A change of a matter, which stays in its log."""

    number: int
    matter: str
    time: datetime
    what: MatterAction
    actor: str
    token: str
    people: int
    reason: str

    def view(self) -> dict[str, Any]:
        """Return the entry as JSON."""
        names = ("what", "actor", "token", "people", "reason")
        return {"time": format_time(self.time)} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class MatterAddition:
    """Counts from adding people to a matter."""

    matter: Matter
    people: int  # newly added
    present: int  # of all given ids: people who have rows,
    erased: int  # people who were erased,
    unknown: int  # and ids that the vault does not know
    similar: int  # unknown ids for which a similar id has rows; that one is not on hold


@dataclass(frozen=True)
class ReleasePreview:
    """The effect of a release."""

    matter: Matter
    people: int  # who will be released
    elsewhere: int  # of these, people who stay on another matter
    requests: int  # that will be carried out
    waiting: int  # requests that keep waiting, for other people or matters
    erased: int  # people who will be erased
    rows: int  # of these people
    window: timedelta  # until they are erased

    @property
    def text(self) -> str:
        """The effect in one sentence."""
        if not self.erased:
            return f"{_format_count(self.people, 'person', 'people')} will be released, and no one will be erased"
        when = f"in {_format_duration(self.window)}" if self.window else "at once"
        rows = _format_count(self.rows, "row", "rows")
        return f"{_format_count(self.erased, 'person', 'people')} ({rows}) will be erased {when}"

    def view(self) -> dict[str, Any]:
        """Return the preview as JSON."""
        names = ("text", "people", "elsewhere", "requests", "waiting", "erased", "rows")
        return {name: getattr(self, name) for name in names} | {"window_seconds": self.window.total_seconds()}


class Matters:
    """The matters of a vault, in its service's database; the service and the command line use it."""

    def __init__(
        self, vault: Vault, database: Database, clock: Clock = utc_now, policy: ReleasePolicy | None = None
    ) -> None:
        self._vault, self._database, self._clock = vault, database, clock
        self.policy = self._load_policy() if policy is None else policy
        self.on_change: Callable[[], None] = lambda: None  # called after people were put on hold or released

    def list_all(self, *, released: bool = False) -> list[Matter]:
        """Return the active matters, or the released ones, the oldest first."""
        return self._select(f"released IS {'NOT ' if released else ''}NULL")

    def get(self, id_: str) -> Matter:
        """Return a matter; raise LookupError if it does not exist."""
        for matter in self._select("id = ?", id_):
            return matter
        raise LookupError(id_)

    def find(self, name: str) -> Matter:
        """Return the matter with this name or id."""
        for matter in self._select("name = ? OR id = ?", _check_line(name, "name"), name):
            return matter
        raise UnknownId("no matter has this name; see expunge matter list")

    def log(self, id_: str) -> list[MatterLogEntry]:
        """Return the log of a matter, the oldest entry first."""
        return [
            _read_log_entry(row)
            for row in self._database.fetch_all("SELECT * FROM matter_log WHERE matter = ? ORDER BY number", id_)
        ]

    def find_by_people(self, ids: Sequence[str | int]) -> list[list[Matter]]:
        """Return the matters that each of these people is on."""
        hashes = self._hash_ids(ids)
        known = {matter.id: matter for matter in self.list_all()}
        matters = {hash_: list[Matter]() for hash_ in hashes}
        for hold in _find_holds(self._database, list(matters)):
            matters[hold["hash"]].append(known[hold["matter"]])
        return [matters[hash_] for hash_ in hashes]

    def filter_held(self, hashes: Iterable[bytes]) -> set[bytes]:
        """Return the hashes of the people who are on hold."""
        return {hold["hash"] for hold in _find_holds(self._database, list(hashes))}

    def find_for_job(self, job: str) -> list[Matter]:
        """Return the matters that a request waits for."""
        of_job = "SELECT h.matter FROM holds h JOIN people p ON p.hash = h.hash WHERE p.request = ?"
        return self._select(f"id IN ({of_job})", job)

    def hold_reasons(self) -> dict[str, str]:
        """Return the text of `describe_hold` for each request on hold, by its id."""
        names = dict[str, list[str]]()
        for row in self._database.fetch_all(
            "SELECT DISTINCT p.request, m.rowid, m.name FROM holds h JOIN people p ON p.hash = h.hash"
            " JOIN matters m ON m.id = h.matter ORDER BY m.rowid"
        ):
            names.setdefault(row["request"], []).append(row["name"])
        return {job: _describe_matter_names(held_by) for job, held_by in names.items()}

    def waiting_jobs(self, id_: str) -> list[str]:
        """Return the ids of the requests that wait for a matter, the oldest first."""
        rows = self._database.fetch_all(
            "SELECT id FROM requests WHERE id IN (SELECT p.request FROM people p JOIN holds h ON h.hash = p.hash"
            " WHERE h.matter = ?) ORDER BY number",
            id_,
        )
        return [row["id"] for row in rows]

    def totals(self) -> dict[str, int]:
        """Count the active matters, those to be reviewed, releases to be confirmed, and people on hold."""
        matters, now = self.list_all(), self._clock()
        row = self._database.fetch_one("SELECT COUNT(DISTINCT hash) AS n FROM holds")
        return {
            "open": len(matters),
            "review_due": sum(matter.review_due(now) for matter in matters),
            "release_requested": sum(matter.release is not None for matter in matters),
            "people": 0 if row is None else row["n"],
        }

    def _select(self, test: str, *values: Any) -> list[Matter]:
        people = "SELECT COUNT(*) FROM holds WHERE matter = m.id"
        requests = (
            "SELECT COUNT(DISTINCT p.request) FROM people p JOIN holds h ON h.hash = p.hash WHERE h.matter = m.id"
        )
        columns = f"m.*, ({people}) AS people, ({requests}) AS requests"
        query = f"SELECT {columns} FROM matters m WHERE {test} ORDER BY m.rowid"  # noqa: S608
        return [self._read_matter(row) for row in self._database.fetch_all(query, *values)]

    def _read_matter(self, row: sqlite3.Row) -> Matter:
        released, request = parse_time(row["released"]), None
        if row["asked"] is not None:
            request = self._database.fetch_one("SELECT * FROM matter_log WHERE number = ?", row["asked"])
        return Matter(
            id=row["id"],
            name=row["name"],
            reason=row["reason"],
            opened=parse_time(row["opened"]),
            actor=row["actor"],
            review=parse_time(row["review"]),
            released=released,
            people=row["people"] if released is None else row["held"],
            requests=row["requests"],
            release=None if request is None else _read_log_entry(request),
        )

    def open(
        self, name: str, reason: str, review: datetime | None, author: Author, ids: Sequence[str | int] = ()
    ) -> MatterAddition:
        """Open a matter with these people; more can be added later.

        Opening it again with the same name, reason and date, as a caller without an answer does, adds the people.
        """
        name, reason = _check_line(name, "name"), _check_line(reason, "reason")
        hashes = self._hash_ids(ids) if ids else []
        review = self._check_review(review)
        with self._database.transaction() as database:
            known = next(iter(self._select("name = ?", name)), None)
            if known is None:
                known = self._insert_matter(name, reason, review, author)
            elif (known.released, known.reason, known.review, known.actor) != (None, reason, review, author.name):
                raise InvalidInput("this name is or was used by another matter: choose another name")
            people = self._insert_people(database, known, hashes, author)
        return self._report_addition(known.id, ids, people)

    def add_people(self, id_: str, ids: Sequence[str | int], author: Author) -> MatterAddition:
        """Put more people on a matter. A release that waits for a second token does not cover them: withdraw it."""
        hashes = self._hash_ids(ids)
        with self._database.transaction() as database:
            matter = self._get_open(id_)
            people = self._insert_people(database, matter, hashes, author)
            if people and matter.release is not None:
                self._withdraw_request(matter, author)
        return self._report_addition(id_, ids, people)

    def set_review(self, id_: str, review: datetime | None, author: Author) -> Matter:
        """Set the date of a matter's next review; None for no review."""
        review = self._check_review(review)
        with self._database.transaction() as database:
            self._get_open(id_)
            text = format_time(review)
            database.execute("UPDATE matters SET review = ?, reminded = 0 WHERE id = ?", text, id_)
            self._append_log(id_, "review_changed", author, reason=text or "")
        return self.get(id_)

    def _insert_matter(self, name: str, reason: str, review: datetime | None, author: Author) -> Matter:
        id_ = str(uuid.uuid4())
        self._database.execute(
            "INSERT INTO matters (id, name, reason, opened, actor, review) VALUES (?, ?, ?, ?, ?, ?)",
            id_, name, reason, format_time(self._clock()), author.name, format_time(review),
        )  # fmt: skip
        self._append_log(id_, "opened", author, reason=reason)
        return self.get(id_)

    def _insert_people(self, database: Database, matter: Matter, hashes: Sequence[bytes], author: Author) -> int:
        added = sum(
            database.execute("INSERT OR IGNORE INTO holds (matter, hash) VALUES (?, ?)", matter.id, hash_)
            for hash_ in dict.fromkeys(hashes)
        )
        if added:
            self._append_log(matter.id, "people_added", author, added)
        return added

    def _report_addition(self, id_: str, ids: Sequence[str | int], people: int) -> MatterAddition:
        """Look people up after they were put on hold, and return the counts.

        The lookup takes the vault's lock, so an erasure that did not see the hold is over when this returns; every
        later erasure sees it.
        """
        self.on_change()
        holdings = self._vault.find(list(ids)) if ids else []
        states, similar = Counter(holding.state for holding in holdings), sum(holding.similar for holding in holdings)
        return MatterAddition(self.get(id_), people, states["present"], states["erased"], states["unknown"], similar)

    def preview_release(self, id_: str, ids: Sequence[str | int] = ()) -> ReleasePreview:
        """Return the effect of releasing a matter, or only these people from it."""
        matter = self._get_open(id_)
        leaving = self._select_leaving(matter, self._hash_ids(ids) if ids else None)
        rows = self._database.fetch_all(
            "SELECT p.request, h.matter, h.hash FROM people p JOIN holds h ON h.hash = p.hash WHERE p.request IN"
            " (SELECT q.request FROM people q JOIN holds g ON g.hash = q.hash WHERE g.matter = ?)",
            id_,
        )
        ends, holds = {(id_, hash_) for hash_ in leaving}, dict[str, set[tuple[str, bytes]]]()
        for row in rows:
            holds.setdefault(row["request"], set()).add((row["matter"], row["hash"]))
        freed = [job for job, job_holds in holds.items() if job_holds <= ends]
        sealed = dict[bytes, SealedId]()
        for job in freed:
            for row in self._database.fetch_all("SELECT hash, sealed FROM people WHERE request = ?", job):
                sealed[row["hash"]] = SealedId(row["hash"], row["sealed"])
        holdings = self._vault.find(self._vault.unseal(list(sealed.values()))) if sealed else []
        present = [holding for holding in holdings if holding.state == "present"]
        return ReleasePreview(
            matter=matter,
            people=len(leaving),
            elsewhere=len({hold["hash"] for hold in _find_holds(self._database, leaving) if hold["matter"] != id_}),
            requests=len(freed),
            waiting=len(holds) - len(freed),
            erased=len(present),
            rows=sum(holding.rows for holding in present),
            window=self.policy.window,
        )

    def release(self, id_: str, name: str, reason: str, author: Author, ids: Sequence[str | int] = ()) -> Matter:
        """Release a matter, or only these people from it; with a two-person policy, only request that.

        ``name`` is the matter's name, typed again, as a safeguard.
        """
        reason, hashes = _check_line(reason, "reason"), self._hash_ids(ids) if ids else None
        with self._database.transaction() as database:
            matter = self._get_open(id_)
            _check_name(matter, name)
            leaving = self._select_leaving(matter, hashes)
            if not self.policy.two_person:
                self._release_people(matter, leaving, author, reason)
            elif not author.token:
                raise ReleaseRefused("a release needs two tokens here: use the HTTP API or the matter's page")
            elif matter.release is not None:
                raise ReleaseRefused("a release was already requested: confirm it with another token, or withdraw it")
            else:
                number = self._append_log(id_, "release_requested", author, len(leaving), reason)
                database.execute("UPDATE matters SET asked = ? WHERE id = ?", number, id_)
                for hash_ in leaving:
                    database.execute("UPDATE holds SET leaving = 1 WHERE matter = ? AND hash = ?", id_, hash_)
        self.on_change()
        return self.get(id_)

    def confirm_release(self, id_: str, name: str, author: Author, is_valid: Callable[[str], bool]) -> Matter:
        """Carry out the release that another token requested, if that token is still valid."""
        with self._database.transaction():
            matter = self._get_open(id_)
            if matter.release is None:
                raise ReleaseRefused("no release of this matter was requested, or it was withdrawn")
            _check_name(matter, name)
            if not author.token or author.token == matter.release.token:
                raise ReleaseRefused("a release must be confirmed with another token than the one that requested it")
            if not is_valid(matter.release.token):
                raise ReleaseRefused("the token that requested this release was revoked or has expired: withdraw it")
            self._release_people(matter, self._select_leaving(matter, None), author, matter.release.reason)
        self.on_change()
        return self.get(id_)

    def withdraw_release(self, id_: str, author: Author) -> Matter:
        """Withdraw a release that waits for its second token."""
        with self._database.transaction():
            matter = self._get_open(id_)
            if matter.release is None:
                raise ReleaseRefused("no release of this matter was requested, or it was withdrawn")
            self._withdraw_request(matter, author)
        return self.get(id_)

    def _select_leaving(self, matter: Matter, hashes: Sequence[bytes] | None) -> list[bytes]:
        """Return the people of a release: the given ones, those of a requested release, or everyone on the matter."""
        rows = self._database.fetch_all("SELECT hash, leaving FROM holds WHERE matter = ?", matter.id)
        held = [row["hash"] for row in rows]
        if hashes is None:
            return held if matter.release is None else [row["hash"] for row in rows if row["leaving"]]
        leaving = dict.fromkeys(hashes)
        if missing := len(leaving.keys() - set(held)):
            raise UnknownId(f"{missing:,} of these {len(leaving):,} people are not on this matter; nothing was changed")
        return list(leaving)

    def _release_people(self, matter: Matter, leaving: Sequence[bytes], author: Author, reason: str) -> None:
        """Take people off a matter; with the last of its people the matter itself is released."""
        whole = len(leaving) == matter.people
        for hash_ in leaving:
            self._database.execute("DELETE FROM holds WHERE matter = ? AND hash = ?", matter.id, hash_)
        self._database.execute("UPDATE holds SET leaving = 0 WHERE matter = ?", matter.id)
        self._database.execute("UPDATE matters SET asked = NULL WHERE id = ?", matter.id)
        if whole:
            self._database.execute(
                "UPDATE matters SET released = ?, held = ? WHERE id = ?",
                format_time(self._clock()), matter.people, matter.id,
            )  # fmt: skip
        self._append_log(matter.id, "released" if whole else "people_released", author, len(leaving), reason)

    def _withdraw_request(self, matter: Matter, author: Author) -> None:
        self._database.execute("UPDATE matters SET asked = NULL WHERE id = ?", matter.id)
        self._database.execute("UPDATE holds SET leaving = 0 WHERE matter = ?", matter.id)
        self._append_log(matter.id, "release_withdrawn", author)

    def record_due_reviews(self) -> None:
        """Log that a matter's review is due, once per review."""
        query = "SELECT id FROM matters WHERE released IS NULL AND reminded = 0 AND review <= ?"
        if self._database.fetch_one(query, format_time(self._clock())) is None:
            return
        with self._database.transaction() as database:
            for row in database.fetch_all(query, format_time(self._clock())):
                database.execute("UPDATE matters SET reminded = 1 WHERE id = ?", row["id"])
                self._append_log(row["id"], "review_due", Author())

    def announce(self, send: Callable[[MatterLogEntry, Matter], None]) -> None:
        """Pass log entries that were not sent yet to ``send``, also those of the command line."""
        if self._database.fetch_one("SELECT 1 FROM matter_log WHERE sent = 0") is None:
            return
        with self._database.transaction() as database:
            for row in database.fetch_all("SELECT * FROM matter_log WHERE sent = 0 ORDER BY number"):
                database.execute("UPDATE matter_log SET sent = 1 WHERE number = ?", row["number"])
                send(_read_log_entry(row), self.get(row["matter"]))

    def _append_log(self, id_: str, action: MatterAction, author: Author, people: int = 0, reason: str = "") -> int:
        self._database.execute(
            "INSERT INTO matter_log (matter, time, what, actor, token, people, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
            id_, format_time(self._clock()), action, author.name, author.token, people, reason,
        )  # fmt: skip
        row = self._database.fetch_one("SELECT MAX(number) AS number FROM matter_log")
        assert row is not None
        return int(row["number"])

    def wipe(self) -> None:
        """Remove released people from the file; a running service does that as well."""
        with suppress(sqlite3.OperationalError):  # the service is writing
            self._database.wipe()

    def save_policy(self) -> None:
        """Store the release policy of this service, for the command line."""
        text = json.dumps({"window": self.policy.window.total_seconds(), "two_person": self.policy.two_person})
        with self._database.transaction() as database:
            database.execute("INSERT OR REPLACE INTO settings VALUES ('releases', ?)", text)

    def _load_policy(self) -> ReleasePolicy:
        row = self._database.fetch_one("SELECT value FROM settings WHERE name = 'releases'")
        if row is None:
            return ReleasePolicy()
        saved = json.loads(row["value"])
        return ReleasePolicy(timedelta(seconds=saved["window"]), saved["two_person"])

    def _get_open(self, id_: str) -> Matter:
        matter = self.get(id_)
        if matter.released is not None:
            raise ReleaseRefused("this matter was already released")
        return matter

    def _hash_ids(self, ids: Sequence[str | int]) -> list[bytes]:
        return [person.hash for person in self._vault.seal(list(ids))]

    def _check_review(self, review: datetime | None) -> datetime | None:
        if review is not None and review <= self._clock():
            raise InvalidInput("the review date must be in the future")
        return review


def describe_hold(matters: Iterable[Matter]) -> str:
    """Return the reason why a request on hold is not carried out."""
    return _describe_matter_names(matter.name for matter in matters)


def _describe_matter_names(names: Iterable[str]) -> str:
    return f"on legal hold: {', '.join(names)}"[:500]


def begin_hold(periods: Sequence[dict[str, Any]], matters: Sequence[Matter], now: datetime) -> list[dict[str, Any]]:
    """Open a hold in a request's history, or add matters to the one that is open."""
    names = [matter.name for matter in matters]
    if periods and periods[-1]["to"] is None:
        *earlier, last = periods
        return [*earlier, {**last, "matters": list(dict.fromkeys([*last["matters"], *names]))}]
    return [*periods, {"matters": names, "from": format_time(now), "to": None}]


def end_hold(periods: Sequence[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Close the open hold in a request's history."""
    *earlier, last = periods
    return [*earlier, {**last, "to": format_time(now)}]


def refuse_held_beside(vault: Path, hashes: Sequence[bytes]) -> None:
    """Raise OnHold if the service of a vault has people on hold; a vault calls this before every erasure.

    It opens its own connection: the caller has the vault's lock, and must not wait for the service's lock.
    """
    with closing(Database(queue_path(vault))) as database:
        refuse_held(database, hashes)


def refuse_held(database: Database, hashes: Sequence[bytes]) -> None:
    """Raise OnHold if some of these people are on hold. It waits for no transaction."""
    database.check_identity()
    if holds := _find_holds(database, hashes):
        count = _format_count(len({hold["hash"] for hold in holds}), "of these people is", "of these people are")
        names = ", ".join(dict.fromkeys(hold["name"] for hold in holds))[:_MAX_TEXT_CHARS]
        raise OnHold(f"{count} on legal hold: {names}; nothing was erased. Release the matter first (expunge matter)")


def _find_holds(database: Database, hashes: Sequence[bytes]) -> list[sqlite3.Row]:
    """Return the holds of these people, each with matter, name and hash."""
    holds = list[sqlite3.Row]()
    if database.fetch_one("SELECT 1 FROM holds") is None:
        return holds
    for start in range(0, len(hashes), _HASHES_PER_QUERY):
        batch = hashes[start : start + _HASHES_PER_QUERY]
        columns, places = "h.matter, h.hash, m.name", ", ".join("?" * len(batch))
        joined = f"SELECT {columns} FROM holds h JOIN matters m ON m.id = h.matter"  # noqa: S608
        holds += database.fetch_all(f"{joined} WHERE h.hash IN ({places}) ORDER BY m.rowid", *batch)
    return holds


def _check_name(matter: Matter, typed: str) -> None:
    if _normalise(typed) != matter.name:
        raise InvalidInput("the name does not match: type the matter's name exactly; nothing was changed")


def _normalise(text: str) -> str:
    """Return text with single blanks and composed letters, so that text that looks the same is the same."""
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _check_line(text: str, field: str) -> str:
    text = _normalise(text)
    if not 0 < len(text) <= _MAX_TEXT_CHARS or not text.isprintable():
        raise InvalidInput(f"the {field} of a matter must be one line of 1 to {_MAX_TEXT_CHARS} characters")
    return text


def _format_count(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"


def _format_duration(window: timedelta) -> str:
    """Format a duration in the largest unit that divides it."""
    seconds = int(window.total_seconds())
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0 and not (unit == "day" and seconds == size):  # 24 hours, as --window says it
            return _format_count(seconds // size, unit, f"{unit}s")
    return _format_count(seconds, "second", "seconds")


def _read_log_entry(row: sqlite3.Row) -> MatterLogEntry:
    return MatterLogEntry(
        row["number"], row["matter"], parse_time(row["time"]), row["what"], row["actor"], row["token"], row["people"],
        row["reason"],
    )  # fmt: skip
