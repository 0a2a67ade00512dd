"""Hooks: events arrive signed as Standard Webhooks has it, and tell nothing about whose they are."""

import base64
import json
from datetime import UTC, datetime, timedelta

import nacl.exceptions
import nacl.signing
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from expunge.errors import InvalidInput
from expunge.server.addresses import Answer
from expunge.server.app import create_app
from expunge.server.hooks import EVENTS
from expunge.server.queue import ERASURE, Asked

from support.client import LocalClient

URL = "https://93.184.215.14/hook"  # a public address: no name has to be resolved


class Post:
    """In place of the network."""

    def __init__(self):
        self.status, self.posts = 200, []

    def __call__(self, target, body, headers, *, allowed):
        self.posts.append((target, body, dict(headers)))
        return Answer(self.status)

    @property
    def types(self):
        return [json.loads(body)["type"] for _, body, _ in self.posts]


@pytest.fixture
def post():
    return Post()


@pytest.fixture
def service(make, post):
    service = make()
    service.deliveries._post = post
    return service


def asked(**more):
    return Asked(ERASURE, "api", "gdpr", **more)


def new(client, **body):
    answer = client.post("/api/v1/hooks", json={"url": URL, **body})
    assert answer.status_code == 201
    return answer.json()


def test_signatures_are_those_that_the_standards_own_library_and_nacl_accept(service, client, post, clock):
    clock.now = datetime.now(UTC)  # the library compares the time with its own
    secret, key = new(client)["secret"], client.get("/api/v1/hooks/key").json()["public_key"]
    service.erase(["p1"], asked(reference="ticket 7"))
    service.deliveries.send_due()
    assert post.types == ["request.accepted", "request.done", "request.certified"]
    assert len({headers["webhook-id"] for _, _, headers in post.posts}) == 3
    public = nacl.signing.VerifyKey(base64.b64decode(key.removeprefix("whpk_")))
    for target, body, headers in post.posts:
        assert (target.host, target.path) == ("93.184.215.14", "/hook")
        found = Webhook(secret).verify(body, headers)
        assert found["data"]["reference"] == "ticket 7"
        v1, v1a = headers["webhook-signature"].split(" ")
        when = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        assert Webhook(secret).sign(headers["webhook-id"], when, body.decode()) == v1
        text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        signature = base64.b64decode(v1a.removeprefix("v1a,"))
        assert public.verify(text, signature) == text
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body + b" ", headers)
        with pytest.raises(nacl.exceptions.BadSignatureError):
            public.verify(text + b" ", signature)


def test_a_payload_has_type_time_and_the_request_as_the_api_tells_it(service, client, post, clock):
    new(client, events=["done"])
    entry = service.erase(["p1"], asked())
    service.deliveries.send_due()
    ((_, body, headers),) = post.posts
    assert json.loads(body) == {
        "type": "request.done",
        "timestamp": "2026-01-31T12:00:00Z",
        "data": client.get(f"/api/v1/requests/{entry.id}").json(),
    }
    assert headers["content-type"] == "application/json"


def test_a_try_that_is_repeated_has_the_same_id_and_a_new_time_and_signature(service, client, post, clock):
    clock.now = datetime.now(UTC)
    secret = new(client, events=["done"])["secret"]
    service.erase(["p1"], asked())
    post.status = 500
    service.deliveries.send_due()
    clock.pass_(seconds=5)
    service.deliveries.send_due()
    (_, body, first), (_, again, second) = post.posts
    assert (body, first["webhook-id"]) == (again, second["webhook-id"])
    assert int(second["webhook-timestamp"]) == int(first["webhook-timestamp"]) + 5
    Webhook(secret).verify(body, first)
    Webhook(secret).verify(body, second)


def test_every_event_is_told_to_who_wants_it(make, post, clock):
    service = make(window=timedelta(hours=1))
    service.deliveries._post = post
    everything, one = service.hooks.new(URL)[0], service.hooks.new(URL, ["overdue"])[0]
    cancelled = service.erase(["p1"], asked())
    service.cancel(cancelled.id, "changed their mind")
    service.erase(["p2"], asked())
    service.hold(["p3"], "court", None, "")
    service.erase(["p3"], asked())
    clock.pass_(days=40)
    service.look()
    rows = service.database.all("SELECT hook, body FROM deliveries ORDER BY id")
    told = {
        id_: [json.loads(row["body"])["type"] for row in rows if row["hook"] == id_] for id_ in (everything.id, one.id)
    }
    assert set(told[everything.id]) == {f"request.{event}" for event in EVENTS}
    assert told[one.id] == ["request.overdue"] * 2


def test_a_payload_and_the_database_never_tell_who_it_is_or_the_secret(service, client, post, tmp_path):
    secret = new(client)["secret"]
    service.erase(["p1"], asked())
    service.database.wipe()
    files = b"".join(path.read_bytes() for path in tmp_path.glob("spend.queue*"))
    raw = base64.b64decode(secret.removeprefix("whsec_"))
    assert len(raw) == 32
    for needle in (secret.encode(), raw, raw.hex().encode(), secret.removeprefix("whsec_").encode()):
        assert needle not in files
    for row in service.database.all("SELECT body FROM deliveries"):
        assert b'"p1"' not in row["body"]
    assert secret not in client.get("/api/v1/hooks").text


