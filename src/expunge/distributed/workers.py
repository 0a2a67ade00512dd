"""Workers: split the work of a request into tasks and combine their results, for any executor."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from .. import tables
from ..encoding.encoder import Encoder
from ..errors import ClusterFailed, ExpungeError, InvalidColumns
from ..exact.moments import Moments
from ..learning.rules import cut_stripes
from ..saving import files
from ..saving.files import VaultDir
from ..stores.change import Change
from ..tables import Piece
from ..vault.disk.folder import Folder
from ..vault.disk.manifest import PeopleSegment
from ..vault.disk.people import People
from ..vault.disk.rowfile import RowFile
from ..vault.disk.runs import RunFile, count_parts
from ..vault.disk.snapshot import OwnershipCount
from ..vault.requests.intake import (
    IncomingOwners,
    IncomingTable,
    IntakeSummary,
    ProgressCallback,
    StoredPeople,
    StoredTable,
)
from ..vault.requests.plan import RequestContext
from .tasks import (
    IntakeOrder,
    MergeOrder,
    RefusedPieces,
    StoredPieces,
    TaskRequest,
    VaultFingerprint,
    add_packed_moments,
    can_use_folder,
    count_owned,
    find_damaged_rows,
    merge_part,
    pack_layout,
    store_pieces,
    sum_stripes,
    unpack_moments,
)

TASK_ROWS = 2**20  # per task: a second or more of work, so that Dask's overhead does not count
_MAX_TASKS = 256


class Executor(Protocol):
    """The interface of a cluster that runs tasks."""

    lost_count: int  # workers lost so far

    def run(self, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]], done: Callable[[int], None]) -> list[Any]:
        """Return the results of calls in their order; ``done`` is called with the position of each finished call."""

    def run_and_combine(
        self,
        task: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        combine: Callable[[Sequence[Any]], Any],
        done: Callable[[int], None],
    ) -> Any:
        """Return the combined results of calls; workers combine a few at a time."""

    def run_everywhere(self, task: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Run a task on every worker and return the result of each."""


