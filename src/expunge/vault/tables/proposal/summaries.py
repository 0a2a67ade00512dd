"""Summaries: what one pass over a column's cells says about its kind.

What is read off the data tells about the people in it. So bounds are rounded outward, fills and knots are rounded and
are those of many, a category needs several people who have it, and what a few people have decides nothing.
"""

from typing import Protocol, TypeAlias

from ..cells.arrow import Arrow
from ..cells.by_kind import read
from ..kinds import Boolean, Ignore, Kind
from .sampling import Owners, Sample

Proposed: TypeAlias = tuple[Kind | Ignore, str]  # and what a person should know about it

LEAVE_OUT = "has gaps: leave rows without a target out of the data"


class Summary(Protocol):
    """What is kept of a column while its table is read."""

    in_csv: str

    def add(self, array: Arrow, owners: Owners) -> None:
        """Look at more cells, and at whose they are."""

    def proposed(self) -> Proposed:
        """Return a kind for the column."""

    def as_target(self) -> Proposed | None:
        """Return a kind for the column if it is to be predicted; None if it cannot be."""


class Flags:
    """True and false."""

    in_csv = Boolean.in_csv

    def __init__(self) -> None:
        self._gaps, self._sample = False, Sample()

    def add(self, array: Arrow, owners: Owners) -> None:
        self._gaps |= bool(array.null_count)
        self._sample.add(read(Boolean(), "", array), owners)

    def proposed(self) -> Proposed:
        values = self._sample.values()
        return Boolean(fill=bool(2 * values.sum() > len(values)) if self._gaps else None), ""

    def as_target(self) -> Proposed | None:
        return Boolean(), LEAVE_OUT if self._gaps else ""
