"""Archives: plain arrays and JSON in one file, on disk or in memory.

An archive is a zip file of ``model.json`` and uncompressed ``.npy`` members. Nothing is pickled and nothing in a file
names code to run, so a file from elsewhere can at worst be refused. Every array that is read is checked against the
shape and type that it must have, before memory is set aside for it. A file on disk is replaced in one step: whoever is
interrupted keeps the old one.
"""

import json
import math
import os
import struct
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidFile, InvalidSetting
from .drafts import drafted
from .npy import BadArray, array_parts, read_header

FORMAT = "expunge model"
VERSION = 5

_HEADER_BYTES = 2**24  # more than any model.json has

# What zipfile, json and NumPy raise when they read damaged bytes.
_DAMAGE = (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError, NotImplementedError, RuntimeError, struct.error)


def dump(file: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
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


def write(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an archive in place of whatever was at ``path``, in one step and synced."""
    with drafted(Path(path)) as new:
        with os.fdopen(os.dup(new.fd), "wb") as file:
            dump(file, header, arrays)
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
                have, kind = read_header(member, dtype, *shape)
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

    def refuse(self, reason: str) -> InvalidFile:
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

    def _invalid(self, what: str) -> InvalidFile:
        return InvalidFile(f"{self._name} {what}")
