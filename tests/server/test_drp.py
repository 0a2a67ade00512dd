"""The Data Rights Protocol: signed messages of agents, as PyNaCl signs them, and their outcomes."""

import base64
import json
from datetime import timedelta

import nacl.signing
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge.cli.program import build_parser
from expunge.errors import InvalidInput, InvalidSetting, VaultBusy
from expunge.server.aliases import Aliases, normalise_email
from expunge.server.app import create_app
from expunge.server.deliveries import PostResponse
from expunge.server.matters import Author
from expunge.server.protocols.drp import read_directory
from expunge.server.queue import NewJob
from expunge.vault import Vault

from support.client import LocalClient
from support.matters import hold

PATH = "/drp/v1/data-rights-request"
KEYS = {name: nacl.signing.SigningKey(bytes([number]) * 32) for number, name in enumerate(("AGENT_A", "AGENT_B"))}
CALLBACK = "https://93.184.215.14/status"
FEW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)


def directory(folder, keys=KEYS):
    """Write a directory of agents and return its path."""
    path = folder / "agents.json"
    listed = [
        {
            "id": id_,
            "name": f"The {id_}",
            "verify_key": base64.b64encode(bytes(key.verify_key)).decode(),
            "web_url": "x",
        }
        for id_, key in keys.items()
    ]
    path.write_text(json.dumps(listed))
    return path


@pytest.fixture
def options(tmp_path):
    return {"drp_directory": directory(tmp_path), "business_id": "SHOP"}


@pytest.fixture
def service(make, options):
    service = make(**options)
    service.aliases.add([(f"P{k}@Example.com", f"p{k}") for k in range(9)])
    return service


class Desk:
    """An agent that signs and sends messages."""

    def __init__(self, client, clock, id_="AGENT_A"):
        self.client, self.clock, self.id, self.number = client, clock, id_, 0
        self.token = None

    def claims(self, **more):
        self.number += 1
        message = {
            "agent-id": self.id,
            "business-id": "SHOP",
            "issued-at": (self.clock() - timedelta(seconds=1)).isoformat(timespec="milliseconds"),
            "expires-at": (self.clock() + timedelta(minutes=15)).isoformat(timespec="milliseconds"),
            "drp.version": "1.0",
            "nonce": self.number,
        }
        return {name: value for name, value in (message | more).items() if value is not ...}

    def signed(self, claims, key=None):
        return base64.b64encode((key or KEYS[self.id]).sign(json.dumps(claims).encode()))

    def register(self):
        answer = self.client.post(f"/drp/v1/agent/{self.id}", content=self.signed(self.claims()))
        assert answer.status_code == 200
        assert answer.json()["agent-id"] == self.id
        self.token = answer.json()["token"]
        return self

    def send(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "text/plain"}
        return self.client.request(method, path, content=body, headers=headers)

    def delete(self, email="p1@example.com", **more):
        person = {"exercise": "deletion", "regime": "ccpa", "name": "x", "email": email, "email_verified": True}
        return self.send("POST", PATH, self.signed(self.claims(**person | more)))


@pytest.fixture
def agent(client, clock):
    return Desk(client, clock).register()


@pytest.fixture
def waiting(make, options, clock):
    """An agent of a service that lets requests wait for an hour, and the service."""
    service = make(window=timedelta(hours=1), **options)
    service.aliases.add([("p1@example.com", "p1")])
    with LocalClient(create_app(service), raise_server_exceptions=False) as client:
        yield Desk(client, clock).register(), service


