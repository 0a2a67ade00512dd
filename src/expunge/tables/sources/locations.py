"""Locations: which files paths, globs, folders and URIs stand for, on this machine or on a filesystem of pyarrow.

pyarrow's errors about a filesystem are replaced, because they may contain credentials. Paths on another filesystem are
relative to the root of the URI, without a leading slash.
"""

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from ...errors import InvalidInput
from ..cells import Arrow
from ..messages import hide_secrets, printable_text

_HIDDEN_PREFIXES = (".", "_")  # of names that are not tables: files of tools, or unfinished ones
_ANY_DEPTH = "**"


@dataclass(frozen=True, eq=False)
class FileLocation:
    """The location of a file, and how to open it."""

    name: str  # as errors show it
    address: str  # a path or URI that opens it from any process
    sort_key: str  # gives the same order on every filesystem
    folders: tuple[str, ...]  # above it, the highest first
    path: str  # on its filesystem
    filesystem: Arrow = None  # None: this machine

    def open_file(self) -> Arrow:
        """Open the file for random access."""
        if self.filesystem is None:
            return pa.OSFile(os.fsencode(self.path))
        with replace_access_errors(self.name):
            return self.filesystem.open_input_file(self.path)

    def map_file(self) -> Arrow:
        """Map the file into memory; a file on another filesystem is opened instead."""
        return pa.memory_map(os.fsencode(self.path)) if self.filesystem is None else self.open_file()


class DirectoryEntry(NamedTuple):
    """A file or folder in a folder."""

    name: str
    is_folder: bool
    is_link: bool


class FileSystem(Protocol):
    """The operations that finding files needs."""

    def is_folder(self, path: str) -> bool | None:
        """Return whether this is a folder; None if nothing exists there."""

    def list_folder(self, folder: str) -> list[DirectoryEntry]:
        """Return the entries of a folder, not recursively."""

    def locate(self, path: str) -> FileLocation:
        """Return the location of an existing file."""


class LocalFileSystem:
    """The filesystem of this machine."""

    def is_folder(self, path: str) -> bool | None:
        try:
            return stat.S_ISDIR(os.stat(path or ".").st_mode)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name with a zero byte
            return None
        except OSError as error:
            raise make_access_error(printable_text(path), error) from None

    def list_folder(self, folder: str) -> list[DirectoryEntry]:
        try:
            with os.scandir(folder or ".") as entries:
                return [DirectoryEntry(entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries]
        except OSError as error:
            raise make_access_error(printable_text(folder), error) from None

    def locate(self, path: str) -> FileLocation:
        name = printable_text(path)
        try:
            status = os.stat(path)
        except OSError as error:
            raise make_access_error(name, error) from None
        if not stat.S_ISREG(status.st_mode):  # a pipe could block while the lock is held
            raise InvalidInput(f"{name} is not a regular file; write the table to one: it is read more than once")
        if not status.st_size:
            raise InvalidInput(f"{name} is empty")
        whole = os.path.abspath(path)
        return FileLocation(name, whole, whole, tuple(os.path.dirname(whole).split(os.sep)), path)


class RemoteFileSystem:
    """A filesystem that pyarrow supports, with pyarrow's configuration."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        self.start_path = unquote(parts.path).strip("/")
        self._site, self._query = f"{parts.scheme}://{parts.netloc}/", f"?{parts.query}" * bool(parts.query)
        with replace_access_errors(hide_secrets(uri)):
            self._filesystem, path = from_uri(self._make_uri(self.start_path))
        self._root = path.removesuffix(self.start_path)  # often the name of a bucket

    def is_folder(self, path: str) -> bool | None:
        with replace_access_errors(self._display_name(path)):
            kind = self._filesystem.get_file_info(self._full_path(path)).type
        return None if kind == pyarrow.fs.FileType.NotFound else kind == pyarrow.fs.FileType.Directory

    def list_folder(self, folder: str) -> list[DirectoryEntry]:
        with replace_access_errors(self._display_name(folder)):
            entries = self._filesystem.get_file_info(pyarrow.fs.FileSelector(self._full_path(folder)))
        return [DirectoryEntry(info.base_name, info.type == pyarrow.fs.FileType.Directory, False) for info in entries]

    def locate(self, path: str) -> FileLocation:
        name, address, sort_key = self._display_name(path), self._make_uri(path), self._site + path
        folders = tuple(path.split("/")[:-1])
        return FileLocation(name, address, sort_key, folders, self._full_path(path), self._filesystem)

    def _full_path(self, path: str) -> str:
        root = self._root if not self._root or self._root.endswith("/") else f"{self._root}/"
        return root + path if path else self._root

    def _make_uri(self, path: str) -> str:
        return self._site + quote(path, safe="/=") + self._query

    def _display_name(self, path: str) -> str:
        return printable_text(hide_secrets(self._site + path))


def from_uri(uri: str) -> tuple[Arrow, str]:
    """Return the filesystem of a URI, and the path in it."""
    filesystem_and_path: tuple[Arrow, str] = pyarrow.fs.FileSystem.from_uri(uri)
    return filesystem_and_path


def find_file_system(address: str) -> tuple[FileSystem, str]:
    """Return the filesystem of a path or URI, and the path there."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", address):
        return LocalFileSystem(), address
    if address.lower().startswith("file://"):
        parts = urlsplit(address)
        with replace_access_errors(printable_text(address)):
            return LocalFileSystem(), from_uri(f"file://{parts.netloc}{quote(unquote(parts.path))}")[1]
    remote = RemoteFileSystem(address)
    return remote, remote.start_path


