import signal

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from expunge.exact.native import kernel_status

collect_ignore_glob = ["conftest.py", "*/conftest.py", "support/*"]  # no doctests there, and two share a name

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # `make test &` in a script: children would ignore Ctrl-C, too
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "expunge", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("torture", settings.get_profile("expunge"), derandomize=False, max_examples=2000)
settings.load_profile("expunge")  # `--hypothesis-profile torture` loads the other one later


def pytest_report_header():
    return f"native kernels: {kernel_status()}"


@pytest.fixture
def rng():
    return np.random.default_rng(0)