def test_410_switches_a_hook_off_and_gives_up_what_waits_for_it(service, client, post):
    gone, other = new(client), new(client, url="https://1.1.1.1/")
    service.erase(["p1"], asked())
    post.status = 410
    service.deliveries.send_due()
    assert len(post.posts) == 2  # one each: the rest is given up
    found = {one["id"]: one for one in client.get("/api/v1/hooks").json()}
    assert {one["off"] for one in found.values()} == {"2026-01-31T12:00:00Z"}
    assert found[gone["id"]]["deliveries"] == found[other["id"]]["deliveries"] == {"waiting": 0, "sent": 0, "failed": 3}
    service.erase(["p2"], asked())
    assert service.deliveries.send_due() == 0


def test_a_hook_that_is_deleted_gets_nothing_any_more(service, client, post):
    hook = new(client)
    service.erase(["p1"], asked())
    assert client.delete(f"/api/v1/hooks/{hook['id']}").status_code == 204
    assert client.get("/api/v1/hooks").json() == []
    service.deliveries.send_due()
    assert post.posts == []
    assert client.delete(f"/api/v1/hooks/{hook['id']}").status_code == 404


def test_a_hook_that_goes_while_something_is_under_way_is_not_signed_for(service, client, post):
    hook = new(client)
    service.erase(["p1"], asked())
    service.database.execute("DELETE FROM hooks WHERE id = ?", hook["id"])
    service.deliveries.send_due()
    assert post.posts == []
    assert service.deliveries.counts(hook["id"])["failed"] == 3


def test_secrets_differ_and_outlive_a_restart(make, service, client, post):
    one, two = new(client)["secret"], new(client)["secret"]
    assert one != two
    key = service.hooks.public_key()
    again = make()
    assert again.hooks.public_key() == key
    service.erase(["p1"], asked())
    again.deliveries._post = post
    again.deliveries.send_due()
    by_secret = {
        secret: sum(
            Webhook(secret).sign(
                headers["webhook-id"], datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC), body.decode()
            )
            in headers["webhook-signature"]
            for _, body, headers in post.posts
        )
        for secret in (one, two)
    }
    assert by_secret == {one: 3, two: 3}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"{}", b'{"url": 5}', b'{"url": "https://1.1.1.1/", "events": []}',
        b'{"url": "https://1.1.1.1/", "events": ["x"]}', b'{"url": "https://1.1.1.1/", "y": 1}', b'{"url": "ftp://x/"}',
        b'{"url": "http://127.0.0.1/"}', b'{"url": "http://[::ffff:10.0.0.1]/"}', b'{"url": "http://169.254.169.254/"}',
        b'{"url": "http://localhost/"}', b'{"url": NaN}', b'{"url": "\\ud800"}', b"\xff",
    ],
)  # fmt: skip
def test_a_bad_hook_is_a_problem_and_none_is_made(client, service, body):
    answer = client.post("/api/v1/hooks", content=body)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert service.hooks.every() == []


def test_a_name_that_leads_inside_is_refused_when_a_hook_is_made(client, service, monkeypatch):
    from expunge.server import addresses

    inside = [(addresses.socket.AF_INET, 1, 6, "", ("10.0.0.8", 443))]
    monkeypatch.setattr(addresses.socket, "getaddrinfo", lambda *words, **more: inside)
    answer = client.post("/api/v1/hooks", json={"url": "https://inside.example/"})
    assert (answer.status_code, service.hooks.every()) == (422, [])


def test_there_is_an_end_to_the_number_of_hooks(client, service):
    for _ in range(100):
        service.hooks.new(URL)
    assert client.post("/api/v1/hooks", json={"url": URL}).status_code == 422


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("GET", "/key"), ("DELETE", "/x")])
def test_only_an_admin_may(service, method, path):
    _, text = service.tokens.new("reader", ["read", "erase", "rows", "predict"], None)
    with LocalClient(create_app(service), raise_server_exceptions=False) as client:
        for headers, status in (({}, 401), ({"Authorization": f"Bearer {text}"}, 403)):
            answer = client.request(method, f"/api/v1/hooks{path}", headers=headers)
            assert answer.status_code == status


def test_what_is_told_is_written_down_in_the_transaction_that_makes_it_so(make, clock):
    service, told = make(window=timedelta(hours=1)), []
    service.listeners.append(lambda one: told.append((one.event, service.database._depth > 0)))
    service.cancel(service.erase(["p1"], asked()).id, "")
    service.hold(["p2"], "court", None, "")
    service.erase(["p2"], asked())
    service.erase(["p3"], asked())
    service.hold(["p3"], "court", None, "")
    service.erase(["p4"], asked())
    clock.pass_(days=40)
    service.look()
    again = Asked("readmission", "api", "gdpr")
    service.change(again, lambda reference, actor: service.vault.readmit(["p4"], reference=reference, actor=actor))
    assert {event for event, _ in told} == set(EVENTS)
    assert [event for event, within in told if not within] == []


def test_a_hook_for_no_event_is_refused(service):
    with pytest.raises(InvalidInput, match="events"):
        service.hooks.new(URL, ["nothing"])
