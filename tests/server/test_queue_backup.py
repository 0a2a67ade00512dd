"""The service's database in backups: what waited waits again, and what was done since is recognised."""

import shutil
import sqlite3
from datetime import timedelta

import pytest

from expunge.errors import InvalidFile
from expunge.server.database import Database, queue_path
from expunge.server.queue import NewJob
from expunge.server.service import Options, Service
from expunge.vault import Vault

ASKED = NewJob("erasure", "api", "gdpr", reference="r")


def lose(vault, *but):
    for path in vault.places.vault.parent.glob("spend.*"):
        if path.suffix not in but:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture
def serve(vault, clock):
    """A service of what is in place now."""
    made = []

    def build(**options):
        path = vault.places.vault
        made.append(Service(Vault.open(path), Database(queue_path(path)), Options(**options), clock))
        return made[-1]

    yield build
    for service in made:
        service.stop()


def test_requests_that_waited_wait_again_and_are_carried_out(serve, vault, clock, tmp_path):
    service = serve(window=timedelta(hours=1))
    job = service.erase(["p1"], ASKED)
    vault.backup(tmp_path / "saved", with_key=True)
    service.stop()
    lose(vault)
    done = Vault.restore(tmp_path / "saved", vault.places.vault, nothing_erased_since=True)
    assert "tokens revoked since are valid again" in done.notes[-1]
    service = serve(window=timedelta(hours=1))
    assert service.queue.get(job.id) == job
    clock.pass_(hours=1)
    service.run_due()
    assert service.queue.get(job.id).state == "done"
    assert service.vault.find(["p1"])[0].state == "erased"


def test_requests_that_were_done_since_are_recognised(serve, vault, clock, tmp_path):
    service = serve(window=timedelta(hours=1))
    job = service.erase(["p1"], ASKED)
    vault.backup(tmp_path / "saved")
    clock.pass_(hours=1)
    service.run_due()
    gone = service.queue.get(job.id)
    service.stop()
    lose(vault, ".ledger", ".key", ".certificates")
    Vault.restore(tmp_path / "saved", vault.places.vault)
    service = serve(window=timedelta(hours=1))
    service.run_due()
    assert service.queue.get(job.id).state == "done"
    assert service.queue.get(job.id).outcome["request"] == gone.outcome["request"] == 2
    assert [one.kind for one in service.vault.requests] == ["train", "unlearn", "restore"]


def test_a_database_that_is_in_place_stays(serve, vault, tmp_path):
    serve().erase(["p1"], ASKED)
    vault.backup(tmp_path / "saved")
    service = serve(window=timedelta(hours=1))
    job = service.erase(["p2"], ASKED)
    service.stop()
    lose(vault, ".ledger", ".key", ".certificates", ".queue")
    done = Vault.restore(tmp_path / "saved", vault.places.vault)
    assert "is kept: it is newer" in done.notes[-1]
    assert serve(window=timedelta(hours=1)).queue.get(job.id) == job


def test_the_log_of_a_database_that_is_lost_is_not_taken_for_that_of_the_restored_one(serve, vault, tmp_path):
    job = serve().erase(["p1"], ASKED)
    vault.backup(tmp_path / "saved")
    lose(vault, ".ledger", ".key", ".certificates")
    other = tmp_path / "other"
    with sqlite3.connect(other) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE x (y)")
        connection.commit()
        (tmp_path / "spend.queue").mkdir(mode=0o700)
        shutil.copy(tmp_path / "other-wal", tmp_path / "spend.queue" / "queue.sqlite-wal")
    (tmp_path / "spend.queue" / "queue.sqlite-wal").chmod(0o600)
    Vault.restore(tmp_path / "saved", vault.places.vault)
    assert serve().queue.get(job.id).state == "done"


def test_a_planted_database_is_not_copied(vault, tmp_path):
    folder, theirs = queue_path(vault.places.vault), tmp_path / "theirs"
    theirs.write_bytes(b"")
    folder.mkdir(mode=0o700)
    (folder / "queue.sqlite").symlink_to(theirs)
    with pytest.raises(InvalidFile, match="symbolic link"):
        vault.backup(tmp_path / "saved")
    (folder / "queue.sqlite").unlink()
    (folder / "queue.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(InvalidFile, match="cannot be copied"):
        vault.backup(tmp_path / "saved")
    folder.chmod(0o755)
    with pytest.raises(InvalidFile, match="can be read by others"):
        vault.backup(tmp_path / "saved")


def test_aliases_of_people_who_were_erased_since_lead_nowhere(serve, vault, tmp_path):
    service = serve()
    service.aliases.add([("a@example.com", "p1"), ("b@example.com", "p2")])
    vault.backup(tmp_path / "saved")
    service.erase(["p1"], ASKED)
    assert service.aliases.find("a@example.com") is None
    service.stop()
    lose(vault, ".ledger", ".key", ".certificates")
    Vault.restore(tmp_path / "saved", vault.places.vault)
    service = serve()
    service.run_due()
    assert service.aliases.find("a@example.com") is None
    assert service.aliases.find("b@example.com") is not None
