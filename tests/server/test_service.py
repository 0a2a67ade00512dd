"""The service: nothing that was taken is lost or done twice, windows, batches, clocks that jump, and restarts."""

import threading
from datetime import timedelta

import pytest

from expunge.errors import InvalidInput, InvalidSetting, VaultBusy
from expunge.server.database import Database, queue_path
from expunge.server.matters import Author
from expunge.server.queue import JobFilter, NewJob
from expunge.server.service import Options, Service
from expunge.vault import Vault

from support.matters import hold

ASKED = NewJob("erasure", "api", "gdpr")


def states(vault, *ids):
    return [one.state for one in vault.find(list(ids))]


def erasures(vault):
    return [one for one in vault.requests if one.kind == "unlearn"]


@pytest.fixture
def restart(vault, clock, make):
    """End a service as a crash does, after its last write, and start another one."""

    def again(service, **options):
        service.database.close()
        service.stop = lambda: None  # the fixture would close it again
        fresh = make(**options)
        fresh.vault = fresh.verifications._vault = Vault.open(vault.places.vault)
        fresh._recover()
        return fresh

    return again


@pytest.fixture
def heard(service):
    return listen(service)


def listen(service):
    found = []
    service.listeners.append(lambda event: found.append((event.name, event.job.id)))
    return found


# At once


def test_an_erasure_is_done_once_it_returns_and_says_what_became_of_whom(service, vault):
    first = service.erase(["p1", "p2"], ASKED)
    again = service.erase(["p2", "p3", "nobody"], ASKED)
    never = service.erase(["nobody else"], ASKED)
    assert states(vault, "p1", "p2", "p3", "nobody") == ["erased", "erased", "erased", "unknown"]
    one, two, three = (entry.outcome for entry in (first, again, never))
    assert (one["erased"], one["rows"], one["unknown"], one["earlier"], one["request"]) == (2, 2, 0, [], 2)
    assert (two["erased"], two["rows"], two["unknown"], two["earlier"], two["request"]) == (1, 1, 1, [2], 3)
    assert (three["erased"], three["rows"], three["unknown"], three["request"]) == (0, 0, 1, None)
    assert service.certificate(never) is None
    assert service.certificate(first) == vault.requests[1].certificate


def test_who_was_erased_before_gets_the_certificate_of_then(service, vault):
    first, again = service.erase(["p1"], ASKED), service.erase(["p1"], ASKED)
    assert first.id != again.id
    assert service.certificate(again) == service.certificate(first) is not None
    assert len(erasures(vault)) == 1


def test_it_is_told_what_happens_in_order(service, heard):
    entry = service.erase(["p1"], ASKED)
    assert heard == [(event, entry.id) for event in ("accepted", "done", "certified")]


def test_a_listener_that_fails_harms_nobody(service, vault, heard):
    service.listeners.insert(0, lambda told: 1 / 0)
    assert service.erase(["p1"], ASKED).state == "done"
    assert [event for event, _ in heard] == ["accepted", "done", "certified"]


def test_a_vault_that_is_busy_makes_a_request_wait_and_not_fail(service, vault, monkeypatch):
    def busy(*_, **__):
        raise VaultBusy("another process is writing")

    with monkeypatch.context() as patch:
        patch.setattr(service.vault, "unlearn_group", busy)
        entry = service.erase(["p1"], ASKED)
        assert (entry.state, entry.reason) == ("waiting", "another process is writing")
        service.run_due()
        assert service.queue.get(entry.id).state == "waiting"
    service.run_due()
    assert service.queue.get(entry.id).state == "done"
    assert len(erasures(vault)) == 1


@pytest.mark.parametrize("reference", ["x" * 200, "ü" * 200, ""])
def test_the_longest_reference_is_carried_out_and_found_in_the_ledger(service, vault, reference):
    entry = service.erase(["p1"], NewJob("erasure", "api", "gdpr", reference=reference))
    assert entry.state == "done"
    (caller,) = vault.requests[-1].callers
    assert (caller.job, caller.reference) == (entry.id, reference)


def test_what_could_never_be_carried_out_is_not_taken(service):
    for ids, asked in (([], ASKED), (["a"] * 100_001, ASKED), (["a", ""], ASKED)):
        with pytest.raises(InvalidInput):
            service.erase(ids, asked)
    with pytest.raises(InvalidSetting):
        service.erase(["p1"], NewJob("erasure", "api", "gdpr", reference="a\u2028b"))
    assert service.queue.pending() == []


# Windows, batches and cancellation


def test_a_request_waits_for_its_window_and_not_longer(make, vault, clock):
    service = make(window=timedelta(hours=24))
    entry = service.erase(["p1"], ASKED)
    clock.pass_(hours=24, microseconds=-1)
    service.run_due()
    assert (service.queue.get(entry.id).state, states(vault, "p1")) == ("waiting", ["present"])
    clock.pass_(microseconds=1)
    service.run_due()
    assert (service.queue.get(entry.id).state, states(vault, "p1")) == ("done", ["erased"])