def locate_file(address: str) -> FileLocation:
    """Return the location of a file by its `FileLocation.address`."""
    filesystem, path = find_file_system(address)
    return filesystem.locate(path)


@contextmanager
def replace_access_errors(name: str) -> Iterator[None]:
    """Replace errors of pyarrow about a filesystem, which may contain credentials."""
    try:
        yield
    except OSError as error:
        raise make_access_error(name, error) from None
    except (pa.ArrowException, ValueError):
        known = "file://, s3://, gs://, abfs:// or hdfs://"
        raise InvalidInput(f"{name} is not an address that pyarrow can read; it must begin with {known}") from None


def make_access_error(name: str, error: OSError) -> InvalidInput:
    """Return the error for a file or folder that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return InvalidInput(f"no such file: {name}")
    if error.errno:
        return InvalidInput(f"{name} cannot be read: {os.strerror(error.errno)}")
    return InvalidInput(f"{name} cannot be reached; check the address, the network and pyarrow's configuration for it")


def find_files(paths: Sequence[str | Path], endings: tuple[str, ...]) -> list[FileLocation]:
    """Return the files that paths stand for, sorted by full path; ``endings`` are those of tables.

    An existing path is never a glob. In a glob ``**`` stands for folders at any depth; the rest is as in a shell. A
    folder stands for the tables in it and below it.
    """
    if not paths or "" in paths:
        raise InvalidInput("a table must be at least one path, and no path may be empty")
    places = [place for path in paths for place in _expand_path(str(path), endings)]
    places.sort(key=lambda place: place.sort_key)
    seen = dict[str, FileLocation]()
    for place in places:
        identity = os.path.realpath(place.path) if place.filesystem is None else place.address
        if identity in seen:
            raise InvalidInput(f"{place.name} and {seen[identity].name} are the same file: name each file once")
        seen[identity] = place
    return places


def _expand_path(address: str, endings: tuple[str, ...]) -> list[FileLocation]:
    disk, path = find_file_system(address)
    is_folder = disk.is_folder(path)
    name = printable_text(hide_secrets(address))
    if is_folder is not None:
        paths = [*_list_tables_below(disk, path, endings)] if is_folder else [path]
        if not paths:
            raise InvalidInput(f"{name} has no tables in it: no file that ends in one of {', '.join(endings)}")
    elif _is_glob(path):
        matches = _match_segments(disk, "/" if path.startswith("/") else "", _split_pattern(path))
        paths = [table for match in matches for table in _list_tables(disk, match, endings)]
        if not paths:
            raise InvalidInput(f"no file matches {name}")
    else:
        raise InvalidInput(f"no such file: {name}")
    return [disk.locate(table) for table in dict.fromkeys(paths)]


def _is_glob(path: str) -> bool:
    return any(mark in path for mark in "*?[")


def _split_pattern(pattern: str) -> list[str]:
    """Return the segments of a pattern, without a final ``**``: a folder already stands for all tables below it."""
    segments = [part for part in pattern.split("/") if part]
    while segments and segments[-1] == _ANY_DEPTH:
        segments.pop()
    return segments


def _list_tables(disk: FileSystem, path: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Yield a file, or the tables in a folder and below it."""
    if disk.is_folder(path):
        yield from _list_tables_below(disk, path, endings)
    else:
        yield path


def _list_tables_below(disk: FileSystem, folder: str, endings: tuple[str, ...]) -> Iterator[str]:
    for entry in disk.list_folder(folder):
        path = _join_path(folder, entry.name)
        if _is_searched(entry):
            yield from _list_tables_below(disk, path, endings)
        elif (
            not entry.is_folder and entry.name.lower().endswith(endings) and not entry.name.startswith(_HIDDEN_PREFIXES)
        ):
            yield path


def _match_segments(disk: FileSystem, base: str, segments: Sequence[str]) -> Iterator[str]:
    """Yield the paths below ``base`` that match a pattern."""
    if not segments:
        yield base
        return
    first, rest = segments[0], segments[1:]
    if first == _ANY_DEPTH:
        yield from _match_segments(disk, base, rest)
        for entry in filter(_is_searched, disk.list_folder(base)):
            yield from _match_segments(disk, _join_path(base, entry.name), segments)
    elif _is_glob(first):
        for entry in disk.list_folder(base):
            if _matches_pattern(entry, first) and (entry.is_folder or not rest):
                yield from _match_segments(disk, _join_path(base, entry.name), rest)
    elif disk.is_folder(path := _join_path(base, first)) is not None:
        yield from _match_segments(disk, path, rest) if not rest or disk.is_folder(path) else ()


def _matches_pattern(entry: DirectoryEntry, pattern: str) -> bool:
    hidden = entry.name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatch.fnmatchcase(entry.name, pattern)


def _is_searched(entry: DirectoryEntry) -> bool:
    """Return whether to search a folder that was not named itself. A link could lead to rows that are read already."""
    return entry.is_folder and not entry.is_link and not entry.name.startswith(_HIDDEN_PREFIXES)


def _join_path(folder: str, name: str) -> str:
    return f"{folder}{name}" if not folder or folder.endswith("/") else f"{folder}/{name}"
