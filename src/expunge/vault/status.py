"""The status of a vault: what is in it, from its manifest and its ledger's index, without loading its model."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidFile
from .disk.folder import Folder, VaultIdentity, VaultPaths
from .disk.manifest import Manifest
from .ledger.index import LedgerIndex
from .ledger.ledger import Ledger
from .ledger.records import DONE, Record, find_uncertified
from .results import Status

# MERGED condition: The condition of a vault: what its folder and the newest part of its ledger say, read once, without its model.
# MERGED condition:
# MERGED condition: Whoever opens a vault, predicts from it, waits for it or looks at it decides by the same few facts: whether every
# MERGED condition: accepted request is carried out, whether the newest is finished, and whether a crash left something to tidy up.


@dataclass(frozen=True)
class VaultCondition:
    """What a manifest and the ledger's records from its request on say about a vault.

    Attributes
    ----------
    manifest : Manifest
        The manifest that counts.
    records : sequence of Record
        The ledger, from the manifest's own request on.
    torn : bool
        Whether a torn record follows them.
    """

    manifest: Manifest
    records: Sequence[Record]
    torn: bool

    @property
    def pending(self) -> bool:
        """Whether the ledger has accepted what the manifest has not carried out, or does not fit the manifest."""
        newest = max((record.request for record in self.records if record.is_request), default=self.manifest.request)
        strange = not self.records or self.records[0].end.hash != self.manifest.record  # recovery says what is wrong
        return self.torn or strange or newest > self.manifest.request

    @property
    def finished(self) -> bool:
        """Whether the manifest's own request is done, down to its certificate's payload."""
        return any(record.kind == DONE and record.request == self.manifest.request for record in self.records)

    @property
    def settled(self) -> bool:
        """Whether everything that was accepted is carried out and finished."""
        return not self.pending and self.finished

    @property
    def uncertified(self) -> list[int]:
        """The requests that are done and wait for their certificate."""
        return find_uncertified(self.records)


def read_condition(folder: Folder, ledger: Ledger) -> VaultCondition | None:
    """Read the condition of a vault; None if its first training was never finished."""
    manifest = folder.read_current_manifest()  # before the ledger: what is accepted in between must not be missed
    return None if manifest is None else VaultCondition(manifest, *ledger.read(manifest.before))


def open_index(places: VaultPaths, identity: VaultIdentity) -> LedgerIndex:
    """Return the index of a vault's ledger, for this process."""
    return LedgerIndex(Ledger(places.ledger), places.index, identity.derive_key("ledger index"))


def read_stamp(folder: Folder, ledger: Ledger) -> object:
    """Return what changes with every request, and when another copy of the folder is put in place; two stats."""
    try:
        current = os.stat(folder.path / "current")
    except FileNotFoundError:
        return ledger.stamp()
    return ledger.stamp(), current.st_ino, current.st_mtime_ns


def check_identity(folder: Folder, ledger: Ledger, identity: VaultIdentity) -> None:
    """Refuse a folder or a ledger that is not this vault's any more; a ledger without a first line is nobody's.

    A folder that is away, because a disk is not mounted for example, may come back: it is no invalid file, but missing.
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
        f"{folder.path} is another vault than the one that was opened there, or files of two are mixed: open it anew"
    )


def try_read_status(path: str | Path) -> Status | None:
    """Return the status of a vault without opening it; None if something is to be finished, or wrong: then open it."""
    places = VaultPaths.from_path(path)
    folder, ledger = Folder(places.vault), Ledger(places.ledger)
    if not places.ledger.exists() or (condition := read_condition(folder, ledger)) is None:
        return None
    manifest, identity = condition.manifest, folder.read_identity()
    if not condition.settled or condition.uncertified:
        return None
    if folder.find_leftovers(manifest) or ledger.read_vault_name() != identity.vault:
        return None
    found = build_status(places, manifest, open_index(places, identity))
    return found if folder.read_current_manifest() == manifest else None


def build_status(places: VaultPaths, manifest: Manifest, index: LedgerIndex) -> Status:
    """Return what is in a vault, as of this manifest."""
    if index.vault != manifest.vault:
        raise different_vault_error(Folder(places.vault))
    about, trained = manifest.about, index.read_request_record(manifest.training)
    if trained is None:
        raise InvalidFile(f"{places.ledger} lacks request {manifest.training}, which trained the vault")
    return Status(
        vault=manifest.vault,
        rows=manifest.rows,
        people=manifest.owners,
        erased_ids=manifest.erased,
        requests=index.newest,
        uncertified=index.uncertified,
        trained=str(trained.body["time"]),
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
        bytes=_count_bytes(places.vault),
    )


def _count_bytes(folder: Path) -> int:
    """Return the length of all files in a folder together; a writer may wipe some meanwhile."""
    total = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            total += path.lstat().st_size
    return total
