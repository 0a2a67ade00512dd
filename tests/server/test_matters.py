"""Matters: nobody on one is erased, and a release is typed, explained, recorded, and starts the window again."""

import json
from datetime import timedelta

import pytest

from expunge.cli import program
from expunge.errors import InvalidFile, InvalidInput, OnHold, ReleaseRefused, UnknownId
from expunge.server.app import create_app
from expunge.server.audit import read_trail
from expunge.server.database import queue_path
from expunge.server.matters import Author
from expunge.server.queue import NewJob
from expunge.vault import Vault

from support.client import LocalClient
from support.matters import LEGAL, hold, release
from support.pages import Person, checked

ASKED = NewJob("erasure", "api", "gdpr")
MATTERS = "/api/v1/matters"


def state(vault, *ids):
    found = [one.state for one in vault.find(list(ids))]
    return found[0] if len(found) == 1 else found


# Requests wait


def test_a_request_for_somebody_on_a_matter_waits_and_never_runs_by_itself(service, vault, clock):
    heard = []
    service.listeners.append(lambda event: heard.append(event.name))
    matter = hold(service, "p1", review=clock() + timedelta(days=3))
    job = service.erase(["p1", "p2"], ASKED)
    assert (job.state, job.reason) == ("held", "on legal hold: case 7")
    clock.pass_(days=400)
    service.run_due()
    assert state(vault, "p1", "p2") == ["present", "present"]
    release(service, matter)
    service.run_due()
    assert state(vault, "p1", "p2") == ["erased", "erased"]
    assert heard == ["accepted", "refused", "overdue", "done", "certified"]


def test_a_matter_stops_a_request_that_waits_already(make, vault, clock):
    service = make(window=timedelta(hours=1))
    job = service.erase(["p1"], ASKED)
    hold(service, "p1")
    assert service.queue.get(job.id).state == "held"
    clock.pass_(hours=2)
    service.run_due()
    assert state(vault, "p1") == "present"


def test_a_person_on_several_matters_is_released_with_the_last(make, vault, clock):
    service = make(window=timedelta(hours=1))
    job = service.erase(["p1"], ASKED)
    first, second = hold(service, "p1", "p2"), hold(service, "p1", name="case 8")
    assert service.queue.get(job.id).reason == "on legal hold: case 7, case 8"
    assert service.matters.preview_release(first.id).elsewhere == 1
    assert service.matters.preview_release(first.id).text == "2 people will be released, and no one will be erased"
    release(service, first)
    clock.pass_(hours=5)
    service.run_due()
    assert (service.queue.get(job.id).reason, state(vault, "p1")) == ("on legal hold: case 8", "present")
    assert service.matters.preview_release(second.id).text == "1 person (1 row) will be erased in 1 hour"
    release(service, second)
    service.run_due()
    assert state(vault, "p1") == "present"
    clock.pass_(hours=1)
    service.run_due()
    assert state(vault, "p1") == "erased"
    (times,) = service.queue.get(job.id).outcome["held"]
    assert times == {"matters": ["case 7", "case 8"], "from": "2026-01-31T12:00:00Z", "to": "2026-01-31T17:00:00Z"}


def test_matters_know_people_in_every_form_of_their_id(service):
    hold(service, "\u00e9")
    assert service.erase(["e\u0301"], ASKED).state == "held"


def test_nobody_who_is_put_on_hold_slips_through_between_the_look_and_the_work(make, vault, clock, monkeypatch):
    service = make(window=timedelta(hours=1))
    service.erase(["p1"], ASKED)
    clock.pass_(hours=2)
    run = service.run
    monkeypatch.setattr(service, "run", lambda jobs: (hold(service, "p1"), run(jobs)))
    service.run_due()
    assert state(vault, "p1") == "present"
    assert service.queue.pending()[0].state == "held"


