"""Calm: workers of our own ignore Ctrl-C, which a terminal sends to them as well: who asked ends them."""

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Called by Dask in each worker as it starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
