"""Ids: one or many as bytes, from Python, NumPy or Arrow, or as lines of text.

Those of Python need no pyarrow: one is found at once.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...errors import InvalidInput, positions
from .messages import NO_UTF_8

_BLANKS = b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"  # the blanks of ASCII, as `str.strip` knows them
_LINE_END = re.compile(r"\r\n|\n|\r")
_JSON_START = re.compile(r'\s*(\{\s*"|\[)')


def id_bytes(ids: Any, *, name: str = "ids", fold_case: bool = False) -> list[bytes]:
    """Return ids as a vault knows them: without blanks at their ends, as UTF-8 in NFC.

    So texts which Unicode calls the same are one id, and a blank at the end of a cell makes nobody else of a person.

    Parameters
    ----------
    ids : str, int or many of them
        4711, "4711" and "4711 " are the same.
    name : str
        What errors call them.
    fold_case : bool
        Whether ids that differ only in case are the same, as ``fold_case`` in a schema says.
    """
    written = written_ids(ids, name=name)
    joined = b"".join(written)
    if joined.isascii():
        blanks = len(joined.translate(None, _BLANKS)) < len(joined)
        known = [one.strip(_BLANKS) for one in written] if blanks else written
        known = [one.lower() for one in known] if fold_case else known
    else:
        form, ascii_form = (_folded, bytes.lower) if fold_case else (_composed, bytes)
        known = [ascii_form(one.strip(_BLANKS)) if one.isascii() else _formed(form, one) for one in written]
    if b"" in known:
        empty = [k for k, one in enumerate(known) if not one]
        raise InvalidInput(
            f"{name} that are empty or only blanks: {len(empty):,} of {len(known):,}, {positions(empty)}"
        )
    return known


def id_lines(text: str) -> list[str]:
    """Return the ids in a text with one per line, without blanks around them; empty lines do not count."""
    check_no_json(text)
    if "\0" in text:  # of UTF-16, most likely
        raise InvalidInput("the ids must be in UTF-8, without zero characters")
    return [line for line in map(str.strip, _LINE_END.split(text)) if line]


def check_no_json(text: str) -> None:
    """Refuse a JSON document in the place of plain ids: it would be taken for people whom nobody knows."""
    if _JSON_START.match(text):
        raise InvalidInput("this is a JSON document, and plain ids are expected, one per line")


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
        raise InvalidInput(NO_UTF_8) from None


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
            raise InvalidInput(NO_UTF_8) from None
        except ValueError:  # Python does not write numbers of thousands of digits
            raise InvalidInput("an id that is a whole number has too many digits; give it as text") from None
    raise InvalidInput(f"an id must be text that is not empty, or a whole number, got {type(one).__name__}")


def _formed(form: Callable[[str], str], one: bytes) -> bytes:
    try:
        return form(one.decode().strip()).encode()
    except UnicodeDecodeError:  # Arrow does not check what others say is text
        raise InvalidInput(NO_UTF_8) from None


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _folded(text: str) -> str:
    """Return the same text for all that match it by Unicode's canonical caseless matching (definition D145)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
