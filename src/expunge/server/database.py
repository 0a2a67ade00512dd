"""The database of the service: one SQLite file beside the ledger, `spend.queue`.

It holds what waits to be carried out, so it is written before anything is acknowledged (WAL, synchronous=FULL). People
are in it as the vault seals them, never in clear, and what is done leaves it: deleted cells are overwritten, and since
SQLite can leave copies of them in pages that it reorganised, the file is rebuilt and its log cut once work is done.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import InvalidFile

VERSION = 2

_TABLES = """
CREATE TABLE requests (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    protocol TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    regulation TEXT NOT NULL,
    received TEXT NOT NULL,
    since TEXT NOT NULL,
    runs TEXT NOT NULL,
    due TEXT NOT NULL,
    extension TEXT NOT NULL DEFAULT '',
    overdue INTEGER NOT NULL DEFAULT 0,
    ended TEXT,
    people INTEGER NOT NULL,
    mark TEXT,
    outside TEXT,
    reference TEXT NOT NULL,
    actor TEXT NOT NULL,
    callbacks TEXT NOT NULL DEFAULT '[]',
    outcome TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX requests_state ON requests (state);
CREATE INDEX requests_outside ON requests (protocol, outside);
CREATE INDEX requests_mark ON requests (mark) WHERE mark IS NOT NULL;
CREATE TABLE people (
    request TEXT NOT NULL REFERENCES requests (id),
    hash BLOB NOT NULL,
    sealed BLOB NOT NULL
);
CREATE INDEX people_request ON people (request);
CREATE INDEX people_hash ON people (hash);
CREATE TABLE holds (
    id TEXT PRIMARY KEY,
    hash BLOB NOT NULL,
    reason TEXT NOT NULL,
    since TEXT NOT NULL,
    until TEXT,
    actor TEXT NOT NULL
);
CREATE INDEX holds_hash ON holds (hash);
CREATE TABLE answered (
    key TEXT PRIMARY KEY,
    mark TEXT NOT NULL,
    request TEXT NOT NULL,
    time TEXT NOT NULL
);
CREATE INDEX answered_time ON answered (time);
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    hash TEXT NOT NULL,
    scopes TEXT NOT NULL,
    made TEXT NOT NULL,
    expires TEXT,
    revoked TEXT,
    used TEXT
);
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY,
    hook TEXT,
    url TEXT NOT NULL,
    body BLOB NOT NULL,
    headers TEXT NOT NULL,
    made TEXT NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    next TEXT,
    state TEXT NOT NULL DEFAULT 'waiting',
    answer INTEGER
);
CREATE INDEX deliveries_next ON deliveries (state, next);
CREATE TABLE hooks (
    id TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    events TEXT NOT NULL,
    secret TEXT NOT NULL,
    made TEXT NOT NULL,
    off TEXT
);
CREATE TABLE agents (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    token TEXT
);
CREATE TABLE seen (
    mark TEXT PRIMARY KEY,
    until TEXT NOT NULL
);
CREATE TABLE aliases (
    alias BLOB PRIMARY KEY,
    hash BLOB NOT NULL,
    sealed BLOB NOT NULL
);
CREATE INDEX aliases_hash ON aliases (hash);
"""


def queue_path(vault: Path) -> Path:
    """Where the queue of a vault's service is: beside its ledger."""
    return vault.with_suffix(".queue")


def _inode(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


class Database:
    """One connection that threads share, each for the length of a transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        fresh = not path.exists()
        if fresh:  # nobody else may read it, from its first moment on
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            _sync(path.parent)
        self._inode = _inode(path)
        self._lock = threading.RLock()
        self._depth = 0
        try:
            self._connection = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            for name, value in (("journal_mode", "WAL"), ("synchronous", "FULL"), ("secure_delete", "ON")):
                self._connection.execute(f"PRAGMA {name}={value}")
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._connection.execute("PRAGMA temp_store=MEMORY")  # a rebuilt file is not copied to others
            self._take_up(fresh)
        except sqlite3.DatabaseError as error:
            raise InvalidFile(f"{path} is no queue of a service, or a damaged one: {error}") from None

    def check(self) -> None:
        """Refuse to go on with a file that somebody removed or replaced: what is written to it would be lost."""
        if self._inode != _inode(self.path):
            raise sqlite3.OperationalError("the queue's file was removed, or another put in its place")

    def _take_up(self, fresh: bool) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == VERSION:
            return
        if version or not (fresh or self._empty()):
            raise InvalidFile(
                f"{self.path} has version {version}; this release reads version {VERSION} only: use the release that "
                "wrote it"
            )
        with self.writing():
            for statement in filter(str.strip, _TABLES.split(";")):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version={VERSION}")

    def _empty(self) -> bool:
        return not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone()

    @contextmanager
    def writing(self) -> Iterator["Database"]:
        """All or nothing, and on the disk when it ends. Within another transaction it is a part of that."""
        with self._lock:
            if self._depth == 0:
                self.check()
                self._connection.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield self
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._connection.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                try:
                    self._connection.execute("COMMIT")
                except sqlite3.Error:  # a full disk leaves the transaction open
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise

    def execute(self, statement: str, *values: Any) -> int:
        """Run a statement; return how many rows it changed."""
        with self._lock:
            return self._connection.execute(statement, values).rowcount

    def all(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """The rows that a question finds."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def one(self, statement: str, *values: Any) -> sqlite3.Row | None:
        """The first of them."""
        with self._lock:
            row: sqlite3.Row | None = self._connection.execute(statement, values).fetchone()
            return row

    def wipe(self) -> bool:
        """Rebuild the file without what was deleted, and cut the log that may still have it.

        Whether that could be done: another process that reads just now keeps the log.
        """
        with self._lock:
            self._connection.execute("VACUUM")
            busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
