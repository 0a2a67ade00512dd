"""The ledger: which requests were accepted, in order, forever.

It has one JSON record per line. Each record carries the SHA-256 of itself and of the previous hash, so no record can be
changed, removed or inserted unnoticed. A request is *accepted* once its record is written and synced; the folder
follows. The ledger lies beside the folder, so an old copy of the folder, put back, does not undo requests. The lock of
the ledger is the lock of the vault: there is one writer at a time.
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
_CHUNK_BYTES = 2**20
_POLL_SECONDS = 0.01  # between two attempts to lock


class Ledger:
    """The file of records, as this process sees it. `tip` is the end of the last record that was read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tip = START
        self._header_seen: tuple[bytes, str] | None = None  # the first line as last read, and the vault that it names
        self._fd: int | None = None  # while it is locked
        self._lock_fds: set[int] = set()  # opened to be locked
        self._trusted = START  # records up to here are known to be durable

    def read(self, after: Position = START) -> tuple[list[Record], bool]:
        """Return all records after a position, and whether a torn one follows."""
        with self._open() as fd:
            if os.fstat(fd).st_size < after.offset:
                raise InvalidFile(f"{self.path} is older than the vault beside it, or cut short: restore the newest")
            return parse_records(files.read_open_file(fd, self.path, offset=after.offset), after, self.path)

    def iterate(self, after: Position = START, *, complete: bool = False, fd: int | None = None) -> Iterator[Record]:
        """Yield the records after a position, reading in chunks; with ``complete`` a torn end is refused."""
        with ExitStack() as stack:
            opened = stack.enter_context(self._open()) if fd is None else fd
            torn = yield from scan_records(_read_chunks(opened, self.path, after.offset), after, self.path)
            if torn and complete:
                raise InvalidFile(f"the last record of {self.path} is torn")

    def read_vault_name(self) -> str | None:
        """Return the vault that the first record names; None while that record is being written."""
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
                "use the release that made it, or train the vault again"
            )
        self._header_seen = line, str(record.body["vault"])
        return self._header_seen[1]

    def stamp(self) -> tuple[int, int, int]:
        """Return a value that changes whenever a record is added; it costs a microsecond."""
        return stamp_of(os.stat(self.path))

    @contextmanager
    def lock(self, wait: float) -> Iterator[None]:
        """Hold the lock of the vault, or raise `VaultBusy` after ``wait`` seconds."""
        deadline = time.monotonic() + wait
        while True:  # until the locked file is still the one at this path
            with ExitStack() as stack:
                try:
                    with locks.fork_gate:  # so that a child forked at any time resets it
                        fd = stack.enter_context(files.open_file(self.path, os.O_RDWR))
                        self._lock_fds.add(fd)
                        locks.reset_on_fork(self)
                except FileNotFoundError:
                    raise MissingData(f"{self.path} is missing: the vault was removed") from None
                stack.callback(self._release, fd)
                _acquire_lock(fd, self.path, deadline)
                try:
                    current = os.stat(self.path)
                except FileNotFoundError:
                    continue
                if os.path.samestat(os.fstat(fd), current):
                    self._fd = fd
                    yield
                    return

    def _release(self, fd: int) -> None:
        """Release the lock at once: closing the file would not, while a child has it open."""
        if self._fd == fd:
            self._fd = None
        with suppress(OSError):
            files.system.unlock(fd)
        self._lock_fds.discard(fd)

    def reset_after_fork(self) -> None:
        """In a child: drop the parent's lock. Its descriptors may still be closed later, so they become /dev/null."""
        for fd in self._lock_fds:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(null, fd, inheritable=False)
            os.close(null)
        self._lock_fds.clear()
        self._fd = None
        self.tip = self._trusted = START

    def trust_until(self, position: Position) -> None:
        """Remember that records after this position may not be durable: the next write repeats them."""
        self._trusted = position

    def rewrite_untrusted(self) -> None:
        """Write the records again that may not be durable, and sync, before anything relies on them."""
        if self._trusted != self.tip:
            files.write_all(self._locked_fd, self._read_untrusted(), self._trusted.offset)
            files.sync(self._locked_fd)
            self._trusted = self.tip

    def _read_untrusted(self) -> bytes:
        if self._trusted == self.tip:
            return b""
        return files.read_open_file(self._locked_fd, self.path, offset=self._trusted.offset, stop=self.tip.offset)

    def append(self, *records: Record) -> None:
        """Append records, and sync. If writing fails, cut off what was written."""
        fd, lines = self._locked_fd, b"".join(record.line for record in records)
        try:
            files.write_all(fd, self._read_untrusted() + lines, self._trusted.offset)
        except BaseException:
            with suppress(OSError):  # if that fails too, it is a torn record, which the next open cuts off
                files.system.truncate(fd, self.tip.offset)
            raise
        files.sync(fd)
        self.tip = self._trusted = records[-1].end

    def cut_torn_record(self) -> None:
        """Cut off a torn record at the end."""
        files.system.truncate(self._locked_fd, self.tip.offset)
        files.sync(self._locked_fd)

    @property
    def _locked_fd(self) -> int:
        """The descriptor of the locked file; a child that was forked meanwhile has none."""
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


def stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return a value that differs whenever a file was replaced or changed."""
    return status.st_ino, status.st_size, status.st_mtime_ns


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
