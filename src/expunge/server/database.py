"""The database of the service: SQLite, in a folder beside the ledger that only its owner can enter, `spend.queue`.

SQLite opens its log and its index by name, and trusts what it finds there. In a folder that others can write to they
could plant either, or the database itself with a token of theirs in it. So all three lie in a folder of their own that
is checked before anything in it is opened, and so do the service's lock and the bodies that it is sent.

It holds what waits to be carried out, so it is written before anything is acknowledged (WAL, synchronous=FULL). People
are in it as the vault seals them, never in clear, and what is done leaves it: deleted cells are overwritten, and since
SQLite can leave copies of them in pages that it reorganised, those tables are rebuilt and the log cut afterwards.
"""

import os
import re
import sqlite3
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import InvalidFile
from ..saving import files
from ..saving.own import Inside, PrivateBeside
from ..vault.disk.folder import queue_beside

VERSION = 4

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
    outside TEXT,
    reference TEXT NOT NULL,
    actor TEXT NOT NULL,
    caller TEXT NOT NULL,
    callbacks TEXT NOT NULL DEFAULT '[]',
    outcome TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX requests_state ON requests (state);
CREATE INDEX requests_received ON requests (received);
CREATE INDEX requests_ended ON requests (ended) WHERE ended IS NOT NULL;
CREATE TABLE counts (
    kind TEXT NOT NULL,
    protocol TEXT NOT NULL,
    state TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (kind, protocol, state)
);
CREATE TRIGGER requests_counted AFTER INSERT ON requests BEGIN
    INSERT INTO counts VALUES (NEW.kind, NEW.protocol, NEW.state, 1)
        ON CONFLICT (kind, protocol, state) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER requests_recounted AFTER UPDATE OF state ON requests WHEN OLD.state <> NEW.state BEGIN
    UPDATE counts SET n = n - 1 WHERE kind = OLD.kind AND protocol = OLD.protocol AND state = OLD.state;
    INSERT INTO counts VALUES (NEW.kind, NEW.protocol, NEW.state, 1)
        ON CONFLICT (kind, protocol, state) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER requests_uncounted AFTER DELETE ON requests BEGIN
    UPDATE counts SET n = n - 1 WHERE kind = OLD.kind AND protocol = OLD.protocol AND state = OLD.state;
END;
CREATE INDEX requests_outside ON requests (protocol, outside);
CREATE INDEX requests_reference ON requests (reference);
CREATE INDEX requests_untold ON requests (number) WHERE protocol = 'opendsr' AND ended IS NOT NULL
    AND callbacks != '[]' AND json_extract(outcome, '$._told') IS NULL;
