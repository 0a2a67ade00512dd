"""Verification by the service: only what the ledger has is handed out, and a failed verification is heard."""

import json
import os
import sqlite3
import threading
from datetime import timedelta

import pyarrow as pa
import pytest

from expunge.server.app import create_app
from expunge.server.database import Database, queue_path
from expunge.server.service import Options
from expunge.server.verifications import VaultChanged, Verification, audit_unlocked, store_verification
from expunge.vault import Vault
from expunge.vault.certificates import encodings

from support.client import LocalClient
from support.processes import Served, small_vault, until

ERASE, VERIFY = "/api/v1/erasures", "/api/v1/verifications"
ROW = {"dataframe_split": {"columns": ["age", "visits"], "data": [[0.5, 0.5]]}}
HOOK = "https://93.184.215.14/hook"  # a public address: no name has to be resolved


def corrupt(vault):
    """Change a bit of a row on the disk."""
    rows = next(vault.places.vault.glob("rows.*"))
    data = bytearray(rows.read_bytes())
    data[40] ^= 1
    rows.write_bytes(data)


@pytest.fixture
def service(make):
    """A service that verifies in a thread: a process of its own takes a second to start."""
    service = make()
    service.verifications.audit, service.verifications.pauses = audit_unlocked, (0, 0)
    return service


def verified(client, service):
    """Verify over HTTP: what the API says of it when it is over."""
    started = client.post(VERIFY)
    assert started.status_code == 202
    service.verifications.join()
    return client.get(started.headers["location"]).json()


def forged(text):
    """A certificate with the same signature that says something else."""
    head, payload, signature = text.split(".")
    said = json.loads(encodings.decode_base64url(payload)) | {"people": 1000}
    return f"{head}.{encodings.encode_base64url(json.dumps(said).encode())}.{signature}"


def test_a_changed_certificate_file_is_not_handed_out(client, vault):
    done = client.post(ERASE, json={"ids": ["p1"]}, headers={"Idempotency-Key": "k"}).json()
    vault.certificate_path(2).write_text(forged(done["certificate"]))
    path = f"/api/v1/requests/{done['id']}/certificate"
    assert client.get(path).text == done["certificate"]
    assert client.get(path, headers={"Accept": "application/json"}).json()["people"] == 1
    again = client.post(ERASE, json={"ids": ["p1"]}, headers={"Idempotency-Key": "k"}).json()
    assert again["certificate"] == done["certificate"]
    assert "1,000" not in client.get(f"/requests/{done['id']}/certificate.html").text
    assert not vault.verify().ok


# What becomes of one


def test_a_verification_runs_in_a_process_of_its_own_and_its_result_lasts(make, client, service, clock):
    service.verifications.audit = make().verifications._audit_in_process
    found = verified(client, service)
    assert (found["state"], found["ok"], found["source"], found["restarts"]) == ("passed", True, "api", 0)
    assert [check["name"] for check in found["checks"]] == ["ledger", "certificates", "rows", "people", "model"]
    assert found["seconds"] > 0
    service.stop()
    with LocalClient(create_app(make())) as again:
        assert again.get(VERIFY).json() == [found | {"step": "", "done": 0, "of": 0}]
        assert again.get(f"{VERIFY}/none").status_code == 404


def test_who_started_it_is_known(client, service):
    made, text = service.tokens.create("auditor", ["read"], None)
    headers = {"Authorization": f"Bearer {text}"}
    started = client.post(VERIFY, headers=headers)
    service.verifications.join()
    found = client.get(started.headers["location"], headers=headers).json()
    assert (found["actor"], found["caller"]) == ("auditor", made.id)
    trail = client.get("/api/v1/audit", headers=headers).json()
    (entry,) = [entry for entry in trail if entry["action"] == "verification.passed"]
    assert (entry["actor"], entry["subject"], entry["details"]["wrong"]) == ("auditor", found["id"], [])


def test_one_that_failed_is_told_to_everybody_who_watches(client, service, vault, capsys):
    posted = client.post("/api/v1/webhooks", json={"url": HOOK, "events": ["verification.failed"]})
    assert posted.status_code == 201
    assert verified(client, service)["ok"] is True
    assert client.get("/readyz").json() == {"status": "ready"}
    assert 'expunge_verifications_total{outcome="failed"} 0.0' in client.get("/metrics").text
    assert "expunge_verification_ok 1.0" in client.get("/metrics").text
    corrupt(vault)
    capsys.readouterr()
    found = verified(client, service)
    assert (found["state"], found["ok"]) == ("failed", False)
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "degraded", "reasons": ["verification-failed"]})
    assert client.post("/invocations", json=ROW).status_code == 200  # predictions go on
    metrics = client.get("/metrics").text
    assert 'expunge_verifications_total{outcome="failed"} 1.0' in metrics
    assert "expunge_verification_ok 0.0" in metrics
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line["event"] == "verification-failed"]
    assert (line["level"], line["id"], "rows" in line["wrong"]) == ("error", found["id"], True)
    (delivery,) = service.database.fetch_all("SELECT body FROM deliveries")
    event = json.loads(delivery["body"])
    assert event["type"] == "verification.failed"
    assert {"name": "rows", "ok": False} in event["data"]["checks"]
    assert str(vault.places.vault.parent) not in delivery["body"].decode()
    service.run_due()  # and it is told once
    assert len(service.database.fetch_all("SELECT body FROM deliveries")) == 1


