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
from itertools import islice
from typing import Any

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
from .clocks import Clock, ClockCheck, as_text, utc_now
from .combining import Combiner
from .database import Database
from .deliveries import Deliveries
from .hooks import Hooks
from .logs import log, log_error
from .matters import Author, Matters, Policy, begin_hold, describe_hold, end_hold
from .options import Options
from .outcomes import erasure_outcome, erasure_state, outcome_of, why
from .queue import ERASURE, Job, NewJob, Queue
from .tokens import Tokens
from .verifications import Verifications

__all__ = ["Event", "Options", "Service"]

_NEWEST = "_newest"  # in a job that changes rows: the newest request of the vault when it came; not shown
_TICK = 1.0  # seconds between two looks at what is due
_WORDS = 200  # characters of a reference that the ledger takes
_LINGER = 0.5  # of the time that a group took, to wait for its callers to come back
_MOST_TOGETHER = 10_000  # people in one request of the vault, unless one caller names more
_RECENT = 1000  # requests of the ledger that are compared with the queue at the start
MOST_RECEIPTS = 1000  # people of a job whose receipts are made with it
_REFUSALS = (InvalidInput, InvalidSetting, UnknownId, ErasedId, NothingLearned, CapacityExceeded, OnHold)
_RESTS = 20  # times as long as a wipe that takes long, until the next


@dataclass(frozen=True)
class Event:
    """Something that happened to a job, as listeners get it."""

    name: str  # accepted, done, certified, cancelled, refused or overdue
    job: Job


@dataclass
class _Intake:
    """A job that a caller asks for."""

    asked: NewJob
    at_once: bool  # whether the caller carries it out, and waits for that
    job: str = ""  # its id, once it is claimed by its caller


