"""Hooks: events arrive signed as Standard Webhooks has it, and tell nothing about whose they are."""

import base64
import json
from datetime import UTC, datetime, timedelta

import nacl.exceptions
import nacl.signing
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from expunge.cli import program
from expunge.errors import InvalidInput
from expunge.server.app import create_app
from expunge.server.deliveries import PostResponse
from expunge.server.matters import Author
from expunge.server.queue import ERASURE, NewJob
from expunge.server.webhooks import WEBHOOK_EVENTS

from support.client import LocalClient
from support.matters import hold
from support.receiver import receiving

URL = "https://93.184.215.14/hook"  # a public address: no name has to be resolved

INCOMPLETE = {"erased", "corrected"}  # only where settings were planned: see test_renewals.py
OF_REQUESTS = {event for event in WEBHOOK_EVENTS if "." not in event} - INCOMPLETE


class Post:
    """In place of the network."""

    def __init__(self):
        self.status, self.posts = 200, []

    def __call__(self, target, body, headers, *, allowed):
        self.posts.append((target, body, dict(headers)))
        return PostResponse(self.status)

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
    return NewJob(ERASURE, "api", "gdpr", **more)


def new(client, **body):
    answer = client.post("/api/v1/webhooks", json={"url": URL, **body})
    assert answer.status_code == 201
    return answer.json()


def test_signatures_are_those_that_the_standards_own_library_and_nacl_accept(service, client, post, clock):
    clock.now = datetime.now(UTC)  # the library compares the time with its own
    secret, key = new(client)["secret"], client.get("/api/v1/webhooks/key").json()["public_key"]
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
    data = client.get(f"/api/v1/requests/{entry.id}").json()
    del data["outcome"]["similar"]  # for callers who may erase, and no hook
    assert json.loads(body) == {"type": "request.done", "timestamp": "2026-01-31T12:00:00Z", "data": data}
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
    everything, one = service.hooks.create(URL)[0], service.hooks.create(URL, ["overdue"])[0]
    cancelled = service.erase(["p1"], asked())
    service.cancel(cancelled.id, "changed their mind", Author())
    service.erase(["p2"], asked())
    service.erase(["nobody"], asked())
    hold(service, "p3", name="court")
    service.erase(["p3"], asked())
    clock.pass_(days=40)
    service.run_due()
    rows = service.database.fetch_all("SELECT hook, body FROM deliveries ORDER BY id")
    told = {
        id_: [json.loads(row["body"])["type"] for row in rows if row["hook"] == id_] for id_ in (everything.id, one.id)
    }
    of_matters = {"matter.opened", "matter.people_added"}
    assert set(told[everything.id]) == {f"request.{event}" for event in OF_REQUESTS} | of_matters
    assert told[one.id] == ["request.overdue"] * 3


def test_a_payload_and_the_database_never_tell_who_it_is_or_the_secret(service, client, post, tmp_path):
    secret = new(client)["secret"]
    service.erase(["p1"], asked())
    service.database.wipe()
    files = b"".join(path.read_bytes() for path in tmp_path.glob("spend.queue/*"))
    raw = base64.b64decode(secret.removeprefix("whsec_"))
    assert len(raw) == 32
    for needle in (secret.encode(), raw, raw.hex().encode(), secret.removeprefix("whsec_").encode()):
        assert needle not in files
    for row in service.database.fetch_all("SELECT body FROM deliveries"):
        assert b'"p1"' not in row["body"]
    assert secret not in client.get("/api/v1/webhooks").text


def test_410_switches_a_hook_off_and_gives_up_what_waits_for_it(service, client, post):
    gone, other = new(client), new(client, url="https://1.1.1.1/")
    service.erase(["p1"], asked())
    post.status = 410
    service.deliveries.send_due()
    assert len(post.posts) == 2  # one each: the rest is given up
    found = {one["id"]: one for one in client.get("/api/v1/webhooks").json()}
    assert {one["off"] for one in found.values()} == {"2026-01-31T12:00:00Z"}
    assert found[gone["id"]]["deliveries"] == found[other["id"]]["deliveries"] == {"waiting": 0, "sent": 0, "failed": 3}
    service.erase(["p2"], asked())
    assert service.deliveries.send_due() == 0


