"""Vault: a model that lives on disk for years and answers erasure requests.

What reads tables, signs or audits is loaded when it is used: who only looks at a vault does not wait for pyarrow or
cryptography.
"""

import errno
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Unpack

from ..encoding.values import whole_number
from ..errors import InvalidFile, InvalidSetting, MissingData, Unfinished, VaultBusy
from ..exact import threads
from ..exact.arrays import Floats
from ..learning.settings import Settings
from . import tables
from .certificates.keyring import known_keys, thumbprint
from .certificates.keys import Keys
from .certificates.waiting import waiting
from .disk.folder import Folder, Places, VaultIdentity
from .disk.manifest import Manifest
from .founding import check_same_vault, taken, undone_if_it_fails, wanted_schema
from .ledger.history import LoggedRequest, history
from .ledger.ledger import Ledger
from .ledger.records import KEY, Record
from .looking import finished, own_records, pending, status_of
from .predicting import predicted, written
from .reader import Reader
from .receipts import Predictions, Receipt, Status, Verdict, Written
from .requests import Add, Readmit, Rebound, Rectify, Train, Unlearn
from .requests.caller import Caller, Said, one_line
from .requests.intake import Progress, silent
from .requests.naming import OR_ATTEST, Holding, holdings, look_up
from .requests.plan import Plan
from .requests.taking import Workers
from .requests.train import blueprint_of
from .tables import Schema
from .unlocked import settled, unlocked
from .writer import Writer

