"""The condition and the status of a vault, read from its folder and its ledger without loading the model.

Opening a vault, predicting from it, waiting for it and showing it all depend on the same facts: whether every accepted
request is carried out, whether the newest one is finished, and whether an interrupted process left files behind. They
are read here, once (`VaultCondition`).
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from ..errors import InvalidFile
from .certificates.keys import KeyStore
from .disk.folder import Folder, VaultIdentity, VaultPaths
from .disk.manifest import Manifest
from .ledger.index import LedgerIndex
from .ledger.ledger import Ledger
from .ledger.records import DONE, Record, find_uncertified
from .results import Status


@dataclass(frozen=True)
class VaultCondition:
    """How far a vault has come, according to its manifest and the end of its ledger.

    Attributes
    ----------
    folder, keys : Folder, KeyStore
        Where files that an interrupted process left behind are looked for.
    manifest : Manifest or None
        The current manifest; None if the first training was never finished.
    records : sequence of Record
        The ledger, from the manifest's own request on.
    torn : bool
        Whether a torn record follows them.
    """

    folder: Folder
    keys: KeyStore
    manifest: Manifest | None
    records: Sequence[Record] = ()
    torn: bool = False

    @cached_property
    def progress(self) -> Literal["untrained", "pending", "unfinished", "done"]:
        """How far the accepted requests are.

        "pending": the ledger has accepted a request that the manifest does not include, or does not fit the manifest
        (recovery reports what is wrong). "unfinished": the manifest's own request has no record that it is done.
        """
        if self.manifest is None:
            return "untrained"
        number = self.manifest.request
        if self.torn or not self.records or self.records[0].end.hash != self.manifest.record:
            return "pending"
        if any(record.is_request and record.request > number for record in self.records):
            return "pending"
        done = any(record.kind == DONE and record.request == number for record in self.records)
        return "done" if done else "unfinished"

    @cached_property
    def has_leftovers(self) -> bool:
        """Whether an interrupted process left files behind."""
        return has_leftovers(self.folder, self.manifest, self.keys)

    @property
    def uncertified(self) -> int:
        """The newest request that is done and waits for its certificate; 0 if there is none."""
        return find_uncertified(self.records)


def read_condition(folder: Folder, ledger: Ledger, keys: KeyStore) -> VaultCondition:
    """Read the condition of a vault."""
    manifest = folder.read_current_manifest()  # before the ledger: a request accepted in between must not be missed
    if manifest is None:
        return VaultCondition(folder, keys, None)
    return VaultCondition(folder, keys, manifest, *ledger.read(manifest.before))


def has_leftovers(folder: Folder, manifest: Manifest | None, keys: KeyStore) -> bool:
    """Return whether a request that was not accepted, or an interrupted change of the key, left files behind."""
    return bool(folder.find_leftovers(manifest)) or keys.has_leftover_draft()


def open_index(places: VaultPaths, identity: VaultIdentity) -> LedgerIndex:
    """Return the index of a vault's ledger, for this process."""
    return LedgerIndex(Ledger(places.ledger), places.index, identity.derive_key("ledger index"))


def read_stamp(folder: Folder, ledger: Ledger) -> object:
    """Return a value that changes with every request, and if another copy of the folder is put in place; two stats."""
    try:
        current = os.stat(folder.path / "current")
    except FileNotFoundError:
        return ledger.stamp()
    return ledger.stamp(), current.st_ino, current.st_mtime_ns


def check_identity(folder: Folder, ledger: Ledger, identity: VaultIdentity) -> None:
    """Refuse a folder or a ledger that no longer belongs to this vault; a ledger without a first line has no owner.

    A missing folder raises `FileNotFoundError`, not `InvalidFile`: its disk may not be mounted, and it may come back.
    """
    os.stat(folder.path)
    if folder.read_identity() != identity or ledger.read_vault_name() not in (None, identity.vault):
        raise different_vault_error(folder)


def check_manifest_vault(folder: Folder, manifest: Manifest | None, vault: str) -> None:
    """Refuse a manifest of another vault."""
    if manifest is not None and manifest.vault != vault:
        raise different_vault_error(folder)


def different_vault_error(folder: Folder) -> InvalidFile:
    """Return the error that this path now holds a different vault."""
    return InvalidFile(
        f"{folder.path} now holds a different vault than the one that was opened, or files of two vaults: open it again"
    )


def try_read_status(path: str | Path) -> Status | None:
    """Return the status of a vault without opening it; None if something is unfinished or wrong, so open it then."""
    places = VaultPaths.from_path(path)
    folder, ledger = Folder(places.vault), Ledger(places.ledger)
    if not places.ledger.exists():
        return None
    condition = read_condition(folder, ledger, KeyStore(places, None, None))
    manifest = condition.manifest
    if manifest is None or condition.progress != "done" or condition.uncertified or condition.has_leftovers:
        return None
    identity = folder.read_identity()
    if ledger.read_vault_name() != identity.vault:
        return None
    status = build_status(places, manifest, open_index(places, identity))
    return status if folder.read_current_manifest() == manifest else None


def build_status(places: VaultPaths, manifest: Manifest, index: LedgerIndex) -> Status:
    """Return the status of a vault as of this manifest."""
    if index.vault != manifest.vault:
        raise different_vault_error(Folder(places.vault))
    about, trained = manifest.about, index.read_request_record(manifest.training)
    if trained is None:
        raise InvalidFile(f"{places.ledger} lacks request {manifest.training}, which trained the vault")
    size = 0
    for file in places.vault.iterdir():
        with suppress(FileNotFoundError):  # a writer may wipe files meanwhile
            size += file.lstat().st_size
    return Status(
        vault=manifest.vault,
        rows=manifest.rows,
        people=manifest.owners,
        erased_ids=manifest.erased,
        requests=index.newest,
        uncertified=index.uncertified,
        trained=str(trained.body["time"]),
        settled=manifest.training,
        open=0 if manifest.planning is None else manifest.planning.open,
        planning_people=0 if manifest.planning is None else manifest.planning.people,
        renewable=manifest.planning is not None,
        targets=about.targets,
        columns=about.columns,
        inputs=about.inputs,
        shards=about.shards,
        learners=about.learners,
        rate=about.shards / about.learners,
        alpha=about.alpha,
        features=about.features,
        scales=about.scales,
        target_scales=about.target_scales,
        outside=about.outside,
        planned=str(trained.body.get("planned", "")),
        compared=str(trained.body.get("compared", "")),
        observed_bounds=about.observed_bounds,
        clone_of=about.clone_of,
        bytes=size,
    )
