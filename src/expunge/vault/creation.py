"""Creation of a vault: its folder, ledger and identity, and their removal if the first training fails; and clones."""

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from .. import tables
from ..errors import ExpungeError, InvalidFile, InvalidSetting, MissingData, Unfinished
from ..saving import files
from ..saving.staging import check_space, open_staging_folder, os_error_details
from ..tables import Schema
from .certificates.keys import KeyStore
from .disk.folder import Folder, VaultIdentity, VaultPaths, queue_folder
from .disk.request_lists import RequestLists
from .ledger.ledger import Ledger
from .ledger.records import header_record
from .requests import Clone, CloneOrigin
from .requests.request import Caller
from .writer import Writer


def resolve_schema(
    data: Any, schema: Schema | str | Path | None, target: str | list[str] | None, id_: str | None, fold_case: bool
) -> Schema:
    """Return the schema to train with: the one given, or a plain one for a table of numbers."""
    targets = [target] if isinstance(target, str) else target
    if schema is None:
        if targets is None or target is None or id_ is None:
            raise InvalidSetting(
                "name the target (--target) and the id column (--id-column), or use a schema that names them"
            )
        if id_ in targets:
            raise InvalidSetting(f"the target and the id column are the same, {tables.printable_text(id_)}")
        loaded = tables.plain_schema(data, target, id_)
    else:
        loaded = schema if isinstance(schema, Schema) else Schema.load(Path(schema))
        if loaded.id is None and id_ is not None:
            loaded = loaded.with_id(id_)
        if targets is not None and tuple(targets) != loaded.targets:
            names = ", ".join(map(tables.printable_text, loaded.targets))
            raise InvalidSetting(f"the schema names another target, {names}: leave yours out")
        if id_ is not None and id_ != loaded.id:
            raise InvalidSetting(
                f"the schema names another id column, {tables.printable_text(loaded.id)}: leave yours out"
            )
    return replace(loaded, fold_case=fold_case or loaded.fold_case)


def check_ledger_vault(places: VaultPaths, identity: VaultIdentity) -> None:
    """Refuse the ledger of another vault. A ledger that a crash cut within its first line has no owner yet."""
    if Ledger(places.ledger).read_vault_name() not in (None, identity.vault):
        raise InvalidFile(f"{places.ledger} and {places.vault} belong to different vaults")


def vault_exists_error(places: VaultPaths) -> InvalidSetting:
    """Return the error for creating a vault that already exists."""
    return InvalidSetting(f"{places.vault} already exists; add rows, or train it again with --replace")


def check_new_vault_path(path: str | Path, *, replace: bool) -> None:
    """Refuse a path where no vault can be created, before anything that takes time; `Vault.create` checks again."""
    places = VaultPaths.from_path(path)
    if not replace and (places.vault / "current").exists():
        raise vault_exists_error(places)
    if not places.vault.exists() and not os.access(places.vault.parent, os.W_OK):
        raise InvalidSetting(f"{places.vault} cannot be created: {places.vault.parent} is not a writable folder")


@contextmanager
def undo_on_failure(places: VaultPaths) -> Iterator["VaultCreation"]:
    """Remove everything that a first training has created if it fails, unless it was accepted."""
    creation = VaultCreation(places)
    try:
        yield creation
    except BaseException as error:
        if not isinstance(error, Unfinished):
            with suppress(OSError, ExpungeError):  # if the disk is gone, the first error says what happened
                creation.undo()
        raise


