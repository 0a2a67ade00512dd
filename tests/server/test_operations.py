"""Operations: gauges to alert on, rows outside the bounds, a clock that runs backwards, and signals that drain."""

import json
import math
import signal
import socket
import threading
from datetime import timedelta

import pytest

from expunge.server.app import create_app
from expunge.server.clocks import ClockCheck
from expunge.server.queue import ERASURE, NewJob

from support.client import LocalClient
from support.matters import hold
from support.processes import Served, alive, small_vault, until

INSIDE, OUTSIDE = [0.5, 0.5], [0.5, 1e6]


def gauge(client, name):
    (line,) = [one for one in client.get("/metrics").text.splitlines() if one.startswith(f"{name} ")]
    return float(line.split(" ")[1])


def test_metrics_need_the_scope_read_once_there_is_a_token(make):
    service = make()
    with LocalClient(create_app(service)) as client:
        assert client.get("/metrics").status_code == 200
        tokens = {scope: service.tokens.create("a", [scope], None)[1] for scope in ("read", "rows", "admin")}
        asked = {scope: {"Authorization": f"Bearer {text}"} for scope, text in tokens.items()}
        found = {scope: client.get("/metrics", headers=headers).status_code for scope, headers in asked.items()}
        assert found == {"read": 200, "rows": 403, "admin": 200}
        assert client.get("/metrics").status_code == 401
    with LocalClient(create_app(make(open_metrics=True))) as client:
        assert client.get("/metrics").status_code == 200


# Gauges


@pytest.fixture
def service(make):
    return make(window=timedelta(days=60))


def test_the_nearest_deadline_is_that_of_the_first_open_request(service, client, clock):
    assert gauge(client, "expunge_nearest_deadline_seconds") == math.inf
    service.erase(["p1"], NewJob(ERASURE, "api", "ccpa"))
    clock.pass_(days=1)
    service.erase(["p2"], NewJob(ERASURE, "api", "gdpr"))  # of February
    assert gauge(client, "expunge_nearest_deadline_seconds") == 28 * 86_400
    clock.pass_(days=30)
    assert gauge(client, "expunge_nearest_deadline_seconds") == -2 * 86_400


def test_gauges_tell_holds_uncertified_requests_and_free_space(service, client):
    assert gauge(client, "expunge_people_on_hold") == 0
    hold(service, "p1", "p2")
    assert gauge(client, "expunge_people_on_hold") == 2
    assert gauge(client, "expunge_uncertified_requests") == 0
    assert gauge(client, "expunge_disk_free_bytes") > 2**20


# Rows outside the bounds


@pytest.mark.parametrize(("rows", "outside"), [([INSIDE], None), ([OUTSIDE, INSIDE, OUTSIDE], "2"), ([], None)])
def test_rows_outside_the_bounds_are_told_in_a_header_and_counted(client, rows, outside):
    answers = [client.post("/invocations", json={"instances": rows})]
    if rows:
        names = ("age", "visits")
        tensors = [
            {"name": name, "shape": [len(rows)], "datatype": "FP64", "data": [row[k] for row in rows]}
            for k, name in enumerate(names)
        ]
        answers.append(client.post("/v2/models/spend/infer", json={"inputs": tensors}))
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert {answer.headers.get("expunge-outside-rows") for answer in answers} == {outside}
    assert gauge(client, "expunge_outside_rows_total") == len(answers) * int(outside or 0)


# The clock


def logged(capsys, event):
    return [one for one in map(json.loads, capsys.readouterr().err.splitlines()) if one["event"] == event]


def test_a_clock_that_runs_backwards_is_logged_once_a_step(service, clock, capsys):
    service.run_due()
    clock.pass_(hours=-2)
    service.run_due()
    service.run_due()
    clock.pass_(seconds=-1)  # a correction
    service.run_due()
    assert [(one["level"], one["seconds"]) for one in logged(capsys, "clock-went-back")] == [("warning", 7200)]


def test_a_clock_that_was_set_back_while_the_service_was_down_is_logged(make, clock, capsys):
    service = make(window=timedelta(days=1))
    service.erase(["p1"], NewJob(ERASURE, "api", "gdpr"))
    service.stop()
    clock.pass_(days=-3)
    make().run_due()
    assert [one["seconds"] for one in logged(capsys, "clock-went-back")] == [3 * 86_400]


def test_a_clock_check_compares_with_the_last_time_only(clock):
    check = ClockCheck()
    assert check.step_back(clock()) is None
    assert check.step_back(clock() - timedelta(hours=1)) == timedelta(hours=1)
    assert check.step_back(clock() - timedelta(minutes=50)) is None


# Signals


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_sigterm_drains_before_the_port_closes_and_a_second_signal_ends_at_once(tmp_path, workers):
    path = tmp_path / "spend.vault"
    small_vault(path)
    with Served(path, "--drain", "999s", "--predict-workers", str(workers), "--predict-port", "0") as service:
        if workers:
            until(lambda: any(b'"predicting"' in line for line in service.lines))
        assert service.ask("GET", "/readyz")[0] == 200
        service.process.send_signal(signal.SIGTERM)
        until(lambda: service.ask("GET", "/readyz")[0] == 503)
        assert service.ask("POST", "/api/v1/erasures", {"ids": ["p1"]})[0] == 200
        assert service.ask("POST", "/invocations", {"instances": [OUTSIDE]})[0] == 200
        until(lambda: b"expunge_outside_rows_total 1.0" in service.ask("GET", "/metrics")[1])
        children = service.children()
        assert len(children) == workers
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(10.0) == 0
        until(lambda: not any(map(alive, children)))
        service._thread.join()
        events = [json.loads(line)["event"] for line in service.lines]
    assert events[-1] == "stopped"
    assert "draining" in events


@pytest.mark.slow
def test_after_the_drain_the_port_is_closed_and_what_is_under_way_is_finished(tmp_path):
    path = tmp_path / "spend.vault"
    small_vault(path)
    with Served(path, "--drain", "1s") as service:
        body = b'{"instances": [[1, 1]]}'
        slow = socket.create_connection(("127.0.0.1", service.port), timeout=30)
        head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        slow.sendall(f"POST /invocations HTTP/1.1\r\n{head}Expect: 100-continue\r\n\r\n".encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 100")  # it waits for the body
        service.process.send_signal(signal.SIGTERM)

        def closed():
            try:
                service.ask("GET", "/healthz")
            except OSError:
                return True
            return False

        until(closed)
        slow.sendall(body)
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        slow.close()
        assert service.process.wait(10.0) == 0
        service._thread.join()
    assert b'"stopped", "clean": true' in service.lines[-1]


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_load_balancer(tmp_path):
    path = tmp_path / "spend.vault"
    small_vault(path)
    with Served(path, "--drain", "999s") as service:
        service.process.send_signal(signal.SIGINT)
        ended = threading.Thread(target=service.process.wait)
        ended.start()
        ended.join(60.0)
        assert service.process.returncode == 0
