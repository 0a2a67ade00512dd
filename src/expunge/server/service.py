"""The service: accepts requests, carries them out in the vault when they are due, and tracks their deadlines.

Requests change the vault one after the other. An erasure is written to the queue first; an acknowledged request
survives any crash, and is carried out after the next start. Repeating it does no harm: an id is erased once.
"""

import hmac
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
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
from .matters import Author, Matters, ReleasePolicy, begin_hold, describe_hold, end_hold, refuse_held
from .queue import (
    ERASURE,
    Job,
    JobState,
    NewJob,
    Queue,
    describe_error,
    erasure_outcome,
    erasure_state,
    receipt_outcome,
)
from .renewals import Renewals
from .tokens import Tokens
from .verifications import Verifications
from .webhooks import Hooks


@dataclass(frozen=True)
class Options:
    """The options of a service."""

    window: timedelta = timedelta(0)  # in which a request can be cancelled before it is carried out
    batch_every: timedelta | None = None  # carry out requests together: those of an interval,
    batch_size: int | None = None  # or once there are this many
    two_person_release: bool = False  # a second token must confirm the release of a matter
    regulation: Regulation = "gdpr"  # of requests that name none
    organisation: str = ""  # the operator, named on certificates for people
    public_url: str | None = None  # where other systems reach the service; None: on this machine
    root_path: str = ""  # the path below which a proxy serves it
    allow_hosts: tuple[str, ...] = ()  # private hosts that messages may be posted to
    drp_directory: Path | None = None  # agents of the Data Rights Protocol
    business_id: str = ""  # our id with these agents
    verify_every: timedelta | None = None  # None: never
    replan_every: timedelta = timedelta(days=7)  # from the first erasure that is not complete to the next renewal
    replan_after: int = 50  # people whose erasure is not complete: then renew at once
    open_metrics: bool = False  # serve /metrics without a token
    max_ids: int = 100_000  # per request
    max_rows: int = 1_000_000

    @property
    def base_url(self) -> str:
        """The URL by which other systems reach the service."""
        public = "http://localhost" if self.public_url is None else self.public_url.rstrip("/")
        return public if public.endswith(self.root_path) else public + self.root_path

    @property
    def at_once(self) -> bool:
        """Whether requests are carried out immediately."""
        return not self.window and self.batch_every is None and self.batch_size is None


__all__ = ["Event", "Options", "Service"]

_NEWEST_REQUEST = "_newest"  # in a job that changes rows: the vault's newest request at its start; internal
_TICK = 1.0  # seconds between two checks of what is due
_MAX_REFERENCE_CHARS = 200  # of a reference in the ledger
_LINGER_FRACTION = 0.5  # of the last group's time, to wait for its callers to return
_MAX_GROUP_PEOPLE = 10_000  # in one request of the vault, unless a single erasure has more
_RECENT_REQUESTS = 1000  # of the ledger, compared with the queue at the start
MAX_RECEIPTS = 1000  # a larger job's receipts are not issued with it
_PERMANENT_ERRORS = (InvalidInput, InvalidSetting, UnknownId, ErasedId, NothingLearned, CapacityExceeded, OnHold)
_WIPE_REST_FACTOR = 20  # pause after a slow wipe, as a multiple of its time


@dataclass(frozen=True)
class Event:
    """A change of a job, as listeners receive it."""

    name: str  # accepted, erased, corrected, done, not_known, certified, cancelled, refused or overdue
    job: Job


@dataclass
class _Submission:
    """A job that is being submitted."""

    new_job: NewJob
    at_once: bool  # whether the caller waits until it is carried out
    job_id: str = ""  # once the caller has claimed it


@dataclass(frozen=True)
class JobProofs:
    """A job that was carried out, with its certificate and receipts, which the queue does not keep."""

    job: Job
    certificate: str | None
    receipts: dict[bytes, PersonalReceipt | None] | None  # by the person's hash, if requested


@dataclass(frozen=True)
class ErasureResult:
    """An accepted erasure and, if it was carried out immediately, its certificate and receipts."""

    job: Job
    certificate: str | None = None
    receipts: list[PersonalReceipt | None] | None = None  # in the order of the ids


