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
from typing import TYPE_CHECKING

from ..encoding.encoder import Encoder
from ..errors import ExpungeError, InvalidFile, Unfinished, VaultBusy
from ..exact.moments import Moments
from ..saving import files
from ..saving.files import SyncFailed
from ..stores.change import Change
from .certificates.commitments import RequestLeaves
from .certificates.keys import KeyStore, known_keys
from .certificates.notary import Notary, current_time
from .certificates.payload import check_state_commitment
from .disk.folder import Folder, VaultIdentity, VaultPaths
from .disk.manifest import Manifest
from .disk.request_lists import RequestLists, list_file_names
from .disk.rowfile import RowFile
from .disk.snapshot import Snapshot, VaultModel, load_people, load_snapshot
from .ledger import locks
from .ledger.ledger import Ledger
from .ledger.locks import WriterMutex
from .ledger.records import DONE, SIGNATURE, START, Record, compose_record, find_uncertified, records_of_kind
from .requests import Request, Train, read_request
from .requests.intake import Workers
from .requests.plan import RequestContext, RequestPlan
from .requests.request import Caller, MissedChanges, caller_fields
from .requests.restore import Restore
from .status import check_identity, check_manifest_vault, open_index, read_stamp

# MERGED recovery: Recovery: finish what was accepted, remove what was not, bring an old copy of the folder up to date.


if TYPE_CHECKING:
    pass  # IMPORT GONE


def recover(writer: "Writer") -> None:
    """Bring folder and ledger together, under the lock."""
    manifest = writer.folder.read_current_manifest()
    check_manifest_vault(writer.folder, manifest, writer.identity.vault)
    records = _read_tail(writer, manifest)
    _settle_keys(writer)
    requests = [record for record in records if record.is_request]
    done = records_of_kind(records, DONE)
    ahead = [record for record in requests if manifest is None or record.request > manifest.request]
    if ahead:
        newest = ahead[-1]
        prepared = (
            None if len(ahead) > 1 or newest.request in done else writer.folder.read_prepared_manifest(newest.request)
        )
        if prepared is None or prepared.record != newest.end.hash:
            return _catch_up(writer, manifest, records, ahead)
        manifest = prepared
    if manifest is None:  # a first training that was never accepted
        _settle_lists(writer, records)
        return writer.folder.wipe_all_but(None)
    newest = next(record for record in requests if record.request == manifest.request)
    # Before anything is changed: a newer release may know what this one does not.
    request = read_request(newest, writer.lists)
    writer.notary.uncertified = find_uncertified(records)
    _settle_lists(writer, records)
    if newest.request not in done:
        writer.ledger.rewrite_untrusted()  # who wrote that it is accepted may have ended before it was synced
        writer.folder.commit(manifest)  # again: after a failed sync nothing that is read back can be trusted
        files.sync_folder(writer.folder.path)  # `current` itself may be new
        writer.finish(newest, request, writer.load(manifest))
    else:
        vault = writer.load(manifest)
        if writer.folder.find_leftovers(manifest):  # of a crash; or this is a copy that was made half way
            request.overwrite(vault, newest.request)
        writer.check_rows(vault)
        check_state_commitment(manifest, records, vault.state.ensemble.digest())
    writer.tidy()
    return writer.notary.sign_uncertified(manifest, writer.snapshot.state.ensemble.digest())


def _settle_keys(writer: "Writer") -> None:
    """Finish or undo a change of the key that was stopped half way."""
    if writer.notary.has_leftover_draft:
        writer.ledger.rewrite_untrusted()  # the record of the new key may never have reached the disk
    writer.notary.finish_key_change()


def _settle_lists(writer: "Writer", records: Sequence[Record]) -> None:
    """Give the lists of accepted requests their names, and wipe drafts of requests that were not accepted."""
    done = records_of_kind(records, DONE)
    if names := list_file_names(record for record in records if record.request not in done):
        writer.ledger.rewrite_untrusted()  # the acceptance may never have reached the disk, and then the list has to be a draft
        writer.lists.keep(names)
    writer.lists.wipe_marked_drafts()


