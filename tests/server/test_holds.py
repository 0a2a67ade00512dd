"""Legal holds: who is held is not erased, also after a restart, and is erased by itself when the hold ends."""

from datetime import timedelta

import pytest

from expunge.cli import program
from expunge.server.database import queue_path
from expunge.server.queue import Asked

ASKED = Asked("erasure", "api", "gdpr")


def state(vault, one):
    return vault.holds([one])[0].state


def test_a_request_for_somebody_held_is_refused_with_the_reason_and_runs_when_the_hold_ends(service, vault, clock):
    heard = []
    service.listeners.append(lambda told: heard.append(told.event))
    service.hold(["p1"], "case 7", clock() + timedelta(days=3), "legal")
    entry = service.erase(["p1", "p2"], ASKED)
    assert (entry.state, entry.reason) == ("held", "on legal hold until 2026-02-03T12:00:00Z: case 7")
    assert heard == ["accepted", "refused"]
    service.look()
    assert (state(vault, "p1"), state(vault, "p2")) == ("present", "present")
    clock.pass_(days=3)
    service.look()
    assert (state(vault, "p1"), state(vault, "p2")) == ("erased", "erased")
    assert heard == ["accepted", "refused", "done", "certified"]


def test_a_hold_stops_a_request_that_waits_already_and_every_hold_counts(make, vault, clock):
    service = make(window=timedelta(hours=1))
    entry = service.erase(["p1"], ASKED)
    (one,) = service.hold(["p1"], "a", None, "")
    (two,) = service.hold(["p1"], "b", None, "")
    assert service.queue.get(entry.id).state == "held"
    clock.pass_(hours=2)
    for hold in (one, two):
        assert state(vault, "p1") == "present"
        service.holds.release(hold.id)
        service.look()
    assert state(vault, "p1") == "erased"


def test_holds_know_people_in_every_form_of_their_id(service, vault):
    service.hold(["\u00e9"], "case", None, "")
    assert service.erase(["e\u0301"], ASKED).state == "held"


def test_nobody_who_is_held_slips_through_between_the_look_and_the_work(make, vault, clock, monkeypatch):
    service = make(window=timedelta(hours=1))
    service.erase(["p1"], ASKED)
    clock.pass_(hours=2)
    run = service.run

    def held_meanwhile(entries):
        service.holds.set([vault.seal(["p1"])[0].hash], "case", None, "")
        run(entries)

    monkeypatch.setattr(service, "run", held_meanwhile)
    service.look()
    assert state(vault, "p1") == "present"
    assert service.queue.pending()[0].state == "held"


def test_a_request_that_is_cancelled_while_it_is_looked_at_stays_cancelled(service, vault):
    (hold,) = service.hold(["p1"], "case", None, "")
    stale = service.erase(["p1"], ASKED)
    service.cancel(stale.id, "no")
    service.holds.release(hold.id)
    assert service._look_at_holds(stale).state == "cancelled"
    service.look()
    assert state(vault, "p1") == "present"


@pytest.mark.parametrize("until", [None, timedelta(days=1)])
def test_holds_survive_a_restart_and_the_folder_of_the_vault(service, make, clock, until):
    service.hold(["p1"], "case", until and clock() + until, "legal")
    before = service.holds.every()
    service.stop()
    fresh = make()
    assert fresh.holds.every() == before
    assert queue_path(fresh.vault.places.vault).parent == fresh.vault.places.vault.parent
    assert fresh.erase(["p1"], ASKED).state == "held"


def test_a_hold_that_ended_is_forgotten(service, clock):
    service.hold(["p1"], "case", clock() + timedelta(days=1), "")
    clock.pass_(days=1)
    assert service.holds.every() == []
    service.look()
    assert [bytes(row["hash"]) for row in service.database.all("SELECT * FROM holds")] == [b""]


def test_a_request_remembers_that_it_was_held_and_a_hold_that_it_was_there(service, clock):
    (hold,) = service.hold(["p1"], "case 7", None, "legal")
    entry = service.erase(["p1"], ASKED)
    clock.pass_(days=2)
    assert service.holds.release(hold.id)
    assert not service.holds.release(hold.id)
    service.look()
    done = service.queue.get(entry.id)
    assert (done.state, done.reason) == ("done", "")
    assert done.outcome["held"] == [
        {"reasons": ["case 7"], "from": "2026-01-31T12:00:00Z", "to": "2026-02-02T12:00:00Z"}
    ]
    (past,) = service.holds.past()
    assert (past.reason, past.actor, past.until, past.hash) == ("case 7", "legal", clock(), b"")
    assert service.holds.every() == []


def test_who_is_held_can_be_asked_and_the_same_hold_is_made_once(client):
    asked = {"ids": ["p1"], "reason": "court"}
    (first,), (again,) = (client.post("/api/v1/holds", json=asked).json() for _ in range(2))
    assert first == again
    client.post("/api/v1/holds", json={**asked, "reason": "tax"})
    mine, others = client.post("/api/v1/holds/lookup", json={"ids": ["p1", "p2"]}).json()
    assert ([one["reason"] for one in mine], others) == (["court", "tax"], [])
    assert len(client.get("/api/v1/holds").json()) == 2
    client.delete(f"/api/v1/holds/{first['id']}")
    assert [one["reason"] for one in client.get("/api/v1/holds?past=true").json()] == ["court"]


def test_the_command_line_does_not_erase_who_is_held(service, vault, capsys):
    (hold,) = service.hold(["p1"], "case 7", None, "legal")
    words = ["unlearn", "--vault", str(vault.places.vault), "--id", "p1"]
    assert program.run(words) == 3
    assert "1 of these people is on legal hold until it is released: case 7" in capsys.readouterr().err
    assert state(vault, "p1") == "present"
    service.holds.release(hold.id)
    assert program.run(words) == 0
