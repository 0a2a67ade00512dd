"""Archives: plain arrays and JSON in one file, on disk or in memory.

An archive is a zip file of ``model.json`` and uncompressed ``.npy`` members. Nothing is pickled and nothing in a file
names code to run, so an untrusted file can at worst be refused. Every array is checked against the expected shape and
type before memory is allocated for it. A file on disk is replaced atomically: an interrupted save keeps the old one.
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

FORMAT = "expunge model"
VERSION = 6

_HEADER_BYTES = 2**24  # the maximum size of model.json

# Exceptions of zipfile, json and NumPy when they read damaged bytes.
_DAMAGE = (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError, NotImplementedError, RuntimeError, struct.error)

_NPY_MAGIC = np.lib.format.magic(1, 0)

# Exactly what NumPy writes; NumPy itself reads variations as well. It also reads with Python's parser, which fails in
# one thread while another parses (CPython 3.11): a sound file would be called damaged.
_NPY_HEADER = re.compile(
    rb"\{'descr': '(?P<kind>[<|][bfiuU](?:0|[1-9]\d{0,7}))', 'fortran_order': False, "
    rb"'shape': \((?P<shape>|(?:LENGTH),|(?:LENGTH)(?:, (?:LENGTH))+)\), \} *\n".replace(b"LENGTH", rb"0|[1-9]\d{0,18}")
)


class BadArray(ValueError):
    """Bytes that are not the expected array. The message continues a sentence: "x.npy is damaged"."""


def dump_archive(file: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an archive to an open file."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **header}, indent=1)
    if len(text) > _HEADER_BYTES:  # it could not be read again
        raise InvalidSetting(
            f"the names and parameters of the model take {len(text):,} characters, at most {_HEADER_BYTES:,} can be "
            "saved; pass parameters of many numbers as NumPy arrays"
        )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("model.json"), text)  # without a time: equal models give equal bytes
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                for part in array_parts(array):
                    member.write(part)


def write_archive(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an archive to a path atomically and durably, replacing any file there."""
    with open_draft(Path(path)) as new:
        with os.fdopen(os.dup(new.fd), "wb") as file:
            dump_archive(file, header, arrays)
        new.commit()


class Archive:
    """An archive that is being read. Any error in it raises `InvalidFile`.

    ``source`` is a path, or an open file that the caller closes; ``name`` is its name in errors.
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
        """Return a value of the header, which must have this type."""
        value = self.header.get(name)
        if not isinstance(value, kind) or (
            isinstance(value, int) and kind is int and (isinstance(value, bool) or value < 0)
        ):
            raise self._invalid(f"has no valid {name!r}")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> Any:
        """Return a value of the header, which must be one of ``allowed``."""
        if self.header.get(name) not in allowed:
            raise self._invalid(f"has no valid {name!r}")
        return self.header[name]

    def array(self, name: str, dtype: str, *shape: int | None) -> NDArray[Any]:
        """Read an array, which must have this type (NumPy's letters and size) and shape; None is any length."""
        try:
            with self._member(f"{name}.npy") as member:
                actual, kind = read_npy_header(member, dtype, *shape)
                size = math.prod(actual) * kind.itemsize
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
        return np.frombuffer(data, dtype=kind).reshape(actual)

    def inconsistency(self, reason: str) -> InvalidFile:
        """Return an error that names the file."""
        return self._invalid(f"is inconsistent: {reason}")

    def _read_header(self) -> dict[str, Any]:
        with self._member("model.json") as member:
            header = json.loads(member.read(_HEADER_BYTES))
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise self._invalid("is not a saved model")
        if header.get("version") != VERSION:
            raise self._invalid(
                f"has version {header.get('version')!r}; this release reads version {VERSION} only: "
                "use the release that wrote it, or train the model again"
            )
        return header

    def _member(self, name: str) -> zipfile.ZipExtFile:
        info = self._zip.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED:  # never written, and a small one can expand to a huge one
            raise self._invalid("has compressed members")
        member = self._zip.open(info)
        assert isinstance(member, zipfile.ZipExtFile)
        return member

    def _invalid(self, problem: str) -> InvalidFile:
        return InvalidFile(f"{self._name} {problem}")


def read_npy_header(stream: Any, dtype: str, *shape: int | None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read a header, check its type and shape, and return both; the stream is then at the first byte of data.

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
        If the header is damaged, or has another type or shape. Nothing is ever unpickled.
    """
    magic, length = stream.read(len(_NPY_MAGIC)), stream.read(2)
    header = _NPY_HEADER.fullmatch(stream.read(int.from_bytes(length, "little")))
    if magic != _NPY_MAGIC or header is None:
        raise BadArray("is damaged, or not a plain array")
    kind = header["kind"].decode()
    actual = tuple(int(length) for length in header["shape"].split(b",") if length)
    fits = len(actual) == len(shape) and all(want in (None, got) for want, got in zip(shape, actual, strict=True))
    typed = kind == dtype or (dtype == "<U" and kind.startswith("<U"))
    if not fits or not typed:
        raise BadArray("has the wrong shape or type")
    return actual, np.dtype(kind)


def parse_array(data: bytes, dtype: str, *shape: int | None) -> NDArray[Any]:
    """Return a read-only array view of the bytes of a ``.npy`` file; raise `BadArray` for another type or shape."""
    stream = io.BytesIO(data)
    actual, kind = read_npy_header(stream, dtype, *shape)
    if len(data) != stream.tell() + math.prod(actual) * kind.itemsize:
        raise BadArray("is cut short or too long")
    return np.frombuffer(data, kind, offset=stream.tell()).reshape(actual)


def array_parts(array: NDArray[Any]) -> tuple[bytes, memoryview]:
    """Return header and data of a plain ``.npy`` file, little-endian on every machine."""
    portable = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return _npy_header(portable.dtype.str, portable.shape), portable.reshape(-1).view(np.uint8).data


def array_file_size(dtype: str, *shape: int) -> int:
    """Return the length of a plain ``.npy`` file with an array of this type and shape."""
    return len(_npy_header(dtype, shape)) + math.prod(shape) * np.dtype(dtype).itemsize


@lru_cache(maxsize=64)
def _npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    return header.getvalue()
