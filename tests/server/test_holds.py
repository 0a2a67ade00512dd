"""Legal holds: who is held is not erased, also after a restart, and is erased by itself when the hold ends."""

from datetime import timedelta

import pytest

from expunge.server.queue import Asked
from expunge.server.serving import queue_path

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
    assert service.database.all("SELECT * FROM holds") == []
