"""Load: make a machine busy on purpose, for as long as something is tried on it."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MEGABYTE = 2**20


@contextmanager
def loaded(folder: Path) -> Iterator[None]:
    """Two busy processes per core, and one that makes the disk under a folder wait for its syncs."""
    tasks = [_compute] * (2 * (os.cpu_count() or 1)) + [lambda: _sync(folder / "load")]
    workers = [_forked(task) for task in tasks]
    try:
        yield
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)


def _forked(task: Callable[[], None]) -> int:
    """Repeat something in another process, until that is killed or its parent is gone."""
    parent = os.getpid()
    if worker := os.fork():
        return worker
    try:
        while os.getppid() == parent:
            task()
    finally:
        os._exit(0)


def _compute() -> None:
    sum(range(10**6))


def _sync(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(32):
            file.write(bytes(MEGABYTE))
        file.flush()
        os.fsync(file.fileno())


def short_of_memory(room: int) -> None:
    """Let this process have little more memory than it has: what it asks for beyond that is refused."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