CREATE TABLE marks (
    mark TEXT NOT NULL,
    request TEXT NOT NULL
);
CREATE INDEX marks_mark ON marks (mark);
CREATE INDEX marks_request ON marks (request);
CREATE TABLE people (
    request TEXT NOT NULL,
    hash BLOB NOT NULL,
    sealed BLOB NOT NULL
);
CREATE INDEX people_request ON people (request);
CREATE INDEX people_hash ON people (hash);
CREATE TABLE matters (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    reason TEXT NOT NULL,
    opened TEXT NOT NULL,
    actor TEXT NOT NULL,
    review TEXT,
    reminded INTEGER NOT NULL DEFAULT 0,
    asked INTEGER REFERENCES matter_log (number),
    released TEXT,
    held INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE matter_log (
    number INTEGER PRIMARY KEY,
    matter TEXT NOT NULL REFERENCES matters (id),
    time TEXT NOT NULL,
    what TEXT NOT NULL,
    actor TEXT NOT NULL,
    token TEXT NOT NULL,
    people INTEGER NOT NULL,
    reason TEXT NOT NULL,
    sent INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX matter_log_matter ON matter_log (matter);
CREATE INDEX matter_log_sent ON matter_log (number) WHERE sent = 0;
CREATE TABLE holds (
    matter TEXT NOT NULL,
    hash BLOB NOT NULL,
    leaving INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (matter, hash)
);
CREATE INDEX holds_hash ON holds (hash);
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE answered (
    key TEXT PRIMARY KEY,
    mark TEXT NOT NULL,
    request TEXT NOT NULL,
    time TEXT NOT NULL
);
CREATE INDEX answered_time ON answered (time);
CREATE INDEX answered_request ON answered (request);
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
    answer INTEGER,
    reason TEXT NOT NULL DEFAULT '',
    tried TEXT
);
CREATE INDEX deliveries_next ON deliveries (state, next);
CREATE INDEX deliveries_hook ON deliveries (hook, state) WHERE hook IS NOT NULL;
CREATE INDEX deliveries_made ON deliveries (made) WHERE state != 'waiting';
CREATE TABLE delivery_counts (
    hook TEXT NOT NULL,
    state TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (hook, state)
);
CREATE TRIGGER deliveries_counted AFTER INSERT ON deliveries BEGIN
    INSERT INTO delivery_counts VALUES (IFNULL(NEW.hook, ''), NEW.state, 1)
        ON CONFLICT (hook, state) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER deliveries_recounted AFTER UPDATE OF state ON deliveries WHEN OLD.state <> NEW.state BEGIN
    UPDATE delivery_counts SET n = n - 1 WHERE hook = IFNULL(OLD.hook, '') AND state = OLD.state;
    INSERT INTO delivery_counts VALUES (IFNULL(NEW.hook, ''), NEW.state, 1)
        ON CONFLICT (hook, state) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER deliveries_uncounted AFTER DELETE ON deliveries BEGIN
    UPDATE delivery_counts SET n = n - 1 WHERE hook = IFNULL(OLD.hook, '') AND state = OLD.state;
END;
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
CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    action TEXT NOT NULL,
    actor TEXT NOT NULL,
    subject TEXT NOT NULL,
    details TEXT NOT NULL
);
CREATE TABLE verifications (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    actor TEXT NOT NULL,
    caller TEXT NOT NULL,
    state TEXT NOT NULL,
    started TEXT NOT NULL,
    ended TEXT,
    seconds REAL,
    restarts INTEGER NOT NULL,
    checks TEXT NOT NULL,
    reason TEXT NOT NULL,
    announced INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX verifications_announced ON verifications (announced) WHERE announced = 0;
"""


_FILE = "queue.sqlite"
_FILES = (_FILE, f"{_FILE}-wal", f"{_FILE}-shm", f"{_FILE}-journal")  # all that SQLite opens


_PEOPLE = ("people", "marks", "holds", "aliases")  # tables that are rebuilt whenever something was deleted from them
# Other tables keep months of rows and are never rebuilt: `secure_delete` overwrites what is deleted from them, but
# SQLite may keep a copy of a row in the unused part of a page. No such copy has a person's data. `answered` and `seen`
# hold keyed hashes of whole requests, which nobody can test without the vault's key (and whoever has that can test ids
# against the tombstones in the vault). `deliveries` holds messages that name nobody, and addresses that `requests` and
# `hooks` keep as well. `agents` holds companies, public keys, and hashes of random tokens.
_REMOVES = re.compile(rf"(?:DELETE FROM|INSERT OR REPLACE INTO) ({'|'.join(_PEOPLE)})\b")


def queue_path(vault: Path) -> PrivateBeside:
    """Return the folder of a vault's service: beside the ledger."""
    return queue_beside(vault)


def make_queue_folder(path: Path) -> PrivateBeside:
    """Make the folder of a service unless it is there; refuse one that is not ours, or that others can enter."""
    folder = PrivateBeside(path)
    files.make_folder(folder, for_group=False)
    return folder


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Database:
    """Two connections that threads share: one for transactions, one to look while somebody writes."""

    def __init__(self, path: Path) -> None:
        self.folder = make_queue_folder(path)
        self.path = self.folder / _FILE
        for name in _FILES:
            _check_file(self.folder / name)
        fresh = not self.path.exists()
        if fresh:
            files.create(self.path)
            files.sync_folder(self.folder)
        self._identity = self._found()
        self._lock, self._reading = threading.RLock(), threading.Lock()
        self._depth, self._writer = 0, 0  # transactions within each other, and the thread whose they are
        self._stale = {*_PEOPLE}  # may hold copies of what was deleted, by an earlier process as well
        try:
            self._connection = self._connect()
            for name, value in (("journal_mode", "WAL"), ("synchronous", "FULL"), ("secure_delete", "ON")):
                self._connection.execute(f"PRAGMA {name}={value}")
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._connection.execute("PRAGMA temp_store=MEMORY")  # a rebuilt file is not copied to others
            self._take_up(fresh)
            (self._version,) = self._connection.execute("PRAGMA data_version").fetchone()  # changes if others write
            self._reader = self._connect()
            self._reader.execute("PRAGMA query_only=ON")
        except sqlite3.DatabaseError as error:
            raise InvalidFile(f"{path} is no queue of a service, or a damaged one: {error}") from None

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
        made.row_factory = sqlite3.Row
        return made

    def _found(self) -> tuple[tuple[int, int] | None, ...]:
        return _inode(self.folder), _inode(self.path)

    def check(self) -> None:
        """Refuse to go on with a file that somebody removed or replaced: what is written to it would be lost."""
        if self._identity != self._found():
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
            for statement in _statements(_TABLES):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version={VERSION}")

    def _empty(self) -> bool:
        return not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone()

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator["Database"]:
        """All or nothing, and on the disk when it ends. Within another transaction it is a part of that.

        Without ``wait`` it is an error (`sqlite3.OperationalError`) if somebody else writes.
        """
        if not self._lock.acquire(blocking=wait):
            raise sqlite3.OperationalError("the database is being written to")
        try:
            if self._depth == 0:
                self.check()
                self._begin(wait)
            self._depth += 1
            try:
                yield self
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._writer = 0
                    self._connection.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._writer = 0
                try:
                    self._connection.execute("COMMIT")
                except sqlite3.Error:  # a full disk leaves the transaction open
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
        finally:
            self._lock.release()

    def _begin(self, wait: bool) -> None:
        """Begin a transaction; another process that writes is waited for, or not."""
        if wait:
            self._connection.execute("BEGIN IMMEDIATE")
        else:
            (patience,) = self._connection.execute("PRAGMA busy_timeout").fetchone()
            self._connection.execute("PRAGMA busy_timeout=0")
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            finally:
                self._connection.execute(f"PRAGMA busy_timeout={patience}")
        self._writer = threading.get_ident()

    def execute(self, statement: str, *values: Any) -> int:
        """Run a statement; return how many rows it changed."""
        with self._lock:
            count = self._connection.execute(statement, values).rowcount
            if count and (match := _REMOVES.match(statement)) is not None:
                self._stale.add(match.group(1))
            return count

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        with self._lock:
            self._connection.executemany(statement, rows)

    def all(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """The rows that a question finds."""
        with self._looking() as connection:
            return connection.execute(statement, values).fetchall()

    def one(self, statement: str, *values: Any) -> sqlite3.Row | None:
        """Return the first row that a question finds, or None."""
        with self._looking() as connection:
            cursor = connection.execute(statement, values)
            row: sqlite3.Row | None = cursor.fetchone()
            cursor.close()  # who has read to its end keeps nobody from cutting the log
            return row

    @contextmanager
    def _looking(self) -> Iterator[sqlite3.Connection]:
        """A connection to look with: in a transaction its own, else one for which nobody who writes is waited for."""
        if self._writer == threading.get_ident():
            yield self._connection
        else:
            with self._reading:
                yield self._reader

    def wipe(self) -> bool:
        """Rebuild the tables that people leave without what was deleted, and cut the log that may still have it.

        Whether that could be done: another process that reads just now keeps the log. It costs what these tables hold
        now, and not what was ever written, as VACUUM would: a table that is emptied as a whole gives all its pages
        back, and `secure_delete` overwrites those. (A table with a trigger or a reference to another would be emptied
        row by row instead.)
        """
        with self._lock:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version != self._version:  # somebody else wrote, and may have deleted people
                self._version = version
                self._stale |= {*_PEOPLE}
            with self.writing():
                for table in sorted(self._stale):
                    self._connection.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM {table} ORDER BY rowid")  # noqa: S608
                    self._connection.execute(f"DELETE FROM {table}")  # noqa: S608
                    self._connection.execute(f"INSERT INTO {table} SELECT * FROM kept ORDER BY rowid")  # noqa: S608
                    self._connection.execute("DROP TABLE kept")
            self._stale.clear()
            return self._cut_log()

    def _cut_log(self) -> bool:
        busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._reading:
            self._reader.close()
            self._connection.close()


def _statements(text: str) -> Iterator[str]:
    """Yield the statements of a script; a trigger has semicolons of its own."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _check_file(path: Inside) -> None:
    """Refuse a file of the database that is not ours, a link, or a second name of another file.

    Nobody else can enter the folder; but it may have been open to others before somebody closed it.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    path.check(found)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise InvalidFile(f"{path} is not a plain file, or a second name of another: remove it")