def test_a_hook_that_is_deleted_gets_nothing_any_more(service, client, post):
    hook = new(client)
    service.erase(["p1"], asked())
    assert client.delete(f"/api/v1/webhooks/{hook['id']}").status_code == 204
    assert client.get("/api/v1/webhooks").json() == []
    service.deliveries.send_due()
    assert post.posts == []
    assert client.delete(f"/api/v1/webhooks/{hook['id']}").status_code == 404


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
    answer = client.post("/api/v1/webhooks", content=body)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert service.hooks.list_all() == []


def test_a_name_that_leads_inside_is_refused_when_a_hook_is_made(client, service, monkeypatch):
    from expunge.server import deliveries

    inside = [(deliveries.socket.AF_INET, 1, 6, "", ("10.0.0.8", 443))]
    monkeypatch.setattr(deliveries.socket, "getaddrinfo", lambda *words, **more: inside)
    answer = client.post("/api/v1/webhooks", json={"url": "https://inside.example/"})
    assert (answer.status_code, service.hooks.list_all()) == (422, [])


def test_there_is_an_end_to_the_number_of_hooks(client, service):
    for _ in range(100):
        service.hooks.create(URL)
    assert client.post("/api/v1/webhooks", json={"url": URL}).status_code == 422


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("GET", "/key"), ("DELETE", "/x")])
def test_only_an_admin_may(service, method, path):
    _, text = service.tokens.create("reader", ["read", "erase", "rows", "predict"], None)
    with LocalClient(create_app(service), raise_server_exceptions=False) as client:
        for headers, status in (({}, 401), ({"Authorization": f"Bearer {text}"}, 403)):
            answer = client.request(method, f"/api/v1/webhooks{path}", headers=headers)
            assert answer.status_code == status


def test_what_is_told_is_written_down_in_the_transaction_that_makes_it_so(make, clock):
    service, told = make(window=timedelta(hours=1)), []
    service.listeners.append(lambda one: told.append((one.name, service.database._depth > 0)))
    service.cancel(service.erase(["p1"], asked()).id, "", Author())
    hold(service, "p2", name="court")
    service.erase(["p2"], asked())
    service.erase(["p3"], asked())
    hold(service, "p3", name="court")
    service.erase(["p4"], asked())
    service.erase(["nobody"], asked())
    clock.pass_(days=40)
    service.run_due()
    again = NewJob("readmission", "api", "gdpr")
    service.run_now(again, lambda **said: service.vault.readmit(["p4"], **said))
    assert {event for event, _ in told} == OF_REQUESTS
    assert [event for event, within in told if not within] == []


def test_a_hook_for_no_event_is_refused(service):
    with pytest.raises(InvalidInput, match="events"):
        service.hooks.create(URL, ["nothing"])


# When something does not arrive


def deliveries(client, hook, **query):
    answer = client.get(f"/api/v1/webhooks/{hook}/deliveries", params=query)
    assert answer.status_code == 200
    return answer.json()


def test_deliveries_are_listed_with_their_state_and_reason(service, client, post, clock):
    hook = new(client, events=["accepted", "done"])["id"]
    other = new(client, events=["overdue"])["id"]
    post.status = 503
    service.erase(["p1"], asked(reference="ticket 7"))
    service.deliveries.send_due()
    found = deliveries(client, hook)
    assert [(one["event"], one["state"], one["reason"], one["answer"], one["tries"]) for one in found] == [
        ("request.done", "waiting", "status", 503, 1), ("request.accepted", "waiting", "status", 503, 1),
    ]  # fmt: skip
    assert found[0]["next"] == "2026-01-31T12:00:05Z"
    post.status = 200
    clock.pass_(seconds=5)
    service.deliveries.send_due()
    assert [(one["state"], one["reason"], one["next"]) for one in deliveries(client, hook)] == [("sent", "", None)] * 2
    assert deliveries(client, hook, state="failed") == deliveries(client, other) == []
    assert len(deliveries(client, hook, limit=1)) == 1
    assert client.get("/api/v1/webhooks/none/deliveries").status_code == 404


def test_a_message_is_sent_again_with_its_id_and_a_signature_of_now(service, client, post, clock):
    clock.now = datetime.now(UTC)
    made = new(client, events=["done"])
    service.erase(["p1"], asked(reference="ticket 7"))
    service.deliveries.send_due()
    (sent,) = deliveries(client, made["id"])
    clock.pass_(seconds=60)
    again = f"/api/v1/webhooks/{made['id']}/deliveries/{sent['id']}/resend"
    answer = client.post(again)
    assert (answer.status_code, answer.json()["state"]) == (202, "waiting")
    service.deliveries.send_due()
    (_, body, first), (_, same, second) = post.posts
    assert (body, first["webhook-id"]) == (same, second["webhook-id"])
    assert int(second["webhook-timestamp"]) == int(first["webhook-timestamp"]) + 60
    Webhook(made["secret"]).verify(same, second)
    other = new(client)["id"]
    assert client.post(again.replace(made["id"], other)).status_code == 404
    assert client.post(again.replace(f"/{sent['id']}/", "/999/")).status_code == 404