# Deletions


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_deletion_is_carried_out_and_reported(agent, service, vault, slash):
    body = agent.claims(exercise="deletion", regime="ccpa", email=" p1@EXAMPLE.com", email_verified=True)
    answer = agent.send("POST", PATH + slash, agent.signed(body | {"agent-request-id": "their 7"}))
    assert answer.status_code == 200
    status = answer.json()
    assert status == {
        "request_id": status["request_id"],
        "status": "fulfilled",
        "received_at": "2026-01-31T12:00:00+00:00",
        "expected_by": "2026-03-17T12:00:00+00:00",  # 45 days later
        "agent_request_id": "their 7",
    }
    assert [holding.state for holding in vault.find(["p1", "p2"])] == ["erased", "present"]
    assert vault.requests[-1].actor == "The AGENT_A"
    assert agent.send("GET", f"{PATH}/{status['request_id']}{slash}").json() == status
    assert service.aliases.find("p1@example.com") is None
    assert service.aliases.find("p2@example.com") is not None


def test_an_erasure_through_any_protocol_deletes_the_aliases(service, client):
    assert client.post("/api/v1/erasures", json={"ids": ["p1", "p2"]}).status_code == 200
    known = [service.aliases.find(f"p{k}@example.com") is not None for k in range(4)]
    assert known == [True, False, False, True]


@pytest.mark.parametrize("way", ["expunge unlearn", "Vault.unlearn", "Vault.unlearn without a service"])
def test_an_erasure_without_the_service_deletes_the_aliases(service, vault, make, tmp_path, way):
    """Neither the address nor the sealed id is in the database afterwards."""
    sealed = service.aliases.find("p1@example.com")
    if way == "expunge unlearn":
        args = build_parser().parse_args(["unlearn", "--id", "p1", "--vault", str(vault.places.vault)])
        args.run(args)
    else:
        Vault.open(vault.places.vault).unlearn(["p1", "p2"])
        if way == "Vault.unlearn":
            assert service.aliases.find("p1@example.com") is None  # also before the clock's next look
            service.run_due()
        else:
            service.stop()
            service = make()
            service.start()
            while service.aliases.count() > 7 or service._dirty:
                service.wake()
    assert service.aliases.find("p1@example.com") is None
    assert service.aliases.find("p3@example.com") is not None
    service.stop()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*queue*") if path.is_file())
    assert sealed.text not in kept
    assert sealed.hash not in kept


def test_a_vault_deletes_aliases_before_it_acknowledges_the_erasure(service, vault, tmp_path):
    sealed = service.aliases.find("p1@example.com")
    service.stop()  # and no service ever runs again
    Vault.open(vault.places.vault).unlearn(["p1"])
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*queue*") if path.is_file())
    assert sealed.text not in kept
    assert sealed.hash not in kept


def test_an_erased_person_gets_no_alias(service, vault, tmp_path, capsys):
    vault.unlearn(["p1"])
    path = tmp_path / "people.csv"
    path.write_text("id,email\np1,late@example.com\np2,also@example.com\n")
    add(vault, path)
    assert "1 address skipped: the person was erased" in capsys.readouterr().err
    assert service.aliases.find("late@example.com") is None
    assert service.aliases.find("also@example.com") is not None


def test_the_table_of_aliases_is_compared_only_after_others_have_erased(service, vault, monkeypatch):
    compared, erased = [], Aliases._find_erased
    monkeypatch.setattr(Aliases, "_find_erased", lambda self: compared.append(1) or erased(self))
    service.aliases.find("p1@example.com")
    service.erase(["p1"], NewJob("erasure", "api", "gdpr"))
    service.run_due()
    assert len(compared) == 1
    vault.unlearn(["p2"])
    for _ in range(2):
        service.run_due()
    assert len(compared) == 2


@pytest.mark.parametrize("exercise", ["access", "access:categories", "access:specific", "sale:opt-out", "sale:opt-in"])
def test_other_rights_are_denied_and_the_denial_is_kept(agent, vault, clock, exercise):
    status = agent.delete(exercise=exercise).json()
    assert (status["status"], status["reason"]) == ("denied", "claim_not_covered")
    clock.pass_(days=60)
    assert agent.send("GET", f"{PATH}/{status['request_id']}").json() == status
    assert len(vault.requests) == 1


