"""Vault: a model that lives on disk for years and answers erasure requests."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import ErasedId, InvalidFile, InvalidInput, InvalidSetting, MissingData, UnknownId, VaultBusy
from ..exact.arrays import Floats, Slots
from ..learning.settings import Settings
from ..stores.change import Change
from ..stores.ids import slots_of_mentions
from . import audit
from .audit import Verdict
from .certificates.jws import SigningKey, load_public
from .certificates.keys import Keys
from .certificates.notary import waiting
from .disk.folder import Folder, Identity, Places
from .disk.founding import check_same_vault, found_identity, undone_if_it_fails, wanted_schema
from .disk.people import Entries, Hashes, as_text, hashed, tombstone
from .disk.snapshot import Model
from .ledger.history import Request, history
from .ledger.ledger import Ledger
from .reader import Reader, finished, pending
from .receipts import Receipt, Status
from .requests import training
from .requests.plans import Plan
from .tables import predictions
from .tables import reading as tables
from .tables.intake import Progress, silent
from .tables.reading import Block
from .tables.schema import Schema
from .writer import Writer


class Vault:
    """A model on disk that can forget. Make one with `Vault.create`, take one up with `Vault.open`.

    Threads may share one; processes open the same path. Requests wait for each other, by a lock that dies with the
    process that holds it; predictions do not wait, and are never from a model that has yet to carry out a request.

    Examples
    --------
    >>> import tempfile, pathlib, pyarrow as pa
    >>> from expunge import CodedRegressor
    >>> from expunge.vault import Vault
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "spend.vault"
    >>> table = pa.table({"who": range(100), "age": [float(k % 50) for k in range(100)], "spend": [1.0, 2.0] * 50})
    >>> model = CodedRegressor(shards=10, rate=5, random_state=0)
    >>> vault = Vault.create(path, table, target="spend", id="who", model=model)
    >>> vault.unlearn([4, 7]).rows
    2
    >>> vault.verify().ok
    True
    """

    def __init__(self, places: Places, identity: Identity, *, key: str | Path | None, wait: float) -> None:
        """Use `create` or `open`."""
        self.places = places
        self._wait = wait
        self._mutex = threading.RLock()
        self._keys = Keys(places.key if key is None else Path(key), places.public)
        self._writer = Writer(places, identity, self._keys)
        self.receipt: Receipt | None = None  # of the training, in a vault that was just made
        self._reader = Reader(self._writer.folder, Ledger(places.ledger), self._settle, wait)

    @classmethod
    def create(
        cls,
        path: str | Path,
        data: Any,
        *,
        target: str | list[str] | None = None,
        id: str | None = None,  # noqa: A002 - the word that a user looks for
        model: Any = None,
        schema: Schema | str | Path | None = None,
        key: str | Path | None = None,
        replace: bool = False,
        skip_erased: bool = False,
        wait: float = 10.0,
        progress: Progress = silent,
    ) -> "Vault":
        """Train a model on a table, in a new vault.

        Parameters
        ----------
        path : path
            The folder, whose name ends in ``.vault``. Its ledger and keys lie beside it.
        data : path or table
            A CSV, Parquet or Arrow file, which may be larger than memory, or a pyarrow, pandas or polars table.
        target, id : str
            The columns of the target (or targets) and of the ids; with a schema, it names them.
        model : CodedRegressor, optional
            The parameters; ``learner`` and ``keep`` must be the defaults.
        schema : Schema or path, optional
            What each column is. Without one all other columns must be numbers without gaps, with observed bounds.
        key : path, optional
            An Ed25519 private key (PEM) to sign certificates with. Default: a new pair beside the folder.
        replace : bool
            Whether to train an existing vault anew, on this table alone. Who was erased stays erased.
        skip_erased : bool
            Whether to leave out rows of ids that were erased, instead of refusing the table.
        wait : float
            Seconds to wait for another writer.
        progress : callable, optional
            Called with what is being done, how many rows more were done, and of how many.
        """
        places = Places.of(path)
        wanted = wanted_schema(data, schema, target, id)
        blueprint = training.blueprint_of(Settings() if model is None else model, wanted)
        signing = None if key is None else SigningKey.load(Path(key))
        with undone_if_it_fails(places):
            vault = cls(places, found_identity(places, wait), key=key, wait=wait)
            writer = vault._writer
            with vault._mutex, writer.locked(wait):
                if writer.trained and not replace:
                    raise InvalidSetting(f"{places.vault} exists already; add rows, or train it anew with --replace")
                if signing is not None or not writer.trained:  # a key that is lost is not replaced unasked
                    vault._keys.make(signing)
                started = time.perf_counter()
                with writer.preparing():
                    blocks = tables.blocks(data, wanted, targets=True, ids=True)
                    plan = training.train(writer, blocks, wanted, blueprint, skip_erased=skip_erased, progress=progress)
                vault.receipt = vault._done(plan, blueprint.code.learners, started)
        return vault

    @classmethod
    def open(cls, path: str | Path, *, key: str | Path | None = None, wait: float = 10.0) -> "Vault":
        """Take up a vault; what was accepted and not finished is finished first.

        Parameters
        ----------
        path : path
            The folder.
        key : path, optional
            The private key that signs certificates. Default: the one beside the folder.
        wait : float
            Seconds to wait for another writer.
        """
        places = Places.of(path)
        if not places.vault.is_dir():
            raise MissingData(f"no vault at {places.vault}; make one with: expunge train")
        if not places.ledger.exists():
            raise InvalidFile(f"{places.ledger} is not there: a vault cannot be opened without its ledger")
        identity = Folder(places.vault).identity()
        check_same_vault(places, identity)
        vault = cls(places, identity, key=key, wait=wait)
        vault._open()
        return vault

    def _open(self) -> None:
        """Finish what was begun. Leftovers of a writer that is at work are its own."""
        folder, ledger = self._writer.folder, self._writer.ledger
        manifest = folder.current()
        if manifest is None:
            self._settle()
            self._reader.current()
            return
        records, torn = ledger.read(manifest.before)
        if not pending(manifest, records, torn):  # else the reader does it, or says why it cannot
            if not finished(manifest, records):
                with suppress(PermissionError):
                    self._settle()
            elif folder.leftovers(manifest.names) or (waiting(records) and self._keys.signing() is not None):
                with suppress(VaultBusy, PermissionError):
                    self._settle(wait=0.0)
        self._reader.current()

    def _settle(self, wait: float | None = None) -> None:
        """Be the writer for a moment: that finishes what was accepted."""
        with self._mutex, self._writer.locked(self._wait if wait is None else wait):
            if not self._writer.trained:
                raise InvalidFile(f"{self.places.vault} was never trained to the end: train it again")

    @property
    def notes(self) -> tuple[str, ...]:
        """What the last opening or request has to say to a person."""
        return tuple(self._writer.notes)

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        with self._mutex, self._writer.locked(self._wait):
            if not self._writer.trained:
                raise InvalidFile(f"{self.places.vault} was never trained to the end: train it again")
            yield self._writer

    # Requests

    def unlearn(self, ids: Any) -> Receipt:
        """Erase all rows of these ids: from the model, from the disk, for good.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, in one request. An unknown id is an error and nothing is changed; one that was erased
            before has the answer that it had then.
        """
        started = time.perf_counter()
        with self._writing() as writer:
            hashes, entries = self._find(tables.id_bytes(ids))
            live, buried = entries.live, entries.buried
            earlier = tuple(sorted({tombstone(slot) for slot in buried.slot.tolist()}))
            if not len(live.slot):
                return self._again(earlier)
            change = Change(live.slot)
            outcome = writer.touching(writer.state, change).after(change)
            gone = hashes[np.unique(live.owner)]
            body = {
                "erase": live.slot.tolist(),
                "bury": as_text(gone),
                "rows": len(live.slot),
                "people": len(gone),
            }
            return replace(self._done(Plan("unlearn", body, outcome.state), outcome.learners, started), earlier=earlier)

    def rectify(self, data: Any) -> Receipt:
        """Replace all rows of the ids in a table by right ones, in their slots.

        Parameters
        ----------
        data : path or table
            As in `create`. An id with several rows gets as many, in the order in which they first came.
        """
        started = time.perf_counter()
        with self._writing() as writer:
            owners, X, y = _whole(tables.blocks(data, writer.model.schema, targets=True, ids=True))
            X, y = writer.model.blueprint.admit(X, y, writer.model.schema.inputs, writer.model.schema.targets)
            hashes, entries = self._find(owners)
            if len(buried := np.unique(entries.buried.owner)):
                raise ErasedId(f"{len(buried)} ids in this table were erased before; nothing was changed")
            slots = _slots_in_order(owners, entries.live)
            change = Change(slots, X, y)
            outcome = writer.touching(writer.state, change).after(change)
            body = {
                "replace": slots.tolist(),
                "replaced": as_text(hashes),
                "rows": len(slots),
                "people": len(hashes),
            }
            stage = np.column_stack([X, y])
            return self._done(Plan("rectify", body, outcome.state, stage=stage), outcome.learners, started)

    def add(self, data: Any, *, skip_erased: bool = False, progress: Progress = silent) -> Receipt:
        """Learn more rows.

        Parameters
        ----------
        data : path or table
            As in `create`.
        skip_erased : bool
            Whether to leave out rows of ids that were erased, instead of refusing the table.
        progress : callable, optional
            As in `create`.
        """
        started = time.perf_counter()
        with self._writing() as writer:
            with writer.preparing():
                blocks = tables.blocks(data, writer.model.schema, targets=True, ids=True)
                plan, learners = training.add(writer, blocks, skip_erased=skip_erased, progress=progress)
            return self._done(plan, learners, started)

    def readmit(self, ids: Any) -> Receipt:
        """Let erased ids come again: the people consented. Their rows are not back; add them.

        Parameters
        ----------
        ids : int, str or a sequence of them
            An id that is not erased is an error and nothing is changed.
        """
        started = time.perf_counter()
        with self._writing() as writer:
            hashes, entries = self._find(tables.id_bytes(ids))
            if len(held := np.setdiff1d(np.arange(len(hashes)), entries.buried.owner)):
                raise UnknownId(f"{len(held)} of {len(hashes)} ids are not erased; nothing was changed")
            body = {"free": as_text(hashes), "rows": 0, "people": len(hashes)}
            return self._done(Plan("readmit", body, writer.state), 0, started)

    # Answers

    def predict(self, data: Any) -> Floats:
        """Predict the target of rows, (n,) or (n, t) for t targets.

        Parameters
        ----------
        data : path or table, or array of shape (n, d)
            The columns of the inputs; others are ignored. An array has them in the order of ``status().inputs``.
        """
        while True:
            model = self._reader.current()
            parts = [
                self._predicted(model, block) for block in tables.blocks(data, model.schema, targets=False, ids=False)
            ]
            if self._reader.current() is model:
                return np.concatenate([np.empty((0, *parts[0].shape[1:])), *parts]) if parts else np.empty(0)

    def predict_to(self, data: Any, out: str | Path | IO[bytes]) -> int:
        """Predict the rows of a table into a CSV or Parquet file, with their ids if the table has them.

        Parameters
        ----------
        data : path or table
            As in `predict`; it may be larger than memory.
        out : path or binary file
            A path ends in .csv or .parquet and is written in one step; an open file gets CSV.
        """
        while True:
            model = self._reader.current()
            with predictions.written(out, model.schema, data) as write:
                for block in write.blocks():
                    write(block, self._predicted(model, block))
                if self._reader.current() is model:
                    return write.commit()

    @staticmethod
    def _predicted(model: Model, block: Block) -> Floats:
        y = model.ensemble.predict(block.X)
        return y[:, 0] if y.shape[1] == 1 else y

    def verify(self, *, progress: Progress = silent) -> Verdict:
        """Train again from the surviving rows and compare; check every record and certificate."""
        self._writer.forget()  # what is in memory proves nothing about the files
        with self._writing() as writer:
            return audit.verify(writer, progress)

    @property
    def requests(self) -> list[Request]:
        """All requests, with their state and certificates."""
        return history(Ledger(self.places.ledger).read()[0])

    def status(self) -> Status:
        """What is in it."""
        with self._writing() as writer:
            requests = self.requests
            model, code = writer.model, writer.model.blueprint.code
            return Status(
                vault=writer.identity.vault,
                rows=model.manifest.rows,
                erased_ids=writer.people.tombstones(),
                requests=len(requests),
                uncertified=sum(r.state == "done" for r in requests),
                trained=next(r.time for r in requests if r.number == model.manifest.training),
                targets=model.schema.targets,
                inputs=model.schema.inputs,
                shards=code.shards,
                learners=code.learners,
                features=repr(model.blueprint.features),
                observed_bounds=model.blueprint.observed,
                bytes=sum(path.stat().st_size for path in self.places.vault.iterdir()),
            )

    def digest(self) -> str:
        """The fingerprint of the model, as `CodedRegressor.digest`: as secret as the rows, once one is unlearned."""
        with self._writing() as writer:
            return writer.state.ensemble.digest()

    # Keys

    def public_keys(self) -> list[str]:
        """The thumbprints of the keys that certificates are checked with, the newest first."""
        return [key.name for key in load_public(self.places.public)]

    def certificate_path(self, request: int) -> Path:
        """Where the certificate of a request is written."""
        return self._writer.notary.path(request)

    def renew_key(self) -> str:
        """Make a new key pair in place of one that is lost. Older certificates are checked with the older key."""
        with self._writing() as writer:
            key = self._keys.renew()
            writer.forget()
        self._settle()  # certifies what was done while the key was away
        return key.public.name

    # What requests share

    def _find(self, ids: Iterable[bytes]) -> tuple[Hashes, Entries]:
        """Hashes and entries of ids, each once; an id that was never there is an error."""
        if not (wanted := list(dict.fromkeys(ids))):
            raise InvalidInput("ids is empty: name at least one id")
        hashes = hashed(self._writer.identity.key, wanted)
        entries = self._writer.people.find(hashes)
        known = np.union1d(entries.live.owner, entries.buried.owner)
        if len(unknown := np.setdiff1d(np.arange(len(hashes)), known)):
            raise UnknownId(
                f"{len(unknown)} of {len(hashes)} ids are not in the vault, the first at position {unknown[0]}; "
                "nothing was changed"
            )
        return hashes, entries

    def _again(self, earlier: tuple[int, ...]) -> Receipt:
        """The answer that was given before."""
        request = next(r for r in self.requests if r.number == earlier[-1])
        path = self.certificate_path(request.number)
        return Receipt(
            request.number,
            request.kind,
            request.rows,
            request.people,
            learners=0,
            seconds=0.0,
            certificate=request.certificate,
            path=path if path.exists() else None,
            earlier=earlier,
        )

    def _done(self, plan: Plan, learners: int, started: float) -> Receipt:
        """Carry a plan out, and say so."""
        record = self._writer.perform(plan)
        jws, path = self._writer.notary.last
        return Receipt(
            record.request,
            plan.kind,
            plan.body["rows"],
            plan.body["people"],
            learners,
            time.perf_counter() - started,
            jws,
            path,
            notes=tuple(self._writer.notes),
        )


def _whole(blocks: Iterable[Block]) -> tuple[list[bytes], Floats, Floats]:
    """All rows of a table at once: ids, inputs and targets."""
    parts = [(block.ids or [], block.X, block.y) for block in blocks]
    ids, X, y = zip(*parts, strict=True)
    return [one for part in ids for one in part], np.concatenate(X), np.concatenate(y)


def _slots_in_order(owners: list[bytes], live: Entries) -> Slots:
    """The slot of each row of a table: the k-th time that an id is named is its k-th row."""
    place = {owner: k for k, owner in enumerate(dict.fromkeys(owners))}
    group = np.array([place[owner] for owner in owners], dtype=np.intp)
    have = np.bincount(live.owner, minlength=len(place))
    where, way_out = "in the vault than in this table", "unlearn the id, readmit it and add its rows"
    return slots_of_mentions(group, live.slot, have, where=where, way_out=way_out)