def test_the_vault_itself_refuses_what_the_service_did_not_see(make, vault, clock, monkeypatch):
    service = make()
    matter = hold(service, "p1")
    monkeypatch.setattr(service.matters, "find_for_job", lambda job: [])
    job = service.erase(["p1"], ASKED)
    assert (job.state, "on legal hold: case 7" in job.reason) == ("waiting", True)
    assert state(vault, "p1") == "present"
    monkeypatch.undo()
    service.run_due()
    assert service.queue.get(job.id).state == "held"
    release(service, matter)
    service.run_due()
    assert state(vault, "p1") == "erased"


def test_a_request_that_is_cancelled_while_it_is_looked_at_stays_cancelled(service, vault):
    matter = hold(service, "p1")
    stale = service.erase(["p1"], ASKED)
    service.cancel(stale.id, "no", Author())
    release(service, matter)
    assert service._refresh_hold(stale).state == "cancelled"
    service.run_due()
    assert state(vault, "p1") == "present"


def test_matters_survive_a_restart_and_lie_beside_the_vault(service, make, clock):
    hold(service, "p1", review=clock() + timedelta(days=1))
    before = service.matters.list_all()
    service.stop()
    fresh = make()
    assert fresh.matters.list_all() == before
    assert fresh.erase(["p1"], ASKED).state == "held"


# Opening


def test_a_matter_counts_its_people_and_says_whom_the_vault_knows(service, vault):
    vault.unlearn(["p3"])
    added = service.matters.open("case 7", "a lawsuit", None, LEGAL, ["p1", "p2", "p1", "p3", "nobody"])
    assert (added.people, added.present, added.erased, added.unknown, added.similar) == (4, 3, 1, 1, 0)
    near = service.matters.open("case 8", "a lawsuit", None, LEGAL, ["P4", "nobody"])
    assert (near.unknown, near.similar) == (2, 1)
    again = service.matters.add_people(added.matter.id, ["p1", "p4"], LEGAL)
    assert (again.people, again.matter.people) == (1, 5)
    assert [(entry.what, entry.people, entry.actor) for entry in service.matters.log(added.matter.id)] == [
        ("opened", 0, "legal"), ("people_added", 4, "legal"), ("people_added", 1, "legal"),
    ]  # fmt: skip


def test_a_name_is_used_once_but_a_lost_answer_can_be_asked_for_again(service):
    matter = hold(service, "p1")
    assert hold(service, "p1").id == matter.id
    for name, reason in (("case 7", "another"), ("CASE 7", "a lawsuit "), (" case  7 ", "another")):
        with pytest.raises(InvalidInput, match="another matter"):
            service.matters.open(name, reason + "!", None, LEGAL, ["p2"])
    release(service, matter)
    with pytest.raises(InvalidInput, match="another matter"):
        hold(service, "p1")
    assert service.matters.list_all() == []


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\nb\x00"])
def test_a_name_or_reason_that_is_no_line_is_refused(service, name):
    for words in ((name, "why"), ("case", name)):
        with pytest.raises(InvalidInput, match="one line of 1 to 200"):
            service.matters.open(*words, None, LEGAL, ["p1"])
    assert service.matters.list_all() == []


# Review


def test_a_review_is_told_once_and_ends_nothing(service, vault, clock):
    matter = hold(service, "p1", review=clock() + timedelta(days=1))
    service.hooks.create("https://tickets.example.com/x", ["matter.review_due", "matter.released"])
    service.run_due()
    clock.pass_(days=1)
    for _ in range(3):
        service.run_due()
    bodies = [json.loads(row["body"]) for row in service.database.fetch_all("SELECT body FROM deliveries ORDER BY id")]
    assert [body["type"] for body in bodies] == ["matter.review_due"]
    assert (bodies[0]["data"]["name"], bodies[0]["data"]["review_due"]) == ("case 7", True)
    assert service.erase(["p1"], ASKED).state == "held"
    assert service.matters.totals() == {"open": 1, "review_due": 1, "release_requested": 0, "people": 1}
    service.matters.set_review(matter.id, clock() + timedelta(days=30), LEGAL)
    assert service.matters.totals()["review_due"] == 0
    with pytest.raises(InvalidInput, match="future"):
        service.matters.set_review(matter.id, clock(), LEGAL)


# Releasing


