"""Ids: one or many as bytes, from Python, NumPy or Arrow. Those of Python need no pyarrow: one is found at once."""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...errors import InvalidInput


def id_bytes(ids: Any, *, name: str = "ids") -> list[bytes]:
    """Return ids as UTF-8: one or many, text or whole numbers. 4711 and "4711" are the same."""
    if _in_arrow(ids) or (isinstance(ids, np.ndarray) and ids.dtype.kind in "iu"):
        from .cells.ids import column_bytes  # loads pyarrow

        return column_bytes(ids, name)
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        ids = [ids]
    return [_id(one) for one in ids]


def _in_arrow(ids: object) -> bool:
    """Return whether these are in an array of pyarrow, which cannot be if pyarrow was never loaded."""
    if "pyarrow" not in sys.modules:
        return False
    from pyarrow import Array, ChunkedArray  # waits for another thread that is still loading it

    return isinstance(ids, (Array, ChunkedArray))


def _id(one: object) -> bytes:
    if isinstance(one, (str, int, np.integer)) and not isinstance(one, bool) and one != "":
        try:
            return str(one).encode()
        except UnicodeEncodeError:
            raise InvalidInput("an id has characters that UTF-8 does not have") from None
    raise InvalidInput(f"an id must be text that is not empty, or a whole number, got {type(one).__name__}")
