"""A token with `rows` alone cannot find out whether somebody is in the vault, was erased, or was never there."""

import pytest

from expunge.server.app import create_app
from expunge.server.queue import ERASURE, JobFilter, NewJob

from support.client import LocalClient

PEOPLE = {"present": "p1", "erased": "p2", "unknown": "q1"}
VARYING = ("id", "received", "since")


@pytest.fixture
def caller(service):
    """A client whose token has these scopes."""
    service.erase([PEOPLE["erased"]], NewJob(ERASURE, "api", "gdpr"))
    opened = []

    def make(*scopes):
        _, text = service.tokens.create("loader", list(scopes), None)
        opened.append(LocalClient(create_app(service), headers={"Authorization": f"Bearer {text}"}))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


def row(who, age=0.5, **more):
    return {"who": who, "age": age, "visits": 0.5, "spend": 0.5, **more}


TABLES = {
    "one row": lambda who: [row(who)],
    "two rows": lambda who: [row(who), row(who)],
    "among others": lambda who: [row("p5"), row(who), row("q7")],
    "outside the bounds": lambda who: [row(who, age=1e9)],
    "outside the bounds after it": lambda who: [row(who), row("q8", age=1e9)],
    "no number": lambda who: [row(who, age="x")],
    "a gap": lambda who: [row(who, age=None), row("q9")],
    "another column": lambda who: [row(who, more=1)],
}
CALLS = {
    **{f"rows: {name}": ("/api/v1/rows", lambda who, t=t: {"rows": t(who)}) for name, t in TABLES.items()},
    **{f"right: {name}": ("/api/v1/rectifications", lambda who, t=t: {"rows": t(who)}) for name, t in TABLES.items()},
    "readmission": ("/api/v1/readmissions", lambda who: {"ids": [who]}),
    "readmission of two": ("/api/v1/readmissions", lambda who: {"ids": ["p9", who]}),
}


def told(answer):
    """What an answer tells, without what is new in every one."""
    body = {name: value for name, value in answer.json().items() if name not in VARYING}
    headers = {name for name in answer.headers if name not in ("content-length",)}
    return answer.status_code, body, headers


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", ["erased", "unknown"])
def test_answers_do_not_depend_on_who_is_in_the_vault(caller, call, state):
    client, (path, body) = caller("rows"), CALLS[call]
    for who in (PEOPLE[state], PEOPLE["present"]):  # and the same one again, now that the other was sent
        answers = [client.post(path, json=body(one)) for one in (who, PEOPLE["present"])]
        assert told(answers[0]) == told(answers[1])
        if answers[0].status_code == 202:
            looks = [client.get(answer.headers["location"]) for answer in answers]
            assert told(looks[0]) == told(looks[1])
            assert {client.get(f"{one.headers['location']}/certificate").status_code for one in answers} == {403}


def test_rows_of_erased_people_are_left_out_and_the_others_learned(caller, vault, service):
    before = vault.status().rows
    assert caller("rows").post("/api/v1/rows", json={"rows": [row("p2"), row("q1")]}).status_code == 202
    assert (vault.status().rows, vault.find(["p2"])[0].state) == (before + 1, "erased")
    assert caller("rows").post("/api/v1/rows", json={"rows": [row("p2")]}).status_code == 202
    assert vault.status().rows == before + 1
    failed, done = service.queue.page(JobFilter(limit=2))
    assert (failed.state, done.state, done.outcome["skipped"]) == ("failed", "done", 1)


def test_who_may_only_send_rows_cannot_ask_to_be_told_of_erased_people(caller):
    answer = caller("rows").post("/api/v1/rows", params={"skip_erased": "false"}, json={"rows": [row("q1")]})
    assert answer.status_code == 403


@pytest.mark.parametrize("scope", ["erase", "read", "admin"])
def test_who_may_learn_of_people_is_told_what_became_of_them(caller, scope):
    client = caller("rows", scope)
    assert client.post("/api/v1/rows", json={"rows": [row("p2")]}).status_code == 409
    assert client.post("/api/v1/rectifications", json={"rows": [row("q1")]}).status_code == 404
    done = client.post("/api/v1/rows", json={"rows": [row("p1"), row("q1")]})
    assert (done.status_code, done.json()["outcome"]["known"]) == (200, 1)


def test_the_same_key_gets_the_same_answer(caller):
    client, headers = caller("rows"), {"Idempotency-Key": "k"}
    for body in ({"rows": [row("q1")]}, {"rows": [row("p2")]}):
        first, second = (client.post("/api/v1/rectifications", json=body, headers=headers) for _ in range(2))
        assert (first.status_code, first.json()) == (second.status_code, second.json())
        headers = {"Idempotency-Key": "other"}
    assert first.status_code == 202


def test_bounds_are_checked_of_rows_that_are_left_out_too(caller, vault):
    """A refusal names rows by their place in the whole table, whoever was erased."""
    client, rows = caller("rows"), [row("p2"), row("p2"), row("q1", age=1e9)]
    detail = client.post("/api/v1/rows", json={"rows": rows}).json().get("detail")
    assert detail == client.post("/api/v1/rows", json={"rows": [row("q3"), row("q4"), rows[2]]}).json().get("detail")
