"""Runs: whose rows came, sorted by hash, on their way into the segments of people.

Rows come in their own order and segments are sorted by hash. So entries are gathered, and sorted a run at a time; a
table of many rows leaves its runs in files. A segment is then merged from all runs, for one range of hashes after the
other: nobody ever holds all entries at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...encoding.placement import Placement, RowNumbers
from ...errors import InvalidFile
from ...exact.arrays import Slots
from ...saving import files
from .people import NOBODY, People
from .segments import Hashes, count_distinct_ids, slice_part

RUN_ENTRIES = 2**21  # entries that are sorted at once
PART_ENTRIES = 2**22  # entries of a segment, about: a range of hashes is merged in memory
_WORDS_PER_ENTRY = 3  # of 8 bytes, per entry


@dataclass(frozen=True, eq=False)
class Run:
    """Entries of rows, sorted by hash; rows of the same id in the order in which they came."""

    high: Hashes  # (n,) the first words of the hashes
    low: Hashes  # (n,) the second
    rows: RowNumbers  # (n,)

    @classmethod
    def from_entries(cls, hashes: Hashes, rows: RowNumbers) -> "Run":
        """Sort entries."""
        order = np.argsort(hashes[:, 0], kind="stable")
        return cls(hashes[order, 0], hashes[order, 1], rows[order])

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self.rows)

    def write(self, path: Path, check: Callable[[], None]) -> "RunFile":
        """Write it into a new file, synced, unless ``check`` refuses."""
        words = self.high.astype("<u8").data, self.low.astype("<u8").data, self.rows.astype("<i8").data
        files.create_if(check, path, *words)
        return RunFile(path, self.count)

    def read_part(self, part: int, parts: int) -> tuple[Hashes, RowNumbers]:
        """The entries in one of so many equal ranges of hashes."""
        some = slice_part(self.high, part, parts)
        return np.column_stack([self.high[some], self.low[some]]), self.rows[some]


@dataclass(frozen=True)
class RunFile:
    """A run in a file, which is open only while a part of it is read: there may be very many."""

    path: Path
    count: int

    def read_part(self, part: int, parts: int) -> tuple[Hashes, RowNumbers]:
        """As of `Run`."""
        try:
            data = files.map_file(self.path, self.count * 8 * _WORDS_PER_ENTRY)
        except FileNotFoundError:
            raise InvalidFile(f"{self.path} is not there: it was wiped while it was needed") from None
        words = np.frombuffer(data, dtype="<u8").reshape(_WORDS_PER_ENTRY, self.count)
        hashes, rows = Run(words[0], words[1], words[2].view("<i8")).read_part(part, parts)
        return hashes, rows.copy()  # a view would keep the file open


AnyRun: TypeAlias = Run | RunFile


class RunCollector:
    """Entries as they come; whenever there are many, a sorted run of them goes to a file, unless ``check`` refuses."""

    def __init__(self, folder: Path, stem: str, check: Callable[[], None]) -> None:
        self._folder, self._stem, self._check = folder, stem, check
        self._waiting: list[tuple[Hashes, RowNumbers]] = []
        self.runs: list[RunFile] = []

    def add(self, hashes: Hashes, rows: RowNumbers) -> None:
        """Take entries."""
        self._waiting.append((hashes, rows))
        if sum(len(rows) for _, rows in self._waiting) >= RUN_ENTRIES:
            self.flush()

    def flush(self) -> None:
        """Let a file have what waits."""
        if self._waiting:
            self.runs.append(self._sort_waiting().write(self._folder / f"{self._stem}.{len(self.runs)}", self._check))

    def finish(self) -> list[AnyRun]:
        """All runs; what is left may stay in memory."""
        return [*self.runs, *([self._sort_waiting()] if self._waiting else [])]

    def _sort_waiting(self) -> Run:
        waiting, self._waiting = self._waiting, []
        return Run.from_entries(
            np.concatenate([hashes for hashes, _ in waiting]), np.concatenate([rows for _, rows in waiting])
        )


@dataclass(frozen=True, eq=False)
class MergedRange:
    """The entries of one range of hashes that a new segment has, and what they count."""

    hashes: Hashes
    slots: Slots
    people: int  # whose rows come
    known: int  # of these, how many had rows before
    erased: int  # how many erased people there are among the entries that were kept


def merge_range(
    runs: Sequence[AnyRun], dealt: Placement, before: People, kept: People, part: int, parts: int, *, only_erased: bool
) -> MergedRange:
    """Merge the entries of rows that come with those of segments that they replace, in one range of hashes.

    ``before`` is everybody who was there, ``kept`` the segments to be merged: all that means something in them or, with
    ``only_erased``, their tombstones.
    """
    found = [run.read_part(part, parts) for run in runs]
    none = np.empty((0, 2), dtype=np.uint64)
    new = np.concatenate([none, *(hashes for hashes, _ in found)])
    slots = dealt.slots(np.concatenate([np.empty(0, dtype=np.int64), *(rows for _, rows in found)]))
    old, places = kept.read_part(part, parts)
    there = places < NOBODY if only_erased else places != NOBODY
    old, places = old[there], places[there]
    known = 0 if only_erased else before.count_known(new)
    return MergedRange(
        np.concatenate([old, new]),
        np.concatenate([places, slots]),
        count_distinct_ids(new),
        known,
        count_distinct_ids(old[places < NOBODY]),
    )


def count_parts(entries: int) -> int:
    """How many ranges of hashes so many entries are cut into."""
    return max(1, -(-entries // PART_ENTRIES))


def merge_all_ranges(
    runs: Sequence[AnyRun], dealt: Placement, before: People, kept: People, *, only_erased: bool
) -> Iterator[MergedRange]:
    """Merge range after range."""
    total = sum(run.count for run in runs) + sum(segment.count for segment in kept.segments)
    parts = count_parts(total)
    for part in range(parts):
        yield merge_range(runs, dealt, before, kept, part, parts, only_erased=only_erased)
