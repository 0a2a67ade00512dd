"""Fides: the webhook of a policy, and a connector that is used here as Fides uses it.

The names of fields, and how placeholders are filled, are those of ethyca/fides: `schemas/saas/saas_config.py`,
`util/saas_util.py`, `models/privacy_request/webhook.py`, `schemas/external_https.py`.
"""

import io
import json
import re
import zipfile
from datetime import timedelta

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from expunge.server.app import create_app

from support.client import LocalClient
from support.matters import hold, release
from support.sampling import examples

NAME = "pri_0f6c3ba2-0d1f-4f7d-9b0a-1f0a2a9a6a11"


def sent(direction="two_way", kind="pre", action="erasure", **identity):
    """Return the body that Fides posts, with the identities that it fills with null."""
    known = ("phone_number", "email", "ga_client_id", "ljt_readerID", "fides_user_device_id", "external_id")
    return {
        "privacy_request_id": NAME,
        "privacy_request_status": "in_processing",
        "direction": direction,
        "callback_type": kind,
        "identity": {**dict.fromkeys(known), **identity},
        "policy_action": action,
        "privacy_request": {"id": NAME, "requested_at": "2026-01-31T12:00:00", "policy": {"key": "erase"}},
        "timestamp": "2026-01-31T12:00:00.123456",
    }


def state(vault, id_="p7"):
    return vault.find([id_])[0].state


# The webhook


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_webhook_erases_and_does_not_halt_the_request(client, vault, kind):
    answer = client.post("/fides/webhook", json=sent(kind=kind, external_id="p7"))
    assert (answer.status_code, answer.json()) == (200, {"halt": False, "derived_identity": {}})
    assert state(vault) == "erased"
    assert vault.requests[-1].reference.endswith(NAME)


def test_a_one_way_webhook_gets_an_empty_response(client, vault):
    answer = client.post("/fides/webhook", json=sent("one_way", "post", external_id="p7"))
    assert (answer.status_code, answer.json()) == (200, {})
    assert state(vault) == "erased"


@pytest.mark.parametrize(
    ("kind", "action"),
    [("pre_approval", "erasure"), ("pre", "access"), ("post", "consent"), ("pre", "update"), ("pre", None)],
)
def test_only_an_approved_erasure_erases(client, vault, service, kind, action):
    answer = client.post("/fides/webhook", json=sent(kind=kind, action=action, external_id="p7"))
    assert (answer.status_code, answer.json()["halt"]) == (200, False)
    assert state(vault) == "present"
    assert not service.queue.counts()


def test_two_webhooks_of_a_privacy_request_are_one_erasure(client, service):
    for kind in ("pre", "post"):
        client.post("/fides/webhook", json=sent(kind=kind, external_id="p7"))
    assert service.queue.counts() == {("erasure", "fides", "done"): 1}
    client.post("/fides/webhook", json=sent(external_id="p8"))
    assert service.queue.counts() == {("erasure", "fides", "done"): 2}


def test_a_legal_hold_halts_the_request(client, service, vault):
    matter = hold(service, "p7", name="a lawsuit")
    assert client.post("/fides/webhook", json=sent(external_id="p7")).json()["halt"] is True
    release(service, matter)
    service.run_due()
    assert client.post("/fides/webhook", json=sent(external_id="p7")).json()["halt"] is False
    assert state(vault) == "erased"
    assert sum(service.queue.counts().values()) == 1


@pytest.mark.parametrize("identity", [{"label": "Customer", "value": "p7"}, {"label": "Ids", "value": ["p7", 8]}])
def test_identities_with_a_label_are_read(client, vault, identity):
    assert client.post("/fides/webhook", json=sent(external_id=identity)).status_code == 200
    assert state(vault) == "erased"


def test_an_email_is_an_identity_where_there_are_aliases(client, service, vault):
    refused = client.post("/fides/webhook", json=sent(email="seven@x.example"))
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:expunge:problem:no-identity")
    assert "seven" not in refused.text
    service.aliases.add([("Seven@x.example", "p7"), ("eight@x.example", "p8")])
    assert client.post("/fides/webhook", json=sent(email="nobody@x.example")).json()["halt"] is False
    assert client.post("/fides/webhook", json=sent(email="seven@x.example")).json()["halt"] is False
    assert (state(vault), state(vault, "p8")) == ("erased", "present")


