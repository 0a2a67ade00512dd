"""The condition of a vault: what its folder and the newest part of its ledger say, read once, without its model.

Whoever opens a vault, predicts from it, waits for it or looks at it decides by the same few facts: whether every
accepted request is carried out, whether the newest is finished, and whether a crash left something to tidy up.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidFile
from .certificates.waiting import waiting
from .disk.folder import Folder, Places, VaultIdentity
from .disk.manifest import Manifest
from .ledger.index import LedgerIndex
from .ledger.ledger import Ledger
from .ledger.records import DONE, Record


@dataclass(frozen=True)
class Condition:
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
    def waiting(self) -> list[int]:
        """The requests that are done and wait for their certificate."""
        return waiting(self.records)


def read_condition(folder: Folder, ledger: Ledger) -> Condition | None:
    """Read the condition of a vault; None if its first training was never finished."""
    manifest = folder.current()  # before the ledger: what is accepted in between must not be missed
    return None if manifest is None else Condition(manifest, *ledger.read(manifest.before))


def index_of(places: Places, identity: VaultIdentity) -> LedgerIndex:
    """Return the index of a vault's ledger, for this process."""
    return LedgerIndex(Ledger(places.ledger), places.index, identity.derive("ledger index"))


def stamp_of(folder: Folder, ledger: Ledger) -> object:
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
    if folder.identity() != identity or ledger.vault() not in (None, identity.vault):
        raise another_vault(folder)


def check_vault(folder: Folder, manifest: Manifest | None, vault: str) -> None:
    """Refuse a manifest of another vault."""
    if manifest is not None and manifest.vault != vault:
        raise another_vault(folder)


def another_vault(folder: Folder) -> InvalidFile:
    """Return the error that this path now holds a different vault."""
    return InvalidFile(
        f"{folder.path} is another vault than the one that was opened there, or files of two are mixed: open it anew"
    )
