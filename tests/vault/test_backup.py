"""Backups are consistent whatever is asked of the vault meanwhile, and a restore brings nobody back who was erased."""

import hashlib
import json
import os
import shutil
import stat
import threading

import numpy as np
import pytest

from expunge.errors import ErasedId, InvalidFile, InvalidSetting, MissingData, VaultBusy
from expunge.saving import files, staging
from expunge.vault import Backup, Vault, backup
from expunge.vault.ledger import index
from expunge.vault.requests import REQUEST_TYPES, Request
from expunge.vault.requests import request as requests

from support.disks import Crash, Ending, used
from support.sampling import sampled
from support.vaults import bits, damaged, everything, made, people, put_back, random_table

PROBE = np.zeros((1, 2))


def shown(vault):
    """All that can be told of a vault."""
    held = [(one.state, one.rows, one.request) for one in vault.find([*dict.fromkeys(people()), "new-1", "new-2"])]
    return bits(vault), held, [(one.number, one.kind, one.certificate) for one in vault.requests]


def restored(saved, tmp_path, name="r", **options):
    """A backup put back in a place of its own, where nothing is."""
    place = tmp_path / name
    place.mkdir()
    Vault.restore(saved, place / "v.vault", **{"nothing_erased_since": True} | options)
    vault = Vault.open(place / "v.vault")
    verdict = vault.verify()
    assert verdict.ok, verdict
    return vault


def lose(vault, *but):
    """Remove all that belongs to a vault, except for parts of it."""
    places = vault.places
    for place in (places.vault, places.ledger, places.key, places.public, places.certificates, places.leaves):
        if place.suffix in but or not place.exists():
            continue
        shutil.rmtree(place) if place.is_dir() else place.unlink()


ASKED = {
    "nothing": lambda vault: None,
    "unlearn": lambda vault: vault.unlearn(["person-2", "person-3"]),
    "rectify": lambda vault: vault.rectify(random_table(["person-4", "person-4", "person-5"], seed=2)),
    "add": lambda vault: vault.add(random_table(["new-1", "new-2", "person-6"], seed=1)),
    "readmit": lambda vault: vault.readmit(["person-1"]),
    "rebound": lambda vault: vault.rebound({"x0": (-2, 2)}),
    "replace": lambda vault: made(vault.places.vault, random_table(people(), seed=9), replace=True, skip_erased=True),
    "several": lambda vault: [ASKED[kind](vault) for kind in ("rectify", "unlearn", "readmit", "add", "rebound")],
}


@pytest.fixture
def vault(tmp_path):
    vault = made(tmp_path / "v.vault")
    vault.unlearn(["person-1", "person-7"])
    return vault


