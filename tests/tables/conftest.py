import pytest

from support.disks import Unsynced, used
from support.vaults import made


@pytest.fixture(scope="module", autouse=True)
def _unsynced():
    """Skip waiting for the disk: no test in this folder ends the machine."""
    with used(Unsynced()):
        yield


@pytest.fixture
def vault(tmp_path):
    """A vault of 20 people."""
    return made(tmp_path / "v.vault")