class VaultCreation:
    """The files that a process creates for a new vault, and their removal, without touching anything else.

    Two processes may train at the same path at once: one creates the vault, and each may fail while the other is at
    work. So everything but an empty ledger is created, and removed, under the ledger's lock.
    """

    def __init__(self, places: VaultPaths) -> None:
        self._places, self._process = places, os.getpid()
        self._created: set[Path] = set()  # files that did not exist before
        self._identity: VaultIdentity | None = None  # the one that this process generated

    def claim_identity(self, wait: float, *, group: bool) -> VaultIdentity:
        """Return the identity of the vault at this path, or create one if there is none."""
        self._places.check()
        vault, deadline = self._places.vault, time.monotonic() + wait
        if group and vault.is_dir() and not vault.for_group:
            raise InvalidSetting(
                f"{vault} already exists and is for its owner only; docs/vault.md describes how to share it"
            )
        while True:
            self._create_ledger()
            with suppress(MissingData):  # the process that created the ledger has just removed it
                return self._claim_locked(max(0.0, deadline - time.monotonic()), group=group)

    def _create_ledger(self) -> None:
        ledger, trained = self._places.ledger, (self._places.vault / "current").exists()
        has_records = ledger.exists() and ledger.stat().st_size
        if trained and not (has_records and Ledger(ledger).read_vault_name()):
            raise InvalidFile(f"{ledger} is missing: a vault cannot be opened without its ledger")
        with suppress(FileExistsError), files.open_file(ledger, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            self._created.add(ledger)
            files.sync(fd)

    def _claim_locked(self, wait: float, *, group: bool) -> VaultIdentity:
        places, ledger, folder = self._places, Ledger(self._places.ledger), Folder(self._places.vault)
        with ledger.lock(wait):
            vault_name = ledger.read_vault_name()
            if vault_name is not None and not places.vault.is_dir():
                raise InvalidFile(
                    f"{places.ledger} exists and its folder {places.vault.name} does not: put a copy of the folder "
                    "back, or move the ledger away to start over (erased ids are then forgotten)"
                )
            self.track_new(places.vault)
            files.VaultDir(places.vault).make(for_group=group)
            with files.open_file(places.ledger, os.O_WRONLY | os.O_CREAT):  # with the access rights of the folder
                files.sync_folder(places.vault.parent)
            if vault_name is None:  # no owner yet: an identity in the folder may never have been synced
                self._identity = VaultIdentity.generate()
                folder.write_identity(self._identity)
                ledger.cut_torn_record()
                ledger.append(header_record(self._identity.vault))
            identity = folder.read_identity()
            check_ledger_vault(places, identity)
        return identity

    def track_new(self, *paths: Path) -> None:
        """Announce files about to be created, under the lock; files that exist belong to another process."""
        self._created.update(path for path in paths if not path.exists())

    def undo(self) -> None:
        """Remove what this process has created, unless another process uses it by now."""
        if os.getpid() != self._process or not (self._created or self._identity):
            return
        ledger = Ledger(self._places.ledger)
        with ledger.lock(0.0):
            own_name = None if self._identity is None else self._identity.vault
            if ledger.read_vault_name() in (None, own_name) and not any(it.is_request for it in ledger.read()[0]):
                self._remove(ledger)

    def _remove(self, ledger: Ledger) -> None:
        """Empty the ledger first, because the folder that it names would look damaged, and remove it last.

        While it exists and is locked, no other process starts here.
        """
        places = self._places
        ledger.cut_torn_record()
        for path in self._created - {places.vault, places.ledger}:
            files.wipe(path)
        if self._identity is not None:
            RequestLists(places.lists, files.VaultDir(places.vault)).wipe_marked_drafts()
            Folder(places.vault).wipe_all_but(None)
            files.wipe(places.vault / "identity.json")
        if places.vault in self._created:
            with suppress(FileNotFoundError):
                files.system.rmdir(places.vault)
        if places.ledger in self._created:
            files.system.unlink(places.ledger)
        files.sync_folder(places.vault.parent)


def clone_vault(source: Writer, path: str | Path, callers: Sequence[Caller], wait: float) -> str:
    """Clone a vault whose lock is held to a new path, and return the clone's name.

    The clone is built completely in a staging folder, then recorded in the source's ledger, and only then moved into
    place: no clone can be opened that the source does not know of.
    """
    places = VaultPaths.from_path(path)
    _check_clone_path(places)
    with open_staging_folder(places.vault.with_suffix(".cloning")) as draft:
        check_space(draft, sum(entry.stat().st_size for entry in os.scandir(source.folder.path)))
        staged = VaultPaths.from_path(draft / places.vault.name)
        identity = VaultIdentity(str(uuid.uuid4()), source.identity.key)
        try:
            _build_clone(source, staged, identity, callers, wait)
        except (Unfinished, files.SyncFailed) as error:  # of the clone: the source is unchanged so far
            number, reason = os_error_details(error)
            raise OSError(number, f"could not be written: {reason}", str(places.vault)) from None
        _check_clone_path(places)
        source.perform(Clone.plan(source.context, identity.vault), callers)
        try:
            _move_clone_into_place(staged, places)
        except OSError as error:
            raise Unfinished(
                f"the ledger of {source.places.vault.name} records a clone that could not be put in place: {error}; "
                "remove what was written and clone again"
            ) from None  # a sync that failed here is not one of the source
    return identity.vault


def _check_clone_path(places: VaultPaths) -> None:
    """Refuse a path beside which files of a vault or a service exist: its tokens and holds would become the clone's."""
    for path in (*(getattr(places, field.name) for field in fields(places)), queue_folder(places.vault)):
        if os.path.lexists(path):
            raise InvalidSetting(f"{path} already exists: choose another path, or remove what was left there")
    if not places.vault.parent.is_dir():
        raise InvalidSetting(f"{places.vault} cannot be created: {places.vault.parent} is not a folder")


def _build_clone(
    source: Writer, staged: VaultPaths, identity: VaultIdentity, callers: Sequence[Caller], wait: float
) -> None:
    """Write the clone: its identity, its ledger with a new key, and its first request, which is certified."""
    files.VaultDir(staged.vault).make(for_group=False)
    Folder(staged.vault).write_identity(identity)
    files.create(staged.ledger, header_record(identity.vault).line)
    files.sync_folder(staged.vault.parent)
    trained = source.index.read_request_record(source.snapshot.manifest.training)
    planned = "" if trained is None else str(trained.body.get("planned", ""))
    clone = Writer(staged, identity, KeyStore(staged, None, None))
    with clone.lock(wait):
        with clone.abandon_on_failure():
            plan = CloneOrigin.plan(clone.context, source.snapshot, planned)
            introduction = clone.notary.compose_introduction(actor=callers[0].actor)
        clone.perform(plan, callers, introduction)


def _move_clone_into_place(staged: VaultPaths, places: VaultPaths) -> None:
    """Move the parts into place, the folder last: without it nothing can be opened."""
    for name in ("ledger", "key", "public", "certificates", "leaves", "lists"):
        part = getattr(staged, name)
        if part.exists():
            files.system.rename(part, getattr(places, name))
    files.sync_folder(places.vault.parent)
    files.system.rename(staged.vault, places.vault)
    files.sync_folder(places.vault.parent)