@pytest.mark.parametrize(
    ("person", "reason"),
    [
        ({"email": "nobody@example.com"}, "no_match"),
        ({"email": "p1"}, "no_match"),
        ({"email": ...}, "no_match"),
        ({"email": 5}, "no_match"),
        ({"email_verified": False}, "insuf_verification"),
        ({"email_verified": ...}, "insuf_verification"),
        ({"email_verified": 1.0e9}, "insuf_verification"),
    ],
)
def test_an_unknown_or_unverified_person_is_denied(agent, vault, person, reason):
    answer = agent.delete(**{"email": "p1@example.com"} | person)
    assert (answer.status_code, answer.json()["status"], answer.json()["reason"]) == (200, "denied", reason)
    assert answer.json()["processing_details"]
    assert len(vault.requests) == 1


@pytest.mark.parametrize(("regime", "days"), [("ccpa", 45), ("gdpr", 28), (..., 28), ("voluntary", 28)])
def test_the_regime_sets_the_deadline(agent, regime, days, clock):
    answer = agent.delete(regime=regime).json()
    assert answer["expected_by"] == (clock() + timedelta(days=days)).isoformat()


def test_a_second_request_about_a_person_is_a_separate_request(waiting):
    agent, _ = waiting
    first, second = agent.delete().json(), agent.delete().json()
    assert first["status"] == second["status"] == "in_progress"
    assert first["request_id"] != second["request_id"]


# States and callbacks


def test_a_request_that_waits_can_be_revoked_and_the_agent_is_called_back(waiting, vault):
    agent, service = waiting
    status = agent.delete(status_callback=CALLBACK, **{"agent-request-id": "a"}).json()
    assert status["status"] == "in_progress"
    where, body = f"{PATH}/{status['request_id']}", agent.signed({"reason": "I don't want my account deleted."})
    revoked = agent.send("DELETE", where, body)
    assert (revoked.status_code, revoked.json()) == (200, status | {"status": "revoked"})
    assert agent.send("DELETE", where, body).json() == revoked.json()
    posts = []
    service.deliveries._post = lambda target, body, headers, **more: (
        posts.append((target, body, headers)) or PostResponse(200)
    )
    service.deliveries.send_due()
    ((target, body, headers),) = posts
    assert (target.host, target.path) == ("93.184.215.14", "/status")
    assert json.loads(body) == revoked.json()
    assert headers == {"content-type": "application/json"}
    assert [holding.state for holding in vault.find(["p1"])] == ["present"]
    assert service.aliases.find("p1@example.com") is not None


def test_a_request_that_is_carried_out_later_is_called_back_and_cannot_be_revoked(waiting, clock):
    agent, service = waiting
    status = agent.delete(status_callback=CALLBACK).json()
    clock.pass_(hours=1)
    service.run_due()
    (row,) = service.database.fetch_all("SELECT * FROM deliveries")
    assert json.loads(row["body"]) == status | {"status": "fulfilled"}
    answer = agent.send("DELETE", f"{PATH}/{status['request_id']}", agent.signed({"reason": ""}))
    assert answer.status_code == 409
    assert answer.json()["code"] == "409"


def test_holds_and_extensions_are_details_without_internal_reasons(waiting):
    agent, service = waiting
    hold(service, "p1", name="secret affair")
    status = agent.delete(status_callback=CALLBACK).json()
    assert (status["status"], status["processing_details"]) == ("in_progress", "the data must be kept for now by law")
    assert b"secret" not in service.database.fetch_one("SELECT body FROM deliveries")["body"]
    service.queue.extend(status["request_id"], "many requests")
    status = agent.send("GET", f"{PATH}/{status['request_id']}").json()
    assert status["processing_details"] == "the deadline was extended: many requests"
    assert status["expected_by"] == "2026-05-01T12:00:00+00:00"  # 90 days


