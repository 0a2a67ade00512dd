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
from support.planning import quick_plans
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
    with quick_plans():
        vault = Vault.create(path, table(0, 100), target="spend", id="who", planning=Planning(quick=False))
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
    with quick_plans():
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
    (line,) = [line for line in metrics.splitlines() if line.startswith("expunge_nearest_deadline_seconds ")]
    assert abs(float(line.split()[1]) - left) < 2
    clock.pass_(days=40)
    service.run_due()
    service.renewals.join()
    assert heard == ["overdue"]
    assert look(client, erased)["overdue"] is True
    assert client.get(REQUESTS, params={"overdue": True}).json()["requests"][0]["id"] == erased["id"]
    service.renewals.prepare = prepare_unlocked
    renew(client, service)
    assert heard == ["overdue", "done"]
    assert "expunge_requests_overdue 0.0" in client.get("/metrics").text


def test_every_protocol_reports_completion_when_it_is_complete(client, service):
    body = {
        "regulation": "gdpr", "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
        "subject_request_type": "erasure", "submitted_time": datetime.now(UTC).isoformat(),
        "subject_identities": [
            {"identity_type": "controller_customer_id", "identity_value": "p1", "identity_format": "raw"}
        ],
        "status_callback_urls": [HOOK],
    }  # fmt: skip
    assert client.post("/opendsr/v2/requests", json=body).status_code == 201
    url = f"/opendsr/v2/requests/{body['subject_request_id']}"
    fides = client.post("/fides/erasures", content="p2", headers={"Content-Type": "text/plain"})
    assert (fides.status_code, fides.json()["state"]) == (202, "erased")
    job = service.queue.get(erase(client, "p3")["id"])
    assert client.get(url).json()["request_status"] == "in_progress"
    assert drp.status_view(job)["status"] == "in_progress"
    assert service.database.fetch_all("SELECT * FROM deliveries") == []

    renew(client, service)
    assert client.get(url).json()["request_status"] == "completed"
    assert drp.status_view(service.queue.get(job.id))["status"] == "fulfilled"
    (callback,) = service.database.fetch_all("SELECT body FROM deliveries")
    assert json.loads(callback["body"])["request_status"] == "completed"


def test_webhooks_hear_of_both(client, service):
    client.post("/api/v1/webhooks", json={"url": HOOK, "events": ["erased", "done"]})
    erase(client, "p1")
    renew(client, service)
    first, second = (json.loads(row["body"]) for row in service.database.fetch_all("SELECT body FROM deliveries"))
    assert (first["type"], first["data"]["complete"]) == ("request.erased", False)
    assert first["data"]["complete_by"]
    assert (second["type"], second["data"]["complete"]) == ("request.done", True)


def test_pages_say_which_and_by_when(client, service):
    browser, erased = {"Accept": "text/html"}, erase(client, "p1")
    receipt, day = json.dumps(erased["receipts"][0]), service.renewals.next_time().strftime("%b %Y")

    def pages():
        """Return the request, its certificate, the list, the overview and the check of the receipt."""
        paths = (f"/requests/{erased['id']}", f"/requests/{erased['id']}/certificate.html", "/requests", "/")
        texts = [client.get(path, headers=browser).text for path in paths]
        form = client.get("/receipt", headers=browser)
        proof = form.text.split('name="proof" value="')[1].split('"')[0]
        data = {"proof": proof, "receipt": receipt, "id": "p1"}
        return [*texts, client.post("/receipt", data=data, headers={"Origin": "http://localhost"}).text]

    request, certificate, requests, overview, check = pages()
    for text in (request, certificate, requests):
        assert "with the next renewal, by" in text or "Complete with the next renewal" in text
        assert day in text
    assert "Cancel the request" not in request
    assert "Extend the deadline" in request
    assert "next renewal" in overview
    assert "It is complete with the next renewal, by 20" in check
    renew(client, service)
    request, certificate, requests, overview, check = pages()
    assert not any("with the next renewal" in text for text in (request, certificate, requests))
    assert "without these people" in certificate
    assert "every erasure is complete" in overview
    assert "It is complete: request 4" in check


# When it renews


def test_a_renewal_is_due_a_while_after_the_first_erasure_that_needs_it(make, clock):
    service = in_a_thread(make(replan_every=timedelta(days=7)))
    with LocalClient(create_app(service)) as client:
        assert service.renewals.next_time() is None
        erased = erase(client, "p1")
        due = service.renewals.next_time()
        assert abs(due - clock() - timedelta(days=7)) < timedelta(minutes=5)
        assert erased["complete_by"] == look(client, erased)["complete_by"]
        clock.pass_(days=5)
        erase(client, "p2")
        assert service.renewals.next_time() == due
        service.run_due()
        assert client.get(REPLAN).json() == []
        clock.pass_(days=2, minutes=5)
        service.run_due()
        service.renewals.join()
        assert look(client, erased)["state"] == "done"
        assert service.vault.requests[-1].actor == ACTOR
        assert service.renewals.next_time() is None


