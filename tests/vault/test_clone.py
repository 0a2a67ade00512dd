"""A clone is another vault with the same rows; both ledgers know of it, and neither can be taken for the other."""

import json
import os
import shutil

import numpy as np
import pytest

from expunge.errors import ErasedId, InvalidFile, InvalidSetting
from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.certificates import jws
from expunge.vault.requests import request as requests

from support.vaults import bits, damaged, everything, made, people, put_back, random_table, slots_of

PROBE = np.zeros((1, 2))
EVERYBODY = [*dict.fromkeys(people()), "new-1", "new-2"]


@pytest.fixture
def source(tmp_path):
    vault = made(tmp_path / "v.vault")
    vault.unlearn(["person-1", "person-2"])
    vault.add(random_table(["new-1", "new-2", "person-3"], seed=1))
    vault.rectify(random_table(["person-5"], seed=2))
    vault.readmit(["person-1"])
    return vault


@pytest.fixture
def clone(source, tmp_path):
    return source.clone(tmp_path / "c.vault", reference="CHG-7", actor="platform")


def test_a_clone_has_the_same_rows_and_model_and_another_name_and_key(source, clone):
    assert bits(clone) == bits(source)
    mine, theirs = slots_of(source, EVERYBODY), slots_of(clone, EVERYBODY)
    assert {one: [max(slot, -1) for slot in slots] for one, slots in mine.items()} == theirs
    assert clone.status().vault != source.status().vault
    assert not set(clone.public_keys()) & set(source.public_keys())
    assert clone.verify().ok
    assert source.verify().ok
    assert clone.predict(PROBE) == source.predict(PROBE)
    assert clone.places.key.stat().st_mode & 0o077 == 0


def test_both_ledgers_and_the_certificates_say_so(source, clone):
    status, name = clone.status(), source.status().vault
    assert (status.clone_of, source.status().clone_of) == (f"{name}/5", "")
    (first,), last = clone.requests, source.requests[-1]
    assert (first.kind, first.state, first.rows, first.people) == ("cloned", "certified", last.rows, last.people)
    assert (last.number, last.kind, last.state) == (6, "clone", "certified")
    assert {(one.reference, one.actor) for one in (*first.callers, *last.callers)} == {("CHG-7", "platform")}
    assert jws.unverified_payload(last.certificate)["clone"] == status.vault
    assert "clone_of" not in jws.unverified_payload(last.certificate)
    clone.unlearn(["person-4"])
    clone.rebound({"x0": (-2, 2)})
    made(clone.places.vault, random_table(people(), seed=9), replace=True, skip_erased=True)
    for request in Vault.open(clone.places.vault).requests:
        assert jws.unverified_payload(request.certificate)["clone_of"] == f"{name}/5"
    assert Vault.open(clone.places.vault).verify().ok


def test_a_certificate_that_does_not_say_so_fails_verification(clone):
    ledger = clone.places.ledger
    assert b'"clone_of"' in ledger.read_bytes()
    records = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert {record["kind"] for record in records if "clone_of" in record} == {"done"}
    ledger.write_bytes(ledger.read_bytes().replace(b'/5"', b'/4"'))
    with pytest.raises(InvalidFile):
        Vault.open(clone.places.vault)


def test_who_was_erased_stays_erased_and_gets_receipts_from_the_source(source, clone):
    assert clone.find(["person-2"])[0].request == 1
    assert clone.unlearn(["person-2"]).kind == "cloned"
    with pytest.raises(ErasedId):
        clone.add(random_table(["person-2"], seed=1))
    with pytest.raises(InvalidSetting, match="ask the original vault for receipts"):
        clone.personal_receipts(["person-2"])
    assert source.personal_receipts(["person-2"])
    clone.readmit(["person-2"])
    clone.add(random_table(["person-2"], seed=1))
    assert clone.verify().ok


def test_requests_to_the_one_do_not_reach_the_other(source, clone):
    before = everything(source.places.vault)
    clone.unlearn(["person-4", "new-1"])
    clone.rectify(random_table(["person-6", "person-6"], seed=3))
    clone.add(random_table(["new-9"], seed=3))
    assert everything(source.places.vault) == before
    assert clone.verify().ok
    source.unlearn(["person-8"])
    assert clone.find(["person-8"])[0].state == "present"
    assert source.verify().ok


