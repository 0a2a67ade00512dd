"""A vault among others: what is not ours, or others can change, is refused, and no link is followed."""

import os
import shutil
import subprocess

import numpy as np
import pytest

from expunge.errors import InvalidFile
from expunge.saving import files
from expunge.saving.ownership import ExternalKeyPath
from expunge.vault import Vault
from expunge.vault.certificates.jws import SigningKey
from expunge.vault.disk.folder import VaultPaths

from support.disks import Interrupted, used
from support.vaults import everything, made, random_table

STRANGER = 12345
PROBE = np.zeros((1, 2))
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
BESIDE = ["v.ledger", "v.key", "v.pub", "v.certificates"]


def mended(error):
    """Run the command that an error recommends."""
    command = str(error.value).rpartition(": ")[2]
    assert command.split()[0] in ("chmod", "chown"), error.value
    subprocess.run(command, shell=True, check=True)  # noqa: S602 - as somebody would who reads the message


# Before the first training


def plant(path):
    """A file or folder that somebody has put there."""
    if path.suffix in (".certificates", ".vault"):
        path.mkdir()
    elif path.suffix == ".key":
        path.write_bytes(SigningKey.generate().pem())
    elif path.suffix == ".pub":
        path.write_bytes(SigningKey.generate().public.pem())
    else:
        path.touch()
    path.chmod(0o700 if path.is_dir() else 0o600)
    return path


