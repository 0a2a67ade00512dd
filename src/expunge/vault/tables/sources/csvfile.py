"""CSV files: comma or tab, plain or gzip. Cells are read in the types that are asked for, not in guessed ones."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv

from ....errors import ExpungeError, InvalidFile, InvalidInput
from ..cells.arrow import Arrow
from ..kinds import Boolean, Number
from ..messages import WrongCell, separator_hint
from .disks import Place
from .partitions import Partition
from .table import BUFFER, File, unquoted

_EXPECTED = {"double": Number.in_words, "bool": Boolean.in_words, "string": "text in UTF-8"}
_HEADER = 1 << 16  # bytes that are looked at for a header


class Csv(File):
    """A CSV file; the ending .tsv says that tabs separate its cells."""

    names_are_sure = False

    def __init__(self, place: Place, partition: Partition | None = None) -> None:
        super().__init__(place, partition)
        name = place.path.lower()
        self._gzip = "gzip" if name.endswith(".gz") else None
        self._separator = "\t" if name.removesuffix(".gz").endswith(".tsv") else ","

    def _types_inside(self) -> Arrow:
        with self._unquoted(()), self._reader() as reader:
            return pa.schema(zip(reader.schema.names, reader.schema.types, strict=True))

    def type_read(self, name: str, columns: Mapping[str, str]) -> Arrow:
        return pa.type_for_alias(columns[name])

    def _batches_inside(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        types = {name: pa.type_for_alias(cells) for name, cells in columns.items()}
        with self._unquoted(self.types.names), self._reader(types) as reader:
            yield from reader

    def row(self, k: int) -> str:
        return f"row {k} of {self.name} (the header is not counted)"

    def _reader(self, columns: Mapping[str, Arrow] | None = None) -> Any:
        return pyarrow.csv.open_csv(
            self._stream(),
            # One thread: only then does an error know the number of its row. Two were not faster.
            pyarrow.csv.ReadOptions(use_threads=False, block_size=BUFFER),
            pyarrow.csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types=columns, include_columns=list(columns or ())),
        )

    def _stream(self) -> Any:
        return pa.input_stream(self.place.opened(), compression=self._gzip)

    def _unquoted(self, names: Sequence[str]) -> AbstractContextManager[None]:
        return unquoted(partial(self._told, names), self.name)

    def _told(self, names: Sequence[str], message: str) -> ExpungeError:
        """Say what pyarrow says, without the cells that it quotes. It counts the header as row 1."""
        if found := re.match(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+)", message):
            k = int(found[2]) - 1
            return WrongCell(names[int(found[1])], _EXPECTED.get(found[3], found[3]), k - 1, self.row(k))
        if found := re.match(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)", message):
            cells = f"has {found[3]} cells, but the header has {found[2]}"
            return InvalidInput(f"{self.row(int(found[1]) - 1)} {cells}{self._hint()}")
        if re.match("(CSV parse error: )?Empty CSV file", message):
            return InvalidInput(f"{self.name} is empty")
        return InvalidFile(f"{self.name} is damaged, or not CSV in UTF-8{self._or_away}")

    def _hint(self) -> str:
        """Return a question about the separator, if the header looks as if it had another."""
        with self._stream() as stream:
            lines = stream.read(_HEADER).decode(errors="replace").splitlines()
        return separator_hint(next(filter(None, lines), ""), self._separator)
