"""Parquet files, whole or some of their row groups. What a file holds is read from its footer."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from ....errors import InvalidFile
from ..cells.arrow import Arrow
from .binary import Binary
from .disks import Place
from .partitions import Partition
from .table import AT_ONCE, BUFFER, validated

_TAIL = 1 << 16  # bytes that are read first: most footers have room there
_MARK = b"PAR1"


@dataclass(frozen=True)
class Groups:
    """Row groups of a file with this footer."""

    first: int
    end: int
    footer: str  # SHA-256


@dataclass(frozen=True)
class Footer:
    """What the end of a file says."""

    types: Arrow
    rows: tuple[int, ...]  # of each row group
    digest: str  # SHA-256


class Parquet(Binary):
    """A Parquet file, or some of its row groups."""

    def __init__(self, place: Place, partition: Partition | None = None, groups: Groups | None = None) -> None:
        super().__init__(place, partition)
        self._groups = groups

    @cached_property
    def footer(self) -> Footer:
        """What its end says."""
        with self._file() as (file, digest):
            metadata = file.metadata
            rows = tuple(metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))
            return Footer(file.schema_arrow, rows, digest)

    def row(self, k: int) -> str:
        before = 0 if self._groups is None else sum(self.footer.rows[: self._groups.first])
        return super().row(before + k)

    def _types_inside(self) -> Arrow:
        return self.footer.types

    def _batches_inside(self, columns: Mapping[str, str]) -> Iterator[Arrow]:
        groups = None if self._groups is None else range(self._groups.first, self._groups.end)
        with self._file() as (file, _):
            for batch in file.iter_batches(AT_ONCE, row_groups=groups, columns=list(columns)):
                yield validated(batch, columns)

    @contextmanager
    def _file(self) -> Iterator[tuple[Any, str]]:
        """Open the file, with the digest of the footer that it is read by."""
        with self._unquoted(), self.place.opened() as source:
            footer = _footer(source)
            digest = hashlib.sha256(footer).hexdigest()
            if self._groups is not None and digest != self._groups.footer:
                raise InvalidFile(f"{self.name} was changed while it was read")
            end = pa.BufferReader(_MARK + footer + len(footer).to_bytes(4, "little") + _MARK)
            # Without a buffer a whole row group is read at once, and that may be the whole file.
            options = {"buffer_size": BUFFER, "pre_buffer": False}
            yield pyarrow.parquet.ParquetFile(source, metadata=pyarrow.parquet.read_metadata(end), **options), digest


def _footer(source: Any) -> bytes:
    """Return the metadata at the end of a file: before its length, in four bytes, and the mark."""
    size = source.size()
    source.seek(max(0, size - _TAIL))
    tail: bytes = source.read()
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != _MARK or length + 12 > size:
        raise pa.ArrowInvalid("no footer")
    if length + 8 > len(tail):
        source.seek(size - 8 - length)
        tail = source.read()
    return tail[-8 - length : -8]