@pytest.mark.parametrize("way", [pytest.param("given", marks=root), "another user"])
@pytest.mark.parametrize("name", [*BESIDE, "v.vault"])
def test_what_another_user_planted_before_the_first_training_is_refused_and_left_alone(
    tmp_path, monkeypatch, name, way
):
    planted = plant(tmp_path / name)
    before = planted.read_bytes() if planted.is_file() else b""
    if way == "given":
        os.chown(planted, STRANGER, STRANGER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    with pytest.raises(InvalidFile, match=rf"{name} belongs to another user: remove it, or .*: chown"):
        made(tmp_path / "v.vault")
    assert os.listdir(tmp_path) == [name]
    assert before == (planted.read_bytes() if planted.is_file() else b"")
    planted.rmdir() if planted.is_dir() else planted.unlink()
    monkeypatch.undo()
    assert made(tmp_path / "v.vault").verify().ok


@pytest.mark.parametrize("bit", [0o020, 0o002])
@pytest.mark.parametrize("name", [*BESIDE, "v.vault"])
def test_what_others_can_write_to_before_the_first_training_is_refused(tmp_path, name, bit):
    planted = plant(tmp_path / name)
    planted.chmod(planted.stat().st_mode | bit)
    with pytest.raises(InvalidFile, match=f"{name} can be written to by others: .*chmod go-w") as error:
        made(tmp_path / "v.vault")
    assert os.listdir(tmp_path) == [name]
    mended(error)
    if name == "v.pub":
        with pytest.raises(InvalidFile, match="does not hold this vault's key: remove it"):
            made(tmp_path / "v.vault")
        planted.unlink()
    assert made(tmp_path / "v.vault").verify().ok


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", [*BESIDE, "v.vault"])
def test_a_link_that_was_planted_before_the_first_training_is_refused(tmp_path, name, there):
    target = plant(tmp_path / f"target{os.path.splitext(name)[1]}") if there else tmp_path / "nothing"
    (tmp_path / name).symlink_to(target)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(InvalidFile, match=f"{name} is a symbolic link"):
        made(tmp_path / "v.vault")
    assert sorted(os.listdir(tmp_path)) == before
    if target.is_dir():
        assert not os.listdir(target)


# A vault that is there


def parts(path):
    """The folder of a vault, all files in it, and its ledger."""
    return [path, *sorted(path.iterdir()), path.with_suffix(".ledger")]


@pytest.mark.parametrize("bit", [0o020, 0o002])
def test_what_others_can_write_to_is_refused_until_it_is_mended(vault, bit):
    path = vault.places.vault
    for k, part in enumerate(parts(path)):
        before = everything(path)
        part.chmod(part.stat().st_mode | bit)
        with pytest.raises(InvalidFile, match="can be written to by others") as error:
            asked(path)
        assert str(part) in str(error.value)
        assert everything(path) == before, part
        mended(error)
        assert Vault.open(path).predict(PROBE).shape == (1,), k
    assert asked(path).ok


def asked(path):
    """Everything is read: a retraining looks at every file."""
    verdict = Vault.open(path).verify()
    for check in verdict.checks:
        if not check.ok:
            raise InvalidFile(check.detail)
    return verdict


@root
def test_what_belongs_to_a_third_user_is_refused_in_a_vault_of_somebody_else(vault):
    path = vault.places.vault
    mine = [*parts(path), *(path.with_suffix(end) for end in (".key", ".pub", ".certificates"))]
    for part in [*mine, *path.with_suffix(".certificates").iterdir()]:
        os.chown(part, STRANGER, STRANGER)
    assert asked(path).ok  # the owner of the folder owns the vault; root may write to it
    for part in parts(path)[1:]:
        os.chown(part, STRANGER + 1, STRANGER)
        with pytest.raises(InvalidFile, match="belongs to another user") as error:
            asked(path)
        assert str(part) in str(error.value)
        os.chown(part, STRANGER, STRANGER)
    receipt = Vault.open(path).unlearn(["person-1"])
    assert (receipt.rows, receipt.certificate is not None) == (1, True)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_a_private_key_that_others_can_read_signs_nothing_and_holds_up_no_erasure(vault, mode):
    vault.places.key.chmod(mode)
    receipt = Vault.open(vault.places.vault).unlearn(["person-1"])
    assert (receipt.rows, receipt.certificate) == (1, None)
    assert f"{vault.places.key} can be " in receipt.notes[0]
    assert "chmod go" in receipt.notes[0]
    vault.places.key.chmod(0o600)
    assert [request.state for request in Vault.open(vault.places.vault).requests] == ["certified"] * 2


def planted_certificates(path, trap, tmp_path):
    """Where certificates would go if the trap worked."""
    shutil.rmtree(path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if trap == "link":
        path.symlink_to(elsewhere)
        return elsewhere
    path.mkdir()
    path.chmod(0o777)
    return path


@pytest.mark.parametrize("trap", ["link", "writable"])
def test_no_certificate_goes_where_others_led_it(vault, tmp_path, trap):
    where = planted_certificates(vault.places.certificates, trap, tmp_path)
    receipt = Vault.open(vault.places.vault).unlearn(["person-1"])
    assert (receipt.rows, receipt.path) == (1, None)
    assert receipt.certificate is not None
    assert "could not be written" in receipt.notes[0]
    assert not os.listdir(where)


def test_a_folder_that_is_swapped_for_a_link_after_it_was_checked_is_not_followed(vault, tmp_path):
    path, moved, trap = vault.places.vault, tmp_path / "moved", tmp_path / "trap"
    folder = files.VaultDir(path)
    trap.mkdir()
    (trap / "current").write_text("of somebody else")
    right = (path / "current").read_bytes()

    class Swapped(Interrupted):
        def before(self, name, *args):
            if name == "open":
                path.rename(moved)
                path.symlink_to(trap)

    with used(Swapped()):
        assert files.read(folder / "current") == right
    with pytest.raises(InvalidFile, match="follows no links"):
        files.read(folder / "current")
    with folder.hold() as held:
        assert not held


def test_a_folder_that_is_held_stays_the_one_that_was_opened_whatever_takes_its_name(vault, tmp_path):
    path, folder = vault.places.vault, files.VaultDir(vault.places.vault)
    right = (path / "current").read_bytes()
    with folder.hold() as held:
        assert held
        path.rename(tmp_path / "moved")
        path.mkdir(mode=0o700)
        (path / "current").write_bytes(b"of somebody else")
        (path / "current").chmod(0o600)
        assert files.read(folder / "current") == right
        files.put(folder / "current", b"new")
        assert "blueprint.1" in folder.names()
    assert (tmp_path / "moved" / "current").read_bytes() == b"new"
    assert files.read(folder / "current") == b"of somebody else"
    assert folder.names() == ["current"]


def test_a_vault_may_lie_in_a_folder_that_is_reached_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    vault = made(tmp_path / "link" / "v.vault")
    assert vault.unlearn(["person-1"]).path == tmp_path / "link" / "v.certificates" / "000002.jws"
    vault.predict_to(random_table(["person-2"]), tmp_path / "link" / "predictions.csv")
    assert Vault.open(tmp_path / "real" / "v.vault").verify().ok
    assert (tmp_path / "real" / "predictions.csv").read_bytes().count(b"\n") == 2


def test_a_file_that_is_not_there_is_named_in_full(vault):
    missing = files.VaultDir(vault.places.vault) / "rows.77"
    for read in (files.read, lambda path: files.overwrite(path, [])):
        with pytest.raises(FileNotFoundError) as error:
            read(missing)
        assert error.value.filename == str(missing)


@pytest.mark.parametrize("folder", ["vault", "certificates"])
def test_a_file_in_a_folder_of_a_vault_is_checked_whenever_it_is_opened(vault, folder):
    path = getattr(vault.places, folder)
    name = sorted(os.listdir(path))[0]
    file = files.VaultDir(path) / name
    with file.parent.hold():
        content = files.read(file)
        for mode, problem in ((0o620, "written to by others"), (0o602, "written to by others")):
            (path / name).chmod(mode)
            for operation in (files.read, files.wipe, lambda file: files.overwrite(file, [(0, b"x")])):
                with pytest.raises(InvalidFile, match=problem):
                    operation(file)
            (path / name).chmod(0o600)
        (path / name).rename(path / "aside")
        (path / name).symlink_to("aside")
        with pytest.raises(InvalidFile, match="follows no links"):
            files.read(file)
        assert (path / "aside").read_bytes() == content


def test_drafts_beside_a_vault_are_guarded_as_what_they_replace(tmp_path):
    places = VaultPaths.from_path(tmp_path / "v.vault")
    drafts = [path.with_name(f"{path.name}.new") for path in (places.key, places.public, places.ledger)]
    for path in (places.key, places.public, places.certificates, *drafts):
        assert path.base == places.vault
    assert drafts[0].forbidden == 0o077


# A key that was named


def named_key(folder):
    path = folder / "signing.pem"
    path.write_bytes(SigningKey.generate().pem())
    path.chmod(0o440)
    return path


def test_a_key_that_was_named_may_be_a_mounted_secret(tmp_path):
    """Links to links to a file that a group may read, and that is replaced by another link."""
    mount = tmp_path / "mount"
    for k in range(2):
        (mount / f"..{k}").mkdir(parents=True)
    key = named_key(mount / "..0")
    shutil.copy2(key, mount / "..1")
    (mount / "..data").symlink_to("..0")
    (mount / "signing.pem").symlink_to("..data/signing.pem")
    vault = made(tmp_path / "v.vault", key=mount / "signing.pem")
    (mount / "..data").unlink()
    (mount / "..data").symlink_to("..1")
    shutil.rmtree(mount / "..0")
    assert vault.unlearn(["person-1"]).certificate is not None
    assert not vault.places.key.exists()


@pytest.mark.parametrize("bit", [0o020, 0o002])
def test_a_key_that_was_named_and_that_others_can_write_to_is_refused(tmp_path, bit):
    key = named_key(tmp_path)
    key.chmod(0o400 | bit)
    with pytest.raises(InvalidFile, match="can be written to by others") as error:
        made(tmp_path / "v.vault", key=key)
    assert os.listdir(tmp_path) == [key.name]
    mended(error)
    made(tmp_path / "v.vault", key=key)


def test_a_key_that_was_named_and_belongs_to_another_user_is_refused_unless_that_is_root(tmp_path, monkeypatch):
    key = named_key(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    owner = key.stat()
    for uid, taken in ((0, True), (STRANGER, True), (STRANGER + 1, False)):
        found = os.stat_result([*owner[:4], uid, *owner[5:]])
        guarded = ExternalKeyPath(key)
        if taken:
            guarded.check(found)
        else:
            with pytest.raises(InvalidFile, match="belongs to another user"):
                guarded.check(found)


# What receipts are made of


def foreign_folder(path):
    path.mkdir()
    for request in range(1, 5):
        (path / f"{request:06}").write_bytes(b"theirs")
        os.chown(path / f"{request:06}", STRANGER, STRANGER)
    os.chown(path, STRANGER, STRANGER)


@pytest.mark.parametrize(
    "planted", [pytest.param(foreign_folder, marks=root), lambda path: path.write_bytes(b"theirs")]
)
def test_no_erasure_of_one_person_and_no_look_waits_for_leaves_that_others_planted(vault, planted):
    leaves = vault.places.leaves
    planted(leaves)
    opened = Vault.open(vault.places.vault)
    assert opened.unlearn(["person-1"]).rows == 1
    with pytest.raises(InvalidFile, match=r"v\.leaves"):
        opened.unlearn(["person-2", "person-3"])
    assert opened.unlearn(["person-2"]).rows == 2
    assert opened.verify().ok
    assert opened.find(["person-3"])[0].state == "present"
    assert all(part.read_bytes() == b"theirs" for part in ([leaves] if leaves.is_file() else leaves.iterdir()))


@root
@pytest.mark.parametrize("end", [".key.new", ".pub.new"])
def test_no_audit_waits_for_a_draft_of_a_key_that_others_planted(vault, end):
    planted = vault.places.vault.with_suffix(end)
    planted.write_bytes(b"theirs")
    planted.chmod(0o600)
    os.chown(planted, STRANGER, STRANGER)
    assert Vault.open(vault.places.vault, read_only=True).verify().ok
    assert Vault.open(vault.places.vault).unlearn(["person-1"]).certificate
    assert planted.read_bytes() == b"theirs"
