"""The writer: how a request is carried out so that a crash at any instruction loses nothing and leaves nothing.

1. *Prepare*: every new file and the new manifest are written beside the old ones and synced. A failure here leaves only
   leftovers, which are wiped: the request was not accepted and nothing has changed.
2. *Accept*: one record in the ledger, synced. From here on the request will be carried out, by whoever opens the vault.
3. *Commit*: `current` names the new manifest, by a rename; the folder is synced.
4. *Overwrite* the erased rows, their bits and their owners' entries in place, each file synced. The record in the
   ledger says which, so doing it again does the same.
5. *Wipe* and unlink what the new manifest does not name: old moments, weights, manifest (with its salt), corrected rows
   that are now in their slots. The folder is synced.
6. *Certify*: the payload and its signature in the ledger, synced.

The ledger leads and the folder follows. That a request is accepted only once it is prepared means that nobody waits
for it while it is computed, that a full disk refuses it whole, and that recovery (`recovery`) needs no computation: it
commits and goes on with step 4. Only an old copy of the folder, put back, has to be computed anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import numpy as np

from ..encoding.placement import free_slots
from ..errors import ExpungeError, InvalidFile, Unfinished
from ..saving.files import SyncFailed
from .certificates.keys import Keys
from .certificates.notary import Notary
from .disk.folder import Folder, Places, VaultIdentity
from .disk.manifest import Manifest
from .disk.snapshot import Model, Snapshot, load_people, load_snapshot
from .ledger.ledger import Ledger
from .ledger.records import Record, compose
from .recovery import recover
from .requests import Request
from .requests.plan import Plan, Site


class Writer:
    """A vault of which this process can be the one writer. What it has loaded is valid while it holds the lock."""

    def __init__(self, places: Places, identity: VaultIdentity, keys: Keys) -> None:
        self.places, self.identity = places, identity
        self.folder, self.ledger = Folder(places.vault), Ledger(places.ledger)
        self.notary = Notary(self.ledger, places.certificates, keys)
        self.trained: Snapshot | None = None  # what is loaded; None before the first training
        self.newest = 0  # the newest request in the ledger; an old copy of the folder has not seen it
        self._stamp: object = None
        self._broken = False

    @property
    def site(self) -> Site:
        """Where the next request is planned."""
        return Site(self.folder, self.identity, self.newest + 1, self.trained)

    @property
    def now(self) -> Snapshot:
        """The vault as of the last request."""
        return self.site.now

    # The lock

    @contextmanager
    def locked(self, wait: float) -> Iterator[None]:
        """Hold the lock; whatever was accepted and not finished is finished first."""
        if self._broken:
            raise Unfinished("a sync failed, so what is on the disk is uncertain: open the vault anew to go on")
        with self.ledger.locked(wait):
            try:
                self.notary.notes = []
                self.places.wipe_drafts()
                if self._stamp is None or self._stamp != self._look() or self._left_behind():
                    self.trained = self._stamp = None
                    recover(self)
                    self._stamp = self._look()
                yield
            except BaseException as error:
                self._broken = isinstance(error, SyncFailed) or isinstance(error.__cause__, SyncFailed)
                raise

    def forget(self) -> None:
        """Read everything anew the next time."""
        self._stamp = None

    def _look(self) -> object:
        """Return what changes with every request of anybody, and when another copy of the folder is put here."""
        with suppress(FileNotFoundError):
            current = (self.folder.path / "current").stat()
            return self.ledger.stamp(), current.st_ino, current.st_mtime_ns
        return self.ledger.stamp()

    def _left_behind(self) -> bool:
        """Whether another process ended before its request was accepted: its files, and rows it added, are wiped."""
        return bool(self.folder.leftovers(() if self.trained is None else self.trained.manifest.names))

    # The six steps

    def perform(self, plan: Plan) -> Record:
        """Carry a request out."""
        self._stamp = None  # whatever goes wrong from here on: read everything anew
        site, request = self.site, plan.request
        body = {"request": site.number, "kind": request.kind, "waiting": self.notary.waiting, **request.body()}
        record = compose(self.ledger.tip, {**body, "time": datetime.now(UTC).isoformat(timespec="seconds")})
        with self.preparing():
            manifest = plan.prepare(site, self.ledger.tip, record)
        self.ledger.append(record)
        self.newest = record.request
        try:
            self.folder.commit(manifest)
            self.finish(record, request, self._after(plan, manifest))
        except Exception as error:
            raise Unfinished(
                f"request {record.request} was accepted but could not be finished: {error}; "
                "the next command on this vault goes on with it"
            ) from error
        self._stamp = self._look()
        return record

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Wipe the files that are being prepared if that fails: then nothing has changed."""
        self._stamp = None
        try:
            yield
        except BaseException as error:
            if not isinstance(error, SyncFailed):
                with suppress(OSError, ExpungeError):  # what cannot be wiped now is wiped when the vault is next opened
                    self._abandon()
            self.trained = None
            raise

    def _abandon(self) -> None:
        manifest = self.folder.current()
        if manifest is None:
            return self.folder.wipe_all_but(())
        self.load(manifest)
        return self.tidy()

    def _after(self, plan: Plan, manifest: Manifest) -> Snapshot:
        """What a plan leads to, from memory; only new entries of people are read."""
        schema = self.now.schema if plan.charter is None else plan.charter.schema
        people = self.now.people if plan.brings is None else load_people(self.folder, manifest)
        return Snapshot(self.folder, Model(manifest, schema, plan.state), people)

    def finish(self, record: Record, request: Request, vault: Snapshot) -> None:
        """Overwrite, wipe and certify (steps 4 to 6). Doing it again changes nothing."""
        request.overwrite(vault, record.request)
        self.check_rows(vault)
        self.folder.wipe_all_but(vault.manifest.names)
        self.trained = vault
        if note := request.note():
            self.notary.notes.append(note)
        self.notary.certify(record, vault.manifest, vault.state.ensemble.digest())

    # What recovery shares

    def load(self, manifest: Manifest) -> Snapshot:
        """Read what a manifest names."""
        self.trained = load_snapshot(self.folder, manifest, None if self.trained is None else self.trained.model)
        return self.trained

    def check_rows(self, vault: Snapshot) -> None:
        """Refuse a folder whose bits count other rows than its manifest: a hidden row would stay in the moments."""
        if int(np.count_nonzero(vault.rows.live)) != vault.manifest.rows:
            raise InvalidFile(f"{self.folder.path} is damaged: it has another number of rows than its manifest says")

    def tidy(self) -> None:
        """Wipe rows beyond those that count, which were being added when something failed, then all leftovers."""
        now = self.now
        free = free_slots(now.blueprint.key, now.state.drawn, now.blueprint.code.shards)
        if not now.rows.empty(free):
            now.rows.blank(free)
        now.rows.trim()
        self.folder.wipe_all_but(now.manifest.names)
