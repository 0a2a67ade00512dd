"""Receipts that a vault issues: each fits its own id and no other, and can be made again by who has the vault's key."""

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.errors import InvalidCertificate, InvalidFile, Unfinished, UnknownId
from expunge.vault import Vault
from expunge.vault.certificates.jws import load_public_keys
from expunge.vault.certificates.personal_receipts import PersonalReceipt, verify_receipt

from support.disks import ended_at
from support.sampling import examples
from support.tampering import records, rewrite
from support.vaults import everything, made, people, random_table


def keys(vault):
    return load_public_keys(vault.places.public)


def fits(vault, receipt, id_):
    """Whether a receipt, as a file, is one for this id."""
    try:
        payload = verify_receipt(PersonalReceipt.from_json(receipt.to_json()), id_, keys(vault))
    except InvalidCertificate:
        return False
    assert payload["request"] == receipt.request
    return True


REQUESTS = {
    "unlearn": lambda vault, ids: vault.unlearn(ids),
    "rectify": lambda vault, ids: vault.rectify(random_table([one for one in people() if one in ids], seed=1)),
    "add": lambda vault, ids: vault.add(random_table([*ids, *ids], seed=2)),
    "readmit": lambda vault, ids: (vault.unlearn(ids), vault.readmit(ids))[1],
}


@pytest.mark.slow
@pytest.mark.no_cover
@examples(25)
@given(kind=st.sampled_from(sorted(REQUESTS)), chosen=st.sets(st.integers(0, 19), min_size=1, max_size=8))
def test_everybody_in_a_request_gets_a_receipt_that_fits_nobody_else(tmp_path_factory, kind, chosen):
    vault = made(tmp_path_factory.mktemp("issued") / "v.vault")
    ids = [f"person-{k}" for k in sorted(chosen)]
    number = REQUESTS[kind](vault, ids).request
    receipts = vault.personal_receipts(ids, request=number)
    assert list(receipts) == ids
    for owner, receipt in receipts.items():
        assert [one for one in dict.fromkeys(people()) if fits(vault, receipt, one)] == [owner]
    others = [one for one in dict.fromkeys(people()) if one not in ids]
    if others:
        with pytest.raises(UnknownId, match=f"that request {number} was not about: {len(others)} of {len(others)}"):
            vault.personal_receipts(others, request=number)
    assert vault.personal_receipts([*others, *ids], request=number, skip_unknown=True) == receipts
    assert vault.verify().ok


def test_a_receipt_is_the_same_when_it_is_made_again_elsewhere_and_later(vault):
    vault.unlearn(["person-1", "person-2"])
    first = vault.personal_receipts(["person-1", "person-2"])
    vault.unlearn(["person-3"])
    vault.renew_key()
    again = Vault.open(vault.places.vault).personal_receipts(["person-3", "person-2", "person-1"])
    assert {one: again[one] for one in first} == first
    assert fits(vault, again["person-3"], "person-3")
    assert [receipt.request for receipt in again.values()] == [3, 2, 2]


def test_asking_again_for_an_erasure_gives_the_receipt_of_then(vault):
    vault.unlearn(["person-1"])
    vault.unlearn(["person-1", "person-2"])
    assert [r.request for r in vault.personal_receipts(["person-1", "person-2"]).values()] == [2, 3]
    with pytest.raises(UnknownId, match="that are not erased: 1 of 1, at position 1; for a receipt of another request"):
        vault.personal_receipts(["person-4"])


def test_a_request_that_is_not_certified_gives_its_receipts_later(vault, tmp_path):
    vault.places.key.rename(tmp_path / "away")
    vault.unlearn(["person-1", "person-2"])
    with pytest.raises(Unfinished, match="request 2 is not certified yet"):
        vault.personal_receipts(["person-1"])
    (tmp_path / "away").rename(vault.places.key)
    opened = Vault.open(vault.places.vault)
    assert fits(opened, opened.personal_receipts(["person-1"])["person-1"], "person-1")


def test_a_request_that_a_crash_interrupted_gives_its_receipts(vault):
    from expunge.vault.disk.folder import Folder

    ended_at(Folder, "commit", lambda: vault.unlearn(["person-1", "person-2", "person-3"]))
    opened = Vault.open(vault.places.vault)
    for owner, receipt in opened.personal_receipts(["person-1", "person-2", "person-3"]).items():
        assert fits(opened, receipt, owner)


def test_leaves_that_are_lost_or_damaged_are_told_and_nothing_else_suffers(vault):
    vault.unlearn(["person-1", "person-2"])
    (leaves,) = vault.places.leaves.iterdir()
    right = leaves.read_bytes()
    for wrong in (right[:-1], right[:32], bytes(64), right + right, b""):
        leaves.write_bytes(wrong)
        with pytest.raises(InvalidFile, match="the leaves of request 2 are damaged"):
            vault.personal_receipts(["person-1"])
    leaves.unlink()
    with pytest.raises(InvalidFile, match="is missing: without it no receipt of request 2 can be issued"):
        vault.personal_receipts(["person-1"])
    verdict = vault.verify()
    assert verdict.ok
    assert "1 of the files of leaves" in next(c.detail for c in verdict.checks if c.name == "certificates")
    assert vault.unlearn(["person-3"]).rows == 1


