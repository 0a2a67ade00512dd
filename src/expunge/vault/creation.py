"""Founding: what has to be there before a vault can be trained or opened, and its removal if the training fails."""

import errno
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
from ..saving.staging import check_space, open_staging_folder
from ..tables import Schema
from .certificates.keys import KeyStore
from .disk.folder import Folder, VaultIdentity, VaultPaths, queue_folder
from .disk.request_lists import RequestLists
from .ledger.ledger import Ledger
from .ledger.records import header_record, list_requests
from .requests import Clone, CloneOrigin
from .requests.request import Caller
from .writer import Writer

# MERGED clone: Cloning: build another vault from one that is locked, record it in the source, and let it appear.


def clone_vault(source: Writer, path: str | Path, callers: Sequence[Caller], wait: float) -> str:
    """Clone a vault whose lock is held into a new place, under a new name, which is returned.

    The clone is built whole beside its place, then recorded in the source's ledger, and only then put into place: no
    clone can be opened that the source does not know of.
    """
    places = VaultPaths.from_path(path)
    _check_clone_path(places)
    with open_staging_folder(places.vault.with_suffix(".cloning")) as draft:
        check_space(draft, sum(entry.stat().st_size for entry in os.scandir(source.folder.path)))
        staged = VaultPaths.from_path(draft / places.vault.name)
        identity = VaultIdentity(str(uuid.uuid4()), source.identity.key)
        try:
            _build_clone(source, staged, identity, callers, wait)
        except (Unfinished, files.SyncFailed) as error:  # of the clone: nothing was asked of the source yet
            cause = error if isinstance(error, OSError) else error.__cause__
            number, why = (cause.errno, cause.strerror) if isinstance(cause, OSError) else (errno.EIO, str(error))
            raise OSError(number, f"could not be written: {why}", str(places.vault)) from None
        _check_clone_path(places)
        source.perform(Clone.plan(source.context, identity.vault), callers)
        try:
            _move_clone_into_place(staged, places)
        except OSError as error:
            raise Unfinished(
                f"the ledger of {source.places.vault.name} records a clone that could not be put in place: {error}; "
                "remove what is there and clone it again"
            ) from None  # a sync that failed here is not one of the source
    return identity.vault


def _check_clone_path(places: VaultPaths) -> None:
    """Refuse a place where anything of a vault lies, or of a service: its tokens and holds would be the clone's."""
    for path in (*(getattr(places, field.name) for field in fields(places)), queue_folder(places.vault)):
        if os.path.lexists(path):
            raise InvalidSetting(f"{path} exists already: name another place, or remove what was left there")
    if not places.vault.parent.is_dir():
        raise InvalidSetting(f"{places.vault} cannot be made: {places.vault.parent} is not a folder")


def _build_clone(
    source: Writer, staged: VaultPaths, identity: VaultIdentity, callers: Sequence[Caller], wait: float
) -> None:
    """Write the clone: its identity, its ledger with a new key, and its first request, which is certified."""
    files.make_folder(staged.vault, for_group=False)
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


def resolve_schema(
    data: Any, schema: Schema | str | Path | None, target: str | list[str] | None, id_: str | None, fold_case: bool
) -> Schema:
    """Return the schema to train with: the one given, or a plain one for a table of numbers."""
    found = _load_schema(data, schema, target, id_)
    return replace(found, fold_case=fold_case or found.fold_case)


def _load_schema(
    data: Any, schema: Schema | str | Path | None, target: str | list[str] | None, id_: str | None
) -> Schema:
    if schema is None:
        if target is None or id_ is None:
            raise InvalidSetting(
                "name the target (--target) and the column of the ids (--id-column), or give a schema that does"
            )
        if id_ in ([target] if isinstance(target, str) else target):
            raise InvalidSetting(f"the target and the column of the ids are the same, {tables.printable_text(id_)}")
        return tables.plain_schema(data, target, id_)
    found = schema if isinstance(schema, Schema) else Schema.load(Path(schema))
    if found.id is None and id_ is not None:
        found = found.with_id(id_)
    targets = [target] if isinstance(target, str) else target
    if targets is not None and tuple(targets) != found.targets:
        raise InvalidSetting(
            f"the schema names another target, {', '.join(map(tables.printable_text, found.targets))}: leave yours out"
        )
    if id_ is not None and id_ != found.id:
        raise InvalidSetting(
            f"the schema names another column of ids, {tables.printable_text(found.id)}: leave yours out"
        )
    return found


def check_ledger_vault(places: VaultPaths, identity: VaultIdentity) -> None:
    """Refuse the ledger of another vault. One that a crash cut within its first line is nobody's yet."""
    if Ledger(places.ledger).read_vault_name() not in (None, identity.vault):
        raise InvalidFile(f"{places.ledger} is the ledger of another vault than {places.vault}")


def vault_exists_error(places: VaultPaths) -> InvalidSetting:
    """The refusal to train a vault that is there."""
    return InvalidSetting(f"{places.vault} exists already; add rows, or train it anew with --replace")


