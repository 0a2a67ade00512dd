"""The writer: carries requests out so that a crash at any instruction loses nothing and leaves nothing behind.

1. *Prepare*: write every new file and the new manifest beside the old ones (learners and manifests into their spare
   pages) and sync them; long lists of slots and people go beside the ledger (`disk.request_lists`). A failure here
   leaves only leftovers, which are wiped: the request was not accepted and nothing has changed.
2. *Accept*: append one record to the ledger, synced. From here on the request will be carried out, by the next process
   that opens the vault if this one ends.
3. *Commit*: `current` names the new manifest, by a line that is overwritten and synced (`disk.folder`).
4. *Overwrite* the erased rows, their bits and their owners' entries in place, and sync each file. The ledger's record
   says which entries, so repeating this step changes nothing.
5. *Wipe* what the new manifest does not name: old moments, weights, manifest (with its salt), corrected rows that are
   now in their slots. Zeros are written and synced; then a page is emptied, and any other file is removed.
6. *Certify*: append the payload and its signature to the ledger, synced.

The ledger leads and the folder follows. Because a request is accepted only when it is prepared, readers do not wait
while it is computed, a full disk refuses it as a whole, and recovery needs no computation: it commits and continues
with step 4. Only an old copy of the folder that was put back has to be computed anew.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from ..errors import ExpungeError, InvalidFile, Unfinished, VaultBusy
from ..saving.files import SyncFailed
from .certificates.commitments import RequestLeaves
from .certificates.keys import KeyStore, known_keys
from .certificates.notary import Notary, current_time
from .certificates.payload import check_state_commitment
from .disk.folder import Folder, VaultIdentity, VaultPaths
from .disk.manifest import Manifest
from .disk.request_lists import RequestLists, list_file_names
from .disk.snapshot import Snapshot, load_people, load_snapshot
from .ledger import locks
from .ledger.ledger import Ledger
from .ledger.locks import WriterMutex
from .ledger.records import DONE, SIGNATURE, START, Record, compose_record, find_uncertified, records_of_kind
from .requests import Request, Train, read_request
from .requests.intake import Workers
from .requests.plan import RequestContext, RequestPlan
from .requests.request import Caller, caller_fields
from .requests.restore import MissedChanges, Restore
from .status import check_identity, check_manifest_vault, has_leftovers, open_index, read_stamp


class Writer:
    """A vault that this process can write to. What is loaded is valid while the lock is held."""

    def __init__(self, places: VaultPaths, identity: VaultIdentity, keys: KeyStore) -> None:
        self.places, self.identity, self.keys = places, identity, keys
        self.folder, self.ledger = Folder(places.vault), Ledger(places.ledger)
        self.index = open_index(places, identity)
        self.notary = Notary(identity.vault, self.ledger, self.index, places.certificates, keys)
        self.leaves, self.lists = RequestLeaves(places.leaves), RequestLists(places.lists, self.folder.dir)
        self.loaded_snapshot: Snapshot | None = None  # None before the first training
        self.newest = 0  # the newest request in the ledger; an old copy of the folder has not seen it
        self.workers: Workers | None = None  # other processes that help with a request
        self.turns = WriterMutex()
        self._stamp: object = None  # of the loaded snapshot; None: read everything again
        self._invalidated = False  # the same, said by another thread than the one that holds the lock
        self.sync_failed = False  # what is on the disk is uncertain: the vault has to be opened again
        locks.reset_on_fork(self)

    @property
    def context(self) -> RequestContext:
        """Where the next request is planned."""
        return RequestContext(
            self.folder,
            self.identity,
            self.newest + 1,
            self.loaded_snapshot,
            self.notary.known_keys,
            self.leaves,
            self.check_process,
            self.workers,
        )

    @property
    def snapshot(self) -> Snapshot:
        """The vault as of the last request."""
        return self.context.snapshot if self.loaded_snapshot is None else self.loaded_snapshot  # the first one raises

    # The lock

    @contextmanager
    def lock(self, wait: float) -> Iterator[None]:
        """Hold the lock; a request that was accepted and not finished is finished first."""
        self.check_process()
        deadline = time.monotonic() + wait
        with self.turns.hold(wait):
            if self.sync_failed:
                raise Unfinished("a sync failed, so what is on the disk is uncertain: open the vault again to continue")
            with self.ledger.lock(max(0.0, deadline - time.monotonic())), self.folder.dir.hold():
                try:
                    self._refresh()
                    yield
                except BaseException as error:
                    self.sync_failed = isinstance(error, SyncFailed) or isinstance(error.__cause__, SyncFailed)
                    if isinstance(error, Exception):  # in a child that was forked meanwhile it means nothing
                        self.check_process()
                    raise

    def _refresh(self) -> None:
        """Check that this is the vault that was opened, and read everything again if what is loaded is out of date."""
        self.notary.notes = []
        check_identity(self.folder, self.ledger, self.identity)
        snapshot = self.loaded_snapshot
        manifest = None if snapshot is None else snapshot.manifest
        if (
            self._invalidated
            or self._stamp is None
            or self._stamp != read_stamp(self.folder, self.ledger)
            # another process ended before its request was accepted: its files, and rows it added, are wiped
            or has_leftovers(self.folder, manifest, self.keys)
        ):
            self.loaded_snapshot = self._stamp = None
            recover(self)
            self._stamp, self._invalidated = read_stamp(self.folder, self.ledger), False
        elif snapshot is not None:
            snapshot.check_sizes()

    def invalidate(self) -> None:
        """Read everything again the next time; callable without the lock."""
        self._invalidated = True

    def reset_after_fork(self) -> None:
        """Read everything again in a forked child; threads of the parent that were at work do not exist here."""
        self.turns.reset_after_fork()
        self.ledger.reset_after_fork()
        self.loaded_snapshot = self._stamp = None

    def check_process(self) -> None:
        """Refuse to continue, in a forked child, a request that the parent is carrying out."""
        if self.turns.interrupted_by_fork:
            raise VaultBusy("this process was forked during a request of its parent: open the vault again")

    # The six steps

    def perform(self, plan: RequestPlan, callers: Sequence[Caller] = (), introduction: Record | None = None) -> Record:
        """Carry out a request and record its callers; ``introduction`` names a key that signs from then on."""
        self.check_process()
        self._stamp = None  # whatever fails from here on: read everything again
        context, request, after, records = self.context, plan.request, self.ledger.tip, list[Record]()
        if introduction is not None:
            records, after = [introduction], introduction.end
            context = replace(context, keys=known_keys(context.keys, records))
        fields, lists = request.serialise()
        body = {"request": context.number, "kind": request.kind, "waiting": self.notary.uncertified, **fields}
        record = compose_record(after, {**body, **caller_fields(callers), "time": current_time()})
        names = list_file_names([record]) if lists else []
        with self.abandon_on_failure():
            for name in names:
                self.lists.write(context.number, name, lists)
            manifest = plan.prepare(context, after, record)
        try:
            self.ledger.append(*records, record)
        except SyncFailed as error:
            raise Unfinished(
                f"request {record.request} was written to the ledger and {error.strerror}; unless the machine fails "
                "before, the next command on this vault carries it out: see expunge log"
            ) from error
        self.newest = record.request
        self.leaves.keep()
        try:
            if names:
                self.lists.keep(names)
            if introduction is not None:
                self.notary.add_known_key(introduction)
                self.notary.finish_key_change()
            self.folder.commit(manifest)
            # From memory; only new entries of people are read.
            schema = context.snapshot.schema if plan.definition is None else plan.definition.schema
            people = (
                context.snapshot.people
                if plan.people is None
                else load_people(self.folder, manifest.people, manifest.seal)
            )
            self.finish(record, request, Snapshot(manifest, schema, plan.state, self.folder, people))
        except Exception as error:
            raise Unfinished(
                f"request {record.request} was accepted but could not be finished: {error}; "
                "the next command on this vault continues it"
            ) from error
        with suppress(OSError):  # the request is done, whether or not the files can be looked at now
            self._stamp = read_stamp(self.folder, self.ledger)
        return record

    @contextmanager
    def abandon_on_failure(self) -> Iterator[None]:
        """Wipe the files that are being prepared if preparing fails: then nothing has changed."""
        self._stamp = None
        try:
            yield
        except BaseException as error:
            if not isinstance(error, SyncFailed) and not self.turns.interrupted_by_fork:
                with suppress(OSError, ExpungeError):  # the next opening of the vault wipes what cannot be wiped now
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

    def finish(self, record: Record, request: Request, snapshot: Snapshot) -> None:
        """Overwrite, wipe and certify (steps 4 to 6). Repeating it changes nothing."""
        request.overwrite(snapshot, record.request)
        self.check_rows(snapshot)
        self.folder.wipe_all_but(snapshot.manifest)
        self.loaded_snapshot = snapshot
        if note := request.note():
            self.notary.notes.append(note)
        self.notary.certify(record, snapshot.manifest, snapshot.state.ensemble.digest())
        self.index.save_if_due(self.ledger.tip.offset)

    @contextmanager
    def use_workers(self, workers: Workers) -> Iterator[None]:
        """Let workers help with the request for which this thread holds the lock."""
        self.workers = workers
        if self.loaded_snapshot is not None:
            self.loaded_snapshot.rows.helpers = workers.sum_moments
        try:
            yield
        finally:
            self.workers = None
            if self.loaded_snapshot is not None:
                self.loaded_snapshot.rows.helpers = None

    # Shared with recovery

    def load(self, manifest: Manifest) -> Snapshot:
        """Read what a manifest names."""
        self.loaded_snapshot = load_snapshot(self.folder, manifest, self.loaded_snapshot)
        return self.loaded_snapshot

    def check_rows(self, snapshot: Snapshot) -> None:
        """Refuse a folder whose bits name other slots than its manifest: a hidden row would stay in the moments."""
        if snapshot.rows.live.count() != snapshot.manifest.rows:
            raise InvalidFile(f"{self.folder.path} is damaged: its number of rows differs from its manifest")
        if snapshot.rows.live_sum != snapshot.manifest.slots_sum:
            raise InvalidFile(f"{self.folder.path} is damaged: its rows are in other slots than its manifest says")

    def tidy(self) -> None:
        """Wipe rows beyond those of the live state, which an interrupted request was adding, then all leftovers."""
        self.snapshot.rows.trim()
        self.folder.wipe_all_but(self.snapshot.manifest)


def recover(writer: Writer) -> None:
    """Bring folder and ledger together, under the lock.

    Requests that were accepted are finished, files of others are removed, and an old copy of the folder is brought up
    to date.
    """
    manifest = writer.folder.read_current_manifest()
    check_manifest_vault(writer.folder, manifest, writer.identity.vault)
    records = _read_tail(writer, manifest)
    if writer.keys.has_leftover_draft():
        writer.ledger.rewrite_untrusted()  # the record of the new key may never have reached the disk
    writer.notary.finish_key_change()
    requests = [record for record in records if record.is_request]
    done = records_of_kind(records, DONE)
    ahead = [record for record in requests if manifest is None or record.request > manifest.request]
    if ahead:
        newest = ahead[-1]
        prepared = None
        if len(ahead) == 1 and newest.request not in done:
            prepared = writer.folder.read_prepared_manifest(newest.request)
        if prepared is None or prepared.record != newest.end.hash:
            return _catch_up(writer, manifest, records, ahead)
        manifest = prepared
    if manifest is None:  # a first training that was never accepted
        _settle_lists(writer, records)
        return writer.folder.wipe_all_but(None)
    newest = next(record for record in requests if record.request == manifest.request)
    # Before anything is changed: the record may be of a newer release, with a kind that this one does not know.
    request = read_request(newest, writer.lists)
    writer.notary.uncertified = find_uncertified(records)
    _settle_lists(writer, records)
    if newest.request not in done:
        writer.ledger.rewrite_untrusted()  # the process that accepted it may have ended before the sync
        writer.folder.commit(manifest)  # again: after a failed sync nothing that is read back can be trusted
        writer.folder.dir.sync()  # `current` itself may be new
        writer.finish(newest, request, writer.load(manifest))
    else:
        snapshot = writer.load(manifest)
        if writer.folder.find_leftovers(manifest):  # after a crash, or in a copy that was made during a request
            request.overwrite(snapshot, newest.request)
        writer.check_rows(snapshot)
        check_state_commitment(manifest, records, snapshot.state.ensemble.digest())
    writer.tidy()
    return writer.notary.sign_uncertified(manifest, writer.snapshot.state.ensemble.digest())


def _read_tail(writer: Writer, manifest: Manifest | None) -> list[Record]:
    """Read the ledger from the manifest's request on, and cut off a torn record."""
    ledger = writer.ledger
    start = START if manifest is None else manifest.before
    records, torn = ledger.read(start)
    if manifest is not None and (not records or records[0].end.hash != manifest.record):
        raise InvalidFile(
            f"{ledger.path} does not know request {manifest.request}, which the folder has carried out: "
            "it is older than the folder, or of another vault; put the newest ledger back"
        )
    numbers = [record.request for record in records if record.is_request]
    first = 1 if manifest is None else manifest.request
    if numbers != list(range(first, first + len(numbers))):
        raise InvalidFile(f"{ledger.path} was changed: requests are missing, duplicated or out of order")
    if any(record.kind == DONE and record.request not in numbers for record in records):
        raise InvalidFile(f"{ledger.path} was changed: it marks requests as done that it does not contain")
    writer.newest = max(numbers, default=0)
    ledger.tip = records[-1].end if records else start
    writer.notary.known_keys = known_keys(() if manifest is None else manifest.keys, records)
    ledger.trust_until(start)
    if torn:
        ledger.cut_torn_record()
    return records


