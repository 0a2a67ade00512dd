"""The service: takes requests, carries them out in the vault when their time has come, and keeps their clocks.

One request after the other changes the vault. An erasure is written to the queue first; what is acknowledged is there
after any crash, and is carried out by whoever starts next. Doing it again does no harm: an id is erased once.
"""

import hashlib
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from ..errors import ExpungeError, InvalidFile, InvalidInput, InvalidSetting, UnknownId
from ..vault import PersonalReceipt, Receipt, Vault
from .aliases import Aliases
from .clocks import Clock, utc_now
from .database import Database
from .deliveries import Deliveries
from .holds import Hold, Holds, begun, on_hold, over
from .hooks import Hooks
from .logs import log
from .options import Options
from .outcomes import erasure_outcome, outcome_of, why
from .queue import ERASURE, Asked, Entry, Queue
from .tokens import Tokens
from .verifying import Verifications

__all__ = ["Options", "Service", "Told"]

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # of a request
_TICK = 1.0  # seconds between two looks at what is due
_WORDS = 200  # characters of a reference that the ledger takes
_RESTS = 20  # times as long as a wipe that takes long, until the next


@dataclass(frozen=True)
class Told:
    """What happens to a request, for whoever listens."""

    event: str  # accepted, done, certified, cancelled, refused or overdue
    entry: Entry


