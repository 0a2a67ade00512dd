"""Verifications: audits of the vault by the service, on request and on a schedule, and their results.

A verification runs in a process of its own, with low priority and without the vault's lock, so predictions and requests
go on. If a request commits in the meantime, the data that was read belongs to no state of the vault, and the
verification starts again. If that happens at every attempt, it ends as unfinished, and the schedule tries again later:
requests never wait for a verification.

Results are stored in the service's database, also those of `expunge verify`. A failed verification is announced by a
log line, a metric and the event ``verification.failed``, and ``/readyz`` says "degraded" until a later one passes.
"""

import json
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from sqlite3 import Row
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import ExpungeError, Unfinished, VaultBusy
from ..vault import Check, Vault, Verdict
from .background import BackgroundProcess, ReportProgress, ServiceStopping, VaultChanged, count_steps, run_work
from .clocks import format_time, parse_time
from .database import Database
from .logs import Level, log, log_error
from .queue import describe_error

if TYPE_CHECKING:
    from .service import Service

VerificationSource: TypeAlias = Literal["schedule", "api", "page", "command line"]
VerificationState: TypeAlias = Literal["running", "passed", "failed", "unfinished"]

_LOG_LEVELS: dict[VerificationState, Level] = {"passed": "info", "unfinished": "warning", "failed": "error"}
_MAX_STORED = 1000  # in the database
_RETRY_PAUSES = (0.0, 1.0, 5.0, 15.0, 60.0)  # seconds before each attempt
_RETRY_DELAY = timedelta(minutes=10)  # before a scheduled verification that was not finished is retried


@dataclass
class Verification:
    """A verification. It is running, passed, failed (something is wrong), or is unfinished."""

    source: VerificationSource
    actor: str  # the name of the caller who started it
    started: datetime
    caller: str = ""  # the id of the caller's token
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    state: VerificationState = "running"
    ended: datetime | None = None
    seconds: float | None = None
    restarts: int = 0  # because a request committed in the meantime
    checks: list[dict[str, Any]] = field(default_factory=list)  # name, ok and detail of each
    reason: str = ""  # why it ended without checks
    step: str = ""
    done: int = 0
    of: int = 0

    @property
    def ok(self) -> bool | None:
        """Whether everything is right; None if that is unknown."""
        return {"passed": True, "failed": False}.get(self.state)

    @property
    def wrong(self) -> list[str]:
        """The names of the checks that failed."""
        return [check["name"] for check in self.checks if not check["ok"]]

    def view(self) -> dict[str, Any]:
        """Return the verification as JSON."""
        times = {"started": format_time(self.started), "ended": format_time(self.ended)}
        return vars(self) | times | {"ok": self.ok}

    def record_verdict(self, verdict: Verdict, now: datetime) -> None:
        """Store the result of a finished audit."""
        self.state, self.ended, self.seconds = "passed" if verdict.ok else "failed", now, verdict.seconds
        self.checks = [asdict(check) for check in verdict.checks]

    def record_abort(self, state: VerificationState, reason: str, now: datetime) -> None:
        """Store why there is no result."""
        self.state, self.reason, self.ended = state, reason, now
        self.seconds = (now - self.started).total_seconds()


def store_verification(database: Database, verification: Verification) -> None:
    """Insert or update a verification, to be announced by the service."""
    with database.transaction():
        database.execute(
            "INSERT INTO verifications (id, source, actor, caller, state, started, ended, seconds, restarts, checks, "
            "reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state, "
            "ended = excluded.ended, seconds = excluded.seconds, restarts = excluded.restarts, "
            "checks = excluded.checks, reason = excluded.reason",
            verification.id, verification.source, verification.actor, verification.caller,
            verification.state, format_time(verification.started),
            format_time(verification.ended), verification.seconds,
            verification.restarts,
            json.dumps(verification.checks), verification.reason,
        )  # fmt: skip
        database.execute(
            "DELETE FROM verifications WHERE number <= (SELECT max(number) FROM verifications) - ?", _MAX_STORED
        )


AuditFunction: TypeAlias = Callable[[Path, ReportProgress], Verdict]


