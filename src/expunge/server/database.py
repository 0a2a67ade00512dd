"""The database of the service: SQLite, in a folder beside the ledger that only its owner can enter, `spend.queue`.

SQLite opens its log and its index by name, and trusts what it finds there. In a folder that other users can write to,
they could plant either, or a database with a token of their own. So all three lie in a folder that is checked before
anything in it is opened, together with the service's lock and the bodies of uploads.

The database holds requests that wait, so it is written before anything is acknowledged (WAL, synchronous=FULL). People
are in it as the vault seals them, never in clear, and finished requests leave it: deleted cells are overwritten, and
since SQLite can leave copies of them in pages that it reorganised, those tables are rebuilt and the log is truncated.
"""

import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..errors import InvalidFile
from ..saving import files
from ..saving.ownership import ContainedPath, PrivateSiblingPath
from ..vault.disk.folder import queue_folder

SCHEMA_VERSION = 5

_SCHEMA = """
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
    outcome TEXT NOT NULL DEFAULT '{}',
    awaits INTEGER
);
CREATE INDEX requests_awaits ON requests (awaits) WHERE awaits IS NOT NULL;
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
CREATE TABLE renewals (
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
    request INTEGER,
    notes TEXT NOT NULL,
    reason TEXT NOT NULL
);
"""


_FILE = "queue.sqlite"
_SQLITE_FILES = (_FILE, f"{_FILE}-wal", f"{_FILE}-shm", f"{_FILE}-journal")  # every file that SQLite may open


# These tables are rebuilt after a deletion. The others keep months of rows and are never rebuilt: `secure_delete`
# overwrites deleted rows, but SQLite may keep a copy of a row in the unused part of a page. No such copy has a person's
# data. `answered` and `seen` hold keyed hashes of whole requests, which cannot be tested without the vault's key (and
# with that key, ids can be tested against the vault's tombstones). `deliveries` holds messages that name no person, and
# URLs that `requests` and `hooks` keep as well. `agents` holds companies, public keys, and hashes of random tokens.
_PEOPLE_TABLES = ("people", "marks", "holds", "aliases")
_DELETE_PATTERN = re.compile(rf"(?:DELETE FROM|INSERT OR REPLACE INTO) ({'|'.join(_PEOPLE_TABLES)})\b")


def queue_path(vault: Path) -> PrivateSiblingPath:
    """Return the folder of a vault's service, beside the ledger."""
    return queue_folder(vault)


def make_queue_folder(path: Path) -> PrivateSiblingPath:
    """Create the folder of a service if it is missing; refuse one that other users own or can enter."""
    folder = PrivateSiblingPath(path)
    files.VaultDir(folder).make(for_group=False)
    return folder