def test_the_secret_is_a_token_with_or_without_bearer(client, service, vault):
    _, good = service.tokens.create("fides", ["erase"], None)
    _, weak = service.tokens.create("looker", ["read"], None)
    for header, status in {
        None: 401,
        "x": 401,
        weak: 403,
        f"Basic {good}": 401,
        good: 200,
        f"Bearer {good}": 200,
    }.items():
        assert state(vault) == ("erased" if status == 200 and header != good else "present")
        headers = {} if header is None else {"Authorization": header}
        answer = client.post("/fides/webhook", json=sent(external_id="p7"), headers=headers)
        assert answer.status_code == status, header
    assert vault.requests[-1].actor == "fides"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@examples(60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(list(sent())), values, max_size=2), person=values)
def test_any_body_is_accepted_or_a_problem(client, changes, person):
    body = {**sent(external_id=person), **changes}
    answer = client.post("/fides/webhook", content=json.dumps(body))
    assert answer.status_code in (200, 400, 422)
    if answer.status_code != 200:
        assert answer.headers["content-type"] == "application/problem+json"


# The connector


@pytest.fixture
def connector(client):
    """Return the two documents of the zip that is uploaded to Fides."""
    with zipfile.ZipFile(io.BytesIO(client.get("/fides/connector.zip").content)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        config = [name for name in names if name.endswith("config.yml")]
        dataset = [name for name in names if name.endswith("dataset.yml")]
        assert (len(config), len(dataset), len(names)) == (1, 1, 2)
        read = [archive.read(name).decode().replace("<instance_fides_key>", "expunge_1") for name in config + dataset]
    return yaml.safe_load(read[0])["saas_config"], yaml.safe_load(read[1])["dataset"][0]


REQUEST = {
    "request_override", "path", "method", "headers", "query_params", "body", "param_values", "client_config",
    "data_path", "postprocessors", "pagination", "grouped_inputs", "ignore_errors", "rate_limit_config",
    "async_config", "skip_missing_param_values", "correlation_id_path",
}  # fmt: skip


def requests_of(config):
    maps = [endpoint["requests"] for endpoint in config["endpoints"]]
    return [config["test_request"], *(request for requests in maps for request in requests.values())]


def test_the_config_has_the_fields_that_fides_requires(connector):
    config, _ = connector
    needed = {"fides_key", "name", "type", "description", "version", "connector_params", "client_config"}
    assert set(config) == needed | {"endpoints", "test_request"}
    params = {param["name"] for param in config["connector_params"]}
    client = config["client_config"]
    assert client["authentication"] == {"strategy": "bearer", "configuration": {"token": "<token>"}}
    assert (client["protocol"], client["host"], params) == ("https", "<domain>", {"domain", "token"})
    for endpoint in config["endpoints"]:
        assert set(endpoint["requests"]) <= {"read", "update", "delete"}
    for request in requests_of(config):
        assert set(request) <= REQUEST
        assert request["method"] in ("GET", "POST")
        for param in request.get("param_values", []):
            assert len({"identity", "references", "connector_param"} & set(param)) == 1
            assert all(reference["direction"] == "from" for reference in param.get("references", []))


def test_the_dataset_describes_what_is_read(connector, client):
    config, dataset = connector
    assert dataset["fides_key"] == config["fides_key"] == "expunge_1"
    (collection,) = dataset["collections"]
    assert [endpoint["name"] for endpoint in config["endpoints"]] == [collection["name"]]
    fields = {field["name"]: field for field in collection["fields"]}
    assert fields["id"]["fides_meta"]["primary_key"] is True
    assert all(field["data_categories"] for field in fields.values())
    (row,) = client.post("/fides/people", content="p7").json()["people"]
    kinds = {"string": str, "integer": int}
    assert {name: kinds[field["fides_meta"]["data_type"]] for name, field in fields.items()} == {
        name: type(value) for name, value in row.items()
    }
    (reference,) = config["endpoints"][0]["requests"]["delete"]["param_values"][0]["references"]
    assert reference["field"] == f"{collection['name']}.id"


class Fides:
    """A stand-in for Fides, as far as a connector sees it."""

    def __init__(self, config, client, token):
        self.config, self.client, self.token = config, client, token

    def send(self, request, values):
        """Send a request with its placeholders filled in, as `assign_placeholders` does."""

        def filled(text):
            for name in re.findall("<([^<>]+)>", text):
                text = text.replace(f"<{name}>", values[name])
            return text

        headers = {header["name"]: filled(header["value"]) for header in request.get("headers", [])}
        headers["Authorization"] = f"Bearer {self.token}"
        body = filled(request["body"]).encode() if "body" in request else None
        return self.client.request(request["method"], filled(request["path"]), content=body, headers=headers)

    def erase(self, identity):
        """Read, then make a call for each row that was read, and return the responses."""
        requests = self.config["endpoints"][0]["requests"]
        (param,) = requests["read"]["param_values"]
        answer = self.send(requests["read"], {param["name"]: identity[param["identity"]]})
        assert answer.status_code == 200
        rows = answer.json()[requests["read"]["data_path"]]
        (param,) = requests["delete"]["param_values"]
        field = param["references"][0]["field"].split(".")[1]
        return [self.delete(row[field]) for row in rows]

    def delete(self, id_):
        """Make the call for a row."""
        request = self.config["endpoints"][0]["requests"]["delete"]
        return self.send(request, {request["param_values"][0]["name"]: id_, "privacy_request_id": NAME})


@pytest.fixture
def fides(connector, client, service):
    _, token = service.tokens.create("fides", ["erase"], None)
    return Fides(connector[0], client, token)


def test_the_connection_test_needs_a_valid_token_that_may_erase(fides, service):
    request = fides.config["test_request"]
    assert fides.send(request, {}).status_code == 200
    _, fides.token = service.tokens.create("looker", ["read"], None)
    assert fides.send(request, {}).status_code == 403
    fides.token += "x"
    assert fides.send(request, {}).status_code == 401


def test_a_connector_erases_a_person_once(fides, vault, service):
    (answer,) = fides.erase({"external_id": "p7"})
    assert (answer.status_code, answer.json()["state"]) == (200, "done")
    assert state(vault) == "erased"
    assert vault.requests[-1].reference.endswith(NAME)
    assert fides.erase({"external_id": "p7"}) == []
    assert fides.delete("p7").json() == answer.json()
    assert service.queue.counts() == {("erasure", "fides", "done"): 1}


@pytest.mark.parametrize("id_", ["nobody", 'a"b\\c', "é \u2603", "a\nb", "{}", "&=%20"])
def test_an_id_arrives_unchanged(fides, service, monkeypatch, id_):
    calls, erase = [], service.erase
    monkeypatch.setattr(service, "erase", lambda ids, new_job: calls.append(ids) or erase(ids, new_job))
    assert fides.erase({"external_id": id_}) == []
    assert fides.delete(id_).json()["outcome"]["unknown"] == 1
    assert calls == [[id_]]


def test_a_legal_hold_is_an_error_until_it_ends(fides, service, vault):
    matter = hold(service, "p7", name="a lawsuit")
    (answer,) = fides.erase({"external_id": "p7"})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:expunge:problem:not-erased")
    assert "a lawsuit" in answer.json()["detail"]
    release(service, matter)
    service.run_due()
    assert state(vault) == "erased"
    assert fides.delete("p7").status_code == 200


def test_a_delayed_erasure_is_accepted(make, connector, vault, clock):
    service = make(window=timedelta(days=1))
    with LocalClient(create_app(service)) as client:
        _, token = service.tokens.create("fides", ["erase"], None)
        (answer,) = Fides(connector[0], client, token).erase({"external_id": "p7"})
        assert (answer.status_code, answer.json()["state"]) == (202, "waiting")
        assert state(vault) == "present"
        clock.pass_(days=2)
        service.run_due()
        assert state(vault) == "erased"


@pytest.mark.parametrize("path", ["/fides/people", "/fides/erasures"])
@pytest.mark.parametrize(("raw", "status"), [(b"", 422), (b"\xff", 400), (b"x" * 1001, 422)])
def test_a_body_that_is_not_an_id_is_a_problem(client, service, path, raw, status):
    answer = client.post(path, content=raw)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert not service.queue.counts()


def test_an_invalid_privacy_request_id_is_refused(client, vault):
    answer = client.post("/fides/erasures", content="p7", headers={"Fides-Privacy-Request": "a b"})
    assert answer.status_code == 422
    assert state(vault) == "present"
    assert client.post("/fides/erasures", content="p7").status_code == 200


def test_downloading_the_connector_needs_the_scope_read(client, service):
    _, good = service.tokens.create("looker", ["read"], None)
    _, other = service.tokens.create("fides", ["erase"], None)
    for token, status in ((good, 200), (other, 403)):
        answer = client.get("/fides/connector.zip", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status


def test_a_body_of_another_media_type_is_refused(client, vault):
    assert client.post("/fides/erasures", json={"external_id": "p1"}).status_code == 415
    assert state(vault, "p1") == "present"
