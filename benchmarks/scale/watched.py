"""Watched processes: what a program and all that it starts take, seen from outside."""

import json
import os
import resource
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cost:
    """What a program took."""

    seconds: float  # as the program tells
    processor: float  # seconds of all processes, as it tells
    memory: int  # bytes of the largest process at its peak, without mapped files
    together: int  # the same of all processes at once
    read: int  # bytes that came from the disk
    told: dict[str, Any]  # what it printed, as JSON


def watched(arguments: list[str], *, threads: int | None = None) -> Cost:
    """Run a program with this Python, and watch it."""
    environment = dict(os.environ)
    if threads is not None:
        environment |= {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True) as process:
        watch = _Watch(process.pid)
        printed = process.stdout.read() if process.stdout else ""
        process.wait()
        watch.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise RuntimeError(f"{arguments} ended with {process.returncode}")
    read = (after.ru_inblock - before.ru_inblock) * 512
    told = json.loads(printed)
    return Cost(told.get("seconds", 0.0), told.get("processor", 0.0), watch.most, watch.together, read, told)


class _Watch:
    """Looks at the memory of a process, and of those that it started, ten times a second."""

    def __init__(self, pid: int) -> None:
        self._pid, self.most, self.together = pid, 0, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            sizes = [_anonymous(pid) for pid in _family(self._pid)]
            self.most, self.together = max(self.most, *sizes, 0), max(self.together, sum(sizes))


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                waiting += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def _anonymous(pid: int) -> int:
    """The memory of a process that no file has."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)
