"""Locks and forks: a mutex between threads, and what a forked child must reset.

A lock that a thread of the parent holds would live on in the child, and a mutex would stay locked forever, because the
thread that holds it does not exist there. So objects that hold locks register here and are reset in the child. A fork
that bypasses Python (in a C library) resets nothing; then the lock is released when the parent's request ends, but not
if the parent is killed.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

from ...errors import VaultBusy


class ForkAware(Protocol):
    """An object that must be reset in a forked child."""

    def reset_after_fork(self) -> None:
        """Drop what belongs to the parent; called in the child."""


fork_gate = threading.RLock()  # held while a lock is opened: no fork happens before it is registered
_fork_aware: WeakSet[ForkAware] = WeakSet()


def reset_on_fork(listener: ForkAware) -> None:
    """Reset this object in every forked child."""
    with fork_gate:
        _fork_aware.add(listener)


def _reset_in_child() -> None:
    try:
        while True:
            try:
                for listener in list(_fork_aware):
                    listener.reset_after_fork()
                return
            except KeyboardInterrupt:  # Python would ignore it here and skip the others; so start over
                continue
    finally:
        fork_gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=fork_gate.acquire, after_in_parent=fork_gate.release, after_in_child=_reset_in_child)


class WriterMutex:
    """A mutex between threads that share a vault, with a timeout, which is unlocked in a forked child."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), 0
        self.interrupted_by_fork = False  # whether this is a child that was forked while its thread held the mutex

    @contextmanager
    def hold(self, wait: float) -> Iterator[None]:
        """Hold the mutex, or raise `VaultBusy` after ``wait`` seconds."""
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
        """In a child: unlock the mutex; only the thread that forked exists here."""
        self.interrupted_by_fork = self.interrupted_by_fork or self._owner == threading.get_ident()
        self._lock, self._owner = threading.Lock(), 0
