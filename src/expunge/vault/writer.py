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
for it while it is computed, that a full disk refuses it whole, and that recovery needs no computation: it commits and
goes on with step 4. Only an old copy of the folder, put back, has to be computed anew (`_catch_up`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np

from ..encoding.placement import free_slots, room
from ..errors import ExpungeError, InvalidFile, Unfinished
from ..learning.state import State
from ..stores.change import Change
from .certificates.keys import Keys
from .certificates.notary import Notary, waiting
from .disk import files
from .disk.files import SyncFailed
from .disk.folder import Folder, Identity, Places
from .disk.manifest import Manifest
from .disk.people import NOBODY, People, from_text, tombstone
from .disk.rowfile import StoredRows, write_live
from .disk.snapshot import Model, array_of, load, load_people, with_moments
from .ledger.ledger import REQUESTS, START, Ledger, Record, compose
from .requests.lost import Lost
from .requests.plans import Plan, prepare

Loaded: TypeAlias = tuple[Model, State, People]


class Writer:
    """A vault of which this process can be the one writer. What it has loaded is valid while it holds the lock."""

    def __init__(self, places: Places, identity: Identity, keys: Keys) -> None:
        self.places, self.identity = places, identity
        self.folder, self.ledger = Folder(places.vault), Ledger(places.ledger)
        self.notary = Notary(self.ledger, places.certificates, keys)
        self._loaded: Loaded | None = None
        self._stamp: object = None
        self._broken = False
        self._newest = 0  # the newest request in the ledger; an old copy of the folder has not seen it

    @property
    def notes(self) -> list[str]:
        """What a person should know about the last lock."""
        return self.notary.notes

    @property
    def model(self) -> Model:
        """The model as of the last request."""
        return self._now()[0]

    @property
    def state(self) -> State:
        """What the model knows."""
        return self._now()[1]

    @property
    def people(self) -> People:
        """Whose rows are where."""
        return self._now()[2]

    @property
    def rows(self) -> StoredRows:
        """The rows."""
        store = self.state.ensemble.store
        assert isinstance(store, StoredRows)
        return store

    @property
    def trained(self) -> bool:
        """Whether there is a model."""
        return self._loaded is not None

    @property
    def next(self) -> int:
        """The number of the next request."""
        return self._newest + 1

    def _now(self) -> Loaded:
        if self._loaded is None:
            raise InvalidFile(f"{self.places.vault} was never trained to the end: train it again")
        return self._loaded

    @contextmanager
    def locked(self, wait: float) -> Iterator[None]:
        """Hold the lock; whatever was accepted and not finished is finished first."""
        if self._broken:
            raise Unfinished("a sync failed, so what is on the disk is uncertain: open the vault anew to go on")
        with self.ledger.locked(wait):
            try:
                self.notary.notes = []
                if self._stamp is None or self._stamp != self._look():
                    self._loaded = self._stamp = None
                    self._recover()
                    self._stamp = self._look()
                yield
            except BaseException as error:
                self._broken = isinstance(error, SyncFailed) or isinstance(error.__cause__, SyncFailed)
                raise

    def forget(self) -> None:
        """Look at everything anew the next time."""
        self._stamp = None

    def _look(self) -> object:
        """Changes with every request of anybody, and when another copy of the folder is put here."""
        with suppress(FileNotFoundError):
            current = (self.folder.path / "current").stat()
            return self.ledger.stamp(), current.st_ino, current.st_mtime_ns
        return self.ledger.stamp()

    # Steps 1 to 6

    def perform(self, plan: Plan) -> Record:
        """Carry a request out."""
        self._stamp = None  # whatever goes wrong from here on: look at everything anew
        body = {"request": self.next, "kind": plan.kind, "waiting": self.notary.waiting, **plan.body}
        record = compose(self.ledger.tip, {**body, "time": datetime.now(UTC).isoformat(timespec="seconds")})
        with self.preparing():
            before = (self.model.manifest, self.people) if self.trained else None
            manifest = prepare(self.folder, self.identity, self.ledger.tip, record, plan, before)
        self.ledger.append(record)
        self._newest = record.request
        try:
            self.folder.commit(manifest)
            self._finish(record, *self._after(plan, manifest))
        except Exception as error:
            raise Unfinished(
                f"request {record.request} was accepted but could not be finished: {error}; "
                "the next command on this vault goes on with it"
            ) from error
        self._stamp = self._look()
        return record

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """While files are being prepared: if that fails, they are wiped, and nothing has changed."""
        self._stamp = None
        try:
            yield
        except BaseException as error:
            if not isinstance(error, SyncFailed):
                with suppress(OSError, ExpungeError):  # what cannot be wiped now is wiped when the vault is next opened
                    self._abandon()
            self._loaded = None
            raise

    def _abandon(self) -> None:
        manifest = self.folder.current()
        if manifest is None:
            return self.folder.wipe_all_but(())
        self._take(manifest)
        return self._tidy()

    def _after(self, plan: Plan, manifest: Manifest) -> Loaded:
        """What a plan leads to, from memory; only new entries of people are read."""
        schema = plan.training.schema if plan.training else self.model.schema
        people = self.people if plan.brings is None else load_people(self.folder, manifest)
        return Model(manifest, schema, plan.state.blueprint, plan.state.ensemble), plan.state, people

    def _finish(self, record: Record, model: Model, state: State, people: People) -> None:
        """Steps 4 to 6. Doing it again changes nothing."""
        manifest, rows = model.manifest, state.ensemble.store
        assert isinstance(rows, StoredRows)
        self._overwrite(record.body, manifest, rows, people)
        self._check_rows(manifest, rows)
        self.folder.wipe_all_but(manifest.names)
        self._loaded = model, state, people
        if record.kind == "restore":
            self.notes.append(
                "this folder was a copy from request {from}: {rows} rows that were erased or corrected since are "
                "erased, {missing} rows that were added since are missing; add them again".format(**record.body)
            )
        self.notary.certify(record, manifest, state.ensemble.digest())

    def _check_rows(self, manifest: Manifest, rows: StoredRows) -> None:
        """A bit that says that a neighbour has no row would leave a residue of the neighbour in the moments."""
        if int(np.count_nonzero(rows.live)) != manifest.rows:
            raise InvalidFile(f"{self.folder.path} is damaged: it has another number of rows than its manifest says")

    def _overwrite(self, body: Mapping[str, Any], manifest: Manifest, rows: StoredRows, people: People) -> None:
        """Step 4."""
        if len(erased := np.array(body.get("erase", []), dtype=np.int64)):
            rows.erase(erased)
            rows.live[erased] = False
            write_live(self.folder.path / manifest.live_file, rows.live, erased)
        if manifest.stage is not None and (self.folder.path / manifest.stage.name).exists():
            slots = np.array(body["replace"], dtype=np.int64)
            data, d = self.folder.read(manifest.stage), rows.X.shape[1]
            values = array_of(data, "<f8", (len(slots), rows.width), self.folder, manifest.stage.name)
            rows.put(slots, values[:, :d], values[:, d:])
            self.folder.rename(manifest.stage.name, f"{manifest.stage.name}.0")  # half wiped it would look damaged
        self._rewrite_people(body, manifest.request, people)
        if manifest.people and manifest.people[-1].name == f"people.{manifest.request}":
            brought = people.segments[-1].records()["slot"].astype(np.int64)
            brought = np.setdiff1d(brought[brought >= 0], erased)  # a merged segment has older entries, too
            rows.live[brought] = True
            write_live(self.folder.path / manifest.live_file, rows.live, brought)

    @staticmethod
    def _rewrite_people(body: Mapping[str, Any], request: int, people: People) -> None:
        erased = np.array(body.get("erase", []), dtype=np.int64)
        # What is so already is written again, too: it can be read, but if a sync failed it is not on the disk.
        if bury := body.get("bury"):
            by = np.array(body.get("by", [request] * len(bury)), dtype=np.int64)
            entries = people.find(from_text(bury), torn=True)
            tombs = tombstone(by[entries.owner])
            those = np.isin(entries.slot, erased) | (entries.slot == tombs) | entries.torn
            people.overwrite(entries.where(those), tombs[those])
        if drop := body.get("drop"):
            entries = people.find(from_text(drop), torn=True)
            entries = entries.where(np.isin(entries.slot, erased) | (entries.slot == NOBODY) | entries.torn)
            people.overwrite(entries, np.full(len(entries.slot), NOBODY))
        if free := body.get("free"):
            entries = people.find(from_text(free), torn=True)
            last = tombstone(body.get("from", request))  # of requests up to that one
            entries = entries.where((entries.slot >= last) & (entries.slot <= NOBODY) | entries.torn)
            people.overwrite(entries, np.full(len(entries.slot), NOBODY))

    # Recovery

    def _recover(self) -> None:
        """Finish what was accepted, remove what was not, catch up if the folder is an old copy."""
        manifest = self.folder.current()
        records = self._tail(manifest)
        requests = [record for record in records if record.kind in REQUESTS]
        done = {record.request for record in records if record.kind == "done"}
        ahead = [record for record in requests if manifest is None or record.request > manifest.request]
        if ahead:
            newest = ahead[-1]
            prepared = None if len(ahead) > 1 or newest.request in done else self.folder.prepared(newest.request)
            if prepared is None or prepared.record != newest.end.hash:
                return self._catch_up(manifest, records, ahead)
            manifest = prepared
        if manifest is None:  # a first training that was never accepted
            return self.folder.wipe_all_but(())
        newest = next(record for record in requests if record.request == manifest.request)
        self.notary.waiting = waiting(records)
        if newest.request not in done:
            self.ledger.settle()  # who wrote that it is accepted may have ended before it was synced
            self.folder.commit(manifest)  # again: after a failed sync nothing that is read back can be trusted
            self._finish(newest, *load(self.folder, manifest, self._model()))
        else:
            self._take(manifest)
            if self.folder.leftovers(manifest.names):  # of a crash; or this is a copy that was made half way
                self._overwrite(newest.body, manifest, self.rows, self.people)
            self._check_rows(manifest, self.rows)
        self._tidy()
        return self.notary.sign_waiting()

    def _catch_up(self, manifest: Manifest | None, records: Sequence[Record], ahead: Sequence[Record]) -> None:
        """Bring an old copy of the folder to where the ledger is, as far as it can be."""
        if manifest is None or any(record.kind == "train" for record in ahead):
            raise InvalidFile(
                f"{self.places.vault} is older than the training that {self.places.ledger} knows, or was emptied: "
                "put a newer copy of the folder back"
            )
        self._take(manifest)
        self._overwrite(records[0].body, manifest, self.rows, self.people)  # the copy may have been made half way
        self._check_rows(manifest, self.rows)
        self._tidy()
        self.notary.waiting = waiting(records)
        done = {record.request for record in records if record.kind == "done"}
        lost = Lost.since(ahead, done, self.rows.live)
        lost.erase.update(self.people.find(from_text(lost.people)).live.slot.tolist())
        state = self.grown(self.state, lost.drawn or manifest.drawn)
        change = Change(np.array(sorted(lost.erase), dtype=np.int64))
        outcome = self.touching(state, change).after(change)
        bury = from_text(lost.bury)
        found = self.people.find(bury)
        unknown = np.setdiff1d(np.arange(len(bury)), found.owner[np.isin(found.slot, change.slots)])
        tombs = tombstone(np.array(list(lost.bury.values()), dtype=np.int64)[unknown])
        self.perform(
            Plan(
                "restore",
                lost.body(manifest.request, state.drawn),
                outcome.state,
                brings=(bury[unknown], tombs) if len(unknown) else None,
            )
        )

    def grown(self, state: State, drawn: int) -> State:
        """The state with room for more rows, in memory and on disk."""
        rows = state.ensemble.store
        assert isinstance(rows, StoredRows)
        slots = room(drawn, state.blueprint.code.shards)
        if slots > len(rows.live):
            files.resize(rows.path, slots * rows.record_bytes)
            files.resize(self.folder.path / self.model.manifest.live_file, -(-slots // 8))
            live = np.concatenate([rows.live, np.zeros(slots - len(rows.live), dtype=np.bool_)])
            rows = StoredRows(rows.path, live, rows.X.shape[1], rows.y.shape[1], rows.seal)
        return state.with_store(rows, drawn)

    def touching(self, state: State, change: Change) -> State:
        """The state with the moments read that a change touches."""
        touched = state.blueprint.code.learners_of(change.slots)
        return with_moments(state, touched, self.folder, self.model.manifest)

    def _model(self) -> Model | None:
        return self._loaded[0] if self._loaded else None

    def _take(self, manifest: Manifest) -> None:
        self._loaded = load(self.folder, manifest, self._model())

    def _tail(self, manifest: Manifest | None) -> list[Record]:
        """The ledger from the manifest's request on; a torn record is cut off."""
        start = START if manifest is None else manifest.before
        records, torn = self.ledger.read(start)
        if manifest is not None and (not records or records[0].end.hash != manifest.record):
            raise InvalidFile(
                f"{self.places.ledger} does not know request {manifest.request}, which the folder has carried out: "
                "it is older than the folder, or another vault's; put the newest ledger back"
            )
        self._newest = max((record.request for record in records if record.kind in REQUESTS), default=0)
        self.ledger.tip = records[-1].end if records else start
        self.ledger.trust(start)
        if torn:
            self.ledger.cut()
        return records

    def _tidy(self) -> None:
        """Wipe rows beyond those that count, which were being added when something failed, then all leftovers."""
        state, rows = self.state, self.rows
        free = free_slots(state.blueprint.key, state.drawn, state.blueprint.code.shards)
        if not rows.empty(free):
            rows.erase(free)
        slots = len(rows.live)
        for path, size in (
            (rows.path, slots * rows.record_bytes),
            (self.folder.path / self.model.manifest.live_file, -(-slots // 8)),
        ):
            with files.opened(path) as fd:
                longer = files.size_of(fd) > size
            if longer:
                files.resize(path, size)
        self.folder.wipe_all_but(self.model.manifest.names)
