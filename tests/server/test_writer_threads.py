"""Callers who wait for the writer keep nobody else waiting: neither for a thread nor for the event loop."""

import threading

import pytest

from expunge.errors import Unfinished
from expunge.server.app import create_app

from support.client import LocalClient
from support.processes import until

ERASE, ROWS = "/api/v1/erasures", "/api/v1/rows"
ROW = {"dataframe_split": {"columns": ["age", "visits"], "data": [[0.5, 0.5]]}}


@pytest.fixture
def client(service):
    with LocalClient(create_app(service), raise_server_exceptions=False) as found:
        yield found


def answered_meanwhile(client):
    """Whether a probe and a prediction are answered while others wait."""
    found = list[int]()

    def ask():
        found.append(client.get("/healthz").status_code)
        found.append(client.post("/invocations", json=ROW).status_code)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(10)
    return found


def test_more_erasures_than_a_pool_has_threads_keep_no_prediction_and_no_probe_waiting(client, service):
    threads = [
        threading.Thread(target=lambda k=k: client.post(ERASE, json={"ids": [f"p{k}"]}), daemon=True) for k in range(45)
    ]
    with service._work_lock:
        for thread in threads:
            thread.start()
        until(lambda: service._erasure_group.waiting_count >= 40)
        assert answered_meanwhile(client) == [200, 200]
    for thread in threads:
        thread.join()


def test_a_request_that_is_sent_again_while_the_writer_is_busy_keeps_nobody_else_waiting(client, service, monkeypatch):
    def fail(*_, **__):
        raise Unfinished("the disk failed")

    rows, key = {"rows": [{"who": "new", "age": 0.5, "visits": 0.5, "spend": 0.5}]}, {"Idempotency-Key": "k"}
    with monkeypatch.context() as patch:
        patch.setattr(service.vault, "add", fail)
        assert client.post(ROWS, json=rows, headers=key).status_code == 503
    thread = threading.Thread(target=lambda: client.post(ROWS, json=rows, headers=key), daemon=True)
    begun, settle = threading.Event(), service.settle_interrupted
    monkeypatch.setattr(service, "settle_interrupted", lambda: (begun.set(), settle()))
    with service._work_lock:
        thread.start()
        assert begun.wait(10)
        assert answered_meanwhile(client) == [200, 200]
    thread.join()
