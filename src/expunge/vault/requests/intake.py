"""Intake: rows on their way from a table into the row file, a block at a time.

A block is checked, gets its slots, and is written there; nothing in the state names those slots yet, so an intake that
fails has changed nothing. Rows of people who were erased are never written.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...encoding.placement import draw_slots
from ...errors import ErasedId
from ...exact.arrays import Floats, Slots
from ...learning.blueprint import Blueprint
from ...saving import files
from ..certificates.commitments import Commitments
from ..disk.people import People, hashed
from ..disk.rowfile import located, packed
from ..disk.segments import Hashes, distinct
from ..tables import Block, Schema, checked
from .plan import Site

Progress: TypeAlias = Callable[[str, int, int | None], None]  # what, how many rows more, of how many

_NONE = np.empty((0, 2), dtype=np.uint64)


def silent(what: str, rows: int, of: int | None) -> None:
    """Show no progress."""


def admitted(
    schema: Schema, blueprint: Blueprint, X: Floats, y: Floats, *, clip: bool = False
) -> tuple[Floats, Floats, int]:
    """Rows as they will be kept, and how many of their values were moved to a bound; a row outside is refused.

    Values are moved where a column of the schema says so, or all of them, if the training or the caller does.
    """
    kept = blueprint.admit(schema.clipped(X), y, schema.inputs, schema.targets, clip=clip or blueprint.clip)
    moved = sum(int(np.count_nonzero(a != b)) for a, b in zip(kept, (X, y), strict=True) if a is not b)
    return *kept, moved


@dataclass
class Intake:
    """Rows that are being taken in: where they go, whose they are, and who was left out."""

    site: Site
    schema: Schema
    blueprint: Blueprint
    people: People  # before these rows
    drawn: int  # slots given out so far
    commitments: Commitments | None = None  # to the people, for their receipts
    clip: bool = False  # whether values outside declared bounds are moved to the bound
    erased: set[bytes] = field(default_factory=set)  # hashes of erased ids that were seen
    clipped: int = 0  # values that were moved to a bound
    _leaves: set[bytes] = field(default_factory=set)
    _hashes: list[Hashes] = field(default_factory=lambda: [_NONE])
    _known: list[Hashes] = field(default_factory=lambda: [_NONE])  # of people who had rows before
    _slots: list[Slots] = field(default_factory=lambda: [np.empty(0, dtype=np.int64)])

    def take(self, path: Path, blocks: Iterable[Block]) -> Iterator[tuple[Slots, Floats, Floats]]:
        """Write rows to their slots in a file, synced at the end; yields what was written."""
        with files.opened(path, os.O_WRONLY | os.O_CREAT) as fd:
            for hashes, X, y in checked(blocks, self._admitted):
                self.site.check_process()
                slots = draw_slots(self.blueprint.key, self.drawn, len(X), self.blueprint.code.shards)
                for offset, data in located(slots, packed(slots, X, y, self.site.identity.seal)):
                    files.write_all(fd, data, offset)
                self.drawn += len(X)
                self._hashes.append(hashes)
                self._slots.append(slots)
                yield slots, X, y
                self.site.check_process()  # whoever was told of these rows may have forked
            files.sync(fd)

    def _admitted(self, block: Block) -> tuple[Hashes, Floats, Floats]:
        """The rows of a block as they will be kept, without those of erased people."""
        assert block.ids is not None
        assert block.y is not None
        ids, X, y = block.ids, block.X, block.y
        hashes = hashed(self.site.identity.key, ids)
        entries = self.people.find(hashes)
        self._known.append(hashes[np.unique(entries.live.owner)])
        if len(buried := entries.buried.owner):
            self.erased.update(map(bytes, hashes[buried]))
            keep = np.setdiff1d(np.arange(len(hashes)), buried)
            ids, hashes, X, y = [ids[k] for k in keep.tolist()], hashes[keep], X[keep], y[keep]
        X, y, clipped = admitted(self.schema, self.blueprint, X, y, clip=self.clip)
        self.clipped += clipped
        if self.commitments is not None:
            self._leaves.update(self.commitments.of(set(ids)))
        return hashes, X, y

    def refuse_erased(self) -> None:
        """Refuse a table that holds people who were erased."""
        if self.erased:
            ids = "1 id in this table was" if len(self.erased) == 1 else f"{len(self.erased):,} ids in this table were"
            raise ErasedId(
                f"{ids} erased before; nothing was changed. Leave their rows out (--skip-erased, skip_erased=True), "
                "or readmit those who consented again"
            )

    def entries(self) -> tuple[Hashes, Slots]:
        """Whose rows were taken in, and where they are."""
        return np.concatenate(self._hashes), np.concatenate(self._slots)

    def leaves(self) -> list[bytes]:
        """The commitments to the people, sorted: their order tells nothing."""
        return sorted(self._leaves)

    def known(self) -> int:
        """How many of the people had rows before."""
        return distinct(np.concatenate(self._known))
