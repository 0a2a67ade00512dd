"""Group commit: what threads ask for while others are at work is carried out together, for the price of one.

Whoever finds nobody at work becomes the leader: it carries out its own item with all that wait, and hands out results.
Nobody waits for company that does not come: a leader lingers only if more callers were around when the last group
ended, and only for a fraction of the time that the last group took. Without that, eight callers who take turns would
end up as groups of one and seven.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(eq=False)
class _Ticket(Generic[T, R]):
    """An item, and what became of it."""

    item: T
    done: bool = False
    result: R | None = None
    error: BaseException | None = None


class Combiner(Generic[T, R]):
    """Carries out items of several threads in groups.

    Parameters
    ----------
    carry_out : callable
        Gets a group's items and returns their results, in the same order. An error is every caller's.
    within : callable
        Makes the context in which a group is put together and carried out: a lock or a transaction. Items that come
        while it is being entered still belong to the group; results are handed out once it has been left.
    linger : float
        The most time to wait for callers who are expected back, as a fraction of the time that the last group took.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[T]], Sequence[R]],
        within: Callable[[], AbstractContextManager[object]],
        *,
        linger: float = 0.0,
    ) -> None:
        self._carry_out, self._within, self._linger = carry_out, within, linger
        self._changed = threading.Condition()
        self._waiting = list[_Ticket[T, R]]()
        self._leading = False
        self._coming = 0  # callers who are about to submit something
        self._expected, self._until = 0, 0.0  # how many callers may be back, and until when to wait for them

    def submit(self, item: T) -> R:
        """Carry out an item, together with others if there are any, and return its result."""
        ticket = _Ticket[T, R](item)
        with self._changed:
            self._waiting.append(ticket)
            self._changed.notify_all()  # a leader that lingers counts
            while self._leading and not ticket.done:
                self._changed.wait()
            if not ticket.done:
                self._leading = True
        if not ticket.done:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[return-value] # R may be None

    @contextmanager
    def announce(self) -> Iterator[None]:
        """Prepare an item that is submitted right afterwards; a leader that lingers waits for it."""
        with self._changed:
            self._coming += 1
        try:
            yield
        finally:
            with self._changed:
                self._coming -= 1
                self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """How many items wait to be carried out."""
        return len(self._waiting)

    def _lead(self) -> None:
        """Carry out everything that waits; one's own item is among it."""
        group, results, failure = list[_Ticket[T, R]](), list[R](), None
        started = time.monotonic()
        try:
            with self._within():
                group = self._gather()
                started = time.monotonic()
                results = list(self._carry_out([ticket.item for ticket in group]))
        except BaseException as error:  # the leader's thread raises it as well
            failure = error
        with self._changed:
            if not group:  # the context could not be entered: whoever waits meets the same error
                group, self._waiting = self._waiting, []
            for k, ticket in enumerate(group):
                ticket.done, ticket.error = True, failure
                ticket.result = None if failure is not None else results[k]
            self._leading = False
            now = time.monotonic()
            self._expected = len(group) + len(self._waiting)
            self._until = now + self._linger * (now - started)
            self._changed.notify_all()

    def _gather(self) -> list[_Ticket[T, R]]:
        """Take all that waits, after a moment for callers who were here just now."""
        with self._changed:
            while len(self._waiting) < self._expected or self._coming:
                if (left := self._until - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
            group, self._waiting = self._waiting, []
        return group
