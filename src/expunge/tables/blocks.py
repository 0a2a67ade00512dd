"""Blocks: the parts in which a table is read, and the sum of their refusals over the whole table."""

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import InvalidColumns
from ..exact.arrays import Floats
from .messages import InvalidCell

BLOCK_ROWS = 65_536

Checked = TypeVar("Checked")


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a table."""

    X: Floats  # (n, d)
    y: Floats | None  # (n, t)
    ids: list[bytes] | None

    def __len__(self) -> int:
        return len(self.X)


@dataclass(frozen=True)
class Piece:
    """Consecutive row groups of one Parquet file, which can be read independently of the rest of the table.

    A piece is plain data that can be sent to another process.
    """

    path: str  # a path or URI that opens the file from any process; a URI includes its password
    groups: tuple[int, int]  # the first row group, and the one after the last
    rows: int
    before: int  # rows of the table before this piece
    footer: str  # SHA-256 of the file's footer: a replaced file is refused
    partition: tuple[tuple[str, str | None], ...]  # columns that only the path has, as text


def check_parts(
    parts: Iterable[Any], check: Callable[[Any], Checked], describe_row: Callable[[int], str] = "row {}".format
) -> Iterator[Checked]:
    """Yield the result of ``check`` for each part of a table, or refuse with numbers of the whole table.

    After the first refusal with counts, the other parts are read only to count them: nothing more is yielded.
    ``describe_row`` returns the words for the k-th row of the table, counted from one.
    """
    rest, before = iter(parts), 0
    for part in rest:
        try:
            checked = check(part)
        except InvalidCell as error:
            raise error.with_place(describe_row(before + error.row + 1)) from None
        except InvalidColumns as refusal:
            if refusal.first is not None:
                refusal = refusal.with_location(describe_row(before + refusal.first + 1))
            raise _count_rest(refusal.add_clean_rows(before), rest, check) from None
        before += len(part)
        yield checked


def _count_rest(refusal: InvalidColumns, rest: Iterator[Sized], check: Callable[[Any], object]) -> InvalidColumns:
    """Add the counts of the remaining parts to a refusal; any other error ends the counting."""
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
    except Exception:  # of any kind: the refusal stands, and the next attempt reports the other error
        return refusal.as_minimum()
    return refusal