@dataclass(frozen=True)
class Carried:
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
        policy = Policy(self.options.window, self.options.two_person_release)
        self.matters = Matters(vault, database, clock, policy)
        self.matters.changed = self._matters_changed
        self.audit = AuditTrail(database, clock)
        self.verifications, self.aliases = Verifications(self), Aliases(vault, database)
        self.deliveries = Deliveries(database, clock, allowed=self.options.allow_hosts)
        self.listeners = list[Callable[[Event], None]]()
        self.hooks = Hooks(self)
        self.draining = False  # not ready any more: whoever balances the load sends requests elsewhere
        self.closing = self._ended = False  # no new request is taken
        self._working = threading.RLock()  # one request after the other
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._clock_check = ClockCheck(self.queue.newest_time())
        self._mark_key = vault.derive("service marks")
        self._intake = Combiner(self._take_in, database.writing)
        self._together = Combiner(self._run_waiting, lambda: self._working, linger=_LINGER)
        self._claimed = set[str]()  # jobs that a caller is about to carry out
        self._dirty, self._rests = True, 0.0  # whether the database may hold what is done; when it is wiped next

    # Erasures

    def erase(self, ids: Sequence[str | int], asked: NewJob, *, wait: bool = True) -> Job:
        """Take an erasure; it is on the disk when this returns, and carried out if nothing asks for a delay."""
        return self.erase_people(ids, asked, wait=wait).job

    def erase_people(
        self, ids: Sequence[str | int], asked: NewJob, *, wait: bool = True, receipts: bool = False
    ) -> "ErasureResult":
        """Take an erasure, as `erase` does, and return its receipts as well if it was carried out.

        The same people are not queued twice by one caller for one reference: their open request is the answer. Others
        who ask for them have requests of their own, which stay when this one is cancelled.
        """
        if not ids:
            raise InvalidInput("ids is empty: name at least one id")
        if len(ids) > self.options.most_ids:
            raise InvalidInput(f"a request names at most {self.options.most_ids:,} ids, got {len(ids):,}")
        if not asked.reference.isprintable():
            raise InvalidSetting("reference must be one line of text")
        self.check_writable()
        sealed = self.vault.seal(list(ids))
        people = {person.hash: person for person in sealed}
        asked = replace(asked, kind=ERASURE, people=tuple(people.values()), mark=self._mark_of(asked, people))
        wanted = _Intake(asked, at_once=wait and self.options.at_once)
        done: Carried | None = None
        try:
            with self._together.announce():
                job = self._intake.submit(wanted)
            if wanted.at_once and job.state == "waiting":
                done = self._together.submit((job, receipts and len(people) <= MOST_RECEIPTS))
                job = self.queue.get(job.id)
                if job.state == "waiting":
                    self.check_writable()
        finally:
            self._claimed.discard(wanted.job)
        if job.open:
            self._wake.set()
        if done is None:
            return ErasureResult(job)
        handed = None if done.receipts is None else [done.receipts.get(person.hash) for person in sealed]
        return ErasureResult(job, done.certificate, handed)

    def _take_in(self, several: "Sequence[_Intake]") -> list[Job]:
        """Write down what several callers ask for, in one transaction."""
        return [self._take_one_in(wanted) for wanted in several]

    def _take_one_in(self, wanted: "_Intake") -> Job:
        """Write a job down, unless it is known by its idempotency key, or open for the same people."""
        asked = wanted.asked
        if asked.answers is not None and (answered := self.queue.answered(asked.answers[0])) is not None:
            return answered[1]
        if asked.outside is None and asked.mark is not None and (same := self.queue.same(asked.mark)) is not None:
            self.queue.remember(asked.answers, same.id)
            return same
        job = self.queue.add(asked, self.clock() + self.options.window)
        if wanted.at_once:  # its caller carries it out: the clock's thread leaves it alone
            wanted.job = job.id
            self._claimed.add(job.id)
        self.tell("accepted", job)
        return self._follow_matters(job)

    def open_request(self, asked: NewJob, hashes: Iterable[bytes]) -> Job | None:
        """The request that this caller has open for the same people and reference."""
        return self.queue.same(self._mark_of(asked, hashes))

    def _mark_of(self, asked: NewJob, hashes: Iterable[bytes]) -> str:
        caller = f"{asked.protocol}\n{asked.caller}\n{asked.reference}\n".encode()
        return self.mark(caller + b"".join(sorted(hashes)))

    def _run_waiting(self, wanted: "Sequence[tuple[Job, bool]]") -> "list[Carried | None]":
        """Carry out the jobs of callers who wait for them, with receipts for those who asked for some."""
        found = self.run([job for job, _ in wanted], receipts=any(receipts for _, receipts in wanted))
        return [found.get(job.id) for job, _ in wanted]

    def run(self, jobs: Sequence[Job], *, receipts: bool = False) -> "dict[str, Carried]":
        """Carry erasures out together, each group in one request of the vault; what fails for now stays in the queue.

        Return what became of those that were carried out, by the job's id.
        """
        carried = dict[str, Carried]()
        with self._working:
            fresh = [self._look_at_holds(self.queue.get(id_)) for id_ in dict.fromkeys(job.id for job in jobs)]
            ready = [job for job in fresh if job.state == "waiting"]
            for group in self._groups_of(ready):
                carried |= self._run_group(group, receipts=receipts)
        return carried

    def _groups_of(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Divide jobs into those that share a request of the vault: a batch is one; else long lists go alone."""
        if self.options.batch_every is not None or self.options.batch_size is not None:
            return [list(jobs)] if jobs else []
        groups, count = list[list[Job]](), _MOST_TOGETHER
        for job in sorted(jobs, key=lambda job: job.people > MOST_RECEIPTS):
            if count + job.people > _MOST_TOGETHER or job.people > MOST_RECEIPTS:
                groups.append([])
                count = 0
            groups[-1].append(job)
            count += job.people
        return groups

    def _run_group(self, jobs: Sequence[Job], *, receipts: bool) -> "dict[str, Carried]":
        """Carry jobs out in one request of the vault, and write down what became of all in one transaction."""
        people = {job.id: self.queue.people(job.id) for job in jobs}
        named = dict[str, list[str]]()
        for job in jobs:
            try:
                named[job.id] = self.vault.unseal(people[job.id])
            except InvalidFile as error:  # one whose ids cannot be opened keeps no other waiting
                self.queue.move(job.id, "waiting", why(error))
        jobs = [job for job in jobs if named.get(job.id)]
        if not jobs:
            return {}
        few = receipts and sum(job.people for job in jobs) <= _MOST_TOGETHER
        erasures = [Erasure(named[job.id], job.reference[:_WORDS], job.actor, job.id) for job in jobs]
        try:
            receipt, outcomes = self.vault.unlearn_group(erasures, receipts=few, attest_unknown=few, wipe=False)
        except (ExpungeError, OSError) as error:
            if len(jobs) > 1 and isinstance(error, _REFUSALS):  # one of them is wrong: it must not fail the others
                parts = [self._run_group([job], receipts=receipts) for job in jobs]
                return {id_: carried for part in parts for id_, carried in part.items()}
            log_error("erasure-failed", error, jobs=len(jobs))
            with self.database.writing():
                for job in jobs:  # it is tried again, and nobody has to ask for it
                    self.queue.move(job.id, "waiting", why(error))
            return {}
        self._dirty = True
        carried = dict[str, Carried]()
        with self.database.writing():  # events are written down with what they tell, or neither is
            everybody = (person for job in jobs for person in people[job.id])
            self.aliases.forget(everybody, None if receipt is None else receipt.request)
            for job, persons in zip(jobs, outcomes, strict=True):
                outcome = erasure_outcome(persons, receipt)
                done = self.queue.move(job.id, erasure_state(outcome), **outcome)
                self.tell(done.state, done)
                ours = receipt is not None and receipt.request == outcome["request"]
                certificate = receipt.certificate if receipt is not None and ours else None
                if certificate is not None:
                    self.tell("certified", done)
                by_hash = {sealed.hash: one.receipt for sealed, one in zip(people[job.id], persons, strict=True)}
                carried[job.id] = Carried(certificate, by_hash if few else None)
        return carried

    def cancel(self, id_: str, reason: str, author: Author) -> Job | None:
        """Cancel a request that waits; None if it is too late."""
        with self._working, self.database.writing():
            if self.queue.get(id_).state not in ("waiting", "held"):
                return None
            entry = self.queue.move(id_, "cancelled", reason)
            self._record("job.cancelled", entry, author, reason=reason)
            self.tell("cancelled", entry)
        self._dirty = True
        self._wake.set()
        return entry

    def extend(self, id_: str, reason: str, author: Author) -> Job | None:
        """Give a request the longer time that its regulation allows; None if it or its time is over, or extended."""
        with self.database.writing():
            entry = self.queue.get(id_)
            if not entry.open or entry.extension or entry.due < self.clock():
                return None
            entry = self.queue.extend(id_, reason)
            self._record("job.extended", entry, author, reason=reason, due=as_text(entry.due))
        return entry

    def _record(self, action: str, job: Job, author: Author, **details: Any) -> None:
        """Record what somebody did to a job, who need not be the one who asked for it."""
        self.audit.record(
            action, actor=author.name, subject=job.id, reference=job.reference, token=author.token, **details
        )

    def receipts(self, ids: Sequence[str | int], *, strangers: bool = True) -> list[PersonalReceipt | None]:
        """The receipt of each of these people, in their order: that they were erased, or that nothing is known.

        Without ``strangers`` nobody gets the second kind.
        """
        texts = [str(one) for one in ids]
        found = self.vault.personal_receipts(texts, skip_unknown=True, attest_unknown=strangers)
        return [found.get(one) for one in texts]

    # Holds

    def _matters_changed(self) -> None:
        """Let requests wait, or run, as the matters say now; whom a release forgot is wiped from the database."""
        self._look_at_all_holds(self.queue.pending())
        self._dirty = True
        self._wake.set()

    def _look_at_all_holds(self, jobs: Sequence[Job]) -> list[Job]:
        """Do that for many jobs: only those are looked at for which the matters say something else than before."""
        reasons = self.matters.reasons()
        return [
            self._look_at_holds(job) if reasons.get(job.id) != (job.reason if job.state == "held" else None) else job
            for job in jobs
        ]

    def _look_at_holds(self, entry: Job) -> Job:
        """Let a request wait, or be held, as the matters in force say."""
        if entry.state not in ("waiting", "held"):
            return entry
        with self._working:
            return self._follow_matters(self.queue.get(entry.id))

    def _follow_matters(self, entry: Job) -> Job:
        matters, now = self.matters.holding(entry.id), self.clock()
        times, reason = entry.outcome.get("held", ()), describe_hold(matters)
        if entry.state == "waiting" and matters:
            with self.database.writing():
                entry = self.queue.move(entry.id, "held", reason, held=begin_hold(times, matters, now))
                self.tell("refused", entry)
        elif entry.state == "held" and matters and entry.reason != reason:  # it waits for other matters than before
            entry = self.queue.move(entry.id, "held", reason, held=begin_hold(times, matters, now))
        elif entry.state == "held" and not matters:
            with self.database.writing():  # whoever asked can cancel it again, for as long as at the beginning
                self.queue.move(entry.id, "waiting", held=end_hold(times, now))
                entry = self.queue.restart_window(entry.id, now + self.options.window)
        return entry

    # Other requests

    def change(self, asked: NewJob, carry_out: Callable[..., Receipt]) -> tuple[Job, Receipt]:
        """Carry out a request that brings rows or names erased ids, which cannot wait; it is logged like the others.

        ``carry_out`` gets what the ledger says of the request: ``job``, ``reference`` and ``actor``.
        """
        self.check_writable()
        with self._working:
            facts = {**asked.facts, _NEWEST: len(self.vault.requests)}  # where to look for it, if this is cut off
            job = self.queue.add(replace(asked, facts=facts), self.clock(), "running")
            try:
                receipt = carry_out(job=job.id, reference=asked.reference[:_WORDS], actor=asked.actor)
            except Unfinished:  # it was accepted, or nobody can say: the ledger will tell
                raise
            except ExpungeError as error:
                self.queue.move(job.id, "failed", why(error))
                raise
            except BaseException as error:
                self._settle(job, why(error))
                raise
            with self.database.writing():
                job = self.queue.move(job.id, "done", **outcome_of(receipt))
                self._tell_done(job, certified=receipt.certificate is not None)
        return job, receipt

    def _tell_done(self, job: Job, *, certified: bool) -> None:
        self.tell("accepted", job)
        self.tell("done", job)
        if certified:
            self.tell("certified", job)

    def settle(self) -> None:
        """Find out from the ledger what became of jobs that were cut off while they were running."""
        with self._working:  # so that none of them is running now
            for job in self.queue.running():
                self._settle(job, "the service ended before it was accepted: ask again")

    def _settle(self, job: Job, reason: str) -> None:
        """Say of a running job that it is done if the ledger has it, else that it failed, for this reason."""
        self.check_writable()
        after = int(job.outcome.get(_NEWEST, 0))
        logged = self.vault.find_job(job.id, after)
        if logged is not None and logged.state == "accepted":
            self.vault.reopen()  # which finishes it
            logged = self.vault.find_job(job.id, after)
        if logged is None:
            self.queue.move(job.id, "failed", reason)
        elif logged.state != "accepted":
            with self.database.writing():
                done = self.queue.move(job.id, "done", request=logged.number, rows=logged.rows, people=logged.people)
                self._tell_done(done, certified=logged.certificate is not None)

    def certificate(self, entry: Job) -> str | None:
        """The certificate of a request that is done, if it has one."""
        number = entry.outcome.get("request")
        return None if number is None else self.vault.certificate(number)

    # Marks

    def mark(self, data: bytes) -> str:
        """Return a keyed hash: without the vault's key nobody can test guesses with it."""
        return hmac.digest(self._mark_key, data, "sha256").hex()

    # The clock

    def start(self) -> None:
        """Take up what was interrupted, and look from now on at what is due."""
        self.matters.save_policy()
        self._take_up()
        self.verifications.take_up()
        self._thread = threading.Thread(target=self._look_now_and_then, name="expunge-clock", daemon=True)
        self._thread.start()
        self.deliveries.start()

    def _take_up(self) -> None:
        """Settle what was running when the process ended, and say if the queue is an older copy than the ledger."""
        missing = 0
        for logged in islice(reversed(self.vault.requests), _RECENT):
            jobs = [caller.job for caller in logged.callers if caller.job]
            if jobs and all(map(self.queue.has, jobs)):
                break
            missing += len(jobs)
        if missing:
            log("the queue is older than the ledger", requests=missing)
        self.settle()

    def check_writable(self) -> None:
        """Refuse what could not be carried out: after a failed sync nothing is taken until the vault is reopened."""
        if self.vault.sync_failed:
            raise Unfinished(
                "the disk failed to confirm a write: nothing is accepted until the vault has been opened anew, which "
                "the service tries every second"
            )

    def _reopened(self) -> bool:
        """Whether the vault can be written to; after a failed sync it is opened anew, which finishes what it can."""
        if not self.vault.sync_failed:
            return True
        with self._working:
            try:
                self.vault.reopen()
            except (ExpungeError, OSError) as error:
                log_error("reopening-failed", error)
                return False
        log("vault-reopened")
        return True

    def _look_now_and_then(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception as error:  # the next look may do better; a thread that ends would do none
                log_error("clock-failed", error)
            self._wake.wait(_TICK)
            self._wake.clear()

    def wake(self) -> None:
        """Look soon: something changed."""
        self._wake.set()

    def look(self) -> None:
        """Carry out what is due, tell what is overdue, and wipe what is done."""
        if (back := self._clock_check.step_back(self.clock())) is not None:
            log("clock-went-back", level="warning", seconds=round(back.total_seconds()))
        with self.database.writing():
            for entry in self.queue.late():
                self.tell("overdue", entry)
        if not self._reopened():
            return
        pending = self.queue.pending()
        if any(job.state == "running" for job in pending):
            self.settle()
        waiting = [job for job in self._look_at_all_holds(pending) if job.state == "waiting"]
        if due := self._due(job for job in waiting if job.id not in self._claimed):
            self.run(due)
        self._dirty = bool(self.aliases.sweep()) or self._dirty
        self.matters.remind()
        self.matters.announce(self.hooks.announce_matter)
        self.verifications.look()
        self._tidy()

    def _tidy(self) -> None:
        """Wipe what is done from the database, but not all the time if that takes long."""
        started = time.monotonic()
        if self._dirty and started >= self._rests:
            self._dirty = False
            try:
                done = self.database.wipe()
            except BaseException:
                self._dirty = True
                raise
            took = time.monotonic() - started
            self._rests = started + _RESTS * took if took > 0.1 else 0.0
            self._dirty = self._dirty or not done

    def _due(self, waiting: Iterable[Job]) -> list[Job]:
        """Those whose time has come: their window is over and, if requests are batched, so is that of their batch."""
        now, options = self.clock(), self.options
        ready = [entry for entry in waiting if entry.runs <= now]
        if options.batch_size is not None and len(ready) >= options.batch_size:
            return ready
        if options.batch_every is not None:
            return ready if any(entry.runs + options.batch_every <= now for entry in ready) else []
        return [] if options.batch_size is not None else ready

    def stop(self, patience: float | None = None) -> bool:
        """Finish what is being carried out; what waits is in the queue. Whether that took no longer than this."""
        self.draining = self.closing = True
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(patience)
        self.verifications.stop(patience)
        self.deliveries.stop()
        if not self._working.acquire(timeout=-1 if patience is None else patience):
            return False
        try:
            if not self._ended:
                self._ended = True
                with suppress(sqlite3.OperationalError):  # a full disk: whoever starts next wipes
                    self.database.wipe()
                self.database.close()
        finally:
            self._working.release()
        return True

    # Who listens

    def tell(self, event: str, entry: Job) -> None:
        """Tell listeners what happened; one that fails changes nothing for the request, or for the others."""
        for listener in self.listeners:
            try:
                listener(Event(event, entry))
            except Exception as error:
                log_error("listener-failed", error, of=event)
