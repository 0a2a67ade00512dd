"""Helping: how the work of a request is cut into tasks, and their results put together, whoever runs them."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ..encoding.encoder import Encoder
from ..errors import ClusterFailed, CountedInput, ExpungeError
from ..exact.moments import Moments
from ..learning.summing import pieces
from ..saving import files
from ..saving.own import VaultFolder
from ..stores.change import Change
from ..vault import tables
from ..vault.checking import Owned
from ..vault.disk.folder import Folder
from ..vault.disk.manifest import Owners
from ..vault.disk.people import People
from ..vault.disk.rowfile import RowFile
from ..vault.disk.runs import WrittenRun, parts_of
from ..vault.requests.intake import Progress, Taken
from ..vault.requests.plan import Site
from ..vault.requests.taking import NewEntries, NewSegments, TableTaken, TableToTake
from ..vault.tables import Piece
from .tasks import (
    Errand,
    Merging,
    Order,
    Refused,
    Sight,
    TakenPieces,
    add_sums,
    count_owners,
    from_plain,
    look_at_rows,
    merge_part,
    plain,
    sees,
    sum_stripes,
    take_pieces,
)

TASK_ROWS = 2**20  # of a task: a second or more of work, beside which what the engine takes does not count
_MOST_TASKS = 256


class Executor(Protocol):
    """Whoever runs tasks."""

    lost: int  # workers that were lost so far

    def run(self, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]], done: Callable[[int], None]) -> list[Any]:
        """The results of calls, in their order; ``done`` hears which one was finished."""

    def reduced(
        self,
        task: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        combine: Callable[[Sequence[Any]], Any],
        done: Callable[[int], None],
    ) -> Any:
        """The results of calls combined, a few at a time, where they are."""

    def everywhere(self, task: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """What each worker answers."""


class Helpers:
    """What a vault asks of other processes (`vault.requests.taking.Workers`), for one request after the other."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def lost(self) -> int:
        """How many workers were lost so far."""
        return self._executor.lost

    # Taking in

    def arrived(self, site: Site, wanted: TableToTake, progress: Progress) -> TableTaken | None:
        """Take a table in, one task for neighbouring pieces; None if it has no pieces."""
        found = tables.pieces(wanted.data, wanted.schema, most_rows=TASK_ROWS)
        if found is None:
            return None
        errand, shares = self._errand(site), _shares(found)
        order = Order(
            *wanted.charter,
            owners_of(wanted.people),
            wanted.first,
            wanted.commitments is not None,
            wanted.clip,
        )
        total = sum(piece.rows for piece in found)
        results = self._executor.run(
            take_pieces,
            [(errand, order, share) for share in shares],
            lambda k: progress(site.stage(wanted.what), sum(piece.rows for piece in shares[k]), total),
        )
        taken = _all_taken(results, shares)
        runs = [WrittenRun(errand.path / name, count) for part in taken for name, count in part.runs]
        whole = Taken.of(wanted.blueprint, [part.taken for part in taken])
        return TableTaken(whole, tuple(part.segment for part in taken), runs)

    def _errand(self, site: Site) -> Errand:
        """Write the token of a request, and see that all workers see it."""
        errand = Errand(Sight.of(site.folder), site.number, secrets.token_hex(16))
        files.create(errand.token_file, errand.token.encode())
        files.sync_folder(site.folder.path)
        blind = [worker for worker, seen in self._executor.everywhere(sees, errand).items() if not seen]
        if blind:
            raise ClusterFailed(
                f"{len(blind):,} of the workers cannot use {site.folder.path}: a vault must lie on a file system that "
                "all workers share, under the same path and user; nothing was changed"
            )
        return errand

    # People

    def people(self, site: Site, coming: NewEntries) -> NewSegments | None:
        """Merge entries of people, one task for each range of hashes; None if the entries are not in files."""
        runs = [(run.path.name, run.count) for run in coming.runs if isinstance(run, WrittenRun)]
        path = Errand(Sight.of(site.folder), site.number, "").token_file
        if len(runs) < len(coming.runs) or not path.exists():
            return None
        errand = Errand(Sight.of(site.folder), site.number, files.read(path, most=100).decode())
        total = sum(count for _, count in runs) + sum(segment.count for segment in coming.kept.segments)
        merging = Merging(
            tuple(runs),
            replace(coming.dealt),
            owners_of(coming.before),
            owners_of(coming.kept),
            coming.only_erased,
            parts_of(total),
        )
        calls = [(errand, merging, part) for part in range(merging.parts)]
        found = self._executor.run(merge_part, calls, lambda _: None)
        files.wipe(errand.token_file)  # from here on nobody may write: whoever was cut off finds no token
        files.sync_folder(site.folder.path)
        segments, *counts = zip(*found, strict=True)
        return NewSegments(tuple(segments), *map(sum, counts))

    # Moments

    def summed(self, rows: RowFile, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        """Sum stripes, one task for each range of them; None if there is only one, or if rows would have to be sent."""
        s, step = encoder.code.shards, rows.at_once(encoder)
        ranges = list(pieces(stripes, step * max(1, _task_rows(len(stripes) * s) // (step * s))))
        if len(ranges) < 2 or (change is not None and not change.erases):
            return None
        sight, layout, sent = _sight(rows.layout.folder), plain(rows.layout), replace(encoder)
        calls = []
        for one in ranges:
            first, last = one.start * s, one.stop * s
            live = rows.live.packed[first // 8 : -(-last // 8)].tobytes()
            mine = None if change is None else change.between(first, last)
            calls.append((sight, layout, sent, (one.start, one.stop), live, mine))
        told = rows.told
        done = self._executor.reduced(sum_stripes, calls, add_sums, lambda k: told(len(ranges[k]) * s))
        return from_plain(done)

    # Audits

    def wrong_in_rows(self, rows: RowFile, numbers: range) -> list[str | None] | None:
        """Look at rows, one task for each range of them; None if there is only one."""
        ranges = list(pieces(numbers, _task_rows(len(numbers))))
        if len(ranges) < 2:
            return None
        sight, layout = _sight(rows.layout.folder), plain(rows.layout)
        calls = [(sight, layout, (one.start, one.stop)) for one in ranges]
        return self._executor.run(look_at_rows, calls, lambda _: None)

    def owned(self, people: People, parts: int, seal: bytes) -> list[Owned] | None:
        """Count owners, one task for each range of hashes; None if there is only one."""
        if parts < 2:
            return None
        sight, owners = _sight(people.segments[0].path.parent), owners_of(people)
        calls = [(sight, owners, part, parts, seal) for part in range(parts)]
        return self._executor.run(count_owners, calls, lambda _: None)


def owners_of(people: People) -> tuple[Owners, ...]:
    """The segments of people as a manifest names them."""
    return tuple(segment.owners for segment in people.segments)


def _sight(folder: Path) -> Sight:
    """What workers must see of a vault that has a state already, or is being trained."""
    return Sight.of(Folder(VaultFolder(folder)))


def _task_rows(total: int) -> int:
    """Rows of a task: of a large table more, so that there are hundreds of tasks and files, and not thousands."""
    return max(TASK_ROWS, -(-total // _MOST_TASKS))


def _shares(found: Sequence[Piece]) -> list[list[Piece]]:
    """Put neighbouring pieces together to tasks: a table may be of thousands of small files."""
    most = _task_rows(sum(piece.rows for piece in found))
    shares: list[list[Piece]] = []
    held = most
    for piece in found:
        if held + piece.rows > most:
            shares.append([])
            held = 0
        shares[-1].append(piece)
        held += piece.rows
    return shares


def _all_taken(results: Sequence[TakenPieces | Refused], shares: Sequence[Sequence[Piece]]) -> list[TakenPieces]:
    """The pieces that were taken in, or one refusal of the whole table, with its numbers."""
    taken = [result for result in results if isinstance(result, TakenPieces)]
    if len(taken) == len(results):
        return taken
    errors: list[tuple[ExpungeError | None, Piece]] = []
    for result, share in zip(results, shares, strict=True):
        found = result.errors if isinstance(result, Refused) else [None] * len(share)
        errors += zip(found, share, strict=True)
    raise _whole_refusal(errors)


def _whole_refusal(errors: Sequence[tuple[ExpungeError | None, Piece]]) -> ExpungeError:
    """The first refusal among pieces; one that counts has the counts of all."""
    first = next(k for k, (error, _) in enumerate(errors) if error is not None)
    refusal = errors[first][0]
    assert refusal is not None
    if not isinstance(refusal, CountedInput):
        return refusal
    refusal = refusal.with_rows(sum(piece.rows for _, piece in errors[:first]))
    for error, piece in errors[first + 1 :]:
        if error is None:
            refusal = refusal.with_rows(piece.rows)
        else:
            refusal = refusal.plus(error) if isinstance(error, CountedInput) else refusal.at_least()
        if not refusal.complete:
            break
    return refusal