if TYPE_CHECKING:
    from .certificates.anchors import Anchor
    from .certificates.personal import PersonalReceipt
    from .evaluation.evaluation import Evaluation
    from .sealing import Sealed


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

    def __init__(
        self, places: Places, identity: VaultIdentity, keys: Keys, *, wait: float, read_only: bool = False
    ) -> None:
        """Use `create` or `open`."""
        self.places, self.read_only = places, read_only
        self._wait = wait
        self._keys = keys
        self._writer = Writer(places, identity, self._keys)
        self.receipt: Receipt | None = None  # of the training, in a vault that was just made
        self._reader = Reader(self._writer.folder, Ledger(places.ledger), identity.vault, self._settle, wait)

    @classmethod
    def create(
        cls,
        path: str | Path,
        data: Any,
        *,
        target: str | list[str] | None = None,
        id: str | None = None,  # noqa: A002 - the word that a user looks for
        model: Any = None,
        planned: str = "",
        schema: Schema | str | Path | None = None,
        fold_case: bool = False,
        key: str | Path | None = None,
        sign_with: str | None = None,
        public_key: str | Path | None = None,
        replace: bool = False,
        skip_erased: bool = False,
        group: bool = False,
        wait: float = 10.0,
        progress: Progress = silent,
        client: Any = None,
        **said: Unpack[Said],
    ) -> "Vault":
        """Train a model on a table, in a new vault.

        Parameters
        ----------
        path : path
            The folder, whose name ends in ``.vault``. Its ledger and keys lie beside it.
        data : path, list of paths or table
            CSV, Parquet or Arrow files, which may be larger than memory, or a pyarrow, pandas or polars table. A path
            may be a file, a glob, a folder with all tables below it, or a URI like ``s3://bucket/folder``.
        target, id : str
            The columns of the target (or targets) and of the ids; with a schema, it names them.
        model : CodedRegressor or Settings, optional
            The parameters; ``learner`` and ``keep`` must be the defaults: a vault learns by ridge regression and keeps
            its rows.
        planned : str
            What a plan promised of the model, one line for the ledger, which `status` shows.
        schema : Schema or path, optional
            What each column is. Without one all other columns must be numbers without gaps, with observed bounds.
        fold_case : bool
            Whether ids that differ only in case are the same person, as ``fold_case`` in a schema says.
        key : path, optional
            An Ed25519 private key (PEM) to sign certificates with. Default: a new pair beside the folder.
        sign_with : str, optional
            A command, or ``unix:`` and the path of a socket, that signs instead: it holds the key.
        public_key : path, optional
            The public half (PEM) of the key that ``sign_with`` holds.
        replace : bool
            Whether to train an existing vault anew, on this table alone. Who was erased stays erased.
        skip_erased : bool
            Whether to leave out rows of ids that were erased, instead of refusing the table.
        group : bool
            Whether the group of the new folder may read the vault (all but the private key), and so predict.
        wait : float
            Seconds to wait for another writer.
        progress : callable, optional
            Called with what is being done, how many rows more were done, and of how many.
        client : distributed.Client or expunge.distributed.Cluster, optional
            A cluster of Dask that helps; the result has the same bytes. None: this process alone.
        **said
            What the caller has to say (`Said`): ``reference`` and ``actor``, one line of text each, go into the ledger;
            with ``in_certificate=True`` into the certificate, too.
        """
        places, caller, data = Places.of(path), Caller(**said), tables.taken(data)
        wanted = wanted_schema(data, schema, target, id, fold_case)
        blueprint = blueprint_of(Settings() if model is None else Settings.of(model), wanted)
        keys, workers = Keys(places, key, sign_with), _workers(client)
        signing = keys.given(public_key)
        with undone_if_it_fails(places) as founding:
            vault = cls(places, founding.identity(wait, group=group), keys, wait=wait)
            writer = vault._writer
            with writer.locked(wait), writer.helped(workers):
                if writer.trained and not replace:
                    raise taken(places)
                started = _clock(reads=True)
                with writer.preparing():
                    plan = Train.plan(
                        writer.site,
                        data,
                        wanted,
                        blueprint,
                        planned=one_line("planned", planned),
                        skip_erased=skip_erased,
                        progress=progress,
                    )
                    writer.check_process()  # whoever is told of the progress may have forked
                    introduction = None
                    if signing is not None or not writer.trained:  # a key that is lost is not replaced unasked
                        founding.makes(*keys.files)
                        introduction = writer.notary.introduction(signing)
                vault.receipt = vault._done(plan, caller, started, introduction)
        return vault

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        key: str | Path | None = None,
        sign_with: str | None = None,
        wait: float = 10.0,
        read_only: bool = False,
    ) -> "Vault":
        """Take up a vault; what was accepted and not finished is finished first.

        Parameters
        ----------
        path : path
            The folder.
        key : path, optional
            The private key that signs certificates. Default: the one beside the folder.
        sign_with : str, optional
            A command, or ``unix:`` and the path of a socket, that signs instead: it holds the key.
        wait : float
            Seconds to wait for another writer.
        read_only : bool
            Whether to change nothing at all: nothing is written, locked, signed or wiped. While an accepted request is
            not finished such a vault refuses to answer (`Unfinished`).
        """
        places = Places.of(path)
        if not places.vault.is_dir():
            raise MissingData(f"no vault at {places.vault}; make one with: expunge train")
        if not places.ledger.exists():
            raise InvalidFile(f"{places.ledger} is not there: a vault cannot be opened without its ledger")
        identity = Folder(places.vault).identity()
        check_same_vault(places, identity)
        vault = cls(places, identity, Keys(places, key, sign_with), wait=wait, read_only=read_only)
        vault._open()
        return vault

    def _open(self) -> None:
        """Finish what was begun; the leftovers of a writer that is at work are left alone."""
        folder, ledger = self._writer.folder, self._writer.ledger
        if self.read_only:
            settled(folder, ledger, self._wait)
            self._reader.current()
            return
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
            elif folder.leftovers(manifest) or self._keys.left_behind() or self._can_sign(manifest, records):
                with suppress(VaultBusy, PermissionError):
                    self._settle(wait=0.0)
        self._reader.current()

    def _can_sign(self, manifest: Manifest, records: Sequence[Record]) -> bool:
        """Whether there is something to be signed, and somebody to sign it."""
        return bool(waiting(records)) and self._keys.signing(known_keys(manifest.keys, records)) is not None

    def _settle(self, wait: float | None = None) -> None:
        """Take the lock for a moment, which finishes what was accepted."""
        if self.read_only:
            raise PermissionError(errno.EROFS, "this vault was opened read only")
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
        if self.read_only:
            raise InvalidSetting(f"{self.places.vault} was opened read only: open it without read_only to change it")
        with self._writer.locked(self._wait if wait is None else wait):
            if not self._writer.trained:
                raise InvalidFile(f"{self.places.vault} was never trained to the end: train it again")
            yield self._writer

    @contextmanager
    def _looking(self, *, tidy: bool = False) -> Iterator[Writer]:
        """Read all of it: under the lock, or without if it was opened to be read only."""
        if not self.read_only:
            with self._writing() as writer:
                yield writer
        else:
            with self._writer.turns.taken(self._wait), unlocked(self._writer, self._wait, tidy=tidy):
                yield self._writer

    # Requests

    def unlearn(self, ids: Any, *, skip_unknown: bool = False, client: Any = None, **said: Unpack[Said]) -> Receipt:
        """Erase all rows of these ids: from the model, from the disk, for good.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, in one request. An id that was erased before has the answer that it had then.
        skip_unknown : bool
            Whether to leave out ids that were never there. Otherwise one of them is an error and nothing is changed.
        client : distributed.Client or expunge.distributed.Cluster, optional
            As in `create`; it helps if so many rows go that most of the others are learned anew.
        **said
            What the caller has to say (`Said`): ``reference`` and ``actor``, one line of text each, go into the ledger;
            with ``in_certificate=True`` into the certificate, too.
        """
        caller, workers, started = Caller(**said), _workers(client), _clock()
        with self._writing() as writer, writer.helped(workers):
            named = look_up(writer.site, _known(writer, ids), skip_unknown=skip_unknown, way_out=OR_ATTEST)
            if not len(named.entries.live.slot):
                return replace(self._again(named.earlier), skipped=named.skipped, notes=caller.unheard())
            return replace(self._done(Unlearn.plan(writer.site, named), caller, started), earlier=named.earlier)

    def rectify(self, data: Any, **said: Unpack[Said]) -> Receipt:
        """Replace all rows of the ids in a table by right ones, in their slots.

        Parameters
        ----------
        data : path, list of paths or table
            As in `create`. An id with several rows gets as many, in the order in which they first came.
        **said
            As in `unlearn`.
        """
        caller, started = Caller(**said), _clock(reads=True)
        with self._writing() as writer:
            blocks = tables.read_blocks(data, writer.now.schema, targets=True, ids=True)
            return self._done(Rectify.plan(writer.site, blocks), caller, started)

    def add(
        self,
        data: Any,
        *,
        clip: bool = False,
        skip_erased: bool = False,
        progress: Progress = silent,
        client: Any = None,
        **said: Unpack[Said],
    ) -> Receipt:
        """Learn more rows.

        Parameters
        ----------
        data : path, list of paths or table
            As in `create`.
        clip : bool
            Whether to move values outside declared bounds to the bound, instead of refusing the table.
        skip_erased : bool
            Whether to leave out rows of ids that were erased, instead of refusing the table.
        progress, client : optional
            As in `create`.
        **said
            As in `unlearn`.
        """
        caller, workers, started = Caller(**said), _workers(client), _clock(reads=True)
        with self._writing() as writer, writer.helped(workers):
            with writer.preparing():
                plan = Add.plan(writer.site, data, clip=clip, skip_erased=skip_erased, progress=progress)
            return self._done(plan, caller, started)

    def readmit(self, ids: Any, *, skip_unknown: bool = False, **said: Unpack[Said]) -> Receipt:
        """Let erased ids come again: the people consented. Their rows are not back; add them.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many.
        skip_unknown : bool
            Whether to leave out ids that are not erased. Otherwise one of them is an error and nothing is changed.
        **said
            As in `unlearn`.
        """
        caller, started = Caller(**said), _clock()
        with self._writing() as writer:
            named = look_up(writer.site, _known(writer, ids), erased=True, skip_unknown=skip_unknown)
            return self._done(Readmit.plan(writer.site, named), caller, started)

    def rebound(
        self, bounds: Mapping[str, tuple[Any, Any] | None], *, progress: Progress = silent, **said: Unpack[Said]
    ) -> Receipt:
        """Give columns other declared bounds, and learn all rows again with them.

        Parameters
        ----------
        bounds : mapping of a column to (low, high) or None
            Numbers, or dates (also as text, ``"2024-12-31"``); None observes the column from now on. A row outside
            the new bounds is an error and nothing is changed. Values that were clipped when they came stay clipped.
        progress : callable, optional
            As in `create`.
        **said
            As in `unlearn`.
        """
        caller, started = Caller(**said), _clock()
        with self._writing() as writer:
            with writer.preparing():
                plan = Rebound.plan(writer.site, bounds, progress)
            return self._done(plan, caller, started)

    # Receipts for people

    def personal_receipts(
        self, ids: Any, *, request: int | None = None, skip_unknown: bool = False
    ) -> "dict[str, PersonalReceipt]":
        """Make the receipts of people, by their ids as they are given; they can be made again at any time.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many. Whoever holds a receipt and knows the id can check it offline.
        request : int, optional
            The request that the receipts are of: an unlearn, rectify, add or readmit that was about these ids. Default:
            for each id the one that erased it.
        skip_unknown : bool
            Whether to leave out ids that the request was not about (that are not erased), instead of refusing.
        """
        from .issuing import issue

        given = tables.id_texts(ids)
        with self._looking() as writer:
            known = _known(writer, given)
            made = issue(writer, known, request, skip_unknown=skip_unknown)
        return {text: made[one] for text, one in zip(given, known, strict=True) if one in made}

    def attest_unknown(self, ids: Any) -> "dict[str, PersonalReceipt]":
        """Sign for each id that the vault holds no row of it and has not erased it, as of now.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, of which the vault knows none.
        """
        from .issuing import attest

        given = tables.id_texts(ids)
        with self._writing() as writer:
            known = _known(writer, given)
            made = attest(writer, known)
        return {text: made[one] for text, one in zip(given, known, strict=True)}

    def ids_in(self, data: Any) -> list[str]:
        """The ids in a table, each once as it is first written, in the order in which they come.

        Parameters
        ----------
        data : path, list of paths or table
            As in `create`.
        """
        return [one.decode() for one in tables.read_ids(data, self._reader.current().schema)]

    def seal(self, ids: Any) -> "list[Sealed]":
        """Seal ids for whoever has to keep them until a request is made: only this vault can open them.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, in the forms of this vault: ids that are the same person are sealed alike.
        """
        from .sealing import Sealer

        fold_case = self._reader.current().schema.fold_case
        return Sealer(self._writer.identity.key).seal(tables.id_bytes(ids, fold_case=fold_case))

    def unseal(self, sealed: "Sequence[Sealed]") -> list[str]:
        """Return the ids that `seal` sealed."""
        from .sealing import Sealer

        return Sealer(self._writer.identity.key).open(sealed)

    # Answers

    def predict(self, data: Any) -> Floats:
        """Predict the target of rows, (n,) or (n, t) for t targets.

        Parameters
        ----------
        data : path, list of paths or table, or array of shape (n, d)
            The columns of the inputs; others are ignored. An array has them in the order of ``status().inputs``. A
            stream that can be read only once is held in memory, to be read again if the vault changes meanwhile.
        """
        return predicted(self._reader, data, ids=False).values

    def predict_with_ids(self, data: Any) -> tuple[list[str] | None, Floats]:
        """Predict the target of rows, with their ids if the table has them, else None.

        Parameters
        ----------
        data : path, list of paths or table
            As in `predict`.
        """
        found = self.predictions(data)
        return found.ids, found.values

    def predictions(self, data: Any) -> Predictions:
        """Predict the target of rows, with their ids, and say which rows lie outside the bounds.

        Parameters
        ----------
        data : path, list of paths or table, or array of shape (n, d)
            As in `predict`.
        """
        return predicted(self._reader, data, ids=True)

    def predict_to(self, data: Any, out: str | Path | IO[bytes], *, guard_formulas: bool = False) -> Written:
        """Predict the rows of a table into a CSV or Parquet file, with their ids if the table has them.

        Parameters
        ----------
        data : path, list of paths or table
            As in `predict`; it may be larger than memory. A stream that can be read only once has to be given again
            if the vault changes while it is read (`VaultBusy`).
        out : path or binary file
            A path ends in .csv or .parquet and is written in one step; an open file gets CSV.
        guard_formulas : bool
            Whether ids in CSV that a spreadsheet would take for formulas (they begin with =, +, -, @ or a tab) get a
            quote in front. Parquet needs no guard.
        """
        return written(self._reader, data, out, guard_formulas=guard_formulas)

    def evaluate(
        self, data: Any, *, resamples: int = 200, random_state: int = 0, progress: Progress = silent
    ) -> "Evaluation":
        """Predict a table that has the targets, too, and say how good the predictions are.

        Beside them stand those of a linear model and of the mean, both learned from the vault's own rows for the
        occasion. The answer's `report` writes a page with pictures.

        Parameters
        ----------
        data : path, list of paths or table
            The columns of the inputs and the targets; others are ignored, but for the ids: with them the spread of the
            scores is over people. Rows that the vault has learned are predicted too well: bring others.
        resamples, random_state : int
            How many draws of people the spread is computed from, and their seed.
        progress : callable, optional
            As in `create`.
        """
        from .evaluating import evaluate

        whole_number("resamples", resamples)
        return evaluate(self._reader, self._looking, data, progress, resamples=resamples, seed=random_state)

    def holds(self, ids: Any) -> list[Holding]:
        """Say of each id, in the order asked, whether it has rows, was erased, or is unknown.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many.
        """
        with self._looking() as writer:
            return holdings(writer.site, _known(writer, ids))

    def verify(self, *, progress: Progress = silent, head: "Anchor | str | None" = None, client: Any = None) -> Verdict:
        """Train again from the surviving rows and compare; check every record and certificate.

        Parameters
        ----------
        progress : callable, optional
            As in `create`.
        head : Anchor or str, optional
            A head that was kept outside, or its text: whether the ledger continues it.
        client : distributed.Client or expunge.distributed.Cluster, optional
            As in `create`.
        """
        from . import audit

        if isinstance(head, str):
            from .certificates.anchors import Anchor

            head = Anchor(head.strip())
        workers = _workers(client)
        self._writer.forget()  # what is in memory proves nothing about the files
        with self._looking(tidy=True) as writer, writer.helped(workers):
            return audit.verify(writer, progress, head)

    def head(self) -> str:
        """Return where the ledger ends, signed: kept outside, it shows a ledger that was cut or rewritten later."""
        from .certificates.heads import sign_head

        with self._writing() as writer:
            return sign_head(writer.ledger.read()[0], writer.notary.signer())

    @property
    def requests(self) -> list[LoggedRequest]:
        """All requests, with their state and certificates."""
        return history(own_records(self.places, self._writer.identity.vault))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that an array to be predicted has, in their order; no look at the ledger's past."""
        return tuple(self._reader.current().manifest.about.inputs)

    @property
    def newest(self) -> int:
        """The number of the newest request that predictions have carried out."""
        return self._reader.current().manifest.request

    def status(self) -> Status:
        """Return what is in the vault: rows, people, requests, and what the model is."""
        while True:
            manifest = self._reader.current().manifest
            found = status_of(self.places, manifest)
            if self._reader.current().manifest is manifest:
                return found

    def digest(self) -> str:
        """The fingerprint of the model, as `CodedRegressor.digest`: as secret as the rows, once one is unlearned."""
        with self._looking() as writer:
            return writer.now.state.ensemble.digest()

    # Keys

    def public_keys(self) -> list[str]:
        """The thumbprints of the keys that certificates are checked with, the newest first, as the ledger tells."""
        records = own_records(self.places, self._writer.identity.vault)
        return [thumbprint(x) for x in known_keys((), records)]

    def jwks(self) -> list[dict[str, str]]:
        """The same keys as JSON Web Keys (RFC 8037), the newest first."""
        records = own_records(self.places, self._writer.identity.vault)
        about = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig"}
        return [about | {"x": x, "kid": thumbprint(x)} for x in known_keys((), records)]

    def key_changes(self) -> list[str]:
        """What each key signed about the one that followed it, the newest first: for who has pinned an older.

        Compact JWS, of type ``expunge-key+jws``. A key that was lost could say nothing about the next.
        """
        records = own_records(self.places, self._writer.identity.vault)
        return [str(r.body["endorsed"]) for r in reversed(records) if r.kind == KEY and r.body["endorsed"]]

    def certificate_path(self, request: int) -> Path:
        """Where the certificate of a request is written."""
        return self._writer.notary.path(request)

    def renew_key(self, *, public_key: str | Path | None = None) -> str:
        """Let another key sign from now on, and return its thumbprint. Older certificates fit the older key.

        A new pair is made, unless this vault was opened with a key that it does not know yet, which is then taken. The
        key before, if it is there, signs that the new one follows it.

        Parameters
        ----------
        public_key : path, optional
            The public half (PEM) of the key that ``sign_with`` holds now.
        """
        given, changed = self._keys.held(public_key), False
        try:
            with self._writing() as writer:
                known = writer.notary.known
                try:
                    writer.notary.adopt(given)
                finally:
                    changed = writer.notary.known != known
                writer.forget()
                newest = thumbprint(writer.notary.known[0])
            self._settle()  # certifies what was done while the key was away
        except Exception as error:
            if not changed:
                raise
            raise Unfinished(
                f"another key signs from now on, but the change could not be finished: {error}; "
                "the next command on this vault goes on with it"
            ) from error
        return newest

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

    def _done(self, plan: Plan, caller: Caller, started: float, introduction: Record | None = None) -> Receipt:
        """Carry a plan out, and return its receipt."""
        record = self._writer.perform(plan, caller, introduction)
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


def _workers(client: Any) -> Workers | None:
    """What a cluster can do for a request; found by its name, because its room stands on this one."""
    if client is None:
        return None
    found: Workers = import_module("expunge.distributed").workers_of(client)
    return found


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
