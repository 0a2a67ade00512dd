"""Receipts for people on the command line: written, named and made again, and told when they cannot be."""

import json
import os
from pathlib import Path

import pytest

from expunge.cli import terminal
from expunge.vault import Vault, issuance

V = ("--vault", "spend.vault")
CHECK = ("certificate", "check", "--public-key", "spend.pub")


def handed(out):
    """Whose receipt is in which file."""
    return {one["id"]: one["file"] for one in json.loads(out)["receipts"]}


def proves(ok, file, id_):
    return json.loads(ok(*CHECK, "--receipt", file, "--id", id_, "--json"))


def test_an_erasure_writes_a_receipt_per_person_which_only_fits_that_person(spend, ok, run):
    files = handed(ok("unlearn", *V, "--id", "person-1", "--id", "person-2", "--receipts", "out/of/here", "--json"))
    assert list(files) == ["person-1", "person-2"]
    assert sorted(map(str, Path("out/of/here").iterdir())) == sorted(files.values())
    for owner, file in files.items():
        assert "person" not in Path(file).name + Path(file).read_text()
        assert proves(ok, file, owner)["kind"] == "unlearn"
    assert run(*CHECK, "--receipt", files["person-1"], "--id", "person-2")[0] == 13
    said = ok("unlearn", *V, "--id", "person-3", "--receipts", "plain")
    assert "1 receipt in plain" in said
    assert "  person-3  000003-" in said


def test_every_request_about_people_gives_receipts(spend, ok):
    table = Path("more.csv")
    table.write_text("customer_id,age,visits,spend\nnew-1,20,2,3\nnew-2,30,1,4\nnew-1,40,5,5\n")
    kinds = {}
    for name, words in {
        "add": ("add", table),
        "rectify": ("rectify", table),
        "unlearn": ("unlearn", "--id", "new-1", "--id", "new-2"),
        "readmit": ("readmit", "--id", "new-1", "--id", "new-2"),
    }.items():
        files = handed(ok(*words, *V, "--receipts", name, "--json"))
        assert list(files) == ["new-1", "new-2"]
        kinds[name] = {proves(ok, file, owner)["kind"] for owner, file in files.items()}
    assert kinds == {name: {name} for name in kinds}


@pytest.mark.parametrize("error", [MemoryError, ImportError("lib.so: failed to map segment")])
@pytest.mark.parametrize("where", ["build_receipts", "say"])
def test_whatever_is_wrong_after_a_request_was_carried_out_its_exit_code_says_that_it_was(
    spend, run, monkeypatch, where, error
):
    def starved(*_, **__):
        raise error

    monkeypatch.setattr(*((issuance, where) if where == "build_receipts" else (terminal, where)), starved)
    code, _, err = run("unlearn", *V, "--id", "person-1", "--receipts", "out")
    assert code == 14
    assert err.startswith("error: request 2 was completed, but ")
    assert Vault.open("spend.vault").find(["person-1"])[0].state == "erased"


def test_a_second_name_that_was_planted_beside_a_receipt_is_not_wiped(spend, ok):
    (file,) = map(Path, handed(ok("unlearn", *V, "--id", "person-1", "--receipts", "out", "--json")).values())
    Path("mine").write_text("mine")
    for end in ("new", "01234567"):  # as drafts are called
        os.link("mine", file.with_name(f".{file.name}.{end}"))
    ok("receipts", *V, "--id", "person-1", "--receipts", "out")
    assert Path("mine").read_text() == "mine"


def test_a_lost_receipt_is_made_again_byte_for_byte(spend, ok, run):
    files = handed(ok("unlearn", *V, "--id", "person-1", "--id", "person-2", "--receipts", "a", "--json"))
    again = handed(ok("receipts", *V, "--id", "person-2", "--receipts", "b", "--json"))
    assert Path(again["person-2"]).read_bytes() == Path(files["person-2"]).read_bytes()
    assert Path(again["person-2"]).name == Path(files["person-2"]).name
    assert handed(ok("unlearn", *V, "--id", "person-1", "--receipts", "b", "--json")).keys() == {"person-1"}
    assert handed(ok("receipts", *V, "--id", "person-1", "--request", "2", "--receipts", "b", "--json"))
    assert run("receipts", *V, "--id", "person-3", "--receipts", "b")[0] == 4
    assert run("receipts", *V, "--id", "person-1", "--request", "1", "--receipts", "b")[0] == 2


