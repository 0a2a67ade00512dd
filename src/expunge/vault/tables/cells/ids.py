"""Columns of ids, as text and as bytes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....errors import CountedInput, InvalidInput
from ..messages import NO_UTF_8, shown
from .arrow import Arrow, is_text, unpacked


def column_bytes(ids: Any, name: str) -> list[bytes]:
    """Return ids in an array of Arrow, or whole numbers in one of NumPy, as UTF-8."""
    if isinstance(ids, np.ndarray):
        ids = pa.array(ids.ravel())
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    found: list[bytes] = id_text(ids, name).cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
    return found


def id_text(array: Arrow, name: str) -> Arrow:
    """Return ids in an array of Arrow as text; errors call it ``name``."""
    array = unpacked(array)
    cells = array.type
    whole = pa.types.is_integer(cells) or (pa.types.is_decimal(cells) and cells.scale == 0)
    if not (whole or is_text(cells)):
        raise InvalidInput(f"{name} must hold ids, which are text or whole numbers, got {shown(cells)}")
    text = array.cast(pa.large_string())
    if is_text(cells) and len(text) and pc.all(pc.match_substring_regex(text, r"^\s*-?\d+\.0+\s*$")).as_py():
        raise InvalidInput(f"{name} holds whole numbers that were written as 1.0: nobody would be found by 1; write 1")
    given = text.fill_null("")
    try:
        empty = pc.or_(pc.equal(given, ""), pc.utf8_is_space(given))
    except pa.ArrowInvalid:  # Arrow does not check what others say is text
        raise InvalidInput(NO_UTF_8) from None
    if gaps := pc.sum(empty).as_py():
        raise CountedInput("rows without an id", {name: gaps}, len(text), "give each row the id of its person")
    return text
