"""The reader: predictions that are never stale, without a lock.

An answer counts only if the ledger, read once more after the answer was computed, has accepted no request that the
answer's model does not include. While a request is pending the reader finishes it, waits for a process that may write,
or refuses.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .. import tables
from ..errors import InvalidFile, InvalidInput, Unfinished, VaultBusy
from ..exact.arrays import Floats
from ..tables import Block
from .certificates.keys import KeyStore, known_keys
from .certificates.payload import check_state_commitment
from .disk.folder import Folder
from .disk.manifest import Manifest
from .disk.snapshot import VaultModel, compute_digest, load_model
from .ledger.ledger import Ledger
from .results import Predictions, WrittenPredictions
from .status import VaultCondition, check_identity, check_manifest_vault, read_condition, read_stamp
from .writer import Writer

_MAX_TRIES = 1000
_POLL_SECONDS = 0.01  # between two looks at what another process has to finish


class Reader:
    """The newest model of a vault, as one process sees it; ``settle`` finishes what was accepted."""

    def __init__(
        self, folder: Folder, ledger: Ledger, keys: KeyStore, vault: str, settle: Callable[[], None], wait: float
    ) -> None:
        self._folder, self._ledger, self._keys, self._vault = folder, ledger, keys, vault
        self._settle, self._wait = settle, wait
        self._cached: tuple[object, VaultModel] | None = None

    @property
    def cached_manifest(self) -> Manifest | None:
        """The manifest of the model that was read last; nothing is read from the disk."""
        return None if self._cached is None else self._cached[1].manifest

    def normalise_ids(self, ids: Any) -> list[bytes]:
        """Return ids in their canonical form, by the schema that was read last if it accepts them.

        A training never changes which ids are the same person, so the cached schema is enough. It may change which
        formats are allowed: ids that the cached schema refuses are checked again with the newest one.
        """
        if self._cached is not None:
            with suppress(InvalidInput):
                return self._cached[1].schema.normalise_ids(ids)
        return self.get_model().schema.normalise_ids(ids)

    def get_model(self) -> VaultModel:
        """Return the model that includes every accepted request; the same object until there is a newer one."""
        deadline = time.monotonic() + self._wait
        for _ in range(_MAX_TRIES):
            stamp = read_stamp(self._folder, self._ledger)
            cached = self._cached  # read once: another thread may replace it with an older model
            if cached is not None and cached[0] == stamp:
                return cached[1]
            if (model := self._try_load()) is not None:
                self._cached = stamp, model
                return model
            try:
                self._settle()
            except PermissionError:
                if time.monotonic() >= deadline:
                    raise Unfinished(
                        f"{self._folder.path} has an accepted request that is not carried out yet, and this process "
                        "may not write there or opened it read-only: open the vault with a process that may write"
                    ) from None
                time.sleep(_POLL_SECONDS)
        raise VaultBusy(f"{self._folder.path} changes faster than it can be read; try again")

    def _try_load(self) -> VaultModel | None:
        """Read the newest model, or return None if a request has to be finished first."""
        condition = read_condition(self._folder, self._ledger, self._keys)
        manifest = condition.manifest
        check_manifest_vault(self._folder, manifest, self._vault)
        if manifest is None or condition.progress == "pending":
            return None
        known = None if self._cached is None else self._cached[1]
        if known is not None and known.manifest == manifest:
            return known
        try:
            model = load_model(self._folder, manifest, known)
            if condition.progress == "done":  # else its bits may not be overwritten yet
                check_state_commitment(manifest, condition.records, compute_digest(self._folder, model))
            return model
        except InvalidFile:
            if self._folder.read_current_manifest() == manifest:
                raise
            return self._try_load()  # a writer went on and wiped the files that were being read


def predict_table(reader: Reader, data: Any, *, ids: bool) -> Predictions:
    """Predict the rows of a table into memory; a stream that can be read only once is kept in memory as well."""
    data = tables.load_stream(data)
    while True:
        model = reader.get_model()
        with_ids = ids and tables.has_ids(data, model.schema)
        owners, values, outside = list[str](), list[Floats](), list[NDArray[np.bool_]]()
        blocks = tables.read_blocks(data, model.schema, targets=False, ids=with_ids)
        for block, block_values, block_outside in _predict_blocks(model, blocks):
            owners += [person.decode() for person in block.ids or ()]
            values.append(block_values)
            outside.append(block_outside)
        if reader.get_model() is model:
            t = len(model.schema.targets)
            return Predictions(
                owners if with_ids else None,
                np.concatenate([np.empty((0, t) if t > 1 else 0), *values]),
                np.concatenate([np.empty(0, dtype=np.bool_), *outside]),
                extrapolated=model.state.blueprint.outside == "extrapolate",
            )


def predict_to_file(
    reader: Reader, data: Any, out: str | Path | IO[bytes], *, guard_formulas: bool
) -> WrittenPredictions:
    """Predict the rows of a table into a file, block by block."""
    data = tables.open_stream(data)
    while True:
        model, outside = reader.get_model(), 0
        with tables.write_predictions(out, model.schema, data, guard_formulas=guard_formulas) as write:
            for block, values, block_outside in _predict_blocks(model, write.blocks()):
                write(block, values)
                outside += int(block_outside.sum())
            if reader.get_model() is model:
                return WrittenPredictions(
                    write.commit(), outside, extrapolated=model.state.blueprint.outside == "extrapolate"
                )
        if tables.is_read_once(data):
            raise VaultBusy(
                "the vault changed while the table was read, and this stream can be read only once: pass it "
                "again; nothing was written"
            )


def _predict_blocks(model: VaultModel, blocks: Iterator[Block]) -> Iterator[tuple[Block, Floats, NDArray[np.bool_]]]:
    """Yield predictions, (n,) or (n, t) for several targets, and which rows lie outside the bounds, (n,)."""
    ensemble = model.state.ensemble
    for block in blocks:
        y = ensemble.predict(block.X)
        yield block, y[:, 0] if y.shape[1] == 1 else y, ensemble.encoder.inputs.outside_rows(block.X)


def wait_until_settled(writer: Writer, wait: float, *, without_leftovers: bool = False) -> VaultCondition:
    """Wait until every accepted request is finished, by another process, and return the vault's condition.

    With ``without_leftovers`` there are no leftovers either: rows that are being added lie in slots that count as
    empty.
    """
    deadline = time.monotonic() + wait
    while True:
        condition = read_condition(writer.folder, writer.ledger, writer.keys)
        if condition.progress == "done" and not (without_leftovers and condition.has_leftovers):
            return condition
        if time.monotonic() >= deadline:
            raise Unfinished(
                f"{writer.folder.path} has a request or a change of the key to finish, or files to tidy up, and is "
                "opened read-only: open it once with write access (a command without --read-only)"
            )
        time.sleep(_POLL_SECONDS)


@contextmanager
def load_unlocked(writer: Writer, wait: float, *, without_leftovers: bool) -> Iterator[Callable[[], None]]:
    """Load a vault for reading only: no lock, no recovery, no signature, no wipe.

    An answer counts only if no request was accepted (or prepared) meanwhile. Yields a function that raises `VaultBusy`
    if that happened, so that long work can stop early.
    """

    def read_stamps() -> object:
        return writer.ledger.stamp(), without_leftovers and writer.folder.path.stat().st_mtime_ns

    check_identity(writer.folder, writer.ledger, writer.identity)
    stamps = read_stamps()
    condition = wait_until_settled(writer, wait, without_leftovers=without_leftovers)
    manifest, records = condition.manifest, condition.records
    assert manifest is not None  # it is settled

    def check_unchanged() -> None:
        if read_stamps() != stamps or writer.folder.read_current_manifest() != manifest:
            raise VaultBusy(f"{writer.folder.path} changed while it was being read: try again")

    writer.loaded_snapshot, writer.newest = None, manifest.request
    writer.notary.known_keys = known_keys(manifest.keys, records)
    try:
        snapshot = writer.load(manifest)
        writer.check_rows(snapshot)
        check_state_commitment(manifest, records, snapshot.state.ensemble.digest())
        yield check_unchanged
    except (InvalidFile, OSError):
        check_unchanged()
        raise
    check_unchanged()
