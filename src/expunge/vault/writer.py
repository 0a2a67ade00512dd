"""The writer: how a request is carried out so that a crash at any instruction loses nothing and leaves nothing.

1. *Prepare*: every new file and the new manifest are written beside the old ones (learners and manifests into their
   spare pages) and synced; long lists of slots and people beside the ledger (`disk.lists`). A failure here leaves only
   leftovers, which are wiped: the request was not accepted and nothing has changed.
2. *Accept*: one record in the ledger, synced. From here on the request will be carried out, by whoever opens the vault.
3. *Commit*: `current` names the new manifest, by a line that is overwritten and synced (`disk.pointers`).
4. *Overwrite* the erased rows, their bits and their owners' entries in place, each file synced. The record in the
   ledger says which, so doing it again does the same.
5. *Wipe* what the new manifest does not name: old moments, weights, manifest (with its salt), corrected rows that are
   now in their slots. Zeros are written and synced; then a page is made empty, and any other file is removed.
6. *Certify*: the payload and its signature in the ledger, synced.

The ledger leads and the folder follows. That a request is accepted only once it is prepared means that nobody waits
for it while it is computed, that a full disk refuses it whole, and that recovery (`recovery`) needs no computation: it
commits and goes on with step 4. Only an old copy of the folder, put back, has to be computed anew.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from ..encoding.encoder import Encoder
from ..errors import ExpungeError, InvalidFile, Unfinished, VaultBusy
from ..exact.moments import Moments
from ..saving import files
from ..saving.files import SyncFailed
from ..stores.change import Change
from .certificates.keyring import known_keys
from .certificates.keys import Keys
from .certificates.notary import Notary, now
from .condition import check_identity, index_of, stamp_of
from .disk.folder import Folder, Places, VaultIdentity
from .disk.leaves import Leaves
from .disk.lists import Lists, names_of
from .disk.manifest import Manifest
from .disk.rowfile import RowFile
from .disk.snapshot import Model, Snapshot, load_people, load_snapshot
from .ledger import forks
from .ledger.ledger import Ledger
from .ledger.records import Record, compose
from .ledger.turns import Turns
from .recovery import recover
from .requests import Request
from .requests.caller import Caller, caller_fields
from .requests.plan import Plan, Site
from .requests.taking import Workers


class Writer:
    """A vault of which this process can be the one writer. What it has loaded is valid while it holds the lock."""

    def __init__(self, places: Places, identity: VaultIdentity, keys: Keys) -> None:
        self.places, self.identity = places, identity
        self.folder, self.ledger = Folder(places.vault), Ledger(places.ledger)
        self.index = index_of(places, identity)
        self.notary = Notary(identity.vault, self.ledger, self.index, places.certificates, keys)
        self.leaves, self.lists = Leaves(places.leaves), Lists(places.lists, places.vault)
        self.trained: Snapshot | None = None  # what is loaded; None before the first training
        self.newest = 0  # the newest request in the ledger; an old copy of the folder has not seen it
        self.workers: Workers | None = None  # other processes that help with a request
        self.turns = Turns()
        self._stamp: object = None
        self._forgotten = False
        self.sync_failed = False  # what is on the disk is uncertain: the vault has to be opened anew
        forks.watch(self)

    @property
    def site(self) -> Site:
        """Where the next request is planned."""
        known, leaves = self.notary.known, self.leaves
        return Site(
            self.folder,
            self.identity,
            self.newest + 1,
            self.trained,
            known,
            leaves,
            self.check_process,
            self.workers,
            self._summed,
        )

    @property
    def now(self) -> Snapshot:
        """The vault as of the last request."""
        if self.trained is None:
            return self.site.now  # says what is wrong
        return self.trained

    # The lock

    @contextmanager
    def locked(self, wait: float) -> Iterator[None]:
        """Hold the lock; whatever was accepted and not finished is finished first."""
        self.check_process()
        deadline = time.monotonic() + wait
        with self.turns.taken(wait):
            if self.sync_failed:
                raise Unfinished("a sync failed, so what is on the disk is uncertain: open the vault anew to go on")
            with self.ledger.locked(max(0.0, deadline - time.monotonic())), files.holding(self.folder.path):
                try:
                    self._take_up()
                    yield
                except BaseException as error:
                    self.sync_failed = isinstance(error, SyncFailed) or isinstance(error.__cause__, SyncFailed)
                    if isinstance(error, Exception):  # in a child that was forked meanwhile it says nothing
                        self.check_process()
                    raise

    def _take_up(self) -> None:
        """See that this is the vault that was opened, and read what is not in memory, or is there no more."""
        self.notary.notes = []
        check_identity(self.folder, self.ledger, self.identity)
        if self._forgotten or self._stamp is None or self._stamp != self._look() or self._left_behind():
            self.trained = self._stamp = None
            recover(self)
            self._stamp, self._forgotten = self._look(), False
        elif self.trained is not None:
            self.trained.check_sizes()

    def forget(self) -> None:
        """Read everything anew the next time."""
        self._forgotten = True

    def forked(self) -> None:
        """In a child: read everything anew. Threads of the parent that were at work are not here."""
        self.turns.forked()
        self.ledger.forked()
        self.trained = self._stamp = None

    def check_process(self) -> None:
        """Refuse to go on with what the parent of this process is carrying out."""
        if self.turns.broken_off:
            raise VaultBusy("this process was forked in the midst of a request, which is its parent's: open it anew")

    def _look(self) -> object:
        return stamp_of(self.folder, self.ledger)

    def _left_behind(self) -> bool:
        """Whether another process ended before its request was accepted: its files, and rows it added, are wiped."""
        manifest = None if self.trained is None else self.trained.manifest
        return bool(self.folder.leftovers(manifest)) or self.notary.left_behind

    # The six steps

    def perform(self, plan: Plan, callers: Sequence[Caller] = (), introduction: Record | None = None) -> Record:
        """Carry a request out, with what its callers have to say about it; another key may sign from then on."""
        self.check_process()
        self._stamp = None  # whatever goes wrong from here on: read everything anew
        before = [] if introduction is None else [introduction]
        after = before[-1].end if before else self.ledger.tip
        site, request = replace(self.site, keys=known_keys(self.notary.known, before)), plan.request
        said, lists = request.written()
        body = {"request": site.number, "kind": request.kind, "waiting": self.notary.waiting, **said}
        record = compose(after, {**body, **caller_fields(callers), "time": now()})
        with self.preparing():
            for name in names_of([record]):
                self.lists.write(site.number, name, lists)
            manifest = plan.prepare(site, after, record)
        self._accept(*before, record)
        try:
            self.lists.keep(names_of([record]))
            if introduction is not None:
                self.notary.learn(introduction)
                self.notary.settle()
            self.folder.commit(manifest)
            self.finish(record, request, self._after(plan, manifest))
        except Exception as error:
            raise Unfinished(
                f"request {record.request} was accepted but could not be finished: {error}; "
                "the next command on this vault goes on with it"
            ) from error
        with suppress(OSError):  # it is done, whatever there is to be seen now
            self._stamp = self._look()
        return record

    def _accept(self, *records: Record) -> None:
        """Write that a request is accepted, and sync; if only the sync fails, nobody can say that it is not."""
        request = records[-1].request
        try:
            self.ledger.append(*records)
        except SyncFailed as error:
            raise Unfinished(
                f"request {request} was written to the ledger and {error.strerror}; unless the machine fails "
                "before, the next command on this vault carries it out: expunge log tells"
            ) from error
        self.newest = request
        self.leaves.keep()

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Wipe the files that are being prepared if that fails: then nothing has changed."""
        self._stamp = None
        try:
            yield
        except BaseException as error:
            if not isinstance(error, SyncFailed) and not self.turns.broken_off:
                with suppress(OSError, ExpungeError):  # what cannot be wiped now is wiped when the vault is next opened
                    self._abandon()
            self.trained = None
            raise

    def _abandon(self) -> None:
        self.leaves.discard()
        self.lists.discard()
        manifest = self.folder.current()
        if manifest is None:
            return self.folder.wipe_all_but(None)
        self.load(manifest)
        return self.tidy()

    def _after(self, plan: Plan, manifest: Manifest) -> Snapshot:
        """What a plan leads to, from memory; only new entries of people are read."""
        schema = self.now.schema if plan.charter is None else plan.charter.schema
        people = self.now.people if plan.people is None else load_people(self.folder, manifest.people, manifest.seal)
        return Snapshot(self.folder, Model(manifest, schema, plan.state), people)

    def finish(self, record: Record, request: Request, vault: Snapshot) -> None:
        """Overwrite, wipe and certify (steps 4 to 6). Doing it again changes nothing."""
        request.overwrite(vault, record.request)
        self.check_rows(vault)
        self.folder.wipe_all_but(vault.manifest)
        self.trained = vault
        if note := request.note():
            self.notary.notes.append(note)
        self.notary.certify(record, vault.manifest, vault.state.ensemble.digest())
        self.index.save_if_due(self.ledger.tip.offset)

    @contextmanager
    def helped(self, workers: Workers | None) -> Iterator[None]:
        """Let workers help, if there are any, with the request for which this thread has the lock."""
        self.workers = workers
        try:
            yield
        finally:
            self.workers = None

    def _summed(self, rows: RowFile, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        """What workers have summed, if there are any now."""
        return None if self.workers is None else self.workers.summed(rows, encoder, stripes, change)

    # What recovery shares

    def load(self, manifest: Manifest) -> Snapshot:
        """Read what a manifest names."""
        self.trained = load_snapshot(self.folder, manifest, None if self.trained is None else self.trained.model)
        self.trained.rows.helpers = self._summed
        return self.trained

    def check_rows(self, vault: Snapshot) -> None:
        """Refuse a folder whose bits say other slots than its manifest: a hidden row would stay in the moments."""
        if vault.rows.live.count() != vault.manifest.rows:
            raise InvalidFile(f"{self.folder.path} is damaged: it has another number of rows than its manifest says")
        if vault.rows.sum != vault.manifest.slots_sum:
            raise InvalidFile(f"{self.folder.path} is damaged: it has rows in other slots than its manifest says")

    def tidy(self) -> None:
        """Wipe rows beyond those that count, which were being added when something failed, then all leftovers."""
        self.now.rows.trim()
        self.folder.wipe_all_but(self.now.manifest)
