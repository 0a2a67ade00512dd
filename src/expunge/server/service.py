"""The service: takes requests, carries them out in the vault when their time has come, and keeps their clocks.

One request after the other changes the vault. An erasure is written to the queue first; what is acknowledged is there
after any crash, and is carried out by whoever starts next. Doing it again does no harm: an id is erased once.
"""

import hmac
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from ..errors import (
    CapacityExceeded,
    ErasedId,
    ExpungeError,
    InvalidFile,
    InvalidInput,
    InvalidSetting,
    NothingLearned,
    OnHold,
    Unfinished,
    UnknownId,
)
from ..vault import Erasure, PersonalReceipt, Receipt, Vault
from .aliases import Aliases
from .audit import AuditTrail
from .clocks import Clock, ClockCheck, Regulation, format_time, utc_now
from .database import Database, GroupCommit
from .deliveries import Deliveries
from .logs import log, log_error
from .matters import Author, Matters, ReleasePolicy, begin_hold, describe_hold, end_hold
from .queue import ERASURE, Job, NewJob, Queue, describe_error, erasure_outcome, erasure_state, receipt_outcome
from .tokens import Tokens
from .verifications import Verifications
from .webhooks import Hooks

# Options: how a service treats requests.


@dataclass(frozen=True)
class Options:
    """How requests are treated."""

    window: timedelta = timedelta(0)  # in which a request can be cancelled before it is carried out
    batch_every: timedelta | None = None  # carry out together what came in such a time,
    batch_size: int | None = None  # or once there are so many
    two_person_release: bool = False  # a second token confirms the release of a matter
    regulation: Regulation = "gdpr"  # if a request names none
    organisation: str = ""  # who runs the service, for the certificates that people read
    public_url: str | None = None  # the address by which other systems reach the service; None is this machine's
    root_path: str = ""  # the path below which a proxy shows the service
    allow_hosts: tuple[str, ...] = ()  # private hosts that may be posted to, by name
    drp_directory: Path | None = None  # the agents of the Data Rights Protocol
    business_id: str = ""  # what they call us
    verify_every: timedelta | None = None  # how often the vault is verified; None is never
    open_metrics: bool = False  # whether /metrics needs no token
    max_ids: int = 100_000  # per request
    max_rows: int = 1_000_000

    @property
    def base_url(self) -> str:
        """How other systems reach the service."""
        public = "http://localhost" if self.public_url is None else self.public_url.rstrip("/")
        return public if public.endswith(self.root_path) else public + self.root_path

    @property
    def at_once(self) -> bool:
        """Whether a request is carried out as it comes."""
        return not self.window and self.batch_every is None and self.batch_size is None


__all__ = ["Event", "Options", "Service"]

_NEWEST_REQUEST = "_newest"  # in a job that changes rows: the newest request of the vault when it came; not shown
_TICK = 1.0  # seconds between two looks at what is due
_MAX_REFERENCE_CHARS = 200  # characters of a reference that the ledger takes
_LINGER_FRACTION = 0.5  # of the time that a group took, to wait for its callers to come back
_MAX_GROUP_PEOPLE = 10_000  # people in one request of the vault, unless one caller names more
_RECENT_REQUESTS = 1000  # requests of the ledger that are compared with the queue at the start
MAX_RECEIPTS = 1000  # people of a job whose receipts are made with it
_PERMANENT_ERRORS = (InvalidInput, InvalidSetting, UnknownId, ErasedId, NothingLearned, CapacityExceeded, OnHold)
_WIPE_REST_FACTOR = 20  # times as long as a wipe that takes long, until the next


@dataclass(frozen=True)
class Event:
    """Something that happened to a job, as listeners get it."""

    name: str  # accepted, done, certified, cancelled, refused or overdue
    job: Job


@dataclass
class _Submission:
    """A job that a caller asks for."""

    new_job: NewJob
    at_once: bool  # whether the caller carries it out, and waits for that
    job_id: str = ""  # its id, once it is claimed by its caller


@dataclass(frozen=True)
class JobProofs:
    """What the vault handed out when a job was carried out; the queue keeps none of it."""

    certificate: str | None
    receipts: dict[bytes, PersonalReceipt | None] | None  # by the person's hash, if they were asked for


