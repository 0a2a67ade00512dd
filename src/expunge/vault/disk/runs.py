"""Runs: entries of incoming rows, sorted by hash, on their way into the segments of people.

Rows arrive in any order, and segments are sorted by hash. So entries are collected and sorted one run at a time; a
large table leaves its runs in files. Segments are then merged from all runs, one range of hashes after the other, so
that the entries are never all in memory at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...encoding.placement import Placement, RowNumbers
from ...errors import InvalidFile
from ...exact.arrays import Slots
from ...saving import files
from ...saving.files import VaultDir, VaultFile
from .people import NOBODY, Hashes, People, count_distinct_ids, slice_part

RUN_ENTRIES = 2**21  # entries that are sorted together
PART_ENTRIES = 2**22  # entries of a segment, roughly: a range of hashes is merged in memory
_WORDS_PER_ENTRY = 3  # of 8 bytes


@dataclass(frozen=True, eq=False)
class Run:
    """Entries of rows, sorted by hash; rows of the same id stay in order of arrival."""

    high: Hashes  # (n,) first words of the hashes
    low: Hashes  # (n,) second words
    rows: RowNumbers  # (n,)

    @classmethod
    def from_entries(cls, hashes: Hashes, rows: RowNumbers) -> "Run":
        """Return the entries as a run."""
        order = np.argsort(hashes[:, 0], kind="stable")
        return cls(hashes[order, 0], hashes[order, 1], rows[order])

    @property
    def count(self) -> int:
        """The number of entries."""
        return len(self.rows)

    def write(self, file: VaultFile, check: Callable[[], None]) -> "RunFile":
        """Write the run into a new file, synced; the file is zeroed if ``check`` raises."""
        words = self.high.astype("<u8").data, self.low.astype("<u8").data, self.rows.astype("<i8").data
        files.create_if(check, file, *words)
        return RunFile(file, self.count)

    def read_part(self, part: int, parts: int) -> tuple[Hashes, RowNumbers]:
        """Return the entries in one of ``parts`` equal ranges of hashes."""
        span = slice_part(self.high, part, parts)
        return np.column_stack([self.high[span], self.low[span]]), self.rows[span]


@dataclass(frozen=True)
class RunFile:
    """A run in a file, which is open only while a part is read: there can be very many."""

    file: VaultFile
    count: int

    def read_part(self, part: int, parts: int) -> tuple[Hashes, RowNumbers]:
        """Return what `Run.read_part` returns."""
        try:
            data = files.map_file(self.file, self.count * 8 * _WORDS_PER_ENTRY)
        except FileNotFoundError:
            raise InvalidFile(f"{self.file} is missing: it was wiped while it was needed") from None
        words = np.frombuffer(data, dtype="<u8").reshape(_WORDS_PER_ENTRY, self.count)
        hashes, rows = Run(words[0], words[1], words[2].view("<i8")).read_part(part, parts)
        return hashes, rows.copy()  # a view would keep the file open


AnyRun: TypeAlias = Run | RunFile


class RunCollector:
    """Collects entries. Whenever there are many, a sorted run of them is written to a file, unless ``check`` raises."""

    def __init__(self, folder: VaultDir, stem: str, check: Callable[[], None]) -> None:
        self._folder, self._stem, self._check = folder, stem, check
        self._waiting: list[tuple[Hashes, RowNumbers]] = []
        self.runs: list[RunFile] = []

    def add(self, hashes: Hashes, rows: RowNumbers) -> None:
        """Add entries."""
        self._waiting.append((hashes, rows))
        if sum(len(rows) for _, rows in self._waiting) >= RUN_ENTRIES:
            self.flush()

    def flush(self) -> None:
        """Write the collected entries to a file."""
        if self._waiting:
            self.runs.append(self._sort_waiting().write(self._folder / f"{self._stem}.{len(self.runs)}", self._check))

    def finish(self) -> list[AnyRun]:
        """Return all runs; the last one stays in memory."""
        return [*self.runs, *([self._sort_waiting()] if self._waiting else [])]

    def _sort_waiting(self) -> Run:
        waiting, self._waiting = self._waiting, []
        return Run.from_entries(
            np.concatenate([hashes for hashes, _ in waiting]), np.concatenate([rows for _, rows in waiting])
        )


@dataclass(frozen=True, eq=False)
class MergedRange:
    """The entries of a new segment, for one range of hashes, and their counts."""

    hashes: Hashes
    slots: Slots
    people: int  # people with new rows
    known: int  # of these, people who had rows before
    erased: int  # erased people among the entries that were kept


def merge_range(
    runs: Sequence[AnyRun], dealt: Placement, before: People, kept: People, part: int, parts: int, *, only_erased: bool
) -> MergedRange:
    """Merge the entries of new rows with those of the segments that they replace, in one range of hashes.

    ``before`` holds all people so far, ``kept`` the segments to merge: all entries in them that have a meaning or, with
    ``only_erased``, their tombstones.
    """
    new_parts = [run.read_part(part, parts) for run in runs]
    new = np.concatenate([np.empty((0, 2), dtype=np.uint64), *(hashes for hashes, _ in new_parts)])
    slots = dealt.slots(np.concatenate([np.empty(0, dtype=np.int64), *(rows for _, rows in new_parts)]))
    old, places = kept.read_part(part, parts)
    mask = places < NOBODY if only_erased else places != NOBODY
    old, places = old[mask], places[mask]
    known = 0 if only_erased else before.count_known(new)
    return MergedRange(
        np.concatenate([old, new]),
        np.concatenate([places, slots]),
        count_distinct_ids(new),
        known,
        count_distinct_ids(old[places < NOBODY]),
    )


def count_parts(entries: int) -> int:
    """Return into how many ranges of hashes so many entries are split."""
    return max(1, -(-entries // PART_ENTRIES))


def merge_all_ranges(
    runs: Sequence[AnyRun], dealt: Placement, before: People, kept: People, *, only_erased: bool
) -> Iterator[MergedRange]:
    """Yield the merged entries, range by range."""
    total = sum(run.count for run in runs) + sum(segment.count for segment in kept.segments)
    parts = count_parts(total)
    for part in range(parts):
        yield merge_range(runs, dealt, before, kept, part, parts, only_erased=only_erased)
