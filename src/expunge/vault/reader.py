"""The reader: predictions that are never stale, without a lock.

An answer counts only if the ledger, looked at once more after it was computed, has accepted no request that the
answer's model has not carried out. While one is pending the reader helps to finish it, or waits for who may write, or
refuses.
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
from .certificates.keys import known_keys
from .certificates.payload import check_state_commitment
from .disk.folder import Folder
from .disk.manifest import Manifest
from .disk.snapshot import VaultModel, compute_digest, load_model
from .ledger.ledger import Ledger
from .results import Predictions, WrittenPredictions
from .status import VaultCondition, check_identity, check_manifest_vault, read_condition, read_stamp
from .writer import Writer

_MAX_TRIES = 1000
_POLL_SECONDS = 0.01  # seconds between two looks at what another has to finish


class Reader:
    """The newest model of a vault, as one process sees it."""

    def __init__(self, folder: Folder, ledger: Ledger, vault: str, settle: Callable[[], None], wait: float) -> None:
        self._folder, self._ledger, self._vault, self._settle, self._wait = folder, ledger, vault, settle, wait
        self._cached: tuple[object, VaultModel] | None = None

    @property
    def cached_manifest(self) -> Manifest | None:
        """The manifest of the model that was read last; no look at the disk."""
        return None if self._cached is None else self._cached[1].manifest

    def normalise_ids(self, ids: Any) -> list[bytes]:
        """Return ids in their one form, by the schema that was read last if it takes them.

        A training never changes which ids are the same person, so nothing has to be read for that. It may change which
        forms are allowed: ids that are refused are looked at again with the newest schema.
        """
        if self._cached is not None:
            with suppress(InvalidInput):
                return self._cached[1].schema.normalise_ids(ids)
        return self.get_model().schema.normalise_ids(ids)

    def get_model(self) -> VaultModel:
        """The model that has carried out all that is accepted; the same object as long as nothing newer is."""
        deadline = time.monotonic() + self._wait
        for _ in range(_MAX_TRIES):
            stamp = read_stamp(self._folder, self._ledger)
            seen = self._cached  # read once: another thread may replace it with an older model
            if seen is not None and seen[0] == stamp:
                return seen[1]
            if (model := self._try_load()) is not None:
                self._cached = stamp, model
                return model
            try:
                self._settle()
            except PermissionError:
                if time.monotonic() >= deadline:
                    raise Unfinished(
                        f"{self._folder.path} has a request that is accepted and not carried out, and this process may "
                        "not write there, or was asked to read only: let one that may open the vault"
                    ) from None
                time.sleep(_POLL_SECONDS)
        raise VaultBusy(f"{self._folder.path} changes faster than it can be read; try again")

    def _try_load(self) -> VaultModel | None:
        """Read the newest model, or None if there is something to be finished first."""
        condition = read_condition(self._folder, self._ledger)
        if condition is None:
            return None
        manifest = condition.manifest
        check_manifest_vault(self._folder, manifest, self._vault)
        if condition.pending:
            return None
        known = None if self._cached is None else self._cached[1]
        if known is not None and known.manifest == manifest:
            return known
        try:
            model = load_model(self._folder, manifest, known)
            if condition.finished:  # else its bits may be yet to be overwritten
                check_state_commitment(manifest, condition.records, compute_digest(self._folder, model))
            return model
        except InvalidFile:
            if self._folder.read_current_manifest() == manifest:
                raise
            return self._try_load()  # a writer went on and wiped what was being read


# MERGED predicting: Predicting: the rows of a whole table, by one model that is known to be fresh when the last of them was answered.


def predict_table(reader: Reader, data: Any, *, ids: bool) -> Predictions:
    """Predict the rows of a table into memory; a stream that can be read only once is held there, too."""
    data = tables.load_stream(data)
    while True:
        model = reader.get_model()
        wanted = ids and tables.has_ids(data, model.schema)
        owners, values, outside = list[str](), list[Floats](), list[NDArray[np.bool_]]()
        for block, some, beyond in _predict_blocks(
            model, tables.read_blocks(data, model.schema, targets=False, ids=wanted)
        ):
            owners += [one.decode() for one in block.ids or ()]
            values.append(some)
            outside.append(beyond)
        if reader.get_model() is model:
            t = len(model.schema.targets)
            return Predictions(
                owners if wanted else None,
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
            for block, values, beyond in _predict_blocks(model, write.blocks()):
                write(block, values)
                outside += int(beyond.sum())
            if reader.get_model() is model:
                return WrittenPredictions(
                    write.commit(), outside, extrapolated=model.state.blueprint.outside == "extrapolate"
                )
        if tables.is_read_once(data):
            raise VaultBusy(
                "the vault changed while the table was read, and this stream can be read only once: give it "
                "again; nothing was written"
            )


def _predict_blocks(model: VaultModel, blocks: Iterator[Block]) -> Iterator[tuple[Block, Floats, NDArray[np.bool_]]]:
    """Yield predictions, (n,) or (n, t) for several targets, and which rows lie outside the bounds, (n,)."""
    ensemble = model.state.ensemble
    for block in blocks:
        y = ensemble.predict(block.X)
        yield block, y[:, 0] if y.shape[1] == 1 else y, ensemble.encoder.inputs.outside_rows(block.X)


# MERGED unlocked: Unlocked: a vault as it is, for who wants to read and change nothing: no lock, no recovery, no signature, no wipe.


_SETTLE_POLL_SECONDS = 0.01  # seconds between two looks at what another has to finish


def wait_until_settled(
    folder: Folder, ledger: Ledger, wait: float, *, without_leftovers: bool = False
) -> VaultCondition:
    """The condition of a vault in which every request is carried out; if one is not, wait for who is at it.

    With ``tidy`` there are no leftovers either: rows that are being added lie in slots that count as empty.
    """
    deadline = time.monotonic() + wait
    while True:
        condition = read_condition(folder, ledger)
        if (
            condition is not None
            and condition.settled
            and not (without_leftovers and folder.find_leftovers(condition.manifest))
        ):
            return condition
        if time.monotonic() >= deadline:
            raise Unfinished(
                f"{folder.path} has something to be finished or tidied up, and is opened read only: "
                "open it once without that (a command without --read-only)"
            )
        time.sleep(_SETTLE_POLL_SECONDS)


@contextmanager
def load_unlocked(writer: Writer, wait: float, *, without_leftovers: bool) -> Iterator[Callable[[], None]]:
    """Load a vault without the lock. An answer counts only if no request was accepted (or prepared) meanwhile.

    Yields what raises `VaultBusy` if that happened, so that nobody goes on for long in vain.
    """

    def look() -> object:
        return writer.ledger.stamp(), without_leftovers and writer.folder.path.stat().st_mtime_ns

    check_identity(writer.folder, writer.ledger, writer.identity)
    stamp = look()
    condition = wait_until_settled(writer.folder, writer.ledger, wait, without_leftovers=without_leftovers)
    manifest, records = condition.manifest, condition.records

    def check_unchanged() -> None:
        if look() != stamp or writer.folder.read_current_manifest() != manifest:
            raise VaultBusy(f"{writer.folder.path} changed while it was being read: try again")

    if without_leftovers and writer.notary.has_leftover_draft:
        raise Unfinished(
            f"a change of the key of {writer.folder.path} was stopped half way, and it is opened read only: open it "
            "once without that (a command without --read-only)"
        )
    writer.loaded_snapshot, writer.newest = None, manifest.request
    writer.notary.known_keys = known_keys(manifest.keys, records)
    try:
        vault = writer.load(manifest)
        writer.check_rows(vault)
        check_state_commitment(manifest, records, vault.state.ensemble.digest())
        yield check_unchanged
    except (InvalidFile, OSError):
        check_unchanged()
        raise
    check_unchanged()