def test_their_files_cannot_be_mixed(source, clone):
    for name in ("rows.1.0", "people.1.0"):
        mine, theirs = source.places.vault / name, clone.places.vault / name
        kept = theirs.read_bytes()
        theirs.write_bytes(mine.read_bytes()[: len(kept)].ljust(len(kept), b"\0"))
        assert not Vault.open(clone.places.vault).verify().ok
        theirs.write_bytes(kept)
    assert Vault.open(clone.places.vault).verify().ok


def test_an_old_copy_of_the_source_or_of_the_clone_catches_up(source, tmp_path):
    shutil.copytree(source.places.vault, tmp_path / "old")
    clone = source.clone(tmp_path / "c.vault")
    shutil.copytree(clone.places.vault, tmp_path / "old clone")
    clone.unlearn(["person-4"])
    put_back(tmp_path / "old clone", clone.places.vault)
    back = Vault.open(clone.places.vault)
    assert back.find(["person-4"])[0].state == "erased"
    assert back.verify().ok
    assert jws.unverified_payload(back.requests[-1].certificate)["clone_of"] == clone.status().clone_of
    put_back(tmp_path / "old", source.places.vault)
    again = Vault.open(source.places.vault)
    assert again.verify().ok
    assert [one.kind for one in again.requests][-2:] == ["clone", "restore"]


def test_a_clone_can_be_backed_up_and_cloned(clone, tmp_path):
    clone.backup(tmp_path / "saved")
    (tmp_path / "r").mkdir()
    Vault.restore(tmp_path / "saved", tmp_path / "r" / "c.vault", erased=["person-4"])
    back = Vault.open(tmp_path / "r" / "c.vault")
    assert back.verify().ok
    assert back.status().clone_of == clone.status().clone_of
    second = clone.clone(tmp_path / "d.vault")
    assert second.status().clone_of == f"{clone.status().vault}/1"
    assert second.verify().ok
    assert bits(second) == bits(clone)


def test_a_vault_with_lists_and_without_its_key_is_cloned(source, tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "MAX_INLINE_ENTRIES", 0)
    source.unlearn(["person-6", "person-7"])
    source.places.key.unlink()
    clone = Vault.open(source.places.vault).clone(tmp_path / "c.vault")
    assert clone.verify().ok
    assert clone.requests[0].state == "certified"
    assert source.requests[-1].state == "done"


def test_a_place_that_is_taken_is_refused_and_nothing_changes(source, tmp_path):
    (tmp_path / "taken.ledger").touch()
    (tmp_path / "served.queue").mkdir(mode=0o700)  # with tokens and holds of another vault
    before = everything(source.places.vault), sorted(os.listdir(tmp_path))
    for name, match in (
        ("taken.vault", "already exists"),
        ("served.vault", "already exists"),
        ("v.vault", "already exists"),
        ("no/where.vault", "is not a folder"),
        ("name", "ends in .vault"),
    ):
        with pytest.raises(InvalidSetting, match=match):
            source.clone(tmp_path / name)
        assert (everything(source.places.vault), sorted(os.listdir(tmp_path))) == before


def test_a_damaged_vault_is_not_cloned(source, tmp_path):
    rows = source.places.vault / "rows.1.0"
    damaged(rows, rows.stat().st_size // 2, 3)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(InvalidFile, match="nothing was cloned"):
        Vault.open(source.places.vault).clone(tmp_path / "c.vault")
    assert sorted(os.listdir(tmp_path)) == before
    assert [one.kind for one in source.requests].count("clone") == 0


def test_a_clone_that_cannot_be_written_is_not_recorded(source, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_all", full)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        source.clone(tmp_path / "c.vault")
    monkeypatch.undo()
    assert sorted(os.listdir(tmp_path)) == before
    assert source.requests[-1].kind == "readmit"
    assert source.clone(tmp_path / "c.vault").verify().ok