class Verifications:
    """The verifications of a service, one at a time."""

    def __init__(self, service: "Service") -> None:
        self._service, self._database = service, service.database
        self.audit: AuditFunction = self._audit_in_process
        self.pauses: Sequence[float] = _RETRY_PAUSES
        self.listeners = list[Callable[[Verification], None]]()  # called with each that ended
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._running: Verification | None = None
        self._unstored: Verification | None = None  # ended, but could not be stored: the disk was full
        self._thread: threading.Thread | None = None
        self._process = BackgroundProcess(__name__)

    def start(self, source: VerificationSource, *, actor: str = "", caller: str = "") -> Verification:
        """Start a verification and return it; if one is running, return that."""
        with self._lock:
            if self._running is not None:
                return self._running
            verification = Verification(source, actor, self._service.clock(), caller)
            store_verification(self._database, verification)
            self._running = verification
            self._thread = threading.Thread(target=self._run, args=(verification,), name="expunge-verify", daemon=True)
            self._thread.start()
        return verification

    def _run(self, verification: Verification) -> None:
        clock = self._service.clock
        try:
            verification.record_verdict(self._verify(verification), clock())
        except ServiceStopping:
            verification.record_abort("unfinished", "the service was stopped", clock())
        except (VaultBusy, Unfinished) as error:
            verification.record_abort("unfinished", str(error), clock())
        except ExpungeError as error:  # the vault cannot even be read
            verification.record_abort("failed", str(error), clock())
        except Exception as error:
            log_error("verification-broken", error)
            verification.record_abort("unfinished", describe_error(error), clock())
        try:
            store_verification(self._database, verification)
            self.announce()
        except Exception as error:  # a full disk, or the service was stopped: it is marked at the next start
            log_error("verification-not-stored", error)
            self._unstored = verification
        finally:
            with self._lock:
                self._running = None

    def _verify(self, verification: Verification) -> Verdict:
        def report(step: str, done: int, of: int) -> None:
            verification.step, verification.done, verification.of = step, done, of

        path = self._service.vault.places.vault
        for pause in self.pauses:
            if self._stop.wait(pause):
                raise ServiceStopping
            try:
                return self.audit(path, report)
            except VaultChanged:
                verification.restarts += 1
        raise VaultBusy("requests kept arriving")

    def _audit_in_process(self, vault: Path, report: ReportProgress) -> Verdict:
        """Verify a vault in a separate process, which ends with this one."""
        verdict = self._process.run(vault, report)
        return Verdict(tuple(Check(**check) for check in verdict["checks"]), verdict["seconds"])

    def join(self, timeout: float | None = None) -> None:
        """Wait for the running verification."""
        if (thread := self._thread) is not None:
            thread.join(timeout)

    def stop(self, timeout: float | None = None) -> None:
        """End the running verification as unfinished."""
        self._stop.set()
        self._process.stop()
        self.join(timeout)

    def mark_interrupted(self) -> None:
        """Mark verifications that were running when the last process ended as unfinished."""
        with self._database.transaction() as database:
            database.execute(
                "UPDATE verifications SET state = 'unfinished', reason = ?, ended = ? WHERE state = 'running'",
                "the service ended before it was finished", format_time(self._service.clock()),
            )  # fmt: skip

    def run_due(self) -> None:
        """Announce verifications that ended, and start one if the schedule says so."""
        if (unstored := self._unstored) is not None:
            store_verification(self._database, unstored)
            self._unstored = None
        self.announce()
        if self._is_due():
            self.start("schedule")

    def _is_due(self) -> bool:
        every, last = self._service.options.verify_every, self.newest()
        if every is None or self._stop.is_set():
            return False
        if last is None or last.ended is None:
            return last is None
        return self._service.clock() >= last.ended + (min(every, _RETRY_DELAY) if last.state == "unfinished" else every)

    def announce(self) -> None:
        """Announce ended verifications to log, metrics and webhooks, also those of the command line."""
        query = "SELECT * FROM verifications WHERE announced = 0 AND state != 'running' ORDER BY number"
        if not self._database.fetch_all(query):
            return
        with self._database.transaction() as database:
            ended = [_read_verification(row) for row in database.fetch_all(query)]
            for verification in ended:
                database.execute("UPDATE verifications SET announced = 1 WHERE id = ?", verification.id)
                if verification.state == "failed":
                    self._service.hooks.announce_failed_verification(_public_view(verification))
        for verification in ended:
            log(
                f"verification-{verification.state}",
                level=_LOG_LEVELS[verification.state],
                id=verification.id,
                source=verification.source,
                seconds=verification.seconds,
                restarts=verification.restarts,
                wrong=verification.wrong,
            )
            for listener in self.listeners:
                listener(verification)

    def get(self, id_: str) -> Verification:
        """Return a verification; raise LookupError if it does not exist."""
        if (running := self._running) is not None and running.id == id_:
            return running
        row = self._database.fetch_one("SELECT * FROM verifications WHERE id = ?", id_)
        if row is None:
            raise LookupError(id_)
        return _read_verification(row)

    def newest(self) -> Verification | None:
        """Return the verification that was started last, or None."""
        return next(iter(self.page(1)), None)

    def newest_outcome(self) -> Verification | None:
        """Return the last verification that passed or failed, or None."""
        query = "SELECT * FROM verifications WHERE state IN ('passed', 'failed') ORDER BY number DESC LIMIT 1"
        row = self._database.fetch_one(query)
        return None if row is None else _read_verification(row)

    def page(self, limit: int) -> list[Verification]:
        """Return at most ``limit`` verifications, the newest first."""
        rows = self._database.fetch_all("SELECT * FROM verifications ORDER BY number DESC LIMIT ?", limit)
        running = self._running
        return [running if running is not None and row["id"] == running.id else _read_verification(row) for row in rows]


def _read_verification(row: Row) -> Verification:
    names = ("source", "actor", "caller", "id", "state", "seconds", "restarts", "reason")
    return Verification(
        **{name: row[name] for name in names},
        started=parse_time(row["started"]),
        ended=parse_time(row["ended"]),
        checks=json.loads(row["checks"]),
    )


def _public_view(verification: Verification) -> dict[str, Any]:
    """Return a verification for webhooks: without details, which contain file names of this machine."""
    names = ("id", "source", "actor", "started", "ended", "seconds", "state", "ok")
    shown = verification.view()
    return {name: shown[name] for name in names} | {
        "checks": [{"name": check["name"], "ok": check["ok"]} for check in verification.checks]
    }


def audit_unlocked(vault: Path, report: ReportProgress) -> Verdict:
    """Verify a vault in this thread, without its lock; raise VaultChanged if a request commits in the meantime."""
    try:
        return Vault.open(vault, read_only=True).verify(progress=count_steps(report))
    except (VaultBusy, Unfinished):
        raise VaultChanged from None


def _audit(vault: Path, report: ReportProgress) -> dict[str, Any]:
    verdict = audit_unlocked(vault, report)
    return {"checks": [asdict(check) for check in verdict.checks], "seconds": verdict.seconds}


if __name__ == "__main__":
    run_work(_audit, "verification-broken")
