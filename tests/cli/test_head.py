"""Heads by the command: kept outside, they show a ledger that was cut, rewritten or exchanged, and when it was kept."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from expunge.vault import certificates

from support.authority import Authority, serving
from support.commands import TRAIN, V


def kept(folder):
    """A copy of everything that belongs to the vault."""
    shutil.copytree("spend.vault", folder / "spend.vault")
    for name in ("spend.ledger", "spend.key", "spend.pub"):
        shutil.copy(name, folder / name)


def put_back(folder):
    shutil.rmtree("spend.vault")
    shutil.copytree(folder, ".", dirs_exist_ok=True)


def head_check(out):
    return next(line.split(None, 2) for line in out.splitlines() if line.split()[1] == "head")


def test_a_head_is_shown_checked_and_continued_by_every_later_ledger(spend, ok, run):
    before = Path("spend.ledger").read_bytes()
    text = ok("head", *V)
    assert Path("spend.ledger").read_bytes() == before
    Path("head.jws").write_text(text)
    ok("unlearn", *V, "--id", "person-1")
    assert "head: later.jws" in ok("head", *V, "--out", "later.jws")
    ok("add", "more.parquet", *V)
    for file, request in (("head.jws", 1), ("later.jws", 2)):
        state, _, said = head_check(ok("verify", *V, "--head", file))
        assert (state, said.split(", ")[-1]) == ("ok", f"up to request {request}")
        payload = json.loads(ok("certificate", "check", file, "--public-key", "spend.pub", "--json"))
        assert payload == json.loads(ok("certificate", "show", file, "--json"))
        lines = before if request == 1 else Path("spend.ledger").read_bytes()[: payload["bytes"]]
        assert payload["records"] == lines.count(b"\n")
        assert payload["head"] == json.loads(lines.splitlines()[-1])["hash"]
    assert json.loads(ok("head", *V, "--json"))["files"] == []
    code, _, err = run("certificate", "check", "spend.certificates/000001.jws", "--public-key", "spend.pub")
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_a_ledger_that_was_cut_rewritten_or_exchanged_does_not_continue_the_head(spend, ok, run, tmp_path):
    kept(tmp_path / "old")
    ok("unlearn", *V, "--id", "person-1")
    ok("head", *V, "--out", "head.jws")

    def refused(message):
        code, out, err = run("verify", *V, "--head", "head.jws")
        assert (code, err) == (11, "error: failed checks: head\n")
        assert message in head_check(out)[2]

    put_back(tmp_path / "old")
    shutil.rmtree("spend.certificates")  # else they tell, too
    assert ok("verify", *V)  # an old copy of folder and ledger cannot be recognised from inside
    refused("the ledger is an older copy, or records were removed")
    ok("unlearn", *V, "--id", "person-2")
    ok("unlearn", *V, "--id", "person-3")
    refused("records before it were changed")
    shutil.rmtree("spend.vault")
    shutil.rmtree("spend.certificates")  # else they are foreign
    for name in ("spend.ledger", "spend.key", "spend.pub"):
        Path(name).unlink()
    ok("train", "customers.parquet", *V, *TRAIN)
    refused("the signature was not made with this key")


def test_what_is_no_head_of_the_vault_is_refused(spend, ok, run):
    certificate = "spend.certificates/000001.jws"
    code, out, _ = run("verify", *V, "--head", certificate)
    assert (code, head_check(out)[2]) == (11, "this was signed with the key, but is not a head of a vault")
    Path("none.jws").write_text("none")
    code, out, _ = run("verify", *V, "--head", "none.jws")
    assert (code, head_check(out)[0]) == (11, "WRONG")
    assert run("verify", *V, "--head", "missing.jws")[0] == 1


def test_no_head_is_overwritten_and_none_is_made_without_a_key(spend, ok, run):
    ok("head", *V, "--out", "head.jws")
    first = Path("head.jws").read_bytes()
    assert Path("head.jws").stat().st_mode & 0o777 == 0o666 & ~umask()
    ok("unlearn", *V, "--id", "person-1")
    code, _, err = run("head", *V, "--out", "head.jws")
    assert (code, err) == (2, "error: head.jws already exists, and a head is not overwritten: name another file\n")
    Path("link.jws").symlink_to("nowhere")
    assert run("head", *V, "--out", "link.jws")[0] == 2
    assert run("head", *V, "--out", "no/head.jws")[0] == 2
    Path("spend.key").rename("away")
    code, out, err = run("head", *V, "--out", "other.jws")
    assert (code, out) == (15, "")
    assert "there is no key to sign with: spend.key is missing" in err
    assert ok("head", *V, "--key", "away")
    assert Path("head.jws").read_bytes() == first
    assert sorted(path.name for path in Path().glob("*.jws*")) == ["head.jws", "link.jws"]


def umask():
    os.umask(had := os.umask(0))
    return had


def test_a_head_is_stamped_and_the_stamp_is_checked_offline(spend, ok, run, tmp_path):
    authority, other = Authority(tmp_path / "tsa"), Authority(tmp_path / "other")
    with serving(authority.answer) as url:
        said = ok("head", *V, "--out", "head.jws", "--timestamp", url)
    assert said == "head: head.jws and head.jws.tsr\n"
    words = ["openssl", "ts", "-verify", "-data", "head.jws", "-in", "head.jws.tsr", "-CAfile", str(authority.roots)]
    assert subprocess.run(words, capture_output=True).returncode == 0
    ok("unlearn", *V, "--id", "person-1")
    stamped = ("--head-timestamp", "head.jws.tsr", "--tsa-roots")
    state, _, said = head_check(ok("verify", *V, "--head", "head.jws", *stamped, authority.roots))
    assert (state, said[-4:]) == ("ok", " UTC")
    code, out, _ = run("verify", *V, "--head", "head.jws", *stamped, other.roots)
    assert (code, head_check(out)[0]) == (11, "WRONG")
    ok("head", *V, "--out", "later.jws")
    code, out, _ = run("verify", *V, "--head", "later.jws", *stamped, authority.roots)
    assert (code, head_check(out)[2]) == (11, "the timestamp is of other data")


def test_an_authority_that_fails_leaves_no_file(spend, run):
    with serving(lambda _: (503, {}, b"")) as url:
        code, out, err = run("head", *V, "--out", "head.jws", "--timestamp", url)
    assert (code, out) == (15, "")
    assert "HTTP status 503" in err
    assert not [*Path().glob("*head*"), *Path().glob(".head*")]


def test_without_the_extra_the_error_names_it(spend, run, monkeypatch):
    name = "expunge.vault.certificates.timestamps"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(certificates, "timestamps", raising=False)
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    code, out, err = run("head", *V, "--out", "head.jws", "--timestamp", "http://localhost/")
    assert (code, out) == (1, "")
    assert err == "error: this command needs rfc3161_client: pip install 'expunge[timestamp]'\n"
    assert run("head", *V)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("head", *V, "--timestamp", "http://localhost/"),
        ("verify", *V, "--head", "h", "--head-timestamp", "h.tsr"),
        ("verify", *V, "--head", "h", "--tsa-roots", "r.pem"),
        ("verify", *V, "--head-timestamp", "h.tsr", "--tsa-roots", "r.pem"),
    ],
)
def test_options_that_need_each_other_are_a_usage_error(words, run):
    assert run(*words)[0] == 2
