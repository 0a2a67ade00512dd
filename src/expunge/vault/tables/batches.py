"""Batches: a record batch as inputs and targets, all of them finite."""

from collections.abc import Mapping

import numpy as np

from ...errors import CountedInput
from ...exact.arrays import Floats
from .cells.arrow import Arrow
from .cells.by_kind import cells_as_floats
from .kinds import Kind
from .schema import Schema


def encode(schema: Schema, batch: Arrow, *, targets: bool) -> tuple[Floats, Floats | None]:
    """Return the inputs (n, d) and the targets (n, t) of a record batch, gaps filled."""
    schema.check(batch.schema.names, targets=targets)
    kinds = schema.input_kinds | (schema.target_kinds if targets else {})
    values = {name: cells_as_floats(name, kind, batch.column(name)) for name, kind in kinds.items()}
    _fill(kinds, values, len(batch))
    X = _side_by_side(schema.input_kinds, values, len(batch), len(schema.inputs))
    if not targets:
        return X, None
    return X, _side_by_side(schema.target_kinds, values, len(batch), len(schema.targets))


def _fill(kinds: Mapping[str, Kind], values: Mapping[str, Floats], rows: int) -> None:
    """Fill gaps in place, or refuse those that have no fill, and infinite values: all columns in one message."""
    odd = {name: column for name, column in values.items() if not np.isfinite(column).all()}
    fills = {name: kinds[name].filler() for name in odd}
    gaps = {name: np.isnan(column) for name, column in odd.items()}
    if counts := {_place(name): int(gaps[name].sum()) for name in odd if fills[name] is None and gaps[name].any()}:
        raise CountedInput("gaps", counts, rows, "leave those rows out or, for an input, declare a fill")
    if counts := {_place(name): int(np.isinf(column).sum()) for name, column in odd.items() if np.isinf(column).any()}:
        raise CountedInput("infinite values", counts, rows, "leave those rows out")
    for name, column in odd.items():
        column[gaps[name]] = fills[name]


def _place(name: str) -> str:
    return f"column {name!r}"


def _side_by_side(kinds: Mapping[str, Kind], values: Mapping[str, Floats], rows: int, width: int) -> Floats:
    table, j = np.empty((rows, width)), 0
    for name, kind in kinds.items():
        columns = kind.spread(values[name])  # (n, k)
        table[:, j : j + columns.shape[1]] = columns
        j += columns.shape[1]
    return table
