"""Logs: named events with the frames of exceptions, request and token ids, levels; never an id, value or message."""

import json
import logging
import sqlite3
import threading
import uuid
import warnings
from datetime import timedelta

import pytest

from expunge.errors import InvalidFile
from expunge.server import logs
from expunge.server.app import create_app
from expunge.server.logs import capture_logging, log, log_error, log_seldom, request_scope, set_level, tag_token
from expunge.server.queue import ERASURE, NewJob

from support.client import LocalClient
from support.matters import hold

CANARY = "p7-canary@example.com"


@pytest.fixture
def lines(capsys):
    """Return the lines that were logged since the last call."""
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.fixture(autouse=True)
def quiet_afterwards():
    hooks = threading.excepthook, logging.getLogger().handlers
    names = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
    states = {name: (one.disabled, one.propagate) for name in names if (one := logging.getLogger(name))}
    logs._seldom.clear()
    yield
    set_level("info")
    logging.captureWarnings(False)
    threading.excepthook, logging.getLogger().handlers = hooks
    for name, (disabled, propagate) in states.items():
        logging.getLogger(name).disabled, logging.getLogger(name).propagate = disabled, propagate


def fail_with(error):
    """A function that raises an error which carries an id in its message, by way of another."""

    def failing(*args, **named):
        person = CANARY  # a local variable of a frame
        try:
            raise KeyError(person)
        except KeyError:
            raise error(person) from None if error is InvalidFile else KeyError(person)

    return failing


def events(lines, name):
    return [line for line in lines if line["event"] == name]


def check(found, name, error, *functions):
    """The event is there, with the class and the frames of the exception, and no id."""
    (line,) = events(found, name)
    assert (line["error"], line["level"]) == (error.__name__, "error")
    assert line["frames"][-1].startswith("server/test_logs.py:")
    assert line["frames"][-1].endswith(" failing")
    for function in functions:
        assert any(frame.endswith(f" {function}") and "expunge/server/" in frame for frame in line["frames"]), function
    assert CANARY not in json.dumps(found)


def asked():
    return NewJob(ERASURE, "api", "gdpr")


def test_an_erasure_that_fails_is_logged_with_its_frames(service, lines, monkeypatch):
    for error in (InvalidFile, OSError):
        monkeypatch.setattr(service.vault, "unlearn_group", fail_with(error))
        service.erase([f"p{error.__name__}"], asked())
        check(lines(), "erasure-failed", error, "_run_group")


def test_a_failure_of_the_clock_is_logged_with_its_frames(service, lines, monkeypatch):
    fail = fail_with(RuntimeError)

    def once():
        service._stop.set()
        fail()

    monkeypatch.setattr(service, "run_due", once)
    service._run_clock()
    check(lines(), "clock-failed", RuntimeError, "_run_clock")


def test_a_listener_that_fails_is_logged_with_its_frames(service, lines):
    service.listeners.append(fail_with(ValueError))
    hold(service, "p1", name="case")
    service.erase(["p1"], asked())
    found = lines()
    assert [line["of"] for line in events(found, "listener-failed")] == ["accepted", "refused"]
    check(found[:1], "listener-failed", ValueError, "emit")


def test_failures_of_deliveries_are_logged_with_their_frames(service, lines, monkeypatch):
    fail = fail_with(RuntimeError)
    deliveries = service.deliveries

    def once():
        deliveries._stop.set()
        fail()

    with monkeypatch.context() as patched:
        patched.setattr(deliveries, "_start_threads", once)
        deliveries._run()
    check(lines(), "deliveries-failed", RuntimeError, "_run")
    deliveries._stop.clear()
    deliveries.add("https://93.184.215.14/", b"{}", {})
    monkeypatch.setattr(deliveries, "_post", fail)
    deliveries.send_due()
    found = lines()
    check(found, "delivery-failed", RuntimeError, "_send_batch")


def test_a_callback_that_fails_is_logged_with_its_frames(service, lines, monkeypatch):
    app = create_app(service)
    monkeypatch.setattr(app.state.opendsr, "_call_back", fail_with(sqlite3.OperationalError))
    job = NewJob(ERASURE, "opendsr", "gdpr", callbacks=("https://93.184.215.14/",), outside=str(uuid.uuid4()))
    service.erase(["p1"], job)
    check(lines(), "callback-failed", sqlite3.OperationalError, "handle_event")