def _catch_up(writer: "Writer", manifest: Manifest | None, records: Sequence[Record], ahead: Sequence[Record]) -> None:
    """Bring an old copy of the folder to where the ledger is, as far as it can be."""
    if manifest is None or any(record.kind == Train.kind for record in ahead):
        raise InvalidFile(
            f"{writer.places.vault} is older than the training that {writer.places.ledger} knows, or was emptied: "
            "put a newer copy of the folder back"
        )
    own, *missed = [(record.request, read_request(record, writer.lists)) for record in (records[0], *ahead)]
    _settle_lists(writer, records)
    vault = writer.load(manifest)
    own[1].overwrite(vault, manifest.request)  # the copy may have been made half way
    writer.check_rows(vault)
    check_state_commitment(manifest, records, vault.state.ensemble.digest())
    writer.tidy()
    writer.notary.uncertified = _find_vouched_uncertified(manifest, records)
    done = records_of_kind(records, DONE)
    lost = MissedChanges(vault.rows.live)
    for number, request in missed:
        request.replay(lost, number, done=number in done)
    # Who was erased by a request that nobody finished, or certified, is erased by this one.
    uncertified = {record.request for record in ahead} - records_of_kind(records, SIGNATURE).keys()
    lost.bury = {one: writer.newest + 1 if by in uncertified else by for one, by in lost.bury.items()}
    with writer.abandon_on_failure():
        plan = Restore.plan(writer.context, lost)
    writer.perform(plan)


def _find_vouched_uncertified(manifest: Manifest, records: Sequence[Record]) -> list[int]:
    """The requests that wait for the key as far as an old copy of the folder can vouch for them.

    What came after the copy only the ledger tells, and who can write to that would have anything signed.
    """
    known = [record for record in records if not (record.is_request and record.request > manifest.request)]
    return [number for number in find_uncertified(known) if number <= manifest.request]


def _read_tail(writer: "Writer", manifest: Manifest | None) -> list[Record]:
    """The ledger from the manifest's request on; a torn record is cut off."""
    ledger = writer.ledger
    start = START if manifest is None else manifest.before
    records, torn = ledger.read(start)
    if manifest is not None and (not records or records[0].end.hash != manifest.record):
        raise InvalidFile(
            f"{ledger.path} does not know request {manifest.request}, which the folder has carried out: "
            "it is older than the folder, or another vault's; put the newest ledger back"
        )
    asked = [record.request for record in records if record.is_request]
    first = 1 if manifest is None else manifest.request
    if asked != list(range(first, first + len(asked))):
        raise InvalidFile(f"{ledger.path} was changed: requests are missing, doubled or out of order")
    if any(record.kind == DONE and record.request not in asked for record in records):
        raise InvalidFile(f"{ledger.path} was changed: it says that requests are done which nobody asked for")
    writer.newest = max((record.request for record in records if record.is_request), default=0)
    ledger.tip = records[-1].end if records else start
    writer.notary.known_keys = known_keys(() if manifest is None else manifest.keys, records)
    ledger.trust_until(start)
    if torn:
        ledger.cut_torn_record()
    return records


