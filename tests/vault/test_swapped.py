"""A vault that is open, and another that was put in its place: nothing is asked of the wrong one."""

import shutil

import numpy as np
import pytest

from expunge.errors import InvalidFile
from expunge.vault import Vault

from support.vaults import BESIDE, bits, duplicate, everything, made, people, random_table

PROBE = np.zeros((2, 2))
ASKED = {
    "add": lambda vault: vault.add(random_table(["new-1"], seed=5)),
    "unlearn": lambda vault: vault.unlearn(["person-1"]),
    "rectify": lambda vault: vault.rectify(random_table(["person-1"], seed=5)),
    "rebound": lambda vault: vault.rebound({"x0": (-2, 2)}),
    "readmit": lambda vault: vault.readmit(["person-3"]),
    "holds": lambda vault: vault.find(["person-1"]),
    "predict": lambda vault: vault.predict(PROBE),
    "predict_with_ids": lambda vault: vault.predict_with_ids(random_table(["person-1"])),
    "verify": lambda vault: vault.verify(),
    "status": lambda vault: vault.status(),
    "digest": lambda vault: vault.digest(),
    "requests": lambda vault: vault.requests,
    "renew_key": lambda vault: vault.renew_key(),
}


def removed(path):
    shutil.rmtree(path)
    for suffix in BESIDE:
        beside = path.with_suffix(suffix)
        shutil.rmtree(beside) if beside.is_dir() else beside.unlink(missing_ok=True)


def trained_anew(path, other):
    """An operator removes everything and trains again, on a table of the same people."""
    removed(path)
    made(path, random_table(people(), seed=9)).unlearn(["person-3"])


def exchanged(path, other):
    """Another vault, with all that belongs to it."""
    removed(path)
    duplicate(other, path.parent)


def other_folder(path, other):
    shutil.rmtree(path)
    shutil.copytree(other, path)


def other_ledger(path, other):
    shutil.copyfile(other.with_suffix(".ledger"), path.with_suffix(".ledger"))


def other_ledger_moved(path, other):
    """By a rename: the file is another one."""
    copy = shutil.copyfile(other.with_suffix(".ledger"), path.with_suffix(".moved"))
    copy.replace(path.with_suffix(".ledger"))


def other_identity(path, other):
    shutil.copyfile(other / "identity.json", path / "identity.json")


SWAPS = [trained_anew, exchanged, other_folder, other_ledger, other_ledger_moved, other_identity]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return made(tmp_path_factory.mktemp("first") / "v.vault").places.vault


@pytest.fixture(params=[False, True], ids=["just opened", "in use"])
def open_vault(request, first, tmp_path):
    """A vault with a past, whose object has everything in memory or only the model."""
    path = duplicate(first, tmp_path)
    vault = Vault.open(path)
    vault.unlearn(["person-3"])
    if request.param:
        assert vault.verify().ok
    else:
        vault = Vault.open(path)
    vault.predict(PROBE)
    return vault


@pytest.fixture(scope="module")
def other_vault(tmp_path_factory):
    """Another one; copy before use."""
    vault = made(tmp_path_factory.mktemp("other") / "v.vault", random_table(people(), seed=9))
    vault.unlearn(["person-3"])
    return vault.places.vault


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("swap", SWAPS)
def test_an_open_vault_asks_nothing_of_another_that_is_at_its_path(open_vault, other_vault, swap, asked):
    path = open_vault.places.vault
    swap(path, other_vault)
    before = everything(path)
    if swap is other_identity and asked in ("predict", "predict_with_ids", "status", "requests"):
        return  # what answers these is still this vault's own
    if swap is other_folder and asked == "requests":
        return
    with pytest.raises(InvalidFile):
        ASKED[asked](open_vault)
    assert everything(path) == before


@pytest.mark.parametrize("swap", [trained_anew, exchanged])
def test_the_message_says_to_open_it_anew_and_then_it_is_the_other_vault(open_vault, other_vault, swap):
    path = open_vault.places.vault
    swap(path, other_vault)
    for asked in (name for name in ASKED if name != "requests"):
        with pytest.raises(InvalidFile, match="now holds a different vault than .* open it again"):
            ASKED[asked](open_vault)
    again = Vault.open(path)
    expected = bits(again)
    assert again.add(random_table(["new-1"], seed=5)).request == 3
    assert again.verify().ok
    assert bits(again) != expected


def test_a_vault_that_is_put_back_is_its_own_again(open_vault, other_vault, tmp_path):
    path = open_vault.places.vault
    kept = duplicate(path, tmp_path / "kept")
    exchanged(path, other_vault)
    with pytest.raises(InvalidFile):
        open_vault.add(random_table(["new-1"], seed=5))
    exchanged(path, kept)
    assert open_vault.add(random_table(["new-1"], seed=5)).request == 3
    assert open_vault.verify().ok
