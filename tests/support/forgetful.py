"""A disk that forgets what was not synced when the power fails.

It does every operation for real but for the sync, and keeps a journal of what a power cut would leave. What a file
holds and what a folder calls it last separately, each by a sync of its own.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from expunge.saving import files

SECTOR = 512  # bytes that a disk writes whole or not at all


@dataclass(frozen=True)
class Operation:
    """One call: what, on which path, and whether it needs room on the disk."""

    name: str
    path: Path
    grows: bool = False
    size: int = 0  # bytes to be written

    def __str__(self) -> str:
        return f"{self.name} {self.path.name}"

    @property
    def changes(self) -> bool:
        """Whether another process would see a difference."""
        return self.grows or self.name in ("write", "truncate", "rename", "unlink", "rmdir")


@dataclass(frozen=True)
class Write:
    """Bytes that were written and not synced."""

    offset: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(self.data)] = self.data

    def survive(self, content: bytearray, chance: Random) -> None:
        """Each sector arrives, or does not, or leaves the file as long as if it had, with zeros at its end."""
        start, stop = self.offset, self.offset + len(self.data)
        edges = [start, *range(start - start % SECTOR + SECTOR, stop, SECTOR), stop]
        for a, b in pairwise(edges):
            fate = chance.choice(["arrives", "is lost", "is zeros"])
            if fate == "arrives":
                Write(a, self.data[a - start : b - start]).apply(content)
            elif fate == "is zeros":
                content.extend(bytes(max(0, b - len(content))))


@dataclass(frozen=True)
class Truncation:
    """A length that was set and not synced."""

    size: int

    def apply(self, content: bytearray) -> None:
        del content[self.size :]
        content.extend(bytes(self.size - len(content)))

    def survive(self, content: bytearray, chance: Random) -> None:
        if chance.random() < 0.5:
            self.apply(content)


@dataclass(eq=False)
class File:
    """What a power cut leaves of a file's content, and what happened since."""

    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Write | Truncation] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.unsynced:
            change.apply(self.durable)
        self.unsynced.clear()

    @property
    def is_wiped(self) -> bool:
        """Whether it is made empty, and held nothing but zeros before."""
        return self.unsynced == [Truncation(0)] and not any(self.durable)

    def left(self, chance: Random | None) -> bytes:
        """What a power cut leaves. By chance, some of what was not synced is there, in any order."""
        content = bytearray(self.durable)
        for change in self.unsynced if chance else ():
            change.survive(content, chance)
        return bytes(content)


@dataclass(frozen=True)
class Renaming:
    """Names that changed in a folder: one that went, one that came, or both in one step."""

    gone: str | None
    come: str | None
    node: "Node" = field(repr=False)

    def apply(self, names: dict[str, "Node"]) -> None:
        if self.gone is not None and names.get(self.gone) is self.node:
            del names[self.gone]
        if self.come is not None:
            names[self.come] = self.node


@dataclass(eq=False)
class Folder:
    """What a power cut leaves of a folder's names, those there are now, and what happened in between."""

    durable: dict[str, "Node"] = field(default_factory=dict)
    names: dict[str, "Node"] = field(default_factory=dict)
    unsynced: list[Renaming] = field(default_factory=list)

    @classmethod
    def scan(cls, path: Path) -> "Folder":
        """All of it is durable."""
        names = {p.name: cls.scan(p) if p.is_dir() else File(bytearray(p.read_bytes())) for p in path.iterdir()}
        return cls(dict(names), names)

    def change(self, gone: str | None, come: str | None, node: "Node") -> None:
        renaming = Renaming(gone, come, node)
        renaming.apply(self.names)
        self.unsynced.append(renaming)

    def sync(self) -> None:
        for renaming in self.unsynced:
            renaming.apply(self.durable)
        self.unsynced.clear()

    def left(self, chance: Random | None) -> "Tree":
        names = dict(self.durable)
        for renaming in self.unsynced if chance else ():
            if chance.random() < 0.5:
                renaming.apply(names)
        return {name: names[name].left(chance) for name in sorted(names)}


Node: TypeAlias = File | Folder
Tree: TypeAlias = dict[str, Any]  # names in a folder: of files, with their content, and of folders, with theirs


def tree(path: Path) -> Tree:
    """What can be read in a folder."""
    return {p.name: tree(p) if p.is_dir() else p.read_bytes() for p in sorted(path.iterdir())}


def plant(content: Tree, path: Path) -> Path:
    """The inverse of `tree`."""
    path.mkdir()
    for name, part in content.items():
        plant(part, path / name) if isinstance(part, dict) else (path / name).write_bytes(part)
        if name.endswith((".key", ".key.new")):
            (path / name).chmod(0o600)  # others may not read a private key
    return path