def test_a_request_that_the_business_ends_is_denied(waiting):
    agent, service = waiting
    cancelled, failed = agent.delete().json()["request_id"], agent.delete().json()["request_id"]
    service.cancel(cancelled, "an inner reason", Author())
    service.queue.move(failed, "failed", "an inner reason")
    for id_ in (cancelled, failed):
        status = agent.send("GET", f"{PATH}/{id_}").json()
        assert (status["status"], status["reason"]) == ("denied", "other")
        assert "inner" not in status["processing_details"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://169.254.169.254/latest", "ftp://x/", "http://[::1]/", 5, []]
)
def test_a_callback_to_a_private_address_is_refused(agent, vault, url):
    answer = agent.delete(status_callback=url)
    assert (answer.status_code, answer.json()["fatal"]) == (400, True)
    assert len(vault.requests) == 1


# Access


def test_a_request_is_visible_to_its_agent_only(agent, client, clock):
    other = Desk(client, clock, "AGENT_B").register()
    where = f"{PATH}/{agent.delete().json()['request_id']}"
    assert other.send("GET", where).status_code == 403
    assert other.send("DELETE", where, other.signed({"reason": ""})).status_code == 403
    assert agent.send("GET", where).status_code == 200


def test_a_request_of_another_protocol_is_not_found(agent, client):
    id_ = client.post("/api/v1/erasures", json={"ids": ["p5"]}).json()["id"]
    answers = [agent.send("GET", f"{PATH}/{name}") for name in (id_, "x", "00000000-0000-0000-0000-000000000000")]
    assert [answer.status_code for answer in answers] == [404] * 3
    assert answers[0].json() == {"code": "404", "message": "there is no request with this id", "fatal": False}


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic eA==", "Bearer \xe4"])
def test_an_agent_without_its_token_is_refused(agent, client, header, vault):
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    body = agent.signed(agent.claims(exercise="deletion", email="p1@example.com", email_verified=True))
    for method, path in (
        ("POST", PATH),
        ("GET", f"{PATH}/x"),
        ("DELETE", f"{PATH}/x"),
        ("GET", "/drp/v1/agent/AGENT_A"),
    ):
        answer = client.request(method, path, content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "401")
    assert len(vault.requests) == 1


def test_agent_information_is_for_the_agent_itself(agent):
    assert agent.send("GET", "/drp/v1/agent/AGENT_A").json() == {}
    assert agent.send("GET", "/drp/v1/agent/AGENT_B").status_code == 403


def test_a_new_token_replaces_the_old_and_none_is_stored(agent, service, tmp_path):
    old = agent.token
    assert agent.register().token != old
    new, agent.token = agent.token, old
    assert agent.send("GET", "/drp/v1/agent/AGENT_A").status_code == 401
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("spend.queue/*"))
    assert old.encode() not in stored
    assert new.encode() not in stored


@pytest.mark.parametrize(("keys", "status"), [(KEYS, 200), ({"AGENT_A": KEYS["AGENT_B"]}, 401), ({}, 401)])
def test_a_token_outlives_a_restart_but_not_its_agents_key(agent, make, options, clock, tmp_path, keys, status):
    directory(tmp_path, keys)
    with LocalClient(create_app(make(**options)), raise_server_exceptions=False) as client:
        agent.client = client
        assert agent.send("GET", "/drp/v1/agent/AGENT_A").status_code == status


@pytest.mark.parametrize(
    ("id_", "more", "key"),
    [
        ("AGENT_X", {"agent-id": "AGENT_X"}, "AGENT_A"),
        ("AGENT_A", {}, "AGENT_B"),
        ("AGENT_A", {"agent-id": "AGENT_B"}, "AGENT_A"),
        ("AGENT_A", {"business-id": "OTHER"}, "AGENT_A"),
        ("AGENT_A", {"expires-at": "2026-01-31T11:59:59Z"}, "AGENT_A"),
        ("AGENT_A", {"issued-at": "2026-01-31T12:00:01Z"}, "AGENT_A"),
    ],
)
def test_a_registration_that_fails_is_403_without_a_body(client, service, clock, id_, more, key):
    desk = Desk(client, clock)
    answer = client.post(f"/drp/v1/agent/{id_}", content=desk.signed(desk.claims(**more), KEYS[key]))
    assert (answer.status_code, answer.content) == (403, b"")
    assert service.database.fetch_all("SELECT * FROM agents") == []