def test_a_cancelled_request_never_runs_and_one_that_ran_cannot_be_cancelled(make, vault, clock):
    service = make(window=timedelta(hours=1))
    entry, other = service.erase(["p1"], ASKED), service.erase(["p2"], ASKED)
    assert service.cancel(entry.id, "changed their mind", Author()).state == "cancelled"
    assert service.cancel(entry.id, "again", Author()) is None
    clock.pass_(hours=2)
    service.run_due()
    assert states(vault, "p1", "p2") == ["present", "erased"]
    assert service.cancel(other.id, "too late", Author()) is None
    assert service.queue.people(entry.id) == []


def test_a_batch_by_time_is_one_request_with_one_certificate(make, vault, clock):
    service = make(batch_every=timedelta(hours=1))
    first = service.erase(["p1"], ASKED)
    clock.pass_(minutes=59)
    entries = [first, service.erase(["p2", "p3"], ASKED), service.erase(["never there"], ASKED)]
    service.run_due()
    assert states(vault, "p1", "p2") == ["present", "present"]
    clock.pass_(minutes=1)
    service.run_due()
    assert states(vault, "p1", "p2", "p3") == ["erased"] * 3
    assert len(erasures(vault)) == 1
    one, two, three = (service.certificate(service.queue.get(entry.id)) for entry in entries)
    assert one == two == vault.requests[-1].certificate
    assert three is None
    assert [service.queue.get(entry.id).outcome["rows"] for entry in entries] == [1, 2, 0]


def test_a_batch_by_size_runs_once_there_are_so_many(make, vault):
    service = make(batch_size=3)
    for k in (1, 2):
        service.erase([f"p{k}"], ASKED)
        service.run_due()
    assert erasures(vault) == []
    service.erase(["p3"], ASKED)
    service.run_due()
    assert states(vault, "p1", "p2", "p3") == ["erased"] * 3
    assert len(erasures(vault)) == 1


def test_the_same_people_are_queued_once_while_their_request_is_open(make, clock):
    service = make(window=timedelta(hours=1))
    first = service.erase(["p1", "p2"], ASKED)
    assert service.erase(["p2", "p1", "p1"], ASKED).id == first.id
    assert service.erase(["p1"], ASKED).id != first.id
    clock.pass_(hours=1)
    service.run_due()
    assert service.erase(["p1", "p2"], ASKED).id != first.id


# Clocks


def test_overdue_is_told_once_and_again_only_after_an_extension(make, clock):
    service = make(window=timedelta(days=400))
    heard = listen(service)
    entry = service.erase(["p1"], ASKED)
    assert entry.due.isoformat() == "2026-02-28T12:00:00+00:00"
    clock.now = entry.due
    service.run_due()
    assert [event for event, _ in heard] == ["accepted"]
    clock.pass_(seconds=1)
    for _ in range(3):
        service.run_due()
    assert [event for event, _ in heard] == ["accepted", "overdue"]
    assert service.queue.extend(entry.id, "many requests").due.isoformat() == "2026-04-30T12:00:00+00:00"
    service.run_due()
    clock.now = service.queue.get(entry.id).due + timedelta(seconds=1)
    service.run_due()
    assert [event for event, _ in heard] == ["accepted", "overdue", "overdue"]


def test_a_clock_that_jumps_back_delays_and_loses_nothing(make, vault, clock):
    service = make(window=timedelta(hours=1))
    heard = listen(service)
    entries = [service.erase(["p1"], ASKED)]
    clock.pass_(days=-300)
    entries.append(service.erase(["p2"], ASKED))
    service.run_due()
    clock.pass_(hours=1)
    service.run_due()
    assert states(vault, "p1", "p2") == ["present", "erased"]
    assert [one.id for one in service.queue.pending()] == [entries[0].id]
    clock.pass_(days=300)
    service.run_due()
    assert states(vault, "p1", "p2") == ["erased", "erased"]
    assert sorted(event for event, _ in heard) == ["accepted"] * 2 + ["certified"] * 2 + ["done"] * 2


# Restarts


@pytest.mark.parametrize("state", ["waiting", "held", "cancelled", "done"])
def test_a_restart_finds_every_request_as_it_was(make, restart, clock, state):
    service = make(window=timedelta(hours=1))
    entry = service.erase(["p1"], NewJob("erasure", "api", "ccpa", reference="r", actor="a", callbacks=("https://a",)))
    if state == "held":
        hold(service, "p1", name="a case")
    if state == "cancelled":
        service.cancel(entry.id, "no", Author())
    if state == "done":
        clock.pass_(hours=1)
        service.run_due()
    before = service.queue.get(entry.id)
    assert before.state == state
    fresh = restart(service, window=timedelta(hours=1))
    assert fresh.queue.get(entry.id) == before
    clock.pass_(hours=1)
    fresh.run_due()
    after = fresh.queue.get(entry.id).state
    assert after == {"waiting": "done"}.get(state, state)
    assert states(fresh.vault, "p1") == ["erased" if after == "done" else "present"]


class Crash(BaseException):
    """The end of the process."""


