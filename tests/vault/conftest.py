import shutil

import pytest

from expunge.vault import Vault

from support.disks import Unsynced, used
from support.planning import quick_plans
from support.tampering import WHO, state, with_a_past
from support.vaults import duplicate, made


@pytest.fixture(scope="module", autouse=True)
def _unsynced():
    """No wait for the disk: what these tests end is never the machine."""
    with used(Unsynced()):
        yield


@pytest.fixture(scope="module", autouse=True)
def _quick_plans():
    """Vaults choose their settings in a millisecond."""
    with quick_plans():
        yield


@pytest.fixture
def vault(tmp_path):
    """A vault of 20 people."""
    return made(tmp_path / "v.vault")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A vault with a past; copy before use."""
    return with_a_past(tmp_path_factory.mktemp("original") / "v.vault")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another vault, made with the same seed from a table of the same shape and ids."""
    return with_a_past(tmp_path_factory.mktemp("other") / "v.vault", seed=7)


@pytest.fixture(scope="module")
def expected(original, tmp_path_factory):
    """What shows of the vault once somebody was erased."""
    vault = Vault.open(duplicate(original, tmp_path_factory.mktemp("expected")))
    vault.unlearn([WHO])
    assert vault.verify().ok
    return state(vault)


@pytest.fixture
def copies(original, tmp_path):
    """Fresh copies of the vault, one after another."""

    def fresh():
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return duplicate(original, tmp_path / "copy")

    return fresh
