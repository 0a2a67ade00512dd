import numpy as np
import pytest
from hypothesis import HealthCheck, settings

collect_ignore_glob = ["conftest.py", "*/conftest.py", "support/*"]  # no doctests there, and two share a name

settings.register_profile(
    "expunge", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("expunge")


@pytest.fixture(scope="module")
def unsynced():
    """Vaults without the wait for the disk: what these tests end is never the machine."""
    from support import disks

    with disks.used(disks.Unsynced()):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)
