"""Turns: of the threads that share a vault, one at a time asks for something."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import VaultBusy


class Turns:
    """A mutex that is waited for as long as for another process, and that a forked child gets anew."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), 0
        self.broken_off = False  # whether this is a child that was forked in the midst of a turn

    @contextmanager
    def taken(self, wait: float) -> Iterator[None]:
        """Take a turn, or raise `VaultBusy` after ``wait`` seconds."""
        lock = self._lock
        if not lock.acquire(timeout=min(max(0.0, wait), threading.TIMEOUT_MAX)):
            raise VaultBusy("another thread is writing to this vault; try again")
        try:
            self._owner = threading.get_ident()
            yield
        finally:
            self._owner = 0
            lock.release()

    def forked(self) -> None:
        """In a child: whoever had the turn is not here, unless it was the thread that forked."""
        self.broken_off = self.broken_off or self._owner == threading.get_ident()
        self._lock, self._owner = threading.Lock(), 0