class Forgetful(files.System):
    """A folder, and what of it would be there after a power cut."""

    def __init__(self, root: Path) -> None:
        self.root, self.top = root, Folder.scan(root)
        self.log: list[Operation] = []
        self._opened: dict[int, tuple[Path, Node]] = {}

    def left(self, seed: int | None = None) -> Tree:
        """What a power cut leaves: all that was synced and, with a seed, by chance some of the rest."""
        return self.top.left(None if seed is None else Random(seed))

    @property
    def lasts(self) -> bool:
        """Whether a power cut would change nothing."""
        return self.left() == tree(self.root)

    def state(self) -> bytes:
        """A hash of all that can be read, of what a power cut would leave, and of what is in between."""
        return sha256(repr((tree(self.root), self.left(), self.unsynced())).encode()).digest()

    def unsynced(self) -> list[str]:
        """What a power cut would lose, as far as it can still be reached by a name; zeros may come back."""

        def look(node: Node, path: Path) -> Iterator[str]:
            if not (isinstance(node, File) and node.is_wiped):
                yield from (f"{path}: {change}" for change in node.unsynced)
            for name, below in node.names.items() if isinstance(node, Folder) else ():
                yield from look(below, path / name)

        return list(look(self.top, Path()))

    def node(self, path: Path) -> Node | None:
        """What has this name now."""
        node: Node | None = self.top
        for name in path.relative_to(self.root).parts:
            node = node.names.get(name) if isinstance(node, Folder) else None
        return node

    def _folder(self, path: Path) -> Folder:
        node = self.node(path)
        assert isinstance(node, Folder)
        return node

    def _file(self, fd: int) -> File:
        node = self._opened[fd][1]
        assert isinstance(node, File)
        return node

    def begin(self, operation: Operation) -> None:
        """Called before every operation."""
        self.log.append(operation)

    def _begin(self, name: str, fd: int, **details: int) -> None:
        self.begin(Operation(name, self._opened[fd][0], **details))

    # The operations

    def open(self, file: files.Location, flags: int, mode: int = 0o600, folder: int | None = None) -> int:
        path = Path(file)
        node = self.node(path)
        self.begin(Operation("open", path, grows=node is None and bool(flags & os.O_CREAT)))
        fd = super().open(path, flags, mode, folder)
        if node is None:
            node = File()
            self._folder(path.parent).change(None, path.name, node)
        self._opened[fd] = path, node
        return fd

    def open_folder(self, path: Path) -> int:
        fd = super().open_folder(path)
        self._opened[fd] = Path(path), self._folder(path)
        return fd

    def read(self, fd: int, count: int, offset: int) -> bytes:
        self._begin("read", fd)
        return super().read(fd, count, offset)

    def write(self, fd: int, data: files.Data, offset: int) -> int:
        self._begin("write", fd, grows=offset + len(data) > os.fstat(fd).st_size, size=len(data))
        return self.put(fd, data, offset)

    def put(self, fd: int, data: files.Data, offset: int) -> int:
        """Write, without asking."""
        self._file(fd).unsynced.append(Write(offset, bytes(data)))
        return super().write(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._begin("truncate", fd, grows=size > os.fstat(fd).st_size)
        self._file(fd).unsynced.append(Truncation(size))
        super().truncate(fd, size)

    def reserve(self, fd: int, start: int, stop: int) -> None:
        self._begin("reserve", fd, grows=True)
        super().reserve(fd, start, stop)

    def sync(self, fd: int) -> None:
        self._begin("sync", fd)
        self._opened[fd][1].sync()

    def rename(self, old: files.Location, new: files.Location, folder: int | None = None) -> None:
        old, new = Path(old), Path(new)
        self.begin(Operation("rename", new))
        super().rename(old, new, folder)
        source, target = self._folder(old.parent), self._folder(new.parent)
        node = source.names[old.name]
        if source is target:
            source.change(old.name, new.name, node)
        else:
            target.change(None, new.name, node)
            source.change(old.name, None, node)

    def unlink(self, file: files.Location, folder: int | None = None) -> None:
        self._remove("unlink", Path(file), lambda path: super(Forgetful, self).unlink(path, folder))

    def rmdir(self, path: Path) -> None:
        self._remove("rmdir", path, super().rmdir)

    def _remove(self, name: str, path: Path, remove: Callable[[Path], None]) -> None:
        self.begin(Operation(name, path))
        remove(path)
        folder = self._folder(path.parent)
        folder.change(path.name, None, folder.names[path.name])

    def mkdir(self, path: Path) -> None:
        self.begin(Operation("mkdir", path, grows=True))
        super().mkdir(path)
        self._folder(path.parent).change(None, path.name, Folder())

    def names(self, path: Path, folder: int | None = None) -> list[str]:
        self.begin(Operation("names", path))
        return super().names(path, folder)

    def map(self, fd: int, size: int) -> mmap:
        self._begin("map", fd)
        return super().map(fd, size)

    def lock(self, fd: int) -> None:
        self._begin("lock", fd)
        super().lock(fd)