def test_a_renewal_is_due_at_half_of_the_earliest_deadline_at_the_latest(make, clock):
    service = make(replan_every=timedelta(days=300))
    with LocalClient(create_app(service)) as client:
        erased = erase(client, "p1", regulation="ccpa")
        assert service.renewals.next_time() < clock() + timedelta(days=16)  # of the default, which the ledger has
        due, since = (datetime.fromisoformat(erased[name]) for name in ("due", "since"))
        assert service.queue.get(erased["id"]).half_time == since + (due - since) / 2
        asked = (clock() - timedelta(days=20)).isoformat()
        body = {
            "regulation": "gdpr", "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
            "subject_request_type": "erasure", "submitted_time": asked,
            "subject_identities": [
                {"identity_type": "controller_customer_id", "identity_value": "p2", "identity_format": "raw"}
            ],
        }  # fmt: skip
        assert client.post("/opendsr/v2/requests", json=body).status_code == 201
        assert service.renewals.next_time() < clock()  # this person asked long ago


def test_a_renewal_is_due_once_many_people_need_it(make, clock):
    service = in_a_thread(make(replan_after=3))
    with LocalClient(create_app(service)) as client:
        erase(client, "p1", "p2", "p100")
        clock.pass_(hours=1)  # the ledger has a clock of its own
        service.run_due()
        assert client.get(REPLAN).json() == []
        erased = erase(client, "p3")
        service.run_due()
        service.renewals.join()
        assert look(client, erased)["state"] == "done"


def test_what_others_do_to_the_vault_is_seen(client, service, vault):
    erased, path = erase(client, "p1"), vault.places.vault
    Vault.open(path).replan()
    service.run_due()
    assert look(client, erased)["state"] == "done"
    Vault.open(path).unlearn("p2")
    assert service.renewals.next_time() is not None
    assert renew(client, service)["state"] == "done"
    assert service.vault.status().open == 0


# Renewals beside requests


def test_an_erasure_while_a_renewal_plans_is_carried_out_and_the_renewal_starts_again(client, service, vault):
    erase(client, "p1")
    later = []

    def prepare(path, report):
        found = prepare_unlocked(path, report)
        if not later:
            later.append(erase(client, "p2"))
        return found

    service.renewals.prepare = prepare
    assert renew(client, service)["restarts"] == 1
    assert look(client, later[0])["state"] == "done"
    assert vault.verify(plan=True).ok


def test_a_request_that_changes_nothing_that_the_plan_looked_at_does_not_start_it_again(client, service, vault):
    def prepare(path, report):
        found = prepare_unlocked(path, report)
        assert erase(client, "nobody", "p5")["outcome"]["erased_earlier"] == 1
        vault.readmit("p5")
        return found

    erase(client, "p5")
    service.renewals.prepare = prepare
    assert renew(client, service)["restarts"] == 0


def test_a_renewal_that_is_overtaken_again_and_again_holds_back_requests_in_the_end(client, service, vault):
    erase(client, "p1")
    threads = []

    def prepare(path, report):
        found = prepare_unlocked(path, report)
        threads.append(threading.Thread(target=erase, args=(client, f"p{len(threads) + 2}")))
        threads[-1].start()
        if len(threads) < 4:
            threads[-1].join()
        return found

    service.renewals.prepare = prepare
    renewed = renew(client, service)
    assert (renewed["state"], renewed["restarts"]) == ("done", 3)
    threads[-1].join()
    assert vault.find(["p5"])[0].state == "erased"  # it waited, and was carried out


def test_a_renewal_that_fails_is_announced_and_retried_and_blocks_nothing(client, service, clock, capsys):
    client.post("/api/v1/webhooks", json={"url": HOOK, "events": ["renewal.failed"]})
    erase(client, "p1")
    service.renewals.prepare = fail
    capsys.readouterr()
    assert renew(client, service)["state"] == "failed"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line["event"] == "renewal-failed"]
    assert line["level"] == "error"
    assert 'expunge_renewals_total{outcome="failed"} 1.0' in client.get("/metrics").text
    (delivery,) = service.database.fetch_all("SELECT body FROM deliveries")
    event = json.loads(delivery["body"])
    assert (event["type"], event["data"]["state"], "reason" in event["data"]) == ("renewal.failed", "failed", False)
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
    service.renewals.join()


# A real process


def test_a_renewal_survives_a_kill_and_nothing_is_lost(tmp_path):
    path = tmp_path / "spend.vault"
    Vault.create(path, table(0, 100), target="spend", id="who", planning=Planning(max_features=24))
    people = [f"p{k}" for k in range(50)]  # the plan looked at some of them

    def state(served, request):
        return served.ask("GET", f"{REQUESTS}/{request['id']}")[1]["state"]

    with Served(path, "--replan-after", "1") as served:
        status, erased = served.ask("POST", ERASE, {"ids": people})
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
        until(lambda: served.ask("GET", REPLAN)[1][0]["state"] == "done")
        assert {renewal["state"] for renewal in served.ask("GET", REPLAN)[1]} <= {"interrupted", "done"}
        assert served.stop() == 0
    assert Vault.open(path).verify().ok
