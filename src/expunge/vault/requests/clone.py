"""Clones: another vault with the same rows, which both ledgers record.

A clone has a name and a signing key of its own, so nobody can take its certificates for those of its source. The name
is part of every checksum of rows and owners, so these files are written anew. The key of the ids' hashes stays the
same: ids themselves are kept nowhere. Erased ids stay erased; their tombstones name the clone's first request, because
the requests of the source are not in its ledger.
"""

import os
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...errors import InvalidFile
from ...exact.arrays import cut
from ...saving import files
from ..disk.manifest import PeopleSegment, RowSegment
from ..disk.people import NOBODY, encode_tombstone
from ..disk.rowfile import RowFile, RowLayout, read_bits, row_checksums
from ..disk.segments import segment_bytes
from ..disk.snapshot import Snapshot
from .plan import ModelDefinition, RequestContext, RequestPlan
from .request import MissedChanges, Request


@dataclass(frozen=True)
class Clone(Request):
    """In the ledger of the source: a clone was made of these rows. Nothing else changes."""

    clone: str  # the name of the new vault, a UUID

    kind: ClassVar[str] = "clone"

    @classmethod
    def plan(cls, context: RequestContext, clone: str) -> RequestPlan:
        """Record that a clone of the vault, as it is, has this name."""
        now = context.snapshot.manifest
        return RequestPlan(cls(now.rows, now.owners, clone), context.snapshot.state, now.owners, now.erased)

    def replay(self, missed: MissedChanges, number: int, *, done: bool) -> None:
        """Nothing is lost: the clone is another vault."""


@dataclass(frozen=True)
class CloneOrigin(Request):
    """In the ledger of the clone, the first request: rows and model as another vault had them."""

    drawn: int  # rows that came so far, holes among them
    planned: str  # what a plan promised of the model, in words
    source: str  # the vault that it is a clone of, a UUID
    source_request: int  # and the newest request that this had carried out

    kind: ClassVar[str] = "cloned"

    @classmethod
    def plan(cls, context: RequestContext, source: Snapshot, planned: str) -> RequestPlan:
        """Write the rows and owners of another vault under the name of this one; its learners are the same."""
        manifest, r = source.manifest, source.blueprint.code.learners
        charter = ModelDefinition.write(context, source.schema, source.blueprint)
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
            definition=charter,
            fresh=True,
            clone_of=f"{manifest.vault}/{manifest.request}",
        )


def _copy_rows(context: RequestContext, source: Snapshot) -> RowFile:
    rows, seal, first, segments = source.rows, context.identity.seal, 0, list[RowSegment]()
    for k, segment in enumerate(rows.layout.segments):
        segments.append(RowSegment(f"rows.{context.number}.{k}", segment.count))
        with files.open_file(context.folder.path / segments[k].name, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            for piece in cut(segment.count, rows.width):
                numbers = np.arange(first + piece.start, first + piece.stop)
                entries, there = rows.read_entries(numbers).copy(), rows.live[rows.layout.dealt.slots(numbers)]
                values, sums = entries[there, :-1], entries[there, -1]
                if entries[~there].any() or (row_checksums(numbers[there], values, rows.layout.seal) != sums).any():
                    raise InvalidFile(
                        f"{rows.locate_rows(numbers)} is damaged: rows fail their checksum; nothing was cloned"
                    )
                entries[there, -1] = row_checksums(numbers[there], values, seal)
                files.write_all(fd, entries.reshape(-1).view(np.uint8).data, piece.start * rows.layout.entry_bytes)
                context.check_process()
            files.sync(fd)
        first += segment.count
    live, name = read_bits(rows.bits_path, rows.layout.slots), f"live.{context.number}"
    files.create(context.folder.path / name, live.packed.data)
    sizes = rows.layout.inputs, rows.layout.targets
    layout = RowLayout(context.folder.path, tuple(segments), name, rows.layout.dealt, *sizes, seal)
    return RowFile(layout, live, context.sum_moments)


def _copy_people(context: RequestContext, source: Snapshot) -> tuple[PeopleSegment, ...]:
    found = list[PeopleSegment]()
    for k, segment in enumerate(source.people.segments):
        slots = segment.read_slots()
        slots = np.where(slots < NOBODY, encode_tombstone(context.number), slots)
        found.append(replace(segment.manifest_entry, name=f"people.{context.number}.{k}"))
        content = segment_bytes(segment.read_hashes(), slots, context.identity.seal)
        files.create(context.folder.path / found[k].name, *content)
    return tuple(found)
