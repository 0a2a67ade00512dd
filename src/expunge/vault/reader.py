"""The reader: predictions that are never stale, without a lock.

An answer counts only if the ledger, looked at once more after it was computed, has accepted no request that the
answer's model has not carried out. While one is pending the reader helps to finish it, or waits for who may write, or
refuses.
"""

import time
from collections.abc import Callable

from ..errors import InvalidFile, Unfinished, VaultBusy
from .certificates.committed import check_committed
from .disk.folder import Folder
from .disk.manifest import Manifest
from .disk.snapshot import Model, digest_of, load_model
from .ledger.ledger import Ledger
from .looking import check_vault, finished, pending

_TRIES = 1000
_POLL = 0.01  # seconds between two looks at what another has to finish


class Reader:
    """The newest model of a vault, as one process sees it."""

    def __init__(self, folder: Folder, ledger: Ledger, vault: str, settle: Callable[[], None], wait: float) -> None:
        self._folder, self._ledger, self._vault, self._settle, self._wait = folder, ledger, vault, settle, wait
        self._seen: tuple[object, Model] | None = None

    @property
    def seen(self) -> Manifest | None:
        """The manifest of the model that was read last; no look at the disk."""
        return None if self._seen is None else self._seen[1].manifest

    def current(self) -> Model:
        """The model that has carried out all that is accepted; the same object as long as nothing newer is."""
        deadline = time.monotonic() + self._wait
        for _ in range(_TRIES):
            stamp, seen = self._stamp(), self._seen  # read once: another thread may put an older one there
            if seen is not None and seen[0] == stamp:
                return seen[1]
            if (model := self._load()) is not None:
                self._seen = stamp, model
                return model
            try:
                self._settle()
            except PermissionError:
                if time.monotonic() >= deadline:
                    raise Unfinished(
                        f"{self._folder.path} has a request that is accepted and not carried out, and this process may "
                        "not write there, or was asked to read only: let one that may open the vault"
                    ) from None
                time.sleep(_POLL)
        raise VaultBusy(f"{self._folder.path} changes faster than it can be read; try again")

    def _stamp(self) -> object:
        current = (self._folder.path / "current").stat()
        return self._ledger.stamp(), current.st_ino, current.st_mtime_ns

    def _load(self) -> Model | None:
        """Read the newest model, or None if there is something to be finished first."""
        manifest = self._folder.current()  # before the ledger: what is accepted in between must not be missed
        check_vault(self._folder, manifest, self._vault)
        if manifest is None:
            return None
        records, torn = self._ledger.read(manifest.before)
        if pending(manifest, records, torn):
            return None
        known = None if self._seen is None else self._seen[1]
        if known is not None and known.manifest == manifest:
            return known
        try:
            model = load_model(self._folder, manifest, known)
            if finished(manifest, records):  # else its bits may be yet to be overwritten
                check_committed(manifest, records, digest_of(self._folder, model))
            return model
        except InvalidFile:
            if self._folder.current() == manifest:
                raise
            return self._load()  # a writer went on and wiped what was being read
