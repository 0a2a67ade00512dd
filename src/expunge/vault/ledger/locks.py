"""Forks: what a child process must not keep of what it inherits, and what it has to make new.

A lock that a thread of the parent holds would live on in the child, and a mutex would stay taken for ever: the thread
that has it is not in the child. So whoever has one is told. A fork that goes past Python (a library that calls it by
itself) tells nobody; then the lock is given back when the parent's request ends, but not if the parent is killed.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

from ...errors import VaultBusy


class ForkAware(Protocol):
    """Something that has to know that it is in another process now."""

    def reset_after_fork(self) -> None:
        """Forget what is the parent's; called in the child."""


fork_gate = threading.RLock()  # held while a lock is opened: no fork comes before it is known to be there
_fork_aware: WeakSet[ForkAware] = WeakSet()


def reset_on_fork(listener: ForkAware) -> None:
    """Tell this object when it is in a child."""
    with fork_gate:
        _fork_aware.add(listener)


def _reset_in_child() -> None:
    try:
        while True:
            try:
                for one in list(_fork_aware):
                    one.reset_after_fork()
                return
            except KeyboardInterrupt:  # Python would ignore it here, and the rest would never know; so once more
                continue
    finally:
        fork_gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=fork_gate.acquire, after_in_parent=fork_gate.release, after_in_child=_reset_in_child)


# MERGED turns: Turns: of the threads that share a vault, one at a time asks for something.


class WriterMutex:
    """A mutex that is waited for as long as for another process, and that a forked child gets anew."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), 0
        self.interrupted_by_fork = False  # whether this is a child that was forked in the midst of a turn

    @contextmanager
    def hold(self, wait: float) -> Iterator[None]:
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

    def reset_after_fork(self) -> None:
        """In a child: whoever had the turn is not here, unless it was the thread that forked."""
        self.interrupted_by_fork = self.interrupted_by_fork or self._owner == threading.get_ident()
        self._lock, self._owner = threading.Lock(), 0
