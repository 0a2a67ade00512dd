"""Unlocked: a vault as it is, for who wants to read and change nothing: no lock, no recovery, no signature, no wipe."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import InvalidFile, Unfinished, VaultBusy
from .disk.folder import Folder
from .disk.manifest import Manifest
from .ledger.ledger import Ledger
from .looking import finished, pending
from .writer import Writer

_POLL = 0.01  # seconds between two looks at what another has to finish


def settled(folder: Folder, ledger: Ledger, wait: float) -> Manifest:
    """The manifest of a vault in which every request is carried out; if one is not, wait for who is at it."""
    deadline = time.monotonic() + wait
    while True:
        manifest = folder.current()
        if manifest is not None:
            records, torn = ledger.read(manifest.before)
            if not pending(manifest, records, torn) and finished(manifest, records):
                return manifest
        if time.monotonic() >= deadline:
            raise Unfinished(
                f"{folder.path} has something that is accepted and not finished, and is opened read only: "
                "open it once without that (a command without --read-only)"
            )
        time.sleep(_POLL)


@contextmanager
def unlocked(writer: Writer, wait: float) -> Iterator[None]:
    """Load a vault without the lock. An answer counts only if no request was accepted meanwhile."""
    stamp = writer.ledger.stamp()
    manifest = settled(writer.folder, writer.ledger, wait)

    def check_unchanged() -> None:
        if writer.ledger.stamp() != stamp or writer.folder.current() != manifest:
            raise VaultBusy(f"{writer.folder.path} changed while it was being read: try again")

    writer.trained, writer.newest = None, manifest.request
    try:
        writer.check_rows(writer.load(manifest))
        yield
    except (InvalidFile, OSError):
        check_unchanged()
        raise
    check_unchanged()
