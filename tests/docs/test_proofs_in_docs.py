"""The short checks of a receipt in docs/vault.md: the one in Python works, the one in Node is the one that is run."""

import json
import re
from pathlib import Path

import jwt
import pytest

from expunge.vault.certificates.jws import SigningKey
from expunge.vault.certificates.personal_receipts import RECEIPT_KINDS

from support.odd import FOLDED
from support.personal import changed, crowded, folding, receipts, unknown

ROOT = Path(__file__).parents[2]
KEY, STRANGER = SigningKey.generate(), SigningKey.generate()
PEM = KEY.public.pem().decode()


def section(language):
    text = (ROOT / "docs" / "vault.md").read_text().partition("\n## Proof for the person who asked\n")[2]
    [code] = re.findall(rf"^```{language}\n(.*?)^```$", text.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
    return code


@pytest.fixture
def check():
    room = {}
    exec(section("python"), room)  # noqa: S102  # the documents' own code
    return room["check"]


@pytest.mark.parametrize("size", [*range(1, 18), 1000])
def test_the_check_in_python_takes_what_is_true(check, size):
    crowd = [*map(str, range(size - 1)), "Zo\u00eb"]
    for person, receipt in list(zip(crowd, receipts(KEY, crowd), strict=True))[-20:]:
        assert check(receipt.to_json(), person, PEM)["people"] == size
    assert check(receipt.to_json(), "Zoe\u0308", PEM)["kind"] == "unlearn"


def test_the_check_in_python_takes_every_kind(check):
    for kind in RECEIPT_KINDS[:-1]:
        assert check(receipts(KEY, ["4711"], kind=kind)[0].to_json(), "4711", PEM)["kind"] == kind
    assert check(unknown(KEY, "4711").to_json(), "4711", PEM)["kind"] == "unknown"


def test_the_check_in_python_refuses_what_is_forged(check):
    good, other = receipts(KEY, ["4711", "4712", "4713"])[0], receipts(KEY, ["4712"], number=3)[0]
    unsigned = receipts(STRANGER, ["4711"], headers={"kid": KEY.public.thumbprint})[0]
    typed = receipts(KEY, ["4711"], headers={"typ": "expunge-unknown+jws"})[0]
    path = json.loads(good.to_json())["path"]
    forged = [
        unsigned.to_json(), typed.to_json(), changed(good, request=3), changed(good, index=(good.index + 1) % 3),
        changed(good, path=path[:-1]), changed(good, path=[*path, path[0]]), changed(good, salt=path[0]),
        changed(good, certificate=other.certificate), changed(good, certificate=other.certificate, request=3),
        other.to_json(),
    ]  # fmt: skip
    assert check(good.to_json(), "4711", PEM)
    for text in forged:
        with pytest.raises((AssertionError, jwt.PyJWTError)):
            check(text, "4711", PEM)
    with pytest.raises(AssertionError):
        check(good.to_json(), "4712", PEM)


@pytest.mark.parametrize(("person", "typed"), FOLDED)
def test_the_check_in_python_folds_the_case_of_ids_if_the_payload_says_so(check, person, typed):
    assert check(folding(KEY, person).to_json(), typed, PEM)["fold_case"]


def test_the_check_in_python_takes_no_more_people_than_the_certificate_counts(check):
    crowd = ["1", "2", "3", "4", "5"]
    for person, receipt in list(zip(crowd, crowded(KEY, crowd), strict=False))[1:]:
        with pytest.raises(AssertionError):
            check(receipt.to_json(), person, PEM)
        with pytest.raises(AssertionError):
            check(changed(receipt, index=-1), person, PEM)


def test_the_check_in_node_is_the_one_that_is_run():
    run = (ROOT / "tests" / "node" / "receipt.js").read_text().replace("import { readFileSync } from 'node:fs'\n", "")
    assert section("js").strip() in run
