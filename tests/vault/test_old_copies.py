"""An old copy of the folder catches up with the ledger: what was erased since is erased there, too."""

import shutil

import numpy as np
import pytest

from expunge.errors import ErasedId, InvalidFile, UnknownId
from expunge.vault import Vault
from expunge.vault.disk.folder import Folder
from expunge.vault.requests import REQUEST_TYPES

from support.disks import ended_at
from support.vaults import bits, everything, made, people, put_back, random_table, slots_of


def test_an_old_copy_of_the_folder_catches_up(vault, tmp_path):
    path, copy = vault.places.vault, tmp_path / "copy"
    vault.unlearn(["person-1"])
    shutil.copytree(path, copy)
    erased = vault.unlearn(["person-2", "person-3"])
    vault.add(random_table(["new-1", "new-2", "new-2", "person-5"], seed=1))
    vault.rectify(random_table(["person-4", "person-4"], seed=2))
    vault.unlearn(["new-1"])
    vault.readmit(["person-3"])
    drawn = vault._writer.snapshot.state.drawn
    put_back(copy, path)
    old = Vault.open(path)
    (note,) = old.notes
    assert note == (
        "this folder is a copy from request 2. 5 rows that were erased or corrected since are now erased; "
        "add the corrected ones again. 3 rows added since are missing; add them again"
    )
    assert old.verify().ok
    assert [(r.number, r.kind, r.state) for r in old.requests][-1] == (8, "restore", "certified")
    assert old.requests[-1].rows == 5
    assert old._writer.snapshot.state.drawn == drawn
    found = slots_of(old, [*dict.fromkeys(people()), "new-1", "new-2"])
    assert {one: slots for one, slots in found.items() if min(slots, default=-1) < 0} == {
        "person-1": [-2],
        "person-2": [-3, -3],
        "person-3": [],
        "person-4": [],
        "new-1": [-6],
        "new-2": [],
    }
    assert old.unlearn(["person-2"]).certificate == erased.certificate
    assert old.unlearn(["new-1"]).request == 6
    for gone in ("person-3", "person-4", "new-2"):
        with pytest.raises(UnknownId):
            old.unlearn([gone])
    old.add(random_table(["person-4", "person-4", "new-2", "person-3"], seed=2))
    fresh = [slot for slots in slots_of(old, ["person-4", "new-2", "person-3"]).values() for slot in slots]
    assert min(fresh) >= drawn // 4 * 4
    assert old.verify().ok
    assert Vault.open(path).notes == ()


def test_an_object_that_is_open_notices_an_old_copy(vault, tmp_path):
    path, copy = vault.places.vault, tmp_path / "copy"
    shutil.copytree(path, copy)
    before = vault.predict(np.zeros((1, 2)))
    vault.unlearn(["person-1"])
    after = vault.predict(np.zeros((1, 2)))
    put_back(copy, path)
    assert vault.predict(np.zeros((1, 2))) == after != before
    assert "copy from request 1" in vault.notes[0]
    assert vault.verify().ok


def test_a_person_whom_two_old_copies_erase_has_one_tombstone(vault, tmp_path):
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "older")
    vault.places.key.rename(tmp_path / "away")
    vault.unlearn(["person-1"])  # not certified, so each restore below erases anew
    shutil.copytree(path, tmp_path / "newer")
    for copy in ("older", "newer"):
        put_back(tmp_path / copy, path)
        restored = Vault.open(path)
    (tombstones,) = slots_of(restored, ["person-1"]).values()
    assert set(tombstones) == {-4}
    assert restored.verify().ok


def test_somebody_whom_one_old_copy_lost_and_another_has_is_erased_there_too(vault, tmp_path):
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "first")
    vault.add(random_table(["lost", "lost-too", "other"], seed=1))
    shutil.copytree(path, tmp_path / "second")
    put_back(tmp_path / "first", path)
    vault = Vault.open(path)
    vault.add(random_table(["lost", "lost-too"], seed=1))
    erased = vault.unlearn(["lost"])
    vault.rectify(random_table(["lost-too"], seed=2))
    put_back(tmp_path / "second", path)
    vault = Vault.open(path)
    assert slots_of(vault, ["lost", "lost-too"]) == {"lost": [-erased.request], "lost-too": []}
    assert len(slots_of(vault, ["other"])["other"]) == 1
    assert vault.unlearn(["lost"]).certificate == erased.certificate
    assert vault.verify().ok


def test_who_was_readmitted_and_erased_again_stays_erased_however_often_an_old_copy_is_put_back(vault, tmp_path):
    path, copy = vault.places.vault, tmp_path / "copy"
    vault.unlearn(["person-1"])
    shutil.copytree(path, copy)
    vault.readmit(["person-1"])
    vault.add(random_table(["person-1"], seed=1))
    erased = vault.unlearn(["person-1"])
    for _ in range(3):
        put_back(copy, path)
        vault = Vault.open(path)
        assert set(slots_of(vault, ["person-1"])["person-1"]) == {-erased.request}
        assert vault.unlearn(["person-1"]).certificate == erased.certificate
        with pytest.raises(ErasedId):
            vault.add(random_table(["person-1"], seed=1))
        assert vault.verify().ok