class ClusterWorkers:
    """The work that a vault gives to other processes (`Workers` of `vault.requests.intake`), one request at a time."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def lost_count(self) -> int:
        """The number of workers lost so far."""
        return self._executor.lost_count

    def take_table(
        self, context: RequestContext, table: IncomingTable, progress: ProgressCallback
    ) -> StoredTable | None:
        """Store the rows of a table, one task per group of neighbouring pieces; None if it cannot be split."""
        pieces = tables.split_table(table.data, table.schema, max_rows=TASK_ROWS)
        if pieces is None:
            return None
        request, groups = self._open_request(context), _group_pieces(pieces)
        order = IntakeOrder(
            *table.definition_files,
            segment_owners(table.people),
            table.first_row,
            table.planning,
            table.commitments is not None,
            table.clip,
        )
        total = sum(piece.rows for piece in pieces)
        results = self._executor.run(
            store_pieces,
            [(request, order, group) for group in groups],
            lambda k: progress(context.describe_stage(table.stage), sum(piece.rows for piece in groups[k]), total),
        )
        stored = _require_all_stored(results, groups)
        runs = [RunFile(request.folder / name, count) for part in stored for name, count in part.runs]
        summary = IntakeSummary.combine(table.blueprint, [part.summary for part in stored])
        return StoredTable(summary, tuple(part.segment for part in stored), runs)

    def _open_request(self, context: RequestContext) -> TaskRequest:
        """Write the token of a request, and check that all workers can use the folder."""
        request = TaskRequest(VaultFingerprint.from_folder(context.folder), context.number, secrets.token_hex(16))
        files.create(request.token_file, request.token.encode())
        context.folder.dir.sync()
        if blind := list(self._executor.run_everywhere(can_use_folder, request).values()).count(False):
            raise ClusterFailed(
                f"{blind:,} of the workers cannot use {context.folder.path}: a vault must lie on a file system that "
                "all workers share, under the same path and user; nothing was changed"
            )
        return request

    def merge_people(self, context: RequestContext, owners: IncomingOwners) -> StoredPeople | None:
        """Merge entries of people, one task per range of hashes; None if the entries are not in files."""
        runs = [(run.file.name, run.count) for run in owners.runs if isinstance(run, RunFile)]
        request = TaskRequest(VaultFingerprint.from_folder(context.folder), context.number, "")
        if len(runs) < len(owners.runs) or not request.token_file.exists():
            return None
        request = replace(request, token=files.read(request.token_file, max_bytes=100).decode())
        total = sum(count for _, count in runs) + sum(segment.count for segment in owners.kept.segments)
        order = MergeOrder(
            tuple(runs),
            replace(owners.dealt),
            segment_owners(owners.before),
            segment_owners(owners.kept),
            owners.only_erased,
            count_parts(total),
        )
        calls = [(request, order, part) for part in range(order.parts)]
        merged = self._executor.run(merge_part, calls, lambda _: None)
        files.wipe(request.token_file)  # no worker may write from here on: one that was cut off finds no token
        context.folder.dir.sync()
        segments, *counts = zip(*merged, strict=True)
        return StoredPeople(tuple(segments), *map(sum, counts))

    def sum_moments(
        self, rows: RowFile, encoder: Encoder, stripes: range, change: Change | None
    ) -> list[Moments] | None:
        """Sum stripes, one task per range; None if there is only one, or if rows would have to be sent."""
        s, step = encoder.code.shards, rows.stripes_per_block(encoder)
        ranges = list(cut_stripes(stripes, step * max(1, _task_rows(len(stripes) * s) // (step * s))))
        if len(ranges) < 2 or (change is not None and not change.erases):
            return None
        fingerprint, layout = _take_fingerprint(rows.layout.folder), pack_layout(rows.layout)
        sent_encoder = replace(encoder)  # without cached values
        calls = []
        for part in ranges:
            first, last = part.start * s, part.stop * s
            live = rows.live.packed[first // 8 : -(-last // 8)].tobytes()
            part_change = None if change is None else change.restrict(first, last)
            calls.append((fingerprint, layout, sent_encoder, (part.start, part.stop), live, part_change))
        on_rows_read = rows.on_rows_read
        packed = self._executor.run_and_combine(
            sum_stripes, calls, add_packed_moments, lambda k: on_rows_read(len(ranges[k]) * s)
        )
        return unpack_moments(packed)

    def find_row_damage(self, rows: RowFile, numbers: range) -> list[str | None] | None:
        """Check rows, one task per range; None if there is only one."""
        ranges = list(cut_stripes(numbers, _task_rows(len(numbers))))
        if len(ranges) < 2:
            return None
        fingerprint, layout = _take_fingerprint(rows.layout.folder), pack_layout(rows.layout)
        calls = [(fingerprint, layout, (part.start, part.stop)) for part in ranges]
        return self._executor.run(find_damaged_rows, calls, lambda _: None)

    def count_owned_rows(self, people: People, parts: int, seal: bytes) -> list[OwnershipCount] | None:
        """Count owned rows, one task per range of hashes; None if there is only one."""
        if parts < 2:
            return None
        fingerprint, owners = _take_fingerprint(people.segments[0].file.parent), segment_owners(people)
        calls = [(fingerprint, owners, part, parts, seal) for part in range(parts)]
        return self._executor.run(count_owned, calls, lambda _: None)


def segment_owners(people: People) -> tuple[PeopleSegment, ...]:
    """Return the segments of people as entries of a manifest."""
    return tuple(segment.manifest_entry for segment in people.segments)


def _take_fingerprint(folder: VaultDir) -> VaultFingerprint:
    return VaultFingerprint.from_folder(Folder(folder.path))


def _task_rows(total: int) -> int:
    """Return the rows per task: more for a large table, so that tasks and files number hundreds, not thousands."""
    return max(TASK_ROWS, -(-total // _MAX_TASKS))


def _group_pieces(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Group neighbouring pieces into tasks: a table may consist of thousands of small files."""
    max_rows = _task_rows(sum(piece.rows for piece in pieces))
    groups: list[list[Piece]] = []
    row_count = max_rows
    for piece in pieces:
        if row_count + piece.rows > max_rows:
            groups.append([])
            row_count = 0
        groups[-1].append(piece)
        row_count += piece.rows
    return groups


def _require_all_stored(
    results: Sequence[StoredPieces | RefusedPieces], groups: Sequence[Sequence[Piece]]
) -> list[StoredPieces]:
    """Return the stored pieces, or raise one refusal of the whole table, with the numbers of all pieces."""
    stored = [result for result in results if isinstance(result, StoredPieces)]
    if len(stored) == len(results):
        return stored
    errors: list[tuple[ExpungeError | None, Piece]] = []
    for result, group in zip(results, groups, strict=True):
        group_errors = result.errors if isinstance(result, RefusedPieces) else [None] * len(group)
        errors += zip(group_errors, group, strict=True)
    raise _combine_refusals(errors)


def _combine_refusals(errors: Sequence[tuple[ExpungeError | None, Piece]]) -> ExpungeError:
    """Return the first refusal among pieces; if it counts rows, with the counts of all pieces."""
    first = next(k for k, (error, _) in enumerate(errors) if error is not None)
    refusal = errors[first][0]
    assert refusal is not None
    if not isinstance(refusal, InvalidColumns):
        return refusal
    refusal = refusal.add_clean_rows(sum(piece.rows for _, piece in errors[:first]))
    for error, piece in errors[first + 1 :]:
        if error is None:
            refusal = refusal.add_clean_rows(piece.rows)
        else:
            refusal = refusal.add(error) if isinstance(error, InvalidColumns) else refusal.as_minimum()
        if not refusal.complete:
            break
    return refusal
