"""A forgetful disk that fails, is full, writes in part, or stops, at an operation that a test chooses."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from expunge.saving import files

from support.disks import Crash
from support.forgetful import File, Forgetful, Operation


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
        self._begin("write", fd, grows=offset + len(data) > os.fstat(fd).st_size, size=len(data))
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
