"""Deliveries: what is posted to other systems, written down before it is sent and tried again until it arrives.

A receiver may get one twice, if the process ends between its answer and our note of it, and never less than once unless
all tries fail. Once sent or given up, the row of a callback has nothing but when it was made and how it ended; the
message of a webhook is kept for 30 days so that it can be sent again. No message names anybody.

Each destination (host and path) gets one delivery after the other, and no destination waits for another: at most four
are posted to at one host and 32 in all, half of which stay free for destinations that have not failed.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from urllib.parse import urlsplit

from ..errors import InvalidInput
from . import addresses
from .addresses import Answer, Unreachable, target_of
from .clocks import Clock, as_text, as_time, utc_now
from .database import Database
from .logs import Level, log, log_error

# How long after the one before each try is made (Standard Webhooks): ten tries in a little more than three days.
SCHEDULE = tuple(
    timedelta(seconds=seconds)
    for seconds in (0, 5, 300, 1800, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
)

_TICK = 1.0  # seconds between two looks at what is due
_WORKERS, _PER_HOST = 32, 4  # destinations that are posted to at the same time, in all and at one host
_RETRYING = 16  # those of them whose last try failed
_IN_A_ROW = 50  # deliveries to one destination before others get their turn
_KEPT = timedelta(days=30)  # how long it is known how one ended
_FAREWELL = 2.0  # seconds for answers that are under way when the service is stopped
_GONE = 410


class Signer(Protocol):
    """Whose deliveries are signed anew for each try."""

    def sign(self, hook: str, message: str, body: bytes) -> Mapping[str, str] | None:
        """The headers of a try; None if there is no such hook, or it is off."""

    def switch_off(self, hook: str) -> None:
        """Send nothing to a hook any more."""


@dataclass(frozen=True)
class Delivery:
    """One message to a webhook, and how far it is."""

    id: int
    hook: str
    event: str  # as its body names it
    state: str  # waiting, sent or failed
    reason: str  # why the last try failed: one of `REASONS`; empty if it did not
    answer: int | None  # the status code of the last answer
    tries: int
    made: datetime
    tried: datetime | None
    next: datetime | None  # when it is tried again


@dataclass(frozen=True)
class _Worker:
    """A thread that posts to one destination."""

    thread: threading.Thread
    host: str
    retrying: bool


class Deliveries:
    """What waits to be delivered, and the thread that sends it."""

    def __init__(
        self,
        database: Database,
        clock: Clock = utc_now,
        *,
        allowed: Collection[str] = (),
        post: Callable[..., Answer] = addresses.post,
    ) -> None:
        self._database, self._clock = database, clock
        self.allowed, self._post = allowed, post
        self.signer: Signer | None = None
        self._lock, self._busy = threading.Lock(), dict[str, _Worker]()  # by destination
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._tries = 0

    def add(self, url: str, body: bytes, headers: Mapping[str, str], *, hook: str | None = None) -> None:
        """Have a body posted; it is on the disk when this returns."""
        self._insert(url, body, headers, hook, self._clock())
        self._wake.set()

    def _insert(self, url: str, body: bytes, headers: Mapping[str, str], hook: str | None, due: datetime) -> int:
        with self._database.writing() as database:
            database.execute(
                "INSERT INTO deliveries (hook, url, body, headers, made, next) VALUES (?, ?, ?, ?, ?, ?)",
                hook, url, body, json.dumps(dict(headers)), as_text(self._clock()), as_text(due),
            )  # fmt: skip
            row = database.one("SELECT last_insert_rowid() AS id")
        assert row is not None
        number: int = row["id"]
        return number

    def counts(self, hook: str | None = None) -> dict[str, int]:
        """How many deliveries wait, were sent, or were given up: those of a hook, or all."""
        question = "SELECT state, SUM(n) AS n FROM delivery_counts WHERE hook = ? OR ? IS NULL GROUP BY state"
        rows = self._database.all(question, hook, hook)
        return {"waiting": 0, "sent": 0, "failed": 0} | {row["state"]: row["n"] for row in rows}

    def give_up(self, hook: str) -> None:
        """Send no more of what waits for a hook."""
        with self._database.writing() as database:
            database.execute(
                "UPDATE deliveries SET state = 'failed', reason = 'removed', tried = ?, tries = tries + 1, next = NULL,"
                " url = '' WHERE hook = ? AND state = 'waiting'",
                as_text(self._clock()), hook,
            )  # fmt: skip

    # Webhooks

    def of_hook(self, hook: str, *, state: str | None = None, limit: int = 50) -> list[Delivery]:
        """Return the deliveries of a hook, the newest first."""
        question = "SELECT * FROM deliveries WHERE hook = ? AND (state = ? OR ? IS NULL) ORDER BY id DESC LIMIT ?"
        return [_delivery(row) for row in self._database.all(question, hook, state, state, limit)]

    def get(self, number: int) -> Delivery:
        """Return one delivery of a webhook; LookupError if there is none."""
        row = self._database.one("SELECT * FROM deliveries WHERE id = ? AND hook IS NOT NULL", number)
        if row is None:
            raise LookupError(number)
        return _delivery(row)

    def resend(self, number: int, url: str) -> Delivery:
        """Send a message of a webhook again, with its id and a new signature, by the schedule from its beginning."""
        with self._database.writing() as database:
            database.execute(
                "UPDATE deliveries SET state = 'waiting', tries = 0, next = ?, url = ? WHERE id = ? AND hook NOT NULL",
                as_text(self._clock()), url, number,
            )  # fmt: skip
        self._wake.set()
        return self.get(number)

    def try_once(self, url: str, body: bytes, headers: Mapping[str, str], *, hook: str) -> Delivery:
        """Post a message to a webhook now, and only once."""
        number = self._insert(url, body, headers, hook, self._clock() + SCHEDULE[-1])  # the thread leaves it alone
        self._send(number)
        with self._database.writing() as database:
            row = database.one("SELECT * FROM deliveries WHERE id = ? AND state = 'waiting'", number)
            if row is not None:
                database.execute("UPDATE deliveries SET state = 'failed', next = NULL, url = '' WHERE id = ?", number)
        return self.get(number)

    # The thread

    def start(self) -> None:
        """Send from now on what is due, and what is added."""
        self._thread = threading.Thread(target=self._send_now_and_then, name="expunge-deliveries", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Begin no more; what is not sent is tried by whoever starts next."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            under_way = list(self._busy.values())
        for worker in under_way:
            worker.thread.join(_FAREWELL / len(under_way))

    def _send_now_and_then(self) -> None:
        while not self._stopped.is_set():
            try:
                self._begin()
            except Exception as error:  # the next look may do better; a thread that ends would do none
                log_error("deliveries-failed", error)
            self._wake.wait(_TICK)
            self._wake.clear()

    def send_due(self) -> int:
        """Try everything that is due, and wait for the answers; how many tries were made."""
        before = last = self._tries
        while True:
            for thread in self._begin():
                thread.join()
            if self._tries == last:
                return self._tries - before
            last = self._tries

    def _begin(self) -> list[threading.Thread]:
        """Start a thread for each destination that something is due for, unless it has one."""
        rows = self._database.all(
            "SELECT id, url, tries FROM deliveries WHERE state = 'waiting' AND next <= ? ORDER BY tries, id",
            as_text(self._clock()),
        )
        due = dict[str, list[sqlite3.Row]]()
        for row in rows:
            due.setdefault(row["url"], []).append(row)
        begun = list[threading.Thread]()
        with self._lock:
            for url, some in due.items():
                host, retrying = urlsplit(url).netloc.lower(), some[0]["tries"] > 0
                if url not in self._busy and self._has_room(host, retrying=retrying):
                    numbers = [row["id"] for row in some[:_IN_A_ROW]]
                    thread = threading.Thread(target=self._send_some, args=(url, numbers), daemon=True)
                    self._busy[url] = _Worker(thread, host, retrying)
                    begun.append(thread)
        for thread in begun:
            thread.start()
        return begun

    def _has_room(self, host: str, *, retrying: bool) -> bool:
        workers = self._busy.values()
        return (
            len(workers) < _WORKERS
            and sum(worker.host == host for worker in workers) < _PER_HOST
            and not (retrying and sum(worker.retrying for worker in workers) >= _RETRYING)
        )

    def _send_some(self, url: str, numbers: list[int]) -> None:
        """Post to one destination; one that does not answer lets others have their turn."""
        try:
            for number in numbers:
                if self._stopped.is_set() or not self._send(number):
                    break
        except Exception as error:  # a database that was closed, at the end
            if not self._stopped.is_set():
                log_error("delivery-failed", error)
        finally:
            with self._lock:
                del self._busy[url]
            self._wake.set()

    # One try

    def _send(self, number: int) -> bool:
        """Try one; whether there was an answer."""
        row = self._database.one("SELECT * FROM deliveries WHERE id = ? AND state = 'waiting'", number)
        if row is None:
            return True
        tries = row["tries"] + 1
        later = self._clock() + SCHEDULE[min(tries, len(SCHEDULE) - 1)]
        with self._database.writing() as database:  # before it is made: a disk that is full must not flood anybody
            database.execute("UPDATE deliveries SET next = ? WHERE id = ?", as_text(later), number)
        with self._lock:
            self._tries += 1
        headers = self._headers(row)
        if headers is None:
            self._end(row, "failed", None, "removed")
            return True
        answer, reason = None, ""
        try:
            answer = self._post(target_of(row["url"]), row["body"], headers, allowed=self.allowed)
            reason = "" if 200 <= answer.status < 300 else "status"
        except InvalidInput:
            reason = "private-address"
        except Unreachable as error:
            reason = str(error)
        self._note(row, answer, reason)
        return answer is not None

    def _headers(self, row: sqlite3.Row) -> dict[str, str] | None:
        """The headers of this try; a hook's are signed with the time."""
        headers: dict[str, str] = json.loads(row["headers"])
        if row["hook"] is None:
            return headers
        signed = None if self.signer is None else self.signer.sign(row["hook"], headers["webhook-id"], row["body"])
        return None if signed is None else headers | dict(signed)

    def _note(self, row: sqlite3.Row, answer: Answer | None, reason: str) -> None:
        """Write down how a try went, and when the next one is."""
        status = None if answer is None else answer.status
        tries = row["tries"] + 1
        with self._database.writing() as database:
            if not reason:
                self._end(row, "sent", status, "")
            elif status == _GONE or tries >= len(SCHEDULE):
                self._end(row, "failed", status, reason)
                if status == _GONE and row["hook"] is not None and self.signer is not None:
                    self.signer.switch_off(row["hook"])
            else:
                asked = timedelta(seconds=(answer.retry_after if answer is not None else None) or 0)
                wait = max(SCHEDULE[tries], min(asked, SCHEDULE[-1]))
                database.execute(
                    "UPDATE deliveries SET tries = ?, next = ?, answer = ?, reason = ?, tried = ? WHERE id = ?",
                    tries, as_text(self._clock() + wait), status, reason, as_text(self._clock()), row["id"],
                )  # fmt: skip
        level: Level = "warning" if reason else "info"
        log("delivery", level=level, hook=row["hook"], delivery=row["id"], tries=tries, answer=status, reason=reason)

    def _end(self, row: sqlite3.Row, state: str, status: int | None, reason: str) -> None:
        """Keep of a delivery only how it ended and, of a webhook's, its message; and that not for ever."""
        with self._database.writing() as database:
            database.execute(
                "UPDATE deliveries SET state = ?, answer = ?, reason = ?, tried = ?, tries = tries + 1, next = NULL,"
                " url = '' WHERE id = ? AND state = 'waiting'",
                state, status, reason, as_text(self._clock()), row["id"],
            )  # fmt: skip
            if row["hook"] is None:
                database.execute("UPDATE deliveries SET body = x'', headers = '{}' WHERE id = ?", row["id"])
            database.execute(
                "DELETE FROM deliveries WHERE state != 'waiting' AND made < ?", as_text(self._clock() - _KEPT)
            )


def _delivery(row: sqlite3.Row) -> Delivery:
    tried, next_ = (None if row[name] is None else as_time(row[name]) for name in ("tried", "next"))
    event = str(json.loads(row["body"]).get("type", ""))
    return Delivery(
        row["id"], row["hook"], event, row["state"], row["reason"], row["answer"], row["tries"], as_time(row["made"]),
        tried, next_,
    )  # fmt: skip
