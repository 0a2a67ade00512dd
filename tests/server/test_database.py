"""The database: all or nothing, one file that only its owner reads, and nothing left of what was deleted."""

import os
import random
import re
import sqlite3
import stat
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.errors import InvalidFile
from expunge.server.database import Database
from expunge.server.deliveries import PostResponse
from expunge.server.matters import Author
from expunge.server.protocols.opendsr.processor import Processor
from expunge.server.queue import JobFilter, NewJob
from expunge.server.tokens import Tokens


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spend.queue"


@pytest.fixture
def file(path):
    """The database itself, in a folder that is there."""
    path.mkdir(mode=0o700)
    return path / "queue.sqlite"


def values(database):
    return {row["mark"]: row["until"] for row in database.fetch_all("SELECT * FROM seen")}


def put(database, name, value="1"):
    database.execute("INSERT INTO seen VALUES (?, ?)", name, value)


def test_only_the_owner_can_read_it_whatever_the_umask(path):
    before = os.umask(0)
    try:
        database = Database(path)
        put(database, "a")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(one.stat().st_mode) for one in path.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert len(list(path.iterdir())) == 3  # the log and its index, too
    database.close()


def test_a_transaction_is_all_or_nothing_also_within_another(path):
    database = Database(path)
    with database.transaction():
        put(database, "kept")
    with pytest.raises(ZeroDivisionError), database.transaction():
        put(database, "outer")
        with database.transaction():
            put(database, "inner")
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), database.transaction(), database.transaction():
        put(database, "inner")
        raise ZeroDivisionError
    assert set(values(database)) == {"kept"}
    with database.transaction():  # and it goes on afterwards
        put(database, "more")
    assert set(values(Database(path))) == {"kept", "more"}


def test_a_commit_that_fails_leaves_no_transaction_open(path):
    database = Database(path)
    with pytest.raises(sqlite3.IntegrityError), database.transaction():
        database.execute("PRAGMA defer_foreign_keys=ON")
        database.execute(
            "INSERT INTO matter_log (matter, time, what, actor, token, people, reason)"
            " VALUES ('none', '', '', '', '', 0, '')"
        )
    with database.transaction():
        put(database, "a")
    assert values(database) == {"a": "1"}


def test_threads_share_it_without_seeing_half_of_a_transaction(path):
    database, seen, stop = Database(path), set(), threading.Event()

    def look():
        while not stop.is_set():
            seen.add(len(database.fetch_all("SELECT * FROM seen")))

    reader = threading.Thread(target=look)
    reader.start()
    for k in range(50):
        with database.transaction():
            put(database, f"{k} a")
            put(database, f"{k} b")
    stop.set()
    reader.join()
    assert {count % 2 for count in seen} <= {0}
    assert len(values(database)) == 100


def test_who_looks_does_not_wait_for_who_writes(path):
    database, seen = Database(path), []
    tokens = Tokens(database)
    _, text = tokens.create("caller", ["predict"], None)

    def look():
        seen.append(set(values(database)))
        seen.append(tokens.authenticate(text).name)  # which would like to note its use

    with database.transaction():
        put(database, "a")
        assert set(values(database)) == {"a"}
        other = threading.Thread(target=look, daemon=True)
        other.start()
        other.join(30)
        assert seen == [set(), "caller"]
    assert set(values(database)) == {"a"}
    database.close()


STATEMENTS = {
    "people": ("INSERT INTO people VALUES ('r', ?, ?)", "hash"),
    "marks": ("INSERT INTO marks VALUES (?, ?)", "mark"),
    "holds": ("INSERT INTO holds VALUES ('m', ?, ?)", "hash"),
    "aliases": ("INSERT INTO aliases VALUES (randomblob(16), ?, ?)", "hash"),
}


@pytest.mark.parametrize(
    ("table", "by_another"),
    [(table, by_another) for table in STATEMENTS for by_another in (False, True)],
)
def test_deleted_people_are_in_no_file_once_their_tables_were_wiped(path, table, by_another):
    """In whichever page a copy was left; the others stay, in their order."""
    insert, column = STATEMENTS[table]
    delete = f"DELETE FROM {table} WHERE {column} = ?"  # noqa: S608
    database, canary = Database(path), b"canary-"
    database.execute(
        "INSERT INTO requests (id, kind, protocol, state, regulation, received, since, runs, due, people, reference,"
        " actor, caller) VALUES ('r', '', '', '', '', '', '', '', '', 0, '', '', '')"
    )
    database.execute("INSERT INTO matters (id, name, reason, opened, actor) VALUES ('m', '', '', '', '')")
    chance = random.Random(2)
    people = [
        (canary if chance.random() < 0.7 else b"kept ") + b"%05d" % k + b"x" * chance.randrange(10, 900)
        for k in chance.sample(range(10**5), 1500)
    ]
    with database.transaction():
        for person in people:
            database.execute(insert, person, person)
    leaving = [person for person in people if person.startswith(canary)]
    staying = [person for person in people if not person.startswith(canary)]
    for k, person in enumerate(chance.sample(leaving, len(leaving))):  # pages are joined and divided meanwhile
        with database.transaction():
            database.execute(delete, person)
            if k % 4 == 0:
                staying.append(b"new %05d" % k + b"y" * chance.randrange(10, 700))
                database.execute(insert, staying[-1], staying[-1])
    if by_another:  # a process that was killed before it wiped
        database.close()
        assert canary in b"".join(one.read_bytes() for one in path.iterdir())
        database = Database(path)
    assert database.wipe()
    assert canary not in b"".join(one.read_bytes() for one in path.iterdir())
    found = database.fetch_all(f"SELECT {column} FROM {table} ORDER BY rowid")  # noqa: S608
    assert [row[column] for row in found] == staying


