"""Threads: one inside BLAS, as many outside as BLAS would have used.

LAPACK's Cholesky gives different last bits on two threads than on one, and in small products BLAS threads cost more
than they gain. So everything here runs on one BLAS thread, and threads share blocks of rows instead, whose exact sums
do not depend on which thread computed them.
"""

import mmap
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from itertools import product
from typing import Any, TypeVar, cast

from .blas import scipy_linalg

T = TypeVar("T")

_BUFFER_BYTES = 2**25 + 2**16  # OpenBLAS allocates this at its first product

_COUNT_FUNCTIONS = [f"{a}openblas_get_num_threads{b}" for a, b in product(("", "scipy_"), ("", "64_", "_64"))]

_thread_state = threading.local()  # in a thread of `spread`: the event that stops it
_lock = threading.Lock()
_holders = 0
_counts_before: list[int] = []  # thread counts of the libraries before the first holder limited them


@cache
def load_blas() -> tuple[list[Any], list[Any]]:
    """Load BLAS; return the libraries with one limit per process, and those (built with OpenMP) with one per thread.

    The first call in a process takes longer than many requests.
    """
    from threadpoolctl import ThreadpoolController  # not at import: code that only reads a model's files needs none

    if "scipy.linalg" not in sys.modules:
        _check_memory(3)  # the library itself, and the buffer that it allocates while it is loaded
    scipy_linalg()  # NumPy and SciPy each have their own BLAS, and only loaded libraries are found
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers  # takes a millisecond: do it once
    _check_memory(len(libraries))
    own = [library for library in libraries if getattr(library, "threading_layer", "") == "openmp"]
    return [library for library in libraries if library not in own], own


def _check_memory(buffers: int) -> None:
    """Refuse to continue without memory for this many buffers: OpenBLAS would retry the allocation for ever."""
    try:
        mmap.mmap(-1, max(1, buffers) * _BUFFER_BYTES).close()
    except OSError as error:
        raise MemoryError("not enough memory for the buffers of BLAS") from error


@cache
def _count_reader(library: Any) -> Callable[[], int]:
    """Return a function that reads a library's thread count: its own, if known, takes a tenth of the time."""
    if getattr(library, "internal_api", "") == "openblas" and library.threading_layer != "openmp":
        for name in _COUNT_FUNCTIONS:
            if (read := getattr(library.dynlib, name, None)) is not None:
                return cast("Callable[[], int]", read)
    return lambda: int(library.num_threads)


def _thread_counts(libraries: list[Any]) -> list[int]:
    return [_count_reader(library)() for library in libraries]


def _is_single_threaded() -> bool:
    """Return whether all of BLAS has one thread."""
    for group in load_blas():  # plain loops: every deletion calls this twice
        for library in group:
            if _count_reader(library)() > 1:
                return False
    return True


def _max_threads() -> int:
    """Return how many threads BLAS has, or had before it was limited to one."""
    if _holders:
        return max(_counts_before, default=1)
    return max((count for group in load_blas() for count in _thread_counts(group)), default=1)


def _set_threads(library: Any, count: int) -> None:
    """Set a library's thread count. Since threadpoolctl 3.8 it ignores all but one thread: take control first."""
    release = getattr(library, "clear_controlling_thread", lambda *, force: None)
    release(force=True)
    library.set_num_threads(count)
    release(force=True)


class TaskCancelled(BaseException):
    """Another thread has failed, or Ctrl-C was pressed. Only `spread` sees it."""


class one_blas_thread:  # noqa: N801 - used like a function, as contextlib.suppress is
    """Limit BLAS to one thread in a ``with`` statement. The first holder in a process sets it, the last lifts it."""

    __slots__ = ("_entered", "_mine")

    def __enter__(self) -> None:
        global _holders, _counts_before
        shared, own = load_blas()
        self._mine = _thread_counts(own) if own else []
        self._entered = False
        try:
            with _lock:
                if _holders == 0:
                    _counts_before = _thread_counts(shared) + self._mine
                _holders, self._entered = _holders + 1, True
                if _holders == 1:
                    _switch_threads(shared, _counts_before, limited=True)
            if own:
                _switch_threads(own, self._mine, limited=True)
        except BaseException:  # also Ctrl-C while the limit is being set
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        global _holders
        shared, own = load_blas()
        with _lock:
            _holders -= self._entered
            self._entered = False
            if _holders == 0:
                _switch_threads(shared, _counts_before, limited=False)
        if own:
            _switch_threads(own, self._mine, limited=False)


def run_on_one_thread(compute: Callable[..., T], *arguments: Any) -> T:
    """Compute on one BLAS thread; compute again if other code in the process lifted the limit meanwhile."""
    if not _holders and _is_single_threaded():  # then no holder, present or future, has a limit to lift
        result = compute(*arguments)
        if not _holders and _is_single_threaded():
            return result
    with one_blas_thread():
        for _ in range(100):
            result = compute(*arguments)
            shared, own = load_blas()
            if not (lifted := [library for library in shared + own if _count_reader(library)() > 1]):
                break
            for library in lifted:
                _set_threads(library, 1)
        return result


def _reset() -> None:
    """Reset the holders in a forked child: the threads that held BLAS are the parent's."""
    global _lock, _holders
    _lock = threading.Lock()
    if _holders:
        _holders = 0
        _switch_threads(load_blas()[0], _counts_before, limited=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)


def _switch_threads(libraries: list[Any], counts: list[int], *, limited: bool) -> None:
    """Limit the libraries that had several threads to one thread, or give them back what they had."""
    for library, count in zip(libraries, counts, strict=False):
        if count > 1:  # setting it takes longer than solving a small system
            _set_threads(library, 1 if limited else count)


def worker_count(limit: int) -> int:
    """Return the number of threads to use: as many as BLAS has, at most ``limit``."""
    return min(_max_threads(), limit) if limit > 1 else 1


def spread(task: Callable[[int, int], T], limit: int) -> list[T]:
    """Call ``task(k, n)`` for k = 0 .. n - 1 in parallel; n is the thread count of BLAS, at most ``limit``."""
    n = worker_count(limit)
    if n == 1:
        return [task(0, 1)]

    stop = threading.Event()

    def run(k: int) -> T:
        _thread_state.stop = stop
        with one_blas_thread():  # with OpenMP each thread has its own limit, and this one's is not set yet
            return task(k, n)

    with ThreadPoolExecutor(n) as pool:
        parts = [pool.submit(run, k) for k in range(n)]
        try:
            for part in as_completed(parts):
                part.result()  # raises the first error, not that of a thread that was stopped because of it
            return [part.result() for part in parts]
        except BaseException:  # also Ctrl-C, which the waiting thread receives
            stop.set()
            raise


def stop_if_cancelled() -> None:
    """End this thread of `spread` if its result is no longer needed. Long computations call it now and then."""
    stop = getattr(_thread_state, "stop", None)
    if stop is not None and stop.is_set():
        raise TaskCancelled
