"""Unlocked: a vault as it is, for who wants to read and change nothing: no lock, no recovery, no signature, no wipe."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import InvalidFile, Unfinished, VaultBusy
from .certificates.committed import check_committed
from .certificates.keyring import known_keys
from .condition import Condition, check_identity, read_condition
from .disk.folder import Folder
from .ledger.ledger import Ledger
from .writer import Writer

_POLL = 0.01  # seconds between two looks at what another has to finish


def settled(folder: Folder, ledger: Ledger, wait: float, *, tidy: bool = False) -> Condition:
    """The condition of a vault in which every request is carried out; if one is not, wait for who is at it.

    With ``tidy`` there are no leftovers either: rows that are being added lie in slots that count as empty.
    """
    deadline = time.monotonic() + wait
    while True:
        condition = read_condition(folder, ledger)
        if condition is not None and condition.settled and not (tidy and folder.leftovers(condition.manifest)):
            return condition
        if time.monotonic() >= deadline:
            raise Unfinished(
                f"{folder.path} has something to be finished or tidied up, and is opened read only: "
                "open it once without that (a command without --read-only)"
            )
        time.sleep(_POLL)


@contextmanager
def unlocked(writer: Writer, wait: float, *, tidy: bool) -> Iterator[Callable[[], None]]:
    """Load a vault without the lock. An answer counts only if no request was accepted (or prepared) meanwhile.

    Yields what raises `VaultBusy` if that happened, so that nobody goes on for long in vain.
    """

    def look() -> object:
        return writer.ledger.stamp(), tidy and writer.folder.path.stat().st_mtime_ns

    check_identity(writer.folder, writer.ledger, writer.identity)
    stamp = look()
    condition = settled(writer.folder, writer.ledger, wait, tidy=tidy)
    manifest, records = condition.manifest, condition.records

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
        yield check_unchanged
    except (InvalidFile, OSError):
        check_unchanged()
        raise
    check_unchanged()
