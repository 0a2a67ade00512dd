"""Erased and complete: requests are open until the vault has chosen its settings anew, as the service makes it do."""

import json
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from expunge.server import renewals
from expunge.server.app import create_app
from expunge.server.protocols import drp
from expunge.server.renewals import ACTOR, prepare_unlocked
from expunge.vault import Planning, Vault
from expunge.vault.certificates.jws import unverified_payload

from support.client import LocalClient
from support.planning import short_search
from support.processes import Served, alive, until
from support.vaults import duplicate

ERASE, REPLAN, REQUESTS = "/api/v1/erasures", "/api/v1/replan", "/api/v1/requests"
ROW = {"dataframe_split": {"columns": ["age", "visits"], "data": [[0.5, 0.5]]}}
HOOK = "https://93.184.215.14/hook"  # a public address: no name has to be resolved


def table(first, count):
    """Two inputs and a target of some people."""
    rng = np.random.default_rng(first)
    age, visits = rng.random(count), rng.random(count)
    names = [f"p{k}" for k in range(first, first + count)]
    return pa.table({"who": names, "age": age, "visits": visits, "spend": age**2 + visits})


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A vault whose settings were chosen by looking at p0 to p99; p100 to p119 came later."""
    path = tmp_path_factory.mktemp("planned") / "spend.vault"
    with short_search():
        vault = Vault.create(path, table(0, 100), target="spend", id="who", planning=Planning(max_features=24))
    vault.add(table(100, 20))
    return path


@pytest.fixture
def vault(planned, tmp_path):
    return Vault.open(duplicate(planned, tmp_path))


@pytest.fixture
def clock(clock):
    clock.now = datetime.now(UTC)  # that of the ledger
    return clock


@pytest.fixture(autouse=True)
def quick():
    with short_search():
        yield


def in_a_thread(service):
    """Plan in a thread: a process of its own takes seconds to start."""
    service.renewals.prepare = prepare_unlocked
    return service


@pytest.fixture
def service(make):
    return in_a_thread(make())


def erase(client, *ids, **more):
    answer = client.post(ERASE, json={"ids": list(ids), **more})
    assert answer.status_code == 200
    return answer.json()


def look(client, request):
    return client.get(f"{REQUESTS}/{request['id']}").json()


def renew(client, service):
    """Start a renewal over HTTP, and return what the API says of it at its end."""
    started = client.post(REPLAN)
    assert started.status_code == 202
    service.renewals.join()
    return client.get(started.headers["location"]).json()


def fail(path, report):
    raise ZeroDivisionError


# Erased, then complete


def test_an_erasure_is_erased_at_once_and_done_with_the_renewal(client, service, vault, tmp_path):
    before = client.post("/invocations", json=ROW).json()
    erased = erase(client, "p1", "p2")
    assert (erased["state"], erased["complete"], erased["ended"]) == ("erased", False, None)
    assert erased["outcome"]["open"] == 2
    assert erased["complete_by"] < erased["due"]
    assert unverified_payload(erased["certificate"])["complete"] is False
    assert len(erased["receipts"]) == 2
    assert service.database.fetch_all("SELECT * FROM people") == []
    assert client.post("/invocations", json=ROW).json() != before  # the model in use has the rows erased
    twin = Vault.open(duplicate(vault.places.vault, tmp_path / "twin"))

    renewed = renew(client, service)
    assert (renewed["state"], renewed["restarts"], renewed["request"]) == ("done", 0, vault.settled)
    done = look(client, erased)
    assert (done["state"], done["complete"], done["complete_by"]) == ("done", True, None)
    assert done["outcome"]["renewal"] == renewed["request"]
    twin.replan()
    assert vault.digest() == twin.digest()
    assert vault.verify(plan=True).ok
    assert client.get(REPLAN).json() == [renewed]
    (entry,) = [entry for entry in client.get("/api/v1/audit").json() if entry["action"] == "vault.replan"]
    assert entry["actor"] == ACTOR


def test_people_whom_the_plan_did_not_look_at_are_complete_at_once(client, service):
    done = erase(client, "p100", "p119")
    assert (done["state"], done["complete"], done["complete_by"], done["outcome"]["open"]) == ("done", True, None, 0)
    assert service.renewals.next_time() is None
    assert erase(client, "p101", "p3")["outcome"]["open"] == 1
    assert erase(client, "p3")["state"] == "erased"  # erased earlier, and not complete
    assert erase(client, "p100")["state"] == "done"
    assert erase(client, "nobody")["state"] == "not_known"


def test_with_declared_settings_everything_is_complete_at_once(tmp_path, make, monkeypatch, vault):
    from expunge import CodedRegressor

    model = CodedRegressor(shards=5, rate=5, random_state=0)
    declared = Vault.create(tmp_path / "other.vault", table(0, 40), target="spend", id="who", model=model)
    monkeypatch.setattr(vault, "__dict__", declared.__dict__)
    service = make()
    with LocalClient(create_app(service)) as client:
        assert erase(client, "p1")["state"] == "done"
        assert client.post(REPLAN).status_code == 422
        assert service.renewals.next_time() is None
        assert "every erasure is complete at once" in client.get("/").text
        assert "expunge_next_renewal_seconds +Inf" in client.get("/metrics").text


def test_a_correction_is_corrected_and_done_with_the_renewal(client, service):
    row = {"who": "p1", "age": 0.5, "visits": 0.5, "spend": 1.0}
    corrected = client.post("/api/v1/rectifications", json={"rows": [row]}).json()
    assert (corrected["state"], corrected["complete"]) == ("corrected", False)
    assert renew(client, service)["state"] == "done"
    assert look(client, corrected)["state"] == "done"


def test_a_request_that_was_interrupted_after_it_was_accepted_is_open_like_others(client, service, vault):
    def carry_out(job, **facts):
        vault.rectify(table(1, 1), job=job, **facts)
        raise KeyboardInterrupt

    from expunge.server.queue import NewJob

    with pytest.raises(KeyboardInterrupt):
        service.run_now(NewJob("rectification", "api", "gdpr"), carry_out)
    (job,) = client.get(REQUESTS).json()["requests"]
    assert (job["state"], job["complete"]) == ("corrected", False)


def test_deadlines_run_until_it_is_complete(client, service, clock):
    service.renewals.prepare = fail
    erased, heard = erase(client, "p1"), []
    service.listeners.append(lambda event: heard.append(event.name))
    left = (datetime.fromisoformat(erased["due"]) - clock()).total_seconds()
    metrics = client.get("/metrics").text
    assert "expunge_open_completions 1.0" in metrics
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line["event"] == "renewal-failed"]
    assert line["level"] == "error"
    assert 'expunge_renewals_total{outcome="failed"} 1.0' in client.get("/metrics").text
    (delivery,) = service.database.fetch_all("SELECT body FROM deliveries")
    assert json.loads(delivery["body"])["type"] == "renewal.failed"
    assert "The last renewal failed" in client.get("/", headers={"Accept": "text/html"}).text
    erase(client, "p2")
    clock.pass_(days=8)
    waits = []
    for _ in range(3):
        service.renewals.start("schedule")
        service.renewals.join()
        waits.append(service.renewals.next_time() - clock())
        service.run_due()  # too early
        clock.pass_(seconds=1)
    assert waits == sorted(waits)
    assert len(client.get(REPLAN).json()) == 4
    service.renewals.prepare = prepare_unlocked
    clock.pass_(hours=7)
    service.run_due()
    service.renewals.join()
    assert client.get(REPLAN).json()[0]["state"] == "done"
    assert "The last renewal failed" not in client.get("/", headers={"Accept": "text/html"}).text


def test_a_renewal_that_the_end_of_the_service_interrupted_is_due_again(make, client, service):
    erase(client, "p1")
    due, waits = service.renewals.next_time(), threading.Event()

    def prepare(path, report):
        waits.wait(60)
        raise renewals.ServiceStopping

    service.renewals.prepare = prepare
    client.post(REPLAN)
    fresh = make()  # as after a kill
    fresh.renewals.mark_interrupted()
    (found,) = fresh.renewals.page(9)
    assert (found.state, fresh.renewals.next_time()) == ("interrupted", due)
    waits.set()


# A real process


def test_a_renewal_survives_a_kill_and_nothing_is_lost(vault):
    path = vault.places.vault

    def state(served, request):
        return served.ask("GET", f"{REQUESTS}/{request['id']}")[1]["state"]

    with Served(path, "--replan-after", "1") as served:
        status, erased = served.ask("POST", ERASE, {"ids": ["p1"]})
        assert (status, erased["state"]) == (200, "erased")
        until(lambda: served.children())
        (child,) = served.children()
        assert served.ask("POST", "/invocations", ROW)[0] == 200
        served.kill()
    until(lambda: not alive(child))
    with Served(path, "--replan-after", "1") as served:
        assert state(served, erased) in ("erased", "done")
        assert served.ask("POST", "/invocations", ROW)[0] == 200
        until(lambda: state(served, erased) == "done")
        states = [renewal["state"] for renewal in served.ask("GET", REPLAN)[1]]
        assert states[0] == "done"
        assert set(states[1:]) <= {"interrupted", "done"}
        assert served.stop() == 0
    assert Vault.open(path).verify().ok
