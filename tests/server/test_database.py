"""The database: all or nothing, one file that only its owner reads, and nothing left of what was deleted."""

import os
import sqlite3
import stat
import threading

import pytest

from expunge.errors import InvalidFile
from expunge.server.database import Database


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spend.queue"


def values(database):
    return {row["mark"]: row["until"] for row in database.all("SELECT * FROM seen")}


def put(database, name, value="1"):
    database.execute("INSERT INTO seen VALUES (?, ?)", name, value)


def test_only_the_owner_can_read_it_whatever_the_umask(path):
    before = os.umask(0)
    try:
        database = Database(path)
        put(database, "a")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert modes == {0o600}
    assert len(list(path.parent.iterdir())) == 3  # the log and its index, too
    database.close()


def test_a_transaction_is_all_or_nothing_also_within_another(path):
    database = Database(path)
    with database.writing():
        put(database, "kept")
    with pytest.raises(ZeroDivisionError), database.writing():
        put(database, "outer")
        with database.writing():
            put(database, "inner")
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), database.writing(), database.writing():
        put(database, "inner")
        raise ZeroDivisionError
    assert set(values(database)) == {"kept"}
    with database.writing():  # and it goes on afterwards
        put(database, "more")
    assert set(values(Database(path))) == {"kept", "more"}


def test_a_commit_that_fails_leaves_no_transaction_open(path):
    database = Database(path)
    with pytest.raises(sqlite3.IntegrityError), database.writing():
        database.execute("PRAGMA defer_foreign_keys=ON")
        database.execute("INSERT INTO people VALUES ('none', x'00', x'00')")
    with database.writing():
        put(database, "a")
    assert values(database) == {"a": "1"}


def test_threads_share_it_without_seeing_half_of_a_transaction(path):
    database, seen, stop = Database(path), set(), threading.Event()

    def look():
        while not stop.is_set():
            seen.add(len(database.all("SELECT * FROM seen")))

    reader = threading.Thread(target=look)
    reader.start()
    for k in range(50):
        with database.writing():
            put(database, f"{k} a")
            put(database, f"{k} b")
    stop.set()
    reader.join()
    assert {count % 2 for count in seen} <= {0}
    assert len(values(database)) == 100


def test_deleted_cells_are_in_no_file_once_it_was_wiped(path):
    database, canary = Database(path), "canary-" + "x" * 40
    for k in range(500):  # over many pages, which are then joined
        put(database, f"{canary}{k}", canary)
    for k in range(0, 500, 3):
        put(database, f"other {k}", "y" * 300)
    raw = b"".join(one.read_bytes() for one in path.parent.iterdir())
    assert canary.encode() in raw
    database.execute("DELETE FROM seen WHERE until = ?", canary)
    assert database.wipe()
    assert canary.encode() not in b"".join(one.read_bytes() for one in path.parent.iterdir())
    assert len(values(database)) == 167


def test_a_wipe_says_when_somebody_reads(path):
    database, other = Database(path), sqlite3.connect(path, isolation_level=None)
    put(database, "a")
    other.execute("BEGIN")
    other.execute("SELECT * FROM seen").fetchall()
    database._connection.execute("PRAGMA busy_timeout=1")
    assert not database.wipe()
    other.execute("COMMIT")
    assert database.wipe()
    other.close()


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at" * 9, b"SQLite format 3\0"])
def test_another_file_is_refused_and_kept(path, content):
    path.write_bytes(content)
    with pytest.raises(InvalidFile):
        Database(path)
    assert path.read_bytes() == content


def test_a_queue_of_another_version_is_refused(path):
    Database(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version=7")
    other.close()
    with pytest.raises(InvalidFile, match="version 7"):
        Database(path)


def test_a_database_that_is_something_else_is_refused(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (a)")
    other.close()
    with pytest.raises(InvalidFile):
        Database(path)
