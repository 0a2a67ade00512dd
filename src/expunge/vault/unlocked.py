"""Unlocked: a vault as it is, for who wants to read and change nothing: no lock, no recovery, no signature, no wipe."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import InvalidFile, Unfinished, VaultBusy
from .certificates.committed import check_committed
from .certificates.keyring import known_keys
from .disk.folder import Folder
from .disk.manifest import Manifest
from .ledger.ledger import Ledger
from .looking import check_identity, finished, pending
from .writer import Writer

_POLL = 0.01  # seconds between two looks at what another has to finish


def settled(folder: Folder, ledger: Ledger, wait: float, *, tidy: bool = False) -> Manifest:
    """The manifest of a vault in which every request is carried out; if one is not, wait for who is at it.

    With ``tidy`` there are no leftovers either: rows that are being added lie in slots that count as empty.
    """
    deadline = time.monotonic() + wait
    while True:
        manifest = folder.current()
        if manifest is not None:
            records, torn = ledger.read(manifest.before)
            done = not pending(manifest, records, torn) and finished(manifest, records)
            if done and not (tidy and folder.leftovers(manifest)):
                return manifest
        if time.monotonic() >= deadline:
            raise Unfinished(
                f"{folder.path} has something to be finished or tidied up, and is opened read only: "
                "open it once without that (a command without --read-only)"
            )
        time.sleep(_POLL)


@contextmanager
def unlocked(writer: Writer, wait: float, *, tidy: bool) -> Iterator[None]:
    """Load a vault without the lock. An answer counts only if no request was accepted (or prepared) meanwhile."""

    def look() -> object:
        return writer.ledger.stamp(), tidy and writer.folder.path.stat().st_mtime_ns

    check_identity(writer.folder, writer.ledger, writer.identity)
    stamp = look()
    manifest = settled(writer.folder, writer.ledger, wait, tidy=tidy)
    records, _ = writer.ledger.read(manifest.before)

    def check_unchanged() -> None:
        if look() != stamp or writer.folder.current() != manifest:
            raise VaultBusy(f"{writer.folder.path} changed while it was being read: try again")

    if tidy and writer.notary.left_behind:
        raise Unfinished(
            f"a change of the key of {writer.folder.path} was stopped half way, and it is opened read only: open it "
            "once without that (a command without --read-only)"
        )
    writer.trained, writer.newest = None, manifest.request
    writer.notary.known = known_keys(manifest.keys, records)
    try:
        vault = writer.load(manifest)
        writer.check_rows(vault)
        check_committed(manifest, records, vault.state.ensemble.digest())
        yield
    except (InvalidFile, OSError):
        check_unchanged()
        raise
    check_unchanged()
