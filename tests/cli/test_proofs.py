"""``expunge certificate check --receipt`` and ``page``: who a receipt is for, in plain words, offline."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from expunge.vault.certificates.jws import SigningKey

from support import odd
from support.personal import VAULT, changed, receipts, signed, unknown
from support.sampling import examples

KEY, STRANGER = SigningKey.generate(), SigningKey.generate()
ERASED = f"the receipt is for this id: request 2 to vault {VAULT} erased the rows of exactly this id\n"
WITH = ("--public-key", "operator.pub")
RECEIPT = ("certificate", "check", "--receipt", "receipt.json")


@pytest.fixture
def handed_out(tmp_path, monkeypatch):
    """What a person has: a receipt and the operator's public key."""
    monkeypatch.chdir(tmp_path)
    Path("operator.pub").write_bytes(STRANGER.public.pem() + KEY.public.pem())
    Path("receipt.json").write_text(receipts(KEY, ["4711", "4712", "Zo\u00eb"])[0].to_json())
    return tmp_path


def test_a_receipt_is_checked_for_an_id(handed_out, ok):
    out = ok(*RECEIPT, "--id", "4711", *WITH)
    assert re.search(r"^people +3$", out, re.MULTILINE)
    assert f"the signature is valid for operator.pub\nsigned with the key {KEY.public.thumbprint}\n{ERASED}" in out
    assert out.splitlines()[-2].startswith("This is the operator's signed statement about this vault, and no more")
    assert json.loads(ok(*RECEIPT, "--id", "4711", *WITH, "--json"))["kind"] == "unlearn"
    assert ok(*RECEIPT, "--id", " 4711 ", *WITH) == out  # blanks at the ends of an id never count
    assert ok(*RECEIPT, "--id", "4711", *WITH, "--thumbprint", KEY.public.thumbprint) == "".join(
        out.splitlines(True)[:-1]
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [("rectify", "replaced the rows of"), ("add", "added rows of"), ("readmit", "allowed exactly this id")],
)
def test_a_receipt_says_what_was_done(handed_out, ok, kind, words):
    Path("receipt.json").write_text(receipts(KEY, ["4711"], kind=kind)[0].to_json())
    assert f"request 2 to vault {VAULT} {words}" in ok(*RECEIPT, "--id", "4711", *WITH)


def test_a_statement_about_an_unknown_id_says_so(handed_out, ok):
    Path("receipt.json").write_text(unknown(KEY, "4711").to_json())
    assert f"as of request 2, vault {VAULT} had no row of exactly this id" in ok(*RECEIPT, "--id", "4711", *WITH)


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ((*RECEIPT, "--id", "4712", *WITH), 13, "not a receipt for this id"),
        ((*RECEIPT, "--id", "47 11", *WITH), 13, "not a receipt for this id"),
        ((*RECEIPT, "--id", "4711", "--public-key", "other.pub"), 13, "another key signed it"),
        ((*RECEIPT, "--id", "4711", *WITH, "--thumbprint", STRANGER.public.thumbprint), 13, "another key signed it"),
        ((*RECEIPT, "--id", "4711", *WITH, "--thumbprint", "x"), 13, "none of the public keys has this thumbprint"),
        (
            ("certificate", "check", "c.jws", *WITH, "--thumbprint", STRANGER.public.thumbprint),
            13,
            "another key signed it",
        ),
        (("certificate", "check", "c.jws", *WITH, "--thumbprint", "x"), 13, "none of the public keys"),
        (("certificate", "check", "--receipt", "c.jws", "--id", "4711", *WITH), 13, "not a receipt of a vault"),
        (("certificate", "check", "--receipt", "large", "--id", "4711", *WITH), 13, "at most 1,000,000"),
        (("certificate", "check", "--receipt", "none", "--id", "4711", *WITH), 1, "none: No such file"),
        ((*RECEIPT, "--id", "", *WITH), 3, "non-empty"),
        ((*RECEIPT, "--id", "\udcff", *WITH), 3, "UTF-8"),
        ((*RECEIPT, "--id", "4711"), 2, "--public-key"),
        ((*RECEIPT, *WITH), 2, "--receipt and --id need each other"),
        (("certificate", "check", "c.jws", "--id", "4711", *WITH), 2, "--receipt and --id need each other"),
        (("certificate", "check", "c.jws", "--receipt", "receipt.json", "--id", "4711"), 2, "give one file"),
        (("certificate", "check", *WITH), 2, "give one file"),
    ],
    ids=range(17),
)
def test_what_does_not_fit_is_refused_in_words(handed_out, run, words, code, why):
    Path("other.pub").write_bytes(STRANGER.public.pem())
    Path("large").write_bytes(b" " * (10**6 + 1))
    Path("c.jws").write_text(json.loads(Path("receipt.json").read_text())["certificate"])
    ended, out, err = run(*words)
    assert (ended, out) == (code, "")
    assert why in err
    assert "471" not in err
    assert len(err.splitlines()) == 1


def test_a_thumbprint_pins_the_key_of_a_plain_certificate(handed_out, ok):
    Path("c.jws").write_text(json.loads(Path("receipt.json").read_text())["certificate"])
    out = ok("certificate", "check", "c.jws", *WITH, "--thumbprint", KEY.public.thumbprint)
    assert out.endswith("the signature is valid for operator.pub\n")


@pytest.mark.parametrize("fields", odd.FIELDS[::4] + [{"certificate": signed(KEY, "[]")}], ids=range(13))
def test_a_malformed_receipt_is_an_error_in_words(handed_out, run, fields):
    Path("receipt.json").write_text(changed(receipts(KEY, ["4711"])[0], **fields))
    code, out, err = run(*RECEIPT, "--id", "4711", *WITH)
    assert (code, out) == (13, "")
    assert err.startswith("error: this is not a ")


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(), st.text())
def test_nothing_that_a_certificate_says_reaches_the_terminal_unescaped(handed_out, ok, one, two):
    Path("receipt.json").write_text(
        receipts(KEY, ["4711"], actor=one.encode(errors="replace").decode(), not_covered=["\x1b[2J", two.encode(
            errors="replace").decode()])[0].to_json()
    )  # fmt: skip
    out = ok(*RECEIPT, "--id", "4711", *WITH)
    assert all(line.isprintable() for line in out.split("\n"))
    assert out.count("\n") == 22
    assert ERASED in out


# The page


def test_the_page_is_printed_as_one_file(ok):
    page = ok("certificate", "page")
    assert page.isascii()
    assert page.startswith("<!doctype html>\n")
    assert page.endswith("</html>\n")
    assert json.loads(ok("certificate", "page", "--json")) == {"html": page}


def test_the_page_reaches_no_network_and_runs_its_own_script_only(ok):
    page = ok("certificate", "page")
    hashes = [
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for name in ("script", "style")
        for [text] in [re.findall(f"<{name}>(.*?)</{name}>", page, re.DOTALL)]
    ]
    script, style = hashes
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', page)
    assert policy == (
        f"default-src 'none'; script-src {script}; style-src {style}; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"https?:|//[a-z]|\bsrc=|\bhref=|[^4]url\(|fetch\(|XMLHttp|import\b|\bon[a-z]+=", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(", page)