def test_a_release_wants_the_name_starts_the_window_again_and_is_recorded(make, vault, clock):
    service = make(window=timedelta(hours=24))
    matter = hold(service, "p1", "p2", "p3")
    job = service.erase(["p1", "p2", "p3"], ASKED)
    clock.pass_(days=5)
    assert service.matters.preview_release(matter.id).text == "3 people (3 rows) will be erased in 24 hours"
    for typed in ("", "case 8", "CASE 7", "case 7."):
        with pytest.raises(InvalidInput, match="the name does not match"):
            service.matters.release(matter.id, typed, "settled", LEGAL)
        assert (service.matters.list_all(), service.queue.get(job.id).state) == (
            [service.matters.get(matter.id)],
            "held",
        )
    service.matters.release(matter.id, " case 7 ", "settled out of court", Author("jo", "t1"))
    waiting = service.queue.get(job.id)
    assert (waiting.state, waiting.runs) == ("waiting", clock() + timedelta(hours=24))
    service.run_due()
    assert state(vault, "p1") == "present"
    last = service.matters.log(matter.id)[-1]
    assert (last.what, last.actor, last.token, last.people, last.reason) == (
        "released", "jo", "t1", 3, "settled out of court",
    )  # fmt: skip
    assert service.cancel(job.id, "no", Author()) is not None
    with pytest.raises(ReleaseRefused, match="already released"):
        release(service, matter)


def test_what_a_release_forgets_is_nowhere_in_the_file_and_that_it_was_there_is(service, vault):
    matter = hold(service, "p1")
    (sealed,) = vault.seal(["p1"])
    release(service, matter)
    service.run_due()
    for file in queue_path(vault.places.vault).iterdir():
        assert sealed.hash not in file.read_bytes()
    (past,) = service.matters.list_all(released=True)
    assert (past.name, past.people, past.actor, past.released) == ("case 7", 1, "legal", service.clock())


def test_people_can_be_released_one_by_one(service, vault):
    matter = hold(service, "p1", "p2")
    jobs = [service.erase([who], ASKED) for who in ("p1", "p2")]
    with pytest.raises(UnknownId, match="1 of these 2 people are not on this matter"):
        service.matters.release(matter.id, "case 7", "a mistake", LEGAL, ["p1", "p9"])
    assert service.matters.preview_release(matter.id, ["p1"]).text == "1 person (1 row) will be erased at once"
    left = service.matters.release(matter.id, "case 7", "a mistake", LEGAL, ["p1"])
    assert (left.released, left.people) == (None, 1)
    service.run_due()
    assert [service.queue.get(job.id).state for job in jobs] == ["done", "held"]
    assert service.matters.release(matter.id, "case 7", "over", LEGAL, ["p2"]).released is not None


def test_a_release_counts_who_will_be_erased_and_not_who_was_asked_for(service, vault):
    vault.unlearn(["p2"])
    matter = hold(service, "p1", "p2", "p3")
    service.erase(["p1", "p2", "nobody"], ASKED)
    plan = service.matters.preview_release(matter.id)
    assert (plan.people, plan.requests, plan.erased, plan.rows) == (3, 1, 1, 1)


# Two people


@pytest.fixture
def two(make):
    """A service that wants two tokens, and clients of two admins."""
    service = make(two_person_release=True, window=timedelta(hours=24))
    texts = [service.tokens.create(name, ["admin"], None)[1] for name in ("jo", "kim")]
    app = create_app(service)
    clients = [LocalClient(app, headers={"Authorization": f"Bearer {text}"}) for text in texts]
    with clients[0], clients[1]:
        yield service, *clients


def ask_release(client, matter):
    body = {"name": matter["name"], "reason": "settled"}
    return client.post(f"{MATTERS}/{matter['id']}/release", json=body)


def opened(client, *ids):
    return client.post(MATTERS, json={"name": "case 7", "reason": "a lawsuit", "ids": list(ids)}).json()


