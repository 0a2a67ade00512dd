"""Restoration of a backup: people erased since it was made stay erased, before the vault answers anybody.

The vault is rebuilt in a staging folder and brought up to date there. If the ledger is still in place and continues the
backup's, recovery applies its later requests to the older folder. If the ledger is lost, or older than the backup's,
the caller has to name the people who were erased since; they are erased before the vault appears. Then the parts are
moved into place, the ledger before the folder: without its folder a vault cannot be opened, and a restore that was
interrupted there finds a ledger in place that knows of all erasures, and starts again.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import tables
from ..errors import InvalidFile, InvalidSetting, Unfinished
from ..saving import files
from ..saving.ownership import PrivateSiblingPath, SiblingPath
from ..saving.staging import (
    check_space,
    copy_ranges,
    copy_verified,
    open_staging_folder,
    os_error_details,
    remove_securely,
)
from .backup import FOLDER_PATTERNS, QUEUE_FILE, QUEUE_SUFFIXES, Backup, read_ledger
from .disk.folder import Folder, VaultPaths, queue_folder
from .disk.people import hash_ids
from .ledger.ledger import Ledger
from .ledger.records import SIGNATURE, Record
from .requests import Train
from .requests.lookup import find_holdings
from .requests.request import Caller
from .requests.restore import MissedChanges, Restore
from .writer import Writer

if TYPE_CHECKING:
    from .vault import Vault

_LEDGER_LOST = (
    "the ledger is lost, so name the ids that were erased since the backup (--erased FILE, erased=[...]), or confirm "
    "that none were (--nothing-erased-since, nothing_erased_since=True)"
)
_USE_NEWER_BACKUP = "use a newer backup, or train the vault again"
_QUEUE_IS_OLD = (
    "the service's database is as of the backup: tokens revoked since are valid again, and holds set since are gone; "
    "check expunge token list before you serve"
)


@dataclass(frozen=True)
class RestoreResult:
    """The result of a restore.

    Attributes
    ----------
    backup : Backup
        The backup that was restored.
    request : int
        The newest request of the vault now.
    rows, people : int
        Rows that were erased because of the list of erased ids, and of how many ids in it.
    unseen : int
        Ids in the list that the backup does not know: they are refused from now on like other erased ids.
    ledger_kept : bool
        Whether the ledger in place was the newer one, and its requests after the backup were applied.
    notes : tuple of str
        Messages for users.
    """

    backup: Backup
    request: int
    rows: int
    people: int
    unseen: int
    ledger_kept: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinceBackup:
    """The erasures since the backup, according to the caller."""

    erased: Sequence[Any] | None  # ids
    nothing_erased: bool

    def __post_init__(self) -> None:
        if self.erased is not None and self.nothing_erased:
            raise InvalidSetting("erased ids and nothing_erased_since contradict each other: use one of the two")


def restore_backup(
    backup: str | Path,
    path: str | Path,
    since: SinceBackup,
    open_vault: "Callable[..., Vault]",
    *,
    key: str | Path | None,
    sign_with: str | None,
    wait: float,
    caller: Caller,
) -> RestoreResult:
    """Restore a backup to the path of a vault that is lost, with all erasures made since."""
    source, places = Backup.read(backup), VaultPaths.from_path(path)
    _check_restore_path(places)
    with _lock_ledger(places, wait) as ledger, open_staging_folder(places.vault.with_suffix(".restoring")) as draft:
        _check_restore_path(places)
        records, kept = _choose_ledger(source, ledger, since)
        _check_no_later_certificates(places, max(record.request for record in records))
        with _report_not_restored(places, files.SyncFailed):
            staged = _copy_backup(source, places, draft, kept)
        if key is None and sign_with is None and not source.with_key and places.key.exists():
            key = places.key
        if not caller.reference:
            caller = replace(caller, reference=f"restored from a backup of request {source.request}")
        with _report_not_restored(places, Unfinished, files.SyncFailed):
            vault = open_vault(staged.vault, key=key, sign_with=sign_with, wait=wait)
            notes = list(vault.notes)
            rows, people, unseen = _erase_since_backup(vault, since.erased or (), caller, notes)
            request = vault.newest
            _export_certificates(staged, places)
        with _report_not_restored(places, files.SyncFailed):
            notes += _move_into_place(draft, staged, places)
    messages = tuple(note.replace(str(draft), str(places.vault.parent)) for note in notes)
    return RestoreResult(source, request, rows, people, unseen, kept, messages)


@contextmanager
def _report_not_restored(places: VaultPaths, *errors: type[Exception]) -> Iterator[None]:
    """Report errors about the staging folder as errors about the vault, which is not restored."""
    try:
        yield
    except errors as error:
        number, reason = os_error_details(error)
        raise OSError(number, f"could not be restored: {reason}; try again", str(places.vault)) from None


def _check_restore_path(places: VaultPaths) -> None:
    if os.path.lexists(places.vault):
        raise InvalidSetting(
            f"{places.vault} already exists, and a restore replaces nothing: move it away (or remove it) and leave "
            f"{places.ledger.name} where it is, because it records the erasures since the backup"
        )
    if not places.vault.parent.is_dir():
        raise InvalidSetting(f"{places.vault} cannot be created: {places.vault.parent} is not a folder")
    places.check()
    queue_folder(places.vault).check_existing(mine=True)


@contextmanager
def _lock_ledger(places: VaultPaths, wait: float) -> Iterator[list[Record]]:
    """Lock the ledger in place, or a new empty one, and yield its records."""
    created = False
    with suppress(FileExistsError), files.open_file(places.ledger, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        created = True
        files.sync(fd)
    ledger = Ledger(places.ledger)
    with ledger.lock(wait):
        try:
            yield read_ledger(places.ledger)[0]
        finally:
            if created:
                with suppress(OSError):
                    if not places.ledger.stat().st_size:
                        files.system.unlink(places.ledger)
                        files.sync_folder(places.ledger.parent)


def _choose_ledger(backup: Backup, ledger_in_place: list[Record], since: SinceBackup) -> tuple[list[Record], bool]:
    """Return the ledger to continue with, and whether it is the one in place, because that continues the backup's."""
    path = backup.path / "ledger"
    backed_up, torn = read_ledger(path)
    if torn or not backed_up or backed_up[0].body.get("vault") != backup.vault:
        raise InvalidFile(f"{path} is damaged: it is not the ledger that was backed up")
    if ledger_in_place and ledger_in_place[0].body.get("vault") != backup.vault:
        raise InvalidFile(f"the ledger in place and {backup.path} belong to different vaults: restore to another path")
    kept = len(ledger_in_place) >= len(backed_up)
    shorter = min(len(ledger_in_place), len(backed_up))
    if shorter and ledger_in_place[shorter - 1].end != backed_up[shorter - 1].end:
        raise InvalidFile(
            f"the ledger in place and the one in {backup.path} are of the same vault and contradict each other: one of "
            "them was put back from an older copy and used since; restore to another path and compare them"
        )
    if not kept and since.erased is None and not since.nothing_erased:
        raise InvalidSetting(_LEDGER_LOST)
    if kept and any(record.kind == Train.kind for record in ledger_in_place[len(backed_up) :]):
        raise InvalidFile(
            f"{backup.path} is from before the newest training in the ledger in place: {_USE_NEWER_BACKUP}"
        )
    return (ledger_in_place if kept else backed_up), kept


