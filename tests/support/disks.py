"""Disks that fail, stop, or forget what was not synced, to be put in the place of `expunge.vault.disk.files.system`.

`Unsynced` does every operation for real but for the sync; `Interrupted` lets a test act before each of them, and
`Ending` ends the process there. `Forgetful` keeps a journal of what a power cut would leave. What a file holds and what
a folder calls it last separately, each by a sync of its own. `Faulty` adds one fault.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pytest

from expunge.vault.disk import files

SECTOR = 512  # bytes that a disk writes whole or not at all


class Crash(BaseException):
    """The process ends here. Nothing catches it, and no cleanup reaches the disk."""

    def __str__(self) -> str:
        return "the process has ended"


@contextmanager
def used(system: files.System) -> Iterator[Any]:
    """Let a disk be the vault's for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "system", system)
        yield system


def ended_at(owner: type, method: str, task: Callable[[], object]) -> None:
    """Do something; the process ends where it would call this method."""

    def end(*_: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(owner, method, end)
        task()


class Unsynced(files.System):
    """A disk that nobody waits for: what was written outlives its process, synced or not."""

    def sync(self, fd: int) -> None:
        pass


class Interrupted(Unsynced):
    """A disk that calls `before` with an operation's name and arguments, before each operation."""

    def before(self, name: str, *args: Any) -> None:
        raise NotImplementedError


def _interrupted(name: str) -> Callable[..., Any]:
    def operation(self: Interrupted, *args: Any) -> Any:
        self.before(name, *args)
        return getattr(Unsynced, name)(self, *args)

    return operation


for _name in [name for name, part in vars(files.System).items() if callable(part) and not name.startswith("_")]:
    setattr(Interrupted, _name, _interrupted(_name))


class Ending(Interrupted):
    """A disk that a process uses until it ends. What comes later does nothing.

    It ends before an operation; with ``torn``, in the midst of it if that is a write. With ``changes``, only those
    operations count that another process would see.
    """

    def __init__(self, after: int, *, torn: bool = True, changes: bool = False) -> None:
        self.left, self.torn, self.changes = after, torn, changes

    def before(self, name: str, *args: Any) -> None:
        if self.changes and not _changes(name, *args):
            return
        if name == "write" and self.torn and self.left == 0:
            fd, data, offset = args
            files.System.write(self, fd, memoryview(data)[: len(data) // 2], offset)
        self.left -= 1
        if self.left < 0:
            raise Crash


def _changes(name: str, *args: Any) -> bool:
    if name == "open":
        path, flags = args
        return bool(flags & os.O_CREAT) and not path.exists()
    return name in ("write", "truncate", "rename", "unlink", "mkdir", "rmdir")


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
    return path


class Forgetful(files.System):
    """A folder, and what of it would be there after a power cut."""

    def __init__(self, root: Path) -> None:
        self.root, self.top = root, Folder.scan(root)
        self.log: list[Operation] = []
        self._opened: dict[int, tuple[Path, Node]] = {}

    def left(self, seed: int | None = None) -> Tree:
        """What a power cut leaves: all that was synced and, with a seed, by chance some of the rest."""
        return self.top.left(None if seed is None else Random(seed))  # noqa: S311 - a die, not a secret

    @property
    def lasts(self) -> bool:
        """Whether a power cut would change nothing."""
        return self.left() == tree(self.root)

    def unsynced(self) -> list[str]:
        """What a power cut would lose, as far as it can still be reached by a name."""

        def look(node: Node, path: Path) -> Iterator[str]:
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

    def open(self, path: Path, flags: int) -> int:
        node = self.node(path)
        self.begin(Operation("open", path, grows=node is None and bool(flags & os.O_CREAT)))
        fd = super().open(path, flags)
        if node is None:
            node = File()
            self._folder(path.parent).change(None, path.name, node)
        self._opened[fd] = path, node
        return fd

    def read(self, fd: int, count: int, offset: int) -> bytes:
        self._begin("read", fd)
        return super().read(fd, count, offset)

    def write(self, fd: int, data: files.Data, offset: int) -> int:
        self._begin("write", fd, grows=offset + len(data) > files.size_of(fd), size=len(data))
        return self.put(fd, data, offset)

    def put(self, fd: int, data: files.Data, offset: int) -> int:
        """Write, without asking."""
        self._file(fd).unsynced.append(Write(offset, bytes(data)))
        return super().write(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._begin("truncate", fd, grows=size > files.size_of(fd))
        self._file(fd).unsynced.append(Truncation(size))
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._begin("sync", fd)
        self._opened[fd][1].sync()

    def rename(self, old: Path, new: Path) -> None:
        self.begin(Operation("rename", new))
        super().rename(old, new)
        folder = self._folder(old.parent)
        folder.change(old.name, new.name, folder.names[old.name])

    def unlink(self, path: Path) -> None:
        self._remove("unlink", path, super().unlink)

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

    def names(self, path: Path) -> list[str]:
        self.begin(Operation("names", path))
        return super().names(path)

    def map(self, fd: int, size: int) -> mmap:
        self._begin("map", fd)
        return super().map(fd, size)

    def lock(self, fd: int) -> None:
        self._begin("lock", fd)
        super().lock(fd)


@dataclass(frozen=True)
class Fault:
    """What goes wrong, from which operation on, and whether it stays so.

    - "error": any operation fails (EIO).
    - "full": what needs room fails (ENOSPC).
    - "short": a write is cut short, and the next that needs room fails.
    - "sync": a sync fails, and what was written to that file never lasts, although it can be read. Names may last yet,
      with the next sync of their folder: they are the file system's own, and in its journal.
    - "stop": the process ends before an operation.
    - "torn": the process ends in the middle of a write.
    """

    kind: str
    at: int = 0
    lasting: bool = False

    def concerns(self, operation: Operation) -> bool:
        """Whether an operation can fail in this way."""
        match self.kind:
            case "full":
                return operation.grows
            case "short":
                return operation.grows and operation.size > 1
            case "torn":
                return operation.size > 1
            case "sync":
                return operation.name == "sync"
        return True


class Faulty(Forgetful):
    """A disk with a fault. Operations are counted from when it is armed; without a fault it is sound."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fault: Fault | None = None
        self.struck = False

    def arm(self, fault: Fault | None) -> None:
        """Count anew, with this fault to come."""
        self.fault, self.struck = fault, False
        self.log.clear()

    def heal(self) -> None:
        """From here on all is well."""
        self.fault = None

    def begin(self, operation: Operation) -> None:
        super().begin(operation)
        if self._strikes(operation, "stop"):
            raise Crash
        if self._strikes(operation, "error"):
            raise _failed(errno.EIO)
        if self._strikes(operation, "full"):
            raise _failed(errno.ENOSPC)

    def write(self, fd: int, data: files.Data, offset: int) -> int:
        self._begin("write", fd, grows=offset + len(data) > files.size_of(fd), size=len(data))
        half = memoryview(data)[: len(data) // 2]
        if self._strikes(self.log[-1], "torn"):
            self.put(fd, half, offset)
            self.fault = Fault("stop", len(self.log))
            raise Crash
        if self._strikes(self.log[-1], "short"):
            written = self.put(fd, half, offset)
            self.fault = Fault("full", len(self.log), self.fault.lasting)
            return written
        return self.put(fd, data, offset)

    def sync(self, fd: int) -> None:
        self._begin("sync", fd)
        node = self._opened[fd][1]
        if self._strikes(self.log[-1], "sync"):
            if isinstance(node, File):
                node.unsynced.clear()
            raise _failed(errno.EIO)
        node.sync()

    def _strikes(self, operation: Operation, kind: str) -> bool:
        fault, k = self.fault, len(self.log) - 1
        if fault is None or fault.kind != kind or not fault.concerns(operation):
            return False
        strikes = k == fault.at or (k > fault.at and (fault.lasting or kind == "stop"))
        self.struck = self.struck or strikes
        return strikes


def _failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))
