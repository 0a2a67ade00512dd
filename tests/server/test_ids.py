"""Ids over HTTP: in one form whatever carries them, refused if of another form than the schema has, told if unknown."""

import dataclasses
import json
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from expunge import CodedRegressor
from expunge.server.aliases import Aliases
from expunge.server.app import create_app
from expunge.server.database import Database, queue_path
from expunge.server.protocols import drp
from expunge.server.queue import JobFilter, NewJob
from expunge.server.service import Options, Service
from expunge.tables import Schema, propose_schema
from expunge.vault import Vault
from expunge.vault.certificates.jws import unverified_payload

from support.client import LocalClient
from support.pages import Page, Person

ERASURES = "/api/v1/erasures"
TEXT = {"content-type": "text/plain"}


def numbered():
    """A table of customers 4700 to 4739."""
    rng = np.random.default_rng(0)
    columns = {name: rng.random(40) for name in ("age", "visits", "spend")}
    return pa.table({"who": [str(k) for k in range(4700, 4740)], **columns})


@pytest.fixture
def vault(tmp_path):
    """Replaces the fixture of the room: ids are whole numbers, and nothing refuses others."""
    model = CodedRegressor(shards=5, rate=5, random_state=0)
    return Vault.create(tmp_path / "spend.vault", numbered(), target="spend", id="who", model=model)


# One form


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", "\u3000", "\u2028"])
def test_blanks_around_ids_are_treated_alike_in_json_and_text(client, vault, blank):
    told = client.post(ERASURES, json={"ids": [f"4710{blank}", f"{blank}4711"]}).json()
    assert (told["state"], told["outcome"]["erased"]) == ("done", 2)
    told = client.post(ERASURES, content=f"{blank}4712\r\n4713{blank}\r\r4714".encode(), headers=TEXT).json()
    assert (told["state"], told["outcome"]["erased"]) == ("done", 3)
    assert [one.state for one in vault.find([4710, 4711, 4712, 4713, 4714])] == ["erased"] * 5
    assert [one is not None for one in client.post("/api/v1/receipts", json={"ids": [f" 4710{blank}"]}).json()] == [
        True
    ]


def test_an_id_of_blanks_alone_is_an_error(client, service):
    told = client.post(ERASURES, json={"ids": ["4710", " \t"]})
    assert told.status_code == 422
    assert told.json()["detail"] == "ids that are empty or only blanks: 1 of 2, at position 2"
    assert service.queue.counts() == {}


JSON = [
    '{"ids": ["4711"]}',
    '["4711"]',
    "[4711]",
    ' {\n "ids": [4711]}',
    '{"id": 4711}\n{"id": 4712}',
    '\ufeff{"ids": [',
]


@pytest.mark.parametrize("text", JSON)
def test_json_in_the_place_of_plain_ids_is_an_error(client, service, vault, text):
    told = client.post(ERASURES, content=text.encode(), headers=TEXT)
    assert (told.status_code, told.json()["type"]) == (400, "urn:expunge:problem:invalid-text")
    assert "JSON" in told.json()["detail"]
    assert "4711" not in told.text
    for path in ("/fides/people", "/fides/erasures"):
        assert client.post(path, content=text.removeprefix("\ufeff").encode(), headers=TEXT).status_code == 400
    assert service.queue.counts() == {}
    assert vault.find(4711)[0].state == "present"


# The schema's form


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"ids": [4710, 4711.5]}, "ids.1: an id must be a string of 1 to 1,000 characters, or an integer"),
        ({"ids": [None]}, "ids.0: an id must be a string of 1 to 1,000 characters, or an integer"),
        ([4711], "the body must be a JSON object"),
        (
            {"ids": [4711], "secret": 1},
            "the body has an unknown member; it can have ids, regulation, reference",
        ),
    ],
)
def test_what_is_wrong_with_a_body_is_told_without_names_of_classes(client, body, detail):
    told = client.post(ERASURES, json=body)
    assert (told.status_code, told.json()["detail"]) == (422, detail)


@pytest.fixture
def strict(tmp_path):
    """A service whose vault takes whole numbers for ids and nothing else, and a client."""
    schema = Schema.parse(propose_schema(numbered(), target="spend", id="who"))
    model = CodedRegressor(shards=5, rate=5, random_state=0)
    vault = Vault.create(tmp_path / "strict.vault", numbered(), schema=schema, model=model)
    service = Service(vault, Database(queue_path(vault.places.vault)), Options())
    with LocalClient(create_app(service), raise_server_exceptions=False) as client:
        yield client
    service.stop()


REFUSED = "ids that are not whole numbers like 4711: 1 of 2, at position 2"


