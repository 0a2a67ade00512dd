"""Spans: few writes for many entries of a file.

A write costs a microsecond whatever its length, up to some thousands of bytes. Entries that are near each other are
therefore written at once, with what lies between them as it is in the file now. That is safe because the writer of a
vault is alone: nobody else can change those bytes meanwhile, and a write that a crash cuts short leaves them as they
were.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exact.arrays import Slots
from ...saving.files import Data

MAX_GAP_BYTES = 2**14  # bytes: with fewer between them, two entries are written at once
MAX_SPAN_BYTES = 2**22  # bytes that are written at once


def plan_spans(
    places: Slots, table: NDArray[Any], current: NDArray[Any], offset: int = 0
) -> Iterator[tuple[int, Data]]:
    """The offsets and bytes that put entries into their places of a file, for `files.overwrite`: few and bounded.

    Parameters
    ----------
    places : array of shape (k,)
        Where each entry goes, counted in entries, in any order. Of an entry that is there twice the last counts.
    table : array of shape (k, ...)
        The new entries, of the type of ``now``.
    now : array of shape (n, ...)
        All entries of the file as they are, memory mapped for instance; read where something lies between two entries
        that are written at once. Its rows have the width of an entry, whatever its type.
    offset : int
        Where in the file the first entry begins.
    """
    width = current.strides[0]
    if len(places) == 1:  # most requests are about one person
        yield offset + int(places[0]) * width, table.tobytes()
        return
    if not np.all(places[1:] > places[:-1]):
        order = np.argsort(places, kind="stable")
        places, table = places[order], table[order]
    most = max(1, MAX_SPAN_BYTES // width)
    apart = (np.diff(places) - 1) * width >= MAX_GAP_BYTES
    apart |= np.diff(places // most) != 0  # so that no span has more entries than that
    ends = [0, *(np.flatnonzero(apart) + 1).tolist(), len(places)] if len(places) else []
    for start, stop in pairwise(ends):
        yield offset + int(places[start]) * width, _join_span(places[start:stop], table[start:stop], current)


def _join_span(places: Slots, table: NDArray[Any], current: NDArray[Any]) -> Data:
    """The bytes from the first of these places to the last."""
    if len(places) == 1:
        return table.tobytes()
    first, last = int(places[0]), int(places[-1])
    span = current[first : last + 1].copy()
    span[places - first] = table
    return span.reshape(-1).view(np.uint8).data