def test_a_second_token_confirms_a_release(two):
    service, jo, kim = two
    matter = opened(jo, "p1")
    job = service.erase(["p1"], ASKED)
    asked = ask_release(jo, matter)
    assert (asked.status_code, asked.json()["release"]["actor"]) == (202, "jo")
    assert service.queue.get(job.id).state == "held"
    place = f"{MATTERS}/{matter['id']}/release/confirmation"
    assert jo.post(place, json={"name": "case 7"}).status_code == 409
    assert kim.post(place, json={"name": "case 8"}).status_code == 422
    assert ask_release(kim, matter).status_code == 409
    assert service.queue.get(job.id).state == "held"
    done = kim.post(place, json={"name": "case 7"})
    assert (done.status_code, done.json()["released"]) == (200, "2026-01-31T12:00:00Z")
    assert service.queue.get(job.id).state == "waiting"
    log = kim.get(f"{MATTERS}/{matter['id']}").json()["log"]
    assert [(entry["what"], entry["actor"], entry["reason"]) for entry in log[-2:]] == [
        ("release_requested", "jo", "settled"), ("released", "kim", "settled"),
    ]  # fmt: skip
    assert log[-1]["token"] != log[-2]["token"]


def test_a_release_that_waits_is_withdrawn_by_hand_or_when_people_are_added(two):
    service, jo, kim = two
    matter = opened(jo, "p1")
    place = f"{MATTERS}/{matter['id']}/release"
    ask_release(jo, matter)
    assert kim.delete(place).json()["release"] is None
    assert kim.delete(place).status_code == 409
    ask_release(jo, matter)
    kim.post(f"{MATTERS}/{matter['id']}/people", json={"ids": ["p2"]})
    answer = kim.post(f"{place}/confirmation", json={"name": "case 7"})
    assert (answer.status_code, service.matters.get(matter["id"]).people) == (409, 2)


def test_a_release_that_a_revoked_token_asked_for_is_not_confirmed(two):
    service, jo, kim = two
    matter = opened(jo, "p1")
    ask_release(jo, matter)
    service.tokens.revoke(service.matters.get(matter["id"]).release.token)
    answer = kim.post(f"{MATTERS}/{matter['id']}/release/confirmation", json={"name": "case 7"})
    assert (answer.status_code, "revoked" in answer.json()["detail"]) == (409, True)


def test_two_people_release_some_of_the_people(two):
    service, jo, kim = two
    matter = opened(jo, "p1", "p2")
    jo.post(f"{MATTERS}/{matter['id']}/release", json={"name": "case 7", "reason": "a mistake", "ids": ["p1"]})
    kim.post(f"{MATTERS}/{matter['id']}/release/confirmation", json={"name": "case 7"})
    assert [len(found) for found in service.matters.find_by_people(["p1", "p2"])] == [0, 1]


def test_without_tokens_nobody_can_release_where_two_are_wanted(make):
    service = make(two_person_release=True)
    matter = hold(service, "p1")
    with LocalClient(create_app(service)) as client:
        answer = ask_release(client, {"id": matter.id, "name": matter.name})
        place = f"/matters/{matter.id}/release"
        shown = Person(client).post(place, place, 422, name="case 7", reason="settled")
    assert (answer.status_code, "two tokens" in answer.json()["detail"]) == (409, True)
    assert "A release needs two tokens here" in checked(shown).text


def test_the_command_line_does_not_go_around_the_second_token(make, vault, run_cli):
    service = make(two_person_release=True, window=timedelta(hours=24))
    hold(service, "p1")
    service.start()
    code, _, err = run_cli("release", "case 7", "--reason", "x", "--confirm", "case 7")
    assert (code, "needs two tokens" in err) == (18, True)
    assert len(service.matters.list_all()) == 1


# Over HTTP