def test_one_that_waits_is_tried_now(service, client, post, clock):
    hook = new(client, events=["done"])["id"]
    post.status = 500
    service.erase(["p1"], asked())
    service.deliveries.send_due()
    (waiting,) = deliveries(client, hook)
    assert service.deliveries.send_due() == 0
    client.post(f"/api/v1/webhooks/{hook}/deliveries/{waiting['id']}/resend")
    assert service.deliveries.send_due() == 1


@pytest.mark.parametrize(("status", "state", "reason"), [(204, "sent", ""), (500, "failed", "status")])
def test_a_test_is_posted_at_once_and_only_once(service, client, post, clock, status, state, reason):
    made = new(client, events=["done"])
    post.status = status
    answer = client.post(f"/api/v1/webhooks/{made['id']}/test")
    assert answer.status_code == 200
    found = answer.json()
    assert (found["event"], found["state"], found["reason"], found["answer"]) == ("webhook.test", state, reason, status)
    ((_, body, headers),) = post.posts
    assert json.loads(body)["data"] == {"webhook": made["id"]}
    assert headers["webhook-signature"].startswith("v1,")
    clock.pass_(days=9)
    assert service.deliveries.send_due() == 0
    assert deliveries(client, made["id"]) == [found]


def test_a_hook_that_is_off_is_neither_tested_nor_sent_to_again(service, client, post):
    hook = new(client, events=["done"])["id"]
    post.status = 410
    service.erase(["p1"], asked())
    service.deliveries.send_due()
    (failed,) = deliveries(client, hook)
    assert (failed["state"], failed["answer"]) == ("failed", 410)
    for path in ("test", f"deliveries/{failed['id']}/resend"):
        answer = client.post(f"/api/v1/webhooks/{hook}/{path}")
        assert (answer.status_code, "410" in answer.json()["detail"]) == (422, True)
    assert client.post("/api/v1/webhooks/none/test").status_code == 404


def test_the_page_shows_reasons_and_tests_and_sends_again(service, client, post):
    hook = new(client, events=["done"])["id"]
    post.status = 503
    service.erase(["p1"], asked())
    service.deliveries.send_due()
    shown = client.get("/webhooks").text
    assert "The receiver answered 503" in shown
    proof = shown.split('name="proof" value="')[1].split('"')[0]
    (waiting,) = deliveries(client, hook)
    post.status = 200
    headers = {"Origin": "http://localhost"}
    for path in (f"{hook}/test", f"{hook}/deliveries/{waiting['id']}/resend"):
        answer = client.post(f"/webhooks/{path}", data={"proof": proof}, headers=headers, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/webhooks")
    service.deliveries.send_due()
    assert [one["state"] for one in deliveries(client, hook)] == ["sent", "sent"]
    assert client.post(f"/webhooks/{hook}/test", data={"proof": "x"}, headers=headers).status_code == 403


def test_the_command_line_lists_tests_and_sends_again(vault, service, client, post, capsys):
    def run(*words):
        capsys.readouterr()
        code = program.run(["webhook", *words, "--vault", str(vault.places.vault)])
        said = capsys.readouterr()
        assert '"event"' not in said.err
        return code, said.out

    with receiving() as receiver:
        service.deliveries.allowed = ["127.0.0.1"]
        hook = client.post("/api/v1/webhooks", json={"url": receiver.url(), "events": ["done"]}).json()["id"]
        code, text = run("list", "--json")
        (listed,) = json.loads(text)
        assert (code, listed["id"], listed["sent"]) == (0, hook, 0)
        code, text = run("test", hook)
        assert (code, "private" in text) == (1, True)
        assert run("test", hook, "--allow-host", "127.0.0.1") == (0, "sent: answered 200\n")
        assert json.loads(receiver.posts[0][2])["type"] == "webhook.test"
        code, text = run("deliveries", hook, "--json", "--state", "sent")
        (sent,) = json.loads(text)
        assert run("resend", hook, str(sent["id"])) == (0, f"queued: {sent['id']}\n")
        assert run("deliveries", hook)[1].count("waiting") == 1
        assert run("deliveries", "none")[0] == 4
