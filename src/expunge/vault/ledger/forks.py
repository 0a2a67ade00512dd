"""Forks: what a child process must not keep of what it inherits, and what it has to make new.

A lock that a thread of the parent holds would live on in the child, and a mutex would stay taken for ever: the thread
that has it is not in the child. So whoever has one is told. A fork that goes past Python (a library that calls it by
itself) tells nobody; then the lock is given back when the parent's request ends, but not if the parent is killed.
"""

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """Something that has to know that it is in another process now."""

    def forked(self) -> None:
        """Forget what is the parent's; called in the child."""


gate = threading.RLock()  # held while a lock is opened: no fork comes before it is known to be there
_watched: WeakSet[Inherited] = WeakSet()


def watch(inherited: Inherited) -> None:
    """Tell this object when it is in a child."""
    with gate:
        _watched.add(inherited)


def _in_child() -> None:
    try:
        while True:
            try:
                for one in list(_watched):
                    one.forked()
                return
            except KeyboardInterrupt:  # Python would ignore it here, and the rest would never know; so once more
                continue
    finally:
        gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=gate.acquire, after_in_parent=gate.release, after_in_child=_in_child)
