"""Verification by the command: changed certificates fail it, and its report is signed."""

import json
from pathlib import Path

import pytest

from expunge.server.database import Database, queue_path
from expunge.server.service import Service
from expunge.vault import Vault

from support.commands import V


@pytest.fixture
def erased(spend, ok):
    ok("unlearn", *V, "--id", "person-1")
    return Path("spend.certificates/000002.jws")


def test_a_changed_certificate_fails_a_verification_and_a_missing_one_does_not(erased, ok, run):
    text = erased.read_text()
    erased.write_text(text[:-8] + "AAAAAAA\n")
    code, out, err = run("verify", *V)
    assert (code, err) == (11, "error: failed checks: certificates\n")
    assert "000002.jws was changed, or is not a certificate of this vault" in out
    assert "CHANGED" in ok("log", *V)
    erased.unlink()
    assert "1 of their files are missing" in ok("verify", *V)
    assert "CHANGED" not in ok("log", *V)


def test_a_report_checks_and_a_changed_one_does_not(erased, ok, run):
    ok("verify", *V, "--report", "report.jws", "--actor", "Audit Ltd")
    check = ("certificate", "check", "report.jws", "--public-key", "spend.pub")
    said = json.loads(ok(*check, "--json"))
    assert (said["ok"], said["actor"], said["request"]) == (True, "Audit Ltd", 2)
    assert [one["name"] for one in said["checks"]] == ["ledger", "certificates", "rows", "people", "model"]
    last = json.loads(Path("spend.ledger").read_bytes().splitlines()[-1])
    assert said["head"] == last["hash"]
    shown = ok(*check)
    assert "ok model: retrained from the surviving rows" in shown
    assert "{" not in shown
    text = Path("report.jws").read_text()
    head, payload, signature = text.split(".")
    for changed in (f"{head}.{payload[:-2]}.{signature}", f"{head}.{payload}.{signature[:-9]}AAAAAAAA", text[5:]):
        Path("report.jws").write_text(changed)
        assert run(*check)[0] == 13
    other = ok("head", *V)
    assert head != other.split(".")[0]  # statements of other types are never taken for a report


def test_a_failed_verification_is_reported_as_well(erased, ok, run):
    rows = next(Path("spend.vault").glob("rows.*"))
    data = bytearray(rows.read_bytes())
    data[40] ^= 1
    rows.write_bytes(data)
    assert run("verify", *V, "--report", "report.jws")[0] == 11
    said = json.loads(ok("certificate", "check", "report.jws", "--public-key", "spend.pub", "--json"))
    assert said["ok"] is False
    assert "rows" in [check["name"] for check in said["checks"] if not check["ok"]]


def test_a_report_is_not_overwritten_needs_a_key_and_signs_nothing_read_only(erased, ok, run):
    Path("there.jws").write_text("evidence")
    code, out, err = run("verify", *V, "--report", "there.jws")
    assert (code, out) == (2, "")
    assert "a report is not overwritten" in err
    assert run("verify", *V, "--report", "no/folder.jws")[0] == 2
    assert run("verify", *V, "--report", "report.jws", "--read-only")[0] == 2
    assert run("verify", *V, "--report", "report.jws", "--actor", "two\nlines")[0] == 2
    Path("spend.key").unlink()
    assert run("verify", *V, "--report", "report.jws")[0] == 15
    assert not Path("report.jws").exists()
    assert Path("there.jws").read_text() == "evidence"


@pytest.fixture
def service(spend):
    """A service in front of the vault that is not running just now."""
    found = Service(Vault.open(spend), Database(queue_path(spend)))
    yield found
    found.stop()


def damaged(path):
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)


def test_the_service_knows_what_the_command_found(service, spend, ok, run):
    ok("verify", *V, "--actor", "Audit Ltd")
    ok("verify", *V, "--read-only")  # changes nothing, and so writes no history
    (found,) = service.verifications.page(10)
    assert (found.source, found.actor, found.state) == ("command line", "Audit Ltd", "passed")
    assert [check["name"] for check in found.checks] == ["ledger", "certificates", "rows", "people", "model"]
    damaged(next(spend.glob("rows.*")))
    service.hooks.create("https://93.184.215.14/hook", ["verification.failed"])
    assert run("verify", *V)[0] == 11
    assert service.verifications.newest_outcome().wrong == ["rows", "model"]
    service.run_due()
    assert len(service.database.fetch_all("SELECT * FROM deliveries")) == 1
    damaged(next(spend.glob("blueprint.*")))
    assert run("verify", *V)[0] == 7
    assert "blueprint" in service.verifications.newest_outcome().reason


def test_a_history_that_cannot_be_written_changes_nothing(service, spend, run):
    service.database.execute("PRAGMA user_version=1")
    code, out, err = run("verify", *V)
    assert (code, out.count("ok ")) == (0, 5)
    assert "could not be written to the history" in err
