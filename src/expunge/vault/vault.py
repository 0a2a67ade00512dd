"""Vault: a model that lives on disk for years and answers erasure requests.

What reads tables, signs or audits is loaded when it is used: who only looks at a vault does not wait for pyarrow or
cryptography.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import InvalidFile, InvalidSetting, MissingData, VaultBusy
from ..exact import threads
from ..exact.arrays import Floats
from ..learning.settings import Settings
from . import tables
from .certificates.keys import Keys, signing_key
from .certificates.waiting import waiting
from .disk.folder import Folder, Places, VaultIdentity
from .disk.snapshot import Model
from .founding import check_same_vault, found_identity, undone_if_it_fails, wanted_schema
from .ledger.history import LoggedRequest, history
from .ledger.ledger import Ledger
from .looking import finished, pending, status_of
from .reader import Reader
from .receipts import Receipt, Status, Verdict
from .requests import Add, Readmit, Rebound, Rectify, Train, Unlearn
from .requests.intake import Progress, silent
from .requests.naming import Holding, holdings, look_up
from .requests.plan import Plan
from .requests.train import blueprint_of
from .tables import Schema
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

    def __init__(self, places: Places, identity: VaultIdentity, *, key: str | Path | None, wait: float) -> None:
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
        fold_case: bool = False,
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
        model : CodedRegressor or Settings, optional
            The parameters; ``learner`` and ``keep`` must be the defaults: a vault learns by ridge regression and keeps
            its rows.
        schema : Schema or path, optional
            What each column is. Without one all other columns must be numbers without gaps, with observed bounds.
        fold_case : bool
            Whether ids that differ only in case are the same person, as ``fold_case`` in a schema says.
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
        places, data = Places.of(path), tables.taken(data)
        wanted = wanted_schema(data, schema, target, id, fold_case)
        blueprint = blueprint_of(Settings() if model is None else Settings.of(model), wanted)
        signing = None if key is None else signing_key(Path(key))
        with undone_if_it_fails(places):
            vault = cls(places, found_identity(places, wait), key=key, wait=wait)
            writer = vault._writer
            with vault._mutex, writer.locked(wait):
                if writer.trained and not replace:
                    raise InvalidSetting(f"{places.vault} exists already; add rows, or train it anew with --replace")
                if signing is not None or not writer.trained:  # a key that is lost is not replaced unasked
                    vault._keys.make(signing)
                started = _clock(reads=True)
                with writer.preparing():
                    blocks = tables.read_blocks(data, wanted, targets=True, ids=True)
                    plan = Train.plan(
                        writer.site, blocks, wanted, blueprint, skip_erased=skip_erased, progress=progress
                    )
                vault.receipt = vault._done(plan, started)
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
        """Finish what was begun; the leftovers of a writer that is at work are left alone."""
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
        """Take the lock for a moment, which finishes what was accepted."""
        with self._writing(wait):
            pass

    @property
    def notes(self) -> tuple[str, ...]:
        """What the last opening or request has to say to a person."""
        return tuple(self._writer.notary.notes)

    def __repr__(self) -> str:
        trained = self._writer.trained
        known = [self._reader.seen, None if trained is None else trained.manifest]
        manifest = max(filter(None, known), key=lambda manifest: manifest.request, default=None)
        if manifest is None:
            return f"Vault({str(self.places.vault)!r})"
        return f"Vault({str(self.places.vault)!r}, rows={manifest.rows}, request={manifest.request})"

    @contextmanager
    def _writing(self, wait: float | None = None) -> Iterator[Writer]:
        with self._mutex, self._writer.locked(self._wait if wait is None else wait):
            if not self._writer.trained:
                raise InvalidFile(f"{self.places.vault} was never trained to the end: train it again")
            yield self._writer

    # Requests

    def unlearn(self, ids: Any, *, skip_unknown: bool = False) -> Receipt:
        """Erase all rows of these ids: from the model, from the disk, for good.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, in one request. An id that was erased before has the answer that it had then.
        skip_unknown : bool
            Whether to leave out ids that were never there. Otherwise one of them is an error and nothing is changed.
        """
        started = _clock()
        with self._writing() as writer:
            named = look_up(writer.site, _known(writer, ids), skip_unknown=skip_unknown)
            if not len(named.entries.live.slot):
                return replace(self._again(named.earlier), skipped=named.skipped)
            return replace(self._done(Unlearn.plan(writer.site, named), started), earlier=named.earlier)

    def rectify(self, data: Any) -> Receipt:
        """Replace all rows of the ids in a table by right ones, in their slots.

        Parameters
        ----------
        data : path or table
            As in `create`. An id with several rows gets as many, in the order in which they first came.
        """
        started = _clock(reads=True)
        with self._writing() as writer:
            blocks = tables.read_blocks(data, writer.now.schema, targets=True, ids=True)
            return self._done(Rectify.plan(writer.site, blocks), started)

    def add(self, data: Any, *, clip: bool = False, skip_erased: bool = False, progress: Progress = silent) -> Receipt:
        """Learn more rows.

        Parameters
        ----------
        data : path or table
            As in `create`.
        clip : bool
            Whether to move values outside declared bounds to the bound, instead of refusing the table.
        skip_erased : bool
            Whether to leave out rows of ids that were erased, instead of refusing the table.
        progress : callable, optional
            As in `create`.
        """
        started = _clock(reads=True)
        with self._writing() as writer:
            with writer.preparing():
                blocks = tables.read_blocks(data, writer.now.schema, targets=True, ids=True)
                plan = Add.plan(writer.site, blocks, clip=clip, skip_erased=skip_erased, progress=progress)
            return self._done(plan, started)

    def readmit(self, ids: Any, *, skip_unknown: bool = False) -> Receipt:
        """Let erased ids come again: the people consented. Their rows are not back; add them.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many.
        skip_unknown : bool
            Whether to leave out ids that are not erased. Otherwise one of them is an error and nothing is changed.
        """
        started = _clock()
        with self._writing() as writer:
            named = look_up(writer.site, _known(writer, ids), erased=True, skip_unknown=skip_unknown)
            return self._done(Readmit.plan(writer.site, named), started)

    def rebound(self, bounds: Mapping[str, tuple[Any, Any] | None], *, progress: Progress = silent) -> Receipt:
        """Give columns other declared bounds, and learn all rows again with them.

        Parameters
        ----------
        bounds : mapping of a column to (low, high) or None
            Numbers, or dates (also as text, ``"2024-12-31"``); None observes the column from now on. A row outside
            the new bounds is an error and nothing is changed. Values that were clipped when they came stay clipped.
        progress : callable, optional
            As in `create`.
        """
        started = _clock()
        with self._writing() as writer:
            with writer.preparing():
                plan = Rebound.plan(writer.site, bounds, progress)
            return self._done(plan, started)

    # Answers

    def predict(self, data: Any) -> Floats:
        """Predict the target of rows, (n,) or (n, t) for t targets.

        Parameters
        ----------
        data : path or table, or array of shape (n, d)
            The columns of the inputs; others are ignored. An array has them in the order of ``status().inputs``. A
            stream that can be read only once is held in memory, to be read again if the vault changes meanwhile.
        """
        return self._predict(data, ids=False)[1]

    def predict_with_ids(self, data: Any) -> tuple[list[str] | None, Floats]:
        """Predict the target of rows, with their ids if the table has them, else None.

        Parameters
        ----------
        data : path or table
            As in `predict`.
        """
        return self._predict(data, ids=True)

    def _predict(self, data: Any, *, ids: bool) -> tuple[list[str] | None, Floats]:
        data = tables.kept(data)
        while True:
            model = self._reader.current()
            wanted = ids and tables.has_ids(data, model.schema)
            owners, parts = list[str](), list[Floats]()
            for block in tables.read_blocks(data, model.schema, targets=False, ids=wanted):
                parts.append(_predicted(model, block))
                owners += [one.decode() for one in block.ids or ()]
            if self._reader.current() is model:
                t = len(model.schema.targets)
                return owners if wanted else None, np.concatenate([np.empty((0, t) if t > 1 else 0), *parts])

    def predict_to(self, data: Any, out: str | Path | IO[bytes], *, guard_formulas: bool = False) -> int:
        """Predict the rows of a table into a CSV or Parquet file, with their ids if the table has them.

        Parameters
        ----------
        data : path or table
            As in `predict`; it may be larger than memory. A stream that can be read only once has to be given again
            if the vault changes while it is read (`VaultBusy`).
        out : path or binary file
            A path ends in .csv or .parquet and is written in one step; an open file gets CSV.
        guard_formulas : bool
            Whether ids in CSV that a spreadsheet would take for formulas (they begin with =, +, -, @ or a tab) get a
            quote in front. Parquet needs no guard.
        """
        data = tables.taken(data)
        while True:
            model = self._reader.current()
            with tables.written_predictions(out, model.schema, data, guard_formulas=guard_formulas) as write:
                for block in write.blocks():
                    write(block, _predicted(model, block))
                if self._reader.current() is model:
                    return write.commit()
            if tables.read_once(data):
                raise VaultBusy(
                    "the vault changed while the table was read, and this stream can be read only once: give it "
                    "again; nothing was written"
                )

    def holds(self, ids: Any) -> list[Holding]:
        """Say of each id, in the order asked, whether it has rows, was erased, or is unknown.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many.
        """
        with self._writing() as writer:
            return holdings(writer.site, _known(writer, ids))

    def verify(self, *, progress: Progress = silent) -> Verdict:
        """Train again from the surviving rows and compare; check every record and certificate."""
        from . import audit

        self._writer.forget()  # what is in memory proves nothing about the files
        with self._writing() as writer:
            return audit.verify(writer, progress)

    @property
    def requests(self) -> list[LoggedRequest]:
        """All requests, with their state and certificates."""
        return history(Ledger(self.places.ledger).read()[0])

    def status(self) -> Status:
        """Return what is in the vault: rows, people, requests, and what the model is."""
        while True:
            manifest = self._reader.current().manifest
            found = status_of(self.places, manifest)
            if self._reader.current().manifest is manifest:
                return found

    def digest(self) -> str:
        """The fingerprint of the model, as `CodedRegressor.digest`: as secret as the rows, once one is unlearned."""
        with self._writing() as writer:
            return writer.now.state.ensemble.digest()

    # Keys

    def public_keys(self) -> list[str]:
        """The thumbprints of the keys that certificates are checked with, the newest first."""
        from .certificates.jws import load_public

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

    def _again(self, earlier: tuple[int, ...]) -> Receipt:
        """Return the receipt of an erasure that was carried out before."""
        request = next(request for request in self.requests if request.number == earlier[-1])
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

    def _done(self, plan: Plan, started: float) -> Receipt:
        """Carry a plan out, and return its receipt."""
        record = self._writer.perform(plan)
        certificate, path = self._writer.notary.last
        return Receipt(
            record.request,
            record.kind,
            plan.request.rows,
            plan.request.people,
            plan.learners,
            time.perf_counter() - started,
            certificate,
            path,
            skipped=plan.skipped,
            known=plan.known,
            clipped=plan.clipped,
            notes=tuple(self._writer.notary.notes),
        )


def _clock(*, reads: bool = False) -> float:
    """Load what only requests need, and those that read tables; that is no part of their time. Then read the clock."""
    from .certificates import jws  # noqa: F401 - loaded for whoever certifies

    threads.ready()
    if reads:
        _ = tables.read_blocks  # loads pyarrow
    return time.perf_counter()


def _known(writer: Writer, ids: Any) -> list[bytes]:
    """Return ids as this vault knows them."""
    return tables.id_bytes(ids, fold_case=writer.now.schema.fold_case)


def _predicted(model: Model, block: tables.Block) -> Floats:
    """Predict the rows of a block: (n,), or (n, t) for several targets."""
    y = model.state.ensemble.predict(block.X)
    return y[:, 0] if y.shape[1] == 1 else y
