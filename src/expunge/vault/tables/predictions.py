"""Predictions of a whole table into a file, which appears only once all of them are known to be fresh."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ...errors import InvalidSetting
from ...exact.arrays import Floats
from . import reading as tables
from .reading import Block
from .schema import Schema

_WRITERS = {".csv": pa.csv.CSVWriter, ".parquet": pa.parquet.ParquetWriter}


class Writing:
    """A file of predictions that is being written, in a temporary place."""

    def __init__(self, out: Path | IO[bytes], schema: Schema, data: Any, file: IO[bytes]) -> None:
        self._out, self._schema, self._data, self._file = out, schema, data, file
        self._with_ids = not isinstance(data, np.ndarray) and schema.id in tables.types(data).names
        names = [f"predicted_{target}" for target in schema.targets]
        fields = [(schema.id, pa.string())] if self._with_ids else []
        self._fields = pa.schema([*fields, *((name, pa.float64()) for name in names)])
        self._writer = _WRITERS[".csv" if not isinstance(out, Path) else out.suffix](file, self._fields)
        self._rows = 0

    def blocks(self) -> Iterator[Block]:
        """The rows to predict."""
        return tables.blocks(self._data, self._schema, targets=False, ids=self._with_ids)

    def __call__(self, block: Block, predicted: Floats) -> None:
        """Write the predictions of a block."""
        columns: list[Any] = [pa.array(column) for column in np.reshape(predicted, (len(predicted), -1)).T]
        if block.ids is not None:
            columns.insert(0, pa.array(block.ids, pa.binary()).cast(pa.string()))
        self._writer.write_batch(pa.record_batch(columns, schema=self._fields))
        self._rows += len(predicted)

    def commit(self) -> int:
        """Put the file where it was asked for; how many rows it has."""
        self._writer.close()
        self._file.flush()
        if isinstance(self._out, Path):
            Path(self._file.name).replace(self._out)
        else:
            self._file.seek(0)
            shutil.copyfileobj(self._file, self._out)
        return self._rows


@contextmanager
def written(out: str | Path | IO[bytes], schema: Schema, data: Any) -> Iterator[Writing]:
    """Write predictions; without a commit there is no file."""
    if not isinstance(out, str | Path):
        with tempfile.TemporaryFile() as file:
            yield Writing(out, schema, data, file)
        return
    target = Path(out)
    if target.suffix not in _WRITERS:
        raise InvalidSetting(f"predictions are written to .csv or .parquet, got {target.name!r}")
    if isinstance(data, str | Path) and target.exists() and target.samefile(data):
        raise InvalidSetting(f"predictions would overwrite the table that they are made from, {target}")
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    with beside.open("xb") as file:
        try:
            yield Writing(target, schema, data, file)
        finally:
            beside.unlink(missing_ok=True)