def test_the_service_stays_degraded_until_one_passes(make, client, service, vault):
    rows = next(vault.places.vault.glob("rows.*"))
    before = rows.read_bytes()
    corrupt(vault)
    verified(client, service)
    with LocalClient(create_app(make())) as restarted:
        assert restarted.get("/readyz").json()["status"] == "degraded"
    rows.write_bytes(before)
    assert verified(client, service)["ok"] is True
    assert client.get("/readyz").json() == {"status": "ready"}


def test_a_vault_that_cannot_be_read_has_failed(client, service, vault):
    next(vault.places.vault.glob("learner.*")).write_bytes(b"nothing")
    found = verified(client, service)
    assert (found["state"], found["checks"]) == ("failed", [])
    assert "learner" in found["reason"]


# Requests go on meanwhile


class Held:
    """An audit that stops at its first step until it is let go on; the next ones run through."""

    def __init__(self):
        self.calls, self.reached, self.go_on = 0, threading.Event(), threading.Event()

    def __call__(self, path, tell):
        self.calls += 1
        first = self.calls == 1

        def told(*step):
            tell(*step)
            if first:
                self.reached.set()
                assert self.go_on.wait(30)

        return audit_unlocked(path, told)


@pytest.fixture
def held(service):
    service.verifications.audit = held = Held()
    yield held
    held.go_on.set()


def test_predictions_and_erasures_go_on_and_an_erasure_restarts_it(client, service, held):
    started = client.post(VERIFY)
    assert held.reached.wait(30)
    assert client.get(started.headers["location"]).json()["state"] == "running"
    assert client.post(VERIFY).json()["id"] == started.json()["id"]  # one at a time
    assert client.post("/invocations", json=ROW).status_code == 200
    assert client.post(ERASE, json={"ids": ["p1"]}).json()["state"] == "done"
    held.go_on.set()
    service.verifications.join()
    found = client.get(started.headers["location"]).json()
    assert (found["state"], found["restarts"], held.calls) == ("passed", 1, 2)


def test_one_during_which_nothing_happens_is_not_restarted(client, service, held):
    started = client.post(VERIFY)
    assert held.reached.wait(30)
    client.post("/invocations", json=ROW)
    held.go_on.set()
    service.verifications.join()
    found = client.get(started.headers["location"]).json()
    assert (found["state"], found["restarts"], held.calls) == ("passed", 0, 1)


def test_requests_beside_it_never_make_a_sound_vault_look_damaged(vault):
    other, ended = Vault.open(vault.places.vault), threading.Event()

    def erase():
        try:
            for k in range(30):
                other.unlearn([f"p{k}"])
                other.add(pa.table({"who": [f"new-{k}"], "age": [0.5], "visits": [0.25], "spend": [0.75]}))
        finally:
            ended.set()

    def audited():
        try:
            return audit_unlocked(vault.places.vault, lambda *_: None)
        except VaultChanged:
            return None

    erasing = threading.Thread(target=erase)
    erasing.start()
    verdicts = []
    while not ended.is_set():
        verdicts.append(audited())
    erasing.join()
    wrong = [check for verdict in verdicts if verdict is not None for check in verdict.checks if not check.ok]
    assert wrong == []
    assert audited().ok
    assert len(other.requests) == 61


def test_a_vault_that_never_rests_is_not_locked_and_the_verification_is_tried_again(client, service, vault, clock):
    service.options = Options(verify_every=timedelta(hours=24))
    people = iter(range(40))

    def audit(path, tell):
        assert Vault.open(path, wait=0.0).unlearn([f"p{next(people)}"]).people == 1  # nobody holds the lock
        raise VaultChanged

    service.verifications.audit = audit
    service.run_due()
    service.verifications.join()
    found = service.verifications.newest()
    assert (found.state, found.reason, found.restarts) == ("unfinished", "requests kept arriving", 2)
    assert client.get("/readyz").json() == {"status": "ready"}
    service.verifications.audit = audit_unlocked
    clock.pass_(minutes=10)
    service.run_due()
    service.verifications.join()
    assert service.verifications.newest().state == "passed"


