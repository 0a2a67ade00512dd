"""Threads: one inside BLAS, as many outside as BLAS would have used.

LAPACK's Cholesky gives other last bits on two threads than on one, and BLAS threads that wait for each other in small
products cost more than they bring. So everything here runs on one BLAS thread, and work is spread over blocks of rows
instead, whose exact sums do not depend on who computed them.
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

_BUFFER_BYTES = 2**25 + 2**16  # what OpenBLAS allocates at its first product

_COUNT_FUNCTIONS = [f"{a}openblas_get_num_threads{b}" for a, b in product(("", "scipy_"), ("", "64_", "_64"))]

_thread_state = threading.local()  # of a thread of `spread`: what tells it to stop
_lock = threading.Lock()
_holders = 0
_counts_before: list[int] = []  # what the process had when the first holder came


@cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """The BLAS libraries whose limit is the process's, and those (built with OpenMP) where each thread has its own."""
    from threadpoolctl import ThreadpoolController  # not at import: who only reads a model's files does without

    if "scipy.linalg" not in sys.modules:
        _check_memory(3)  # the library itself, and the buffer that it takes while it is loaded
    scipy_linalg()  # NumPy and SciPy each bring a BLAS of their own; only libraries that are loaded already are found
    found = ThreadpoolController().select(user_api="blas").lib_controllers  # takes a millisecond: do it once
    _check_memory(len(found))
    own = [library for library in found if getattr(library, "threading_layer", "") == "openmp"]
    return [library for library in found if library not in own], own


def _check_memory(buffers: int) -> None:
    """Refuse to go on without room for so many buffers: OpenBLAS asks for one again and again, for ever."""
    try:
        mmap.mmap(-1, max(1, buffers) * _BUFFER_BYTES).close()
    except OSError as error:
        raise MemoryError("there is no room for the buffers of BLAS") from error


def load_blas() -> None:
    """Load BLAS and find its libraries now: at the first call of a process that takes longer than many requests."""
    _libraries()


@cache
def _count_reader(library: Any) -> Callable[[], int]:
    """What tells how many threads a library has: its own function, where we know it, takes a tenth of the time."""
    if getattr(library, "internal_api", "") == "openblas" and library.threading_layer != "openmp":
        for name in _COUNT_FUNCTIONS:
            if (read := getattr(library.dynlib, name, None)) is not None:
                return cast("Callable[[], int]", read)
    return lambda: int(library.num_threads)


def _thread_counts(libraries: list[Any]) -> list[int]:
    return [_count_reader(library)() for library in libraries]


def _is_single_threaded() -> bool:
    """Whether all of BLAS has one thread."""
    for group in _libraries():  # plain loops: every deletion asks twice
        for library in group:
            if _count_reader(library)() > 1:
                return False
    return True


def _max_threads() -> int:
    """How many threads BLAS has, or had before it was held to one."""
    if _holders:
        return max(_counts_before, default=1)
    return max((count for group in _libraries() for count in _thread_counts(group)), default=1)


def _set_threads(library: Any, count: int) -> None:
    """Set a limit. Since threadpoolctl 3.8 only one thread at a time can, and others are ignored: take control."""
    release = getattr(library, "clear_controlling_thread", lambda *, force: None)
    release(force=True)
    library.set_num_threads(count)
    release(force=True)


class TaskCancelled(BaseException):
    """Another thread has failed, or somebody has pressed Ctrl-C; nobody hears of it."""


class OneThread:
    """Holds BLAS to one thread: of the holders in a process, the first to come sets the limit, the last lifts it."""

    __slots__ = ("_entered", "_mine")

    def __enter__(self) -> None:
        global _holders, _counts_before
        shared, own = _libraries()
        self._mine = _thread_counts(own) if own else []
        self._entered = False
        try:
            with _lock:
                if _holders == 0:
                    _counts_before = _thread_counts(shared) + self._mine
                _holders, self._entered = _holders + 1, True
                if _holders == 1:
                    _limit(shared, _counts_before)
            if own:
                _limit(own, self._mine)
        except BaseException:  # also when Ctrl-C comes while the limit is being set
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        global _holders
        shared, own = _libraries()
        with _lock:
            _holders -= self._entered
            self._entered = False
            if _holders == 0:
                _lift(shared, _counts_before)
        if own:
            _lift(own, self._mine)


def one_blas_thread() -> OneThread:
    """Hold BLAS to one thread for a while."""
    return OneThread()


def run_on_one_thread(compute: Callable[..., T], *arguments: Any) -> T:
    """Compute on one BLAS thread, and again if somebody else in the process lifted the limit meanwhile."""
    if not _holders and _is_single_threaded():  # so nobody who holds BLAS now, or comes to hold it, has a limit to lift
        result = compute(*arguments)
        if not _holders and _is_single_threaded():
            return result
    with OneThread():
        for _ in range(100):
            result = compute(*arguments)
            shared, own = _libraries()
            if not (lifted := [library for library in shared + own if _count_reader(library)() > 1]):
                break
            for library in lifted:
                _set_threads(library, 1)
        return result


def _reset() -> None:
    """Forget all holders, in a forked child: the threads that held BLAS were the parent's."""
    global _lock, _holders
    _lock = threading.Lock()
    if _holders:
        _holders = 0
        _lift(_libraries()[0], _counts_before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)


def _limit(libraries: list[Any], counts: list[int]) -> None:
    if max(counts, default=1) > 1:
        for library, count in zip(libraries, counts, strict=False):
            if count > 1:  # setting it takes longer than solving a small system
                _set_threads(library, 1)


def _lift(libraries: list[Any], counts: list[int]) -> None:
    if max(counts, default=1) > 1:
        for library, count in zip(libraries, counts, strict=False):
            if count > 1:
                _set_threads(library, count)


def worker_count(limit: int) -> int:
    """How many threads work at once: as many as BLAS has, at most ``most``."""
    return min(_max_threads(), limit) if limit > 1 else 1


def spread(task: Callable[[int, int], T], limit: int) -> list[T]:
    """Call ``task(k, n)`` for k = 0 .. n - 1 at once; n is the number of threads that BLAS has, at most ``most``."""
    n = worker_count(limit)
    if n == 1:
        return [task(0, 1)]

    stop = threading.Event()

    def held(k: int) -> T:
        _thread_state.stop = stop
        with one_blas_thread():  # where each thread has its own limit, this one's is not set yet
            return task(k, n)

    with ThreadPoolExecutor(n) as pool:
        parts = [pool.submit(held, k) for k in range(n)]
        try:
            for part in as_completed(parts):
                part.result()  # the first error, not that of a thread which then had to stop
            return [part.result() for part in parts]
        except BaseException:  # also Ctrl-C, which comes to the thread that waits
            stop.set()
            raise


def stop_if_cancelled() -> None:
    """End this thread of `spread` if what it computes is no longer wanted: long work calls it now and then."""
    stop = getattr(_thread_state, "stop", None)
    if stop is not None and stop.is_set():
        raise TaskCancelled