def test_a_wipe_says_when_somebody_reads(path):
    database = Database(path)
    other = sqlite3.connect(database.path, isolation_level=None)
    put(database, "a")
    other.execute("BEGIN")
    other.execute("SELECT * FROM seen").fetchall()
    database._connection.execute("PRAGMA busy_timeout=1")
    assert not database.wipe()
    other.execute("COMMIT")
    assert database.wipe()
    other.close()


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at" * 9, b"SQLite format 3\0"])
def test_another_file_is_refused_and_kept(path, file, content):
    file.write_bytes(content)
    with pytest.raises(InvalidFile):
        Database(path)
    assert file.read_bytes() == content


def test_a_queue_of_another_version_is_refused(path, file):
    Database(path).close()
    with sqlite3.connect(file) as other:
        other.execute("PRAGMA user_version=7")
    other.close()
    with pytest.raises(InvalidFile, match="version 7"):
        Database(path)


def test_a_database_that_is_something_else_is_refused(path, file):
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE mine (a)")
    other.close()
    with pytest.raises(InvalidFile):
        Database(path)


# What others planted

STRANGER = 12345
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
OTHERS = [pytest.param("given", marks=root), "another user"]


def give(path, way, monkeypatch):
    """Have a path belong to somebody else: by giving it away, or by being somebody else."""
    if way == "given":
        os.chown(path, STRANGER, STRANGER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


def planted_queue(path):
    """A queue of somebody else's, with a token of theirs in it; return the token's text."""
    database = Database(path)
    _, text = Tokens(database).create("attacker", ["admin"], None)
    database.wipe()
    database.close()
    return text


@pytest.mark.parametrize("way", OTHERS)
def test_a_queue_of_another_user_is_refused_with_the_tokens_in_it(path, monkeypatch, way):
    planted_queue(path)
    give(path, way, monkeypatch)
    with pytest.raises(InvalidFile, match="belongs to another user"):
        Database(path)


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
def test_a_queue_that_others_can_enter_is_refused(path, mode):
    planted_queue(path)
    path.chmod(mode)
    with pytest.raises(InvalidFile, match="by others"):
        Database(path)


def test_a_link_in_place_of_the_queue_is_not_followed(path, tmp_path):
    planted_queue(tmp_path / "other.queue")
    path.symlink_to(tmp_path / "other.queue")
    with pytest.raises(InvalidFile, match="link"):
        Database(path)


def test_a_file_in_place_of_the_folder_is_refused_and_kept(path, tmp_path):
    planted_queue(tmp_path / "other.queue")
    (tmp_path / "other.queue/queue.sqlite").rename(path)
    before = path.read_bytes()
    with pytest.raises(InvalidFile, match="not a folder"):
        Database(path)
    assert path.read_bytes() == before


FILES = [f"queue.sqlite{end}" for end in ("", "-wal", "-shm", "-journal")]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("way", ["link", "second name", "folder", "writable", pytest.param("given", marks=root)])
def test_no_file_of_the_database_is_opened_that_was_planted(path, tmp_path, monkeypatch, name, way):
    Database(path).close()
    planted, other = path / name, tmp_path / "other"
    other.write_bytes(planted.read_bytes() if planted.exists() else b"planted")
    planted.unlink(missing_ok=True)
    if way == "link":
        planted.symlink_to(other)
    elif way == "second name":
        planted.hardlink_to(other)
    elif way == "folder":
        planted.mkdir()
    else:
        planted.write_bytes(other.read_bytes())
        planted.chmod(0o666)
        if way == "given":
            os.chown(planted, STRANGER, STRANGER)
    before = other.read_bytes()
    with pytest.raises(InvalidFile):
        Database(path)
    assert other.read_bytes() == before


def test_files_beside_the_folder_change_nothing(path, tmp_path):
    planted_queue(tmp_path / "other.queue")
    for end in ("-wal", "-shm", "-journal"):
        (tmp_path / f"spend.queue{end}").write_bytes((tmp_path / "other.queue/queue.sqlite").read_bytes())
    (tmp_path / "spend.serving").touch()
    assert not Tokens(Database(path)).has_any()


def put_people(database, numbers):
    """Write people down whose sealed ids are recognised in a file."""
    with database.transaction():
        for k in numbers:
            name = f"{k:06}".encode()
            sealed = b"sealed-" + name * (1 + k % 9)
            database.execute("INSERT INTO people VALUES ('job', ?, ?)", b"#hash" + name, sealed)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300), st.integers(1, 200)), max_size=12))
