"""The reader: predictions that are never stale, without a lock.

An answer counts only if the ledger, looked at once more after it was computed, has accepted no request that the
answer's model has not carried out. While one is pending the reader helps to finish it, or waits for who may write, or
refuses.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..errors import InvalidFile, InvalidInput, Unfinished, VaultBusy
from .certificates.committed import check_committed
from .condition import check_vault, read_condition, stamp_of
from .disk.folder import Folder
from .disk.manifest import Manifest
from .disk.snapshot import Model, digest_of, load_model
from .ledger.ledger import Ledger

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

    def known_ids(self, ids: Any) -> list[bytes]:
        """Return ids in their one form, by the schema that was read last if it takes them.

        A training never changes which ids are the same person, so nothing has to be read for that. It may change which
        forms are allowed: ids that are refused are looked at again with the newest schema.
        """
        if self._seen is not None:
            with suppress(InvalidInput):
                return self._seen[1].schema.known_ids(ids)
        return self.current().schema.known_ids(ids)

    def current(self) -> Model:
        """The model that has carried out all that is accepted; the same object as long as nothing newer is."""
        deadline = time.monotonic() + self._wait
        for _ in range(_TRIES):
            stamp = stamp_of(self._folder, self._ledger)
            seen = self._seen  # read once: another thread may replace it with an older model
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

    def _load(self) -> Model | None:
        """Read the newest model, or None if there is something to be finished first."""
        condition = read_condition(self._folder, self._ledger)
        if condition is None:
            return None
        manifest = condition.manifest
        check_vault(self._folder, manifest, self._vault)
        if condition.pending:
            return None
        known = None if self._seen is None else self._seen[1]
        if known is not None and known.manifest == manifest:
            return known
        try:
            model = load_model(self._folder, manifest, known)
            if condition.finished:  # else its bits may be yet to be overwritten
                check_committed(manifest, condition.records, digest_of(self._folder, model))
            return model
        except InvalidFile:
            if self._folder.current() == manifest:
                raise
            return self._load()  # a writer went on and wiped what was being read
