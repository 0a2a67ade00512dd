"""The ledger: which requests were accepted, in order, for ever.

One JSON record per line. Each carries the SHA-256 of itself and of the hash before it: no record can be changed,
removed or inserted unnoticed. A request is *accepted* once its record is written and synced; the folder follows. The
ledger lies beside the folder: putting an old copy of the folder back does not take requests back. Its lock is the
vault's: one writer, for as long as that process lives.
"""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ...errors import InvalidFile, MissingData, VaultBusy
from ...saving import files
from . import locks
from .records import LEDGER, START, VERSION, Position, Record, parse_line, parse_records, scan_records

_HEADER_BYTES = 4096
_CHUNK_BYTES = 2**20  # read at once
_POLL_SECONDS = 0.01  # seconds between two looks at a lock that another has


class Ledger:
    """The file of records, as one process sees it. `tip` is the end of the last record that was read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tip = START
        self._header_seen: tuple[bytes, str] | None = (
            None  # its first line as it was read last, and the vault that it names
        )
        self._fd: int | None = None  # once it is locked
        self._lock_fds: set[int] = set()  # open to be locked, or locked
        self._trusted = START  # before here nothing needs to be written again

    def read(self, after: Position = START) -> tuple[list[Record], bool]:
        """All records after a position, and whether a torn one follows."""
        with self._open() as fd:
            if files.file_size(fd) < after.offset:
                raise InvalidFile(f"{self.path} is older than the vault beside it, or cut short: put the newest back")
            return parse_records(files.read_open_file(fd, self.path, offset=after.offset), after, self.path)

    def iterate(self, after: Position = START, *, complete: bool = False, fd: int | None = None) -> Iterator[Record]:
        """Yield the records after a position, a piece of the file at a time; with ``whole`` a torn end is refused."""
        with ExitStack() as stack:
            opened = stack.enter_context(self._open()) if fd is None else fd
            torn = yield from scan_records(_read_chunks(opened, self.path, after.offset), after, self.path)
            if torn and complete:
                raise InvalidFile(f"the last record of {self.path} is torn")

    def read_vault_name(self) -> str | None:
        """Whose ledger it is, from its first record; None while that is being written."""
        with self._open() as fd:
            line, ended, _ = files.read_open_file(fd, self.path, stop=_HEADER_BYTES).partition(b"\n")
        if self._header_seen is not None and self._header_seen[0] == line and ended:
            return self._header_seen[1]
        record = parse_line(line, START)
        if not ended and len(line) < _HEADER_BYTES:
            return None
        if record is None or record.kind != LEDGER:
            raise InvalidFile(f"{self.path} is not a ledger, or is damaged")
        if record.body["version"] != VERSION:
            raise InvalidFile(
                f"{self.path} has version {record.body['version']}; this release reads version {VERSION} only: "
                "use the release that made it, or train the vault anew"
            )
        self._header_seen = line, str(record.body["vault"])
        return self._header_seen[1]

    def stamp(self) -> tuple[int, int, int]:
        """Return what changes whenever a record is added; it costs a microsecond."""
        found = os.stat(self.path)
        return found.st_ino, found.st_size, found.st_mtime_ns

    @contextmanager
    def lock(self, wait: float) -> Iterator[None]:
        """Be the one writer, or raise `VaultBusy` after ``wait`` seconds."""
        deadline = time.monotonic() + wait
        while True:  # until what was locked is what is there
            with ExitStack() as stack:
                fd = self._open_to_lock(stack)
                _acquire_lock(fd, self.path, deadline)
                if self._is_current_file(fd):
                    self._fd = fd
                    yield
                    return

    def _open_to_lock(self, stack: ExitStack) -> int:
        """Open it so that a child that is forked at any time knows."""
        try:
            with locks.fork_gate:
                fd = stack.enter_context(files.open_file(self.path, os.O_RDWR))
                self._lock_fds.add(fd)
                locks.reset_on_fork(self)
        except FileNotFoundError:
            raise MissingData(f"{self.path} is not there any more: the vault was removed") from None
        stack.callback(self._release, fd)
        return fd

    def _release(self, fd: int) -> None:
        """Give the lock back at once: closing the file would not, while a child has it open."""
        if self._fd == fd:
            self._fd = None
        with suppress(OSError):
            files.system.unlock(fd)
        self._lock_fds.discard(fd)

    def _is_current_file(self, fd: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        return False

    def reset_after_fork(self) -> None:
        """In a child: let go of the parent's lock. What is closed later by this number is nothing."""
        for fd in self._lock_fds:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nothing, fd, inheritable=False)
            os.close(nothing)
        self._lock_fds.clear()
        self._fd = None
        self.tip = self._trusted = START

    def trust_until(self, position: Position) -> None:
        """Write what comes after this position again with the next record: it may never have reached the disk."""
        self._trusted = position

    def rewrite_untrusted(self) -> None:
        """Write again what is not trusted, and sync: before anything is done that follows from it."""
        if self._trusted != self.tip:
            files.write_all(self._locked_fd, self._read_untrusted(), self._trusted.offset)
            files.sync(self._locked_fd)
            self._trusted = self.tip

    def _read_untrusted(self) -> bytes:
        if self._trusted == self.tip:
            return b""
        return files.read_open_file(self._locked_fd, self.path, offset=self._trusted.offset, stop=self.tip.offset)

    def append(self, *records: Record) -> None:
        """Add records that `compose` made, and sync. If that fails, what was written is taken back."""
        fd, lines = self._locked_fd, b"".join(record.line for record in records)
        try:
            files.write_all(fd, self._read_untrusted() + lines, self._trusted.offset)
        except BaseException:
            with suppress(OSError):  # if even that fails it is a torn record, which the next open cuts
                files.system.truncate(fd, self.tip.offset)
            raise
        files.sync(fd)
        self.tip = self._trusted = records[-1].end

    def cut_torn_record(self) -> None:
        """Cut off a torn record."""
        files.system.truncate(self._locked_fd, self.tip.offset)
        files.sync(self._locked_fd)

    @property
    def _locked_fd(self) -> int:
        """The file that is written to; a child that was forked while it was locked has none."""
        if self._fd is None:
            raise VaultBusy(f"{self.path} is not locked by this process")
        return self._fd

    @contextmanager
    def _open(self) -> Iterator[int]:
        if self._fd is not None:
            yield self._fd
            return
        with files.open_file(self.path) as fd:
            yield fd


def _read_chunks(fd: int, path: Path, offset: int) -> Iterator[bytes]:
    while chunk := files.read_open_file(fd, path, offset=offset, stop=offset + _CHUNK_BYTES):
        yield chunk
        offset += len(chunk)


def _acquire_lock(fd: int, path: Path, deadline: float) -> None:
    while True:
        try:
            return files.system.lock(fd)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            if time.monotonic() >= deadline:
                raise VaultBusy(f"another process is writing to this vault ({path} is locked); try again") from None
        time.sleep(_POLL_SECONDS)
