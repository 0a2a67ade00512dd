"""Renewals: the service lets the vault choose its settings again, so that erasures become complete.

An erasure or correction of people whose rows the plan had looked at is complete with the next renewal (`Vault.replan`).
One is due a while after the first of them, when they are many, and at half of the earliest deadline at the latest.

The plan is made in a process of its own, with low priority and without the vault's lock, so predictions and requests go
on. Only the learning waits for the lock. If a request changed rows that the plan had looked at, the renewal starts
again; its last attempt holds back the requests of this service. A failed one is announced by a log line, a metric and
the event ``renewal.failed``, and is retried later and later; it never keeps a request from being carried out.
"""

import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from sqlite3 import Row
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import ExpungeError, InvalidSetting, Unfinished, VaultBusy
from ..vault import PreparedPlan, Receipt, Status, Vault
from .background import BackgroundProcess, ReportProgress, ServiceStopping, VaultChanged, count_steps, run_work
from .clocks import due_date, format_time, parse_time
from .logs import log, log_error
from .queue import describe_error

if TYPE_CHECKING:
    from .service import Service

RenewalSource: TypeAlias = Literal["schedule", "api"]
RenewalState: TypeAlias = Literal["running", "done", "failed", "interrupted"]

ACTOR = "service"  # in the ledger, of a renewal that nobody asked for
_MAX_STORED = 1000  # in the database
_FREE_ATTEMPTS = 3  # while requests go on
_RETRY_DELAYS = [timedelta(minutes=minutes) for minutes in (1, 5, 30, 120, 360)]  # after so many failures in a row


@dataclass
class Renewal:
    """A renewal. It is running, done, failed, or was interrupted because the service ended."""

    source: RenewalSource
    actor: str  # the name of the caller who started it
    started: datetime
    caller: str = ""  # the id of the caller's token
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    state: RenewalState = "running"
    ended: datetime | None = None
    seconds: float | None = None
    restarts: int = 0  # because a request changed rows that the plan had looked at
    request: int | None = None  # of the vault, once it is done
    notes: list[str] = field(default_factory=list)  # what was planned, and a warning if it is worse
    reason: str = ""  # why it failed
    step: str = ""
    done: int = 0
    of: int = 0

    def view(self) -> dict[str, Any]:
        """Return the renewal as JSON."""
        return vars(self) | {"started": format_time(self.started), "ended": format_time(self.ended)}

    def end(self, state: RenewalState, now: datetime, reason: str = "") -> None:
        """Record how it ended."""
        self.state, self.ended, self.reason = state, now, reason
        self.seconds = (now - self.started).total_seconds()


PrepareFunction: TypeAlias = Callable[[Path, ReportProgress], PreparedPlan]