# Messages


WRONG = [  # in the order in which the protocol has them checked, each with its answer
    ("signature", 403, "signature"),
    ({"agent-id": "AGENT_B"}, 403, "agent-id"),
    ({"business-id": "OTHER"}, 403, "business-id"),
    ({"issued-at": "2026-01-31T12:00:01+00:00"}, 400, "issued-at"),
    ({"expires-at": "2026-01-31T12:00:00+00:00"}, 400, "expired"),
]


@pytest.mark.parametrize("first", range(len(WRONG)))
def test_messages_are_checked_in_the_order_of_the_protocol(agent, vault, first):
    faults = [fault for fault, _, _ in WRONG[first:]]  # this one, and all that are checked after it
    more = {name: value for fault in faults if isinstance(fault, dict) for name, value in fault.items()}
    claims = agent.claims(exercise="deletion", email="p1@example.com", email_verified=True, **more)
    body = agent.signed(claims, KEYS["AGENT_B"] if "signature" in faults else None)
    answer = agent.send("POST", PATH, body)
    _, status, word = WRONG[first]
    assert (answer.status_code, answer.json()["code"]) == (status, str(status))
    assert word in answer.json()["message"]
    not_base64 = agent.send("POST", PATH, b"*" + body)
    assert (not_base64.status_code, "base64" in not_base64.json()["message"]) == (400, True)
    assert len(vault.requests) == 1


def test_a_replay_is_refused_until_the_message_has_expired(agent, vault, clock):
    body = agent.signed(agent.claims(exercise="deletion", email="p1@example.com", email_verified=True))
    assert agent.send("POST", PATH, body).status_code == 200
    for minutes, status in ((0, 409), (14, 409), (1, 400), (60 * 24 * 3, 400)):
        clock.pass_(minutes=minutes)
        for same in (body, body + b"\n"):
            answer = agent.send("POST", PATH, same)
            assert (answer.status_code, answer.json()["fatal"]) == (status, True)
    assert len(vault.requests) == 2


def test_a_clock_that_is_set_back_lets_no_replay_in(agent, clock):
    body = agent.signed(agent.claims(exercise="deletion", email="p1@example.com", email_verified=True))
    assert agent.send("POST", PATH, body).status_code == 200
    clock.pass_(hours=20)
    agent.register()  # what has expired is cleared away
    clock.pass_(hours=-20)
    assert agent.send("POST", PATH, body).status_code == 409


def test_marks_of_messages_are_cleared_away(agent, service, clock):
    agent.delete()
    assert len(service.database.fetch_all("SELECT * FROM seen")) == 2  # with the registration
    clock.pass_(days=2)
    agent.register()
    assert len(service.database.fetch_all("SELECT * FROM seen")) == 1


def test_a_message_with_a_long_lifetime_or_another_version_is_refused(agent):
    assert agent.delete(**{"expires-at": "2027-01-31T12:00:00Z"}).status_code == 400
    assert agent.delete(**{"drp.version": "2.0"}).status_code == 400
    assert agent.delete(**{"drp.version": ...}).status_code == 200


def test_claims_of_a_revocation_must_be_correct(waiting):
    agent, _ = waiting
    where = f"{PATH}/{agent.delete().json()['request_id']}"
    for wrong, status in (({"agent-id": "AGENT_B"}, 403), ({"expires-at": "2026-01-31T11:00:00Z"}, 400)):
        assert agent.send("DELETE", where, agent.signed(agent.claims(**wrong))).status_code == status
    assert agent.send("DELETE", where, agent.signed({"reason": ""}, KEYS["AGENT_B"])).status_code == 403
    assert agent.send("DELETE", where, agent.signed(agent.claims())).json()["status"] == "revoked"


