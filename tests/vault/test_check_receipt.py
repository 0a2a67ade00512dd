"""What somebody who checks calls: a receipt and a head are checked from their texts."""

import pytest

import expunge.vault
from expunge.errors import InvalidCertificate, InvalidFile
from expunge.vault import Anchor
from expunge.vault.certificates.jws import SigningKey

from support.vaults import made


def test_a_receipt_is_checked_with_the_public_keys_as_text(vault):
    vault.unlearn(["person-1", "person-2"])
    before = vault.places.public.read_bytes()
    vault.renew_key()
    pem, text = vault.places.public.read_bytes(), vault.personal_receipts(["person-1"])["person-1"].to_json()
    for receipt, keys in ((text, pem), (text.encode(), pem), (text, before)):
        assert expunge.vault.check_receipt(receipt, "person-1", keys)["kind"] == "unlearn"
    statement = vault.attest_unknown([4711])["4711"].to_json()
    assert expunge.vault.check_receipt(statement, 4711, pem)["kind"] == "unknown"


def test_a_receipt_that_does_not_fit_is_refused(vault):
    vault.unlearn(["person-1", "person-2"])
    text, pem = vault.personal_receipts(["person-1"])["person-1"].to_json(), vault.places.public.read_bytes()
    other = SigningKey.generate().public.pem()
    for receipt, person, keys in ((text, "person-2", pem), (text, "person-1", other), ("{}", "person-1", pem)):
        with pytest.raises(InvalidCertificate):
            expunge.vault.check_receipt(receipt, person, keys)
    with pytest.raises(InvalidFile, match="^public_key_pem is not a public key in PEM$"):
        expunge.vault.check_receipt(text, "person-1", b"none")


def test_a_head_is_compared_as_text_too(vault, tmp_path):
    head, other = vault.head(), made(tmp_path / "other.vault").head()
    vault.unlearn(["person-1"])
    assert vault.verify(head=head) == vault.verify(head=Anchor(head))
    assert vault.verify(head=head + "\n").ok  # as a file has it
    assert vault.verify(head=head).ok
    assert not vault.verify(head=other).ok