def test_an_erasure_that_was_cut_off_after_the_vault_did_it_is_not_done_again(service, restart, vault, monkeypatch):
    def end(*_, **__):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(service.queue, "move", end)
        with pytest.raises(Crash):
            service.erase(["p1"], ASKED)
    fresh = restart(service)
    (entry,) = fresh.queue.pending()
    assert entry.state == "waiting"
    fresh.run_due()
    assert fresh.queue.get(entry.id).state == "done"
    assert len(erasures(fresh.vault)) == 1
    assert fresh.certificate(fresh.queue.get(entry.id)) == fresh.vault.requests[-1].certificate


@pytest.mark.parametrize("accepted", [False, True])
def test_a_change_that_was_cut_off_is_found_in_the_ledger_or_can_be_asked_for_again(service, restart, accepted):
    asked = NewJob("readmission", "api", "gdpr", idempotency=("key", "mark"))
    service.erase(["p1"], ASKED)

    def cut(**said):
        if accepted:
            service.vault.readmit(["p1"], **said)
        raise Crash

    move = service.queue.move
    service.queue.move = lambda *_, **__: (_ for _ in ()).throw(Crash)
    with pytest.raises(Crash):
        service.run_now(asked, cut)
    service.queue.move = move
    fresh = restart(service)
    (entry, *_) = fresh.queue.page(JobFilter())
    assert entry.state == ("done" if accepted else "failed")
    assert entry.outcome.get("request") == (3 if accepted else None)
    assert (fresh.queue.find_answered("key") is not None) == accepted


def test_a_change_that_fails_is_logged_and_its_key_is_free(service, vault):
    def refuse(**_):
        raise InvalidInput("no such thing")

    with pytest.raises(InvalidInput):
        service.run_now(NewJob("addition", "api", "gdpr", idempotency=("key", "mark")), refuse)
    (entry,) = service.queue.page(JobFilter())
    assert (entry.state, entry.reason) == ("failed", "no such thing")
    assert service.queue.find_answered("key") is None


def test_people_that_cannot_be_opened_keep_no_others_waiting(make, vault, clock):
    service = make(batch_every=timedelta(hours=1))
    bad, good = service.erase(["p1"], ASKED), service.erase(["p2"], ASKED)
    service.database.execute("UPDATE people SET sealed = x'00' WHERE request = ?", bad.id)
    clock.pass_(hours=1)
    service.run_due()
    assert states(vault, "p1", "p2") == ["present", "erased"]
    assert "damaged" in service.queue.get(bad.id).reason
    assert service.queue.get(good.id).state == "done"


def test_the_clock_thread_carries_out_what_was_left(vault, clock, make):
    first = make(window=timedelta(hours=1))
    entry = first.erase(["p1"], ASKED)
    first.stop()
    clock.pass_(hours=1)
    service = Service(vault, Database(queue_path(vault.places.vault)), Options(), clock)
    service.start()
    while service.queue.get(entry.id).open:
        service.wake()
    assert service.stop(5.0)
    assert states(vault, "p1") == ["erased"]


def test_a_stop_that_would_take_too_long_says_so(service):
    answers = []
    with service._work_lock:
        thread = threading.Thread(target=lambda: answers.append(service.stop(0.01)))
        thread.start()
        thread.join()
    assert answers == [False]


def test_a_queue_that_is_older_than_the_ledger_says_so(make, vault, capsys):
    service = make()
    service.erase(["p1"], ASKED)
    with service.database.transaction() as database:
        database.execute("DELETE FROM requests")
    service.stop()
    service = make()
    service.start()
    assert '"queue-older-than-ledger", "requests": 1' in capsys.readouterr().err


def test_looking_at_requests_that_wait_asks_the_database_as_often_however_many_there_are(make):
    service, counts = make(window=timedelta(days=7)), []
    service.run_due()
    for more in (2, 50):
        for k in range(more):
            service.erase([f"x{more} {k}"], NewJob("erasure", "api", "gdpr"))
        asked = list[str]()
        for connection in (service.database._connection, service.database._reader):
            connection.set_trace_callback(asked.append)
        service.run_due()
        for connection in (service.database._connection, service.database._reader):
            connection.set_trace_callback(None)
        counts.append(len(asked))
    assert counts[1] <= counts[0]


def test_the_end_of_a_service_does_not_rebuild_a_history_of_years(make):
    service, asked = make(), list[str]()
    service.erase(["p1"], NewJob("erasure", "api", "gdpr"))
    service.database._connection.set_trace_callback(asked.append)
    service.stop()
    assert any(statement.startswith("DELETE FROM people") for statement in asked)
    assert "VACUUM" not in asked


def test_receipts_of_anybody_take_the_lock_of_the_vault_once(service, vault, monkeypatch):
    vault.unlearn(["p1"])
    taken, locked = [], vault._writer.lock
    monkeypatch.setattr(vault._writer, "lock", lambda wait: taken.append(wait) or locked(wait))
    erased, present, unknown = service.issue_receipts(["p1", "p2", "nobody"])
    assert [found is None for found in (erased, present, unknown)] == [False, True, False]
    assert service.issue_receipts(["p1", "nobody"], attest_unknown=False)[1] is None
    assert len(taken) == 2