@FEW
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_message_with_any_bit_changed_is_refused(agent, vault, place, bit):
    data = bytearray(base64.b64decode(agent.signed(agent.claims(exercise="deletion", email="p1@example.com"))))
    data[place % len(data)] ^= 1 << bit
    assert agent.send("POST", PATH, base64.b64encode(bytes(data))).status_code == 403


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = [
    "agent-id", "business-id", "issued-at", "expires-at", "drp.version", "exercise", "regime", "status_callback",
    "agent-request-id", "email", "email_verified",
]  # fmt: skip


@FEW
@given(more=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3))
def test_no_signed_message_causes_a_server_error(agent, more):
    answer = agent.delete(**{"email": "none@example.com"} | more)
    assert answer.status_code in (200, 400, 403)
    assert json.loads(answer.text).keys() >= ({"status"} if answer.status_code == 200 else {"code", "message", "fatal"})


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"5", b"null", b"{", b"\xff", b'{"a": NaN}', b"[" * 20_000, b'{"a":' * 5_000, b'"\\ud800"',
        b'{"issued-at": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_signed_nonsense_is_refused(agent, text):
    body = base64.b64encode(KEYS["AGENT_A"].sign(text))
    for method, path in (("POST", PATH), ("DELETE", f"{PATH}/x")):
        answer = agent.send(method, path, body)
        assert (answer.status_code, answer.json()["code"]) == (400, "400")


@pytest.mark.parametrize("raw", [b"", b"AAAA", b"=", b"\xff", b"A" * 70_000, "ä".encode()])
def test_a_body_that_is_not_a_message_is_refused(agent, raw):
    answer = agent.send("POST", PATH, raw)
    assert answer.status_code in (400, 403, 413)
    assert answer.json()["code"] == str(answer.status_code)


def test_a_regime_that_is_not_a_string_is_refused(agent):
    assert agent.delete(regime=["ccpa"]).status_code == 400


def test_a_busy_vault_is_an_error_in_the_protocols_form(agent, service, monkeypatch):
    def busy(*words, **more):
        raise VaultBusy("another process writes")

    monkeypatch.setattr(service, "erase", busy)
    answer = agent.delete()
    assert (answer.status_code, answer.json()["code"], answer.json()["fatal"]) == (503, "503", False)


def test_agents_are_rate_limited(service, agent, monkeypatch):
    agent.client.app.state.limit = lambda key: 1.0
    for answer in (agent.delete(), agent.client.post("/drp/v1/agent/AGENT_A", content=b"x")):
        assert (answer.status_code, answer.json()["code"]) == (429, "429")


# Storage and settings


def test_no_e_mail_address_is_in_the_database_or_a_log_line(waiting, tmp_path, capsys):
    agent, service = waiting
    service.aliases.add([("canary@example.com", "p2")])
    agent.delete("canary@example.com", name="Canary")
    agent.delete("canary-unknown@example.com")
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("spend.queue/*"))
    assert len(stored) > 10_000
    assert b"canary" not in stored.lower()
    assert "canary" not in capsys.readouterr().err.lower()


def test_without_a_directory_there_are_no_agents(make, clock):
    with LocalClient(create_app(make()), raise_server_exceptions=False) as client:
        desk = Desk(client, clock)
        assert client.post("/drp/v1/agent/AGENT_A", content=desk.signed(desk.claims())).status_code == 403
        assert desk.delete().status_code == 401