def test_a_backup_is_the_vault_for_its_owner_alone(vault, tmp_path):
    before = everything(vault.places.vault)
    saved = vault.backup(tmp_path / "saved")
    assert everything(vault.places.vault) == before
    assert (saved.request, saved.with_key, saved) == (2, False, Backup.read(tmp_path / "saved"))
    for path in (tmp_path / "saved", *(tmp_path / "saved").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert not [path for path in (tmp_path / "saved").rglob("*") if "key" in path.name]
    back = restored(tmp_path / "saved", tmp_path)
    assert shown(back) == shown(vault)
    for name, content in everything(vault.places.vault).items():
        assert name.endswith(".key") or everything(back.places.vault)[name] == content


def test_the_key_is_in_it_if_it_is_asked_for(vault, tmp_path):
    saved = vault.backup(tmp_path / "saved", with_key=True)
    assert (tmp_path / "saved" / "key").read_bytes() == vault.places.key.read_bytes()
    assert saved.with_key
    assert restored(tmp_path / "saved", tmp_path).unlearn(["person-2"]).certificate
    vault.places.key.unlink()
    with pytest.raises(InvalidSetting, match="the key is elsewhere"):
        Vault.open(vault.places.vault).backup(tmp_path / "other", with_key=True)


@pytest.mark.parametrize("kind", ASKED)
@sampled("every", 4, 1)
def test_what_is_asked_while_it_is_copied_is_in_it_whole(vault, tmp_path, monkeypatch, kind, every):
    """The request comes before one of the files is copied, in the first round, which is without the lock."""
    monkeypatch.setattr(backup, "_MAX_BYTES_UNDER_LOCK", -1)
    monkeypatch.setattr(backup, "_MAX_ROUNDS", 3)
    original, calls = backup.copy_ranges, []
    vault.backup(tmp_path / "counted")
    monkeypatch.setattr(backup, "copy_ranges", lambda *args: calls.append(1) or original(*args))
    vault.backup(tmp_path / "counted too")
    under_the_lock = 5  # live, manifest, current, identity and public key
    for at in range(0, len(calls) - under_the_lock, every):
        place = tmp_path / f"trial {at}"
        place.mkdir()
        for path in (vault.places.vault, vault.places.certificates, vault.places.leaves):
            shutil.copytree(path, place / path.name)
        for path in (vault.places.ledger, vault.places.key, vault.places.public):
            shutil.copy2(path, place / path.name)
        mine, calls[:] = Vault.open(place / "v.vault"), []

        def copied(*args, at=at, mine=mine):
            if len(calls) == at:
                ASKED[kind](Vault.open(mine.places.vault))
            calls.append(1)
            return original(*args)

        monkeypatch.setattr(backup, "copy_ranges", copied)
        saved = mine.backup(place / "saved")
        now = Vault.open(mine.places.vault)
        assert saved.request == now.newest
        assert shown(restored(place / "saved", place)) == shown(now)
        monkeypatch.setattr(backup, "copy_ranges", original)


def test_a_row_that_is_erased_while_it_is_copied_is_not_in_the_backup(tmp_path, monkeypatch):
    vault, value = made(tmp_path / "v.vault"), b"\x01\x02\x03\x04\x05\x06\x07\x3f"
    rows = random_table(["secret", "other"], seed=5).to_pydict()
    rows["x0"][0] = np.frombuffer(value, dtype="<f8")[0]
    vault.add(random_table(["x"]).from_pydict(rows))
    monkeypatch.setattr(backup, "_MAX_BYTES_UNDER_LOCK", -1)
    monkeypatch.setattr(backup, "_MAX_ROUNDS", 2)
    seen, original = [], backup._VaultCopy._copy

    def copied(self, pieces):
        original(self, pieces)
        seen.append(any(value in path.read_bytes() for path in self._draft.rglob("rows.*")))
        if len(seen) == 1:
            Vault.open(vault.places.vault).unlearn(["secret"])

    monkeypatch.setattr(backup._VaultCopy, "_copy", copied)
    vault.backup(tmp_path / "saved")
    assert seen[0]
    assert not any(value in path.read_bytes() for path in (tmp_path / "saved").rglob("*") if path.is_file())


def test_backups_of_a_vault_that_is_busy_are_all_usable(vault, tmp_path, monkeypatch):
    monkeypatch.setattr(backup, "_MAX_BYTES_UNDER_LOCK", 1000)
    ended = threading.Event()

    def work():
        mine = Vault.open(vault.places.vault, wait=60)
        for k in range(1, 1000):
            if ended.is_set():
                return
            mine.add(random_table([f"new-{k}"], seed=k))
            mine.unlearn([f"new-{k}"])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        other = Vault.open(vault.places.vault, wait=60)
        for k in range(8):
            other.backup(tmp_path / f"saved {k}")
    finally:
        ended.set()
        thread.join()
    for k in range(8):
        found = restored(tmp_path / f"saved {k}", tmp_path, f"place {k}")
        assert found.newest == Backup.read(tmp_path / f"saved {k}").request


def test_an_old_copy_of_the_folder_that_is_put_back_meanwhile_begins_it_anew(vault, tmp_path, monkeypatch):
    shutil.copytree(vault.places.vault, tmp_path / "old")
    vault.rectify(random_table(["person-5"], seed=3))
    monkeypatch.setattr(backup, "_MAX_BYTES_UNDER_LOCK", -1)
    monkeypatch.setattr(backup, "_MAX_ROUNDS", 3)
    original, done = backup._VaultCopy._copy, []

    def copied(self, pieces):
        original(self, pieces)
        if not done:
            done.append(1)
            put_back(tmp_path / "old", vault.places.vault)

    monkeypatch.setattr(backup._VaultCopy, "_copy", copied)
    vault.backup(tmp_path / "saved")
    assert shown(restored(tmp_path / "saved", tmp_path)) == shown(Vault.open(vault.places.vault))


def test_every_request_says_what_it_overwrites_in_place():
    """But for one that adds, whose entries are new, and those after which a backup begins anew."""
    overwriting = {kind for kind, one in REQUEST_TYPES.items() if one.overwrite is not Request.overwrite}
    telling = {kind for kind, one in REQUEST_TYPES.items() if one.touched_entries is not Request.touched_entries}
    assert overwriting - {"add", "train", "restore"} == telling


def test_lists_are_part_of_it(vault, tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "MAX_INLINE_ENTRIES", 0)
    vault.unlearn(["person-2", "person-3"])
    vault.backup(tmp_path / "saved")
    assert shown(restored(tmp_path / "saved", tmp_path)) == shown(vault)
    vault.unlearn(["person-4"])
    lose(vault, ".ledger", ".key", ".certificates", ".leaves")
    Vault.restore(tmp_path / "saved", vault.places.vault)
    back = Vault.open(vault.places.vault)
    assert back.verify().ok
    assert [one.state for one in back.find(["person-2", "person-4", "person-5"])] == ["erased", "erased", "present"]


# Where it cannot be made


def test_a_place_that_is_taken_or_part_of_the_vault_is_refused(vault, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "way").symlink_to(vault.places.vault)
    for name, match in (
        ("there", "already exists"),
        ("link", "already exists"),
        ("no/where", "is not a folder"),
        ("v.vault/saved", "inside the vault"),
        ("way/saved", "inside the vault"),
        ("v.certificates/saved", "inside the vault"),
    ):
        before = sorted(map(str, tmp_path.rglob("*")))
        with pytest.raises(InvalidSetting, match=match):
            vault.backup(tmp_path / name)
        assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_a_disk_without_room_is_told_before_anything_is_copied(vault, tmp_path, monkeypatch):
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    before = sorted(map(str, tmp_path.rglob("*")))
    with pytest.raises(OSError, match="not enough space: .* bytes are needed and 1,000 are free"):
        vault.backup(tmp_path / "saved")
    assert sorted(map(str, tmp_path.rglob("*"))) == before


@pytest.mark.parametrize("at", [0, 3, 9])
def test_ctrl_c_leaves_nothing(vault, tmp_path, monkeypatch, at):
    calls, original = [], backup.copy_ranges

    def copied(*args):
        calls.append(1)
        if len(calls) > at:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(backup, "copy_ranges", copied)
    before = sorted(map(str, tmp_path.rglob("*")))
    with pytest.raises(KeyboardInterrupt):
        vault.backup(tmp_path / "saved")
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_what_a_killed_backup_left_is_wiped_by_the_next_and_two_at_once_are_refused(vault, tmp_path):
    with pytest.raises(Crash), used(Ending(25, changes=True)):
        vault.backup(tmp_path / "saved")
    assert (tmp_path / ".saved.partial").exists()
    assert not (tmp_path / "saved").exists()
    with staging.open_staging_folder(tmp_path / ".saved.partial"), pytest.raises(VaultBusy, match="another process"):
        Vault.open(vault.places.vault).backup(tmp_path / "saved")
    Vault.open(vault.places.vault).backup(tmp_path / "saved")
    assert not (tmp_path / ".saved.partial").exists()


def test_a_vault_that_is_damaged_is_not_backed_up(vault, tmp_path):
    rows = vault.places.vault / "rows.1.0"
    damaged(rows, rows.stat().st_size // 2, 3)
    with pytest.raises(InvalidFile, match="is wrong: .* fail their checksum"):
        Vault.open(vault.places.vault).backup(tmp_path / "saved")
    assert not [path for path in tmp_path.iterdir() if "saved" in path.name]


# Restoring


def test_a_newer_ledger_stays_and_tells_who_was_erased_since(vault, tmp_path):
    vault.backup(tmp_path / "saved")
    gone = vault.unlearn(["person-2"])
    vault.readmit(["person-1"])
    lose(vault, ".ledger", ".key", ".certificates", ".leaves", ".pub")
    ledger = vault.places.ledger.read_bytes()
    done = Vault.restore(tmp_path / "saved", vault.places.vault)
    assert (done.ledger_kept, done.backup.request, done.request) == (True, 2, 5)
    assert "copy from request 2" in done.notes[0]
    assert vault.places.ledger.read_bytes().startswith(ledger)
    back = Vault.open(vault.places.vault)
    assert back.verify().ok
    assert back.unlearn(["person-2"]).certificate == gone.certificate
    assert [one.state for one in back.find(["person-1", "person-2", "person-3"])] == ["unknown", "erased", "present"]


def test_the_index_of_the_ledger_is_not_kept(vault, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "CHECKPOINT_STEP_BYTES", 1)
    vault.unlearn(["person-2"])
    assert vault.places.index.is_dir()
    saved = vault.backup(tmp_path / "saved")
    assert not [name for name in saved.files if "index" in name or "checkpoint" in name]
    before = vault.places.index / "checkpoint"
    content = before.read_bytes()
    lose(vault, ".key")
    Vault.restore(tmp_path / "saved", vault.places.vault, erased=["person-3"])
    assert not before.exists() or before.read_bytes() != content
    assert Vault.open(vault.places.vault).verify().ok


def test_without_a_ledger_it_wants_to_know_who_was_erased_since(vault, tmp_path):
    vault.backup(tmp_path / "saved", with_key=True)
    vault.unlearn(["person-2", "person-3"])
    vault.add(random_table(["new-1"], seed=1))
    vault.unlearn(["new-1"])
    lose(vault)
    before = sorted(map(str, tmp_path.rglob("*")))
    with pytest.raises(InvalidSetting, match="--erased FILE.*--nothing-erased-since"):
        Vault.restore(tmp_path / "saved", vault.places.vault)
    with pytest.raises(InvalidSetting, match="contradict each other"):
        Vault.restore(tmp_path / "saved", vault.places.vault, erased=["a"], nothing_erased_since=True)
    assert sorted(map(str, tmp_path.rglob("*"))) == before
    erased = ["person-2", "person-3", "new-1", "person-1", "person-2"]
    done = Vault.restore(tmp_path / "saved", vault.places.vault, erased=erased, actor="privacy desk")
    assert (done.rows, done.people, done.unseen, done.ledger_kept) == (3, 2, 1, False)
    back = Vault.open(vault.places.vault)
    assert back.verify().ok
    assert [one.state for one in back.find(erased)] == ["erased"] * 5
    assert {(one.reference, one.actor) for request in back.requests[2:] for one in request.callers} == {
        ("restored from a backup of request 2", "privacy desk")
    }
    assert all(one.state == "certified" for one in back.requests)
    with pytest.raises(ErasedId):
        back.add(random_table(["new-1"], seed=1))


def test_ids_that_are_nearly_those_of_people_in_the_backup_are_told(vault, tmp_path):
    vault.backup(tmp_path / "saved", with_key=True)
    lose(vault)
    done = Vault.restore(tmp_path / "saved", vault.places.vault, erased=["PERSON-2", "person-3", "stranger"])
    assert (done.people, done.unseen) == (1, 2)
    (note,) = [text for text in done.notes if "a similar id for 1 of" in text]
    assert "person" not in note.lower()
    assert Vault.open(vault.places.vault).find(["person-2"])[0].state == "present"


def test_a_ledger_that_is_older_than_the_backup_is_replaced_and_tells_nothing(vault, tmp_path):
    old = vault.places.ledger.read_bytes()
    vault.unlearn(["person-2"])
    vault.backup(tmp_path / "saved")
    lose(vault)
    vault.places.ledger.write_bytes(old)
    vault.places.ledger.chmod(0o600)
    with pytest.raises(InvalidSetting, match="is lost"):
        Vault.restore(tmp_path / "saved", vault.places.vault)
    assert vault.places.ledger.read_bytes() == old
    done = Vault.restore(tmp_path / "saved", vault.places.vault, nothing_erased_since=True)
    assert not done.ledger_kept
    assert Vault.open(vault.places.vault).verify().ok


def test_two_stories_of_one_vault_are_not_mixed(vault, tmp_path):
    vault.backup(tmp_path / "first")
    twin = restored(tmp_path / "first", tmp_path, key=vault.places.key)
    twin.unlearn(["person-2"])
    twin.backup(tmp_path / "twin")
    vault.unlearn(["person-3"])
    lose(vault, ".ledger")
    ledger = vault.places.ledger.read_bytes()
    with pytest.raises(InvalidFile, match="contradict each other"):
        Vault.restore(tmp_path / "twin", vault.places.vault, erased=["person-3"])
    made(tmp_path / "other.vault").backup(tmp_path / "other")
    with pytest.raises(InvalidFile, match="belong to different vaults"):
        Vault.restore(tmp_path / "other", vault.places.vault, nothing_erased_since=True)
    assert vault.places.ledger.read_bytes() == ledger
    assert not vault.places.vault.exists()


def test_a_vault_that_is_there_is_not_replaced(vault, tmp_path):
    vault.backup(tmp_path / "saved")
    before = everything(vault.places.vault)
    with pytest.raises(InvalidSetting, match="already exists.*move it away"):
        Vault.restore(tmp_path / "saved", vault.places.vault)
    assert everything(vault.places.vault) == before


def test_a_backup_from_before_a_training_is_refused(vault, tmp_path):
    vault.backup(tmp_path / "saved")
    ASKED["replace"](vault)
    lose(vault, ".ledger", ".key")
    with pytest.raises(InvalidFile, match="before the newest training"):
        Vault.restore(tmp_path / "saved", vault.places.vault)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".restoring"]


def test_certificates_that_tell_of_later_requests_are_not_ignored(vault, tmp_path):
    vault.backup(tmp_path / "saved")
    vault.unlearn(["person-2"])
    lose(vault, ".certificates")
    with pytest.raises(InvalidFile, match="certificates of 1 requests after request 2"):
        Vault.restore(tmp_path / "saved", vault.places.vault, nothing_erased_since=True)


@sampled("every", 5, 1)
def test_a_damaged_backup_is_refused_and_nothing_is_put_in_place(vault, tmp_path, every):
    saved = vault.backup(tmp_path / "saved")
    (tmp_path / "place").mkdir()
    for name in [*sorted(saved.files), "backup.json"][::every]:
        path = tmp_path / "saved" / name
        content = path.read_bytes()
        if not content:
            continue
        for k, bad in enumerate((content[:-1], content + b"x", bytes([content[0] ^ 1]) + content[1:])):
            path.write_bytes(bad)
            with pytest.raises(InvalidFile, match="damaged|not of a backup"):
                Vault.restore(tmp_path / "saved", tmp_path / "place" / "v.vault", nothing_erased_since=True)
            assert os.listdir(tmp_path / "place") == [], (name, k)
        path.unlink()
        with pytest.raises((MissingData, FileNotFoundError)):
            Vault.restore(tmp_path / "saved", tmp_path / "place" / "v.vault", nothing_erased_since=True)
        path.write_bytes(content)
    restored(tmp_path / "saved", tmp_path)


@pytest.mark.parametrize(
    "name", ["../evil", "vault/../../evil", "/evil", "vault/", "certificates/x", "other", "lists/"]
)
def test_a_manifest_that_names_other_files_is_refused(vault, tmp_path, name):
    saved = vault.backup(tmp_path / "saved")
    bad = Backup(saved.path, saved.vault, saved.request, saved.time, False, {**saved.files, name: (0, "")})
    (tmp_path / "saved" / "backup.json").write_bytes(bad.to_bytes())
    with pytest.raises(InvalidFile, match=r"backup\.json is damaged"):
        Backup.read(tmp_path / "saved")


def test_what_is_no_backup_or_of_another_version_is_told(vault, tmp_path):
    with pytest.raises(MissingData, match="no backup at"):
        Vault.restore(tmp_path / "nothing", tmp_path / "r.vault")
    vault.backup(tmp_path / "saved")
    path = tmp_path / "saved" / "backup.json"
    content = json.loads(path.read_bytes()) | {"version": 2}
    del content["sum"]
    path.write_bytes(
        backup._canonical_json({**content, "sum": hashlib.sha256(backup._canonical_json(content)).hexdigest()})
    )
    with pytest.raises(InvalidFile, match="this release reads version 1 only"):
        Backup.read(tmp_path / "saved")


def test_links_in_a_backup_are_not_followed(vault, tmp_path):
    vault.backup(tmp_path / "saved")
    ledger = tmp_path / "saved" / "ledger"
    ledger.rename(tmp_path / "elsewhere")
    ledger.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidFile, match="not a plain file"):
        Vault.restore(tmp_path / "saved", tmp_path / "r.vault", nothing_erased_since=True)


def test_predictions_of_a_restored_vault_are_those_without_the_erased(vault, tmp_path):
    vault.backup(tmp_path / "saved")
    vault.unlearn(["person-2"])
    expected = vault.predict(PROBE)
    back = restored(tmp_path / "saved", tmp_path, nothing_erased_since=False, erased=["person-2"])
    assert back.predict(PROBE) == expected
    assert bits(back) == bits(vault)


def test_files_are_copied_whatever_their_length(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "COPY_CHUNK_BYTES", 7)
    for size in (0, 1, 6, 7, 8, 14, 50):
        (tmp_path / "a").write_bytes(bytes(range(size)))
        target = tmp_path / f"b{size}"
        assert staging.copy_ranges(tmp_path / "a", target, [(0, size)]) == size
        assert target.read_bytes() == bytes(range(size))
        assert staging.sync_and_hash(target)[0] == size
        staging.copy_verified(target, tmp_path / f"c{size}", *staging.sync_and_hash(target))
        assert files.read(tmp_path / f"c{size}") == bytes(range(size))
