"""Blocks: what a table is read in, and how their refusals are added up to one of the whole table; pieces of a table."""

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import InvalidColumns
from ..exact.arrays import Floats
from .messages import InvalidCell

BLOCK_ROWS = 65_536

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Block:
    """Rows in the order of the table."""

    X: Floats  # (n, d)
    y: Floats | None  # (n, t)
    ids: list[bytes] | None

    def __len__(self) -> int:
        return len(self.X)


@dataclass(frozen=True)
class Piece:
    """Consecutive row groups of one Parquet file: rows of a table that can be read without the others.

    A piece is plain data, for other processes.
    """

    path: str  # a path, or URI, that opens the file from any process; a URI with the password that it had
    groups: tuple[int, int]  # the first row group, and the one after the last
    rows: int
    before: int  # rows of the table that come before it
    footer: str  # SHA-256 of the file's footer: another file in its place is refused
    partition: tuple[tuple[str, str | None], ...]  # columns that only the path says, as text


def check_parts(
    parts: Iterable[Any], check: Callable[[Any], Made], describe_row: Callable[[int], str] = "row {}".format
) -> Iterator[Made]:
    """Yield what ``check`` makes of each part of a table, or refuse with numbers of the whole table.

    After the first refusal that counts, the other parts are read only to count: nothing more is yielded. ``row`` says
    how the k-th row of the table is called, counted from one.
    """
    rest, before = iter(parts), 0
    for part in rest:
        try:
            made = check(part)
        except InvalidCell as wrong:
            raise wrong.with_place(describe_row(before + wrong.row + 1)) from None
        except InvalidColumns as refusal:
            if refusal.first is not None:
                refusal = refusal.with_location(describe_row(before + refusal.first + 1))
            raise _count_rest(refusal.add_clean_rows(before), rest, check) from None
        before += len(part)
        yield made


def _count_rest(refusal: InvalidColumns, rest: Iterator[Sized], check: Callable[[Any], object]) -> InvalidColumns:
    """Add the counts of the other parts to a refusal; another error ends the counting."""
    try:
        for part in rest:
            try:
                check(part)
            except InvalidColumns as more:
                refusal = refusal.add(more)
                if not refusal.complete:
                    return refusal
            else:
                refusal = refusal.add_clean_rows(len(part))
    except Exception:  # whatever it is: the refusal is certain, and the user hears of the next one afterwards
        return refusal.as_minimum()
    return refusal
