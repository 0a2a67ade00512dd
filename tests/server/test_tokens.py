"""Tokens: shown once, kept as hashes, with scopes, an end and a way to take them back; every refusal looks the same."""

import sqlite3
from datetime import timedelta
from itertools import combinations

import pytest

from expunge.errors import InvalidSetting, UnknownId
from expunge.server.database import queue_path
from expunge.server.tokens import SCOPES

STATUS = "/api/v1/status"


def bearer(text):
    return {"Authorization": f"Bearer {text}"}


def test_the_secret_of_a_token_is_nowhere_in_the_database(service, vault):
    _, text = service.tokens.create("ops", ["read"], None)
    service.tokens.authenticate(text)
    service.database.wipe()
    secret = text.split("_", 2)[2].encode()
    assert all(secret not in path.read_bytes() for path in queue_path(vault.places.vault).iterdir())


@pytest.mark.parametrize("scopes", [some for n in (1, 2, 5) for some in combinations(SCOPES, n)])
def test_a_token_allows_its_scopes_and_an_admin_everything(service, scopes):
    _, text = service.tokens.create("ops", scopes, None)
    token = service.tokens.authenticate(text)
    assert {scope for scope in SCOPES if token.allows(scope)} == (set(SCOPES) if "admin" in scopes else set(scopes))


def test_a_token_counts_until_its_end_and_not_a_moment_longer(service, clock):
    _, text = service.tokens.create("ops", ["read"], timedelta(days=2))
    clock.pass_(days=2, microseconds=-1)
    assert service.tokens.authenticate(text) is not None
    clock.pass_(microseconds=1)
    assert service.tokens.authenticate(text) is None


def test_a_revoked_token_counts_no_more_and_keeps_when_it_was_revoked(service, clock):
    token, text = service.tokens.create("ops", ["read"], None)
    assert service.tokens.authenticate(text) is not None
    revoked = service.tokens.revoke(token.id).revoked
    clock.pass_(hours=1)
    assert service.tokens.revoke(token.id).revoked == revoked == clock() - timedelta(hours=1)
    assert service.tokens.authenticate(text) is None
    with pytest.raises(UnknownId):
        service.tokens.revoke("nobody")


def test_the_last_use_is_kept_to_the_minute_and_never_goes_back(service, clock):
    _, text = service.tokens.create("ops", ["read"], None)
    clock.pass_(seconds=61)
    service.tokens.authenticate(text)
    minute = clock().replace(second=0)
    assert [one.used for one in service.tokens.list_all()] == [minute]
    clock.pass_(hours=-5)
    assert service.tokens.authenticate(text) is not None
    assert [one.used for one in service.tokens.list_all()] == [minute]


def test_every_refusal_is_the_same(client, service, clock):
    kept, good = service.tokens.create("a", ["read"], None)
    ended = service.tokens.create("b", ["admin"], timedelta(hours=1))[1]
    gone, revoked = service.tokens.create("c", ["admin"], None)
    service.tokens.revoke(gone.id)
    clock.pass_(hours=2)
    assert client.get(STATUS, headers=bearer(good)).status_code == 200
    bad = [
        {},
        *map(bearer, (ended, revoked, good[:-1], f"{good}x", f"exp_{kept.id}_", "exp__", "x", "exp_zz_zz", "é" * 9)),
        bearer(good + "x" * 500),
        {"Authorization": "Basic YTpi"},
    ]
    answers = [client.get(STATUS, headers={k: v.encode() for k, v in one.items()}) for one in bad]
    seen = {(one.status_code, one.content, one.headers["www-authenticate"], len(one.headers)) for one in answers}
    assert len(seen) == 1
    assert answers[0].status_code == 401


def test_who_made_a_token_once_is_never_open_again(client, service, clock):
    assert client.get(STATUS).status_code == 200
    token, _ = service.tokens.create("a", ["read"], timedelta(hours=1))
    assert client.get(STATUS).status_code == 401
    clock.pass_(hours=2)
    assert not service.tokens.has_valid()
    assert client.get(STATUS).status_code == 401
    service.tokens.revoke(token.id)
    assert client.get(STATUS).status_code == 401


def test_without_tokens_only_the_names_of_this_machine_are_answered(client):
    for host, status in (("localhost", 200), ("127.0.0.1:80", 200), ("[::1]:80", 200), ("evil.example", 403)):
        assert client.get(STATUS, headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("name", "scopes"), [("", ["read"]), ("a\nb", ["read"]), ("x" * 81, ["read"]), ("a", []), ("a", ["write"])]
)
def test_a_token_that_makes_no_sense_is_refused(service, name, scopes):
    with pytest.raises(InvalidSetting):
        service.tokens.create(name, scopes, None)
    assert not service.tokens.has_any()


FORGED = [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}]


@pytest.mark.parametrize("headers", FORGED, ids=str)
def test_without_tokens_no_page_of_another_site_has_anything_done(client, vault, headers):
    answer = client.post("/api/v1/erasures", content="p7", headers={"Content-Type": "text/plain", **headers})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:expunge:problem:not-allowed")
    assert vault.find(["p7"])[0].state == "present"
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"}
    assert client.post("/api/v1/erasures", content=" p7 \r\n", headers=own).json()["outcome"]["rows"] == 1


def test_a_token_counts_on_a_full_disk(service, clock, monkeypatch):
    _, text = service.tokens.create("ops", ["read"], None)
    clock.pass_(minutes=5)

    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(service.database, "execute", full)
    assert service.tokens.authenticate(text).used is None
    monkeypatch.undo()
    assert service.tokens.authenticate(text) is not None
    assert service.tokens.list_all()[0].used == clock().replace(second=0)
