"""Archives: plain arrays and JSON in one file, on disk or in memory.

An archive is a zip file of ``model.json`` and uncompressed ``.npy`` members. Nothing is pickled and nothing in a file
names code to run, so a file from elsewhere can at worst be refused. Every array that is read is checked against the
shape and type that it must have, before memory is set aside for it. A file on disk is replaced in one step: whoever is
interrupted keeps the old one.
"""

import io
import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidFile, InvalidSetting
from .drafts import open_draft

# MERGED npy: Plain ``.npy`` arrays: headers that are checked before anything is read, and the parts to be written.


_NPY_MAGIC = np.lib.format.magic(1, 0)

# What NumPy writes, to the letter: it would read other words for the same, too. And it reads them by Python's parser,
# which fails in one thread while another parses (CPython 3.11): a sound file would be called damaged.
_NPY_HEADER = re.compile(
    rb"\{'descr': '(?P<kind>[<|][bfiuU](?:0|[1-9]\d{0,7}))', 'fortran_order': False, "
    rb"'shape': \((?P<shape>|(?:LENGTH),|(?:LENGTH)(?:, (?:LENGTH))+)\), \} *\n".replace(b"LENGTH", rb"0|[1-9]\d{0,18}")
)


class BadArray(ValueError):
    """Bytes that are not the array that they must be; its text goes on after a name: "x.npy is damaged"."""


def read_npy_header(stream: Any, dtype: str, *shape: int | None) -> tuple[tuple[int, ...], np.dtype[Any]]:
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
    magic, length = stream.read(len(_NPY_MAGIC)), stream.read(2)
    said = _NPY_HEADER.fullmatch(stream.read(int.from_bytes(length, "little")))
    if magic != _NPY_MAGIC or said is None:
        raise BadArray("is damaged, or not a plain array")
    kind = said["kind"].decode()
    have = tuple(int(length) for length in said["shape"].split(b",") if length)
    fits = len(have) == len(shape) and all(want in (None, got) for want, got in zip(shape, have, strict=True))
    typed = kind == dtype or (dtype == "<U" and kind.startswith("<U"))
    if not fits or not typed:
        raise BadArray("has the wrong shape or type")
    return have, np.dtype(kind)


def parse_array(data: bytes, dtype: str, *shape: int | None) -> NDArray[Any]:
    """The array that these bytes are, a read-only view of them; it must be of this type and shape, or `BadArray`."""
    stream = io.BytesIO(data)
    have, kind = read_npy_header(stream, dtype, *shape)
    if len(data) != stream.tell() + math.prod(have) * kind.itemsize:
        raise BadArray("is cut short or too long")
    return np.frombuffer(data, kind, offset=stream.tell()).reshape(have)


def array_parts(array: NDArray[Any]) -> tuple[bytes, memoryview]:
    """Header and data of a plain ``.npy`` file, in an order of bytes that any machine will read."""
    portable = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return _npy_header(portable.dtype.str, portable.shape), portable.reshape(-1).view(np.uint8).data


def array_file_size(dtype: str, *shape: int) -> int:
    """The length of a plain ``.npy`` file of an array of this type and shape."""
    return len(_npy_header(dtype, shape)) + math.prod(shape) * np.dtype(dtype).itemsize


@lru_cache(maxsize=64)
def _npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    return header.getvalue()


FORMAT = "expunge model"
VERSION = 5

_HEADER_BYTES = 2**24  # more than any model.json has

# What zipfile, json and NumPy raise when they read damaged bytes.
_DAMAGE = (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError, NotImplementedError, RuntimeError, struct.error)


def dump_archive(file: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an archive into an open file."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **header}, indent=1)
    if len(text) > _HEADER_BYTES:  # it could not be read again
        raise InvalidSetting(
            f"the names and parameters of the model take {len(text):,} characters, a file has room for "
            f"{_HEADER_BYTES:,}; pass parameters of many numbers as NumPy arrays"
        )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("model.json", text)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                for part in array_parts(array):
                    member.write(part)


def write_archive(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an archive in place of whatever was at ``path``, in one step and synced."""
    with open_draft(Path(path)) as new:
        with os.fdopen(os.dup(new.fd), "wb") as file:
            dump_archive(file, header, arrays)
        new.commit()


class Archive:
    """A file that is being read. Anything that is not as it must be is an `InvalidFile`.

    ``source`` is a path, or an open file that whoever opened it closes; ``name`` is what errors call it.
    """

    def __init__(self, source: str | os.PathLike[str] | IO[bytes], *, name: str | None = None) -> None:
        with ExitStack() as opened:
            if isinstance(source, str | os.PathLike):
                name, source = name or os.fspath(source), opened.enter_context(Path(source).open("rb"))
            self._name = name or "the archive"
            try:
                self._size = source.seek(0, os.SEEK_END)
                self._zip = opened.enter_context(zipfile.ZipFile(source))
                self.header = self._read_header()
            except InvalidFile:
                raise
            except _DAMAGE as error:
                raise self._invalid("is not a saved model, or is damaged") from error
            self._opened = opened.pop_all()

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def get(self, name: str, kind: type) -> Any:
        """A value of the header, of this type."""
        value = self.header.get(name)
        if not isinstance(value, kind) or (
            isinstance(value, int) and kind is int and (isinstance(value, bool) or value < 0)
        ):
            raise self._invalid(f"has no valid {name!r}")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> Any:
        """A value of the header that is one of these."""
        if self.header.get(name) not in allowed:
            raise self._invalid(f"has no valid {name!r}")
        return self.header[name]

    def array(self, name: str, dtype: str, *shape: int | None) -> NDArray[Any]:
        """The array of this name, type (one of NumPy's letters and sizes) and shape; None is any length."""
        try:
            with self._member(f"{name}.npy") as member:
                have, kind = read_npy_header(member, dtype, *shape)
                size = math.prod(have) * kind.itemsize
                if size > self._size:
                    raise BadArray("is cut short")
                data = bytearray(size)
                if member.readinto(data) != size or member.read(1):  # reading to the end checks the checksum
                    raise BadArray("is cut short or too long")
        except InvalidFile:
            raise
        except BadArray as error:
            raise self._invalid(f"has {name!r}, which {error}") from error
        except _DAMAGE as error:
            raise self._invalid(f"lacks {name!r}, or it is damaged") from error
        return np.frombuffer(data, dtype=kind).reshape(have)

    def inconsistency(self, reason: str) -> InvalidFile:
        """An error that names the file."""
        return self._invalid(f"is inconsistent: {reason}")

    def _read_header(self) -> dict[str, Any]:
        with self._member("model.json") as member:
            header = json.loads(member.read(_HEADER_BYTES))
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise self._invalid("is not a saved model")
        if header.get("version") != VERSION:
            raise self._invalid(
                f"has version {header.get('version')!r}; this release reads version {VERSION} only: "
                "use the release that made it, or train the model anew"
            )
        return header

    def _member(self, name: str) -> zipfile.ZipExtFile:
        info = self._zip.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED:  # we write none, and a small one can claim to be huge
            raise self._invalid("has compressed members")
        member = self._zip.open(info)
        assert isinstance(member, zipfile.ZipExtFile)
        return member

    def _invalid(self, problem: str) -> InvalidFile:
        return InvalidFile(f"{self._name} {problem}")
