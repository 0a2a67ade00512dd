"""Readers: whichever process is reached, predictions are never stale, and the writer answers the rest."""

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
READERS = 2


@pytest.fixture
def served(tmp_path):
    path = tmp_path / "spend.vault"
    small_vault(path)
    with Served(path, "--readers", str(READERS)) as service:
        until(lambda: sum(b'"reading"' in line for line in service.lines) == READERS)
        yield service


@pytest.fixture
def connections(served):
    """Connections that are kept, over all of the processes, with some luck."""
    with ExitStack() as stack:

        def many(count):
            found = [http.client.HTTPConnection("127.0.0.1", served.port, timeout=60) for _ in range(count)]
            for one in found:
                stack.callback(one.close)
                one.connect()
                Served.on(one, "GET", "/ping")
            return found

        yield many


def readers_in(lines):
    """The readers that answered predictions, as the log tells."""
    return {line.partition(b'"reader": ')[2].split(b",")[0] for line in lines if b"/invocations" in line} - {b""}


def test_no_answer_is_stale_and_none_fails_while_people_are_erased(served, connections, tmp_path):
    """Who asks after an erasure was acknowledged gets an answer that has never been given before it began."""
    problems, counts, stop = [], [], threading.Event()
    epoch = [0]  # how many erasures are acknowledged
    seen = []  # what was answered, and how many were acknowledged when it was asked

    def predict(connection):
        count = 0
        while not stop.wait(0.01):  # nobody asks more often than they may
            asked = epoch[0]
            status, answer = Served.on(connection, "POST", "/invocations", PROBE)
            if status != 200:
                problems.append((status, answer))
            seen.append((asked, tuple(answer.get("predictions", ()))))
            count += 1
        counts.append(count)

    clients = [threading.Thread(target=predict, args=(one,)) for one in connections(6)]
    for client in clients:
        client.start()
    truth, vault = [], Vault.open(tmp_path / "spend.vault", read_only=True)
    truth.append(tuple(vault.predict(np.array(PROBE["instances"])).tolist()))
    for k in range(25):
        status, _ = served.ask("POST", "/api/v1/erasures", {"ids": [f"p{4 * k}", f"p{4 * k + 1}"]})
        assert status == 200
        epoch[0] = k + 1
        truth.append(tuple(vault.predict(np.array(PROBE["instances"])).tolist()))
    stop.set()
    for client in clients:
        client.join()
    assert problems == []
    assert len(set(truth)) == len(truth)
    stale = [(asked, answer) for asked, answer in seen if answer not in truth[asked:]]
    assert stale == []
    assert {truth.index(answer) for _, answer in seen} != {0}
    assert sum(counts) == len(seen) > 50
    assert readers_in(served.lines)


def test_every_process_answers_everything_like_the_writer(served, connections):
    many = connections(12)
    for one in many:
        assert Served.on(one, "GET", "/healthz") == (200, {"status": "ok"})
        assert Served.on(one, "GET", "/readyz") == (200, {"status": "ready"})
        status, found = Served.on(one, "GET", "/api/v1/status")
        assert (status, found["rows"]) == (200, 400)
        assert Served.on(one, "GET", "/nowhere")[0] == 404
        assert Served.on(one, "POST", "/api/v1/erasures", {"ids": []})[0] == 422
        assert Served.on(one, "PUT", "/invocations", {})[0] == 405
        assert Served.on(one, "POST", "/invocations", {})[0] == 422
    ids = [Served.on(one, "POST", "/api/v1/erasures", {"ids": [f"p{k}"]})[1]["id"] for k, one in enumerate(many)]
    assert len(set(ids)) == 12
    for one in many:
        status, page = Served.on(one, "GET", "/api/v1/requests?limit=100")
        assert {entry["id"] for entry in page["requests"]} == set(ids)


def test_large_and_chunked_bodies_are_passed_on(served, connections):
    rows = "\n".join(f"new{k},{k % 7 / 7},{k % 11 / 11},0.5" for k in range(20_000))
    body = f"who,age,visits,spend\n{rows}\n".encode()
    for k, one in enumerate(connections(4)):
        mine = body.replace(b"new", b"n%d-" % k)
        pieces = (mine[start : start + 100_000] for start in range(0, len(mine), 100_000))
        one.request("POST", "/api/v1/rows", pieces, {"Content-Type": "text/csv"}, encode_chunked=True)
        answer = one.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    status, found = served.ask("GET", "/api/v1/status")
    assert (status, found["rows"]) == (200, 400 + 4 * 20_000)


def test_a_token_that_is_revoked_ends_in_every_process_at_once(served, connections, tmp_path):
    tokens = Tokens(Database(queue_path(tmp_path / "spend.vault")))
    token, text = tokens.create("a", ["predict"], timedelta(days=1))
    many, headers = connections(8), {"Authorization": f"Bearer {text}"}
    assert {Served.on(one, "POST", "/invocations", PROBE, headers)[0] for one in many} == {200}
    assert {Served.on(one, "POST", "/invocations", PROBE)[0] for one in many} == {401}
    assert {Served.on(one, "GET", "/api/v1/status", None, headers)[0] for one in many} == {403}
    tokens.revoke(token.id)
    assert {Served.on(one, "POST", "/invocations", PROBE, headers)[0] for one in many} == {401}


def test_a_reader_that_dies_is_started_again_and_all_end_with_the_writer(served):
    first = served.children()
    os.kill(first[0], signal.SIGKILL)
    until(lambda: len(served.children()) == READERS and set(served.children()) != set(first))
    assert served.ask("GET", "/healthz")[0] == 200
    new = served.children()
    served.kill()
    until(lambda: not any(alive(pid) for pid in new))


def test_what_readers_answered_is_in_the_metrics(served, connections):
    for one in connections(10):
        Served.on(one, "POST", "/invocations", PROBE)
    wanted = b'expunge_http_requests_total{route="/invocations",status="200"} 10.0'
    until(lambda: wanted in served.ask("GET", "/metrics")[1])
    assert served.stop() == 0


def test_readers_speak_tls_like_the_writer(tmp_path):
    """Whoever answers has the certificate; the writer behind a reader knows that the caller came by TLS."""
    path = tmp_path / "spend.vault"
    small_vault(path)
    pem, _ = certificate(tmp_path, "localhost")
    options = ("--tls-cert", str(pem), "--tls-key", str(tmp_path / "key.pem"), "--readers", str(READERS))
    trusting = ssl.create_default_context(cafile=pem)
    with Served(path, *options) as service, ExitStack() as stack:
        until(lambda: sum(b'"reading"' in line for line in service.lines) == READERS)
        for k in range(8):
            one = http.client.HTTPSConnection("localhost", service.port, timeout=60, context=trusting)
            stack.callback(one.close)
            assert Served.on(one, "POST", "/invocations", PROBE)[0] == 200
            assert Served.on(one, "POST", "/api/v1/erasures", {"ids": [f"p{k}"]})[0] == 200
            status, page = Served.on(one, "GET", "/opendsr/v2/discovery")
            assert (status, page["processor_certificate"].partition("/opendsr")[0]) == (
                200, f"https://localhost:{service.port}",
            )  # fmt: skip
        assert readers_in(service.lines)
