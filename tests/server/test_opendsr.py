"""OpenDSR 2.0: requests of privacy platforms, signed responses, and callbacks."""

import base64
import json
import shutil
import stat
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from expunge.errors import InvalidFile, InvalidSetting
from expunge.server.app import create_app
from expunge.server.protocols.opendsr.keys import SigningFiles
from expunge.server.protocols.opendsr.processor import parse_time
from expunge.server.service import Service

from support.client import LocalClient
from support.matters import hold, release
from support.sampling import examples

V2 = "/opendsr/v2"
NAME = "a7551968-d5d6-44b2-9831-815ac9017798"
OPENSSL = shutil.which("openssl")
HOOK = "https://controller.example.com/opendsr/callbacks"


def identity(value="p7", kind="controller_customer_id", form="raw"):
    return {"identity_type": kind, "identity_value": value, "identity_format": form}


def make_body(**changes):
    """Return the request of the specification's example with changes; ... leaves a member out."""
    body = {
        "regulation": "gdpr",
        "subject_request_id": NAME,
        "subject_request_type": "erasure",
        "submitted_time": "2026-01-30T15:00:00Z",
        "subject_identities": [identity()],
        "api_version": "2.0",
    }
    return {name: value for name, value in (body | changes).items() if value is not ...}


def client_of(service):
    return LocalClient(create_app(service), raise_server_exceptions=False)


