"""Prediction workers: never stale, tokens and TLS like the writer, nothing but predictions, and they end with it."""

import http.client
import os
import signal
import ssl
import threading
from contextlib import ExitStack
from datetime import timedelta

import numpy as np
import pytest

from expunge.server.database import Database, queue_path
from expunge.server.tokens import Tokens
from expunge.vault import Vault

from support.certificates import certificate
from support.processes import Served, alive, small_vault, until

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]
PROBE = {"instances": [[0.4, 0.5], [0.2, 0.7]]}
WORKERS = 2
OPTIONS = ("--predict-workers", str(WORKERS), "--predict-port", "0")


@pytest.fixture
def served(tmp_path):
    path = tmp_path / "spend.vault"
    small_vault(path)
    with Served(path, *OPTIONS) as service:
        wait_for_workers(service)
        yield service


@pytest.fixture
def connect(served):
    """Open connections to the prediction port that are kept."""
    with ExitStack() as stack:

        def open_many(count):
            connections = [
                http.client.HTTPConnection("127.0.0.1", served.predict_port, timeout=60) for _ in range(count)
            ]
            for connection in connections:
                stack.callback(connection.close)
                connection.connect()
                Served.on(connection, "GET", "/ping")
            return connections

        yield open_many


def wait_for_workers(service):
    until(lambda: sum(b'"predicting"' in line for line in service.lines) == WORKERS)


def workers_in(lines):
    """Return the workers that answered predictions, from the log."""
    return {line.partition(b'"worker": ')[2].split(b",")[0] for line in lines if b"/invocations" in line} - {b""}


def test_no_answer_is_stale_and_none_fails_while_people_are_erased(served, connect, tmp_path):
    """An answer asked for after an erasure was acknowledged is of a model that the erasure has left."""
    problems, counts, stop = [], [], threading.Event()
    acknowledged = [0]  # erasures
    seen = []  # each answer, with the number of erasures that were acknowledged when it was asked for

    def predict(connection):
        count = 0
        while not stop.wait(0.01):  # below the rate limit
            before = acknowledged[0]
            status, answer = Served.on(connection, "POST", "/invocations", PROBE)
            if status != 200:
                problems.append((status, answer))
            seen.append((before, tuple(answer.get("predictions", ()))))
            count += 1
        counts.append(count)

    clients = [threading.Thread(target=predict, args=(connection,)) for connection in connect(6)]
    for client in clients:
        client.start()
    truth, vault = [], Vault.open(tmp_path / "spend.vault", read_only=True)
    truth.append(tuple(vault.predict(np.array(PROBE["instances"])).tolist()))
    for k in range(25):
        status, _ = served.ask("POST", "/api/v1/erasures", {"ids": [f"p{4 * k}", f"p{4 * k + 1}"]})
        assert status == 200
        acknowledged[0] = k + 1
        truth.append(tuple(vault.predict(np.array(PROBE["instances"])).tolist()))
        assert served.ask("POST", "/invocations", PROBE) == (
            200,
            {"predictions": list(truth[-1])},
        )  # so does the writer
    stop.set()
    for client in clients:
        client.join()
    assert problems == []
    assert len(set(truth)) == len(truth)
    stale = [(before, answer) for before, answer in seen if answer not in truth[before:]]
    assert stale == []
    assert {truth.index(answer) for _, answer in seen} != {0}
    assert sum(counts) == len(seen) > 50
    until(lambda: workers_in(served.lines))


def test_workers_answer_predictions_and_health_and_point_to_the_writer_for_the_rest(served, connect):
    for connection in connect(6):
        assert Served.on(connection, "GET", "/healthz") == (200, {"status": "ok"})
        assert Served.on(connection, "GET", "/readyz") == (200, {"status": "ready"})
        assert Served.on(connection, "PUT", "/invocations", {})[0] == 405
        assert Served.on(connection, "POST", "/invocations", {})[0] == 422
        assert Served.on(connection, "GET", "/v2")[0] == 200
        for method, path in (("GET", "/"), ("GET", "/api/v1/status"), ("POST", "/api/v1/erasures"), ("GET", "/p7")):
            status, problem = Served.on(connection, method, path, {"ids": ["p1"]} if method == "POST" else None)
            assert (status, problem["type"]) == (421, "urn:expunge:problem:misdirected")
            assert "--port" in problem["detail"]
    assert served.ask("GET", "/api/v1/status")[1]["rows"] == 400


def test_a_token_that_is_revoked_ends_in_every_process_at_once(served, connect, tmp_path):
    tokens = Tokens(Database(queue_path(tmp_path / "spend.vault")))
    token, text = tokens.create("a", ["predict"], timedelta(days=1))
    connections, headers = connect(8), {"Authorization": f"Bearer {text}"}
    assert {Served.on(one, "POST", "/invocations", PROBE, headers)[0] for one in connections} == {200}
    assert {Served.on(one, "POST", "/invocations", PROBE)[0] for one in connections} == {401}
    assert {Served.on(one, "GET", "/metrics", None, headers)[0] for one in connections} == {403}
    tokens.revoke(token.id)
    assert {Served.on(one, "POST", "/invocations", PROBE, headers)[0] for one in connections} == {401}


def test_a_worker_that_dies_is_started_again_and_all_end_with_the_writer(served):
    first = served.children()
    os.kill(first[0], signal.SIGKILL)
    until(lambda: len(served.children()) == WORKERS and set(served.children()) != set(first))
    assert served.ask("GET", "/healthz", port=served.predict_port)[0] == 200
    workers = served.children()
    served.kill()
    until(lambda: not any(alive(pid) for pid in workers))


def test_metrics_of_the_prediction_port_are_the_sum_of_all_workers(served, connect):
    for connection in connect(10):
        Served.on(connection, "POST", "/invocations", PROBE)
    status, text = served.ask("GET", "/metrics", port=served.predict_port)
    assert status == 200
    assert b'expunge_http_requests_total{route="/invocations",status="200"} 10.0' in text
    assert b'expunge_http_seconds_count{route="/invocations"} 10.0' in text
    assert b"/invocations" not in served.ask("GET", "/metrics")[1]
    assert served.stop() == 0


def test_workers_are_not_ready_while_the_service_drains(tmp_path):
    path = tmp_path / "spend.vault"
    small_vault(path)
    with Served(path, *OPTIONS, "--drain", "999s") as service:
        wait_for_workers(service)
        service.process.send_signal(signal.SIGTERM)
        until(lambda: service.ask("GET", "/readyz", port=service.predict_port)[0] == 503)
        assert service.ask("POST", "/invocations", PROBE, port=service.predict_port)[0] == 200


def test_workers_speak_tls_like_the_writer(tmp_path):
    path = tmp_path / "spend.vault"
    small_vault(path)
    pem, _ = certificate(tmp_path, "localhost")
    trusting = ssl.create_default_context(cafile=pem)
    tls = ("--tls-cert", str(pem), "--tls-key", str(tmp_path / "key.pem"))
    with Served(path, *tls, *OPTIONS) as service, ExitStack() as stack:
        wait_for_workers(service)
        for port in (service.port, service.predict_port):
            connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=trusting)
            stack.callback(connection.close)
            assert Served.on(connection, "POST", "/invocations", PROBE)[0] == 200
        until(lambda: workers_in(service.lines))  # the line is logged after the answer
