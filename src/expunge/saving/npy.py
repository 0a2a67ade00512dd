"""Plain ``.npy`` arrays: headers that are checked before anything is read, and the parts to be written."""

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


class BadArray(ValueError):
    """Bytes that are not the array that they must be; its text goes on after a name: "x.npy is damaged"."""


def read_header(stream: Any, dtype: str, *shape: int | None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read a header that must say this type and shape, and return both; the stream is then at the first byte of data.

    Parameters
    ----------
    stream : binary file
        At the first byte of the array.
    dtype : str
        NumPy's letters and size, such as "<f8"; "<U" is text of any width.
    *shape : int or None
        None is any length.

    Raises
    ------
    BadArray
        If the header is damaged, or says another type or shape. Nothing is ever unpickled.
    """
    try:
        version = np.lib.format.read_magic(stream)
        length = stream.read(2)
        text = stream.read(int.from_bytes(length, "little"))
        have, _, kind = np.lib.format.read_array_header_1_0(io.BytesIO(length + text))
    except Exception as error:  # which ones NumPy raises at a header that is damaged is its own affair
        raise BadArray("is damaged, or not a plain array") from error
    fits = len(have) == len(shape) and all(want in (None, got) for want, got in zip(shape, have, strict=True))
    typed = kind.str == dtype or (dtype == "<U" and kind.str.startswith("<U"))
    if version != (1, 0) or not fits or not typed:
        raise BadArray("has the wrong shape or type")
    said = f"{{'descr': {kind.str!r}, 'fortran_order': False, 'shape': {have}, }}"
    if text != said.encode().ljust(len(text) - 1) + b"\n":  # NumPy would take other words for the same, too
        raise BadArray("is damaged, or not a plain array")
    return have, kind


def array_from(data: bytes, dtype: str, *shape: int | None) -> NDArray[Any]:
    """The array that these bytes are, a read-only view of them; it must be of this type and shape, or `BadArray`."""
    stream = io.BytesIO(data)
    have, kind = read_header(stream, dtype, *shape)
    if len(data) != stream.tell() + math.prod(have) * kind.itemsize:
        raise BadArray("is cut short or too long")
    return np.frombuffer(data, kind, offset=stream.tell()).reshape(have)


def array_parts(array: NDArray[Any]) -> tuple[bytes, memoryview]:
    """Header and data of a plain ``.npy`` file, in an order of bytes that any machine will read."""
    header = io.BytesIO()
    portable = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(portable))
    return header.getvalue(), portable.reshape(-1).view(np.uint8).data