def test_a_certificate_that_was_forged_in_the_ledger_is_not_handed_out(vault):
    vault.unlearn(["person-1", "person-2"])
    path, forged = vault.places.vault, vault.requests[0].certificate
    said = [dict(record.body) for record in records(path)]
    for certificate in ("a.b.c", forged):
        rewrite(path, [*said, {"kind": "signature", "request": 2, "certificate": certificate}])
        with pytest.raises(InvalidFile, match="was changed: "):
            Vault.open(path).personal_receipts(["person-1"])


def test_one_person_leaves_no_leaves_and_a_request_that_fails_none_either(vault):
    vault.unlearn(["person-1"])
    assert not vault.places.leaves.exists()
    vault.unlearn(["person-2", "person-3"])
    before = everything(vault.places.vault)
    with pytest.raises(OSError, match="full"):
        _full(vault, lambda: vault.unlearn(["person-4", "person-5"]))
    assert everything(vault.places.vault) == before


def _full(vault, ask):
    """The disk is full as soon as the manifest is to be written, after the leaves."""
    from expunge.saving import files

    fill = files.SyncBatch.fill

    def fails(batch, path, *parts):
        if path.name.startswith("manifest."):
            raise OSError(28, "the disk is full")
        fill(batch, path, *parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files.SyncBatch, "fill", fails)
        ask()


def test_neither_salts_nor_receipts_nor_ids_are_kept(vault):
    vault.unlearn(["person-1", "person-2"])
    receipts = vault.personal_receipts(["person-1", "person-2"]).values()
    contents = b"".join(everything(vault.places.vault).values())
    for receipt in receipts:
        assert receipt.salt not in contents
        assert receipt.salt.hex().encode() not in contents
        assert b"person-" not in receipt.to_json().encode()
    assert b"person-" not in contents


def test_another_vault_with_the_same_rows_gives_other_receipts(vault, tmp_path):
    """Only who has the vault's key can test a guess."""
    other = made(tmp_path / "other.vault")
    for one in (vault, other):
        one.unlearn(["person-1", "person-2"])
    mine, theirs = (one.personal_receipts(["person-1"])["person-1"] for one in (vault, other))
    assert mine.salt != theirs.salt
    assert not fits(other, mine, "person-1")
    assert not fits(vault, theirs, "person-1")


def test_a_vault_that_folds_case_gives_receipts_that_do(tmp_path):
    vault = made(tmp_path / "v.vault", fold_case=True)
    vault.unlearn(["Person-1", "PERSON-2"])
    receipts = vault.personal_receipts(["person-1", "person-2"])
    for owner, receipt in receipts.items():
        assert fits(vault, receipt, owner.upper())
    assert not fits(vault, receipts["person-1"], "PERSON-2")
    assert fits(vault, vault.attest_unknown(["Nobody"])["Nobody"], "NOBODY")
    plain = made(tmp_path / "w.vault")
    plain.unlearn(["person-1"])
    assert not fits(plain, plain.personal_receipts(["person-1"])["person-1"], "Person-1")


def test_an_id_that_is_not_in_the_vault_gets_a_signed_statement(vault):
    vault.unlearn(["person-1"])
    ((owner, receipt),) = vault.attest_unknown(["nobody"]).items()
    assert owner == "nobody"
    payload = verify_receipt(receipt, "nobody", keys(vault))
    assert (payload["kind"], payload["request"], payload["rows"]) == ("unknown", 2, 0)
    assert not fits(vault, receipt, "person-1")
    assert vault.verify().ok


def test_an_older_pair_that_is_put_back_destroys_nothing_of_the_newer_one(vault):
    path = vault.places.vault
    pair = [path, vault.places.ledger]
    old, new = (path.parent / name for name in ("old", "new"))
    _kept(pair, old)
    vault.unlearn(["person-1", "person-2"])
    first = vault.personal_receipts(["person-1", "person-2"])
    _kept(pair, new)
    _put_back(pair, old)
    again = Vault.open(path)
    verdict = again.verify()
    assert [check.name for check in verdict.checks if not check.ok] == ["certificates"]
    assert "a certificate of this vault that its ledger does not know" in next(
        c.detail for c in verdict.checks if not c.ok
    )
    receipt = again.unlearn(["person-3", "person-4"])
    assert receipt.path.name.startswith("000002-")
    assert "is another certificate of request 2, and is kept" in receipt.notes[0]
    _put_back(pair, new)
    assert Vault.open(path).personal_receipts(["person-1", "person-2"]) == first
    assert vault.certificate_path(2).read_text().strip() == first["person-1"].certificate


def _kept(pair, to):
    to.mkdir()
    for part in pair:
        shutil.copytree(part, to / part.name) if part.is_dir() else shutil.copy(part, to / part.name)


def _put_back(pair, kept):
    for part in pair:
        shutil.rmtree(part) if part.is_dir() else part.unlink()
        shutil.copytree(kept / part.name, part) if (kept / part.name).is_dir() else shutil.copy(kept / part.name, part)


def test_an_old_copy_that_caught_up_still_issues_what_was_certified(vault):
    path = vault.places.vault
    shutil.copytree(path, path.parent / "copy")
    vault.unlearn(["person-1", "person-2"])
    first = vault.personal_receipts(["person-1", "person-2"])
    shutil.rmtree(path)
    shutil.copytree(path.parent / "copy", path)
    assert Vault.open(path).personal_receipts(["person-1", "person-2"]) == first
