"""What somebody who is new to the command line trips over: answers tell things apart, and errors name the way out."""

import json
import os
import stat
from pathlib import Path

import pytest

from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.certificates.jws import SigningKey

from support.commands import TRAIN, V

ATTEST = ("unlearn", *V, "--attest-unknown", "--receipts", "a")
WAY_OUT = "name the key with --key, or what signs with --sign-with"
UNRECORDED = "note: the reference was not saved, because no new request was needed\n"


def kinds(out):
    """Of whom there is a receipt, and of which kind."""
    return {one["id"]: one["kind"] for one in json.loads(out)["receipts"]}


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


# --- receipts, and statements about ids that are not there


def test_statements_are_told_from_receipts(spend, ok):
    out = ok(*ATTEST, "--id", "nobody", "--id", "person-1", "--id", "no-one", "--json")
    assert kinds(out) == {"person-1": "unlearn", "nobody": "unknown", "no-one": "unknown"}
    assert (json.loads(out)["skipped"], json.loads(out)["people"]) == (2, 1)
    said = ok(*ATTEST, "--id", "nobody", "--id", "person-2").splitlines()
    receipts = said.index("1 receipt in a")
    statements = said.index("1 id is not known here and nothing was erased for it; signed statement in a")
    assert [line.split()[0] for line in (said[receipts + 1], *said[statements + 1 :])] == ["person-2", "nobody"]


def test_if_all_ids_are_unknown_the_answer_says_that_nothing_was_erased(spend, ok):
    out = ok(*ATTEST, "--id", "nobody", "--id", "no-one", "--json")
    assert (kinds(out), json.loads(out)["skipped"]) == ({"nobody": "unknown", "no-one": "unknown"}, 2)
    first, second, *rest = ok(*ATTEST, "--id", "nobody", "--id", "no-one").splitlines()
    assert first == "nothing was erased"
    assert second == "2 ids are not known here and nothing was erased for them; signed statements in a"
    assert len(rest) == 2


def test_statements_are_made_again_with_the_receipts(spend, ok, run):
    ok("unlearn", *V, "--id", "person-1")
    ledger = Path("spend.ledger").read_bytes()
    words = ("receipts", *V, "--receipts", "a", "--id", "nobody", "--id", "person-1")
    code, _, err = run(*words)
    assert (code, Path("a").exists() and os.listdir("a")) == (4, [])
    assert "--attest-unknown" in err
    assert kinds(ok(*words, "--attest-unknown", "--json")) == {"person-1": "unlearn", "nobody": "unknown"}
    assert kinds(ok(*words[:-2], "--attest-unknown", "--json")) == {"nobody": "unknown"}
    assert Path("spend.ledger").read_bytes() == ledger
    assert run(*words, "--id", "person-2", "--attest-unknown")[0] == 4  # neither erased nor unknown
    assert "--attest-unknown" in run("unlearn", *V, "--id", "nobody")[2]


def test_statements_that_were_lost_name_the_command_that_makes_them(spend, run):
    Path("spend.key").rename("away")
    code, _, err = run(*ATTEST, "--id", "nobody", "--id", "person-1")
    assert code == 14
    assert err.endswith("; expunge receipts --attest-unknown writes them again\n")


def test_receipts_are_their_owners_alone(spend, ok):
    old = os.umask(0o022)
    try:
        ok("unlearn", *V, "--id", "person-1", "--receipts", "new/out")
        Path("mine").mkdir(mode=0o755)
        ok("receipts", *V, "--id", "person-1", "--receipts", "mine")
    finally:
        os.umask(old)
    assert (mode("new/out"), mode("mine")) == (0o700, 0o755)
    assert {mode(path) for path in (*Path("new/out").iterdir(), *Path("mine").iterdir())} == {0o600}


@pytest.mark.parametrize("folder", ["file", "file/below"])
@pytest.mark.parametrize("words", [("unlearn", "--id", "person-1"), ("rectify", "corrected.csv")])
def test_receipts_go_into_a_folder(spend, run, words, folder):
    Path("file").write_text("in the way")
    code, out, err = run(*words, *V, "--receipts", folder)
    assert (code, out, err) == (2, "", f"error: --receipts: {folder} is not a folder\n")
    assert len(Vault.open("spend.vault").requests) == 1


def test_answers_name_ids_as_they_were_given(here, ok):
    ok("train", "customers.parquet", *V, *TRAIN, "--fold-case")
    given = ["PERSON-1", "Person-2", "person-1", "No-One"]
    words = [word for one in given for word in ("--id", one)]
    assert kinds(ok(*ATTEST, *words, "--json")) == dict(zip(given, ["unlearn"] * 3 + ["unknown"], strict=True))
    assert len(os.listdir("a")) == 3
    Path("more.csv").write_text("customer_id,age,visits,spend\nNeW-1,20,2,3\nnew-1,30,1,4\n")
    assert kinds(ok("add", "more.csv", *V, "--receipts", "a", "--json")) == {"NeW-1": "add"}