@pytest.mark.parametrize("order", ["AC", "CA", "ACAC", "CCAAC"])
def test_who_was_readmitted_and_erased_again_stays_erased_whichever_copies_are_put_back(vault, tmp_path, order):
    """A copy from before the readmission, and one that knows of the second erasure already."""
    path = vault.places.vault
    vault.unlearn(["person-1", "person-2"])
    shutil.copytree(path, tmp_path / "A")
    vault.readmit(["person-1", "person-2"])
    vault.add(random_table(["person-1", "person-2"], seed=1))
    erased = vault.unlearn(["person-1"])
    shutil.copytree(path, tmp_path / "C")
    vault.unlearn(["person-4"])
    for name in order:
        put_back(tmp_path / name, path)
        vault = Vault.open(path)
        assert [holding.state for holding in vault.find(["person-1", "person-4"])] == ["erased", "erased"]
        assert vault.unlearn(["person-1"]).certificate == erased.certificate
        with pytest.raises(ErasedId):
            vault.add(random_table(["person-1"], seed=1))
        assert vault.find(["person-2"])[0].state == {"A": "unknown", "C": "present"}[name]
        assert vault.verify().ok


def test_rows_that_were_added_again_after_an_old_copy_are_counted_once(vault, tmp_path):
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "copy")
    for _ in range(2):
        vault.add(random_table(["new-1", "new-2"], seed=1))
        put_back(tmp_path / "copy", path)
        vault = Vault.open(path)
        assert " 2 rows added since are missing" in vault.notes[0]
        assert vault.verify().ok


@pytest.mark.parametrize("kind", ["unlearn", "rectify", "add", "readmit", "rebound", "train"])
def test_a_copy_that_was_made_half_way_through_its_newest_request_is_finished(vault, tmp_path, kind):
    path, copy = vault.places.vault, tmp_path / "copy"
    asks = {
        "unlearn": lambda: vault.unlearn(["person-1", "person-2"]),
        "rectify": lambda: vault.rectify(random_table(["person-1"], seed=1)),
        "add": lambda: vault.add(random_table(["new-1"], seed=1)),
        "readmit": lambda: vault.readmit(["person-3"]),
        "rebound": lambda: vault.rebound({"x0": (-2, 2), "y": None}),
        "train": lambda: made(path, random_table(people(), seed=1), replace=True),
    }
    vault.unlearn(["person-3"]) if kind != "train" else None
    ended_at(REQUEST_TYPES[kind], "overwrite", asks[kind])  # committed, and nothing is overwritten yet
    shutil.copytree(path, copy)
    Vault.open(path)  # does it
    expected, requests = bits(vault), len(vault.requests)
    put_back(copy, path)
    again = Vault.open(path)
    assert again.verify().ok
    assert (bits(again), len(again.requests)) == (expected, requests)
    again.unlearn(["person-4"])
    put_back(copy, path)
    assert Vault.open(path).verify().ok


def test_what_is_missing_is_told_although_the_process_that_caught_up_ended(vault, tmp_path):
    path = vault.places.vault
    shutil.copytree(path, tmp_path / "copy")
    vault.add(random_table(["new-1", "new-2"], seed=1))
    for method in ("commit", "wipe_all_but"):
        put_back(tmp_path / "copy", path)
        ended_at(Folder, method, lambda: Vault.open(path))
        assert " 2 rows added since are missing" in Vault.open(path).notes[0]
        Vault.open(path).add(random_table(["new-1", "new-2"], seed=1))


def test_a_copy_from_before_a_training_is_refused(vault, tmp_path):
    path, copy, now = vault.places.vault, tmp_path / "copy", tmp_path / "now"
    shutil.copytree(path, copy)
    made(path, random_table(people(), seed=3), replace=True)
    shutil.copytree(path, now)
    put_back(copy, path)
    before = everything(path)
    for ask in (
        lambda: Vault.open(path),
        lambda: vault.unlearn(["person-1"]),
        lambda: vault.predict(np.zeros((1, 2))),
        lambda: made(path, replace=True),
    ):
        with pytest.raises(InvalidFile, match="is older than the training that .*put a newer copy of the folder back"):
            ask()
    assert everything(path) == before
    put_back(now, path)
    assert Vault.open(path).verify().ok


@pytest.mark.parametrize("told", [True, False])
def test_an_old_copy_of_folder_and_ledger_is_told_by_the_certificates_beside_it_alone(vault, tmp_path, told):
    """Documented in docs/vault.md: keep the ledger in a safe place of its own."""
    path, old = vault.places.vault, tmp_path / "old"
    shutil.copytree(path, old)
    ledger = vault.places.ledger.read_bytes()
    vault.unlearn(["person-1"])
    put_back(old, path)
    vault.places.ledger.write_bytes(ledger)
    rolled_back = Vault.open(path)
    assert rolled_back.notes == ()
    if not told:
        vault.certificate_path(2).unlink()
    assert rolled_back.verify().ok is not told
    assert rolled_back.unlearn(["person-1"]).rows == 1  # as if it had never been asked


def test_rows_that_one_copy_had_and_the_next_has_not_are_not_counted_as_less_than_none(vault, tmp_path):
    path = vault.places.vault
    before, after, between = (tmp_path / name for name in ("before", "after", "between"))
    shutil.copytree(path, before)
    vault.add(random_table(["new-1", "new-1"], seed=1))
    shutil.copytree(path, after)
    put_back(before, path)
    Vault.open(path)
    shutil.copytree(path, between)  # without the rows that were added
    put_back(after, path)
    Vault.open(path).unlearn(["new-1"])  # here they are
    put_back(between, path)
    (note,) = Vault.open(path).notes
    assert "0 rows added since are missing" in note
    assert Vault.open(path).verify().ok
    assert [holding.state for holding in Vault.open(path).find(["new-1"])] == ["erased"]
