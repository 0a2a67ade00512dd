"""A key of a JSON object may be a person's id: no protocol repeats it in a response, a log line or the queue."""

import base64
import copy

import pytest
from test_drp import Desk, directory
from test_fides import sent
from test_opendsr import make_body

from expunge.server.app import create_app

from support.client import LocalClient

CANARY = "canary-4711-Zebra"
HOOK = {"url": "https://93.184.215.14/hook", "events": ["done"]}
BODIES = {
    "/opendsr/v2/requests": make_body(extensions={"x.example": {"field": 1}}),
    "/fides/webhook": sent(external_id="p7"),
    "/api/v1/webhooks": HOOK,
    "/api/v1/matters": {"name": "Smith v. Jones", "reason": "litigation", "ids": ["p8"]},
    "/api/v1/erasures": {"ids": ["p9"], "reference": "DSR-1", "regulation": "gdpr"},
    "/api/v1/receipts": {"ids": ["p9"]},
}


def objects_in(value, path=()):
    """Yield the path of every object within a value."""
    if isinstance(value, dict):
        yield path
        for name, member in value.items():
            yield from objects_in(member, (*path, name))
    elif isinstance(value, list):
        for k, member in enumerate(value):
            yield from objects_in(member, (*path, k))


def hostile_copies(body):
    """Yield copies of a body in which one object has the canary as a key: added, in a member's place, or within it."""
    for path in objects_in(body):
        value = body
        for step in path:
            value = value[step]
        for name in (None, *value):
            for change in ("add",) if name is None else ("rename", "nest", "nest in list"):
                variant = copy.deepcopy(body)
                place = variant
                for step in path:
                    place = place[step]
                if change == "add":
                    place[CANARY] = 1
                elif change == "rename":
                    place[CANARY] = place.pop(name)
                else:
                    place[name] = {CANARY: 1} if change == "nest" else [{CANARY: 1}]
                yield variant


def left_in(service):
    """Return the files beside the vault that contain the canary."""
    beside = service.vault.places.vault.parent
    return [path.name for path in beside.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


@pytest.mark.parametrize("path", BODIES)
def test_a_json_key_that_is_an_id_is_never_repeated(client, service, capfd, path):
    assert client.post(path, json=BODIES[path]).status_code < 400
    for body in hostile_copies(BODIES[path]):
        answer = client.post(path, json=body)
        assert answer.status_code < 500, body
        assert CANARY not in answer.text + repr(answer.headers), body
    assert CANARY not in "".join(capfd.readouterr())
    service.run_due()
    assert left_in(service) == []


def test_a_signed_message_with_an_id_as_key_is_not_repeated(make, tmp_path, clock, capfd):
    service = make(drp_directory=directory(tmp_path), business_id="SHOP")
    with LocalClient(create_app(service), raise_server_exceptions=False) as client:
        agent = Desk(client, clock).register()
        person = {"exercise": "deletion", "regime": "ccpa", "email": "p1@example.com", "email_verified": True}
        for body in hostile_copies(agent.claims(**person)):
            answer = agent.send("POST", "/drp/v1/data-rights-request", agent.signed(body | {"nonce": agent.number}))
            agent.number += 1
            assert answer.status_code < 500, body
            assert CANARY not in answer.text
            assert base64.b64encode(CANARY.encode()).decode()[:-4] not in answer.text
    assert CANARY not in "".join(capfd.readouterr())
    service.run_due()
    assert left_in(service) == []
