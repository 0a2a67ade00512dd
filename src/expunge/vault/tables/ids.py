"""Ids: one or many as bytes, from Python, NumPy or Arrow. Those of Python need no pyarrow: one is found at once."""

import sys
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...errors import InvalidInput

_NO_UTF_8 = "an id has characters that UTF-8 does not have"


def id_bytes(ids: Any, *, name: str = "ids", fold_case: bool = False) -> list[bytes]:
    """Return ids as a vault knows them: as UTF-8 in NFC, so that texts which Unicode calls the same are one id.

    Parameters
    ----------
    ids : str, int or many of them
        4711 and "4711" are the same.
    name : str
        What errors call them.
    fold_case : bool
        Whether ids that differ only in case are the same, as ``fold_case`` in a schema says.
    """
    written = written_ids(ids, name=name)
    if b"".join(written).isascii():
        return [one.lower() for one in written] if fold_case else written
    form, ascii_form = (_folded, bytes.lower) if fold_case else (_composed, bytes)
    return [ascii_form(one) if one.isascii() else _formed(form, one) for one in written]


def written_ids(ids: Any, *, name: str = "ids") -> list[bytes]:
    """Return ids as UTF-8, as they are written."""
    if _in_arrow(ids) or (isinstance(ids, np.ndarray) and ids.dtype.kind in "iu"):
        from .cells.ids import column_bytes  # loads pyarrow

        return column_bytes(ids, name)
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        ids = [ids]
    return [_id(one) for one in ids]


def id_texts(ids: Any) -> list[str]:
    """Return ids as text, as they are written."""
    try:
        return [one.decode() for one in written_ids(ids)]
    except UnicodeDecodeError:
        raise InvalidInput(_NO_UTF_8) from None


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
            raise InvalidInput(_NO_UTF_8) from None
        except ValueError:  # Python does not write numbers of thousands of digits
            raise InvalidInput("an id that is a whole number has too many digits; give it as text") from None
    raise InvalidInput(f"an id must be text that is not empty, or a whole number, got {type(one).__name__}")


def _formed(form: Callable[[str], str], one: bytes) -> bytes:
    try:
        return form(one.decode()).encode()
    except UnicodeDecodeError:  # Arrow does not check what others say is text
        raise InvalidInput(_NO_UTF_8) from None


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _folded(text: str) -> str:
    """Return the same text for all that match it by Unicode's canonical caseless matching (definition D145)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
