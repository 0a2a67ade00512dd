"""Limits: how many, how large, how slow; driven with a clock and channels of the test's own."""

import asyncio

import pytest

from expunge.server import middleware
from expunge.server.app import Limits, create_app
from expunge.server.middleware import BodyLimit, RateLimiter
from expunge.server.problems import Problem

from support.client import LocalClient


class Ticks:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def ticks(monkeypatch):
    made = Ticks()
    monkeypatch.setattr(middleware, "time", made)
    return made


def test_a_bucket_gives_its_burst_and_then_its_rate(ticks):
    rate = RateLimiter(per_second=2.0, burst=5.0)
    assert [rate("a") for _ in range(6)] == [0.0] * 5 + [0.5]
    assert rate("b") == 0.0
    ticks.now += 0.5
    assert [rate("a") > 0 for _ in range(2)] == [False, True]
    ticks.now += 1000.0
    assert [rate("a") > 0 for _ in range(6)] == [False] * 5 + [True]


def test_who_asks_too_often_is_told_when_to_come_again(service):
    with LocalClient(create_app(service, Limits(per_second=0.001, burst=2))) as client:
        answers = [client.get("/api/v1/status") for _ in range(3)]
        assert [one.status_code for one in answers] == [200, 200, 429]
        assert int(answers[2].headers["retry-after"]) > 900
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/api/v1/erasures", "/invocations", "/api/v1/rows", "/v2/models/spend/infer"])
def test_a_body_over_the_limit_is_refused_wherever_it_goes(service, path, chunked):
    body = b"x" * 1001
    with LocalClient(create_app(service, Limits(max_bytes=1000)), raise_server_exceptions=False) as client:
        sent = (piece for piece in (body[:500], body[500:])) if chunked else body
        answer = client.post(path, content=sent, headers={"content-type": "text/csv"})
    assert answer.status_code == 413
    assert service.queue.pending() == []


def test_a_body_at_the_limit_is_taken(service):
    body = b'{"ids": ["p1"]}'
    with LocalClient(create_app(service, Limits(max_bytes=len(body)))) as client:
        assert client.post("/api/v1/erasures", content=body).status_code == 200


def run(ticks, pieces, timeout=10.0):
    """Send pieces to the middleware, each after some seconds; return what the application saw, or its problem."""

    async def receive():
        if not pieces:
            await asyncio.Event().wait()
        wait, body, more = pieces.pop(0)
        ticks.now += wait
        return {"type": "http.request", "body": body, "more_body": more}

    async def app(scope, receive, send):
        while (message := await receive()).get("more_body"):
            seen.append(message["body"])

    async def main():
        await BodyLimit(app, max_bytes=10**9, timeout=timeout)({"type": "http", "headers": []}, receive, None)

    seen = []
    asyncio.run(main())
    return seen


def test_a_body_that_drips_is_cut_off_and_one_that_flows_is_not(ticks):
    assert len(run(ticks, [(9.0, b"x" * 200_000, True)] * 20 + [(0.0, b"", False)])) == 20
    with pytest.raises(Problem) as found:
        run(ticks, [(4.0, b"x", True)] * 20)
    assert found.value.status == 408


def test_a_body_that_stops_is_cut_off(ticks):
    with pytest.raises(Problem) as found:
        run(ticks, [(0.0, b"x", True)], timeout=0.01)
    assert found.value.status == 408
