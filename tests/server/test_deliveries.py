"""Deliveries: written down before they are sent, tried by the schedule until they arrive, and gone afterwards."""

import sqlite3
import threading
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge.server.database import Database
from expunge.server.deliveries import Deliveries, PostResponse, Unreachable

from support.processes import until
from support.receiver import receiving

DELAYS = [0, 5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600]  # Standard Webhooks
URL = "https://example.com/hook"


class Post:
    """In place of the network: notes what is posted, and answers in turn; the last answer for ever."""

    def __init__(self, *answers):
        self.answers, self.posts = list(answers) or [200], []

    def __call__(self, target, body, headers, *, allowed):
        self.posts.append((target, body, headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            raise Unreachable("nobody")
        return answer if isinstance(answer, PostResponse) else PostResponse(answer)


@pytest.fixture
def build(tmp_path, clock):
    """Deliveries with this network, in one database whoever asks; each call is a process that starts anew."""
    made = []

    def start(post):
        if made:
            made[-1].close()
        made.append(Database(tmp_path / "x.queue"))
        return made[-1], Deliveries(made[-1], clock, post=post)

    yield start
    made[-1].close()


def rows(database):
    return [dict(row) for row in database.fetch_all("SELECT * FROM deliveries ORDER BY id")]


def test_tries_are_made_by_the_schedule_and_end_with_it(build, clock):
    post = Post(500)
    database, deliveries = build(post)
    deliveries.add(URL, b"canary in the body", {"x-key": "canary in the headers"})
    for number, delay in enumerate(DELAYS, 1):
        if delay:
            clock.pass_(seconds=delay - 1)
            assert deliveries.send_due() == 0
            clock.pass_(seconds=1)
        assert deliveries.send_due() == 1
        assert len(post.posts) == number
    clock.pass_(days=10)
    assert deliveries.send_due() == 0
    (row,) = rows(database)
    assert (row["state"], row["tries"], row["answer"]) == ("failed", 10, 500)
    assert {(target.host, body) for target, body, _ in post.posts} == {("example.com", b"canary in the body")}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(answers=st.lists(st.sampled_from([None, 199, 200, 204, 299, 300, 302, 404, 410, 429, 500, 503]), max_size=11))
def test_a_delivery_ends_with_the_first_success_or_410_or_after_ten_tries(build, clock, answers):
    post = Post(*answers, 500)
    database, deliveries = build(post)
    database.execute("DELETE FROM deliveries")
    deliveries.add(URL, b"body", {})
    for _ in range(12):
        deliveries.send_due()
        clock.pass_(days=1, seconds=1)
    tried = (answers + [500] * 10)[:10]
    ends = [
        number for number, answer in enumerate(tried) if answer is not None and (200 <= answer < 300 or answer == 410)
    ]
    expected = tried[: ends[0] + 1] if ends else tried
    (row,) = rows(database)
    assert len(post.posts) == len(expected)
    assert row["state"] == ("sent" if expected[-1] is not None and expected[-1] < 300 and ends else "failed")
    assert (row["answer"], row["tries"]) == (expected[-1], len(expected))
    assert (row["url"], row["body"], row["headers"]) == ("", b"", "{}")


@pytest.mark.parametrize("answer", [200, 410])
def test_what_was_sent_or_given_up_is_in_no_byte_of_the_database(build, clock, tmp_path, answer):
    database, deliveries = build(Post(answer))
    deliveries.add(URL + "?canary-url", b"canary-body" * 1000, {"x-key": "canary-headers"})
    deliveries.send_due()
    database.wipe()
    found = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(found) > 1000
    assert b"canary" not in found


def test_what_was_not_sent_is_sent_after_a_restart(build, clock):
    build(Post(500))[1].add(URL, b"body", {"x-key": "1"})
    deliveries = build(Post(500))[1]
    assert deliveries.send_due() == 1
    post = Post(200)
    deliveries = build(post)[1]
    assert deliveries.send_due() == 0  # the schedule goes on where it was
    clock.pass_(seconds=5)
    assert deliveries.send_due() == 1
    assert build(Post(200))[1].send_due() == 0
    assert post.posts[0][1:] == (b"body", {"x-key": "1"})


@pytest.mark.parametrize(("asked", "waits"), [(1, 5), (60, 60), (10**8, 24 * 3600)])
def test_a_receiver_that_asks_for_more_time_gets_it_up_to_a_day(build, clock, asked, waits):
    deliveries = build(Post(PostResponse(503, asked), 200))[1]
    deliveries.add(URL, b"", {})
    deliveries.send_due()
    clock.pass_(seconds=waits - 1)
    assert deliveries.send_due() == 0
    clock.pass_(seconds=1)
    assert deliveries.send_due() == 1


def test_everything_due_is_tried_once_however_many_hosts_and_deliveries(build):
    post = Post(None)
    deliveries = build(post)[1]
    for number in range(120):
        deliveries.add(f"https://h{number % 12}.example/{number}", b"%d" % number, {})
    assert deliveries.send_due() == 120
    assert sorted(int(body) for _, body, _ in post.posts) == list(range(120))


def test_deliveries_to_one_host_keep_their_order(build):
    post = Post(200)
    deliveries = build(post)[1]
    for number in range(130):
        deliveries.add(URL, b"%d" % number, {})
    deliveries.send_due()
    assert [int(body) for _, body, _ in post.posts] == list(range(130))


def test_how_old_deliveries_ended_is_forgotten(build, clock):
    database, deliveries = build(Post(200))
    deliveries.add(URL, b"", {})
    deliveries.send_due()
    clock.pass_(days=31)
    deliveries.add(URL, b"", {})
    deliveries.send_due()
    assert [row["id"] for row in rows(database)] == [2]


def test_an_address_inside_is_tried_in_vain_and_never_reached(tmp_path, clock):
    database = Database(tmp_path / "x.queue")
    deliveries = Deliveries(database, clock)
    with receiving() as receiver:
        deliveries.add(receiver.url(), b"secret", {})
        deliveries.add("http://localhost:1/", b"secret", {})
        assert deliveries.send_due() == 2
    assert receiver.posts == []
    assert {(row["state"], row["tries"]) for row in rows(database)} == {("waiting", 1)}
    database.close()


def test_the_thread_sends_what_is_added_and_stops(tmp_path):
    database = Database(tmp_path / "x.queue")
    deliveries = Deliveries(database, allowed=["127.0.0.1"])
    deliveries.start()
    with receiving() as receiver:
        deliveries.add(receiver.url("/a"), b"body", {"content-type": "text/plain"})
        assert receiver.came.wait(30)
        deliveries.stop()
    ((path, headers, body),) = receiver.posts
    assert (path, headers["content-type"], body) == ("/a", "text/plain", b"body")
    assert [row["state"] for row in rows(database)] == ["sent"]
    database.close()


def test_a_database_that_fails_for_a_moment_does_not_end_the_thread(tmp_path, capsys):
    database = Database(tmp_path / "x.queue")
    deliveries = Deliveries(database, allowed=["127.0.0.1"])
    whole, failed = database.fetch_all, []

    def fails(statement, *values):
        if not failed:
            failed.append(1)
            raise OSError
        return whole(statement, *values)

    database.fetch_all = fails
    deliveries.start()
    with receiving() as receiver:
        deliveries.add(receiver.url(), b"", {})
        assert receiver.came.wait(30)
        deliveries.stop()
    assert failed == [1]
    assert '"error": "OSError"' in capsys.readouterr().err
    database.close()


def test_a_fault_in_one_try_is_logged_and_ends_neither_the_others_nor_the_delivery(build, clock, capsys):
    post, failed = Post(200), []

    def fails(target, *words, **more):
        if target.host == "odd.example" and not failed:
            failed.append(1)
            raise RuntimeError("secret")
        return post(target, *words, **more)

    database, deliveries = build(fails)
    deliveries.add("https://odd.example/", b"odd", {})
    deliveries.add(URL, b"body", {})
    deliveries.send_due()
    clock.pass_(seconds=6)
    deliveries.send_due()
    assert [row["state"] for row in rows(database)] == ["sent", "sent"]
    log = capsys.readouterr().err
    assert ("RuntimeError" in log, "secret" in log) == (True, False)


def test_what_cannot_be_written_down_is_not_sent_again_and_again(build, monkeypatch):
    """On a full disk a receiver that refuses would be flooded."""
    post = Post(500)
    database, deliveries = build(post)
    deliveries.add(URL, b"body", {})

    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(database, "execute", full)
    for _ in range(5):
        deliveries.send_due()
    assert post.posts == []


def test_a_service_starts_and_stops_its_deliveries(make, clock):
    service = make(allow_hosts=("127.0.0.1",))
    service.start()
    with receiving() as receiver:
        service.deliveries.add(receiver.url(), b"body", {})
        assert receiver.came.wait(30)
        service.stop()
    assert [body for _, _, body in receiver.posts] == [b"body"]


def test_no_log_line_tells_where_or_what(build, capsys):
    deliveries = build(Post(500, 200))[1]
    deliveries.add("https://secret-host.example/secret-path", b"secret-body", {"x": "secret-header"})
    deliveries.send_due()
    log = capsys.readouterr().err
    assert '"event": "delivery"' in log
    assert "secret" not in log


def test_the_schedule_is_that_of_the_standard():
    from expunge.server.deliveries import RETRY_SCHEDULE

    assert list(RETRY_SCHEDULE) == [timedelta(seconds=one) for one in DELAYS]


def test_a_slow_path_delays_neither_another_of_its_host_nor_other_hosts(build):
    """Every destination but one hangs; the one that answers is posted to all the same."""
    held, came = threading.Event(), threading.Event()

    def post(target, body, headers, *, allowed):
        if target.path == "/fast":
            came.set()
        else:
            held.wait(60)
        return PostResponse(200)

    deliveries = build(post)[1]
    for number in range(12):
        deliveries.add(f"https://h{number}.example/slow", b"{}", {})
    deliveries.add("https://h0.example/fast", b"{}", {})
    deliveries.start()
    try:
        assert came.wait(30)
    finally:
        held.set()
        deliveries.stop()


def test_destinations_that_failed_leave_room_for_others(build, clock):
    held, came = threading.Event(), threading.Event()
    first = Post(None)

    def post(target, body, headers, *, allowed):
        if target.host == "fresh.example":
            came.set()
        else:
            held.wait(60)
        return PostResponse(200)

    deliveries = build(first)[1]
    for number in range(60):
        deliveries.add(f"https://h{number}.example/", b"{}", {})
    assert deliveries.send_due() == 60
    clock.pass_(seconds=6)
    deliveries._post = post
    deliveries.start()
    try:
        until(lambda: len(deliveries._busy) == 16)
        deliveries.add("https://fresh.example/", b"{}", {})
        assert came.wait(30)
    finally:
        held.set()
        deliveries.stop()


def steps(database, task):
    """How many hundred instructions SQLite runs for a task."""
    count = 0

    def step():
        nonlocal count
        count += 1

    for connection in (database._connection, database._reader):
        connection.set_progress_handler(step, 100)
    task()
    for connection in (database._connection, database._reader):
        connection.set_progress_handler(None, 0)
    return count


def test_the_end_of_a_delivery_and_of_a_webhook_cost_nothing_for_those_that_ended_before(tmp_path, clock):
    costs = []
    for past in (10, 5000):
        database = Database(tmp_path / str(past))
        deliveries = Deliveries(database, clock, post=Post(200))
        with database.transaction():
            for _ in range(past):
                database.execute(
                    "INSERT INTO deliveries (hook, url, body, headers, made, state)"
                    " VALUES ('h', '', x'', '{}', '2026-01-31T11:00:00Z', 'sent')"
                )
        deliveries.add(URL, b"{}", {})
        for _ in range(20):
            deliveries.add(URL, b"{}", {}, hook="h")
        costs.append(steps(database, lambda d=deliveries, n=past + 1: (d._try_delivery(n), d.cancel_waiting("h"))))
        assert deliveries.counts() == {"waiting": 0, "sent": past + 1, "failed": 20}
        assert deliveries.counts("h") == {"waiting": 0, "sent": past, "failed": 20}
        database.close()
    assert costs[1] <= 2 * costs[0] + 5
