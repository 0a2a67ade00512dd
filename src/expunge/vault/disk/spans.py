"""Spans: few writes for many entries of a file.

A write takes about a microsecond, whatever its length, up to some thousands of bytes. So entries that are close
together are written at once, with the bytes between them as they are in the file. That is safe because a vault has only
one writer: no one else can change those bytes meanwhile, and a write that a crash cuts short leaves them as they were.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exact.arrays import Slots
from ...saving.files import Data

MAX_GAP_BYTES = 2**14  # with fewer bytes between them, two entries are written at once
MAX_SPAN_BYTES = 2**22  # written at once


def plan_spans(
    places: Slots, table: NDArray[Any], current: NDArray[Any], offset: int = 0
) -> Iterator[tuple[int, Data]]:
    """Yield the offsets and bytes that write entries to their places in a file, for `files.overwrite`: few and bounded.

    Parameters
    ----------
    places : array of shape (k,)
        Where each entry goes, counted in entries, in any order. If a place repeats, its last entry counts.
    table : array of shape (k, ...)
        The new entries, of the type of ``current``.
    current : array of shape (n, ...)
        All entries of the file as they are, for example memory mapped; read for the bytes between entries that are
        written at once. Its rows have the width of an entry, whatever its type.
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
    max_entries = max(1, MAX_SPAN_BYTES // width)
    apart = (np.diff(places) - 1) * width >= MAX_GAP_BYTES
    apart |= np.diff(places // max_entries) != 0  # so that no span has more entries
    ends = [0, *(np.flatnonzero(apart) + 1).tolist(), len(places)] if len(places) else []
    for start, stop in pairwise(ends):
        yield offset + int(places[start]) * width, _join_span(places[start:stop], table[start:stop], current)


def _join_span(places: Slots, table: NDArray[Any], current: NDArray[Any]) -> Data:
    """Return the bytes from the first of these places to the last."""
    if len(places) == 1:
        return table.tobytes()
    first, last = int(places[0]), int(places[-1])
    span = current[first : last + 1].copy()
    span[places - first] = table
    return span.reshape(-1).view(np.uint8).data
