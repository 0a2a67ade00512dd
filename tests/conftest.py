import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "expunge", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("expunge")


@pytest.fixture(scope="module")
def unsynced():
    """Vaults without the wait for the disk: what these tests end is never the machine."""
    from expunge.vault.disk import files

    class Unsynced(files.System):
        def sync(self, fd):
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "system", Unsynced())
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)