def test_a_matter_over_http(client, service, clock):
    body = {"name": "case 7", "reason": "a lawsuit", "ids": ["p1", "p2"], "review": "2026-03-01T00:00:00+01:00"}
    made = client.post(MATTERS, json=body)
    matter = made.json()
    assert (made.status_code, made.headers["location"]) == (201, f"{MATTERS}/{matter['id']}")
    assert (matter["people"], matter["present"], matter["review"]) == (2, 2, "2026-02-28T23:00:00Z")
    job = client.post("/api/v1/erasures", json={"ids": ["p1"]}).json()
    found = client.get(f"{MATTERS}/{matter['id']}").json()
    assert (found["waiting"], found["requests"]) == ([job["id"]], 1)
    assert [len(some) for some in client.post(f"{MATTERS}/lookup", json={"ids": ["p1", "p3"]}).json()] == [1, 0]
    plan = client.get(f"{MATTERS}/{matter['id']}/release").json()
    assert (plan["text"], plan["people"]) == ("1 person (1 row) will be erased at once", 2)
    place = f"{MATTERS}/{matter['id']}/release"
    for wrong in ({"name": "case"}, {"name": "case", "reason": "x"}, {"name": "case 7", "reason": ""}, {}):
        assert client.post(place, json=wrong).status_code == 422
    assert service.matters.get(matter["id"]).people == 2
    assert client.post(place, json={"name": "case 7", "reason": "settled"}).status_code == 200
    assert client.post(place, json={"name": "case 7", "reason": "settled"}).status_code == 409
    assert client.get(MATTERS).json() == []
    assert [one["name"] for one in client.get(f"{MATTERS}?released=true").json()] == ["case 7"]
    assert client.get(f"{MATTERS}/nothing").status_code == 404


@pytest.mark.parametrize(
    "change", [{"review": "2020-01-01T00:00:00Z"}, {"review": "2027-01-01T00:00:00"}, {"review": 1e300}, {"name": ""},
               {"review": "9999-12-31T23:59:59-12:00"}, {"ids": [["canary"]]}, {"canary": 1}]
)  # fmt: skip
def test_a_matter_that_is_wrong_is_refused_and_names_nobody(client, service, change):
    body = {"name": "case 7", "reason": "x", "ids": ["canary"]} | change
    answer = client.post(MATTERS, json=body)
    assert (answer.status_code, "canary" in answer.text) == (422, False)
    assert service.matters.list_all() == []


def test_a_review_date_is_changed_over_http(client, service):
    matter = hold(service, "p1")
    place = f"{MATTERS}/{matter.id}"
    assert client.patch(place, json={"review": "2026-05-01T00:00:00Z"}).json()["review"] == "2026-05-01T00:00:00Z"
    assert client.patch(place, json={"review": None}).json()["review"] is None
    assert client.patch(place, json={}).status_code == 422


def test_every_change_of_a_matter_is_told_also_one_of_the_command_line(service, client, vault, run_cli):
    service.hooks.create("https://tickets.example.com/x")
    run_cli("open", "case 9", "--reason", "audit", "--id", "p1", "--actor", "kim")
    service.run_due()
    bodies = [json.loads(row["body"]) for row in service.database.fetch_all("SELECT body FROM deliveries ORDER BY id")]
    assert [body["type"] for body in bodies] == ["matter.opened", "matter.people_added"]
    assert bodies[1]["data"]["entry"] | {"time": 0} == {
        "time": 0, "what": "people_added", "actor": "kim", "token": "", "people": 1, "reason": "",
    }  # fmt: skip


def test_matters_are_counted_for_prometheus(client, service):
    hold(service, "p1", "p2")
    text = client.get("/metrics").text
    assert 'expunge_matters{state="open"} 1.0' in text
    assert "expunge_people_on_hold 2.0" in text


# Whoever asks the vault


def test_the_vault_refuses_whom_a_matter_holds_and_says_nothing_about_them(service, vault):
    matter = hold(service, "p1", "p2")
    other = Vault.open(vault.places.vault)
    with pytest.raises(OnHold, match="2 of these people are on legal hold: case 7; nothing was erased") as refused:
        other.unlearn(["p1", "p2", "p3"])
    assert "p1" not in str(refused.value)
    assert state(vault, "p1", "p3") == ["present", "present"]
    other.unlearn(["p3"])
    release(service, matter)
    assert other.unlearn(["p1"]).rows == 1