def test_an_id_that_is_not_there_gets_a_statement_if_asked_for(spend, ok, run):
    assert run("unlearn", *V, "--id", "nobody", "--attest-unknown")[0] == 2
    files = handed(ok("unlearn", *V, "--id", "nobody", "--attest-unknown", "--receipts", "a", "--json"))
    assert proves(ok, files["nobody"], "nobody")["kind"] == "unknown"
    both = ("unlearn", *V, "--id", "nobody", "--id", "person-1", "--attest-unknown", "--receipts", "a", "--json")
    files = handed(ok(*both))
    assert {owner: proves(ok, file, owner)["kind"] for owner, file in files.items()} == {
        "person-1": "unlearn",
        "nobody": "unknown",
    }
    assert len(Vault.open("spend.vault").requests) == 2


def test_receipts_that_cannot_be_written_are_told_after_the_answer(spend, ok, run):
    Path("spend.key").rename("away")
    code, out, err = run("unlearn", *V, "--id", "person-1", "--receipts", "a")
    assert code == 14
    assert "erased 1 row of 1 person" in out
    assert "request 2 was completed, but the receipts could not be written: request 2 is not certified yet" in err
    Path("away").rename("spend.key")
    assert ok("receipts", *V, "--id", "person-1", "--receipts", "a")


def test_a_statement_takes_the_place_of_no_receipt(spend, ok):
    ok("unlearn", *V, "--id", "person-1")
    [readmitted] = handed(ok("readmit", *V, "--id", "person-1", "--receipts", "a", "--json")).values()
    words = ("unlearn", *V, "--id", "person-1", "--attest-unknown", "--receipts", "a", "--json")
    [unknown] = handed(ok(*words)).values()  # as of the request that readmitted it
    assert [proves(ok, file, "person-1")["kind"] for file in (readmitted, unknown)] == ["readmit", "unknown"]


def test_statements_that_cannot_be_signed_are_a_refusal_if_nothing_else_was_asked_for(spend, ok, run):
    Path("spend.key").rename("away")
    words = ("unlearn", *V, "--attest-unknown", "--receipts", "a", "--id", "nobody")
    code, out, err = run(*words)
    assert (code, out) == (15, "")
    assert "no key to sign with" in err
    code, out, err = run(*words, "--id", "person-1")
    assert code == 14
    assert "erased 1 row of 1 person" in out


def test_what_the_caller_says_is_in_the_log(spend, ok, run):
    ok("unlearn", *V, "--id", "person-1", "--reference", "DSR-17", "--actor", "privacy desk")
    assert "DSR-17" in ok("log", *V)
    logged = json.loads(ok("log", *V, "--json"))[-1]
    assert (logged["reference"], logged["actor"]) == ("DSR-17", "privacy desk")
    assert "DSR-17" not in ok("certificate", "show", "spend.certificates/000002.jws")
    ok("unlearn", *V, "--id", "person-2", "--reference", "DSR-18", "--in-certificate")
    assert "DSR-18" in ok("certificate", "show", "spend.certificates/000003.jws")
    code, _, err = run("unlearn", *V, "--id", "person-3", "--reference", "two\nlines")
    assert (code, err) == (2, "error: reference must be one line of text of at most 200 characters\n")


def test_the_key_is_changed_and_shown(spend, ok, run, monkeypatch):
    old = ok("key", *V, "--json")
    ok("key", *V, "--new")
    said = ok("key", *V)
    assert "signs now" in said
    assert "signed before" in said
    now = json.loads(ok("key", *V, "--json"))
    assert now["keys"][1:] == json.loads(old)["keys"]
    (change,) = now["changes"]  # who has pinned the old key learns of the new one by the word of the old
    Path("change.jws").write_text(change)
    told = ok(*CHECK, "change.jws", "--thumbprint", now["keys"][1], "--json")
    assert (json.loads(told)["key"], json.loads(told)["replaces"]) == tuple(now["keys"])
    assert run("key", *V, "--public-key", "spend.pub")[0] == 2
    monkeypatch.setitem(os.environ, "EXPUNGE_SIGN_WITH", "false")
    code, _, err = run("unlearn", *V, "--id", "person-1")
    assert code == 0
    assert "done, not certified" in err
    assert run("unlearn", *V, "--id", "person-2", "--key", "spend.key")[0] == 0  # an option wins over a variable
    assert [r.state for r in Vault.open("spend.vault").requests] == ["certified"] * 3