def test_after_any_history_only_those_who_wait_are_in_the_file(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("wiped") / "spend.queue"
    database, there = Database(path), set()
    for delete, start, count in steps:
        numbers = set(range(start, start + count))
        if delete:
            for k in numbers & there:
                database.execute("DELETE FROM people WHERE hash = ?", f"#hash{k:06}".encode())
            there -= numbers
        else:
            put_people(database, sorted(numbers - there))
            there |= numbers
    assert database.wipe()
    left = b"".join(one.read_bytes() for one in path.iterdir())
    assert {int(k) for k in re.findall(rb"(?:#hash|sealed-)(\d{6})", left)} == there
    database.close()


def test_a_wipe_costs_as_much_as_waits_and_not_as_was(path):
    database = Database(path)
    for _ in range(300):
        database.execute(
            "INSERT INTO requests (id, kind, protocol, state, regulation, received, since, runs, due, people, actor,"
            " caller, reference) VALUES (hex(randomblob(9)), '', '', '', '', '', '', '', '', 1, '', '', ?)",
            "x" * 5000,
        )
    database.wipe()
    before = database.path.read_bytes()
    put_people(database, range(5))
    database.execute("DELETE FROM people")
    assert database.wipe()
    after = database.path.read_bytes()
    pages = [before[k : k + 4096] != after[k : k + 4096] for k in range(0, len(before), 4096)]
    assert sum(pages) < 10  # of hundreds


@pytest.mark.parametrize("count", [10, 2000])
def test_the_first_wipe_after_a_start_writes_no_row_of_a_table_that_grows(path, count):
    """Idempotency-Keys, deliveries and signed messages are kept for months."""
    database = Database(path)
    with database.transaction():
        for k in range(count):
            database.execute("INSERT INTO answered VALUES (?, ?, ?, '2026-01-01')", f"k{k}", f"m{k}", f"r{k}")
            database.execute(
                "INSERT INTO deliveries (hook, url, body, headers, made) VALUES ('h', '', x'00', '{}', '2026-01-01')"
            )
            database.execute("INSERT INTO agents VALUES (?, '', '', '')", f"a{k}")
            put(database, f"s{k}")
    database.close()
    database = Database(path)
    put_people(database, range(5))
    database.execute("DELETE FROM people WHERE hash = ?", b"#hash000001")
    before = database._connection.total_changes
    assert database.wipe()
    assert database._connection.total_changes - before < 20
    database.close()


def test_requests_are_counted_as_they_come_and_move(service):
    def counted():
        rows = service.database.fetch_all("SELECT kind, protocol, state, COUNT(*) AS n FROM requests GROUP BY 1, 2, 3")
        return {(row["kind"], row["protocol"], row["state"]): row["n"] for row in rows}

    assert service.queue.counts() == {}
    jobs = [service.erase([f"p{k}"], NewJob("erasure", "api", "gdpr"), wait=False) for k in range(3)]
    service.cancel(jobs[0].id, "", Author())
    assert service.queue.counts() == counted()
    service.run_due()
    assert service.queue.counts() == counted()


def plan_of(database, question, *values):
    """How SQLite answers a question."""
    return " ".join(row["detail"] for row in database.fetch_all(f"EXPLAIN QUERY PLAN {question}", *values))


def test_no_question_that_is_asked_often_reads_the_whole_history(service, monkeypatch):
    asked, all_ = [], service.database.fetch_all
    monkeypatch.setattr(service.database, "fetch_all", lambda *words: asked.append(words) or all_(*words))
    service.deliveries.counts()
    service.deliveries.counts("hook")
    service.queue.page(JobFilter(reference="DSR-1"))
    Processor(service)
    monkeypatch.undo()
    plans = [plan_of(service.database, *words) for words in asked]
    assert len(plans) == 4
    assert not [plan for plan in plans if re.search(r"SCAN (requests|deliveries)(?! USING)", plan)]


def test_deliveries_are_counted_as_they_come_and_move(service):
    deliveries, database = service.deliveries, service.database
    deliveries._post = lambda *_, **__: PostResponse(200, None)
    for k in range(3):
        deliveries.add("https://example.com/", b"{}", {})
        deliveries._insert("https://example.com/", b"{}", {"webhook-id": str(k)}, "h", service.clock())
    assert deliveries.counts() == {"waiting": 6, "sent": 0, "failed": 0}
    deliveries.cancel_waiting("h")
    assert deliveries.counts("h") == {"waiting": 0, "sent": 0, "failed": 3}
    deliveries.send_due()
    assert deliveries.counts() == {"waiting": 0, "sent": 3, "failed": 3}
    deliveries.resend(2, "https://example.com/")
    database.execute("DELETE FROM deliveries WHERE state = 'sent'")
    assert deliveries.counts() == {"waiting": 1, "sent": 0, "failed": 2}
