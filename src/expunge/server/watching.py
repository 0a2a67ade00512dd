"""Watching: every answer is counted and logged by its route, never by its address, and gets a careful server's headers.

It is plain ASGI: a body that is cut off has to reach the route as it is.
"""

import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request

from .limits import App, Message, Receive, Send
from .logs import Level, log, request_scope
from .problems import Problem, answer

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_QUIET = {"/healthz", "/readyz", "/metrics"}  # asked every few seconds


class Watched:
    """Middleware around everything that answers."""

    def __init__(self, app: App, *, state: Any) -> None:
        self.app, self._state = app, state

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with request_scope(Headers(scope=scope).get("x-request-id")) as facts:
            await self._answer(scope, receive, send, facts.request_id)

    async def _answer(self, scope: Message, receive: Receive, send: Send, request_id: str) -> None:
        started, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if outside := scope.get("state", {}).get("outside_rows", 0):
                    headers["Expunge-Outside-Rows"] = str(outside)
                    self._state.metrics.outside.inc(outside)
                if self._state.service.draining:  # the next request of this client finds another instance
                    headers["Connection"] = "close"
            await send(message)

        try:
            if self._state.service.closing and scope["method"] not in ("GET", "HEAD"):
                raise Problem(503, "draining", "the service is being stopped", {"Retry-After": "5"})
            await self.app(scope, receive, sent)
        except Exception as error:  # what no handler answered
            response = await answer(Request(scope), error)
            if not status:
                await response(scope, receive, sent)
        finally:
            self._note(scope, status, time.perf_counter() - started)

    def _note(self, scope: Message, status: int, took: float) -> None:
        route, method = getattr(scope.get("route"), "path", "unknown"), scope["method"]
        self._state.metrics.http.labels(route, str(status)).inc()
        self._state.metrics.seconds.labels(route).observe(took)
        known = method if method in _METHODS else "other"
        level: Level = "debug" if route in _QUIET else "warning" if status >= 500 else "info"
        log("http", level=level, method=known, route=route, status=status, ms=round(1e3 * took, 2))
