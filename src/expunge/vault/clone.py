"""Cloning: build another vault from one that is locked, record it in the source, and let it appear."""

import errno
import os
import uuid
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ..errors import InvalidSetting, Unfinished
from ..saving import files
from .certificates.keys import Keys
from .disk.folder import Folder, Places, VaultIdentity, queue_beside
from .ledger.records import header
from .requests import Clone, Cloned
from .requests.caller import Caller
from .staging import check_space, staging
from .writer import Writer


def clone_vault(source: Writer, path: str | Path, callers: Sequence[Caller], wait: float) -> str:
    """Clone a vault whose lock is held into a new place, under a new name, which is returned.

    The clone is built whole beside its place, then recorded in the source's ledger, and only then put into place: no
    clone can be opened that the source does not know of.
    """
    places = Places.of(path)
    _check_free(places)
    with staging(places.vault.with_suffix(".cloning")) as draft:
        check_space(draft, sum(entry.stat().st_size for entry in os.scandir(source.folder.path)))
        staged = Places.of(draft / places.vault.name)
        identity = VaultIdentity(str(uuid.uuid4()), source.identity.key)
        try:
            _build(source, staged, identity, callers, wait)
        except (Unfinished, files.SyncFailed) as error:  # of the clone: nothing was asked of the source yet
            cause = error if isinstance(error, OSError) else error.__cause__
            number, why = (cause.errno, cause.strerror) if isinstance(cause, OSError) else (errno.EIO, str(error))
            raise OSError(number, f"could not be written: {why}", str(places.vault)) from None
        _check_free(places)
        source.perform(Clone.plan(source.site, identity.vault), callers)
        try:
            _put_in_place(staged, places)
        except OSError as error:
            raise Unfinished(
                f"the ledger of {source.places.vault.name} records a clone that could not be put in place: {error}; "
                "remove what is there and clone it again"
            ) from None  # a sync that failed here is not one of the source
    return identity.vault


def _check_free(places: Places) -> None:
    """Refuse a place where anything of a vault lies, or of a service: its tokens and holds would be the clone's."""
    for path in (*(getattr(places, field.name) for field in fields(places)), queue_beside(places.vault)):
        if os.path.lexists(path):
            raise InvalidSetting(f"{path} exists already: name another place, or remove what was left there")
    if not places.vault.parent.is_dir():
        raise InvalidSetting(f"{places.vault} cannot be made: {places.vault.parent} is not a folder")


def _build(source: Writer, staged: Places, identity: VaultIdentity, callers: Sequence[Caller], wait: float) -> None:
    """Write the clone: its identity, its ledger with a new key, and its first request, which is certified."""
    files.make_folder(staged.vault, for_group=False)
    Folder(staged.vault).identify(identity)
    files.create(staged.ledger, header(identity.vault).line)
    files.sync_folder(staged.vault.parent)
    trained = source.index.asked(source.now.manifest.training)
    planned = "" if trained is None else str(trained.body.get("planned", ""))
    clone = Writer(staged, identity, Keys(staged, None, None))
    with clone.locked(wait):
        with clone.preparing():
            plan = Cloned.plan(clone.site, source.now, planned)
            introduction = clone.notary.introduction(actor=callers[0].actor)
        clone.perform(plan, callers, introduction)


def _put_in_place(staged: Places, places: Places) -> None:
    """Move the parts into place, the folder last: without it nothing can be opened."""
    for name in ("ledger", "key", "public", "certificates", "leaves", "lists"):
        part = getattr(staged, name)
        if part.exists():
            files.system.rename(part, getattr(places, name))
    files.sync_folder(places.vault.parent)
    files.system.rename(staged.vault, places.vault)
    files.sync_folder(places.vault.parent)
