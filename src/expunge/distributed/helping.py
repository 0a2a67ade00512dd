"""Helping: how the work of a request is cut into tasks, and their results put together, whoever runs them."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..encoding.encoder import Encoder
from ..errors import ClusterFailed, CountedInput, ExpungeError
from ..exact.moments import Moments
from ..learning.summing import pieces
from ..saving import files
from ..stores.change import Change
from ..vault import tables
from ..vault.checking import Owned
from ..vault.disk.manifest import Owners
from ..vault.disk.people import People
from ..vault.disk.rowfile import RowFile
from ..vault.disk.runs import Run, parts_of
from ..vault.requests.intake import Progress, Taken
from ..vault.requests.plan import Site
from ..vault.requests.taking import Arrived, Brought, Coming, Wanted
from ..vault.tables.messages import WrongCell
from .tasks import (
    Errand,
    Merging,
    Order,
    Refused,
    TakenPiece,
    add_sums,
    count_owners,
    from_plain,
    look_at_rows,
    merge_part,
    plain,
    sees,
    sum_stripes,
    take_piece,
)

TASK_ROWS = 2**20  # of a task: a second or more of work, beside which what the engine takes does not count


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

    def arrived(self, site: Site, wanted: Wanted, progress: Progress) -> Arrived | None:
        """Take a table in, one task for each piece; None if it has no pieces."""
        found = tables.pieces(wanted.data, most_rows=TASK_ROWS)
        if found is None:
            return None
        errand = self._errand(site)
        order = Order(
            *wanted.charter,
            owners_of(wanted.people),
            wanted.first,
            wanted.commitments is not None,
            wanted.clip,
        )
        total = sum(piece.rows for piece in found)
        results = self._executor.run(
            take_piece,
            [(errand, order, piece) for piece in found],
            lambda k: progress(site.stage(wanted.what), found[k].rows, total),
        )
        taken = _all_taken(results, found)
        runs = [Run.read(errand.path / name, count) for part in taken for name, count in part.runs]
        whole = Taken.of(wanted.blueprint, [part.taken for part in taken])
        return Arrived(whole, tuple(part.segment for part in taken), runs)

    def _errand(self, site: Site) -> Errand:
        """Write the token of a request, once, and see that all workers see it."""
        errand = Errand(str(site.folder.path), site.number, secrets.token_hex(16))
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

    def people(self, site: Site, coming: Coming) -> Brought | None:
        """Merge entries of people, one task for each range of hashes; None if the entries are not in files."""
        runs = [(run.name, len(run.rows)) for run in coming.runs]
        if not all(name for name, _ in runs):
            return None
        errand = Errand(str(site.folder.path), site.number, _token(site))
        total = sum(count for _, count in runs) + sum(segment.count for segment in coming.kept.segments)
        merging = Merging(
            tuple(runs),
            replace(coming.dealt),
            owners_of(coming.before),
            owners_of(coming.kept),
            coming.only_erased,
            parts_of(total),
        )
        found = self._executor.run(
            merge_part, [(errand, merging, part) for part in range(merging.parts)], lambda _: None
        )
        files.wipe(errand.token_file)  # from here on nobody may write: whoever was cut off finds no token
        segments, *counts = zip(*found, strict=True)
        return Brought(tuple(segments), *map(sum, counts))

    # Moments

    def summed(self, rows: RowFile, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        """Sum stripes, one task for each range of them; None if there is only one."""
        s, step = encoder.code.shards, rows.at_once(encoder)
        ranges = list(pieces(stripes, step * max(1, TASK_ROWS // (step * s))))
        if len(ranges) < 2:
            return None
        layout, sent = plain(rows.layout), replace(encoder)
        calls = []
        for one in ranges:
            first, last = one.start * s, one.stop * s
            live = rows.live.packed[first // 8 : -(-last // 8)].tobytes()
            mine = None if change is None else change.between(first, last)
            calls.append((layout, sent, (one.start, one.stop), live, mine))
        told = rows.told
        done = self._executor.reduced(sum_stripes, calls, add_sums, lambda k: told(len(ranges[k]) * s))
        return from_plain(done)

    # Audits

    def wrong_in_rows(self, rows: RowFile, numbers: range) -> list[str | None] | None:
        """Look at rows, one task for each range of them; None if there is only one."""
        ranges = list(pieces(numbers, TASK_ROWS))
        if len(ranges) < 2:
            return None
        layout = plain(rows.layout)
        return self._executor.run(look_at_rows, [(layout, (one.start, one.stop)) for one in ranges], lambda _: None)

    def owned(self, people: People, parts: int, seal: bytes) -> list[Owned] | None:
        """Count owners, one task for each range of hashes; None if there is only one."""
        if parts < 2:
            return None
        folder, owners = str(people.segments[0].path.parent), owners_of(people)
        calls = [(folder, owners, part, parts, seal) for part in range(parts)]
        return self._executor.run(count_owners, calls, lambda _: None)


def owners_of(people: People) -> tuple[Owners, ...]:
    """The segments of people as a manifest names them."""
    return tuple(segment.owners for segment in people.segments)


def _token(site: Site) -> str:
    path = Errand(str(site.folder.path), site.number, "").token_file
    return files.read(path, most=100).decode()


def _all_taken(results: Sequence[TakenPiece | Refused], found: Sequence[Any]) -> list[TakenPiece]:
    """The pieces that were taken in, or one refusal of the whole table, with its numbers."""
    refusal: ExpungeError | None = None
    before = 0
    for result, piece in zip(results, found, strict=True):
        error = result.error if isinstance(result, Refused) else None
        if refusal is None and error is not None:
            refusal = error.with_rows(before) if isinstance(error, CountedInput) else error
            if isinstance(error, WrongCell) or not isinstance(error, CountedInput):
                break
        elif isinstance(refusal, CountedInput):
            if error is None:
                refusal = refusal.with_rows(piece.rows)
            elif isinstance(error, CountedInput):
                refusal = refusal.plus(error)
            else:
                refusal = refusal.at_least()
            if not refusal.complete:
                break
        before += piece.rows
    if refusal is not None:
        raise refusal
    return [result for result in results if isinstance(result, TakenPiece)]