def test_ids_of_another_form_are_refused_at_once_by_every_route(strict):
    service = strict.app.state.service
    asked = {"ids": [4711, "secret-7"]}
    for path, body in [
        (ERASURES, asked),
        ("/api/v1/receipts", asked),
        ("/api/v1/readmissions", asked),
    ]:
        told = strict.post(path, json=body)
        assert told.status_code == 422, path
        assert told.json()["detail"].startswith(REFUSED), path
        assert "secret" not in told.text
    told = strict.post(ERASURES, content=b"4711\nsecret-7\n", headers=TEXT)
    assert (told.status_code, told.json()["detail"].startswith(REFUSED)) == (422, True)
    rows = [{"who": "secret-7", "age": 0.5, "visits": 0.5, "spend": 0.5}]
    told = strict.post("/api/v1/rows", json={"rows": rows})
    assert told.status_code == 422
    assert "secret" not in told.text
    for path in ("/fides/people", "/fides/erasures"):
        assert strict.post(path, content=b"secret-7", headers=TEXT).status_code == 422
    page = strict.get("/erase")
    assert page.status_code == 200
    assert all(state != "waiting" for _, _, state in service.queue.counts())
    assert strict.post(ERASURES, json={"ids": [4711, " 4712 "]}).json()["outcome"]["erased"] == 2


def test_requests_by_e_mail_work_where_ids_are_numbers(strict):
    service = strict.app.state.service
    Aliases(service.vault, service.database).add([("Anna@example.org", "4720")])
    body = {
        "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
        "subject_request_type": "erasure",
        "submitted_time": "2026-11-05T12:00:00Z",
        "subject_identities": [
            {"identity_type": "email", "identity_value": "anna@EXAMPLE.org", "identity_format": "raw"}
        ],
    }
    assert strict.post("/opendsr/v2/requests", content=json.dumps(body)).status_code == 201
    assert service.vault.find(4720)[0].state == "erased"
    wrong = json.loads(json.dumps(body).replace("email", "controller_customer_id").replace("a7551968", "b7551968"))
    told = strict.post("/opendsr/v2/requests", content=json.dumps(wrong))
    assert told.status_code == 400
    assert "whole numbers" in told.text
    assert "EXAMPLE" not in told.text


def test_fold_case_is_kept_when_a_format_is_declared():
    schema = dataclasses.replace(Schema.parse(propose_schema(numbered(), target="spend", id="who")), fold_case=True)
    assert (schema.id_format, Schema.from_json(schema.to_json())) == ("integer", schema)


# Who is not known


def states(service):
    return sorted(state for (_, _, state), count in service.queue.counts().items() for _ in range(count))


def counts(told):
    return {name: told["outcome"][name] for name in ("erased", "erased_earlier", "unknown", "similar")}


def test_people_who_are_not_known_do_not_look_erased(client, service):
    told = client.post(ERASURES, json={"ids": ["9999", "nobody"]})
    assert (told.status_code, told.json()["state"], told.json()["certificate"]) == (200, "not_known", None)
    assert counts(told.json()) == {"erased": 0, "erased_earlier": 0, "unknown": 2, "similar": 0}
    for receipt in told.json()["receipts"]:
        said = unverified_payload(receipt["certificate"])
        assert said["kind"] == "unknown"
        assert said["says"].startswith("not known here: ")
    again = client.get(told.headers["location"]).json()
    assert (again["state"], again["ended"] is not None) == ("not_known", True)
    listed = client.get("/api/v1/requests?state=not_known").json()["requests"]
    assert [one["id"] for one in listed] == [again["id"]]
    assert client.get("/api/v1/requests?state=done").json()["requests"] == []
    assert client.get(f"{told.headers['location']}/certificate").status_code == 404
    assert client.delete(told.headers["location"]).status_code == 409
    assert states(service) == ["not_known"]


def test_a_mixture_says_how_many_were_erased_were_erased_earlier_and_are_not_known(client):
    client.post(ERASURES, json={"ids": [4701, 4702]})
    told = client.post(ERASURES, json={"ids": [4700, 4701, 4702, "9999", "4703.0", "04704"]}).json()
    assert told["state"] == "done"
    assert counts(told) == {"erased": 1, "erased_earlier": 2, "unknown": 3, "similar": 2}
    told = client.post(ERASURES, json={"ids": [4701, 4702]}).json()
    assert (told["state"], counts(told)["erased_earlier"]) == ("done", 2)
    kinds = [unverified_payload(one["certificate"])["kind"] for one in told["receipts"]]
    assert kinds == ["unlearn", "unlearn"]


def test_an_erasure_that_waited_ends_as_not_known_as_well(make, clock):
    service = make(window=timedelta(hours=1))
    heard = []
    service.listeners.append(lambda event: heard.append(event.name))
    with LocalClient(create_app(service)) as client:
        told = client.post(ERASURES, json={"ids": ["04704"]})
        assert (told.status_code, told.json()["state"]) == (202, "waiting")
        clock.pass_(hours=2)
        service.run_due()
        told = client.get(told.headers["location"]).json()
    assert (told["state"], told["outcome"]["similar"]) == ("not_known", 1)
    assert heard == ["accepted", "not_known"]