def _check_no_later_certificates(places: VaultPaths, newest: int) -> None:
    """Refuse to continue if certificates exist for requests that the ledger does not know."""
    names = files.VaultDir(places.certificates).names() if places.certificates.is_dir() else []
    later = [
        name
        for name in names
        if FOLDER_PATTERNS["certificates"].fullmatch(name) and int(name[:-4].split("-")[0]) > newest
    ]
    if later:
        raise InvalidFile(
            f"{places.certificates} has certificates of {len(later)} requests after request {newest}, which are in no "
            "ledger here: put the newest ledger back, or move the certificates away to continue without it"
        )


def _copy_backup(backup: Backup, places: VaultPaths, draft: Path, keep_ledger: bool) -> VaultPaths:
    """Copy a backup into the draft and check it, with the ledger to continue with and the lists that it needs."""
    check_space(draft, backup.size)
    staged = VaultPaths.from_path(draft / places.vault.name)
    homes: dict[str, Path] = {"ledger": staged.ledger, "pub": staged.public, "key": staged.key}
    homes["queue"] = draft / "queue"  # not beside the vault: its holds must not block erasures since
    for name, (size, sha256) in backup.files.items():
        folder, _, file = name.partition("/")
        target = homes.get(name)
        if target is None:
            home = staged.vault if folder == "vault" else getattr(staged, folder)
            files.VaultDir(home).make(for_group=False)
            target = home / file
        copy_verified(backup.path / name, target, size, sha256)
    if keep_ledger:
        files.wipe(staged.ledger)
        _copy_file(places.ledger, staged.ledger)
    for name in files.VaultDir(places.lists).names() if places.lists.is_dir() else ():
        if FOLDER_PATTERNS["lists"].fullmatch(name) and not (staged.lists / name).exists():
            files.VaultDir(staged.lists).make(for_group=False)
            _copy_file(places.lists / name, staged.lists / name)
    for folder in (staged.vault, *(getattr(staged, name) for name in FOLDER_PATTERNS), draft):
        if folder.is_dir():
            files.sync_folder(folder)
    if Folder(staged.vault).read_identity().vault != backup.vault:
        raise InvalidFile(f"{backup.path} has the folder of another vault")
    return staged


