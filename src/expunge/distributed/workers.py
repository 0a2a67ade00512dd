"""Helping: how the work of a request is cut into tasks, and their results put together, whoever runs them."""

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

TASK_ROWS = 2**20  # of a task: a second or more of work, beside which what the engine takes does not count
_MAX_TASKS = 256


class Executor(Protocol):
    """Whoever runs tasks."""

    lost_count: int  # workers that were lost so far

    def run(self, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]], done: Callable[[int], None]) -> list[Any]:
        """The results of calls, in their order; ``done`` hears which one was finished."""

    def run_and_combine(
        self,
        task: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        combine: Callable[[Sequence[Any]], Any],
        done: Callable[[int], None],
    ) -> Any:
        """The results of calls combined, a few at a time, where they are."""

    def run_everywhere(self, task: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """What each worker answers."""


class ClusterWorkers:
    """What a vault asks of other processes (`vault.requests.taking.Workers`), for one request after the other."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def lost_count(self) -> int:
        """How many workers were lost so far."""
        return self._executor.lost_count

    # Taking in

    def take_table(
        self, context: RequestContext, table: IncomingTable, progress: ProgressCallback
    ) -> StoredTable | None:
        """Take a table in, one task for neighbouring pieces; None if it has no pieces."""
        found = tables.split_table(table.data, table.schema, max_rows=TASK_ROWS)
        if found is None:
            return None
        errand, shares = self._open_request(context), _group_pieces(found)
        order = IntakeOrder(
            *table.definition_files,
            segment_owners(table.people),
            table.first_row,
            table.commitments is not None,
            table.clip,
        )
        total = sum(piece.rows for piece in found)
        results = self._executor.run(
            store_pieces,
            [(errand, order, share) for share in shares],
            lambda k: progress(context.describe_stage(table.stage), sum(piece.rows for piece in shares[k]), total),
        )
        taken = _require_all_stored(results, shares)
        runs = [RunFile(errand.folder / name, count) for part in taken for name, count in part.runs]
        whole = IntakeSummary.combine(table.blueprint, [part.summary for part in taken])
        return StoredTable(whole, tuple(part.segment for part in taken), runs)

    def _open_request(self, context: RequestContext) -> TaskRequest:
        """Write the token of a request, and see that all workers see it."""
        errand = TaskRequest(VaultFingerprint.from_folder(context.folder), context.number, secrets.token_hex(16))
        files.create(errand.token_file, errand.token.encode())
        context.folder.dir.sync()
        blind = [worker for worker, seen in self._executor.run_everywhere(can_use_folder, errand).items() if not seen]
        if blind:
            raise ClusterFailed(
                f"{len(blind):,} of the workers cannot use {context.folder.path}: a vault must lie on a file system "
                "that all workers share, under the same path and user; nothing was changed"
            )
        return errand

    # People

    def merge_people(self, context: RequestContext, owners: IncomingOwners) -> StoredPeople | None:
        """Merge entries of people, one task for each range of hashes; None if the entries are not in files."""
        runs = [(run.file.name, run.count) for run in owners.runs if isinstance(run, RunFile)]
        path = TaskRequest(VaultFingerprint.from_folder(context.folder), context.number, "").token_file
        if len(runs) < len(owners.runs) or not path.exists():
            return None
        errand = TaskRequest(
            VaultFingerprint.from_folder(context.folder), context.number, files.read(path, max_bytes=100).decode()
        )
        total = sum(count for _, count in runs) + sum(segment.count for segment in owners.kept.segments)
        merging = MergeOrder(
            tuple(runs),
            replace(owners.dealt),
            segment_owners(owners.before),
            segment_owners(owners.kept),
            owners.only_erased,
            count_parts(total),
        )
        calls = [(errand, merging, part) for part in range(merging.parts)]
        found = self._executor.run(merge_part, calls, lambda _: None)
        files.wipe(errand.token_file)  # from here on nobody may write: whoever was cut off finds no token
        context.folder.dir.sync()
        segments, *counts = zip(*found, strict=True)
        return StoredPeople(tuple(segments), *map(sum, counts))

    # Moments

    def sum_moments(
        self, rows: RowFile, encoder: Encoder, stripes: range, change: Change | None
    ) -> list[Moments] | None:
        """Sum stripes, one task for each range of them; None if there is only one, or if rows would have to be sent."""
        s, step = encoder.code.shards, rows.stripes_per_block(encoder)
        ranges = list(cut_stripes(stripes, step * max(1, _task_rows(len(stripes) * s) // (step * s))))
        if len(ranges) < 2 or (change is not None and not change.erases):
            return None
        sight, layout, sent = _fingerprint(rows.layout.folder), pack_layout(rows.layout), replace(encoder)
        calls = []
        for one in ranges:
            first, last = one.start * s, one.stop * s
            live = rows.live.packed[first // 8 : -(-last // 8)].tobytes()
            mine = None if change is None else change.restrict(first, last)
            calls.append((sight, layout, sent, (one.start, one.stop), live, mine))
        told = rows.on_rows_read
        done = self._executor.run_and_combine(
            sum_stripes, calls, add_packed_moments, lambda k: told(len(ranges[k]) * s)
        )
        return unpack_moments(done)

    # Audits

    def find_row_damage(self, rows: RowFile, numbers: range) -> list[str | None] | None:
        """Look at rows, one task for each range of them; None if there is only one."""
        ranges = list(cut_stripes(numbers, _task_rows(len(numbers))))
        if len(ranges) < 2:
            return None
        sight, layout = _fingerprint(rows.layout.folder), pack_layout(rows.layout)
        calls = [(sight, layout, (one.start, one.stop)) for one in ranges]
        return self._executor.run(find_damaged_rows, calls, lambda _: None)

    def count_owned_rows(self, people: People, parts: int, seal: bytes) -> list[OwnershipCount] | None:
        """Count owners, one task for each range of hashes; None if there is only one."""
        if parts < 2:
            return None
        sight, owners = _fingerprint(people.segments[0].file.parent), segment_owners(people)
        calls = [(sight, owners, part, parts, seal) for part in range(parts)]
        return self._executor.run(count_owned, calls, lambda _: None)


def segment_owners(people: People) -> tuple[PeopleSegment, ...]:
    """The segments of people as a manifest names them."""
    return tuple(segment.manifest_entry for segment in people.segments)


def _fingerprint(folder: VaultDir) -> VaultFingerprint:
    """What workers must see of a vault that has a state already, or is being trained."""
    return VaultFingerprint.from_folder(Folder(folder.path))


def _task_rows(total: int) -> int:
    """Rows of a task: of a large table more, so that there are hundreds of tasks and files, and not thousands."""
    return max(TASK_ROWS, -(-total // _MAX_TASKS))


def _group_pieces(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Put neighbouring pieces together to tasks: a table may be of thousands of small files."""
    most = _task_rows(sum(piece.rows for piece in pieces))
    shares: list[list[Piece]] = []
    held = most
    for piece in pieces:
        if held + piece.rows > most:
            shares.append([])
            held = 0
        shares[-1].append(piece)
        held += piece.rows
    return shares


def _require_all_stored(
    results: Sequence[StoredPieces | RefusedPieces], shares: Sequence[Sequence[Piece]]
) -> list[StoredPieces]:
    """The pieces that were taken in, or one refusal of the whole table, with its numbers."""
    taken = [result for result in results if isinstance(result, StoredPieces)]
    if len(taken) == len(results):
        return taken
    errors: list[tuple[ExpungeError | None, Piece]] = []
    for result, share in zip(results, shares, strict=True):
        found = result.errors if isinstance(result, RefusedPieces) else [None] * len(share)
        errors += zip(found, share, strict=True)
    raise _combine_refusals(errors)


def _combine_refusals(errors: Sequence[tuple[ExpungeError | None, Piece]]) -> ExpungeError:
    """The first refusal among pieces; one that counts has the counts of all."""
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
