"""Predictions: written for a whole table to a file that appears only once all of them are known to be fresh."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from ..errors import InvalidSetting
from ..exact.arrays import Floats
from ..saving.drafts import open_draft
from .blocks import Block
from .cells import Arrow
from .messages import printable_text
from .reader import has_ids, read_blocks
from .schema import Schema
from .sources import overwrites

PredictionDraft: TypeAlias = tuple[IO[bytes], Callable[[], object]]  # a file to write to, and a call that publishes it

_FORMULA_START = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"  # also in full width
_WRITERS = {".csv": pyarrow.csv.CSVWriter, ".parquet": pyarrow.parquet.ParquetWriter}


class PredictionWriter:
    """A file of predictions that is being written to a temporary place."""

    def __init__(self, draft: PredictionDraft, suffix: str, schema: Schema, source: Any, guard: bool) -> None:
        file, self._publish = draft
        self._file, self._schema, self._source, self._rows = file, schema, source, 0
        self._with_ids, self._guard = has_ids(source, schema), guard and suffix == ".csv"
        ids = [(schema.id, pa.string())] if self._with_ids else []
        self._fields = pa.schema([*ids, *((f"predicted_{target}", pa.float64()) for target in schema.targets)])
        self._writer = _WRITERS[suffix](file, self._fields)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows to predict."""
        return read_blocks(self._source, self._schema, targets=False, ids=self._with_ids)

    def __call__(self, block: Block, predicted: Floats) -> None:
        """Write the predictions of a block, (n,) or (n, t)."""
        columns: list[Any] = list(map(pa.array, predicted.reshape(len(predicted), len(self._schema.targets)).T))
        if block.ids is not None:
            ids = pa.array(block.ids, pa.binary()).cast(pa.string())
            columns.insert(0, _escape_formulas(ids) if self._guard else ids)
        self._writer.write_batch(pa.record_batch(columns, schema=self._fields))
        self._rows += len(predicted)

    def close(self) -> None:
        """Write the end of the format."""
        self._writer.close()

    def commit(self) -> int:
        """Publish the file; return the number of its rows."""
        self.close()
        self._file.flush()
        self._publish()
        return self._rows


@contextmanager
def write_predictions(
    out: str | Path | IO[bytes], schema: Schema, source: Any, *, guard_formulas: bool = False
) -> Iterator[PredictionWriter]:
    """Yield a writer of predictions; without a commit no file appears."""
    suffix, opening = _open_draft(out, source)
    with opening as draft:
        writer = PredictionWriter(draft, suffix, schema, source, guard_formulas)
        try:
            yield writer
        finally:
            with suppress(pa.ArrowException, OSError, ValueError):  # the file itself may have failed
                writer.close()


def _escape_formulas(ids: Arrow) -> Arrow:
    """Put a quote before ids that a spreadsheet would evaluate as formulas."""
    quoted = pc.binary_join_element_wise(pa.scalar("'"), ids, pa.scalar(""))
    return pc.if_else(pc.match_substring_regex(ids, _FORMULA_START), quoted, ids)


def _open_draft(out: str | Path | IO[bytes], source: Any) -> tuple[str, AbstractContextManager[PredictionDraft]]:
    """Return the format to write, and the draft to write to."""
    if not isinstance(out, str | Path):
        return ".csv", _buffer_stream(out)
    path = Path(out)
    if path.suffix not in _WRITERS:
        raise InvalidSetting(f"predictions can be written to .csv or .parquet, got {path.name!r}")
    if not path.parent.is_dir():
        raise InvalidSetting(f"there is no folder {printable_text(path.parent)} for the predictions")
    if overwrites(path, source):
        raise InvalidSetting(f"the predictions would overwrite their own table, {printable_text(path)}")
    return path.suffix, _draft_file(path)


@contextmanager
def _draft_file(path: Path) -> Iterator[PredictionDraft]:
    """Yield a draft of ``path`` and the call that publishes it in one step; without the call it is wiped."""
    with open_draft(path, shared=True) as new, os.fdopen(os.dup(new.fd), "wb") as file:
        yield file, new.commit


@contextmanager
def _buffer_stream(stream: IO[bytes]) -> Iterator[PredictionDraft]:
    """Yield a temporary file and a call that copies it to a stream."""
    with tempfile.TemporaryFile() as file:

        def copy() -> None:
            file.seek(0)
            shutil.copyfileobj(file, stream)

        yield file, copy
