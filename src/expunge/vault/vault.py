"""Vault: a model that lives on disk for years and answers erasure requests.

Modules that read tables, sign or audit are imported when they are used: reading a vault's status does not have to wait
for pyarrow or cryptography.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Unpack

from .. import tables
from ..encoding.values import whole_number
from ..errors import InvalidCertificate, InvalidFile, InvalidSetting, MissingData, Unfinished, VaultBusy
from ..exact import threads
from ..exact.arrays import Floats, unique
from ..learning.settings import Settings
from ..tables import Schema
from .certificates.keys import KeyStore, known_keys, thumbprint
from .creation import check_ledger_vault, resolve_schema, undo_on_failure, vault_exists_error
from .disk.folder import Folder, VaultIdentity, VaultPaths, queue_folder
from .disk.manifest import Planning
from .disk.people import hash_ids, hashes_to_bytes
from .issuance import build_outcomes, issue_receipts, sign_unknown_ids
from .ledger.index import LedgerIndex, RequestLog
from .ledger.ledger import Ledger
from .ledger.records import KeyChange, LoggedRequest, Record
from .reader import Reader, load_unlocked, predict_table, predict_to_file, wait_until_settled
from .requests import Add, Readmit, Rebound, Rectify, Replan, Train, Unlearn
from .requests.choice import check_planning
from .requests.comparison import TOLERANCE, ReplacementRules
from .requests.intake import ProgressCallback, Workers, ignore_progress
from .requests.lookup import SKIP_OR_ATTEST_HINT, Holding, IdLookup, find_holdings, find_ids, look_up
from .requests.plan import RequestPlan
from .requests.replan import PreparedPlan, read_planning_rows
from .requests.request import Caller, CallerArgs, Erasure, check_one_line
from .requests.train import draw_vault_blueprint
from .results import PersonOutcome, Predictions, Receipt, Status, Verdict, WrittenPredictions
from .status import build_status, different_vault_error, read_condition
from .writer import Writer

if TYPE_CHECKING:
    from .backup import Backup
    from .certificates.personal_receipts import PersonalReceipt
    from .certificates.statements import Anchor
    from .evaluation.evaluation import Evaluation
    from .restoration import RestoreResult
    from .sealed_ids import SealedId


class Vault:
    """A model on disk that can forget. Make one with `Vault.create`, open one with `Vault.open`.

    Threads may share a vault; processes open the same path. Requests wait for each other, by a lock that ends with the
    process that holds it. Predictions do not wait, and never come from a model that misses an accepted request.

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
        self, places: VaultPaths, identity: VaultIdentity, keys: KeyStore, *, wait: float, read_only: bool = False
    ) -> None:
        """Use `create` or `open`."""
        self.places, self.read_only, self._queue = places, read_only, queue_folder(places.vault)
        self._wait, self._keys = wait, keys
        self._writer = Writer(places, identity, keys)
        self.receipt: Receipt | None = None  # of the training, in a vault that was just created
        self._reader = Reader(self._writer.folder, Ledger(places.ledger), keys, identity.vault, self._settle, wait)

    @classmethod
    def create(
        cls,
        path: str | Path,
        data: Any,
        *,
        target: str | list[str] | None = None,
        id: str | None = None,  # noqa: A002 - the word that a user looks for
        model: Any = None,
        planning: Planning | None = None,
        planned: str = "",
        schema: Schema | str | Path | None = None,
        fold_case: bool = False,
        key: str | Path | None = None,
        sign_with: str | None = None,
        public_key: str | Path | None = None,
        replace: bool = False,
        new_schema: bool = False,
        fewer_rows: bool = False,
        accept_worse: bool = False,
        tolerance: float = TOLERANCE,
        evaluate_on: Any = None,
        skip_erased: bool = False,
        group: bool = False,
        wait: float = 10.0,
        progress: ProgressCallback = ignore_progress,
        client: Any = None,
        **caller_args: Unpack[CallerArgs],
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
            The columns of the target (or targets) and of the ids; not needed if a schema names them.
        model : CodedRegressor or Settings, optional
            The parameters; ``learner`` and ``keep`` must be the defaults: a vault learns by ridge regression and keeps
            its rows. Default: a small plan chooses them by looking at up to 6,000 rows, as ``expunge train`` does;
            `replan` chooses them again after people left.
        planning : Planning, optional
            Without ``model``: how the plan searches. With it: the plan that chose it by looking at rows of this table,
            as a plan file says; without ``planning`` a given model counts as declared.
        planned : str
            The score of the plan, one line for the ledger, which `status` shows.
        schema : Schema or path, optional
            The kind of each column. Without one all other columns must be numbers without gaps, with observed bounds.
        fold_case : bool
            Whether ids that differ only in case are the same person, like ``fold_case`` in a schema.
        key : path, optional
            An Ed25519 private key (PEM) to sign certificates with. Default: a new pair beside the folder.
        sign_with : str, optional
            A command, or ``unix:`` and the path of a socket, that holds the key and signs instead.
        public_key : path, optional
            The public half (PEM) of the key that ``sign_with`` holds.
        replace : bool
            Whether to train an existing vault again, on this table alone. Erased people stay erased. The new model is
            compared with the live one first, and refused (`ReplacementRefused`) unless the next four parameters allow
            the difference.
        new_schema : bool
            Whether the columns, their kinds, the target or the id column may differ.
        fewer_rows : bool
            Whether the table may have less than half of the vault's rows.
        accept_worse : bool
            Whether errors may be larger, or not comparable. The ledger records what was accepted, with the numbers.
        tolerance : float
            By which share the RMSE of a target may be larger without ``accept_worse``.
        evaluate_on : path, list of paths or table, optional
            A table with the targets by which both models are judged, each without the people in it. Default: the
            vault's rows of people who are held out from both.
        skip_erased : bool
            Whether to leave out rows of erased ids, instead of refusing the table.
        group : bool
            Whether the group of the new folder may read the vault (all but the private key), and so predict.
        wait : float
            Seconds to wait for another writer.
        progress : callable, optional
            Called with the name of the stage, the number of rows just processed, and their total.
        client : distributed.Client or expunge.distributed.Cluster, optional
            A Dask cluster that helps; the result has the same bytes. None: this process alone.
        **caller_args
            The fields of a `Caller`: ``reference``, ``actor`` and ``job``, one line of text each, go into the ledger;
            with ``in_certificate=True`` the first two go into the certificate as well.
        """
        places, caller, data = VaultPaths.from_path(path), Caller(**caller_args), tables.open_stream(data)
        schema = resolve_schema(data, schema, target, id, fold_case)
        if planning is not None or model is None:
            planning = check_planning(planning or Planning())
        blueprint = None if model is None else draw_vault_blueprint(Settings.from_model(model), schema)
        rules = ReplacementRules(new_schema, fewer_rows, accept_worse, tolerance, evaluate_on)
        if rules.any_set and not replace:
            raise InvalidSetting("new_schema, fewer_rows, accept_worse, tolerance and evaluate_on need replace=True")
        keys, workers = KeyStore(places, key, sign_with), None if client is None else _find_workers(client)
        signer = keys.load_named_signer(public_key)
        with undo_on_failure(places) as creation:
            vault = cls(places, creation.claim_identity(wait, group=group), keys, wait=wait)
            writer = vault._writer
            with writer.lock(wait), writer.use_workers(workers) if workers else nullcontext():
                if writer.loaded_snapshot and not replace:
                    raise vault_exists_error(places)
                started = _start_clock(reads_tables=True)
                with writer.abandon_on_failure():
                    plan = Train.plan(
                        writer.context,
                        data,
                        schema,
                        blueprint,
                        planning=planning,
                        planned=check_one_line("planned", planned),
                        skip_erased=skip_erased,
                        rules=rules,
                        progress=progress,
                    )
                    writer.check_process()  # the progress callback may have forked
                    introduction = None
                    if signer is not None or not writer.loaded_snapshot:  # a lost key is replaced only on request
                        creation.track_new(*keys.created_files)
                        introduction = writer.notary.compose_introduction(signer, actor=caller.actor)
                vault.receipt = vault._carry_out(plan, [caller], started, introduction=introduction)
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
        """Open a vault; a request that was accepted and not finished is finished first.

        Parameters
        ----------
        path : path
            The folder.
        key : path, optional
            The private key that signs certificates. Default: the one beside the folder.
        sign_with : str, optional
            A command, or ``unix:`` and the path of a socket, that holds the key and signs instead.
        wait : float
            Seconds to wait for another writer.
        read_only : bool
            Whether to change nothing at all: nothing is written, locked, signed or wiped. While an accepted request is
            not finished, a vault that is opened like this refuses to answer (`Unfinished`).
        """
        places = VaultPaths.from_path(path)
        if not places.vault.is_dir():
            hint = "make one with: expunge train"
            if places.ledger.exists():
                hint = f"but {places.ledger} exists: put the folder back, or restore a backup with: expunge restore"
            raise MissingData(f"no vault at {places.vault}; {hint}")
        if not places.ledger.exists():
            raise InvalidFile(f"{places.ledger} is missing: a vault cannot be opened without its ledger")
        identity = Folder(places.vault).read_identity()
        check_ledger_vault(places, identity)
        vault = cls(places, identity, KeyStore(places, key, sign_with), wait=wait, read_only=read_only)
        vault._finish_pending()
        return vault

    def _finish_pending(self) -> None:
        """Finish what was begun; the leftovers of a writer that is at work are left alone."""
        if self.read_only:
            wait_until_settled(self._writer, self._wait)
            self._reader.get_model()
            return
        condition = read_condition(self._writer.folder, self._writer.ledger, self._keys)
        if condition.progress == "untrained":
            self._settle()
        elif condition.progress == "unfinished":
            with suppress(PermissionError):
                self._settle()
        elif condition.progress == "done":  # else the reader finishes it, or reports why it cannot
            manifest, tidy = condition.manifest, not condition.has_leftovers
            if tidy and manifest is not None and condition.uncertified:
                tidy = self._keys.find_signer(known_keys(manifest.keys, condition.records)) is None
            if not tidy:
                with suppress(VaultBusy, PermissionError):
                    self._settle(wait=0.0)
        self._reader.get_model()

    def _settle(self, wait: float | None = None) -> None:
        """Take the lock for a moment, which finishes accepted requests."""
        if self.read_only:
            raise PermissionError(errno.EROFS, "this vault was opened read-only")
        with self._lock_for_writing(wait):
            pass

    @property
    def sync_failed(self) -> bool:
        """Whether the disk failed to confirm a write: no request is accepted until `reopen`."""
        return self._writer.sync_failed

    def reopen(self) -> None:
        """Read everything from the disk again, as `open` does, and finish accepted requests."""
        identity = self._writer.identity
        if Folder(self.places.vault).read_identity() != identity:
            raise different_vault_error(self._writer.folder)
        fresh = Vault(self.places, identity, self._keys, wait=self._wait, read_only=self.read_only)
        fresh._finish_pending()
        self._writer, self._reader = fresh._writer, fresh._reader

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for users from the last opening or request."""
        return tuple(self._writer.notary.notes)

    def __repr__(self) -> str:
        snapshot = self._writer.loaded_snapshot
        known = [self._reader.cached_manifest, None if snapshot is None else snapshot.manifest]
        manifest = max(filter(None, known), key=lambda manifest: manifest.request, default=None)
        if manifest is None:
            return f"Vault({str(self.places.vault)!r})"
        return f"Vault({str(self.places.vault)!r}, rows={manifest.rows}, request={manifest.request})"

    @contextmanager
    def _lock_for_writing(self, wait: float | None = None, *, client: Any = None) -> Iterator[Writer]:
        """Hold the lock; the workers of ``client``, if there is one, help meanwhile."""
        if self.read_only:
            raise InvalidSetting(f"{self.places.vault} was opened read-only: open it without read_only to change it")
        workers, writer = None if client is None else _find_workers(client), self._writer
        with writer.lock(self._wait if wait is None else wait):
            if not writer.loaded_snapshot:
                raise InvalidFile(f"{self.places.vault} was never trained completely: train it again")
            with writer.use_workers(workers) if workers else nullcontext():
                yield writer

    @contextmanager
    def _lock_for_reading(self) -> Iterator[Writer]:
        """Load everything: under the lock, or without it if the vault was opened read-only."""
        if not self.read_only:
            with self._lock_for_writing() as writer:
                yield writer
        else:
            with self._writer.turns.hold(self._wait), load_unlocked(self._writer, self._wait, without_leftovers=False):
                yield self._writer

    @contextmanager
    def _lock_for_audit(self, client: Any) -> Iterator[tuple[Writer, Callable[[], None]]]:
        """Load everything, without leftovers; also yield a function that raises `VaultBusy` if it changed meanwhile."""
        self._writer.invalidate()  # what is in memory proves nothing about the files
        if not self.read_only:
            with self._lock_for_writing(client=client) as writer:
                yield writer, lambda: None
        else:
            workers, writer = None if client is None else _find_workers(client), self._writer
            with (
                writer.turns.hold(self._wait),
                load_unlocked(writer, self._wait, without_leftovers=True) as check_unchanged,
                writer.use_workers(workers) if workers else nullcontext(),
            ):
                yield writer, check_unchanged

    # Requests

    def unlearn(
        self,
        ids: Any,
        *,
        skip_unknown: bool = False,
        receipts: bool = False,
        attest_unknown: bool = False,
        despite_hold: str = "",
        client: Any = None,
        **caller_args: Unpack[CallerArgs],
    ) -> Receipt:
        """Erase all rows of these ids permanently, from the model and the disk.

        People on legal hold in a matter of the service beside this vault are not erased (`OnHold`).

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, in one request. For an id that was erased before, the receipt names that request.
        skip_unknown : bool
            Whether to leave out ids that were never in the vault. Otherwise an unknown id is an error and nothing is
            changed.
        receipts : bool
            Whether to make each person's receipt, in ``Receipt.outcomes``.
        attest_unknown : bool
            Whether to sign a statement for each unknown id that it is not in the vault.
        despite_hold : str
            Why people may be erased even if they are on legal hold; the ledger records it.
        client : distributed.Client or expunge.distributed.Cluster, optional
            As in `create`; it helps if so many rows are erased that most of the others are learned again.
        **caller_args
            The fields of a `Caller`: ``reference``, ``actor`` and ``job``, one line of text each, go into the ledger;
            with ``in_certificate=True`` the first two go into the certificate as well.
        """
        caller = Caller(**caller_args, despite_hold=despite_hold)
        started = _start_clock()
        with self._lock_for_writing(client=client) as writer:
            people = writer.snapshot.schema.normalise_ids(ids)
            lookup = look_up(
                writer.context, people, skip_unknown=skip_unknown, advice=SKIP_OR_ATTEST_HINT, similar=True
            )
            erasure, leaves = self._erase_people(lookup, [caller], started)
            note = self._forget_aliases(people)
            receipt = self._repeat_receipt(lookup, caller) if erasure is None else erasure
            outcomes = build_outcomes(
                writer, erasure, leaves, lookup, people, receipts=receipts, attest_unknown=attest_unknown
            )
            return replace(receipt, outcomes=outcomes, notes=(*receipt.notes, note) if note else receipt.notes)

    def unlearn_group(
        self,
        erasures: Sequence[Erasure],
        *,
        receipts: bool = False,
        attest_unknown: bool = False,
        check_holds: Callable[[list[bytes]], None] | None = None,
        client: Any = None,
    ) -> tuple[Receipt | None, list[tuple[PersonOutcome, ...]]]:
        """Carry out erasures of several callers in one request: one certificate, and a receipt for each person.

        Unknown ids are left out. Returns the receipt, None if none of the people has rows, and for each erasure the
        outcome for each of its ids, in their order.

        Parameters
        ----------
        erasures : sequence of Erasure
            The ids to erase, and the callers that ask for it.
        receipts, attest_unknown, client
            As in `unlearn`.
        check_holds : callable, optional
            The check of a service that this is called by: it gets hashes of people, and raises `OnHold`. The service
            then also removes their e-mail addresses. Default: both are done in the queue beside the vault.
        """
        started = _start_clock()
        with self._lock_for_writing(client=client) as writer:
            fold_case = writer.snapshot.schema.fold_case  # no id_format: an id that it refuses is unknown, not an error
            groups = [tables.id_bytes(erasure.ids, fold_case=fold_case) for erasure in erasures]
            people = [person for group in groups for person in group]
            lookup = find_ids(writer.context, list(dict.fromkeys(people)))
            callers = [erasure.caller for erasure in erasures]
            receipt, leaves = self._erase_people(lookup, callers, started, check_holds)
            if check_holds is None:
                self._forget_aliases(lookup.ids)
            outcomes = iter(
                build_outcomes(
                    writer, receipt, leaves, lookup, people, receipts=receipts, attest_unknown=attest_unknown
                )
            )
            return receipt, [tuple(islice(outcomes, len(group))) for group in groups]

    def _erase_people(
        self,
        lookup: IdLookup,
        callers: Sequence[Caller],
        started: float,
        check_holds: Callable[[list[bytes]], None] | None = None,
    ) -> tuple[Receipt | None, Sequence[bytes]]:
        """Erase the people who have rows, under the lock; return the receipt, None if nobody has, and its leaves."""
        live = lookup.entries.live
        if not len(live.slot):
            return None, ()
        if check_holds is None and os.path.lexists(self._queue):
            # Matters belong to the service, whose package is above this one.
            check_holds = partial(import_module("expunge.server.matters").refuse_held_beside, self.places.vault)
        if check_holds is not None and not any(caller.despite_hold for caller in callers):
            check_holds(hashes_to_bytes(lookup.hashes[unique(live.owner)]))
        plan = Unlearn.plan(self._writer.context, lookup)
        receipt = self._carry_out(
            plan, callers, started, earlier=lookup.earlier, erased_earlier=lookup.count_erased_earlier()
        )
        return receipt, plan.leaves

    def _forget_aliases(self, ids: Sequence[bytes]) -> str:
        """Remove erased people's e-mail addresses from the queue of a service; return a note if that failed."""
        if not os.path.lexists(self._queue):
            return ""
        hashes = hashes_to_bytes(hash_ids(self._writer.identity.key, list(dict.fromkeys(ids))))
        note: str = import_module("expunge.server.aliases").forget_erased(self.places.vault, hashes)
        return note

    def rectify(self, data: Any, **caller_args: Unpack[CallerArgs]) -> Receipt:
        """Replace all rows of the ids in a table by corrected ones, in their slots.

        Parameters
        ----------
        data : path, list of paths or table
            As in `create`. An id with several rows gets as many, in the order in which they were first added.
        **caller_args
            As in `unlearn`.
        """
        caller, started = Caller(**caller_args), _start_clock(reads_tables=True)
        with self._lock_for_writing() as writer:
            blocks = tables.read_blocks(data, writer.snapshot.schema, targets=True, ids=True)
            return self._carry_out(Rectify.plan(writer.context, blocks), [caller], started)

    def add(
        self,
        data: Any,
        *,
        clip: bool = False,
        skip_erased: bool = False,
        progress: ProgressCallback = ignore_progress,
        client: Any = None,
        **caller_args: Unpack[CallerArgs],
    ) -> Receipt:
        """Learn more rows.

        Parameters
        ----------
        data : path, list of paths or table
            As in `create`.
        clip : bool
            Whether to move values outside declared bounds to the bound, instead of refusing the table.
        skip_erased : bool
            Whether to leave out rows of erased ids, instead of refusing the table.
        progress, client : optional
            As in `create`.
        **caller_args
            As in `unlearn`.
        """
        caller, started = Caller(**caller_args), _start_clock(reads_tables=True)
        with self._lock_for_writing(client=client) as writer:
            with writer.abandon_on_failure():
                plan = Add.plan(writer.context, data, clip=clip, skip_erased=skip_erased, progress=progress)
            return self._carry_out(plan, [caller], started)

    def readmit(self, ids: Any, *, skip_unknown: bool = False, **caller_args: Unpack[CallerArgs]) -> Receipt:
        """Allow erased ids again, because the people consented. Their rows do not come back; add them.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many.
        skip_unknown : bool
            Whether to leave out ids that are not erased. Otherwise such an id is an error and nothing is changed.
        **caller_args
            As in `unlearn`.
        """
        caller, started = Caller(**caller_args), _start_clock()
        with self._lock_for_writing() as writer:
            people = writer.snapshot.schema.normalise_ids(ids)
            lookup = look_up(writer.context, people, erased=True, skip_unknown=skip_unknown)
            return self._carry_out(Readmit.plan(writer.context, lookup), [caller], started)

    def rebound(
        self,
        bounds: Mapping[str, tuple[Any, Any] | None],
        *,
        progress: ProgressCallback = ignore_progress,
        **caller_args: Unpack[CallerArgs],
    ) -> Receipt:
        """Change the declared bounds of columns, and learn all rows again with them.

        Parameters
        ----------
        bounds : mapping of a column to (low, high) or None
            Numbers, or dates (also as text, ``"2024-12-31"``); None observes the column from now on. A row outside
            the new bounds is an error and nothing is changed. Values that were clipped when they were added stay
            clipped.
        progress : callable, optional
            As in `create`.
        **caller_args
            As in `unlearn`.
        """
        caller, started = Caller(**caller_args), _start_clock()
        with self._lock_for_writing() as writer:
            with writer.abandon_on_failure():
                plan = Rebound.plan(writer.context, bounds, progress)
            return self._carry_out(plan, [caller], started)

    def prepare_replan(self, *, progress: ProgressCallback = ignore_progress) -> PreparedPlan:
        """Choose settings for `replan` without the lock: requests go on meanwhile, except while rows are read.

        In a vault that was opened ``read_only`` there is no lock at all; `VaultBusy` is raised if a request is accepted
        while rows are read.

        Parameters
        ----------
        progress : callable, optional
            As in `create`.
        """
        with self._lock_for_reading() as writer:
            rows = read_planning_rows(writer.snapshot)
        return PreparedPlan.choose(rows, progress)

    def replan(
        self,
        prepared: PreparedPlan | None = None,
        *,
        progress: ProgressCallback = ignore_progress,
        client: Any = None,
        **caller_args: Unpack[CallerArgs],
    ) -> Receipt:
        """Choose the settings again from the rows that remain, and learn these: this completes all earlier erasures.

        The result is, bit for bit, what planning and training without the people who left gives. Rows keep their
        numbers, erased people stay erased, and what the schema and the caller of the training declared stays. The new
        model goes live even if its validation error is larger; a note says so. A vault whose settings were
        declared, or planned on a separate table, has nothing to choose again (`InvalidSetting`).

        Parameters
        ----------
        prepared : PreparedPlan, optional
            Settings that `prepare_replan` chose, so that only the learning has to wait for the lock. The result is the
            same as without it: if rows that the plan looked at were changed since, it is refused (`VaultBusy`).
        progress, client : optional
            As in `create`.
        **caller_args
            As in `unlearn`.
        """
        caller, started = Caller(**caller_args), _start_clock()
        with self._lock_for_writing(client=client) as writer:
            with writer.abandon_on_failure():
                plan = Replan.plan(writer.context, progress, prepared)
                writer.check_process()  # the progress callback may have forked
            return self._carry_out(plan, [caller], started)

    def is_complete(self, request: LoggedRequest) -> bool:
        """Return whether no setting in use was chosen with the help of the people of an erasure or correction."""
        return not request.open or request.number < self.settled

    @property
    def settled(self) -> int:
        """The number of the request that chose the settings in use: every earlier request is complete."""
        return self._reader.get_model().manifest.training

    def _carry_out(
        self,
        plan: RequestPlan,
        callers: Sequence[Caller],
        started: float,
        *,
        introduction: Record | None = None,
        earlier: tuple[int, ...] = (),
        erased_earlier: int = 0,
    ) -> Receipt:
        """Carry out a plan, and return its receipt."""
        record = self._writer.perform(plan, callers, introduction)
        certificate, path = self._writer.notary.last_certificate
        return Receipt(
            record.request,
            record.kind,
            plan.request.rows,
            plan.request.people,
            plan.learners,
            time.perf_counter() - started,
            certificate,
            path,
            earlier=earlier,
            skipped=plan.skipped,
            known=plan.known,
            clipped=plan.clipped,
            notes=(*plan.notes, *self._writer.notary.notes),
            erased_earlier=erased_earlier,
            open=plan.request.open_count,
        )

    def _repeat_receipt(self, lookup: IdLookup, caller: Caller) -> Receipt:
        """Return the receipt of the last of the requests that erased these ids before."""
        request = self._index.read_request(lookup.earlier[-1])
        if request is None:
            raise InvalidFile(f"{self.places.ledger} lacks request {lookup.earlier[-1]}, which erased these ids")
        return Receipt(
            request.number,
            request.kind,
            request.rows,
            request.people,
            learners=0,
            seconds=0.0,
            certificate=request.certificate,
            path=self.certificate_file(request),
            earlier=lookup.earlier,
            skipped=lookup.skipped,
            notes=caller.note_unsaved(),
            erased_earlier=lookup.count_erased_earlier(),
            open=0 if self.is_complete(request) else request.open,
        )

    # Receipts for people

    def personal_receipts(
        self, ids: Any, *, request: int | None = None, skip_unknown: bool = False, attest_unknown: bool = False
    ) -> "dict[str, PersonalReceipt]":
        """Make the receipts of people, by their ids as they are given; they can be made again at any time.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many. Anyone with a receipt and the id can check it offline.
        request : int, optional
            The request that the receipts are of: an unlearn, rectify, add or readmit that was about these ids. Default:
            for each id the one that erased it.
        skip_unknown : bool
            Whether to leave out ids that the request was not about (that are not erased), instead of refusing.
        attest_unknown : bool
            Whether to sign a statement for each unknown id, as the method `attest_unknown` does.
        """
        texts = tables.id_texts(ids)
        with self._lock_for_writing() if attest_unknown else self._lock_for_reading() as writer:
            people = writer.snapshot.schema.normalise_ids(texts)
            known, receipts = people, dict[bytes, "PersonalReceipt"]()
            if attest_unknown:
                holdings = dict(zip(people, find_holdings(writer.context, people), strict=True))
                known = [person for person in people if holdings[person].state != "unknown"]
                if unknown := [person for person in people if holdings[person].state == "unknown"]:
                    receipts |= sign_unknown_ids(writer, unknown)
            receipts |= issue_receipts(writer, known, request, skip_unknown=skip_unknown)
        return {text: receipts[person] for text, person in zip(texts, people, strict=True) if person in receipts}

    def attest_unknown(self, ids: Any) -> "dict[str, PersonalReceipt]":
        """Sign for each id that the vault holds no row of it and has not erased it, as of now.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, all unknown to the vault.
        """
        texts = tables.id_texts(ids)
        with self._lock_for_writing() as writer:
            people = writer.snapshot.schema.normalise_ids(texts)
            statements = sign_unknown_ids(writer, people)
        return {text: statements[person] for text, person in zip(texts, people, strict=True)}

    def ids_in(self, data: Any) -> list[str]:
        """Return the ids in a table, each once as it is first written, in the order of the table.

        Parameters
        ----------
        data : path, list of paths or table
            As in `create`.
        """
        return [person.decode() for person in tables.read_ids(data, self._reader.get_model().schema)]

    def seal(self, ids: Any) -> "list[SealedId]":
        """Encrypt ids that have to be stored until a request is made: only this vault can decrypt them.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many, in the forms of this vault: ids of the same person give the same result.
        """
        from .sealed_ids import IdSealer

        return IdSealer(self._writer.identity.key).seal(self._reader.normalise_ids(ids))

    def unseal(self, sealed: "Sequence[SealedId]") -> list[str]:
        """Return the ids that `seal` encrypted."""
        from .sealed_ids import IdSealer

        return IdSealer(self._writer.identity.key).unseal(sealed)

    def derive(self, purpose: str) -> bytes:
        """Return a key of 32 bytes for one purpose, from the vault's own key (HKDF-SHA256).

        Parameters
        ----------
        purpose : str
            What the key is for: another purpose gives an unrelated key.
        """
        return self._writer.identity.derive_key(purpose)

    # Answers

    def predict(self, data: Any) -> Floats:
        """Predict the target of rows, (n,) or (n, t) for t targets.

        Parameters
        ----------
        data : path, list of paths or table, or array of shape (n, d)
            The columns of the inputs; others are ignored. An array has them in the order of ``status().inputs``. A
            stream that can be read only once is kept in memory, to be read again if the vault changes meanwhile.
        """
        return predict_table(self._reader, data, ids=False).values

    def predict_with_ids(self, data: Any) -> tuple[list[str] | None, Floats]:
        """Predict the target of rows, with their ids if the table has them, else None.

        Parameters
        ----------
        data : path, list of paths or table
            As in `predict`.
        """
        predictions = self.predictions(data)
        return predictions.ids, predictions.values

    def predictions(self, data: Any, *, ids: bool = True) -> Predictions:
        """Predict the target of rows, with their ids, and report which rows lie outside the bounds.

        Parameters
        ----------
        data : path, list of paths or table, or array of shape (n, d)
            As in `predict`.
        ids : bool
            Whether to return the ids, if the table has them.
        """
        return predict_table(self._reader, data, ids=ids)

    def predict_to(self, data: Any, out: str | Path | IO[bytes], *, guard_formulas: bool = False) -> WrittenPredictions:
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
        return predict_to_file(self._reader, data, out, guard_formulas=guard_formulas)

    def evaluate(
        self, data: Any, *, resamples: int = 200, random_state: int = 0, progress: ProgressCallback = ignore_progress
    ) -> "Evaluation":
        """Score the vault's predictions on a table that has the targets.

        For comparison, a linear model and the mean are learned from the vault's own rows and scored as well. The
        result's `report` writes a page with charts.

        Parameters
        ----------
        data : path, list of paths or table
            The columns of the inputs and the targets; others are ignored, except the ids: with them the spread of the
            scores is over people. Rows that the vault has learned are predicted too well: use others.
        resamples, random_state : int
            How many resamples of people the spread is computed from, and their seed.
        progress : callable, optional
            As in `create`.
        """
        from .evaluator import evaluate_table

        whole_number("resamples", resamples)
        return evaluate_table(
            self._reader, self._lock_for_reading, data, progress, resamples=resamples, seed=random_state
        )

    def find(self, ids: Any) -> list[Holding]:
        """Return for each id, in the order given, whether it has rows, was erased, or is unknown.

        Parameters
        ----------
        ids : int, str or a sequence of them
            One id or many.
        """
        with self._lock_for_reading() as writer:
            return find_holdings(writer.context, writer.snapshot.schema.normalise_ids(ids), similar=True)

    def verify(
        self,
        *,
        progress: ProgressCallback = ignore_progress,
        head: "Anchor | str | None" = None,
        plan: bool = False,
        client: Any = None,
        report: bool = False,
        actor: str = "",
    ) -> Verdict:
        """Train again from the surviving rows and compare; check every record and certificate.

        The lock is held, and requests wait meanwhile. A vault that was opened ``read_only`` is verified without the
        lock: if a request is accepted meanwhile, `VaultBusy` is raised and the verification has to start again.

        Parameters
        ----------
        progress : callable, optional
            As in `create`.
        head : Anchor or str, optional
            A head that was kept elsewhere, or its text: check that the ledger continues it.
        plan : bool
            Whether to plan again on the surviving rows as well, and compare the settings. If erasures or corrections
            wait for a replan, the check only says how many.
        client : distributed.Client or expunge.distributed.Cluster, optional
            As in `create`.
        report : bool
            Whether to sign a report of the result, also of a failed one: ``Verdict.report``, a compact JWS.
        actor : str
            The person who asked for the verification, one line of text for the report.
        """
        from . import audit

        if isinstance(head, str):
            from .certificates.statements import Anchor

            head = Anchor(head.strip())
        if report and self.read_only:
            raise InvalidSetting("a report is signed, and nothing is signed for a vault that was opened read-only")
        actor, started = check_one_line("actor", actor), time.monotonic()
        with self._lock_for_audit(client) as (writer, check_unchanged):
            signer = writer.notary.require_signer() if report else None  # before the work: the key may be missing
            verdict = audit.verify(writer, progress, head, check_unchanged, plan=plan)
            verdict = replace(verdict, seconds=time.monotonic() - started)
            if signer is None:
                return verdict
            from .certificates.statements import sign_report

            signed = sign_report(writer.identity.vault, writer.newest, writer.ledger.tip, verdict, actor, signer)
            return replace(verdict, report=signed)

    def head(self) -> str:
        """Return the signed end of the ledger: kept elsewhere, it reveals a ledger that was cut or rewritten later."""
        from .certificates.statements import sign_head

        with self._lock_for_writing() as writer:
            return sign_head(writer.index, writer.notary.require_signer())

    @property
    def requests(self) -> RequestLog:
        """All requests, with their state and certificates: a sequence whose items are read on access."""
        return RequestLog(self._index)

    def find_job(self, job: str, after: int) -> LoggedRequest | None:
        """Return the request that carries out a caller's job; None if there is none.

        Parameters
        ----------
        job : str
            The job, as it was given with the request.
        after : int
            The number of the newest request when the job was made: only later ones are searched. A time would not
            work, because a clock can be set back.
        """
        for request in self._index.read_requests(range(self._index.newest, after, -1)):
            if any(caller.job == job for caller in request.callers):
                return request
        return None

    @property
    def _index(self) -> LedgerIndex:
        """The index of the ledger, which must be this vault's."""
        if self._writer.index.vault != self._writer.identity.vault:
            raise different_vault_error(self._writer.folder)
        return self._writer.index

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of an array to predict from, in their order."""
        return tuple(self._reader.get_model().manifest.about.inputs)

    @property
    def newest(self) -> int:
        """The number of the newest request that predictions include."""
        return self._reader.get_model().manifest.request

    def status(self) -> Status:
        """Return what is in the vault: rows, people, requests, and a description of the model."""
        while True:
            manifest = self._reader.get_model().manifest
            status = build_status(self.places, manifest, self._index)
            if self._reader.get_model().manifest is manifest:
                return status

    def digest(self) -> str:
        """Return the model's fingerprint, as `CodedRegressor.digest`: as secret as the rows, once one is unlearned."""
        with self._lock_for_reading() as writer:
            return writer.snapshot.state.ensemble.digest()

    # Keys

    def public_keys(self) -> list[str]:
        """Return the thumbprints of the keys that certificates are checked with, newest first, from the ledger."""
        return [thumbprint(x) for x in self._index.keys]

    def jwks(self) -> list[dict[str, str]]:
        """Return the same keys as JSON Web Keys (RFC 8037), newest first."""
        about = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig"}
        return [about | {"x": x, "kid": thumbprint(x)} for x in self._index.keys]

    def key_changes(self) -> list[str]:
        """Return the statement of each key about its successor, newest first, for callers that pinned an older key.

        Compact JWS, of type ``expunge-key+jws``. A key that was lost made no statement about the next one.
        """
        endorsed = [str(record.body["endorsed"]) for record in self._index.read_key_records()]
        return [statement for statement in endorsed if statement]

    def key_log(self) -> list[KeyChange]:
        """Return when each key was introduced, oldest first."""
        return [
            KeyChange(
                str(record.body["time"]),
                thumbprint(str(record.body["x"])),
                bool(record.body["endorsed"]),
                str(record.body.get("actor", "")),
            )
            for record in reversed(self._index.read_key_records())
        ]

    def certificate_path(self, request: int) -> Path:
        """Return where the certificate of a request is written."""
        return self._writer.notary.certificate_path(request)

    def certificate(self, request: int) -> str | None:
        """Return the certificate of a request from the ledger, checked; None if it has none, or none yet."""
        logged = self._index.read_request(request)
        text = None if logged is None else logged.certificate
        if text is None:
            return None
        from .certificates import jws

        try:
            payload = jws.verify_statement(text, [jws.PublicKey.from_x(key["x"]) for key in self.jwks()])
            if payload.get("request") != request:
                raise InvalidCertificate("it is of another request")
        except InvalidCertificate as error:
            raise InvalidFile(
                f"{self.places.ledger} was changed: no certificate of request {request}: {error}"
            ) from None
        return text

    def certificate_file(self, request: LoggedRequest) -> Path | None:
        """Return the file with the certificate of a request; None if it is missing, or differs from the ledger."""
        if request.certificate is None or not self._writer.notary.is_exported(request.number, request.certificate):
            return None
        return self.certificate_path(request.number)

    def renew_key(self, *, public_key: str | Path | None = None, actor: str = "") -> str:
        """Sign with another key from now on, and return its thumbprint. Older certificates match the older key.

        If this vault was opened with a key that it does not know yet, that key is used; otherwise a new pair is made.
        The previous key, if it is available, signs that the new one follows it.

        Parameters
        ----------
        public_key : path, optional
            The public half (PEM) of the key that ``sign_with`` holds now.
        actor : str
            The person who asks for it: one line of text, for the ledger.
        """
        given, changed = self._keys.load_held_signer(public_key), False
        check_one_line("actor", actor)
        try:
            with self._lock_for_writing() as writer:
                known = writer.notary.known_keys
                try:
                    writer.notary.adopt_key(given, actor=actor)
                finally:
                    changed = writer.notary.known_keys != known
                writer.invalidate()
                newest = thumbprint(writer.notary.known_keys[0])
            self._settle()  # certifies requests that were done while the key was missing
        except Exception as error:
            if not changed:
                raise
            raise Unfinished(
                f"another key signs from now on, but the change could not be finished: {error}; "
                "the next command on this vault continues it"
            ) from error
        return newest

    # Copies

    def backup(self, path: str | Path, *, with_key: bool = False, actor: str = "") -> "Backup":
        """Copy the vault and the files beside it into a new folder, and check the copy, while requests are answered.

        If a service has served the vault, its audit trail records the backup.

        Parameters
        ----------
        path : path
            The folder of the backup, which must not exist. It appears whole or not at all.
        with_key : bool
            Whether to include the private key. Anyone who has it can sign in the vault's name: keep it elsewhere.
        actor : str
            Who makes the backup, for the audit trail.
        """
        from .backup import back_up

        copy = back_up(self.places, self._lock_for_writing, path, with_key=with_key)
        if not os.path.lexists(queue_folder(self.places.vault)):
            return copy
        record = import_module("expunge.server.audit").record_backup  # that package is above this one
        return replace(copy, note=record(self.places.vault, copy.request, actor=actor, with_key=with_key))

    def clone(self, path: str | Path, **caller_args: Unpack[CallerArgs]) -> "Vault":
        """Make another vault with the same rows and the same erased ids, with a name and a signing key of its own.

        The clone's certificates name this vault and the request at which it was cloned, and the ledger of this vault
        records the clone's name. Later requests to one vault do not reach the other: people erased here are not erased
        there. Requests to this vault wait until the clone is written; predictions do not.

        Parameters
        ----------
        path : path
            The folder of the clone, whose name ends in ``.vault`` and which must not exist.
        **caller_args
            As in `unlearn`; for both ledgers.
        """
        from .creation import clone_vault

        caller, _ = Caller(**caller_args), _start_clock()
        with self._lock_for_writing() as writer:
            clone_vault(writer, path, [caller], self._wait)
        return Vault.open(path, wait=self._wait)

    @classmethod
    def restore(
        cls,
        backup: str | Path,
        path: str | Path,
        *,
        erased: Sequence[Any] | None = None,
        nothing_erased_since: bool = False,
        key: str | Path | None = None,
        sign_with: str | None = None,
        wait: float = 10.0,
        **caller_args: Unpack[CallerArgs],
    ) -> "RestoreResult":
        """Restore a backup in the place of a vault that is lost. People erased since the backup stay erased.

        A ledger that is in place and continues the backup's is kept, and its requests are applied to the older rows.
        Without one, name the people who were erased since.

        Parameters
        ----------
        backup : path
            The folder that `backup` made.
        path : path
            The folder of the vault, whose name ends in ``.vault`` and which must not exist.
        erased : sequence of int or str, optional
            Ids that were erased since the backup. They are erased before the vault appears.
        nothing_erased_since : bool
            Confirm that nobody was erased since the backup.
        key, sign_with, wait
            As in `open`.
        **caller_args
            As in `unlearn`; the default reference of the erasures is the backup's request.
        """
        from .restoration import SinceBackup, restore_backup

        since = SinceBackup(erased, nothing_erased_since)
        return restore_backup(
            backup, path, since, cls.open, key=key, sign_with=sign_with, wait=wait, caller=Caller(**caller_args)
        )


def _find_workers(client: Any) -> Workers:
    """Return the workers of a cluster; imported by name, because that package is above this one."""
    workers: Workers = import_module("expunge.distributed").workers_of(client)
    return workers


def _start_clock(*, reads_tables: bool = False) -> float:
    """Import what requests need, which does not count as their time, then read the clock."""
    from .certificates import jws  # noqa: F401 - imported for the signature

    threads.load_blas()
    if reads_tables:
        _ = tables.read_blocks  # imports pyarrow
    return time.perf_counter()
