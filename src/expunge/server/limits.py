"""Limits: how many requests, how large, how slow. What is beyond them is refused before anything is done."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from .problems import Problem

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

_MOST_KEYS = 10_000
_SLOWEST = 10_000  # bytes per second of a body, once the patience is over


class Rate:
    """A bucket of requests for each caller, that fills again."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._rate, self._burst = per_second, burst
        self._lock, self._left = threading.Lock(), dict[str, tuple[float, float]]()

    def __call__(self, key: str) -> float:
        """Take one; 0, or how many seconds there is to wait for one."""
        now = time.monotonic()
        with self._lock:
            left, then = self._left.get(key, (self._burst, now))
            left = min(self._burst, left + (now - then) * self._rate)
            if len(self._left) >= _MOST_KEYS and key not in self._left:
                self._left.clear()
            if left < 1:
                self._left[key] = left, now
                return (1 - left) / self._rate
            self._left[key] = left - 1, now
            return 0.0


class OneLength:
    """Middleware that refuses a request which tells the length of its body in two ways.

    Who stands between a caller and us may believe the other one, and take the rest of the body for another request
    (RFC 9112, section 6.3). So the connection is closed.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        names = [name for name, _ in scope.get("headers", ())]
        if b"transfer-encoding" in names and (b"content-length" in names or names.count(b"transfer-encoding") > 1):
            detail = "give the length of the body once: Content-Length or Transfer-Encoding"
            await Problem(400, "two-lengths", detail, {"Connection": "close"}).response()(scope, receive, send)
            return
        await self.app(scope, receive, send)


class Bodies:
    """Middleware that cuts bodies off which are too large, or come too slowly."""

    def __init__(self, app: App, *, most_bytes: int, patience: float) -> None:
        self.app, self.most, self.patience = app, most_bytes, patience

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.most:
            await self._too_large().response()(scope, receive, send)
            return
        seen, ended, began = 0, False, time.monotonic()

        async def taken() -> Message:
            nonlocal seen, ended
            if ended:  # whoever waits now waits for the client to go
                return await receive()
            left = began + self.patience + seen / _SLOWEST - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, left))
            except TimeoutError:
                raise Problem(408, "too-slow", "the body comes too slowly", {"Connection": "close"}) from None
            seen += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if seen > self.most:
                raise self._too_large()
            return message

        await self.app(scope, taken, send)

    def _too_large(self) -> Problem:
        return Problem(413, "too-large", f"a body has at most {self.most:,} bytes", {"Connection": "close"})
