"""Disks: where files lie, be it this machine or a filesystem that pyarrow reaches by a URI.

What pyarrow says when it cannot reach one is not repeated: it may have credentials in it. Paths of another filesystem
are told from the root of the URI, without a slash before them.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from ....errors import InvalidInput
from ..cells.arrow import Arrow
from ..messages import shown, without_secrets


@dataclass(frozen=True, eq=False)
class Place:
    """Where a file lies, and how it is opened."""

    name: str  # as errors show it
    address: str  # a path, or URI, that opens it from any process
    order: str  # by which files are sorted: alike wherever they lie
    folders: tuple[str, ...]  # above it, the highest first
    path: str  # on its disk
    filesystem: Arrow = None  # None is this machine

    def opened(self) -> Arrow:
        """Open the file to be read in any order."""
        if self.filesystem is None:
            return pa.OSFile(os.fsencode(self.path))
        with reached(self.name):
            return self.filesystem.open_input_file(self.path)

    def mapped(self) -> Arrow:
        """Open the file as memory, where it can be: another filesystem's is read."""
        return pa.memory_map(os.fsencode(self.path)) if self.filesystem is None else self.opened()


class Entry(NamedTuple):
    """What a folder holds."""

    name: str
    is_folder: bool
    is_link: bool


class Disk(Protocol):
    """What finding files needs to know."""

    def is_folder(self, path: str) -> bool | None:
        """Return whether this is a folder; None if there is nothing."""

    def entries(self, folder: str) -> list[Entry]:
        """Return what a folder holds, but not what is in folders below it."""

    def place(self, path: str) -> Place:
        """Return the place of a file, which is there."""


class Local:
    """The disk of this machine."""

    def is_folder(self, path: str) -> bool | None:
        try:
            return stat.S_ISDIR(os.stat(path or ".").st_mode)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # of a name with a zero byte
            return None
        except OSError as error:
            raise unreadable(shown(path), error) from None

    def entries(self, folder: str) -> list[Entry]:
        try:
            with os.scandir(folder or ".") as found:
                return [Entry(one.name, one.is_dir(), one.is_symlink()) for one in found]
        except OSError as error:
            raise unreadable(shown(folder), error) from None

    def place(self, path: str) -> Place:
        name = shown(path)
        try:
            found = os.stat(path)
        except OSError as error:
            raise unreadable(name, error) from None
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for, with the lock held
            raise InvalidInput(f"{name} is not a plain file: a table is read more than once, write it to one")
        if not found.st_size:
            raise InvalidInput(f"{name} is empty")
        whole = os.path.abspath(path)
        return Place(name, whole, whole, tuple(os.path.dirname(whole).split(os.sep)), path)


class Remote:
    """A filesystem that pyarrow knows, with pyarrow's configuration."""

    def __init__(self, uri: str) -> None:
        said = urlsplit(uri)
        self.start = unquote(said.path).strip("/")
        self._site, self._query = f"{said.scheme}://{said.netloc}/", f"?{said.query}" * bool(said.query)
        with reached(without_secrets(uri)):
            self._filesystem, path = from_uri(self._address(self.start))
        self._root = path.removesuffix(self.start)  # of many filesystems the name of a bucket

    def is_folder(self, path: str) -> bool | None:
        with reached(self._name(path)):
            kind = self._filesystem.get_file_info(self._inside(path)).type
        return None if kind == pyarrow.fs.FileType.NotFound else kind == pyarrow.fs.FileType.Directory

    def entries(self, folder: str) -> list[Entry]:
        with reached(self._name(folder)):
            found = self._filesystem.get_file_info(pyarrow.fs.FileSelector(self._inside(folder)))
        return [Entry(one.base_name, one.type == pyarrow.fs.FileType.Directory, False) for one in found]

    def place(self, path: str) -> Place:
        folders = tuple(path.split("/")[:-1])
        order, inside = self._site + path, self._inside(path)
        return Place(self._name(path), self._address(path), order, folders, inside, self._filesystem)

    def _inside(self, path: str) -> str:
        root = self._root if not self._root or self._root.endswith("/") else f"{self._root}/"
        return root + path if path else self._root

    def _address(self, path: str) -> str:
        return self._site + quote(path, safe="/=") + self._query

    def _name(self, path: str) -> str:
        return shown(without_secrets(self._site + path))


def from_uri(uri: str) -> tuple[Arrow, str]:
    """Return the filesystem of a URI, and the path in it."""
    found: tuple[Arrow, str] = pyarrow.fs.FileSystem.from_uri(uri)
    return found


def disk_of(word: str) -> tuple[Disk, str]:
    """Return the disk that a path or URI is on, and the path there."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", word):
        return Local(), word
    if word.lower().startswith("file://"):
        said = urlsplit(word)
        with reached(shown(word)):
            return Local(), from_uri(f"file://{said.netloc}{quote(unquote(said.path))}")[1]
    disk = Remote(word)
    return disk, disk.start


def place_at(address: str) -> Place:
    """Return the place of a file by the address that another process had of it."""
    disk, path = disk_of(address)
    return disk.place(path)


@contextmanager
def reached(name: str) -> Iterator[None]:
    """Replace what pyarrow says about a filesystem that it cannot reach."""
    try:
        yield
    except OSError as error:
        raise unreadable(name, error) from None
    except (pa.ArrowException, ValueError):
        known = "file://, s3://, gs://, abfs:// or hdfs://"
        raise InvalidInput(f"{name} is no address that pyarrow can read; it must begin with {known}") from None


def unreadable(name: str, error: OSError) -> InvalidInput:
    """Return the refusal of a file or folder that the system does not let us read."""
    if isinstance(error, FileNotFoundError):
        return InvalidInput(f"no such file: {name}")
    if error.errno:
        return InvalidInput(f"{name} cannot be read: {os.strerror(error.errno)}")
    return InvalidInput(f"{name} cannot be reached; check the address, the network, and what pyarrow has to know of it")
