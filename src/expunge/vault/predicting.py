"""Predicting: the rows of a whole table, by one model that is known to be fresh when the last of them was answered."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import VaultBusy
from ..exact.arrays import Floats
from . import tables
from .disk.snapshot import Model
from .reader import Reader
from .receipts import Predictions, Written
from .tables import Block


def predicted(reader: Reader, data: Any, *, ids: bool) -> Predictions:
    """Predict the rows of a table into memory; a stream that can be read only once is held there, too."""
    data = tables.kept(data)
    while True:
        model = reader.current()
        wanted = ids and tables.has_ids(data, model.schema)
        owners, values, outside = list[str](), list[Floats](), list[NDArray[np.bool_]]()
        for block, some, beyond in _answers(model, tables.read_blocks(data, model.schema, targets=False, ids=wanted)):
            owners += [one.decode() for one in block.ids or ()]
            values.append(some)
            outside.append(beyond)
        if reader.current() is model:
            t = len(model.schema.targets)
            return Predictions(
                owners if wanted else None,
                np.concatenate([np.empty((0, t) if t > 1 else 0), *values]),
                np.concatenate([np.empty(0, dtype=np.bool_), *outside]),
                extrapolated=model.state.blueprint.outside == "extrapolate",
            )


def written(reader: Reader, data: Any, out: str | Path | IO[bytes], *, guard_formulas: bool) -> Written:
    """Predict the rows of a table into a file, block by block."""
    data = tables.taken(data)
    while True:
        model, outside = reader.current(), 0
        with tables.written_predictions(out, model.schema, data, guard_formulas=guard_formulas) as write:
            for block, values, beyond in _answers(model, write.blocks()):
                write(block, values)
                outside += int(beyond.sum())
            if reader.current() is model:
                return Written(write.commit(), outside, extrapolated=model.state.blueprint.outside == "extrapolate")
        if tables.read_once(data):
            raise VaultBusy(
                "the vault changed while the table was read, and this stream can be read only once: give it "
                "again; nothing was written"
            )


def _answers(model: Model, blocks: Iterator[Block]) -> Iterator[tuple[Block, Floats, NDArray[np.bool_]]]:
    """Yield predictions, (n,) or (n, t) for several targets, and which rows lie outside the bounds, (n,)."""
    ensemble = model.state.ensemble
    for block in blocks:
        y = ensemble.predict(block.X)
        yield block, y[:, 0] if y.shape[1] == 1 else y, ensemble.encoder.inputs.outside_rows(block.X)