@dataclass(frozen=True)
class ErasureResult:
    """An erasure that was taken and, if it was carried out at once, its certificate and receipts."""

    job: Job
    certificate: str | None = None
    receipts: list[PersonalReceipt | None] | None = None  # in the order of the ids


class Service:
    """One vault, and the requests about it."""

    def __init__(
        self, vault: Vault, database: Database, options: Options | None = None, clock: Clock = utc_now
    ) -> None:
        self.vault, self.database, self.options, self.clock = vault, database, options or Options(), clock
        self.queue, self.tokens = Queue(database, clock), Tokens(database, clock)
        policy = ReleasePolicy(self.options.window, self.options.two_person_release)
        self.matters = Matters(vault, database, clock, policy)
        self.matters.on_change = self._on_matters_changed
        self.audit = AuditTrail(database, clock)
        self.verifications, self.aliases = Verifications(self), Aliases(vault, database)
        self.deliveries = Deliveries(database, clock, allowed=self.options.allow_hosts)
        self.listeners = list[Callable[[Event], None]]()
        self.hooks = Hooks(self)
        self.draining = False  # not ready any more: whoever balances the load sends requests elsewhere
        self.closing = self._closed = False  # no new request is taken
        self._work_lock = threading.RLock()  # one request after the other
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._clock_check = ClockCheck(self.queue.newest_time())
        self._mark_key = vault.derive("service marks")
        self._intake_group = GroupCommit(self._add_jobs, database.transaction)
        self._erasure_group = GroupCommit(self._run_submitted, lambda: self._work_lock, linger=_LINGER_FRACTION)
        self._claimed = set[str]()  # jobs that a caller is about to carry out
        self._dirty, self._next_wipe = True, 0.0  # whether the database may hold what is done; when it is wiped next

    # Erasures

    def erase(self, ids: Sequence[str | int], new_job: NewJob, *, wait: bool = True) -> Job:
        """Take an erasure; it is on the disk when this returns, and carried out if nothing asks for a delay."""
        return self.erase_people(ids, new_job, wait=wait).job

    def erase_people(
        self, ids: Sequence[str | int], new_job: NewJob, *, wait: bool = True, receipts: bool = False
    ) -> "ErasureResult":
        """Take an erasure, as `erase` does, and return its receipts as well if it was carried out.

        The same people are not queued twice by one caller for one reference: their open request is the answer. Others
        who ask for them have requests of their own, which stay when this one is cancelled.
        """
        if not ids:
            raise InvalidInput("ids is empty: name at least one id")
        if len(ids) > self.options.max_ids:
            raise InvalidInput(f"a request names at most {self.options.max_ids:,} ids, got {len(ids):,}")
        if not new_job.reference.isprintable():
            raise InvalidSetting("reference must be one line of text")
        self.check_writable()
        sealed = self.vault.seal(list(ids))
        people = {person.hash: person for person in sealed}
        new_job = replace(new_job, kind=ERASURE, people=tuple(people.values()), mark=self._mark_people(new_job, people))
        wanted = _Submission(new_job, at_once=wait and self.options.at_once)
        done: JobProofs | None = None
        try:
            with self._erasure_group.announce():
                job = self._intake_group.submit(wanted)
            if wanted.at_once and job.state == "waiting":
                done = self._erasure_group.submit((job, receipts and len(people) <= MAX_RECEIPTS))
                job = self.queue.get(job.id)
                if job.state == "waiting":
                    self.check_writable()
        finally:
            self._claimed.discard(wanted.job_id)
        if job.open:
            self._wake.set()
        if done is None:
            return ErasureResult(job)
        handed = None if done.receipts is None else [done.receipts.get(person.hash) for person in sealed]
        return ErasureResult(job, done.certificate, handed)

    def _add_jobs(self, submissions: "Sequence[_Submission]") -> list[Job]:
        """Write down what several callers ask for, in one transaction."""
        return [self._add_job(wanted) for wanted in submissions]

    def _add_job(self, submission: "_Submission") -> Job:
        """Write a job down, unless it is known by its idempotency key, or open for the same people."""
        asked = submission.new_job
        if asked.idempotency is not None and (answered := self.queue.find_answered(asked.idempotency[0])) is not None:
            return answered[1]
        if asked.outside is None and asked.mark is not None and (same := self.queue.find_same(asked.mark)) is not None:
            self.queue.remember_key(asked.idempotency, same.id)
            return same
        job = self.queue.add(asked, self.clock() + self.options.window)
        if submission.at_once:  # its caller carries it out: the clock's thread leaves it alone
            submission.job_id = job.id
            self._claimed.add(job.id)
        self.emit("accepted", job)
        return self._apply_hold(job)

    def find_open_job(self, new_job: NewJob, hashes: Iterable[bytes]) -> Job | None:
        """The request that this caller has open for the same people and reference."""
        return self.queue.find_same(self._mark_people(new_job, hashes))

    def _mark_people(self, new_job: NewJob, hashes: Iterable[bytes]) -> str:
        caller = f"{new_job.protocol}\n{new_job.caller}\n{new_job.reference}\n".encode()
        return self.keyed_hash(caller + b"".join(sorted(hashes)))

    def _run_submitted(self, submitted: "Sequence[tuple[Job, bool]]") -> "list[JobProofs | None]":
        """Carry out the jobs of callers who wait for them, with receipts for those who asked for some."""
        found = self.run([job for job, _ in submitted], receipts=any(receipts for _, receipts in submitted))
        return [found.get(job.id) for job, _ in submitted]

    def run(self, jobs: Sequence[Job], *, receipts: bool = False) -> "dict[str, JobProofs]":
        """Carry erasures out together, each group in one request of the vault; what fails for now stays in the queue.

        Return what became of those that were carried out, by the job's id.
        """
        carried = dict[str, JobProofs]()
        with self._work_lock:
            fresh = [self._refresh_hold(self.queue.get(id_)) for id_ in dict.fromkeys(job.id for job in jobs)]
            ready = [job for job in fresh if job.state == "waiting"]
            for group in self._split_groups(ready):
                carried |= self._run_group(group, receipts=receipts)
        return carried

    def _split_groups(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Divide jobs into those that share a request of the vault: a batch is one; else long lists go alone."""
        if self.options.batch_every is not None or self.options.batch_size is not None:
            return [list(jobs)] if jobs else []
        groups, count = list[list[Job]](), _MAX_GROUP_PEOPLE
        for job in sorted(jobs, key=lambda job: job.people > MAX_RECEIPTS):
            if count + job.people > _MAX_GROUP_PEOPLE or job.people > MAX_RECEIPTS:
                groups.append([])
                count = 0
            groups[-1].append(job)
            count += job.people
        return groups

    def _run_group(self, jobs: Sequence[Job], *, receipts: bool) -> "dict[str, JobProofs]":
        """Carry jobs out in one request of the vault, and write down what became of all in one transaction."""
        people = {job.id: self.queue.people(job.id) for job in jobs}
        named = dict[str, list[str]]()
        for job in jobs:
            try:
                named[job.id] = self.vault.unseal(people[job.id])
            except InvalidFile as error:  # one whose ids cannot be opened keeps no other waiting
                self.queue.move(job.id, "waiting", describe_error(error))
        jobs = [job for job in jobs if named.get(job.id)]
        if not jobs:
            return {}
        few = receipts and sum(job.people for job in jobs) <= _MAX_GROUP_PEOPLE
        erasures = [Erasure(named[job.id], job.reference[:_MAX_REFERENCE_CHARS], job.actor, job.id) for job in jobs]
        try:
            receipt, outcomes = self.vault.unlearn_group(erasures, receipts=few, attest_unknown=few, wipe=False)
        except (ExpungeError, OSError) as error:
            if len(jobs) > 1 and isinstance(
                error, _PERMANENT_ERRORS
            ):  # one of them is wrong: it must not fail the others
                parts = [self._run_group([job], receipts=receipts) for job in jobs]
                return {id_: carried for part in parts for id_, carried in part.items()}
            log_error("erasure-failed", error, jobs=len(jobs))
            with self.database.transaction():
                for job in jobs:  # it is tried again, and nobody has to ask for it
                    self.queue.move(job.id, "waiting", describe_error(error))
            return {}
        self._dirty = True
        carried = dict[str, JobProofs]()
        with self.database.transaction():  # events are written down with what they tell, or neither is
            everybody = (person for job in jobs for person in people[job.id])
            self.aliases.forget(everybody, None if receipt is None else receipt.request)
            for job, persons in zip(jobs, outcomes, strict=True):
                outcome = erasure_outcome(persons, receipt)
                done = self.queue.move(job.id, erasure_state(outcome), **outcome)
                self.emit(done.state, done)
                ours = receipt is not None and receipt.request == outcome["request"]
                certificate = receipt.certificate if receipt is not None and ours else None
                if certificate is not None:
                    self.emit("certified", done)
                by_hash = {sealed.hash: one.receipt for sealed, one in zip(people[job.id], persons, strict=True)}
                carried[job.id] = JobProofs(certificate, by_hash if few else None)
        return carried

    def cancel(self, id_: str, reason: str, author: Author) -> Job | None:
        """Cancel a request that waits; None if it is too late."""
        with self._work_lock, self.database.transaction():
            if self.queue.get(id_).state not in ("waiting", "held"):
                return None
            entry = self.queue.move(id_, "cancelled", reason)
            self._record("job.cancelled", entry, author, reason=reason)
            self.emit("cancelled", entry)
        self._dirty = True
        self._wake.set()
        return entry

    def extend(self, id_: str, reason: str, author: Author) -> Job | None:
        """Give a request the longer time that its regulation allows; None if it or its time is over, or extended."""
        with self.database.transaction():
            entry = self.queue.get(id_)
            if not entry.open or entry.extension or entry.due < self.clock():
                return None
            entry = self.queue.extend(id_, reason)
            self._record("job.extended", entry, author, reason=reason, due=format_time(entry.due))
        return entry

    def _record(self, action: str, job: Job, author: Author, **details: Any) -> None:
        """Record what somebody did to a job, who need not be the one who asked for it."""
        self.audit.record(
            action, actor=author.name, subject=job.id, reference=job.reference, token=author.token, **details
        )

    def issue_receipts(self, ids: Sequence[str | int], *, attest_unknown: bool = True) -> list[PersonalReceipt | None]:
        """The receipt of each of these people, in their order: that they were erased, or that nothing is known.

        Without ``strangers`` nobody gets the second kind.
        """
        texts = [str(one) for one in ids]
        found = self.vault.personal_receipts(texts, skip_unknown=True, attest_unknown=attest_unknown)
        return [found.get(one) for one in texts]

    # Holds

    def _on_matters_changed(self) -> None:
        """Let requests wait, or run, as the matters say now; whom a release forgot is wiped from the database."""
        self._refresh_holds(self.queue.pending())
        self._dirty = True
        self._wake.set()

    def _refresh_holds(self, jobs: Sequence[Job]) -> list[Job]:
        """Do that for many jobs: only those are looked at for which the matters say something else than before."""
        reasons = self.matters.hold_reasons()
        return [
            self._refresh_hold(job) if reasons.get(job.id) != (job.reason if job.state == "held" else None) else job
            for job in jobs
        ]

    def _refresh_hold(self, job: Job) -> Job:
        """Let a request wait, or be held, as the matters in force say."""
        if job.state not in ("waiting", "held"):
            return job
        with self._work_lock:
            return self._apply_hold(self.queue.get(job.id))

    def _apply_hold(self, job: Job) -> Job:
        matters, now = self.matters.find_for_job(job.id), self.clock()
        times, reason = job.outcome.get("held", ()), describe_hold(matters)
        if job.state == "waiting" and matters:
            with self.database.transaction():
                job = self.queue.move(job.id, "held", reason, held=begin_hold(times, matters, now))
                self.emit("refused", job)
        elif job.state == "held" and matters and job.reason != reason:  # it waits for other matters than before
            job = self.queue.move(job.id, "held", reason, held=begin_hold(times, matters, now))
        elif job.state == "held" and not matters:
            with self.database.transaction():  # whoever asked can cancel it again, for as long as at the beginning
                self.queue.move(job.id, "waiting", held=end_hold(times, now))
                job = self.queue.restart_window(job.id, now + self.options.window)
        return job

    # Other requests

    def run_now(self, new_job: NewJob, carry_out: Callable[..., Receipt]) -> tuple[Job, Receipt]:
        """Carry out a request that brings rows or names erased ids, which cannot wait; it is logged like the others.

        ``carry_out`` gets what the ledger says of the request: ``job``, ``reference`` and ``actor``.
        """
        self.check_writable()
        with self._work_lock:
            facts = {
                **new_job.facts,
                _NEWEST_REQUEST: len(self.vault.requests),
            }  # where to look for it, if this is cut off
            job = self.queue.add(replace(new_job, facts=facts), self.clock(), "running")
            try:
                receipt = carry_out(job=job.id, reference=new_job.reference[:_MAX_REFERENCE_CHARS], actor=new_job.actor)
            except Unfinished:  # it was accepted, or nobody can say: the ledger will tell
                raise
            except ExpungeError as error:
                self.queue.move(job.id, "failed", describe_error(error))
                raise
            except BaseException as error:
                self._settle_job(job, describe_error(error))
                raise
            with self.database.transaction():
                job = self.queue.move(job.id, "done", **receipt_outcome(receipt))
                self._emit_done(job, certified=receipt.certificate is not None)
        return job, receipt

    def _emit_done(self, job: Job, *, certified: bool) -> None:
        self.emit("accepted", job)
        self.emit("done", job)
        if certified:
            self.emit("certified", job)

    def settle_interrupted(self) -> None:
        """Find out from the ledger what became of jobs that were cut off while they were running."""
        with self._work_lock:  # so that none of them is running now
            for job in self.queue.running():
                self._settle_job(job, "the service ended before it was accepted: ask again")

    def _settle_job(self, job: Job, reason: str) -> None:
        """Say of a running job that it is done if the ledger has it, else that it failed, for this reason."""
        self.check_writable()
        after = int(job.outcome.get(_NEWEST_REQUEST, 0))
        logged = self.vault.find_job(job.id, after)
        if logged is not None and logged.state == "accepted":
            self.vault.reopen()  # which finishes it
            logged = self.vault.find_job(job.id, after)
        if logged is None:
            self.queue.move(job.id, "failed", reason)
        elif logged.state != "accepted":
            with self.database.transaction():
                done = self.queue.move(job.id, "done", request=logged.number, rows=logged.rows, people=logged.people)
                self._emit_done(done, certified=logged.certificate is not None)

    def certificate(self, job: Job) -> str | None:
        """The certificate of a request that is done, if it has one."""
        number = job.outcome.get("request")
        return None if number is None else self.vault.certificate(number)

    # Marks

    def keyed_hash(self, data: bytes) -> str:
        """Return a keyed hash: without the vault's key nobody can test guesses with it."""
        return hmac.digest(self._mark_key, data, "sha256").hex()

    # The clock

    def start(self) -> None:
        """Take up what was interrupted, and look from now on at what is due."""
        self.matters.save_policy()
        self._recover()
        self.verifications.mark_interrupted()
        self._thread = threading.Thread(target=self._run_clock, name="expunge-clock", daemon=True)
        self._thread.start()
        self.deliveries.start()

    def _recover(self) -> None:
        """Settle what was running when the process ended, and say if the queue is an older copy than the ledger."""
        missing = 0
        for logged in islice(reversed(self.vault.requests), _RECENT_REQUESTS):
            jobs = [caller.job for caller in logged.callers if caller.job]
            if jobs and all(map(self.queue.has, jobs)):
                break
            missing += len(jobs)
        if missing:
            log("the queue is older than the ledger", requests=missing)
        self.settle_interrupted()

    def check_writable(self) -> None:
        """Refuse what could not be carried out: after a failed sync nothing is taken until the vault is reopened."""
        if self.vault.sync_failed:
            raise Unfinished(
                "the disk failed to confirm a write: nothing is accepted until the vault has been opened anew, which "
                "the service tries every second"
            )

    def _ensure_writable(self) -> bool:
        """Whether the vault can be written to; after a failed sync it is opened anew, which finishes what it can."""
        if not self.vault.sync_failed:
            return True
        with self._work_lock:
            try:
                self.vault.reopen()
            except (ExpungeError, OSError) as error:
                log_error("reopening-failed", error)
                return False
        log("vault-reopened")
        return True

    def _run_clock(self) -> None:
        while not self._stop.is_set():
            try:
                self.run_due()
            except Exception as error:  # the next look may do better; a thread that ends would do none
                log_error("clock-failed", error)
            self._wake.wait(_TICK)
            self._wake.clear()

    def wake(self) -> None:
        """Look soon: something changed."""
        self._wake.set()

    def run_due(self) -> None:
        """Carry out what is due, tell what is overdue, and wipe what is done."""
        if (back := self._clock_check.step_back(self.clock())) is not None:
            log("clock-went-back", level="warning", seconds=round(back.total_seconds()))
        with self.database.transaction():
            for entry in self.queue.mark_overdue():
                self.emit("overdue", entry)
        if not self._ensure_writable():
            return
        pending = self.queue.pending()
        if any(job.state == "running" for job in pending):
            self.settle_interrupted()
        waiting = [job for job in self._refresh_holds(pending) if job.state == "waiting"]
        if due := self._select_due(job for job in waiting if job.id not in self._claimed):
            self.run(due)
        self._dirty = bool(self.aliases.sweep()) or self._dirty
        self.matters.record_due_reviews()
        self.matters.announce(self.hooks.announce_matter)
        self.verifications.run_due()
        self._wipe_finished()

    def _wipe_finished(self) -> None:
        """Wipe what is done from the database, but not all the time if that takes long."""
        started = time.monotonic()
        if self._dirty and started >= self._next_wipe:
            self._dirty = False
            try:
                done = self.database.wipe()
            except BaseException:
                self._dirty = True
                raise
            took = time.monotonic() - started
            self._next_wipe = started + _WIPE_REST_FACTOR * took if took > 0.1 else 0.0
            self._dirty = self._dirty or not done

    def _select_due(self, waiting: Iterable[Job]) -> list[Job]:
        """Those whose time has come: their window is over and, if requests are batched, so is that of their batch."""
        now, options = self.clock(), self.options
        ready = [entry for entry in waiting if entry.runs <= now]
        if options.batch_size is not None and len(ready) >= options.batch_size:
            return ready
        if options.batch_every is not None:
            return ready if any(entry.runs + options.batch_every <= now for entry in ready) else []
        return [] if options.batch_size is not None else ready

    def stop(self, timeout: float | None = None) -> bool:
        """Finish what is being carried out; what waits is in the queue. Whether that took no longer than this."""
        self.draining = self.closing = True
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
        self.verifications.stop(timeout)
        self.deliveries.stop()
        if not self._work_lock.acquire(timeout=-1 if timeout is None else timeout):
            return False
        try:
            if not self._closed:
                self._closed = True
                with suppress(sqlite3.OperationalError):  # a full disk: whoever starts next wipes
                    self.database.wipe()
                self.database.close()
        finally:
            self._work_lock.release()
        return True

    # Who listens

    def emit(self, name: str, job: Job) -> None:
        """Tell listeners what happened; one that fails changes nothing for the request, or for the others."""
        for listener in self.listeners:
            try:
                listener(Event(name, job))
            except Exception as error:
                log_error("listener-failed", error, of=name)


# Threads: requests that may wait for the vault's writer have threads of their own.
#
# Routes run in a pool of 40 threads. If erasures waited in it, 40 of them, while the disk is slow or a verification has
# paused the vault, would keep every prediction and every probe waiting as well.


P = ParamSpec("P")
R = TypeVar("R")

_MAX_WAITING = 100  # callers who wait; those who come after them wait without a thread
_writer_limiter: RunVar[CapacityLimiter] = RunVar("threads that wait for the writer")


async def run_in_writer_thread(task: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a task that may wait for the writer, without keeping anybody else from a thread."""
    limiter = _writer_limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_MAX_WAITING)
        _writer_limiter.set(limiter)
    return await to_thread.run_sync(partial(task, *args, **kwargs), limiter=limiter)
