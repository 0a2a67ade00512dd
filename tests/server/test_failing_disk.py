"""A disk that fails under a service: nothing is done twice or lost, and nothing acknowledged that cannot be done."""

import resource
import sqlite3
from contextlib import contextmanager

import pytest

from support.disks import used
from support.faulty import Fault, Faulty

ERASE, ROWS = "/api/v1/erasures", "/api/v1/rows"


@pytest.fixture
def disk(client, tmp_path):
    client.get("/readyz")
    with used(Faulty(tmp_path)) as disk:
        yield disk


@contextmanager
def no_file_grows_beyond(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def add_row(client, who):
    row = {"who": who, "age": 0.25, "visits": 0.5, "spend": 0.5}
    return client.post(ROWS, json={"rows": [row]}, headers={"Idempotency-Key": who})


def test_the_same_key_learns_rows_once_whatever_write_failed(client, service, vault, disk):
    disk.arm(None)
    assert add_row(client, "first").status_code == 200
    changes = [k for k, one in enumerate(disk.log) if one.changes or one.name == "sync"]
    statuses = set()
    for at in changes[::2]:
        who = f"q{at}"
        disk.arm(Fault("error", at))
        statuses.add(add_row(client, who).status_code)
        disk.heal()
        service.run_due()  # opens the vault anew if a sync failed
        again = add_row(client, who)
        assert (again.status_code, again.json()["state"]) == (200, "done"), at
        assert vault.find([who])[0].rows == 1, at
    assert 503 in statuses <= {200, 503}
    assert not service.queue.running()
    assert vault.verify().ok


@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize("file", ["learner", "spend.ledger", "current"])  # before, at and after it is accepted
def test_after_a_failed_sync_nothing_is_acknowledged_until_the_vault_is_opened_anew(
    client, service, vault, disk, file, lasting
):
    for who in ("p8", "p9"):
        disk.arm(None)
        client.post(ERASE, json={"ids": [who]})
    syncs = [k for k, one in enumerate(disk.log) if one.name == "sync" and one.path.name.startswith(file)]
    disk.arm(Fault("sync", syncs[0], lasting=lasting))
    first = client.post(ERASE, json={"ids": ["p1"]})
    known = service.queue.counts()
    later = client.post(ERASE, json={"ids": ["p2"]}, headers={"Prefer": "respond-async"})
    for answer in (first, later, add_row(client, "q1"), client.get("/readyz")):
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:expunge:problem:unfinished")
        assert "reopened" in answer.json()["detail"]
        assert answer.headers["retry-after"]
    assert service.queue.counts() == known  # what was refused is not in the queue
    if lasting:
        service.run_due()
        assert client.get("/readyz").status_code == 503
        disk.heal()
    service.run_due()
    assert client.get("/readyz").status_code == 200
    assert [holding.state for holding in vault.find(["p1", "p2"])] == ["erased", "present"]
    assert client.post(ERASE, json={"ids": ["p2"]}).json()["state"] == "done"
    assert not service.queue.pending()
    assert vault.verify().ok


def test_a_service_whose_queue_cannot_be_written_is_not_ready_until_it_can(client, service, vault):
    client.post(ERASE, json={"ids": ["p1"]})
    log = service.database.path.with_name("queue.sqlite-wal")
    with no_file_grows_beyond(log.stat().st_size):
        assert client.post(ERASE, json={"ids": ["p2"]}).status_code == 503
        for _ in range(2):
            assert client.get("/readyz").json()["type"] == "urn:expunge:problem:storage"
            with pytest.raises(sqlite3.OperationalError):
                service.run_due()
    assert client.get("/readyz").status_code == 503
    service.run_due()
    assert client.get("/readyz").json() == {"status": "ready"}
    assert vault.find(["p2"])[0].state == "present"
    assert client.post(ERASE, json={"ids": ["p2"]}).json()["state"] == "done"