@pytest.fixture(scope="module")
def key():
    """Return a key; generating one is slow."""
    key = rsa.generate_private_key(65537, 2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


@pytest.fixture(autouse=True)
def place(tmp_path, key):
    """Put the key beside the vault, and return its path."""
    path = tmp_path / "spend.opendsr.key"
    path.touch(0o600)
    path.write_bytes(key)
    return path


@pytest.fixture
def waiting(make):
    """Return a client of a service in which requests wait for a day."""
    with client_of(make(window=timedelta(days=1))) as client:
        yield client


def deliveries(service):
    return service.database.fetch_all("SELECT url, body, headers FROM deliveries ORDER BY id")


def check_signed(client, body, headers, name="X-OpenDSR"):
    """Verify a signature with the certificate from discovery, as in section 8.8 of the specification."""
    address = client.get(f"{V2}/discovery").json()["processor_certificate"]
    certificate = x509.load_pem_x509_certificate(client.get(address.removeprefix("http://localhost:8080")).content)
    (common,) = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    domain = headers[f"{name}-Processor-Domain"]
    assert common.value == domain
    assert names.get_values_for_type(x509.DNSName) == [domain]
    signature = base64.b64decode(headers[f"{name}-Signature"], validate=True)
    certificate.public_key().verify(signature, body, padding.PKCS1v15(), hashes.SHA256())
    with pytest.raises(InvalidSignature):
        certificate.public_key().verify(signature, body + b" ", padding.PKCS1v15(), hashes.SHA256())


def test_discovery_is_public_and_lists_what_is_supported(client, service):
    service.tokens.create("a", ["erase"], None)
    assert client.get(f"{V2}/discovery").json() == {
        "api_version": "2.0",
        "supported_identities": [{"identity_type": "controller_customer_id", "identity_format": "raw"}],
        "supported_subject_request_types": ["erasure"],
        "processor_certificate": "http://localhost/opendsr/v2/certificate.pem",
    }


def test_a_request_is_carried_out_and_its_result_is_the_certificate(client, vault, clock):
    raw = json.dumps(make_body()).encode()
    answer = client.post(f"{V2}/requests", content=raw)
    assert answer.status_code == 201
    body = answer.json()
    assert base64.b64decode(body.pop("encoded_request")) == raw
    assert body == {
        "controller_id": "local",
        "subject_request_id": NAME,
        "api_version": "2.0",
        "received_time": "2026-01-31T12:00:00Z",
        "expected_completion_time": "2026-02-28T15:00:00Z",
    }
    check_signed(client, answer.content, answer.headers)
    assert vault.find(["p7"])[0].state == "erased"
    status = client.get(f"{V2}/requests/{NAME}")
    assert status.status_code == 200
    check_signed(client, status.content, status.headers)
    status_body = status.json()
    assert (status_body["request_status"], status_body["results_count"]) == ("completed", 1)
    result = client.get(status_body["results_url"].removeprefix("http://localhost:8080"))
    assert result.text == vault.requests[-1].certificate
    assert vault.requests[-1].reference.endswith(NAME)


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
def test_openssl_agrees_with_a_signature(client, tmp_path):
    answer = client.post(f"{V2}/requests", json=make_body())
    (tmp_path / "body").write_bytes(answer.content)
    (tmp_path / "signature").write_bytes(base64.b64decode(answer.headers["X-OpenDSR-Signature"]))
    (tmp_path / "pem").write_bytes(client.get(f"{V2}/certificate.pem").content)

    def openssl(command):
        return subprocess.run([OPENSSL, *command.split()], cwd=tmp_path, capture_output=True, check=True).stdout

    (tmp_path / "public").write_bytes(openssl("x509 -in pem -pubkey -noout"))
    assert openssl("dgst -sha256 -verify public -signature signature body") == b"Verified OK\n"


def test_a_repeated_request_gets_the_same_response_and_runs_once(client, vault):
    first = client.post(f"{V2}/requests", json=make_body())
    before = len(vault.requests)
    again = client.post(f"{V2}/requests", json=make_body())
    assert (again.status_code, again.content) == (201, first.content)
    other = client.post(f"{V2}/requests", json=make_body(subject_identities=[identity("p8")]))
    assert other.status_code == 400
    assert other.json()["error"]["errors"][0]["reason"] == "already-used"
    assert len(vault.requests) == before
    assert vault.find(["p8"])[0].state == "present"


def test_identical_concurrent_requests_are_one_job(client, service):
    barrier, answers = threading.Barrier(4), []

    def ask():
        barrier.wait()
        answers.append(client.post(f"{V2}/requests", json=make_body()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    assert sum(service.queue.counts().values()) == 1


def test_an_unknown_person_is_completed_with_no_results(client, vault):
    client.post(f"{V2}/requests", json=make_body(subject_identities=[identity("nobody")]))
    status_body = client.get(f"{V2}/requests/{NAME}").json()
    assert (status_body["request_status"], status_body["results_count"]) == ("completed", 0)
    assert "results_url" not in status_body
    none = client.get(f"{V2}/requests/{NAME}/results")
    assert (none.status_code, none.json()["error"]["code"]) == (404, 404)


@pytest.mark.parametrize(
    "changes",
    [
        {"regulation": ...},
        {"regulation": "CCPA"},
        {"api_version": ...},
        {"submitted_time": "2022-1-5"},
        {"submitted_time": "2022-1-5T3:04:5.25+1:00"},
        {"subject_request_id": NAME.upper()},
        {"subject_identities": {"controller_customer_id": {"value": "p7", "encoding": "raw"}}},
        {"subject_identities": {"controller_customer_id": "p7", "email": {"value": "a@b.example"}}},
        {"subject_identities": {"controller_customer_id": ["p7", {"value": "p8"}]}},
        {"subject_identities": [identity("a@b.example", "email"), identity()]},
        {"subject_identities": [identity("ff" * 32, form="sha256"), identity()]},
        {"subject_identities": [identity(form=...)]},
        {"subject_identities": ..., "extensions": {"localhost": {"subject_identities": [identity()]}, "x.example": 1}},
        {"status_callback_urls": HOOK},
    ],
    ids=str,
)
def test_deviations_of_real_senders_are_accepted(client, vault, changes):
    body = make_body(**changes)
    for identity in body.get("subject_identities", []):
        if isinstance(identity, dict) and identity["identity_format"] is ...:
            del identity["identity_format"]
    assert client.post(f"{V2}/requests", json=body).status_code == 201
    assert vault.find(["p7"])[0].state == "erased"
    assert client.get(f"{V2}/requests/{NAME}").json()["subject_request_id"] == NAME


def test_an_address_is_an_identity_where_there_are_aliases(client, service, vault):
    service.aliases.add([("seven@x.example", "p7"), ("eight@x.example", "p8")])
    kinds = [identity["identity_type"] for identity in client.get(f"{V2}/discovery").json()["supported_identities"]]
    assert kinds == ["controller_customer_id", "email"]
    other = NAME.replace("a", "b")
    for name, email in ((NAME, "Seven@X.example"), (other, "nobody@x.example")):
        people = [identity(email, "email")]
        answer = client.post(f"{V2}/requests", json=make_body(subject_request_id=name, subject_identities=people))
        assert answer.status_code == 201
    assert [holding.state for holding in vault.find(["p7", "p8"])] == ["erased", "present"]
    status_body = client.get(f"{V2}/requests/{other}").json()
    assert (status_body["request_status"], status_body["results_count"]) == ("completed", 0)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2022-1-5", datetime(2022, 1, 5, tzinfo=UTC)),
        ("2022-01-05t1:2", datetime(2022, 1, 5, 1, 2, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2022-01-05 10:00:00-0530", datetime(2022, 1, 5, 15, 30, tzinfo=UTC)),
    ],
)
def test_times_are_parsed(text, moment):
    assert parse_time(text) == moment


CANARY = "canary-4711"
TAKEN = [identity(CANARY)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"subject_request_type": "access"}, "not-supported"),
        ({"subject_request_type": "portability"}, "not-supported"),
        ({"subject_request_type": CANARY}, "invalid"),
        ({"subject_request_type": ["erasure"]}, "invalid"),
        ({"regulation": "lgpd"}, "not-supported"),
        ({"subject_request_id": ...}, "required"),
        ({"subject_request_id": CANARY}, "invalid"),
        ({"subject_request_id": 7}, "invalid"),
        ({"submitted_time": ...}, "required"),
        ({"submitted_time": "2022-2-30"}, "invalid"),
        ({"submitted_time": "2022-02-03T00:00:00+99:99"}, "invalid"),
        ({"submitted_time": 1643630400}, "invalid"),
        ({"subject_identities": ...}, "required"),
        ({"subject_identities": []}, "required"),
        ({"subject_identities": CANARY}, "invalid"),
        ({"subject_identities": [[CANARY]]}, "invalid"),
        ({"subject_identities": [identity(CANARY, "email")]}, "not-supported"),
        ({"subject_identities": [identity(CANARY, form="md5")]}, "not-supported"),
        ({"subject_identities": [identity([CANARY])]}, "invalid"),
        ({"subject_identities": [identity("")]}, "invalid"),
        ({"subject_identities": [identity(True)]}, "invalid"),
        ({"subject_identities": [identity(CANARY + "\ud800")]}, "invalid"),
        ({"subject_identities": [identity(CANARY + "x" * 1000)]}, "invalid"),
        ({"subject_identities": TAKEN * 101}, "invalid"),
        ({"subject_identities": TAKEN, "status_callback_urls": ["ftp://x.example"]}, "invalid"),
        ({"subject_identities": TAKEN, "status_callback_urls": ["http://127.0.0.1/"]}, "invalid"),
        ({"subject_identities": TAKEN, "status_callback_urls": [f"https://{CANARY}@x.example/"]}, "invalid"),
        ({"subject_identities": TAKEN, "status_callback_urls": {"a": HOOK}}, "invalid"),
        ({"subject_identities": TAKEN, "status_callback_urls": [HOOK] * 21}, "invalid"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_refusal_has_the_protocols_form_and_names_nobody(client, service, changes, reason):
    answer = client.post(f"{V2}/requests", content=json.dumps(make_body(**changes)))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == 400
    assert [set(item) for item in error["errors"]] == [{"domain", "reason", "message"}]
    assert error["errors"][0]["reason"] == reason
    assert CANARY not in answer.text
    assert not service.queue.counts()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
members = st.sampled_from([*make_body(), "status_callback_urls", "extensions"])
parts = st.sampled_from(["identity_type", "identity_value", "identity_format"])


@examples(100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(members, values, max_size=2), inner=st.dictionaries(parts, values, max_size=1))
def test_any_body_is_accepted_or_refused(waiting, changes, inner):
    body = make_body(subject_identities=[identity() | inner]) | changes
    answer = waiting.post(f"{V2}/requests", content=json.dumps(body))
    assert answer.status_code in (201, 400)
    assert ("error" in answer.json()) == (answer.status_code == 400)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"regulation": NaN}'])
def test_a_body_that_is_not_a_request_is_refused(client, raw):
    answer = client.post(f"{V2}/requests", content=raw)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400)


def test_a_pending_request_can_be_cancelled(waiting, vault):
    service = waiting.app.state.service
    waiting.post(f"{V2}/requests", json=make_body(status_callback_urls=[HOOK]))
    assert waiting.get(f"{V2}/requests/{NAME}").json()["request_status"] == "pending"
    assert not deliveries(service)
    answers = [waiting.delete(f"{V2}/requests/{NAME}") for _ in range(2)]
    for answer in answers:
        assert (answer.status_code, answer.content) == (202, answers[0].content)
        check_signed(waiting, answer.content, answer.headers)
    assert answers[0].json()["received_time"] == "2026-01-31T12:00:00Z"
    assert waiting.get(f"{V2}/requests/{NAME}").json()["request_status"] == "cancelled"
    assert [json.loads(delivery["body"])["request_status"] for delivery in deliveries(service)] == ["cancelled"]
    service.clock.pass_(days=2)
    service.run_due()
    assert vault.find(["p7"])[0].state == "present"


def test_repeating_a_cancelled_request_is_refused(waiting):
    waiting.post(f"{V2}/requests", json=make_body())
    waiting.delete(f"{V2}/requests/{NAME}")
    answer = waiting.post(f"{V2}/requests", json=make_body())
    assert (answer.status_code, answer.json()["error"]["errors"][0]["reason"]) == (400, "cancelled")
    assert waiting.get(f"{V2}/requests/{NAME}").json()["request_status"] == "cancelled"


def test_a_request_belongs_to_the_token_that_sent_it(waiting, vault):
    """Another token that knows its UUID can neither read nor cancel it, and can use the same UUID."""
    service = waiting.app.state.service
    first, second, admin = (
        {"Authorization": f"Bearer {service.tokens.create('token', [scope], None)[1]}"}
        for scope in ("erase", "erase", "admin")
    )
    where = f"{V2}/requests/{NAME}"
    assert waiting.post(f"{V2}/requests", json=make_body(), headers=first).status_code == 201
    for ask in (waiting.get, waiting.delete):
        assert ask(where, headers=second).status_code == 404
    assert waiting.get(f"{where}/results", headers=second).json()["error"]["message"].startswith("there is no request")
    assert waiting.get(where, headers=admin).json()["request_status"] == "pending"
    assert waiting.post(f"{V2}/requests", json=make_body(), headers=second).status_code == 201
    assert waiting.delete(where, headers=first).status_code == 202
    assert [waiting.get(where, headers=who).json()["request_status"] for who in (first, second)] == [
        "cancelled",
        "pending",
    ]
    service.clock.pass_(days=2)
    service.run_due()
    assert vault.find(["p7"])[0].state == "erased"


def test_a_completed_request_cannot_be_cancelled(client):
    client.post(f"{V2}/requests", json=make_body())
    answer = client.delete(f"{V2}/requests/{NAME}")
    assert (answer.status_code, answer.json()["error"]["errors"][0]["reason"]) == (400, "too-late")
    assert client.get(f"{V2}/requests/{NAME}").json()["request_status"] == "completed"


def test_a_held_person_keeps_a_request_pending(client, service, vault):
    matter = hold(service, "p7", name="a lawsuit")
    client.post(f"{V2}/requests", json=make_body())
    assert client.get(f"{V2}/requests/{NAME}").json()["request_status"] == "pending"
    release(service, matter)
    service.run_due()
    assert client.get(f"{V2}/requests/{NAME}").json()["request_status"] == "completed"


@pytest.mark.parametrize("method", ["get", "delete"])
@pytest.mark.parametrize(("name", "status"), [(NAME, 404), ("p7", 400)])
def test_an_unknown_request_is_not_found(client, method, name, status):
    answer = client.request(method, f"{V2}/requests/{name}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)


def test_every_address_is_called_once_with_a_signature_when_the_state_changes(waiting):
    service = waiting.app.state.service
    urls = [HOOK, "https://other.example.com/x"]
    waiting.post(f"{V2}/requests", json=make_body(status_callback_urls=urls))
    service.clock.pass_(days=2)
    service.run_due()
    service.run_due()
    client_of(service)  # a start finds nothing that was not told
    stored = deliveries(service)
    assert [delivery["url"] for delivery in stored] == urls
    for delivery in stored:
        status_body, headers = json.loads(delivery["body"]), json.loads(delivery["headers"])
        assert status_body == {
            **waiting.get(f"{V2}/requests/{NAME}").json(),
            "status_callback_url": delivery["url"],
        }
        assert status_body["request_status"] == "completed"
        assert headers["Content-Type"] == "application/json"
        assert not any("GDPR" in name for name in headers)
        check_signed(waiting, delivery["body"], headers)


def test_callbacks_lost_in_a_crash_are_stored_at_the_next_start(vault, make, clock):
    service = make()
    with client_of(service) as client:
        service.listeners.clear()  # the process ends right after the erasure
        client.post(f"{V2}/requests", json=make_body(status_callback_urls=[HOOK]))
    assert not deliveries(service)
    create_app(Service(vault, service.database, service.options, clock))
    assert [delivery["url"] for delivery in deliveries(service)] == [HOOK]
    create_app(Service(vault, service.database, service.options, clock))
    assert len(deliveries(service)) == 1


def test_an_unreadable_signing_key_does_not_prevent_an_erasure(waiting, vault):
    service = waiting.app.state.service
    waiting.post(f"{V2}/requests", json=make_body(status_callback_urls=[HOOK]))
    files = waiting.app.state.opendsr.signing_files
    files.key.write_bytes(b"")
    files._signer = None
    service.clock.pass_(days=2)
    service.run_due()
    assert vault.find(["p7"])[0].state == "erased"
    assert not deliveries(service)
    files.key.unlink()
    client_of(service)
    assert len(deliveries(service)) == 1


@pytest.mark.parametrize("place", [f"{V2}/opengdpr_requests", "/opendsr/opengdpr_requests"])
def test_the_names_of_opengdpr_work(waiting, place):
    service = waiting.app.state.service
    answers = [waiting.post(place, json=make_body(status_callback_urls=[HOOK])), waiting.get(f"{place}/{NAME}")]
    answers.append(waiting.delete(f"{place}/{NAME}"))
    assert [answer.status_code for answer in answers] == [201, 200, 202]
    for answer in answers:
        for name in ("X-OpenDSR", "X-OpenGDPR"):
            check_signed(waiting, answer.content, answer.headers, name)
    (delivery,) = deliveries(service)
    check_signed(waiting, delivery["body"], json.loads(delivery["headers"]), "X-OpenGDPR")
    assert waiting.get("/opendsr/discovery").json() == waiting.get(f"{V2}/discovery").json()


def test_old_headers_are_answered_with_old_headers(client):
    client.post(f"{V2}/requests", json=make_body())
    new = client.get(f"{V2}/requests/{NAME}")
    old = client.get(f"{V2}/requests/{NAME}", headers={"X-OpenGDPR-Processor-Domain": "x"})
    assert "X-OpenGDPR-Signature" not in new.headers
    assert old.headers["X-OpenGDPR-Signature"] == old.headers["X-OpenDSR-Signature"]


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_a_token_is_needed_as_bearer_or_as_a_password(client, service):
    _, good = service.tokens.create("platform", ["erase"], None)
    _, weak = service.tokens.create("looker", ["read"], None)
    asks = {
        None: 401, "Bearer nonsense": 401, f"Digest {good}": 401, "Basic %%%": 401, "Basic /w==": 401,
        basic(good): 401, basic(f"{good}:x"): 401, f"Bearer {weak}": 403, basic(f"x:{weak}"): 403,
        f"Bearer {good}": 404, basic(f"user:{good}"): 404, basic(f":{good}"): 404,
    }  # fmt: skip
    for header, status in asks.items():
        headers = {} if header is None else {"Authorization": header}
        answer = client.get(f"{V2}/requests/{NAME}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, status), header
    answer = client.post(f"{V2}/requests", json=make_body(), headers={"Authorization": basic(f"user:{good}")})
    assert answer.json()["controller_id"] == "platform"


def test_the_database_contains_no_id_after_the_erasure(waiting):
    service, people = waiting.app.state.service, [identity(CANARY), identity("p7")]
    waiting.post(f"{V2}/requests", json=make_body(subject_identities=people, status_callback_urls=[HOOK]))
    path = service.database.path
    for _ in range(2):
        for file in path.parent.glob(f"{path.name}*"):
            assert CANARY.encode() not in file.read_bytes()
        service.clock.pass_(days=2)
        service.run_due()
    assert not service.database.fetch_all("SELECT * FROM people")


# The key and its certificate


def test_the_key_is_private_to_its_owner_and_persistent(vault, clock, place):
    place.unlink()
    files = SigningFiles(vault.places.vault, "a.example.com", clock)
    first = files.load_signer()
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert files.key == place
    assert first.pem == files.certificate.read_bytes()
    again = SigningFiles(vault.places.vault, "a.example.com", clock).load_signer()
    assert again.certificate == first.certificate
    moved = SigningFiles(vault.places.vault, "192.0.2.7", clock).load_signer()
    assert moved.domain == "192.0.2.7"
    assert moved.certificate.public_key() == first.certificate.public_key()


def test_a_self_signed_certificate_is_renewed_before_it_expires(vault, clock):
    files = SigningFiles(vault.places.vault, "a.example.com", clock)
    first = files.load_signer()
    clock.pass_(days=600)
    assert files.load_signer() is first
    clock.pass_(days=120)
    second = files.load_signer()
    assert second.certificate.not_valid_after_utc > first.certificate.not_valid_after_utc
    assert second.certificate.public_key() == first.certificate.public_key()


def issued(key, name, now):
    """Return a certificate that an authority issued for a key."""
    authority = rsa.generate_private_key(65537, 2048)
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in (name, "authority")]
    return (
        x509.CertificateBuilder(names[1], names[0], key.public_key(), 7)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=10))
        .sign(authority, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


def test_the_certificate_of_an_authority_is_kept_and_names_the_domain(vault, clock):
    files = SigningFiles(vault.places.vault, "a.example.com", clock)
    key = files.load_signer().key
    pem = issued(key, "trusted.example.com", clock())
    files.certificate.write_bytes(pem)
    signer = SigningFiles(vault.places.vault, "a.example.com", clock).load_signer()
    assert (signer.domain, signer.pem, files.certificate.read_bytes()) == ("trusted.example.com", pem, pem)
    files.key.unlink()
    with pytest.raises(InvalidFile, match="does not belong to the key"):
        SigningFiles(vault.places.vault, "a.example.com", clock).load_signer()


@pytest.mark.parametrize("which", ["key", "certificate"])
def test_an_error_names_the_damaged_file(vault, clock, which):
    files = SigningFiles(vault.places.vault, "a.example.com", clock)
    files.load_signer()
    path = getattr(files, which)
    path.write_bytes(b"-----BEGIN NONSENSE-----\n")
    with pytest.raises(InvalidFile, match=path.name):
        SigningFiles(vault.places.vault, "a.example.com", clock).load_signer()


def test_a_key_that_others_can_read_is_refused(vault, clock):
    files = SigningFiles(vault.places.vault, "a.example.com", clock)
    files.load_signer()
    files.key.chmod(0o644)
    with pytest.raises(InvalidFile, match="read by others"):
        SigningFiles(vault.places.vault, "a.example.com", clock).load_signer()


@pytest.mark.parametrize(
    "address", ["", "privacy.example.com", "ftp://x", "http://[", "https://x/?q", "https://ü.example"]
)
def test_an_invalid_public_url_is_refused(make, address):
    with pytest.raises(InvalidSetting):
        create_app(make(public_url=address))


def test_urls_in_responses_begin_with_the_public_url(make):
    with client_of(make(public_url="https://privacy.example.com:8443/ml/")) as client:
        body = client.get(f"{V2}/discovery").json()
        assert body["processor_certificate"] == "https://privacy.example.com:8443/ml/opendsr/v2/certificate.pem"
        answer = client.post(f"{V2}/requests", json=make_body())
        assert answer.headers["X-OpenDSR-Processor-Domain"] == "privacy.example.com"
        status_body = client.get(f"{V2}/requests/{NAME}").json()
        assert status_body["results_url"] == f"https://privacy.example.com:8443/ml/opendsr/v2/requests/{NAME}/results"