def test_somebody_can_erase_despite_a_hold_and_the_ledger_says_why(service, vault):
    hold(service, "p1")
    vault.unlearn(["p1"], despite_hold="court order 12", actor="jo")
    assert vault.requests[-1].callers[0].despite_hold == "court order 12"
    (erased,) = [entry for entry in read_trail(vault, service.database) if entry.action == "vault.unlearn"]
    assert (erased.actor, erased.details["despite_hold"]) == ("jo", "court order 12")
    assert vault.verify().ok


def test_a_vault_that_cannot_see_the_matters_says_so(service, vault):
    service.stop()
    (queue_path(vault.places.vault) / "queue.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(InvalidFile, match="queue"):
        vault.unlearn(["p1"])
    assert state(vault, "p1") == "present"
    assert vault.unlearn(["p1"], despite_hold="the queue is lost").rows == 1


def test_the_command_line_does_not_erase_who_is_on_a_matter(service, vault, capsys):
    matter = hold(service, "p1", "p2")
    words = ["unlearn", "--vault", str(vault.places.vault), "--id"]
    assert program.run([*words, "p1"]) == 18
    assert "1 of these people is on legal hold: case 7" in capsys.readouterr().err
    assert state(vault, "p1") == "present"
    assert program.run([*words, "p2", "--despite-hold", "court order 12"]) == 0
    release(service, matter)
    assert program.run([*words, "p1"]) == 0


# The command line


@pytest.fixture
def run_cli(vault, capsys):
    """Run ``expunge matter``; the exit code, and what it printed."""

    def run(*words):
        capsys.readouterr()
        code = program.run(["matter", words[0], "--vault", str(vault.places.vault), *words[1:]])
        return code, *capsys.readouterr()

    return run


def test_a_matter_from_the_command_line(make, vault, clock, run_cli):
    service = make(window=timedelta(hours=24))
    service.matters.save_policy()
    code, out, err = run_cli("open", "case 7", "--reason", "a lawsuit", "--id", "p1", "--id", "nobody")
    assert (code, out) == (0, "on hold: 2 people, 2 of them new\n")
    assert "1 of these ids is not known here: check the spelling" in err
    job = service.erase(["p1"], ASKED)
    assert job.state == "held"
    assert run_cli("add", "case 7", "--id", "p2", "--actor", "kim")[0] == 0
    assert run_cli("review", "case 7", "--review", "2999-01-31")[1] == "review: 2999-01-31\n"
    assert "case 7" in run_cli("list")[1]
    shown = run_cli("show", "case 7")[1]
    assert (job.id in shown, "people_added" in shown, "kim" in shown) == (True, True, True)
    assert "case 7" in run_cli("find", "--id", "p1")[1]
    code, _, err = run_cli("release", "case 7", "--reason", "settled")
    assert (code, "1 person (1 row) will be erased in 24 hours" in err) == (2, True)
    assert run_cli("release", "case 7", "--reason", "settled", "--confirm", "case 8")[0] == 3
    assert service.matters.list_all()[0].people == 3
    code, out, _ = run_cli("release", "case 7", "--reason", "settled", "--confirm", "case 7", "--actor", "kim")
    assert (code, out) == (0, "released: 1 person (1 row) will be erased in 24 hours\n")
    service.run_due()
    assert service.queue.get(job.id).state == "waiting"
    (past,) = json.loads(run_cli("list", "--released", "--json")[1])
    assert (past["name"], past["people"]) == ("case 7", 3)
    assert run_cli("show", "nothing")[0] == 4


def test_every_matter_command_answers_in_json(vault, make, run_cli):
    make(window=timedelta(hours=24)).matters.save_policy()
    vault.unlearn(["p3"])

    def ask(*words):
        code, out, _ = run_cli(*words, "--json")
        assert code == 0
        return json.loads(out)

    opened = ask("open", "case 7", "--reason", "a lawsuit", "--id", "p1", "--id", "p3", "--id", "nobody")
    assert (opened["name"], opened["added"], opened["erased"], opened["unknown"]) == ("case 7", 3, 1, 1)
    assert "1 of these people was erased before" in run_cli("add", "case 7", "--id", "p3", "--id", "p2")[2]
    assert ask("review", "case 7", "--review", "2999-01-31")["review"].startswith("2999-01-31")
    shown = ask("show", "case 7")
    assert (shown["people"], shown["waiting"]) == (4, [])
    assert [entry["what"] for entry in shown["log"]].count("people_added") == 2
    assert [[matter["name"] for matter in matters] for matters in ask("find", "--id", "p1", "--id", "p9")] == [
        ["case 7"],
        [],
    ]
    released = ask("release", "case 7", "--reason", "a mistake", "--confirm", "case 7", "--id", "p1")
    assert (released["people"], released["plan"]["people"]) == (3, 1)


# Pages


def test_the_page_of_a_release_says_what_happens_and_wants_the_name(make, vault, clock):
    service = make(window=timedelta(hours=24))
    with LocalClient(create_app(service)) as client:
        person = Person(client)
        where = person.post("/matters", "/matters", name="case 7", reason="a lawsuit", ids="p1\np2\np3", review="")
        place = where.headers["location"].split("?")[0]
        assert "3 people were put on hold" in person.get(where.headers["location"]).text
        service.erase(["p1", "p2", "p3"], ASKED)
        shown = person.get(f"{place}/release")
        assert "3 people (3 rows) will be erased in 24 hours" in shown.text
        wrong = person.post(f"{place}/release", f"{place}/release", 422, name="case", reason="settled")
        assert "name does not match" in checked(wrong).text
        assert len(service.matters.list_all()) == 1
        person.post(f"{place}/release", f"{place}/release", name="case 7", reason="settled")
        assert "settled" in person.get(place).text
        assert "case 7" in person.get("/matters?released=true").text
    assert state(vault, "p1") == "present"


def test_a_second_person_confirms_on_the_page(two):
    service, _, _ = two
    matter = hold(service, "p1", "p2")
    app = create_app(service)
    with LocalClient(app) as client, LocalClient(app) as other:
        jo, kim = Person(client), Person(other)
        for person, name in ((jo, "jo2"), (kim, "kim2")):
            person.log_in(service.tokens.create(name, ["admin"], None)[1])
        place = f"/matters/{matter.id}"
        jo.post(f"{place}/release", f"{place}/release", name="case 7", reason="settled")
        mine, theirs = jo.get(place), kim.get(place)
        assert "another token has to confirm it" in mine.text
        assert f"{place}/release/confirm" not in [form.action for form in mine.forms]
        assert "by jo2" in theirs.text
        kim.post(place, f"{place}/release/confirm", 422, name="wrong")
        kim.post(place, f"{place}/release/confirm", name="case 7")
    assert service.matters.get(matter.id).released is not None


def test_people_are_found_added_and_released_on_the_page(client, service):
    person = Person(client)
    matter = hold(service, "p1", "p2")
    found = person.post("/matters", "/matters/lookup#lookup", 200, people="p1\np9")
    assert "p9 none" in checked(found).text
    place = f"/matters/{matter.id}"
    person.post(place, f"{place}/people", ids="p3")
    person.post(place, f"{place}/review", review="2026-03-01")
    assert "1 Mar 2026" in person.get(place).text
    assert "are not on this matter" in person.post(place, f"{place}/release/people", 422, leaving="p9").text
    plan = checked(person.post(place, f"{place}/release/people", 200, leaving="p3"))
    assert "1 person will be released, and no one will be erased" in plan.text
    assert "p3" not in plan.form(f"{place}/release").fields["people"]
    person.send(plan.form(f"{place}/release"), name="case 7", reason="a mistake")
    assert service.matters.get(matter.id).people == 2


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"name": "case", "ids": "p1"}, "Fill in the reason"),
        ({"ids": "p1", "reason": "x"}, "Fill in the name"),
        ({"name": "case", "reason": "x"}, "at least one id"),
        ({"name": "case", "ids": "p1", "reason": "x", "review": "2026-01-31"}, "in the future"),
        ({"name": "case", "ids": "p1", "reason": "x", "review": "soon"}, "Enter the date as 2027-01-31"),
    ],
)
def test_a_matter_that_is_typed_wrong_is_said(client, service, typed, said):
    assert said in Person(client).post("/matters", "/matters", 422, **typed).text
    assert service.matters.list_all() == []
