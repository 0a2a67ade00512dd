"""Disks to be put in the place of `expunge.saving.files.system`, and the end of a process.

`Unsynced` does every operation for real but for the sync; `Interrupted` lets a test act before each of them, and
`Ending` ends the process there. Those that forget and fail have files of their own: `forgetful` and `faulty`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from expunge.saving import files


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
        path, flags, *_ = args
        return bool(flags & os.O_CREAT) and not path.exists()
    return name in ("write", "truncate", "rename", "unlink", "mkdir", "rmdir")
