"""Background work on a vault: in a process of its own, with low priority, without the vault's lock.

The process opens the vault read-only, so predictions and requests go on, and it ends with the service. A module that is
its main module calls `run_work`; the service calls `BackgroundProcess.run`, which returns the result.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import ExpungeError
from .logs import log_error

_PROGRESS_INTERVAL = 0.1  # seconds between two progress lines

ReportProgress: TypeAlias = Callable[[str, int, int], None]  # gets a step, how much of it is done, and its total


class VaultChanged(Exception):
    """A request committed while the vault was read: the work must start again."""


class ServiceStopping(Exception):
    """The service is being stopped."""


class BackgroundProcess:
    """A process that runs a module of ours on a vault, one at a time."""

    def __init__(self, module: str) -> None:
        self._module, self._stopping = module, False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, vault: Path, report: ReportProgress) -> dict[str, Any]:
        """Run the module, and return its result."""
        command = [sys.executable, "-m", self._module, str(vault)]
        last: dict[str, Any] = {}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - ours
            self._process = process
            if self._stopping:
                process.terminate()
            assert process.stdout is not None
            for line in process.stdout:
                last = json.loads(line)
                if "step" in last:
                    report(last["step"], last["done"], last["of"])
        self._process = None
        if "result" in last:
            result: dict[str, Any] = last["result"]
            return result
        if self._stopping:
            raise ServiceStopping
        if last.get("error") == VaultChanged.__name__:
            raise VaultChanged
        if "error" in last:
            raise ExpungeError(last["message"])
        raise RuntimeError(f"the process of {self._module} ended with code {process.returncode}")

    def stop(self) -> None:
        """End the process, and run no other."""
        self._stopping = True
        if (process := self._process) is not None:
            process.terminate()


def run_work(  # pragma: no cover - in a process of its own
    work: Callable[[Path, ReportProgress], dict[str, Any]], broken: str
) -> None:
    """Do the work on the vault of the first argument, and write progress and result as lines of JSON.

    ``broken`` is the event that is logged if it fails unexpectedly.
    """
    with suppress(OSError):  # a sandbox may forbid it (SystemCallFilter=~@resources); low priority is a courtesy
        os.nice(10)
    written = 0.0

    def write(**message: Any) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def report(step: str, done: int, of: int) -> None:
        nonlocal written
        if (now := time.monotonic()) >= written + _PROGRESS_INTERVAL:
            written = now
            write(step=step, done=done, of=of)

    def end_with_parent() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        write(result=work(Path(sys.argv[1]), report))
    except VaultChanged:
        write(error=VaultChanged.__name__)
    except ExpungeError as error:
        write(error=type(error).__name__, message=str(error))
    except Exception as error:
        log_error(broken, error)
    os._exit(0)  # not sys.exit: the thread that reads standard input would keep the process


def count_steps(report: ReportProgress) -> Callable[[str, int, int | None], None]:
    """Return a progress callback of the vault, which gets how much was just done, that reports how much is done."""
    step, done = "", 0

    def advance(stage: str, count: int, of: int | None) -> None:
        nonlocal step, done
        step, done = stage, count if stage != step else done + count
        report(step, done, of or 0)

    return advance