def test_a_process_that_may_not_lower_its_priority_verifies_all_the_same(client, service, tmp_path, monkeypatch, capfd):
    (tmp_path / "sitecustomize.py").write_text(
        "import os\ndef nice(increment):\n    raise PermissionError(1, 'Operation not permitted')\nos.nice = nice\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    service.verifications.audit = service.verifications._audit_in_process
    assert verified(client, service)["state"] == "passed"
    assert all(json.loads(line) for line in capfd.readouterr().err.splitlines())  # no traceback


def test_an_unexpected_error_is_told_in_words(client, service):
    def audit(path, tell):
        raise ZeroDivisionError

    service.verifications.audit = audit
    assert verified(client, service)["reason"] == "unexpected error; see the service's log"


def test_the_alarm_on_the_overview_stays_as_long_as_readyz_is_degraded(client, service, vault):
    alarm = "The last verification failed"
    corrupt(vault)
    verified(client, service)

    def audit(path, tell):
        raise VaultChanged

    service.verifications.audit = audit
    assert verified(client, service)["state"] == "unfinished"
    assert client.get("/readyz").json()["status"] == "degraded"
    shown = client.get("/", headers={"Accept": "text/html"}).text
    assert alarm in shown
    assert "rows" in shown.split(alarm)[1].split("</div>")[0]


def test_a_process_that_verifies_ends_with_the_service(make, vault):
    service = make()
    found = service.verifications.start("api")
    service.stop()
    assert service.verifications._process._process is None
    database = Database(queue_path(vault.places.vault))
    row = database.fetch_one("SELECT * FROM verifications")
    database.close()
    assert (row["id"], row["state"]) == (found.id, "unfinished")


def test_a_process_that_dies_leaves_the_verification_unfinished(service, vault, monkeypatch):
    monkeypatch.setattr("expunge.server.background.sys.executable", "/bin/false")
    service.verifications.audit = service.verifications._audit_in_process
    found = service.verifications.start("api")
    service.verifications.join()
    assert (found.state, found.ok) == ("unfinished", None)


# The schedule


def test_a_schedule_is_kept_across_restarts(make, service, clock):
    service.options = Options(verify_every=timedelta(hours=24))

    def look(service):
        service.run_due()
        service.verifications.join()
        return [found.source for found in service.verifications.page(10)]

    assert look(service) == ["schedule"]
    clock.pass_(hours=23)
    assert look(service) == ["schedule"]
    service.stop()
    restarted = make(verify_every=timedelta(hours=24))
    restarted.verifications.audit = audit_unlocked
    assert look(restarted) == ["schedule"]
    clock.pass_(hours=1)
    assert look(restarted) == ["schedule"] * 2
    assert restarted.verifications.newest_outcome().ended == clock()


def test_one_that_could_not_be_finished_is_tried_again_soon(service, vault, clock):
    service.options = Options(verify_every=timedelta(hours=24))

    def broken(path, tell):
        raise OSError("the disk is away")

    service.verifications.audit, audit = broken, service.verifications.audit
    service.run_due()
    service.verifications.join()
    assert service.verifications.newest().state == "unfinished"
    service.verifications.audit = audit
    service.run_due()
    assert len(service.verifications.page(10)) == 1
    clock.pass_(minutes=10)
    service.run_due()
    service.verifications.join()
    assert [found.state for found in service.verifications.page(10)] == ["passed", "unfinished"]


def test_one_that_a_kill_interrupted_is_marked_at_the_next_start(service, clock):
    store_verification(service.database, Verification("api", "", clock()))
    service.start()
    found = service.verifications.newest()
    assert (found.state, found.ok, found.reason) == ("unfinished", None, "the service ended before it was finished")


@pytest.mark.slow
def test_a_service_verifies_by_itself_while_it_serves(tmp_path):
    path = small_vault(tmp_path / "spend.vault").places.vault
    with Served(path, "--verify-every", "24h") as served:
        until(lambda: any(b'"verification-passed"' in line for line in list(served.lines)))
        (found,) = served.ask("GET", VERIFY)[1]
        assert (found["source"], found["ok"]) == ("schedule", True)


def test_without_a_schedule_none_is_started(service):
    service.run_due()
    assert service.verifications.page(10) == []


def test_old_ones_are_forgotten(service, clock):
    with service.database.transaction():  # one sync for all of them
        for k in range(1005):
            store_verification(
                service.database, Verification("api", str(k), clock(), state="passed", ended=clock(), seconds=0.0)
            )
    kept = service.verifications.page(2000)
    assert [found.actor for found in kept] == [str(k) for k in range(1004, 4, -1)]


def test_an_outcome_that_a_full_disk_kept_from_being_stored_is_stored_later_and_the_schedule_goes_on(
    make, clock, monkeypatch
):
    service = make(verify_every=timedelta(days=1))
    service.verifications.audit, service.verifications.pauses = audit_unlocked, (0,)
    corrupt(service.vault)

    def fail(*_):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        held = threading.Event()
        service.verifications.audit = lambda *said: (held.wait(10), audit_unlocked(*said))[1]
        service.run_due()
        patch.setattr("expunge.server.verifications.store_verification", fail)
        held.set()
        service.verifications.join()
    assert service.verifications.newest_outcome() is None
    service.run_due()
    assert service.verifications.newest_outcome().state == "failed"
    clock.pass_(days=2)
    service.run_due()
    service.verifications.join()
    assert len(service.verifications.page(10)) == 2