class Service:
    """One vault and its requests."""

    def __init__(
        self, vault: Vault, database: Database, options: Options | None = None, clock: Clock = utc_now
    ) -> None:
        self.vault, self.database, self.options, self.clock = vault, database, options or Options(), clock
        self.queue, self.tokens = Queue(database, clock), Tokens(database, clock)
        policy = ReleasePolicy(self.options.window, self.options.two_person_release)
        self.matters = Matters(vault, database, clock, policy)
        self.matters.on_change = self._on_matters_changed
        self.audit = AuditTrail(database, clock)
        self.verifications, self.renewals = Verifications(self), Renewals(self)
        self.aliases = Aliases(vault, database)
        self.deliveries = Deliveries(database, clock, allowed=self.options.allow_hosts)
        self.listeners = list[Callable[[Event], None]]()
        self.on_stop = list[Callable[[], None]]()  # called when the service stops
        self.hooks = Hooks(self)
        self.draining = False  # not ready: load balancers send requests elsewhere
        self.closing = self._closed = False  # new requests are refused
        self._work_lock = threading.RLock()  # held while a request changes the vault
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._clock_check = ClockCheck(self.queue.newest_time())
        self._mark_key = vault.derive("service marks")
        self._intake_group = GroupCommit(self._add_jobs, database.transaction)
        self._erasure_group = GroupCommit(self._run_submitted, lambda: self._work_lock, linger=_LINGER_FRACTION)
        self._claimed = set[str]()  # jobs whose caller is about to carry them out
        self._dirty, self._next_wipe = True, 0.0  # the database may contain finished people; when to wipe next

    def erase(self, ids: Sequence[str | int], new_job: NewJob, *, wait: bool = True) -> Job:
        """Accept an erasure; it is on the disk when this returns, and carried out unless the options delay it."""
        return self.erase_people(ids, new_job, wait=wait).job

    def erase_people(
        self, ids: Sequence[str | int], new_job: NewJob, *, wait: bool = True, receipts: bool = False
    ) -> "ErasureResult":
        """Accept an erasure like `erase`, and return its certificate and receipts if it was carried out.

        If this caller has an open request for the same people and reference, return that one. Other callers get
        requests of their own, which stay when this one is cancelled.
        """
        if not ids:
            raise InvalidInput("ids is empty: name at least one id")
        if len(ids) > self.options.max_ids:
            raise InvalidInput(f"a request has at most {self.options.max_ids:,} ids, got {len(ids):,}")
        if not new_job.reference.isprintable():
            raise InvalidSetting("reference must be one line of text")
        self.check_writable()
        sealed = self.vault.seal(list(ids))
        people = {person.hash: person for person in sealed}
        new_job = replace(new_job, kind=ERASURE, people=tuple(people.values()), mark=self._mark_people(new_job, people))
        submission = _Submission(new_job, at_once=wait and self.options.at_once)
        proofs: JobProofs | None = None
        try:
            with self._erasure_group.announce():
                job = self._intake_group.submit(submission)
            if submission.at_once and job.state == "waiting":
                proofs = self._erasure_group.submit((job, receipts and len(people) <= MAX_RECEIPTS))
                job = self.queue.get(job.id) if proofs is None else proofs.job
                if job.state == "waiting":
                    self.check_writable()
        finally:
            self._claimed.discard(submission.job_id)
        if job.pending:
            self._wake.set()
        if proofs is None:
            return ErasureResult(job)
        in_order = None if proofs.receipts is None else [proofs.receipts.get(person.hash) for person in sealed]
        return ErasureResult(job, proofs.certificate, in_order)

    def _add_jobs(self, submissions: "Sequence[_Submission]") -> list[Job]:
        """Store the jobs of several callers, in one transaction."""
        return [self._add_job(submission) for submission in submissions]

    def _add_job(self, submission: "_Submission") -> Job:
        """Store a job, unless its idempotency key is known or the same request is open: then return that one."""
        new, key = submission.new_job, submission.new_job.idempotency
        if key is not None and (answered := self.queue.find_answered(key[0])) is not None:
            return answered[1]
        if new.outside is None and new.mark is not None and (same := self.queue.find_same(new.mark)) is not None:
            self.queue.remember_key(key, same.id)
            return same
        job = self.queue.add(new, self.clock() + self.options.window)
        if submission.at_once:  # its caller carries it out, not the clock's thread
            submission.job_id = job.id
            self._claimed.add(job.id)
        self.emit("accepted", job)
        return self._apply_hold(job)

    def find_open_job(self, new_job: NewJob, hashes: Iterable[bytes]) -> Job | None:
        """Return the open request of this caller for the same people and reference, or None."""
        return self.queue.find_same(self._mark_people(new_job, hashes))

    def _mark_people(self, new_job: NewJob, hashes: Iterable[bytes]) -> str:
        caller = f"{new_job.protocol}\n{new_job.caller}\n{new_job.reference}\n".encode()
        mark, buckets = hmac.new(self._mark_key, caller, "sha256"), [list[bytes]() for _ in range(256)]
        for hash_ in hashes:
            buckets[hash_[0]].append(hash_)
        for bucket in buckets:  # to sort 100,000 hashes at once would keep all other threads waiting
            mark.update(b"".join(sorted(bucket)))
        return mark.hexdigest()

    def _run_submitted(self, submitted: "Sequence[tuple[Job, bool]]") -> "list[JobProofs | None]":
        """Carry out the jobs of waiting callers, with receipts if one of them requested some."""
        proofs = self.run([job for job, _ in submitted], receipts=any(receipts for _, receipts in submitted))
        return [proofs.get(job.id) for job, _ in submitted]

    def run(self, jobs: Sequence[Job], *, receipts: bool = False) -> "dict[str, JobProofs]":
        """Carry out erasures in groups, each in one request of the vault; after a temporary failure they stay queued.

        Return the proofs of those that were carried out, by the job's id.
        """
        proofs = dict[str, JobProofs]()
        with self._work_lock:
            fresh = [self._apply_hold(self.queue.get(id_)) for id_ in dict.fromkeys(job.id for job in jobs)]
            ready = [job for job in fresh if job.state == "waiting"]
            for group in self._split_groups(ready):
                proofs |= self._run_group(group, receipts=receipts)
        return proofs

    def _split_groups(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Divide jobs into groups that share a request of the vault: a batch is one; otherwise large jobs go alone."""
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
        """Carry out jobs in one request of the vault, and store all outcomes in one transaction."""
        people = {job.id: self.queue.people(job.id) for job in jobs}
        ids = dict[str, list[str]]()
        for job in jobs:
            try:
                ids[job.id] = self.vault.unseal(people[job.id])
            except InvalidFile as error:  # must not block the others
                self.queue.move(job.id, "waiting", describe_error(error))
        jobs = [job for job in jobs if ids.get(job.id)]
        if not jobs:
            return {}
        with_receipts = receipts and sum(job.people for job in jobs) <= _MAX_GROUP_PEOPLE
        erasures = [Erasure(ids[job.id], job.reference[:_MAX_REFERENCE_CHARS], job.actor, job.id) for job in jobs]
        try:
            receipt, outcomes = self.vault.unlearn_group(
                erasures,
                receipts=with_receipts,
                attest_unknown=with_receipts,
                check_holds=partial(refuse_held, self.database),
            )
        except (ExpungeError, OSError) as error:
            if len(jobs) > 1 and isinstance(error, _PERMANENT_ERRORS):  # one job is wrong, and must not fail the others
                parts = [self._run_group([job], receipts=receipts) for job in jobs]
                return {id_: proof for part in parts for id_, proof in part.items()}
            log_error("erasure-failed", error, jobs=len(jobs))
            with self.database.transaction():
                for job in jobs:  # it is retried without a new request
                    self.queue.move(job.id, "waiting", describe_error(error))
            return {}
        self._dirty = True
        proofs = dict[str, JobProofs]()
        with self.database.transaction():  # events are stored together with the outcomes
            everybody = (person for job in jobs for person in people[job.id])
            self.aliases.forget(everybody, None if receipt is None else receipt.request)
            for job, persons in zip(jobs, outcomes, strict=True):
                outcome = erasure_outcome(persons, receipt)
                done = self._close(job, *erasure_state(persons), outcome)
                ours = receipt is not None and receipt.request == outcome["request"]
                certificate = receipt.certificate if receipt is not None and ours else None
                if certificate is not None:
                    self.emit("certified", done)
                by_hash = {sealed.hash: person.receipt for sealed, person in zip(people[job.id], persons, strict=True)}
                proofs[job.id] = JobProofs(done, certificate, by_hash if with_receipts else None)
        return proofs

    def _close(self, job: Job, state: JobState, awaits: int | None, outcome: dict[str, Any]) -> Job:
        """Move a job that was carried out to its state, complete or not, and emit the event of that name."""
        if awaits is not None:
            outcome = outcome | {"carried_out": format_time(self.clock())}
        job = self.queue.move(job.id, state, awaits=awaits, **outcome)
        self.emit(job.state, job)
        return job

    def complete_settled(self) -> None:
        """Close the jobs that were carried out, and that the vault's newest choice of settings has made complete."""
        settled = self.vault.settled
        if not self.queue.find_settled(settled):
            return
        with self.database.transaction():
            for job in self.queue.find_settled(settled):
                done = self.queue.move(job.id, "done", renewal=settled)
                self.emit("done", done)

    def view(self, job: Job, *, similar: bool = False) -> dict[str, Any]:
        """Return a job as JSON; an incomplete one says by when it is complete."""
        return job.view(similar=similar, complete_by=self.complete_by(job))

    def complete_by(self, job: Job) -> datetime | None:
        """Return when an incomplete job will be complete, None for others."""
        return self.renewals.expected_time() if job.incomplete else None

    @contextmanager
    def hold_requests(self) -> Iterator[None]:
        """Let no request of this service change the vault meanwhile; they are accepted, and wait."""
        with self._work_lock:
            yield

    def cancel(self, id_: str, reason: str, author: Author) -> Job | None:
        """Cancel a waiting request and return it; None if it is too late."""
        with self._work_lock, self.database.transaction():
            if self.queue.get(id_).state not in ("waiting", "held"):
                return None
            job = self.queue.move(id_, "cancelled", reason)
            self._record("job.cancelled", job, author, reason=reason)
            self.emit("cancelled", job)
        self._dirty = True
        self._wake.set()
        return job

    def extend(self, id_: str, reason: str, author: Author) -> Job | None:
        """Extend a request's deadline as its regulation allows; None if it is closed, overdue or already extended."""
        with self.database.transaction():
            job = self.queue.get(id_)
            if not job.open or job.extension or job.due < self.clock():
                return None
            job = self.queue.extend(id_, reason)
            self._record("job.extended", job, author, reason=reason, due=format_time(job.due))
        return job

    def _record(self, action: str, job: Job, author: Author, **details: Any) -> None:
        """Record a change of a job; its author may be another caller than the job's."""
        self.audit.record(
            action, actor=author.name, subject=job.id, reference=job.reference, token=author.token, **details
        )

    def issue_receipts(self, ids: Sequence[str | int], *, attest_unknown: bool = True) -> list[PersonalReceipt | None]:
        """Return one receipt per person, in order: for the erasure or, with ``attest_unknown``, for being unknown.

        A person without a receipt gets None.
        """
        texts = [str(id_) for id_ in ids]
        receipts = self.vault.personal_receipts(texts, skip_unknown=True, attest_unknown=attest_unknown)
        return [receipts.get(text) for text in texts]

    def _on_matters_changed(self) -> None:
        """Update all open jobs after a change of matters, and wipe released people from the database."""
        self._refresh_holds(self.queue.pending())
        self._dirty = True
        self._wake.set()

    def _refresh_holds(self, jobs: Sequence[Job]) -> list[Job]:
        """Update the holds of jobs; only those whose matters changed are touched."""
        reasons = self.matters.hold_reasons()
        return [
            self._refresh_hold(job) if reasons.get(job.id) != (job.reason if job.state == "held" else None) else job
            for job in jobs
        ]

    def _refresh_hold(self, job: Job) -> Job:
        """Put a job on hold, or take it off hold, as the active matters require."""
        if job.state not in ("waiting", "held"):
            return job
        with self._work_lock:
            return self._apply_hold(self.queue.get(job.id))

    def _apply_hold(self, job: Job) -> Job:
        matters, now = self.matters.find_for_job(job.id), self.clock()
        if job.state == "waiting" and not matters:
            return job
        history, reason = job.outcome.get("held", ()), describe_hold(matters)
        if job.state == "waiting":
            with self.database.transaction():
                job = self.queue.move(job.id, "held", reason, held=begin_hold(history, matters, now))
                self.emit("refused", job)
        elif job.state == "held" and matters and job.reason != reason:  # for other matters than before
            job = self.queue.move(job.id, "held", reason, held=begin_hold(history, matters, now))
        elif job.state == "held" and not matters:
            with self.database.transaction():  # the whole cancellation window starts again
                self.queue.move(job.id, "waiting", held=end_hold(history, now))
                job = self.queue.restart_window(job.id, now + self.options.window)
        return job

    def run_now(self, new_job: NewJob, carry_out: Callable[..., Receipt]) -> tuple[Job, Receipt]:
        """Carry out a request that cannot wait, because it brings rows or names erased ids; store it like the others.

        ``carry_out`` gets the caller's facts for the ledger: ``job``, ``reference`` and ``actor``.
        """
        self.check_writable()
        with self._work_lock:
            facts = {**new_job.facts, _NEWEST_REQUEST: len(self.vault.requests)}  # where to find it after a crash
            job = self.queue.add(replace(new_job, facts=facts), self.clock(), "running")
            try:
                receipt = carry_out(job=job.id, reference=new_job.reference[:_MAX_REFERENCE_CHARS], actor=new_job.actor)
            except Unfinished:  # accepted or not: the ledger will show it
                raise
            except ExpungeError as error:
                self.queue.move(job.id, "failed", describe_error(error))
                raise
            except BaseException as error:
                self._settle_job(job, describe_error(error))
                raise
            with self.database.transaction():
                outcome, awaits = receipt_outcome(receipt), receipt.request if receipt.open else None
                job = self._finish(job, awaits, outcome, certified=receipt.certificate is not None)
        return job, receipt

    def _finish(self, job: Job, awaits: int | None, outcome: dict[str, Any], *, certified: bool) -> Job:
        """Close a job that was never announced; only a correction can await a renewal."""
        self.emit("accepted", job)
        job = self._close(job, "done" if awaits is None else "corrected", awaits, outcome)
        if certified:
            self.emit("certified", job)
        return job

    def settle_interrupted(self) -> None:
        """Find the outcome of interrupted jobs in the ledger."""
        with self._work_lock:  # so that no job is running now
            for job in self.queue.running():
                self._settle_job(job, "the service ended before the request was accepted: send it again")

    def _settle_job(self, job: Job, reason: str) -> None:
        """Mark a running job as done if the ledger has it, else as failed for this reason."""
        self.check_writable()
        after = int(job.outcome.get(_NEWEST_REQUEST, 0))
        logged = self.vault.find_job(job.id, after)
        if logged is not None and logged.state == "accepted":
            self.vault.reopen()  # which completes it
            logged = self.vault.find_job(job.id, after)
        if logged is None:
            self.queue.move(job.id, "failed", reason)
        elif logged.state != "accepted":
            with self.database.transaction():
                awaits = None if self.vault.is_complete(logged) else logged.number
                outcome = {"request": logged.number, "rows": logged.rows, "people": logged.people, "open": logged.open}
                self._finish(job, awaits, outcome, certified=logged.certificate is not None)

    def certificate(self, job: Job) -> str | None:
        """Return the certificate of a finished request, or None."""
        number = job.outcome.get("request")
        return None if number is None else self.vault.certificate(number)

    def keyed_hash(self, data: bytes) -> str:
        """Return a keyed hash: without the vault's key it cannot be used to test guesses."""
        return hmac.digest(self._mark_key, data, "sha256").hex()

    def start(self) -> None:
        """Recover interrupted jobs, and start the threads that carry out what is due."""
        self.matters.save_policy()
        self._recover()
        self.verifications.mark_interrupted()
        self.renewals.mark_interrupted()
        self._thread = threading.Thread(target=self._run_clock, name="expunge-clock", daemon=True)
        self._thread.start()
        self.deliveries.start()

    def _recover(self) -> None:
        """Settle interrupted jobs, and log if the queue is an older copy than the ledger."""
        missing = 0
        for logged in islice(reversed(self.vault.requests), _RECENT_REQUESTS):
            jobs = [caller.job for caller in logged.callers if caller.job]
            if jobs and all(map(self.queue.has, jobs)):
                break
            missing += len(jobs)
        if missing:
            log("queue-older-than-ledger", level="warning", requests=missing)
        self.settle_interrupted()

    def check_writable(self) -> None:
        """Raise Unfinished after a failed sync: nothing is accepted until the vault is reopened."""
        if self.vault.sync_failed:
            raise Unfinished(
                "the disk failed to confirm a write: nothing is accepted until the vault has been reopened, which the "
                "service tries every second"
            )

    def _ensure_writable(self) -> bool:
        """Reopen the vault after a failed sync; return whether it can be written to."""
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
            except Exception as error:  # the next round may succeed; the thread must not end
                log_error("clock-failed", error)
            self._wake.wait(_TICK)
            self._wake.clear()

    def wake(self) -> None:
        """Make the clock's thread check soon: something changed."""
        self._wake.set()

    def run_due(self) -> None:
        """Carry out due jobs, announce overdue ones, and wipe finished people."""
        if (back := self._clock_check.step_back(self.clock())) is not None:
            log("clock-went-back", level="warning", seconds=round(back.total_seconds()))
        self.database.try_write()
        with self.database.transaction():
            for job in self.queue.mark_overdue():
                self.emit("overdue", job)
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
        self.complete_settled()
        self.renewals.run_due()

    def _wipe_finished(self) -> None:
        """Wipe finished people from the database, with long pauses if that is slow."""
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
        """Return the jobs whose cancellation window is over and, if requests are batched, whose batch is due."""
        now, options = self.clock(), self.options
        ready = [job for job in waiting if job.runs <= now]
        if options.batch_size is not None and len(ready) >= options.batch_size:
            return ready
        if options.batch_every is not None:
            return ready if any(job.runs + options.batch_every <= now for job in ready) else []
        return [] if options.batch_size is not None else ready

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the running job and close the database; return whether that was possible within the timeout."""
        self.draining = self.closing = True
        self._stop.set()
        self._wake.set()
        for call in self.on_stop:
            call()
        if self._thread is not None:
            self._thread.join(timeout)
        self.verifications.stop(timeout)
        self.renewals.stop(timeout)
        self.deliveries.stop()
        if not self._work_lock.acquire(timeout=-1 if timeout is None else timeout):
            return False
        try:
            if not self._closed:
                self._closed = True
                with suppress(sqlite3.OperationalError):  # a full disk: the next start wipes
                    self.database.wipe()
                self.database.close()
        finally:
            self._work_lock.release()
        return True

    def emit(self, name: str, job: Job) -> None:
        """Pass an event to all listeners; a listener that fails does not affect the request or the others."""
        for listener in self.listeners:
            try:
                listener(Event(name, job))
            except Exception as error:
                log_error("listener-failed", error, of=name)


P = ParamSpec("P")
R = TypeVar("R")

_MAX_WAITING = 100  # threads; more callers wait without one
_writer_limiter: RunVar[CapacityLimiter] = RunVar("threads that wait for the writer")


async def run_in_writer_thread(task: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a task that may wait for the vault's writer, in a thread pool of its own.

    Routes run in a pool of 40 threads. If erasures waited in that pool, 40 of them would block every prediction and
    every probe while the disk is slow or the vault is locked.
    """
    limiter = _writer_limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_MAX_WAITING)
        _writer_limiter.set(limiter)
    return await to_thread.run_sync(partial(task, *args, **kwargs), limiter=limiter)
