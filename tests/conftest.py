import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "expunge", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("expunge")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