class Writer:
    """A vault of which this process can be the one writer. What it has loaded is valid while it holds the lock."""

    def __init__(self, places: VaultPaths, identity: VaultIdentity, keys: KeyStore) -> None:
        self.places, self.identity = places, identity
        self.folder, self.ledger = Folder(places.vault), Ledger(places.ledger)
        self.index = open_index(places, identity)
        self.notary = Notary(identity.vault, self.ledger, self.index, places.certificates, keys)
        self.leaves, self.lists = RequestLeaves(places.leaves), RequestLists(places.lists, places.vault)
        self.loaded_snapshot: Snapshot | None = None  # what is loaded; None before the first training
        self.newest = 0  # the newest request in the ledger; an old copy of the folder has not seen it
        self.workers: Workers | None = None  # other processes that help with a request
        self.turns = WriterMutex()
        self._stamp: object = None
        self._invalidated = False
        self.sync_failed = False  # what is on the disk is uncertain: the vault has to be opened anew
        locks.reset_on_fork(self)

    @property
    def context(self) -> RequestContext:
        """Where the next request is planned."""
        known, leaves = self.notary.known_keys, self.leaves
        return RequestContext(
            self.folder,
            self.identity,
            self.newest + 1,
            self.loaded_snapshot,
            known,
            leaves,
            self.check_process,
            self.workers,
            self._sum_moments,
        )

    @property
    def snapshot(self) -> Snapshot:
        """The vault as of the last request."""
        if self.loaded_snapshot is None:
            return self.context.snapshot  # says what is wrong
        return self.loaded_snapshot

    # The lock

    @contextmanager
    def lock(self, wait: float) -> Iterator[None]:
        """Hold the lock; whatever was accepted and not finished is finished first."""
        self.check_process()
        deadline = time.monotonic() + wait
        with self.turns.hold(wait):
            if self.sync_failed:
                raise Unfinished("a sync failed, so what is on the disk is uncertain: open the vault anew to go on")
            with self.ledger.lock(max(0.0, deadline - time.monotonic())), files.keep_folder_open(self.folder.path):
                try:
                    self._refresh()
                    yield
                except BaseException as error:
                    self.sync_failed = isinstance(error, SyncFailed) or isinstance(error.__cause__, SyncFailed)
                    if isinstance(error, Exception):  # in a child that was forked meanwhile it says nothing
                        self.check_process()
                    raise

    def _refresh(self) -> None:
        """See that this is the vault that was opened, and read what is not in memory, or is there no more."""
        self.notary.notes = []
        check_identity(self.folder, self.ledger, self.identity)
        if self._invalidated or self._stamp is None or self._stamp != self._read_stamp() or self._has_leftovers():
            self.loaded_snapshot = self._stamp = None
            recover(self)
            self._stamp, self._invalidated = self._read_stamp(), False
        elif self.loaded_snapshot is not None:
            self.loaded_snapshot.check_sizes()

    def invalidate(self) -> None:
        """Read everything anew the next time."""
        self._invalidated = True

    def reset_after_fork(self) -> None:
        """In a child: read everything anew. Threads of the parent that were at work are not here."""
        self.turns.reset_after_fork()
        self.ledger.reset_after_fork()
        self.loaded_snapshot = self._stamp = None

    def check_process(self) -> None:
        """Refuse to go on with what the parent of this process is carrying out."""
        if self.turns.interrupted_by_fork:
            raise VaultBusy("this process was forked in the midst of a request, which is its parent's: open it anew")

    def _read_stamp(self) -> object:
        return read_stamp(self.folder, self.ledger)

    def _has_leftovers(self) -> bool:
        """Whether another process ended before its request was accepted: its files, and rows it added, are wiped."""
        manifest = None if self.loaded_snapshot is None else self.loaded_snapshot.manifest
        return bool(self.folder.find_leftovers(manifest)) or self.notary.has_leftover_draft

    # The six steps

    def perform(self, plan: RequestPlan, callers: Sequence[Caller] = (), introduction: Record | None = None) -> Record:
        """Carry a request out, with what its callers have to say about it; another key may sign from then on."""
        self.check_process()
        self._stamp = None  # whatever goes wrong from here on: read everything anew
        before = [] if introduction is None else [introduction]
        after = before[-1].end if before else self.ledger.tip
        site, request = replace(self.context, keys=known_keys(self.notary.known_keys, before)), plan.request
        said, lists = request.serialise()
        body = {"request": site.number, "kind": request.kind, "waiting": self.notary.uncertified, **said}
        record = compose_record(after, {**body, **caller_fields(callers), "time": current_time()})
        with self.abandon_on_failure():
            for name in list_file_names([record]):
                self.lists.write(site.number, name, lists)
            manifest = plan.prepare(site, after, record)
        self._accept(*before, record)
        try:
            self.lists.keep(list_file_names([record]))
            if introduction is not None:
                self.notary.add_known_key(introduction)
                self.notary.finish_key_change()
            self.folder.commit(manifest)
            self.finish(record, request, self._build_snapshot(plan, manifest))
        except Exception as error:
            raise Unfinished(
                f"request {record.request} was accepted but could not be finished: {error}; "
                "the next command on this vault goes on with it"
            ) from error
        with suppress(OSError):  # it is done, whatever there is to be seen now
            self._stamp = self._read_stamp()
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
    def abandon_on_failure(self) -> Iterator[None]:
        """Wipe the files that are being prepared if that fails: then nothing has changed."""
        self._stamp = None
        try:
            yield
        except BaseException as error:
            if not isinstance(error, SyncFailed) and not self.turns.interrupted_by_fork:
                with suppress(OSError, ExpungeError):  # what cannot be wiped now is wiped when the vault is next opened
                    self._abandon()
            self.loaded_snapshot = None
            raise

    def _abandon(self) -> None:
        self.leaves.discard()
        self.lists.discard()
        manifest = self.folder.read_current_manifest()
        if manifest is None:
            return self.folder.wipe_all_but(None)
        self.load(manifest)
        return self.tidy()

    def _build_snapshot(self, plan: RequestPlan, manifest: Manifest) -> Snapshot:
        """What a plan leads to, from memory; only new entries of people are read."""
        schema = self.snapshot.schema if plan.definition is None else plan.definition.schema
        people = (
            self.snapshot.people if plan.people is None else load_people(self.folder, manifest.people, manifest.seal)
        )
        return Snapshot(self.folder, VaultModel(manifest, schema, plan.state), people)

    def finish(self, record: Record, request: Request, vault: Snapshot) -> None:
        """Overwrite, wipe and certify (steps 4 to 6). Doing it again changes nothing."""
        request.overwrite(vault, record.request)
        self.check_rows(vault)
        self.folder.wipe_all_but(vault.manifest)
        self.loaded_snapshot = vault
        if note := request.note():
            self.notary.notes.append(note)
        self.notary.certify(record, vault.manifest, vault.state.ensemble.digest())
        self.index.save_if_due(self.ledger.tip.offset)

    @contextmanager
    def use_workers(self, workers: Workers | None) -> Iterator[None]:
        """Let workers help, if there are any, with the request for which this thread has the lock."""
        self.workers = workers
        try:
            yield
        finally:
            self.workers = None

    def _sum_moments(
        self, rows: RowFile, encoder: Encoder, stripes: range, change: Change | None
    ) -> list[Moments] | None:
        """What workers have summed, if there are any now."""
        return None if self.workers is None else self.workers.sum_moments(rows, encoder, stripes, change)

    # What recovery shares

    def load(self, manifest: Manifest) -> Snapshot:
        """Read what a manifest names."""
        self.loaded_snapshot = load_snapshot(
            self.folder, manifest, None if self.loaded_snapshot is None else self.loaded_snapshot.model
        )
        self.loaded_snapshot.rows.helpers = self._sum_moments
        return self.loaded_snapshot

    def check_rows(self, vault: Snapshot) -> None:
        """Refuse a folder whose bits say other slots than its manifest: a hidden row would stay in the moments."""
        if vault.rows.live.count() != vault.manifest.rows:
            raise InvalidFile(f"{self.folder.path} is damaged: it has another number of rows than its manifest says")
        if vault.rows.live_sum != vault.manifest.slots_sum:
            raise InvalidFile(f"{self.folder.path} is damaged: it has rows in other slots than its manifest says")

    def tidy(self) -> None:
        """Wipe rows beyond those that count, which were being added when something failed, then all leftovers."""
        self.snapshot.rows.trim()
        self.folder.wipe_all_but(self.snapshot.manifest)
