"""What was planted in a vault is never run, followed or removed: code, links, pipes, files of others."""

import functools
import hashlib
import json
import os
import pickle
import shutil
import signal

import numpy as np
import pytest

from expunge.errors import InvalidFile
from expunge.vault import Vault
from expunge.vault.disk.folder import Folder

from support.tampering import WHO, inside, judged, of_kind
from support.vaults import made, people, random_table


class Payload:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_pickle_in_place_of_any_file_is_never_run(original, copies, expected, tmp_path):
    mark = tmp_path / "it was run"
    plain = pickle.dumps(Payload(mark))
    objects = np.empty(1, dtype=object)
    objects[0] = Payload(mark)
    np.save(tmp_path / "o.npy", objects, allow_pickle=True)
    for payload in (plain, (tmp_path / "o.npy").read_bytes()):
        for k in range(len(inside(original))):
            path = copies()
            inside(path)[k].write_bytes(payload)
            assert judged(path, expected) == "refused", inside(original)[k].name
        for suffix in (".ledger", ".pub", ".key"):
            path = copies()
            path.with_suffix(suffix).write_bytes(payload)
            assert judged(path, expected[:5]) == "refused" if suffix == ".ledger" else _asked(path, suffix)
    pickle.loads(plain)
    assert mark.exists()  # the payload works, and was run only here


def _asked(path, suffix):
    """A key that is none holds up no erasure; the public ones are in the ledger."""
    receipt = Vault.open(path).unlearn([WHO])
    return receipt.rows == 2 and (receipt.certificate is None) == (suffix == ".key")


def plant_directory(part, secret):
    part.unlink(missing_ok=True)
    part.mkdir()


def plant_link(part, secret):
    part.unlink(missing_ok=True)
    part.symlink_to(secret)


def plant_pipe(part, secret):
    part.unlink(missing_ok=True)
    os.mkfifo(part)


@pytest.fixture
def not_forever():
    """What hangs is ended: a pipe that nobody writes to would be waited for without end."""

    def hung(*_):
        raise TimeoutError("this hangs")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


PLANTS = [plant_directory, plant_link, plant_pipe]


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_no_plain_file_is_refused_and_left_alone(original, copies, expected, tmp_path, plant, not_forever):
    secret = tmp_path / "of somebody else"
    secret.write_text("precious")
    leftovers = ["rows.99", "learner.0.99", "manifest.99", "people.99", "stage.99", "current.new"]
    parts = [*(part.name for part in inside(original)), *leftovers, "../v.ledger"]
    for name in parts:
        path = copies()
        plant(path / name, secret)
        assert judged(path, expected) == "refused", name
        assert secret.read_text() == "precious"
        if plant is plant_link:
            assert (path / name).is_symlink()
    for name in ("v.key", "v.pub"):
        path = copies()
        plant(path.parent / name, secret)
        receipt = Vault.open(path).unlearn([WHO])
        assert receipt.rows == 2
        assert (receipt.certificate is None) == (name == "v.key")  # the public ones are in the ledger
        assert secret.read_text() == "precious"


@pytest.mark.parametrize("plant", PLANTS)
def test_a_link_in_place_of_a_certificate_is_not_followed(copies, tmp_path, plant, not_forever):
    secret = tmp_path / "of somebody else"
    secret.write_text("precious")
    for name in ("v.certificates/000007.jws.new", "v.certificates/000007.jws"):
        path = copies()
        plant(path.parent / name, secret)
        receipt = Vault.open(path).unlearn([WHO])
        assert receipt.certificate is not None
        assert secret.read_text() == "precious"
        failed = [check.name for check in Vault.open(path).verify().checks if not check.ok]
        stays = plant is plant_directory and name.endswith(".jws")  # nothing that is not ours is removed: it is told
        assert failed == (["certificates"] if stays else [])


def test_a_link_to_a_copy_of_the_file_itself_is_refused_too(original, copies, expected, tmp_path):
    for part in inside(original):
        path = copies()
        target = tmp_path / "target"
        shutil.move(path / part.name, target)
        (path / part.name).symlink_to(target)
        assert judged(path, expected) == "refused"
        assert target.read_bytes() == part.read_bytes()


def test_stray_files_of_other_people_are_left_alone(copies, expected):
    path = copies()
    strays = {
        "notes.txt": b"mine",
        ".nfs0001": b"mine",
        "rows": b"mine",
        "rows.1.bak": b"mine",
        "learner.x.1": b"mine",
        "manifest": b"mine",
        "backup.1": b"mine",
    }
    for name, content in strays.items():
        (path / name).write_bytes(content)
    (path / "folder").mkdir()
    (path / "link").symlink_to(path / "notes.txt")
    assert judged(path, expected) == "harmless"
    made(path, random_table(people(), seed=3), replace=True, skip_erased=True)
    assert {name: (path / name).read_bytes() for name in strays} == strays
    assert (path / "folder").is_dir()
    assert (path / "link").is_symlink()


def test_leftovers_of_ours_are_wiped_when_the_vault_is_opened(copies, expected, tmp_path):
    path = copies()
    kept = tmp_path / "kept"
    (path / "learner.0.99").write_bytes(b"residue")
    os.link(path / "learner.0.99", kept)  # the same bytes under another name
    (path / "people.77").write_bytes(b"residue")
    assert judged(path, expected) == "harmless"
    assert not (path / "learner.0.99").exists()
    assert not (path / "people.77").exists()
    assert kept.read_bytes() == bytes(len(b"residue"))


def test_what_is_in_a_spare_page_is_wiped_when_the_vault_is_opened(original, copies, expected):
    for name in Folder(original).read_current_manifest().spares:
        path = copies()
        assert not (path / name).read_bytes()
        (path / name).write_bytes(b"residue")
        assert Vault.open(path).verify().ok
        assert not (path / name).read_bytes()
        assert judged(path, expected) == "harmless"


def test_a_spare_page_that_somebody_removed_is_made_again(original, copies, expected):
    path = copies()
    for name in Folder(original).read_current_manifest().spares:
        (path / name).unlink()
    assert judged(path, expected) == "harmless"


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_no_plain_file_is_refused_as_a_spare_page(original, copies, expected, tmp_path, plant, not_forever):
    secret = tmp_path / "of somebody else"
    secret.write_text("precious")
    for name in Folder(original).read_current_manifest().spares:
        path = copies()
        plant(path / name, secret)
        assert judged(path, expected) == "refused", name
        assert secret.read_text() == "precious"


def test_a_manifest_that_names_files_elsewhere_is_refused(copies, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("precious")
    for edit in (
        lambda content: content["schema"].update(name="../../secret"),
        lambda content: content["learners"][0].update(name=str(secret)),
        lambda content: content["learners"][0].update(name="rows.1"),  # rows.0 would be its spare page
        lambda content: content.update(page=2),
        lambda content: content["people"][0].update(name="../v.ledger"),
        lambda content: content.update(stage={"name": "../../secret", "sum": "0" * 64}),
    ):
        path = copies()
        _forge(path, edit)
        with pytest.raises(InvalidFile):
            Vault.open(path).unlearn([WHO])
        assert secret.read_text() == "precious"


def _forge(path, edit):
    """A manifest with its checksum made anew."""
    (manifest,) = of_kind(path, "manifest")
    content = json.loads(manifest.read_bytes())
    content["sum"] = ""
    edit(content)
    canonical = functools.partial(json.dumps, sort_keys=True, separators=(",", ":"))
    total = hashlib.sha256(canonical(content).encode()).hexdigest()
    manifest.write_bytes(canonical({**content, "sum": total}).encode())
