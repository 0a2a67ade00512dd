"""Founding: what has to be there before a vault can be trained or opened, and its removal if the training fails."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ExpungeError, InvalidFile, InvalidSetting, Unfinished, VaultBusy
from ..saving import files
from . import tables
from .disk.folder import Folder, Places, VaultIdentity
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


def found_identity(places: Places, wait: float, *, group: bool) -> VaultIdentity:
    """Return the identity of the vault at this place, or make a new one where there is none."""
    places.look()
    if group and places.vault.is_dir() and not places.vault.for_group:
        raise InvalidSetting(f"{places.vault} exists already, for its owner alone; docs/vault.md says how to share it")
    ledger, folder = Ledger(places.ledger), Folder(places.vault)
    begun = places.ledger.exists() and places.ledger.stat().st_size
    if begun and not places.vault.is_dir():
        raise InvalidFile(
            f"{places.ledger} is there and its folder {places.vault.name} is not: put a copy of the folder back, "
            "or move the ledger away to begin anew (who was erased is then forgotten)"
        )
    if (places.vault / "current").exists() and not (begun and ledger.vault()):
        raise InvalidFile(f"{places.ledger} is not there: a vault cannot be opened without its ledger")
    files.make_folder(places.vault, for_group=group)
    with suppress(FileExistsError):
        files.create(places.ledger)
    files.sync_folder(places.vault.parent)
    with ledger.locked(wait):
        if ledger.vault() is None:  # nobody's yet: what there is of an identity may never have been synced
            identity = VaultIdentity.new()
            folder.identify(identity)
            ledger.cut()
            ledger.append(header(identity.vault))
    identity = folder.identity()
    check_same_vault(places, identity)
    return identity


def check_same_vault(places: Places, identity: VaultIdentity) -> None:
    """Refuse the ledger of another vault. One that a crash cut within its first line is nobody's yet."""
    if Ledger(places.ledger).vault() not in (None, identity.vault):
        raise InvalidFile(f"{places.ledger} is the ledger of another vault than {places.vault}")


@contextmanager
def undone_if_it_fails(places: Places) -> Iterator[None]:
    """Remove all that a first training has made if it fails, unless it was accepted."""
    beside = (places.key, places.public, places.vault)
    mine: list[Path] = [path for path in beside if not path.exists()]
    if not places.ledger.exists() or not places.ledger.stat().st_size:
        mine.insert(0, places.ledger)
    try:
        yield
    except BaseException as error:
        uncertain = isinstance(error, Unfinished | VaultBusy)
        if places.vault in mine and not uncertain:
            with suppress(OSError, ExpungeError):  # if the disk has gone, it is the first error that says what happened
                if not _accepted(places):
                    _remove(places, mine)
        raise


def _accepted(places: Places) -> bool:
    return places.ledger.exists() and bool(history(Ledger(places.ledger).read()[0]))


def _remove(places: Places, mine: list[Path]) -> None:
    """Remove what a training made; the ledger first, because a folder that a ledger names would look damaged."""
    for path in mine:
        if path != places.vault:
            files.wipe(path)
    Folder(places.vault).wipe_all_but(())
    files.wipe(places.vault / "identity.json")
    files.system.rmdir(places.vault)
    files.sync_folder(places.vault.parent)
