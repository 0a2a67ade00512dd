"""Founding: what has to be there before a vault can be trained or opened, and its removal if the training fails."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ExpungeError, InvalidFile, InvalidSetting, MissingData, Unfinished
from ..saving import files
from . import tables
from .disk.folder import Folder, Places, VaultIdentity
from .disk.lists import Lists
from .ledger.history import history
from .ledger.ledger import Ledger
from .ledger.records import header
from .tables import Schema


def wanted_schema(
    data: Any, schema: Schema | str | Path | None, target: str | list[str] | None, id_: str | None, fold_case: bool
) -> Schema:
    """Return the schema to train with: the one given, or a plain one for a table of numbers."""
    found = _schema(data, schema, target, id_)
    return replace(found, fold_case=fold_case or found.fold_case)


def _schema(data: Any, schema: Schema | str | Path | None, target: str | list[str] | None, id_: str | None) -> Schema:
    if schema is None:
        if target is None or id_ is None:
            raise InvalidSetting(
                "name the target (--target) and the column of the ids (--id-column), or give a schema that does"
            )
        if id_ in ([target] if isinstance(target, str) else target):
            raise InvalidSetting(f"the target and the column of the ids are the same, {tables.shown(id_)}")
        return tables.plain_schema(data, target, id_)
    found = schema if isinstance(schema, Schema) else Schema.load(Path(schema))
    if found.id is None and id_ is not None:
        found = found.owned_by(id_)
    targets = [target] if isinstance(target, str) else target
    if targets is not None and tuple(targets) != found.targets:
        raise InvalidSetting(
            f"the schema names another target, {', '.join(map(tables.shown, found.targets))}: leave yours out"
        )
    if id_ is not None and id_ != found.id:
        raise InvalidSetting(f"the schema names another column of ids, {tables.shown(found.id)}: leave yours out")
    return found


def check_same_vault(places: Places, identity: VaultIdentity) -> None:
    """Refuse the ledger of another vault. One that a crash cut within its first line is nobody's yet."""
    if Ledger(places.ledger).vault() not in (None, identity.vault):
        raise InvalidFile(f"{places.ledger} is the ledger of another vault than {places.vault}")


def taken(places: Places) -> InvalidSetting:
    """The refusal to train a vault that is there."""
    return InvalidSetting(f"{places.vault} exists already; add rows, or train it anew with --replace")


def check_place(path: str | Path, *, replace: bool) -> None:
    """Refuse a place where no vault can be trained, before anything that takes time; `Vault.create` looks again."""
    places = Places.of(path)
    if not replace and (places.vault / "current").exists():
        raise taken(places)
    if not places.vault.exists() and not os.access(places.vault.parent, os.W_OK):
        raise InvalidSetting(f"{places.vault} cannot be made: {places.vault.parent} is no folder that can be written")


@contextmanager
def undone_if_it_fails(places: Places) -> Iterator["Founding"]:
    """Remove all that a first training has made if it fails, unless it was accepted."""
    founding = Founding(places)
    try:
        yield founding
    except BaseException as error:
        if not isinstance(error, Unfinished):
            with suppress(OSError, ExpungeError):  # if the disk has gone, it is the first error that says what happened
                founding.undo()
        raise


class Founding:
    """What a process makes for a vault that is to be trained, and the removal of that, and of nothing else.

    Two processes may train at the same place at once: one founds the vault, and each may fail while the other is at
    work. So everything but an empty ledger is made, and removed, under the ledger's lock.
    """

    def __init__(self, places: Places) -> None:
        self._places, self._process = places, os.getpid()
        self._mine: set[Path] = set()  # that were not there before
        self._identity: VaultIdentity | None = None  # that this process gave the vault

    def identity(self, wait: float, *, group: bool) -> VaultIdentity:
        """Return the identity of the vault at this place, or make a new one where there is none."""
        self._places.look()
        vault, deadline = self._places.vault, time.monotonic() + wait
        if group and vault.is_dir() and not vault.for_group:
            raise InvalidSetting(f"{vault} exists already, for its owner alone; docs/vault.md says how to share it")
        while True:
            self._begin_ledger()
            with suppress(MissingData):  # whoever founded it before has just undone that
                return self._locked_identity(max(0.0, deadline - time.monotonic()), group=group)

    def _begin_ledger(self) -> None:
        ledger, trained = self._places.ledger, (self._places.vault / "current").exists()
        begun = ledger.exists() and ledger.stat().st_size
        if trained and not (begun and Ledger(ledger).vault()):
            raise InvalidFile(f"{ledger} is not there: a vault cannot be opened without its ledger")
        with suppress(FileExistsError), files.opened(ledger, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            self._mine.add(ledger)
            files.sync(fd)

    def _locked_identity(self, wait: float, *, group: bool) -> VaultIdentity:
        places, ledger, folder = self._places, Ledger(self._places.ledger), Folder(self._places.vault)
        with ledger.locked(wait):
            whose = ledger.vault()
            if whose is not None and not places.vault.is_dir():
                raise InvalidFile(
                    f"{places.ledger} is there and its folder {places.vault.name} is not: put a copy of the folder "
                    "back, or move the ledger away to begin anew (who was erased is then forgotten)"
                )
            self.makes(places.vault)
            files.make_folder(places.vault, for_group=group)
            with files.opened(places.ledger, os.O_WRONLY | os.O_CREAT):  # it is for whom the folder is for
                files.sync_folder(places.vault.parent)
            if whose is None:  # nobody's yet: what there is of an identity may never have been synced
                self._identity = VaultIdentity.new()
                folder.identify(self._identity)
                ledger.cut()
                ledger.append(header(self._identity.vault))
            identity = folder.identity()
            check_same_vault(places, identity)
        return identity

    def makes(self, *paths: Path) -> None:
        """Say what is about to be made, under the lock; what is there already is somebody else's."""
        self._mine.update(path for path in paths if not path.exists())

    def undo(self) -> None:
        """Remove what this process has made, if nobody else has taken it up."""
        if os.getpid() != self._process or not (self._mine or self._identity):
            return
        ledger = Ledger(self._places.ledger)
        with ledger.locked(0.0):
            mine = None if self._identity is None else self._identity.vault
            if ledger.vault() in (None, mine) and not history(ledger.read()[0]):
                self._remove(ledger)

    def _remove(self, ledger: Ledger) -> None:
        """Make the ledger nobody's first, because a folder that it names would look damaged; it goes last.

        As long as it is there and locked nobody else begins here.
        """
        places = self._places
        ledger.cut()
        for path in self._mine - {places.vault, places.ledger}:
            files.wipe(path)
        if self._identity is not None:
            Lists(places.lists, places.vault).wipe_marked()
            Folder(places.vault).wipe_all_but(None)
            files.wipe(places.vault / "identity.json")
        if places.vault in self._mine:
            with suppress(FileNotFoundError):
                files.system.rmdir(places.vault)
        if places.ledger in self._mine:
            files.system.unlink(places.ledger)
        files.sync_folder(places.vault.parent)
