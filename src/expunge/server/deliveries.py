"""Deliveries: what is posted to other systems, written down before it is sent and tried again until it arrives.

A receiver may get one twice, if the process ends between its answer and our note of it, and never less than once unless
all tries fail. Once sent or given up, nothing is left of it but when it was made and how it ended.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Protocol
from urllib.parse import urlsplit

from ..errors import InvalidInput
from . import addresses
from .addresses import Answer, Unreachable, target_of
from .clocks import Clock, as_text, utc_now
from .database import Database
from .logs import log

# How long after the one before each try is made (Standard Webhooks): ten tries in a little more than three days.
SCHEDULE = tuple(
    timedelta(seconds=seconds)
    for seconds in (0, 5, 300, 1800, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
)

_TICK = 1.0  # seconds between two looks at what is due
_HOSTS = 8  # posted to at the same time, each one delivery after the other
_IN_A_ROW = 50  # deliveries to one host before others get their turn
_KEPT = timedelta(days=30)  # how long it is known how one ended
_FAREWELL = 2.0  # seconds for answers that are under way when the service is stopped
_GONE = 410


class Signer(Protocol):
    """Whose deliveries are signed anew for each try."""

    def sign(self, hook: str, message: str, body: bytes) -> Mapping[str, str] | None:
        """The headers of a try; None if there is no such hook, or it is off."""

    def switch_off(self, hook: str) -> None:
        """Send nothing to a hook any more."""


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
        self._lock, self._busy = threading.Lock(), dict[str, threading.Thread]()
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._tries = 0

    def add(self, url: str, body: bytes, headers: Mapping[str, str], *, hook: str | None = None) -> None:
        """Have a body posted; it is on the disk when this returns."""
        now = as_text(self._clock())
        with self._database.writing() as database:
            database.execute(
                "INSERT INTO deliveries (hook, url, body, headers, made, next) VALUES (?, ?, ?, ?, ?, ?)",
                hook, url, body, json.dumps(dict(headers)), now, now,
            )  # fmt: skip
        self._wake.set()

    def counts(self, hook: str | None = None) -> dict[str, int]:
        """How many deliveries wait, were sent, or were given up: those of a hook, or all."""
        question = "SELECT state, COUNT(*) AS n FROM deliveries WHERE hook = ? OR ? IS NULL GROUP BY 1"
        rows = self._database.all(question, hook, hook)
        return {"waiting": 0, "sent": 0, "failed": 0} | {row["state"]: row["n"] for row in rows}

    def give_up(self, hook: str) -> None:
        """Send no more of what waits for a hook."""
        with self._database.writing() as database:
            for row in database.all("SELECT * FROM deliveries WHERE hook = ? AND state = 'waiting'", hook):
                self._end(row, "failed", None)

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
        for thread in under_way:
            thread.join(_FAREWELL / len(under_way))

    def _send_now_and_then(self) -> None:
        while not self._stopped.is_set():
            try:
                self._begin()
            except Exception as error:  # the next look may do better; a thread that ends would do none
                log("trouble", error=type(error).__name__)
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
        """Start a thread for each host that something is due for, unless it has one."""
        rows = self._database.all(
            "SELECT id, url FROM deliveries WHERE state = 'waiting' AND next <= ? ORDER BY tries, id",
            as_text(self._clock()),
        )
        due = dict[str, list[int]]()
        for row in rows:
            due.setdefault(urlsplit(row["url"]).netloc.lower(), []).append(row["id"])
        begun = list[threading.Thread]()
        with self._lock:
            for host, numbers in due.items():
                if len(self._busy) < _HOSTS and host not in self._busy:
                    thread = threading.Thread(target=self._send_some, args=(host, numbers[:_IN_A_ROW]), daemon=True)
                    self._busy[host] = thread
                    begun.append(thread)
        for thread in begun:
            thread.start()
        return begun

    def _send_some(self, host: str, numbers: list[int]) -> None:
        """Post to one host; one that does not answer lets others have their turn."""
        try:
            for number in numbers:
                if self._stopped.is_set() or not self._send(number):
                    break
        except Exception as error:  # a database that was closed, at the end
            if not self._stopped.is_set():
                log("trouble", error=type(error).__name__)
        finally:
            with self._lock:
                del self._busy[host]
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
            self._end(row, "failed", None)
            return True
        try:
            answer = self._post(target_of(row["url"]), row["body"], headers, allowed=self.allowed)
        except (InvalidInput, Unreachable):
            answer = None
        self._note(row, answer)
        return answer is not None

    def _headers(self, row: sqlite3.Row) -> dict[str, str] | None:
        """The headers of this try; a hook's are signed with the time."""
        headers: dict[str, str] = json.loads(row["headers"])
        if row["hook"] is None:
            return headers
        signed = None if self.signer is None else self.signer.sign(row["hook"], headers["webhook-id"], row["body"])
        return None if signed is None else headers | dict(signed)

    def _note(self, row: sqlite3.Row, answer: Answer | None) -> None:
        """Write down how a try went, and when the next one is."""
        status = None if answer is None else answer.status
        tries = row["tries"] + 1
        with self._database.writing() as database:
            if status is not None and 200 <= status < 300:
                self._end(row, "sent", status)
            elif status == _GONE or tries >= len(SCHEDULE):
                self._end(row, "failed", status)
                if status == _GONE and row["hook"] is not None and self.signer is not None:
                    self.signer.switch_off(row["hook"])
            else:
                asked = timedelta(seconds=(answer.retry_after if answer is not None else None) or 0)
                wait = max(SCHEDULE[tries], min(asked, SCHEDULE[-1]))
                database.execute(
                    "UPDATE deliveries SET tries = ?, next = ?, answer = ? WHERE id = ?",
                    tries, as_text(self._clock() + wait), status, row["id"],
                )  # fmt: skip
        log("delivery", hook=row["hook"], tries=tries, answer=status)

    def _end(self, row: sqlite3.Row, state: str, status: int | None) -> None:
        """Keep of a delivery only how it ended, and that not for ever."""
        with self._database.writing() as database:
            database.execute(
                "UPDATE deliveries SET state = ?, answer = ?, tries = tries + 1, next = NULL, url = '', body = x'',"
                " headers = '{}' WHERE id = ? AND state = 'waiting'",
                state, status, row["id"],
            )  # fmt: skip
            database.execute(
                "DELETE FROM deliveries WHERE state != 'waiting' AND made < ?", as_text(self._clock() - _KEPT)
            )