class Service:
    """One vault, and the requests about it."""

    def __init__(
        self, vault: Vault, database: Database, options: Options | None = None, clock: Clock = utc_now
    ) -> None:
        self.vault, self.database, self.options, self.clock = vault, database, options or Options(), clock
        self.queue, self.holds, self.tokens = Queue(database, clock), Holds(database, clock), Tokens(database, clock)
        self.verifications, self.aliases = Verifications(vault), Aliases(vault, database)
        self.deliveries = Deliveries(database, clock, allowed=self.options.allow_hosts)
        self.listeners = list[Callable[[Told], None]]()
        self.hooks = Hooks(self)
        self.draining = self._ended = False
        self._working = threading.RLock()  # one request after the other
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._dirty, self._rests = True, 0.0  # whether the database may hold what is done; when it is wiped next

    # Erasures

    def erase(self, ids: Sequence[str | int], asked: Asked, *, wait: bool = True) -> Entry:
        """Take an erasure; it is on the disk when this returns, and carried out if nothing asks for a delay.

        The same people are not queued twice by one caller for one reference: their open request is the answer. Others
        who ask for them have requests of their own, which stay when this one is cancelled.
        """
        if not ids:
            raise InvalidInput("ids is empty: name at least one id")
        if len(ids) > self.options.most_ids:
            raise InvalidInput(f"a request names at most {self.options.most_ids:,} ids, got {len(ids):,}")
        if not asked.reference.isprintable():
            raise InvalidSetting("reference must be one line of text")
        sealed = {one.hash: one for one in self.vault.seal(list(ids))}
        mark = self._mark_of(asked, sealed)
        with self.database.writing():
            if (known := self.queue.same(mark)) is not None and asked.outside is None:
                self.queue.remember(asked.answers, known.id)
                return known
            runs = self.clock() + self.options.window
            asked = replace(asked, kind=ERASURE, people=tuple(sealed.values()), mark=mark)
            entry = self.queue.add(asked, runs)
            self.tell("accepted", entry)
            if held := self.holds.of(list(sealed)):
                entry = self._hold_back(entry, held)
        if entry.state == "waiting" and self.options.at_once and wait:
            self.run([entry])
            entry = self.queue.get(entry.id)
        if entry.open:
            self._wake.set()
        return entry

    def open_request(self, asked: Asked, hashes: Iterable[bytes]) -> Entry | None:
        """The request that this caller has open for the same people and reference."""
        return self.queue.same(self._mark_of(asked, hashes))

    def _mark_of(self, asked: Asked, hashes: Iterable[bytes]) -> str:
        caller = f"{asked.protocol}\n{asked.actor}\n{asked.reference}\n".encode()
        return self.mark(caller + b"".join(sorted(hashes)))

    def run(self, entries: Sequence[Entry]) -> None:
        """Carry erasures out, all in one request of the vault; what fails for now stays in the queue."""
        with self._working:
            fresh = [self._look_at_holds(self.queue.get(one.id)) for one in entries]
            names = {entry.id: self._names(entry) for entry in fresh if entry.state == "waiting"}
            ready = [entry for entry in fresh if names.get(entry.id)]
            if not ready:
                return
            every = list(dict.fromkeys(one for some in names.values() for one in some))
            try:
                before = dict(zip(every, self.vault.holds(every), strict=True))
                receipt = self._unlearn(ready, every)
            except (ExpungeError, OSError) as error:
                log("trouble", error=type(error).__name__)
                for entry in ready:  # it is tried again, and nobody has to ask for it
                    self.queue.move(entry.id, "waiting", why(error))
                return
            self._dirty = True
            for entry in ready:
                outcome = erasure_outcome([before[one] for one in names[entry.id]], receipt)
                with self.database.writing():  # what is told is written down with it, or neither is
                    self.aliases.forget(self.queue.people(entry.id))
                    done = self.queue.move(entry.id, "done", **outcome)
                    self.tell("done", done)
                    if receipt is not None and receipt.certificate is not None and outcome["request"] is not None:
                        self.tell("certified", done)

    def _names(self, entry: Entry) -> list[str]:
        """The ids of a request; none if they cannot be opened, which is said and keeps no other request waiting."""
        try:
            return self.vault.unseal(self.queue.people(entry.id))
        except InvalidFile as error:
            self.queue.move(entry.id, "waiting", why(error))
            return []

    def _unlearn(self, ready: Sequence[Entry], ids: list[str]) -> Receipt | None:
        """Erase ids in one request; None if the vault knows none of them."""
        first = ready[0]
        alone = len(ready) == 1
        reference = f"{first.id} {first.reference}".strip() if alone else f"batch of {len(ready)} from {first.id}"
        actor = first.actor if alone else ""
        with suppress(UnknownId):
            return self.vault.unlearn(ids, skip_unknown=True, reference=reference[:_WORDS], actor=actor)
        return None

    def cancel(self, id_: str, reason: str) -> Entry | None:
        """Cancel a request that waits; None if it is too late."""
        with self._working, self.database.writing():
            if self.queue.get(id_).state not in ("waiting", "held"):
                return None
            entry = self.queue.move(id_, "cancelled", reason)
            self.tell("cancelled", entry)
        self._dirty = True
        self._wake.set()
        return entry

    def receipts(self, ids: Sequence[str | int], *, strangers: bool = True) -> list[PersonalReceipt | None]:
        """The receipt of each of these people, in their order: that they were erased, or that nothing is known.

        Without ``strangers`` nobody gets the second kind.
        """
        texts = [str(one) for one in ids]
        found = self.vault.personal_receipts(texts, skip_unknown=True)
        states = self.vault.holds(texts)
        unknown = [one for one, holding in zip(texts, states, strict=True) if holding.state == "unknown"]
        if unknown and strangers:
            found = found | self.vault.attest_unknown(unknown)
        return [found.get(one) for one in texts]

    # Holds

    def hold(self, ids: Sequence[str | int], reason: str, until: datetime | None, actor: str) -> list[Hold]:
        """Hold people: requests for them that wait are refused, and run by themselves when the hold ends."""
        hashes = [one.hash for one in self.vault.seal(list(ids))]
        with self._working:
            made = self.holds.set(dict.fromkeys(hashes), reason, until, actor)
            for entry in self.queue.pending():
                self._look_at_holds(entry)
        return made

    def holds_of(self, ids: Sequence[str | int]) -> list[list[Hold]]:
        """The holds of each of these people."""
        hashes = [one.hash for one in self.vault.seal(list(ids))]
        found = self.holds.of(hashes)
        return [[hold for hold in found if hold.hash == one] for one in hashes]

    def _look_at_holds(self, entry: Entry) -> Entry:
        """Let a request wait, or be held, as the holds in force say."""
        if entry.state not in ("waiting", "held"):
            return entry
        with self._working:
            entry, held = self.queue.get(entry.id), self.holds.of_request(entry.id)
            if held and entry.state == "waiting":
                entry = self._hold_back(entry, held)
            elif not held and entry.state == "held":
                entry = self.queue.move(entry.id, "waiting", held=over(entry, self.clock()))
        return entry

    def _hold_back(self, entry: Entry, held: Sequence[Hold]) -> Entry:
        with self.database.writing():
            entry = self.queue.move(entry.id, "held", on_hold(held), held=begun(entry, held, self.clock()))
            self.tell("refused", entry)
        return entry

    # Other requests

    def change(self, asked: Asked, carry_out: Callable[[str, str], Receipt]) -> tuple[Entry, Receipt]:
        """Carry out a request that brings rows or names erased ids, which cannot wait; it is logged like the others.

        ``carry_out`` gets the reference and the actor for the ledger.
        """
        with self._working:
            entry = self.queue.add(asked, self.clock(), "running")
            try:
                receipt = carry_out(f"{entry.id} {asked.reference}".strip()[:_WORDS], asked.actor)
            except BaseException as error:
                self.queue.move(entry.id, "failed", why(error))
                raise
            with self.database.writing():
                entry = self.queue.move(entry.id, "done", **outcome_of(receipt))
                self.tell("accepted", entry)
                self.tell("done", entry)
                if receipt.certificate is not None:
                    self.tell("certified", entry)
        return entry, receipt

    def certificate(self, entry: Entry) -> str | None:
        """The certificate of a request that is done, if it has one."""
        number = entry.outcome.get("request")
        if number is None:
            return None
        with suppress(OSError):  # the file that people take away; the ledger grows
            return self.vault.certificate_path(number).read_text().strip()
        return next((one.certificate for one in self.vault.requests if one.number == number), None)

    # Marks

    def mark(self, data: bytes) -> str:
        """A keyed hash of anything: who has not the vault's key cannot test guesses with it."""
        return self.vault.seal([hashlib.sha256(data).hexdigest()])[0].hash.hex()

    # The clock

    def start(self) -> None:
        """Take up what was interrupted, and look from now on at what is due."""
        self._take_up()
        self._thread = threading.Thread(target=self._look_now_and_then, name="expunge-clock", daemon=True)
        self._thread.start()
        self.deliveries.start()

    def _take_up(self) -> None:
        """Requests that were being carried out when the process ended: the ledger tells what became of them."""
        named = {one.reference.split(" ")[0]: one for one in self.vault.requests if one.reference}
        if missing := sum(_ID.fullmatch(name) is not None and not self.queue.has(name) for name in named):
            log("the queue is older than the ledger", requests=missing)
        for entry in self.queue.pending():
            if entry.state == "running":
                done = named.get(entry.id)
                if done is None:
                    self.queue.move(entry.id, "failed", "the service ended before it was accepted: ask again")
                else:
                    self.queue.move(entry.id, "done", request=done.number, rows=done.rows)

    def _look_now_and_then(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception as error:  # the next look may do better; a thread that ends would do none
                log("trouble", error=type(error).__name__)
            self._wake.wait(_TICK)
            self._wake.clear()

    def wake(self) -> None:
        """Look soon: something changed."""
        self._wake.set()

    def look(self) -> None:
        """Carry out what is due, tell what is overdue, and wipe what is done."""
        with self.database.writing():
            for entry in self.queue.late():
                self.tell("overdue", entry)
        waiting = [one for one in map(self._look_at_holds, self.queue.pending()) if one.state == "waiting"]
        if due := self._due(waiting):
            if self.options.batch_every is None and self.options.batch_size is None:
                for entry in due:
                    self.run([entry])
            else:
                self.run(due)
        self._dirty = bool(self.holds.forget()) or self._dirty
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

    def _due(self, waiting: Iterable[Entry]) -> list[Entry]:
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
        self.draining = True
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(patience)
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

    def tell(self, event: str, entry: Entry) -> None:
        """Tell listeners what happened; one that fails changes nothing for the request, or for the others."""
        for listener in self.listeners:
            try:
                listener(Told(event, entry))
            except Exception as error:
                log("trouble", error=type(error).__name__)