def test_a_request_that_fails_is_logged_with_its_frames_and_ids(service, client, lines, monkeypatch):
    token, text = service.tokens.create("desk", ["admin"], timedelta(days=1))
    headers = {"Authorization": f"Bearer {text}", "X-Request-Id": "4bf92f3577b34da6a3ce929d0e0e4736"}
    monkeypatch.setattr(service.vault, "predictions", fail_with(ZeroDivisionError))
    answer = client.post("/invocations", json={"inputs": [[1, 2]]}, headers=headers)
    assert answer.status_code == 500
    assert answer.headers["X-Request-Id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    found = lines()
    check(found, "request-failed", ZeroDivisionError, "invoke")
    assert [cause["error"] for cause in events(found, "request-failed")[0]["causes"]] == ["KeyError"]
    assert {line["event"] for line in found} == {"request-failed", "http"}
    assert {(line["request_id"], line["token"]) for line in found} == {(headers["X-Request-Id"], token.id)}
    assert text not in json.dumps(found)


def test_a_page_that_fails_is_logged_with_its_frames(service, client, lines, monkeypatch):
    monkeypatch.setattr(service.vault, "status", fail_with(ZeroDivisionError))
    assert client.get("/").status_code == 500
    check(lines(), "page-failed", ZeroDivisionError, "handle_errors")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("0196b3f2-7a0e-7c3e-9a59-3f1d0c6f2b11", True), ("4bf92f3577b34da6a3ce929d0e0e4736", True),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", True), (CANARY, False), ("4711", False), ("4929000000006", False), ("", False),
        ("4bf92f3577b34da6a3ce929d0e0e4736\n", False), ("x" * 32, False), ("4bf92f3577b34da6" * 9, False),
    ],
)  # fmt: skip
def test_only_known_forms_of_request_ids_are_taken_over(client, lines, given, taken):
    answer = client.get("/version", headers={"X-Request-Id": given.encode()})
    assert (answer.headers["X-Request-Id"] == given) is taken
    (line,) = lines()
    assert line["request_id"] == answer.headers["X-Request-Id"]
    assert uuid.UUID(answer.headers["X-Request-Id"]) if not taken else True


def test_what_is_refused_for_its_size_is_logged_like_every_answer(client, lines):
    answer = client.post("/invocations", content=b"", headers={"Content-Length": str(10**12)})
    assert answer.status_code == 413
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    (line,) = lines()
    assert (line["status"], line["request_id"]) == (413, answer.headers["X-Request-Id"])


def test_a_session_tags_the_lines_of_its_requests(service, lines):
    token, text = service.tokens.create("desk", ["read"], timedelta(days=1))
    with LocalClient(create_app(service)) as client:
        proof = client.get("/login").text.split('name="proof" value="')[1].split('"')[0]
        lines()
        client.post("/login", data={"token": text, "proof": proof}, headers={"Origin": "http://localhost"})
    found = lines()
    assert [line["event"] for line in found] == ["login", "http", "http"]
    assert {line["token"] for line in found} == {token.id}


def test_levels_leave_out_what_is_below_them(client, lines):
    client.get("/healthz")
    assert lines() == []
    set_level("debug")
    client.get("/healthz")
    assert [line["level"] for line in lines()] == ["debug"]
    set_level("warning")
    client.get("/version")
    assert lines() == []
    log("something", level="error")
    assert [line["event"] for line in lines()] == ["something"]


def test_an_event_that_anybody_can_cause_is_written_once_a_minute(lines, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    for _ in range(5):
        log_seldom("refused", kind_of="x")
    log_seldom("refused", "another")
    now += 61
    log_seldom("refused")
    assert [line["times"] for line in lines()] == [1, 1, 5]


def test_very_many_frames_are_cut_in_the_middle(lines):
    def deeper(n):
        if not n:
            raise ValueError(CANARY)
        deeper(n - 1)

    try:
        deeper(200)
    except ValueError as error:
        log_error("deep", error)
    (line,) = lines()
    assert len(line["frames"]) == 61
    assert line["frames"][30] == "... 142 more"


def test_libraries_threads_and_warnings_are_logged_without_their_text(lines):
    capture_logging()
    logging.getLogger("uvicorn.error").warning("Invalid request of %s", CANARY)
    logging.getLogger("asyncio").error(f"Exception in {CANARY}", exc_info=ValueError(CANARY))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn(CANARY, RuntimeWarning, stacklevel=1)
    thread = threading.Thread(target=fail_with(KeyError), name="worker")
    thread.start()
    thread.join()
    found = lines()
    assert [(line["event"], line["level"]) for line in found] == [
        ("library", "warning"), ("library", "error"), ("library", "warning"), ("thread-failed", "error"),
    ]  # fmt: skip
    assert [line.get("logger") for line in found] == ["uvicorn.error", "asyncio", "py.warnings", None]
    assert found[0]["where"].endswith("test_libraries_threads_and_warnings_are_logged_without_their_text")
    assert CANARY not in json.dumps(found)


def test_a_token_is_noted_in_requests_only(lines):
    tag_token("a")
    log("one")
    with request_scope(None):
        tag_token("b")
        log("two")
    log("three")
    assert [line.get("token") for line in lines()] == [None, "b", None]
