"""Signals: how Ctrl-C meets workers of our own, and how these are started so that they do not hear it."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any


class _Apart:
    """While it lasts, new processes hear no Ctrl-C and do not know the script of this one. Several may last at once."""

    def __init__(self) -> None:
        self._lasting = 0
        self._kept: tuple[Any, Any] = None, None

    def __enter__(self) -> None:
        main = sys.modules["__main__"]
        if not self._lasting:
            self._kept = main.__spec__, main.__dict__.pop("__file__", None)
            main.__spec__ = None
            resource_tracker.ensure_running()  # which else unblocks signals as it starts
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._lasting += 1

    def __exit__(self, *_: object) -> None:
        self._lasting -= 1
        if not self._lasting:
            main = sys.modules["__main__"]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            main.__spec__, file = self._kept
            if file is not None:
                main.__file__ = file


apart = _Apart()


@contextmanager
def later() -> Iterator[list[bool]]:
    """Note Ctrl-C, and leave it to the caller to act upon it."""
    came: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
