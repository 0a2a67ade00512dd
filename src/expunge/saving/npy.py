"""Plain ``.npy`` arrays: headers that are checked before anything is read, and the parts to be written."""

import io
import math
import re
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAGIC = np.lib.format.magic(1, 0)

# What NumPy writes, to the letter: it would read other words for the same, too. And it reads them by Python's parser,
# which fails in one thread while another parses (CPython 3.11): a sound file would be called damaged.
_HEADER = re.compile(
    rb"\{'descr': '(?P<kind>[<|][bfiuU](?:0|[1-9]\d{0,7}))', 'fortran_order': False, "
    rb"'shape': \((?P<shape>|(?:LENGTH),|(?:LENGTH)(?:, (?:LENGTH))+)\), \} *\n".replace(b"LENGTH", rb"0|[1-9]\d{0,18}")
)


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
    magic, length = stream.read(len(_MAGIC)), stream.read(2)
    said = _HEADER.fullmatch(stream.read(int.from_bytes(length, "little")))
    if magic != _MAGIC or said is None:
        raise BadArray("is damaged, or not a plain array")
    kind = said["kind"].decode()
    have = tuple(int(length) for length in said["shape"].split(b",") if length)
    fits = len(have) == len(shape) and all(want in (None, got) for want, got in zip(shape, have, strict=True))
    typed = kind == dtype or (dtype == "<U" and kind.startswith("<U"))
    if not fits or not typed:
        raise BadArray("has the wrong shape or type")
    return have, np.dtype(kind)


def array_from(data: bytes, dtype: str, *shape: int | None) -> NDArray[Any]:
    """The array that these bytes are, a read-only view of them; it must be of this type and shape, or `BadArray`."""
    stream = io.BytesIO(data)
    have, kind = read_header(stream, dtype, *shape)
    if len(data) != stream.tell() + math.prod(have) * kind.itemsize:
        raise BadArray("is cut short or too long")
    return np.frombuffer(data, kind, offset=stream.tell()).reshape(have)


def array_parts(array: NDArray[Any]) -> tuple[bytes, memoryview]:
    """Header and data of a plain ``.npy`` file, in an order of bytes that any machine will read."""
    portable = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return _header(portable.dtype.str, portable.shape), portable.reshape(-1).view(np.uint8).data


def array_bytes(dtype: str, *shape: int) -> int:
    """The length of a plain ``.npy`` file of an array of this type and shape."""
    return len(_header(dtype, shape)) + math.prod(shape) * np.dtype(dtype).itemsize


@lru_cache(maxsize=64)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    return header.getvalue()
