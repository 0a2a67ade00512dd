"""Intake: rows on their way from a table into the vault's file, a block at a time.

A block is checked, gets its slots, and is written there; nothing in the state names those slots yet, so an intake that
fails has changed nothing. Rows of people who were erased are never written.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...encoding.placement import draw_slots
from ...errors import ErasedId
from ...exact.arrays import Floats, Slots
from ...learning.blueprint import Blueprint
from ..disk import files
from ..disk.folder import Identity
from ..disk.people import Hashes, People, hashed
from ..disk.rowfile import packed, pieces
from .reading import Block
from .schema import Schema

Progress: TypeAlias = Callable[[str, int, int | None], None]  # what, how many rows more, of how many


def silent(what: str, rows: int, of: int | None) -> None:
    """Show no progress."""


@dataclass
class Intake:
    """What has been taken in so far."""

    identity: Identity
    schema: Schema
    blueprint: Blueprint
    drawn: int
    erased: set[bytes] = field(default_factory=set)  # hashes of erased ids that were seen
    _hashes: list[Hashes] = field(default_factory=list)
    _slots: list[Slots] = field(default_factory=list)

    def take(self, path: Path, blocks: Iterable[Block], people: People) -> Iterator[tuple[Slots, Floats, Floats]]:
        """Write rows to their slots in a file, synced at the end; yields what was written."""
        with _open_for_writing(path) as fd:
            for block in blocks:
                hashes, X, y = self._without_erased(block, people)
                X, y = self.blueprint.admit(X, y, self.schema.inputs, self.schema.targets)
                slots = draw_slots(self.blueprint.key, self.drawn, len(X), self.blueprint.code.shards)
                for offset, data in pieces(slots, packed(slots, X, y, self.identity.seal)):
                    files.write_all(fd, data, offset)
                self.drawn += len(X)
                self._hashes.append(hashes)
                self._slots.append(slots)
                yield slots, X, y
            files.sync(fd)

    def _without_erased(self, block: Block, people: People) -> tuple[Hashes, Floats, Floats]:
        assert block.ids is not None
        assert block.y is not None
        hashes = hashed(self.identity.key, block.ids)
        buried = people.find(hashes).buried.owner
        if not len(buried):
            return hashes, block.X, block.y
        self.erased.update(map(bytes, hashes[buried]))
        keep = np.setdiff1d(np.arange(len(hashes)), buried)
        return hashes[keep], block.X[keep], block.y[keep]

    def refuse_erased(self) -> None:
        """Refuse a table that holds people who were erased."""
        if self.erased:
            raise ErasedId(
                f"{len(self.erased)} ids in this table were erased before; nothing was changed. Leave their rows out "
                "(--skip-erased, skip_erased=True), or readmit those who consented again"
            )

    def entries(self) -> tuple[Hashes, Slots]:
        """Whose rows were taken in, and where they are."""
        none = np.empty((0, 2), dtype=np.uint64), np.empty(0, dtype=np.int64)
        return np.concatenate([none[0], *self._hashes]), np.concatenate([none[1], *self._slots])


@contextmanager
def _open_for_writing(path: Path) -> Iterator[int]:
    with files.opened(path, os.O_WRONLY | os.O_CREAT) as fd:
        yield fd
