"""Threads: requests that may wait for the vault's writer have threads of their own.

Routes run in a pool of 40 threads. If erasures waited in it, 40 of them, while the disk is slow or a verification has
paused the vault, would keep every prediction and every probe waiting as well.
"""

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

P = ParamSpec("P")
R = TypeVar("R")

_MOST = 100  # callers who wait; those who come after them wait without a thread
_limiter: RunVar[CapacityLimiter] = RunVar("threads that wait for the writer")


async def run_in_writers(task: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a task that may wait for the writer, without keeping anybody else from a thread."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_MOST)
        _limiter.set(limiter)
    return await to_thread.run_sync(partial(task, *args, **kwargs), limiter=limiter)