# --- what the caller says


@pytest.mark.parametrize("said", [("--reference", "DSR-17"), ("--actor", "privacy desk", "--reference", "DSR-17")])
def test_a_reference_that_is_not_recorded_is_told(spend, ok, run, said):
    ok("unlearn", *V, "--id", "person-1")
    for words in (("unlearn", *V, "--id", "person-1"), (*ATTEST, "--id", "nobody")):
        code, _, err = run(*words, *said)
        assert (code, err) == (0, UNRECORDED)
        assert ok(*words)
    assert run(*ATTEST, "--id", "nobody", "--reference", "two\nlines")[0] == 2
    assert "DSR-17" not in Path("spend.ledger").read_text()


def test_there_must_be_something_to_say_in_the_certificate(spend, run):
    for words in (("unlearn", *V, "--id", "person-1"), (*ATTEST, "--id", "nobody"), ("add", "more.parquet", *V)):
        code, out, err = run(*words, "--in-certificate")
        assert (code, out) == (2, "")
        assert "--in-certificate needs --reference or --actor" in err
    assert len(Vault.open("spend.vault").requests) == 1


# --- keys that are elsewhere


def test_a_key_that_is_not_there_comes_with_the_way_out(spend, ok, run):
    Path("spend.key").rename("away")
    assert f"done, not certified: spend.key is missing: {WAY_OUT}" in run("unlearn", *V, "--id", "person-1")[2]
    assert f"there is no key to sign with: spend.key is missing: {WAY_OUT}" in run("head", *V)[2]
    Path("other").write_bytes(SigningKey.generate().pem())
    old = Path("away").read_bytes()
    ok("key", *V, "--new", "--key", "other")
    Path("away").write_bytes(old)
    err = run("head", *V, "--key", "away")[2]
    assert "away is not the key that signs for this vault now: " in err
    assert WAY_OUT in err


def test_training_with_a_key_that_a_program_holds_asks_for_its_public_half(here, run):
    code, _, err = run("train", "customers.parquet", *V, *TRAIN, "--sign-with", "cat")
    assert (code, err) == (2, "error: name the public half of the key that --sign-with holds with --public-key\n")
    assert not Path("spend.vault").exists()


# --- checking


def test_a_check_without_a_thumbprint_says_what_is_left_to_compare(spend, ok):
    ok("unlearn", *V, "--id", "person-1", "--receipts", "a")
    [file] = Path("a").iterdir()
    words = ("certificate", "check", "--receipt", file, "--id", "person-1", "--public-key", "spend.pub")
    last = "anyone can create a key: compare the thumbprint above with one that you know from elsewhere"
    said = ok(*words)
    assert said.splitlines()[-1] == last
    [name] = json.loads(ok("key", *V, "--json"))["keys"]
    assert name in said
    assert last not in ok(*words, "--thumbprint", name)
    assert json.loads(ok(*words, "--json"))


@pytest.mark.parametrize("words", [("show",), ("check",), ("check", "--id", "person-1")])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_receipt_that_is_taken_for_a_certificate_is_told(spend, ok, run, words, more):
    ok("unlearn", *V, "--id", "person-1", "--receipts", "a")
    [file] = Path("a").iterdir()
    code, out, err = run("certificate", words[0], file, *words[1:], *more)
    assert (code, out) == (13, "")
    assert f"this is a receipt: check it with --receipt {file} --id ID" in err


# --- what the system refuses


@pytest.mark.parametrize("words", [("unlearn", "--ids-from", "none"), ("readmit", "--ids-from", "none")])
def test_a_refusal_of_the_system_says_that_nothing_was_changed(spend, run, words):
    code, out, err = run(*words, *V)
    assert (code, out) == (1, "")
    assert err.endswith("; nothing was changed\n")
    code, _, err = run("find", *V, "--ids-from", "none")
    assert (code, err) == (1, "error: none: No such file or directory\n")


@pytest.mark.parametrize("words", [("find", "--id", "person-1"), ("verify",)])
def test_who_may_not_lock_is_told_how_to_look(spend, run, monkeypatch, words):
    there = files.system.open

    def refused(path, flags, *more):
        if path.name == "spend.ledger" and flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(13, "Permission denied", str(path))
        return there(path, flags, *more)

    monkeypatch.setattr(files.system, "open", refused)
    code, _, err = run(*words, *V)
    assert code == 1
    assert err.endswith("spend.ledger: Permission denied; with --read-only nothing needs to be written\n")
    assert run(*words, *V, "--read-only")[0] == 0