def test_a_directory_needs_the_name_of_the_business(make, tmp_path):
    with pytest.raises(InvalidSetting, match="--business-id"):
        create_app(make(drp_directory=directory(tmp_path)))


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[5]", "[{}]", '[{"id": "A", "name": "B", "verify_key": "AAAA"}]', "[" * 100_000, "\x00",
        '[{"id": "A", "name": "B", "verify_key": 5}]', '[{"id": "", "name": "B", "verify_key": "' + "A" * 43 + '="}]',
        '[{"id": "A", "name": "B\\n", "verify_key": "' + "A" * 43 + '="}]',
        "[" + ", ".join(['{"id": "A", "name": "B", "verify_key": "' + "A" * 43 + '="}'] * 2) + "]",
    ],
)  # fmt: skip
def test_a_wrong_directory_is_refused(tmp_path, text):
    path = tmp_path / "agents.json"
    path.write_text(text)
    with pytest.raises(InvalidSetting):
        read_directory(path)
    with pytest.raises(InvalidSetting):
        read_directory(tmp_path / "nothing.json")


def test_a_key_may_be_written_in_hexadecimal(tmp_path):
    path = tmp_path / "agents.json"
    path.write_text(json.dumps([{"id": "A", "name": "B", "verify_key": "aa" * 32}]))
    assert [agent.key for agent in read_directory(path)] == [b"\xaa" * 32]


# Aliases


@pytest.mark.parametrize(
    ("email", "form"),
    [
        (" Ada@Example.COM\n", "ada@example.com"), ("a@b", "a@b"), ("Ä@x", "ä@x"), ("A\u0308@x", "ä@x"),
        ("a@b@c", "a@b@c"), ("", None), ("a", None), ("@b", None), ("a@", None), ("a b@c", None), ("a\x00@b", None),
        ("x" * 400 + "@y", None), ("\ud800@y", None),
    ],
)  # fmt: skip
def test_addresses_are_compared_in_one_form(email, form):
    assert normalise_email(email) == form


def add(vault, path, *more):
    args = build_parser().parse_args(["aliases", "add", str(path), "--vault", str(vault.places.vault), *more])
    return args.run(args)


def test_the_command_fills_the_table(vault, make, tmp_path, capsys):
    path = tmp_path / "people.csv"
    path.write_text("id,name,email\np1,Ada,Ada@example.com\np2,Bob,bob@example.com\np2,Bob,b@example.com\n")
    add(vault, path)
    assert capsys.readouterr().out == "read: 3 addresses; stored: 3\n"
    path.write_text("\ufeffemail,id\nada@example.com,p3\n")
    add(vault, path, "--json")
    assert json.loads(capsys.readouterr().out) == {"read": 1, "moved": 1, "erased": 0, "aliases": 3}
    known = make().aliases
    people = [vault.unseal([known.find(email)])[0] for email in ("ADA@example.com", "bob@example.com", "b@example.com")]
    assert people == ["p3", "p2", "p2"]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"a,b\n1,2\n", b"email,id\n", b"email,id\nx,p1\n", b"email,id\na@b,\n", b"email,id\na@b\n", b"\xff\xfe",
        b"email,id\na@b,p1\nA@b,p2\n", b'email,id\n"a@b,p1\n',
    ],
)  # fmt: skip
def test_a_wrong_file_of_aliases_is_refused_whole(vault, make, tmp_path, data):
    path = tmp_path / "secret.csv"
    path.write_bytes(data)
    with pytest.raises(InvalidInput) as error:
        add(vault, path)
    assert "a@b" not in str(error.value).lower()
    assert make().aliases.count() == 0


def test_aliases_refuse_an_invalid_address(service, vault):
    before = service.aliases.count()
    with pytest.raises(InvalidInput, match="pair 2"):
        Aliases(vault, service.database).add([("a@b", "p1"), ("b", "p2")])
    assert service.aliases.count() == before


@pytest.mark.parametrize("right", ["access", "access:categories", "access:specific", "sale:opt-out", "sale:opt-in"])
def test_a_denied_right_can_be_looked_up(agent, client, right):
    agent.delete(exercise=right)
    answer = client.get("/api/v1/requests", params={"kind": right})
    assert (answer.status_code, [request["kind"] for request in answer.json()["requests"]]) == (200, [right])
