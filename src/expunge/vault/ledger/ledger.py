"""The ledger: which requests were accepted, in order, for ever.

One JSON record a line. Each carries the SHA-256 of itself and of the hash before it, so no record can change, go or
come in between unnoticed. A request is *accepted* once its record is written and synced; the folder follows. The ledger
lies beside the folder: putting an old copy of the folder back does not take requests back. Its lock is the vault's: one
writer, for as long as that process lives.
"""

import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InvalidFile, VaultBusy
from ..disk import files

VERSION = 1
REQUESTS = ("train", "add", "rectify", "unlearn", "readmit", "restore")  # the kinds of records that ask for something
_TYPES: dict[str, type] = {
    **dict.fromkeys(("kind", "vault", "time", "payload", "certificate"), str),
    **dict.fromkeys(("version", "request", "rows", "people", "drawn", "from", "missing"), int),
    **dict.fromkeys(("waiting", "erase", "replace", "replaced", "bury", "by", "drop", "free"), list),
}
_REQUEST = ("request", "waiting", "time", "rows", "people")
_FIELDS = {  # what a record of each kind must have
    "ledger": ("version", "vault"),
    "train": (*_REQUEST, "drawn"),
    "add": (*_REQUEST, "drawn"),
    "rectify": (*_REQUEST, "replace", "replaced"),
    "unlearn": (*_REQUEST, "erase", "bury"),
    "readmit": (*_REQUEST, "free"),
    "restore": (*_REQUEST, "from", "erase", "bury", "by", "drop", "free", "drawn", "missing"),
    "done": ("request", "payload"),
    "signature": ("request", "certificate"),
}
_HEADER_BYTES = 4096
_POLL = 0.01  # seconds between two looks at a lock that another has


@dataclass(frozen=True)
class Position:
    """A place between two records: how many bytes come before it, and the hash of the last record there."""

    offset: int
    hash: str


START = Position(0, "")


@dataclass(frozen=True)
class Record:
    """One line of the ledger."""

    body: Mapping[str, Any]
    line: bytes
    end: Position

    @property
    def kind(self) -> str:
        """What it says: a request by its kind, or that one is done, or its signature."""
        return str(self.body.get("kind"))

    @property
    def request(self) -> int:
        """The number of the request that it is about."""
        number: int = self.body.get("request", 0)
        return number


def compose(after: Position, body: Mapping[str, Any]) -> Record:
    """The record that says this, after that position."""
    hashed = hashlib.sha256(after.hash.encode() + _canonical(body)).hexdigest()
    line = _canonical({**body, "hash": hashed}) + b"\n"
    return Record(body, line, Position(after.offset + len(line), hashed))


def parse(data: bytes, after: Position, path: Path) -> tuple[list[Record], bool]:
    """The records in these bytes, and whether a torn one follows: a write that a crash cut short."""
    records: list[Record] = []
    *lines, rest = data.split(b"\n")
    for k, line in enumerate(lines):
        record = _parsed(line, after)
        if record is None:
            # Pages that never reached the disk read as zeros, and one write brings at most two records: that one is
            # done, and its signature. Anything else was written whole and changed since.
            if b"\0" in line and len(lines) - k + bool(rest) <= 2:
                return records, True
            raise InvalidFile(f"{path} is damaged, or is the ledger of another vault: record at byte {after.offset}")
        records.append(record)
        after = record.end
    return records, bool(rest)


class Ledger:
    """The file, as one process sees it. `tip` is the end of the last record that was read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tip = START
        self._fd: int | None = None
        self._trusted = START  # before here nothing needs to be written again

    def read(self, after: Position = START) -> tuple[list[Record], bool]:
        """All records after a position, and whether a torn one follows."""
        with self._opened() as fd:
            if files.size_of(fd) < after.offset:
                raise InvalidFile(f"{self.path} is older than the vault beside it, or cut short: put the newest back")
            return parse(files.read_from(fd, self.path, offset=after.offset), after, self.path)

    def vault(self) -> str | None:
        """Whose ledger it is, from its first record; None while that is being written."""
        with self._opened() as fd:
            line, ended, _ = files.read_from(fd, self.path, stop=_HEADER_BYTES).partition(b"\n")
        record = _parsed(line, START)
        if not ended and len(line) < _HEADER_BYTES:
            return None
        if record is None or record.kind != "ledger" or not isinstance(record.body.get("vault"), str):
            raise InvalidFile(f"{self.path} is not a ledger, or is damaged")
        if record.body.get("version") != VERSION:
            raise InvalidFile(f"{self.path} has version {record.body.get('version')!r}; this release reads {VERSION}")
        return str(record.body["vault"])

    def stamp(self) -> tuple[int, int]:
        """Changes whenever a record is added: a look that costs a microsecond."""
        found = os.stat(self.path)
        return found.st_ino, found.st_size

    @contextmanager
    def locked(self, wait: float) -> Iterator[None]:
        """Be the one writer, or raise `VaultBusy` after ``wait`` seconds."""
        with files.opened(self.path, os.O_RDWR) as fd:
            _lock(fd, self.path, wait)
            if os.fstat(fd).st_ino != self.path.stat().st_ino:
                raise VaultBusy(f"{self.path} was replaced while it was being opened: try again")
            self._fd = fd
            try:
                yield
            finally:
                self._fd = None

    def trust(self, position: Position) -> None:
        """What comes after this is written again with the next record: it may never have reached the disk."""
        self._trusted = position

    def settle(self) -> None:
        """Write again what is not trusted, and sync: before anything is done that follows from it."""
        assert self._fd is not None
        if self._trusted != self.tip:
            files.write_all(self._fd, self._untrusted(), self._trusted.offset)
            files.sync(self._fd)
            self._trusted = self.tip

    def _untrusted(self) -> bytes:
        assert self._fd is not None
        return files.read_from(self._fd, self.path, offset=self._trusted.offset, stop=self.tip.offset)

    def append(self, *records: Record) -> None:
        """Add records that `compose` made, and sync. If that fails, what was written is taken back."""
        assert self._fd is not None
        lines = b"".join(record.line for record in records)
        try:
            files.write_all(self._fd, self._untrusted() + lines, self._trusted.offset)
        except BaseException:
            with suppress(OSError):  # if even that fails it is a torn record, which the next open cuts
                files.system.truncate(self._fd, self.tip.offset)
            raise
        files.sync(self._fd)
        self.tip = self._trusted = records[-1].end

    def cut(self) -> None:
        """Cut off a torn record."""
        assert self._fd is not None
        files.system.truncate(self._fd, self.tip.offset)
        files.sync(self._fd)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if self._fd is not None:
            yield self._fd
            return
        with files.opened(self.path) as fd:
            yield fd


def header(vault: str) -> Record:
    """The first record, which names the vault."""
    return compose(START, {"kind": "ledger", "version": VERSION, "vault": vault})


def _lock(fd: int, path: Path, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        try:
            return files.system.lock(fd)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            if time.monotonic() >= deadline:
                raise VaultBusy(f"another process is writing to this vault ({path} is locked); try again") from None
        time.sleep(_POLL)


def _parsed(line: bytes, after: Position) -> Record | None:
    try:
        body = json.loads(line)
        del body["hash"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if any(type(value) is not _TYPES.get(name, type(value)) for name, value in body.items()):
        return None
    if not {"kind", *_FIELDS.get(body.get("kind"), ("not a kind",))} <= body.keys():
        return None
    record = compose(after, body)
    return record if record.line == line + b"\n" else None


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