class Renewals:
    """The renewals of a service, one at a time."""

    def __init__(self, service: "Service") -> None:
        self._service, self._database = service, service.database
        self.prepare: PrepareFunction = self._prepare_in_process
        self.listeners = list[Callable[[Renewal], None]]()  # called with each that ended
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._running: Renewal | None = None
        self._thread: threading.Thread | None = None
        self._process = BackgroundProcess(__name__)
        self._status: tuple[int, Status] | None = None  # of the vault as of its newest request
        self._oldest: tuple[int, int] = 0, 0  # the request that chose the settings, and how far the ledger was searched

    def start(self, source: RenewalSource, *, actor: str = "", caller: str = "") -> Renewal:
        """Start a renewal and return it; if one is running, return that."""
        if not self._read_status().renewable:
            raise InvalidSetting(
                "the settings of this vault were given, or planned on a separate table: there is nothing to renew, "
                "and every erasure is complete at once"
            )
        with self._lock:
            if self._running is not None:
                return self._running
            renewal = Renewal(source, actor, self._service.clock(), caller)
            self._store(renewal)
            self._running = renewal
            self._thread = threading.Thread(target=self._run, args=(renewal,), name="expunge-renew", daemon=True)
            self._thread.start()
        return renewal

    def _run(self, renewal: Renewal) -> None:
        clock = self._service.clock
        try:
            receipt = self._renew(renewal)
            renewal.request, renewal.notes = receipt.request, list(receipt.notes)
            renewal.end("done", clock())
        except ServiceStopping:
            renewal.end("interrupted", clock(), "the service was stopped")
        except Exception as error:
            if not isinstance(error, ExpungeError):
                log_error("renewal-broken", error)
            renewal.end("failed", clock(), describe_error(error))
        try:
            self._announce(renewal)
            self._service.complete_settled()
        except Exception as error:  # a full disk, or the service was stopped: it is marked at the next start
            log_error("renewal-not-stored", error)
        finally:
            with self._lock:
                self._running = None

    def _renew(self, renewal: Renewal) -> Receipt:
        for _ in range(_FREE_ATTEMPTS):
            try:
                return self._commit(self._choose(renewal), renewal)
            except (VaultChanged, VaultBusy):
                renewal.restarts += 1
        with self._service.hold_requests():
            try:
                return self._commit(self._choose(renewal), renewal)
            except VaultChanged:
                raise VaultBusy("requests of other processes kept arriving") from None

    def _choose(self, renewal: Renewal) -> PreparedPlan:
        def report(step: str, done: int, of: int) -> None:
            renewal.step, renewal.done, renewal.of = step, done, of

        if self._stop.is_set():
            raise ServiceStopping
        return self.prepare(self._service.vault.places.vault, report)

    def _commit(self, prepared: PreparedPlan, renewal: Renewal) -> Receipt:
        with self._service.hold_requests():
            if self._stop.is_set():
                raise ServiceStopping
            self._service.check_writable()
            return self._service.vault.replan(prepared, actor=renewal.actor or ACTOR)

    def _prepare_in_process(self, vault: Path, report: ReportProgress) -> PreparedPlan:
        """Choose settings in a separate process, which ends with this one."""
        return PreparedPlan.from_json(self._process.run(vault, report)["prepared"])

    def join(self, timeout: float | None = None) -> None:
        """Wait for the running renewal."""
        if (thread := self._thread) is not None:
            thread.join(timeout)

    def stop(self, timeout: float | None = None) -> None:
        """End the running renewal, unless it is being committed."""
        self._stop.set()
        self._process.stop()
        self.join(timeout)

    def mark_interrupted(self) -> None:
        """Mark renewals that were running when the last process ended; the schedule starts them again."""
        with self._database.transaction() as database:
            database.execute(
                "UPDATE renewals SET state = 'interrupted', reason = ?, ended = ? WHERE state = 'running'",
                "the service ended before it was finished", format_time(self._service.clock()),
            )  # fmt: skip

    def run_due(self) -> None:
        """Start a renewal if one is due."""
        if self._running is None and not self._stop.is_set():
            due = self.next_time()
            if due is not None and due <= self._service.clock():
                self.start("schedule")

    def next_time(self) -> datetime | None:
        """Return when the next renewal starts, by which everything carried out so far is complete; None if it is."""
        status = self._read_status()
        if not status.renewable or not status.open:
            return None
        options, first = self._service.options, self._first_open_time(status)
        times = [first + options.replan_every, first + (due_date(first, options.regulation) - first) / 2]
        times += [job.half_time for job in self._service.queue.incomplete()]
        if status.open >= options.replan_after:
            times.append(first)
        due = min(times)
        failures = self._failures()
        if failures and failures[0].ended is not None:
            due = max(due, failures[0].ended + _RETRY_DELAYS[min(len(failures), len(_RETRY_DELAYS)) - 1])
        return due

    def expected_time(self) -> datetime:
        """Return when the next renewal is expected to make everything complete: now, if it is running or late."""
        now = self._service.clock()
        return max(self.next_time() or now, now)

    def _read_status(self) -> Status:
        """Return the vault's status, which is read again only after a request."""
        newest = self._service.vault.newest
        if self._status is None or self._status[0] != newest:
            self._status = newest, self._service.vault.status()
        return self._status[1]

    def _first_open_time(self, status: Status) -> datetime:
        """Return when the first erasure or correction that is not complete was carried out."""
        log_, (settled, number) = self._service.vault.requests, self._oldest
        if settled != status.settled:
            settled, number = status.settled, status.settled + 1
        while number < status.requests and not log_[number - 1].open:
            number += 1
        self._oldest = settled, number
        return parse_time(log_[number - 1].time)

    def _failures(self) -> list[Renewal]:
        """Return the failed renewals since the last success, the newest first; interruptions do not count."""
        query = (
            "SELECT * FROM renewals WHERE state = 'failed' AND number > "
            "(SELECT ifnull(max(number), 0) FROM renewals WHERE state = 'done') ORDER BY number DESC LIMIT ?"
        )
        return [_read_renewal(row) for row in self._database.fetch_all(query, len(_RETRY_DELAYS))]

    def _announce(self, renewal: Renewal) -> None:
        """Store a renewal that ended, and announce it to log, metrics and webhooks."""
        with self._database.transaction():
            self._store(renewal)
            if renewal.state == "failed":
                data = renewal.view()
                del data["reason"]  # it may contain file names of this machine
                self._service.hooks.announce_failed_renewal(data)
        log(
            f"renewal-{renewal.state}",
            level="error" if renewal.state == "failed" else "warning" if len(renewal.notes) > 1 else "info",
            id=renewal.id,
            source=renewal.source,
            seconds=renewal.seconds,
            restarts=renewal.restarts,
            request=renewal.request,
            notes=renewal.notes,
            reason=renewal.reason,
        )
        for listener in self.listeners:
            listener(renewal)

    def _store(self, renewal: Renewal) -> None:
        """Insert or update a renewal."""
        with self._database.transaction() as database:
            database.execute(
                "INSERT INTO renewals (id, source, actor, caller, state, started, ended, seconds, restarts, request, "
                "notes, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "state = excluded.state, ended = excluded.ended, seconds = excluded.seconds, "
                "restarts = excluded.restarts, request = excluded.request, notes = excluded.notes, "
                "reason = excluded.reason",
                renewal.id, renewal.source, renewal.actor, renewal.caller, renewal.state,
                format_time(renewal.started), format_time(renewal.ended), renewal.seconds, renewal.restarts,
                renewal.request, json.dumps(renewal.notes), renewal.reason,
            )  # fmt: skip
            database.execute("DELETE FROM renewals WHERE number <= (SELECT max(number) FROM renewals) - ?", _MAX_STORED)

    def get(self, id_: str) -> Renewal:
        """Return a renewal; raise LookupError if it does not exist."""
        if (running := self._running) is not None and running.id == id_:
            return running
        row = self._database.fetch_one("SELECT * FROM renewals WHERE id = ?", id_)
        if row is None:
            raise LookupError(id_)
        return _read_renewal(row)

    def newest(self) -> Renewal | None:
        """Return the renewal that was started last, or None."""
        return next(iter(self.page(1)), None)

    def newest_done(self) -> Renewal | None:
        """Return the last renewal that was carried out, or None."""
        row = self._database.fetch_one("SELECT * FROM renewals WHERE state = 'done' ORDER BY number DESC LIMIT 1")
        return None if row is None else _read_renewal(row)

    def page(self, limit: int) -> list[Renewal]:
        """Return at most ``limit`` renewals, the newest first."""
        rows = self._database.fetch_all("SELECT * FROM renewals ORDER BY number DESC LIMIT ?", limit)
        running = self._running
        return [running if running is not None and row["id"] == running.id else _read_renewal(row) for row in rows]


def _read_renewal(row: Row) -> Renewal:
    names = ("source", "actor", "caller", "id", "state", "seconds", "restarts", "request", "reason")
    return Renewal(
        **{name: row[name] for name in names},
        started=parse_time(row["started"]),
        ended=parse_time(row["ended"]),
        notes=json.loads(row["notes"]),
    )


def prepare_unlocked(vault: Path, report: ReportProgress) -> PreparedPlan:
    """Choose settings in this thread, without the lock; raise VaultChanged if a request commits while rows are read."""
    try:
        return Vault.open(vault, read_only=True).prepare_replan(progress=count_steps(report))
    except (VaultBusy, Unfinished):
        raise VaultChanged from None


if __name__ == "__main__":
    run_work(lambda vault, report: {"prepared": prepare_unlocked(vault, report).to_json()}, "renewal-broken")
