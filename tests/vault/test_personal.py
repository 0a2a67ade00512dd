"""Personal receipts: they fit the person they were made for and nobody else, and anything else is refused in words."""

import base64
import hashlib
import hmac
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidCertificate, InvalidInput
from expunge.vault.certificates.commitments import Commitments, person_commitment
from expunge.vault.certificates.jws import UNKNOWN_TYPE, SigningKey, verify_statement
from expunge.vault.certificates.personal_receipts import PersonalReceipt, build_receipts, verify_receipt

from support import odd
from support.personal import OTHER_VAULT, VAULT, as_bytes, changed, payload_for, receipts, signed, texted, unknown

KEY, STRANGER = SigningKey.generate(), SigningKey.generate()
KEYS = [KEY.public]
PEOPLE = [f"person-{k}" for k in range(5)]

# Ids as a vault knows them: blanks at their ends do not count.
text_ids = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20).map(str.strip).filter(bool)
crowds = st.lists(text_ids, min_size=1, max_size=12, unique_by=as_bytes)


def shortened(value):
    return ascii(value)[:40]


def refused(receipt, person="person-1", keys=KEYS):
    with pytest.raises(InvalidCertificate) as error:
        verify_receipt(receipt, person, keys)
    assert "person-1" not in str(error.value)
    return str(error.value)


@given(st.binary(min_size=32, max_size=32), st.uuids(), st.integers(1, 2**63 - 1), text_ids)
def test_salt_and_commitment_are_those_of_the_documents(secret, vault, request, person):
    named = unicodedata.normalize("NFC", person).encode()
    inner = hmac.new(secret, b"expunge receipts", hashlib.sha256).digest()
    salt = hmac.new(inner, request.to_bytes(8, "big") + named, hashlib.sha256).digest()
    expected = hashlib.sha256(salt + vault.bytes + request.to_bytes(8, "big") + named).digest()
    of = Commitments(secret, str(vault), request)
    assert of.salt(named) == salt
    assert of.compute([named]) == [person_commitment(salt, str(vault), request, named)] == [expected]


@given(crowds)
def test_a_receipt_fits_its_person_and_nobody_else(people):
    for person, receipt in zip(people, receipts(KEY, people), strict=True):
        assert PersonalReceipt.from_json(receipt.to_json()) == receipt
        assert PersonalReceipt.from_json(receipt.to_json().encode()) == receipt
        payload = verify_receipt(receipt, person, KEYS)
        assert payload == verify_receipt(receipt, f" {person}\t", KEYS) == verify_statement(receipt.certificate, KEYS)
        assert payload["people"] == len(people)
        for other in {*people, person + " x", "somebody else"} - {person}:
            assert "not a receipt for this id" in refused(receipt, other)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 1000])
def test_a_batch_of_any_size_has_receipts_for_everybody(size):
    people = [str(k) for k in range(size)]
    for person, receipt in zip(people, receipts(KEY, people), strict=True):
        assert verify_receipt(receipt, int(person), KEYS)["people"] == size


def test_no_receipt_has_the_id_in_it():
    [receipt] = receipts(KEY, ["somebody"])
    raw = receipt.to_json() + "".join(str(_decoded(part)) for part in receipt.certificate.split(".")[:2])
    assert "somebody" not in raw