def check_new_vault_path(path: str | Path, *, replace: bool) -> None:
    """Refuse a place where no vault can be trained, before anything that takes time; `Vault.create` looks again."""
    places = VaultPaths.from_path(path)
    if not replace and (places.vault / "current").exists():
        raise vault_exists_error(places)
    if not places.vault.exists() and not os.access(places.vault.parent, os.W_OK):
        raise InvalidSetting(f"{places.vault} cannot be made: {places.vault.parent} is no folder that can be written")


@contextmanager
def undo_on_failure(places: VaultPaths) -> Iterator["VaultCreation"]:
    """Remove all that a first training has made if it fails, unless it was accepted."""
    founding = VaultCreation(places)
    try:
        yield founding
    except BaseException as error:
        if not isinstance(error, Unfinished):
            with suppress(OSError, ExpungeError):  # if the disk has gone, it is the first error that says what happened
                founding.undo()
        raise


class VaultCreation:
    """What a process makes for a vault that is to be trained, and the removal of that, and of nothing else.

    Two processes may train at the same place at once: one founds the vault, and each may fail while the other is at
    work. So everything but an empty ledger is made, and removed, under the ledger's lock.
    """

    def __init__(self, places: VaultPaths) -> None:
        self._places, self._process = places, os.getpid()
        self._created: set[Path] = set()  # that were not there before
        self._identity: VaultIdentity | None = None  # that this process gave the vault

    def claim_identity(self, wait: float, *, group: bool) -> VaultIdentity:
        """Return the identity of the vault at this place, or make a new one where there is none."""
        self._places.check()
        vault, deadline = self._places.vault, time.monotonic() + wait
        if group and vault.is_dir() and not vault.for_group:
            raise InvalidSetting(f"{vault} exists already, for its owner alone; docs/vault.md says how to share it")
        while True:
            self._create_ledger()
            with suppress(MissingData):  # whoever founded it before has just undone that
                return self._claim_locked(max(0.0, deadline - time.monotonic()), group=group)

    def _create_ledger(self) -> None:
        ledger, trained = self._places.ledger, (self._places.vault / "current").exists()
        begun = ledger.exists() and ledger.stat().st_size
        if trained and not (begun and Ledger(ledger).read_vault_name()):
            raise InvalidFile(f"{ledger} is not there: a vault cannot be opened without its ledger")
        with suppress(FileExistsError), files.open_file(ledger, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            self._created.add(ledger)
            files.sync(fd)

    def _claim_locked(self, wait: float, *, group: bool) -> VaultIdentity:
        places, ledger, folder = self._places, Ledger(self._places.ledger), Folder(self._places.vault)
        with ledger.lock(wait):
            whose = ledger.read_vault_name()
            if whose is not None and not places.vault.is_dir():
                raise InvalidFile(
                    f"{places.ledger} is there and its folder {places.vault.name} is not: put a copy of the folder "
                    "back, or move the ledger away to begin anew (who was erased is then forgotten)"
                )
            self.track_new(places.vault)
            files.make_folder(places.vault, for_group=group)
            with files.open_file(places.ledger, os.O_WRONLY | os.O_CREAT):  # it is for whom the folder is for
                files.sync_folder(places.vault.parent)
            if whose is None:  # nobody's yet: what there is of an identity may never have been synced
                self._identity = VaultIdentity.generate()
                folder.write_identity(self._identity)
                ledger.cut_torn_record()
                ledger.append(header_record(self._identity.vault))
            identity = folder.read_identity()
            check_ledger_vault(places, identity)
        return identity

    def track_new(self, *paths: Path) -> None:
        """Say what is about to be made, under the lock; what is there already is somebody else's."""
        self._created.update(path for path in paths if not path.exists())

    def undo(self) -> None:
        """Remove what this process has made, if nobody else has taken it up."""
        if os.getpid() != self._process or not (self._created or self._identity):
            return
        ledger = Ledger(self._places.ledger)
        with ledger.lock(0.0):
            mine = None if self._identity is None else self._identity.vault
            if ledger.read_vault_name() in (None, mine) and not list_requests(ledger.read()[0]):
                self._remove(ledger)

    def _remove(self, ledger: Ledger) -> None:
        """Make the ledger nobody's first, because a folder that it names would look damaged; it goes last.

        As long as it is there and locked nobody else begins here.
        """
        places = self._places
        ledger.cut_torn_record()
        for path in self._created - {places.vault, places.ledger}:
            files.wipe(path)
        if self._identity is not None:
            RequestLists(places.lists, places.vault).wipe_marked_drafts()
            Folder(places.vault).wipe_all_but(None)
            files.wipe(places.vault / "identity.json")
        if places.vault in self._created:
            with suppress(FileNotFoundError):
                files.system.rmdir(places.vault)
        if places.ledger in self._created:
            files.system.unlink(places.ledger)
        files.sync_folder(places.vault.parent)