@pytest.mark.parametrize("scope", ["read", "rows"])
def test_only_callers_who_may_erase_are_told_of_similar_ids(client, service, scope):
    secret = {name: service.tokens.create(name, [name], None)[1] for name in ("erase", scope)}
    auth = {name: {"Authorization": f"Bearer {secret[name]}"} for name in secret}
    told = client.post(ERASURES, json={"ids": ["4703.0"]}, headers=auth["erase"])
    assert told.json()["outcome"]["similar"] == 1
    place = told.headers["location"]
    assert client.get(place, headers=auth["erase"]).json()["outcome"]["similar"] == 1
    other = client.get(place, headers=auth[scope])
    assert (other.status_code, "similar" in other.text) == (200, False)
    assert other.json().get("state") == ("not_known" if scope == "read" else None)
    for path in ("/api/v1/requests", "/api/v1/audit", f"/requests/{place.rsplit('/')[-1]}"):
        assert "similar" not in client.get(path, headers=auth[scope]).text.lower()


def test_pages_say_not_known_here(client, service):
    person = Person(client)
    form = person.get("/erase").form("/erase")
    page = person.send(form, ids="4703.0\n9999\n4704")
    text = Page(page.text).text
    assert "2 people are not known here" in text
    assert "For 1 of them the vault has a similar id" in text
    assert "4703.0 not known here; the vault has a similar id" in text
    done = Page(person.send(Page(page.text).form("/erase/now")).text).text
    assert "2 people are not known here, so nothing was erased for them." in done
    assert "For 1 of them the vault has a similar id" in done
    service.erase(["9999"], NewJob("erasure", "api", "gdpr"))
    [unknown] = service.queue.page(JobFilter(["not_known"]))
    assert "similar id" not in person.get(f"/requests/{unknown.id}").text
    listed = person.get("/requests").text
    assert "Not known here" in listed
    assert "2 not known here" in listed
    shown = person.get(f"/requests/{unknown.id}")
    assert "Not known here" in shown.text
    assert "Done" not in shown.text
    assert "badge not_known" in shown.values


def test_open_dsr_completes_a_request_about_nobody_with_no_results(client, service):
    body = {
        "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
        "subject_request_type": "erasure",
        "submitted_time": "2026-01-05T12:00:00Z",
        "subject_identities": [
            {"identity_type": "controller_customer_id", "identity_value": "9999", "identity_format": "raw"}
        ],
    }
    assert client.post("/opendsr/v2/requests", content=json.dumps(body)).status_code == 201
    told = client.get(f"/opendsr/v2/requests/{body['subject_request_id']}").json()
    assert (told["request_status"], told["results_count"], "results_url" in told) == ("completed", 0, False)
    assert states(service) == ["not_known"]


def test_an_address_that_nobody_has_is_recorded_as_nobody_where_ids_are_numbers(strict):
    service = strict.app.state.service
    Aliases(service.vault, service.database).add([("anna@example.org", "4720")])
    body = {
        "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
        "subject_request_type": "erasure",
        "submitted_time": "2026-01-05T12:00:00Z",
        "subject_identities": [{"identity_type": "email", "identity_value": "x@example.org", "identity_format": "raw"}],
    }
    for _ in range(2):
        assert strict.post("/opendsr/v2/requests", content=json.dumps(body)).status_code == 201
    told = strict.get(f"/opendsr/v2/requests/{body['subject_request_id']}").json()
    assert (told["request_status"], told["results_count"]) == ("completed", 0)
    assert states(service) == ["not_known"]


def test_fides_is_told_that_a_person_is_not_known_and_need_not_try_again(client, service):
    told = client.post("/fides/erasures", content=b"04704", headers=TEXT)
    assert (told.status_code, told.json()["state"], told.json()["outcome"]["similar"]) == (200, "not_known", 1)
    webhook = {
        "privacy_request_id": "pri_1",
        "direction": "two_way",
        "callback_type": "pre",
        "policy_action": "erasure",
    }
    told = client.post("/fides/webhook", json=webhook | {"identity": {"external_id": "9999"}})
    assert told.json() == {"halt": False, "derived_identity": {}}
    assert states(service) == ["not_known", "not_known"]


def test_drp_denies_with_no_match(service):
    service.erase(["9999"], NewJob("erasure", "drp", "ccpa"))
    told = drp.status_view(service.queue.page(JobFilter(["not_known"]))[0])
    assert (told["status"], told["reason"]) == ("denied", "no_match")