def _settle_lists(writer: Writer, records: Sequence[Record]) -> None:
    """Give the lists of accepted requests their names, and wipe drafts of requests that were not accepted."""
    done = records_of_kind(records, DONE)
    if names := list_file_names(record for record in records if record.request not in done):
        # The acceptance may never have reached the disk; until it has, the list must stay a draft.
        writer.ledger.rewrite_untrusted()
        writer.lists.keep(names)
    writer.lists.wipe_marked_drafts()


def _catch_up(writer: Writer, manifest: Manifest | None, records: Sequence[Record], ahead: Sequence[Record]) -> None:
    """Bring an old copy of the folder to where the ledger is, as far as possible."""
    if manifest is None or any(record.kind == Train.kind for record in ahead):
        raise InvalidFile(
            f"{writer.places.vault} is older than the training that {writer.places.ledger} records, or was emptied: "
            "put a newer copy of the folder back"
        )
    own, *missed = [(record.request, read_request(record, writer.lists)) for record in (records[0], *ahead)]
    _settle_lists(writer, records)
    snapshot = writer.load(manifest)
    own[1].overwrite(snapshot, manifest.request)  # the copy may have been made during that request
    writer.check_rows(snapshot)
    check_state_commitment(manifest, records, snapshot.state.ensemble.digest())
    writer.tidy()
    # Only requests up to the copy's can be signed later: for newer ones there is only the ledger's word, and anyone who
    # can write to the ledger could have anything signed.
    writer.notary.uncertified = find_uncertified(records, until=manifest.request)
    done = records_of_kind(records, DONE)
    changes = MissedChanges(snapshot.rows)
    for number, request in missed:
        request.replay(changes, number, done=number in done)
    # People whose erasure was never certified are erased by this request.
    uncertified = {record.request for record in ahead} - records_of_kind(records, SIGNATURE).keys()
    changes.bury = {
        person: writer.newest + 1 if number in uncertified else number for person, number in changes.bury.items()
    }
    with writer.abandon_on_failure():
        plan = Restore.plan(writer.context, changes)
    writer.perform(plan)