def _copy_file(source: Path, target: Path) -> None:
    copy_ranges(source, target, [(0, source.stat().st_size)])
    with files.open_file(target) as fd:
        files.sync(fd)


def _erase_since_backup(vault: "Vault", ids: Sequence[Any], caller: Caller, notes: list[str]) -> tuple[int, int, int]:
    """Erase the people who were erased since the backup; an id that the backup never had gets a tombstone as well."""
    if not ids:
        return 0, 0, 0
    rows = people = 0
    with vault._lock_for_writing() as writer:
        people_ids = list(dict.fromkeys(tables.id_bytes(ids, fold_case=writer.snapshot.schema.fold_case)))
        holdings = dict(zip(people_ids, find_holdings(writer.context, people_ids, similar=True), strict=True))
    if similar := sum(holding.similar for holding in holdings.values()):
        notes.append(
            f"the vault has a similar id for {similar:,} of the ids that were never in the backup, which was not "
            "erased: check case, quotes, zeros, signs and decimals, and erase the right ids before you serve"
        )
    present = [person.decode() for person, holding in holdings.items() if holding.state == "present"]
    unseen = [person for person, holding in holdings.items() if holding.state == "unknown"]
    if present:
        receipt = vault.unlearn(present, **vars(caller))
        rows, people = receipt.rows, receipt.people
        notes += receipt.notes
    if unseen:
        with vault._lock_for_writing() as writer:
            _set_tombstones(writer, unseen, caller)
    return rows, people, len(unseen)


def _set_tombstones(writer: Writer, ids: Sequence[bytes], caller: Caller) -> None:
    """Set tombstones for ids without rows, so that rows which are added again cannot bring them back."""
    changes = MissedChanges(writer.snapshot.rows)
    changes.add_buried(hash_ids(writer.identity.key, ids), [writer.newest + 1] * len(ids))
    with writer.abandon_on_failure():
        plan = Restore.plan(writer.context, changes)
    writer.perform(plan, [caller])


def _export_certificates(staged: VaultPaths, places: VaultPaths) -> None:
    """Write the certificates in the ledger that exist in no file: an earlier try may have lost them."""
    files.VaultDir(staged.certificates).make(for_group=False)
    for record in read_ledger(staged.ledger)[0]:
        name = f"{record.request:06}.jws"
        if record.kind == SIGNATURE and not any((paths.certificates / name).exists() for paths in (staged, places)):
            files.put(staged.certificates / name, str(record.body["certificate"]).encode() + b"\n")


def _move_into_place(draft: Path, staged: VaultPaths, places: VaultPaths) -> list[str]:
    """Move the parts into place: what the ledger needs, the ledger, what it does not need, and last the folder."""
    for folder in ("lists", "leaves"):
        _merge_folder(getattr(staged, folder), getattr(places, folder))
    for source, target in ((staged.key, places.key), (staged.public, places.public)):
        if source.exists() and not target.exists():
            files.system.rename(source, target)
    if os.path.lexists(places.index):  # of the previous ledger; it is built again
        remove_securely(places.index)
    files.sync_folder(places.vault.parent)
    files.system.rename(staged.ledger, places.ledger)
    files.sync_folder(places.vault.parent)
    _merge_folder(staged.certificates, places.certificates)
    notes = _place_queue(draft / "queue", queue_folder(places.vault))
    _check_restore_path(places)
    files.system.rename(staged.vault, places.vault)
    try:
        files.sync_folder(places.vault.parent)
    except OSError as error:
        raise Unfinished(
            f"{places.vault} is restored, but its name {error.strerror}; if the machine fails before the next request "
            "and the folder is missing, restore it again"
        ) from error
    return notes


def _merge_folder(source: SiblingPath, target: SiblingPath) -> None:
    """Move the files of a folder into another, unless they exist there."""
    if not source.is_dir():
        return
    if not target.is_dir():
        files.system.rename(source, target)
    else:
        for name in files.VaultDir(source).names():
            if not os.path.lexists(target / name):
                files.system.rename(source / name, target / name)
        files.sync_folder(target)
    files.sync_folder(target.parent)


def _place_queue(source: Path, folder: PrivateSiblingPath) -> list[str]:
    """Move the service's database into place unless there is one; return messages for users."""
    if not source.exists():
        return []
    target = folder / QUEUE_FILE
    if target.exists():
        return [f"{target} is kept: it is newer than the one in the backup"]
    files.VaultDir(folder).make(for_group=False)
    for end in QUEUE_SUFFIXES:  # logs of a database that does not exist any more
        files.wipe(folder / f"{QUEUE_FILE}{end}")
    files.system.rename(source, target)
    files.sync_folder(folder)
    return [_QUEUE_IS_OLD]
