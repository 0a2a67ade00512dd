"""Finding: which files paths, globs, folders and URIs stand for, sorted by their full paths."""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ....errors import InvalidInput
from ..messages import shown, without_secrets
from .disks import Disk, Entry, Place, disk_of

_LEFT_OUT = (".", "_")  # how names begin that are no tables: of tools, or not finished
_ANY_DEPTH = "**"


def found_places(words: Sequence[str | Path], endings: tuple[str, ...]) -> list[Place]:
    """Return the files that words stand for, sorted; ``endings`` are those of tables.

    A path that is there is never a glob. In a glob ``**`` stands for folders at any depth, and the rest is as in a
    shell. A folder stands for the tables in it and below it.
    """
    if not words or "" in words:
        raise InvalidInput("a table must be at least one path, and no path may be empty")
    found = [place for word in words for place in _of_word(str(word), endings)]
    found.sort(key=lambda place: place.order)
    seen = dict[str, Place]()
    for place in found:
        here = os.path.realpath(place.path) if place.filesystem is None else place.address
        if here in seen:
            raise InvalidInput(f"{place.name} and {seen[here].name} are the same file: name each file once")
        seen[here] = place
    return found


def _of_word(word: str, endings: tuple[str, ...]) -> list[Place]:
    disk, path = disk_of(word)
    is_folder = disk.is_folder(path)
    name = shown(without_secrets(word))
    if is_folder is not None:
        paths = [*_below(disk, path, endings)] if is_folder else [path]
        if not paths:
            raise InvalidInput(f"{name} has no tables in it: no file that ends in one of {', '.join(endings)}")
    elif _is_glob(path):
        some = _matching(disk, "/" if path.startswith("/") else "", _segments(path))
        paths = [one for match in some for one in _files(disk, match, endings)]
        if not paths:
            raise InvalidInput(f"no file matches {name}")
    else:
        raise InvalidInput(f"no such file: {name}")
    return [disk.place(one) for one in dict.fromkeys(paths)]


def _is_glob(path: str) -> bool:
    return any(mark in path for mark in "*?[")


def _segments(pattern: str) -> list[str]:
    """Return the parts of a pattern; a folder stands for all below it, so ``**`` at the end says nothing more."""
    segments = [part for part in pattern.split("/") if part]
    while segments and segments[-1] == _ANY_DEPTH:
        segments.pop()
    return segments


def _files(disk: Disk, path: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Yield a file, or the tables in a folder and below it."""
    if disk.is_folder(path):
        yield from _below(disk, path, endings)
    else:
        yield path


def _below(disk: Disk, folder: str, endings: tuple[str, ...]) -> Iterator[str]:
    for entry in disk.entries(folder):
        path = _joined(folder, entry.name)
        if _entered(entry):
            yield from _below(disk, path, endings)
        elif not entry.is_folder and entry.name.lower().endswith(endings) and not entry.name.startswith(_LEFT_OUT):
            yield path


def _matching(disk: Disk, base: str, segments: Sequence[str]) -> Iterator[str]:
    """Yield what is below ``base`` and matches a pattern."""
    if not segments:
        yield base
        return
    first, rest = segments[0], segments[1:]
    if first == _ANY_DEPTH:
        yield from _matching(disk, base, rest)
        for entry in filter(_entered, disk.entries(base)):
            yield from _matching(disk, _joined(base, entry.name), segments)
    elif _is_glob(first):
        for entry in disk.entries(base):
            if _matches(entry, first) and (entry.is_folder or not rest):
                yield from _matching(disk, _joined(base, entry.name), rest)
    elif disk.is_folder(path := _joined(base, first)) is not None:
        yield from _matching(disk, path, rest) if not rest or disk.is_folder(path) else ()


def _matches(entry: Entry, pattern: str) -> bool:
    hidden = entry.name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatch.fnmatchcase(entry.name, pattern)


def _entered(entry: Entry) -> bool:
    """Return whether to look into a folder that nobody named. A link could lead to rows that are there already."""
    return entry.is_folder and not entry.is_link and not entry.name.startswith(_LEFT_OUT)


def _joined(folder: str, name: str) -> str:
    return f"{folder}{name}" if not folder or folder.endswith("/") else f"{folder}/{name}"