class Database:
    """Two connections that threads share: one for transactions, one for reading while another thread writes."""

    def __init__(self, path: Path) -> None:
        self.folder = make_queue_folder(path)
        self.path = self.folder / _FILE
        for name in _SQLITE_FILES:
            _check_file(self.folder / name)
        fresh = not self.path.exists()
        if fresh:
            files.create(self.path)
            files.sync_folder(self.folder)
        self._identity = self._find_identity()
        self._lock, self._reader_lock = threading.RLock(), threading.Lock()
        self._depth, self._writer_thread = 0, 0  # nested transactions, and the thread that runs them
        self._commit_failed = False
        self._stale = {*_PEOPLE_TABLES}  # may hold copies of deleted rows, also from an earlier process
        try:
            self._connection = self._connect()
            for name, value in (("journal_mode", "WAL"), ("synchronous", "FULL"), ("secure_delete", "ON")):
                self._connection.execute(f"PRAGMA {name}={value}")
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._connection.execute("PRAGMA temp_store=MEMORY")  # rebuilding a table writes no temporary file
            self._prepare_schema(fresh)
            (self._version,) = self._connection.execute(
                "PRAGMA data_version"
            ).fetchone()  # changes when other processes write
            self._reader = self._connect()
            self._reader.execute("PRAGMA query_only=ON")
        except sqlite3.DatabaseError as error:
            raise InvalidFile(f"{path} is not the queue of a service, or is damaged: {error}") from None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        return connection

    def _find_identity(self) -> tuple[tuple[int, int] | None, ...]:
        def inode(path: Path) -> tuple[int, int] | None:
            try:
                status = os.lstat(path)
            except OSError:
                return None
            return status.st_dev, status.st_ino

        return inode(self.folder), inode(self.path)

    def check_identity(self) -> None:
        """Raise OperationalError if the file was removed or replaced: what is written to it would be lost."""
        if self._identity != self._find_identity():
            raise sqlite3.OperationalError("the queue's file was removed or replaced")

    def check_committed(self) -> None:
        """Raise OperationalError if a commit failed and nothing was written since; `try_write` ends that."""
        if self._commit_failed:
            raise sqlite3.OperationalError("the disk failed to store the last change of the queue")

    def try_write(self) -> None:
        """After a failed commit, write the first page again, to find out whether the disk works now."""
        if self._commit_failed:
            with self.transaction():
                self._connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            self._commit_failed = False

    def _prepare_schema(self, fresh: bool) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION:
            return
        if version or not (fresh or self._connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None):
            raise InvalidFile(
                f"{self.path} has version {version}; this release reads version {SCHEMA_VERSION} only: "
                "use the release that wrote it"
            )
        with self.transaction():
            for statement in _split_statements(_SCHEMA):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    @contextmanager
    def transaction(self, *, wait: bool = True) -> Iterator["Database"]:
        """Run the block as one transaction, which is on the disk when the block ends.

        Within another transaction it is part of that one. Without ``wait``, raise `sqlite3.OperationalError` if another
        thread or process is writing.
        """
        if not self._lock.acquire(blocking=wait):
            raise sqlite3.OperationalError("the database is being written to")
        try:
            if self._depth == 0:
                self.check_identity()
                if wait:
                    self._connection.execute("BEGIN IMMEDIATE")
                else:
                    (timeout,) = self._connection.execute("PRAGMA busy_timeout").fetchone()
                    self._connection.execute("PRAGMA busy_timeout=0")
                    try:
                        self._connection.execute("BEGIN IMMEDIATE")
                    finally:
                        self._connection.execute(f"PRAGMA busy_timeout={timeout}")
                self._writer_thread = threading.get_ident()
            self._depth += 1
            try:
                yield self
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._writer_thread = 0
                    self._connection.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._writer_thread = 0
                try:
                    self._connection.execute("COMMIT")
                except sqlite3.Error as error:  # a full disk leaves the transaction open
                    self._commit_failed = isinstance(error, sqlite3.OperationalError)
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
        finally:
            self._lock.release()

    def execute(self, statement: str, *values: Any) -> int:
        """Run a statement; return how many rows it changed."""
        with self._lock:
            count = self._connection.execute(statement, values).rowcount
            if count and (match := _DELETE_PATTERN.match(statement)) is not None:
                self._stale.add(match.group(1))
            return count

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        with self._lock:
            self._connection.executemany(statement, rows)

    def fetch_all(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """Return all matching rows."""
        with self._read_connection() as connection:
            return connection.execute(statement, values).fetchall()

    def fetch_one(self, statement: str, *values: Any) -> sqlite3.Row | None:
        """Return the first matching row, or None."""
        with self._read_connection() as connection:
            cursor = connection.execute(statement, values)
            row: sqlite3.Row | None = cursor.fetchone()
            cursor.close()  # an open cursor would keep the log from being truncated
            return row

    @contextmanager
    def _read_connection(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for reading: a transaction's own, else the one that does not wait for writers."""
        if self._writer_thread == threading.get_ident():
            yield self._connection
        else:
            with self._reader_lock:
                yield self._reader

    def wipe(self) -> bool:
        """Rebuild tables from which people were deleted, and truncate the log, which may still have the deleted rows.

        Return whether that succeeded: another process that is reading keeps the log. The cost is that of the rows in
        these tables now, not of all that was ever written, as with VACUUM: a table that is emptied as a whole gives all
        its pages back, and `secure_delete` overwrites those. (A table with a trigger or a foreign key would be emptied
        row by row instead.)
        """
        with self._lock:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version != self._version:  # another process wrote, and may have deleted people
                self._version = version
                self._stale |= {*_PEOPLE_TABLES}
            with self.transaction():
                for table in sorted(self._stale):
                    self._connection.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM {table} ORDER BY rowid")  # noqa: S608
                    self._connection.execute(f"DELETE FROM {table}")  # noqa: S608
                    self._connection.execute(f"INSERT INTO {table} SELECT * FROM kept ORDER BY rowid")  # noqa: S608
                    self._connection.execute("DROP TABLE kept")
            self._stale.clear()
            busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def close(self) -> None:
        """Close both connections."""
        with self._lock, self._reader_lock:
            self._reader.close()
            self._connection.close()


def _split_statements(text: str) -> Iterator[str]:
    """Yield the statements of a script; triggers contain semicolons."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _check_file(path: ContainedPath) -> None:
    """Refuse a file of the database that has another owner, is a link, or is a second name of another file.

    Other users cannot enter the folder now, but its permissions may have been wider before.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    path.check(status)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise InvalidFile(f"{path} is not a regular file, or has a second name (hard link): remove it")


T = TypeVar("T")
R = TypeVar("R")


@dataclass(eq=False)
class _Ticket(Generic[T, R]):
    """An item, and its result or error."""

    item: T
    done: bool = False
    result: R | None = None
    error: BaseException | None = None


class GroupCommit(Generic[T, R]):
    """Group commit: carries out the items of several threads together, at the cost of one.

    The first thread becomes the leader: it carries out its own item together with all items that wait, and hands out
    the results. A leader lingers only if more callers were around when the last group ended, and only for a fraction of
    the time that the last group took. Without that, eight callers who take turns would end up as groups of one and
    seven.

    Parameters
    ----------
    carry_out : callable
        Gets a group's items and returns their results, in the same order. An error is raised for every caller.
    within : callable
        Returns the context in which a group is put together and carried out: a lock or a transaction. Items that
        arrive while it is being entered still belong to the group; results are handed out after it was left.
    linger : float
        How long to wait at most for callers who are expected back, as a fraction of the time of the last group.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[T]], Sequence[R]],
        within: Callable[[], AbstractContextManager[object]],
        *,
        linger: float = 0.0,
    ) -> None:
        self._carry_out, self._within, self._linger = carry_out, within, linger
        self._lock = threading.RLock()
        self._arrival = threading.Condition(self._lock)  # for the leader: an item came, or does not come after all
        self._finish = threading.Condition(self._lock)  # for all others, who would only wake up in vain before
        self._waiting = list[_Ticket[T, R]]()
        self._leading = False
        self._coming = 0  # callers who are about to submit
        self._expected_callers, self._linger_until = 0, 0.0

    def submit(self, item: T) -> R:
        """Carry out an item, together with others that wait, and return its result."""
        ticket = _Ticket[T, R](item)
        with self._lock:
            self._waiting.append(ticket)
            self._arrival.notify()  # a lingering leader counts the items
            while self._leading and not ticket.done:
                self._finish.wait()
            if not ticket.done:
                self._leading = True
        if not ticket.done:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[return-value] # R may be None

    @contextmanager
    def announce(self) -> Iterator[None]:
        """Prepare an item within the block, and submit it right after; a lingering leader waits for it."""
        with self._lock:
            self._coming += 1
        try:
            yield
        finally:
            with self._lock:
                self._coming -= 1
                self._arrival.notify()

    @property
    def waiting_count(self) -> int:
        """The number of items that wait."""
        return len(self._waiting)

    def _lead(self) -> None:
        """Carry out all items that wait, the caller's own among them."""
        group, results, failure = list[_Ticket[T, R]](), list[R](), None
        started = time.monotonic()
        try:
            with self._within():
                with self._lock:  # take all items that wait, after lingering for callers of the last group
                    while len(self._waiting) < self._expected_callers or self._coming:
                        if (left := self._linger_until - time.monotonic()) <= 0:
                            break
                        self._arrival.wait(left)
                    group, self._waiting = self._waiting, []
                started = time.monotonic()
                results = list(self._carry_out([ticket.item for ticket in group]))
        except BaseException as error:  # the leader's thread raises it as well
            failure = error
        with self._lock:
            if not group:  # the context could not be entered: every waiting caller gets the error
                group, self._waiting = self._waiting, []
            for k, ticket in enumerate(group):
                ticket.done, ticket.error = True, failure
                ticket.result = None if failure is not None else results[k]
            self._leading = False
            now = time.monotonic()
            self._expected_callers = len(group) + len(self._waiting)
            self._linger_until = now + self._linger * (now - started)
            self._finish.notify_all()