def _decoded(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_ids_are_compared_in_nfc_and_without_blanks_at_their_ends_and_nothing_else_is_changed():
    composed, split = "Zo\u00eb", "Zoe\u0308"
    [receipt] = receipts(KEY, [composed])
    for person in (composed, split, "Zo\u00eb ", " Zo\u00eb"):
        verify_receipt(receipt, person, KEYS)
    for other in ("zo\u00eb", "Zo \u00eb", "Zoe"):
        refused(receipt, other)


@pytest.mark.parametrize("person", ["", "\ud800", True, 1.0, None])
def test_what_is_no_id_is_refused(person):
    [receipt] = receipts(KEY, ["4711"])
    with pytest.raises(InvalidInput):
        verify_receipt(receipt, person, KEYS)


def test_receipts_of_ids_that_were_not_in_the_request_are_none():
    of = Commitments(b"k" * 32, VAULT, 2)
    leaves = sorted(of.compute([b"a", b"b"]))
    found = build_receipts(of, leaves, [b"b", b"c", b"a"], "x.y.z")
    assert [one is None for one in found] == [False, True, False]
    assert [one.index for one in found if one] == [leaves.index(of.compute([one])[0]) for one in (b"b", b"a")]


def test_an_unknown_id_has_a_statement_of_its_own():
    receipt = unknown(KEY, "nobody")
    assert verify_receipt(receipt, "nobody", KEYS)["kind"] == "unknown"
    refused(receipt, "person-1")
    with pytest.raises(InvalidCertificate, match="not a certificate of a vault"):
        verify_statement(receipt.certificate, KEYS)


@pytest.mark.parametrize(
    ("headers", "kind"), [({}, "unknown"), ({"typ": UNKNOWN_TYPE}, "unlearn"), ({}, "train"), ({}, None), ({}, [])]
)
def test_a_kind_that_does_not_fit_the_statement_is_refused(headers, kind):
    [receipt] = receipts(KEY, ["person-1"], headers=headers, kind=kind)
    assert "kind" in refused(receipt)


@pytest.mark.parametrize("headers", odd.HEADERS, ids=str)
def test_a_signature_under_something_else_is_refused(headers):
    [receipt] = receipts(KEY, ["person-1"], headers=headers)
    refused(receipt)


def test_another_key_another_vault_and_another_request_are_refused():
    mine = receipts(KEY, PEOPLE)[1]
    assert "another key signed it" in refused(mine, keys=[STRANGER.public])
    assert "signature" in refused(mine, keys=[])
    forged = receipts(STRANGER, PEOPLE, headers={"kid": KEY.public.thumbprint})[1]
    assert "another key signed it" in refused(forged)
    for field in ({"request": 3}, {"vault": OTHER_VAULT}):
        assert "another request" in refused(PersonalReceipt.from_json(changed(mine, **field)))
    # The certificate of another request, with receipts of its own, is not this person's.
    others = receipts(KEY, ["somebody", "else"], number=3)[0]
    assert "not a receipt for this id" in refused(others)
    grafted = changed(mine, certificate=others.certificate, request=3, index=others.index, path=[])
    assert "path" in refused(PersonalReceipt.from_json(grafted))


@given(st.integers(0, 4), st.data())
def test_a_changed_salt_index_or_path_is_refused(k, data):
    receipt = receipts(KEY, PEOPLE)[k]
    field = data.draw(st.sampled_from(["salt", "index", "path"]))
    if field == "salt":
        value = data.draw(st.binary(min_size=32, max_size=32))
    elif field == "index":
        value = data.draw(st.integers(0, 2**53 - 1))
    else:
        hashes = st.one_of(st.sampled_from(receipt.path), st.binary(min_size=32, max_size=32))
        value = tuple(data.draw(st.lists(hashes, max_size=6)))
    if value == getattr(receipt, field):
        return
    other = PersonalReceipt(**{**receipt.__dict__, field: value})
    refused(PersonalReceipt.from_json(other.to_json()), PEOPLE[k])


@pytest.mark.parametrize("field", ["salt", "certificate"])
def test_another_text_of_the_same_bytes_is_refused(field):
    text = json.loads(GOOD.to_json())[field]
    other = odd.same_bytes(text)
    assert _decoded(other.split(".")[-1]) == _decoded(text.split(".")[-1])
    with pytest.raises(InvalidCertificate):
        verify_receipt(PersonalReceipt.from_json(changed(GOOD, **{field: other})), "person-1", KEYS)


@given(st.data())
def test_a_changed_character_of_the_certificate_is_refused(data):
    [receipt] = receipts(KEY, ["person-1"])
    text = receipt.certificate
    place = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from([*"Aa0_-.=+ \n", ""]))
    other = text[:place] + put + text[place + 1 :]
    if other != text:
        refused(PersonalReceipt.from_json(changed(receipt, certificate=other)))


@pytest.mark.parametrize(("text", "by"), odd.PAYLOAD_TEXTS)
def test_a_payload_that_not_everybody_reads_alike_is_refused(text, by):
    receipt = texted(KEY, "4711", text, by)
    with pytest.raises(InvalidCertificate):
        verify_receipt(receipt, "4711", [KEY.public])


@pytest.mark.parametrize(("text", "by"), odd.TEXTS)
def test_a_file_that_not_everybody_reads_alike_is_refused(text, by):
    good = receipts(KEY, ["4711", "4712"])[0].to_json()
    assert text in good
    with pytest.raises(InvalidCertificate, match="not plain JSON"):
        PersonalReceipt.from_json(good.replace(text, by))


@pytest.mark.parametrize("says", odd.PAYLOADS, ids=shortened)
def test_an_odd_payload_is_refused_in_words(says):
    [receipt] = receipts(KEY, ["person-1"], **says)
    refused(receipt)


@pytest.mark.parametrize("payload", ["[]", "1", "", "{", '{"a": NaN}', "[" * 10**5, '{"a":' * 10**4 + "1"])
def test_a_signed_payload_that_is_no_object_is_refused(payload):
    [receipt] = receipts(KEY, ["person-1"])
    refused(PersonalReceipt.from_json(changed(receipt, certificate=signed(KEY, payload))))


GOOD = receipts(KEY, ["person-1", "person-2"])[0]


@pytest.mark.parametrize("fields", odd.FIELDS, ids=shortened)
def test_a_malformed_field_is_refused_in_words(fields):
    with pytest.raises(InvalidCertificate, match="this is not a receipt of a vault: "):
        PersonalReceipt.from_json(changed(GOOD, **fields))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(json.loads(GOOD.to_json()))), json_values)
def test_any_value_in_any_field_is_a_receipt_or_refused(field, value):
    try:
        receipt = PersonalReceipt.from_json(json.dumps({**json.loads(GOOD.to_json()), field: value}))
    except InvalidCertificate:
        return
    assert json.loads(receipt.to_json())[field] == value
    if receipt != GOOD:
        refused(receipt)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data):
    with pytest.raises(InvalidCertificate):
        PersonalReceipt.from_json(data)


@pytest.mark.parametrize("data", odd.files(GOOD.to_json()), ids=range(12))
def test_what_is_no_json_object_of_at_most_a_megabyte_is_refused(data):
    with pytest.raises(InvalidCertificate, match="this is not a receipt of a vault: "):
        PersonalReceipt.from_json(data)


def test_a_payload_with_more_people_than_leaves_does_not_fit():
    of = Commitments(b"k" * 32, VAULT, 2)
    leaves = sorted(of.compute([b"a", b"b"]))
    certificate = signed(KEY, payload_for(leaves, people=1))
    [receipt] = build_receipts(of, leaves, [b"a"], certificate)
    assert "path" in refused(receipt, "a")
