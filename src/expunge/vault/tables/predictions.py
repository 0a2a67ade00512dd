"""Predictions of a whole table into a file, which appears only once all of them are known to be fresh."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from ...errors import InvalidSetting
from ...exact.arrays import Floats
from ...saving.drafts import drafted
from .blocks import Block
from .cells.arrow import Arrow
from .messages import shown
from .reading import has_ids, read_blocks
from .schema import Schema
from .sources import overwrites

Draft: TypeAlias = tuple[IO[bytes], Callable[[], object]]  # a file to write to, and what puts it in its place

_FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"  # how one begins; also in full width
_WRITERS = {".csv": pyarrow.csv.CSVWriter, ".parquet": pyarrow.parquet.ParquetWriter}


class Writing:
    """A file of predictions that is being written, in a temporary place."""

    def __init__(self, draft: Draft, form: str, schema: Schema, data: Any, guard: bool) -> None:
        file, self._put = draft
        self._file, self._schema, self._data, self._rows = file, schema, data, 0
        self._with_ids, self._guard = has_ids(data, schema), guard and form == ".csv"
        ids = [(schema.id, pa.string())] if self._with_ids else []
        self._fields = pa.schema([*ids, *((f"predicted_{target}", pa.float64()) for target in schema.targets)])
        self._writer = _WRITERS[form](file, self._fields)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows to predict."""
        return read_blocks(self._data, self._schema, targets=False, ids=self._with_ids)

    def __call__(self, block: Block, predicted: Floats) -> None:
        """Write the predictions of a block, (n,) or (n, t)."""
        columns: list[Any] = list(map(pa.array, predicted.reshape(len(predicted), len(self._schema.targets)).T))
        if block.ids is not None:
            ids = pa.array(block.ids, pa.binary()).cast(pa.string())
            columns.insert(0, _guarded(ids) if self._guard else ids)
        self._writer.write_batch(pa.record_batch(columns, schema=self._fields))
        self._rows += len(predicted)

    def close(self) -> None:
        """Write what is left to write of the format."""
        self._writer.close()

    def commit(self) -> int:
        """Put the file where it was asked for; return how many rows it has."""
        self.close()
        self._file.flush()
        self._put()
        return self._rows


@contextmanager
def written_predictions(
    out: str | Path | IO[bytes], schema: Schema, data: Any, *, guard_formulas: bool = False
) -> Iterator[Writing]:
    """Write predictions; without a commit there is no file."""
    form, draft = _draft(out, data)
    with draft as made:
        writing = Writing(made, form, schema, data, guard_formulas)
        try:
            yield writing
        finally:
            with suppress(pa.ArrowException, OSError, ValueError):  # the file may be what failed
                writing.close()


def _guarded(ids: Arrow) -> Arrow:
    """Put a quote before ids that a spreadsheet would take for formulas."""
    quoted = pc.binary_join_element_wise(pa.scalar("'"), ids, pa.scalar(""))
    return pc.if_else(pc.match_substring_regex(ids, _FORMULA), quoted, ids)


def _draft(out: str | Path | IO[bytes], data: Any) -> tuple[str, AbstractContextManager[Draft]]:
    """Return the format to write, and where."""
    if not isinstance(out, str | Path):
        return ".csv", _copied_to(out)
    path = Path(out)
    if path.suffix not in _WRITERS:
        raise InvalidSetting(f"predictions are written to .csv or .parquet, got {path.name!r}")
    if not path.parent.is_dir():
        raise InvalidSetting(f"there is no folder {shown(path.parent)} for the predictions")
    if overwrites(path, data):
        raise InvalidSetting(f"predictions would overwrite the table that they are made from, {shown(path)}")
    return path.suffix, _replaced(path)


@contextmanager
def _replaced(path: Path) -> Iterator[Draft]:
    """Yield a draft of ``path`` and what puts it there in one step; if that is not called, it is wiped."""
    with drafted(path, shared=True) as new, os.fdopen(os.dup(new.fd), "wb") as file:
        yield file, new.commit


@contextmanager
def _copied_to(stream: IO[bytes]) -> Iterator[Draft]:
    """Yield a temporary file and what copies it to a stream."""
    with tempfile.TemporaryFile() as file:
        yield file, partial(_copied, file, stream)


def _copied(file: IO[bytes], stream: IO[bytes]) -> None:
    file.seek(0)
    shutil.copyfileobj(file, stream)
