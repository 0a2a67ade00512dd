"""Clones: another vault with the same rows, which both ledgers record.

A clone has a name and a signing key of its own, so its certificates cannot be mistaken for those of its source. The
name is part of every checksum of rows and owners, so these files are written anew. The key of the ids' hashes stays the
same, because the ids themselves are not stored. Erased ids stay erased; their tombstones name the clone's first
request, because the requests of the source are not in its ledger.
"""

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...errors import InvalidFile
from ...exact.arrays import cut
from ...saving import files
from ..disk.manifest import PeopleSegment, RowSegment
from ..disk.people import NOBODY, encode_tombstone, segment_bytes
from ..disk.rowfile import RowFile, RowLayout, read_bits, row_checksums
from ..disk.snapshot import Snapshot
from .plan import ModelDefinition, RequestContext, RequestPlan
from .request import Request

if TYPE_CHECKING:
    from .restore import MissedChanges


@dataclass(frozen=True)
class Clone(Request):
    """The record of a clone in the ledger of its source. Nothing else changes."""

    clone: str  # the name of the new vault, a UUID

    kind: ClassVar[str] = "clone"

    @classmethod
    def plan(cls, context: RequestContext, clone: str) -> RequestPlan:
        """Plan to record that a clone of the vault, as it is, has this name."""
        manifest = context.snapshot.manifest
        request = cls(manifest.rows, manifest.owners, clone)
        return RequestPlan(request, context.snapshot.state, manifest.owners, manifest.erased)

    def replay(self, missed: "MissedChanges", number: int, *, done: bool) -> None:
        """Do nothing: the clone is another vault."""


@dataclass(frozen=True)
class CloneOrigin(Request):
    """The first request of a clone: rows and model as its source had them."""

    drawn: int  # row numbers used so far, including holes
    planned: str  # the score of the plan, as text
    source: str  # the vault that was cloned, a UUID
    source_request: int  # its newest request

    kind: ClassVar[str] = "cloned"

    @classmethod
    def plan(cls, context: RequestContext, source: Snapshot, planned: str) -> RequestPlan:
        """Plan a clone: write the rows and owners of another vault under this one's name; learners stay the same."""
        manifest, r = source.manifest, source.state.blueprint.code.learners
        definition = ModelDefinition.write(context, source.schema, source.state.blueprint)
        state = source.with_moments(source.state, range(r))
        state = replace(state, ensemble=replace(state.ensemble, store=_copy_rows(context, source)))
        request = cls(manifest.rows, manifest.owners, manifest.drawn, planned, manifest.vault, manifest.request)
        return RequestPlan(
            request,
            state,
            manifest.owners,
            manifest.erased,
            r,
            people=_copy_people(context, source),
            definition=definition,
            fresh=True,
            planning=manifest.planning,
            clone_of=f"{manifest.vault}/{manifest.request}",
        )


def _copy_rows(context: RequestContext, source: Snapshot) -> RowFile:
    rows, seal, first, segments = source.rows, context.identity.seal, 0, list[RowSegment]()
    for k, segment in enumerate(rows.layout.segments):
        segments.append(RowSegment(f"rows.{context.number}.{k}", segment.count))
        with files.open_file(context.folder.dir / segments[k].name, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            for piece in cut(segment.count, rows.width):
                numbers = np.arange(first + piece.start, first + piece.stop)
                entries, live = rows.read_entries(numbers).copy(), rows.live[rows.layout.dealt.slots(numbers)]
                values, sums = entries[live, :-1], entries[live, -1]
                if entries[~live].any() or (row_checksums(numbers[live], values, rows.layout.seal) != sums).any():
                    raise InvalidFile(
                        f"{rows.locate_rows(numbers)} is damaged: rows fail their checksum; nothing was cloned"
                    )
                entries[live, -1] = row_checksums(numbers[live], values, seal)
                files.write_all(fd, entries.reshape(-1).view(np.uint8).data, piece.start * rows.layout.entry_bytes)
                context.check_process()
            files.sync(fd)
        first += segment.count
    bits, name = read_bits(rows.bits_file, rows.layout.slots), f"live.{context.number}"
    files.create(context.folder.dir / name, bits.packed.data)
    sizes = rows.layout.inputs, rows.layout.targets
    layout = RowLayout(context.folder.dir, tuple(segments), name, rows.layout.dealt, *sizes, seal)
    return RowFile(layout, bits)


def _copy_people(context: RequestContext, source: Snapshot) -> tuple[PeopleSegment, ...]:
    segments = list[PeopleSegment]()
    for k, segment in enumerate(source.people.segments):
        slots = segment.read_slots()
        slots = np.where(slots < NOBODY, encode_tombstone(context.number), slots)
        segments.append(replace(segment.manifest_entry, name=f"people.{context.number}.{k}"))
        content = segment_bytes(segment.read_hashes(), slots, context.identity.seal)
        files.create(context.folder.dir / segments[k].name, *content)
    return tuple(segments)
