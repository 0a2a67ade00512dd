"""ASGI middleware: limits, the path prefix, and the monitor that logs and counts every answer.

All of it is plain ASGI: a body that is cut off must reach the route as it is.
"""

import asyncio
import re
import threading
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import InvalidSetting
from .logs import Level, log, request_scope
from .problems import Problem, answer_error

_MAX_CALLERS = 10_000
_MIN_BYTES_PER_SECOND = 10_000  # that a body must keep up after the timeout


class RateLimiter:
    """A token bucket of requests for each caller."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._rate, self._burst = per_second, burst
        self._lock, self._buckets = threading.Lock(), dict[str, tuple[float, float]]()

    def __call__(self, key: str) -> float:
        """Count a request of this caller; return 0, or the seconds to wait before the next try."""
        now = time.monotonic()
        with self._lock:
            left, then = self._buckets.get(key, (self._burst, now))
            left = min(self._burst, left + (now - then) * self._rate)
            if len(self._buckets) >= _MAX_CALLERS and key not in self._buckets:
                self._buckets.clear()
            if left < 1:
                self._buckets[key] = left, now
                return (1 - left) / self._rate
            self._buckets[key] = left - 1, now
            return 0.0


class BodyLengthGuard:
    """Middleware that refuses a request which gives the length of its body in two ways.

    A proxy may use the other length, and take the rest of the body for another request (RFC 9112, section 6.3). So the
    connection is closed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = [name for name, _ in scope.get("headers", ())]
        if b"transfer-encoding" in names and (b"content-length" in names or names.count(b"transfer-encoding") > 1):
            detail = "give the length of the body once: Content-Length or Transfer-Encoding"
            await Problem(400, "two-lengths", detail, {"Connection": "close"}).response()(scope, receive, send)
            return
        await self.app(scope, receive, send)


class BodyLimit:
    """Middleware that refuses bodies which are too large or arrive too slowly."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout: float) -> None:
        self.app, self.max_bytes, self.timeout = app, max_bytes, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.max_bytes:
            await self._too_large().response()(scope, receive, send)
            return
        seen, ended, began = 0, False, time.monotonic()

        async def receive_limited() -> Message:
            nonlocal seen, ended
            if ended:  # what follows is the disconnect, which may take any time
                return await receive()
            left = began + self.timeout + seen / _MIN_BYTES_PER_SECOND - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, left))
            except TimeoutError:
                raise Problem(408, "too-slow", "the body arrives too slowly", {"Connection": "close"}) from None
            seen += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if seen > self.max_bytes:
                raise self._too_large()
            return message

        await self.app(scope, receive_limited, send)

    def _too_large(self) -> Problem:
        return Problem(413, "too-large", f"the body is larger than {self.max_bytes:,} bytes", {"Connection": "close"})


_PREFIX_PATTERN = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._~-]*)+")
_LINK_PATTERN = re.compile(r'\b((?:href|src|action)=")/(?!/)')
# The first segments of our own paths. With such a prefix it would be unclear whether a proxy stripped it.
RESERVED_SEGMENTS = frozenset((
    *("api", "audit", "audit.csv", "audit.json", "check", "drp", "erase", "fides", "health", "healthz", "holds"),
    *("invocations", "login", "logout", "matters"),
    *("metrics", "opendsr", "openapi.json", "ping", "readyz", "receipt", "requests", "static", "v2", "verify"),
    *("version", "webhooks", ".well-known"),
))  # fmt: skip


def check_prefix(prefix: str) -> str:
    """Return a prefix without a trailing slash; raise InvalidSetting if it cannot be used."""
    prefix = prefix.rstrip("/")
    if prefix and (not _PREFIX_PATTERN.fullmatch(prefix) or len(prefix) > 200):
        raise InvalidSetting(f"a root path must look like /expunge, got {prefix!r}")
    if prefix and prefix.split("/")[1] in RESERVED_SEGMENTS:
        raise InvalidSetting(f"the service has paths of its own that start with {prefix!r}: choose another root path")
    return prefix


def strip_prefix(path: str, prefix: str) -> str:
    """Return a path without the prefix, as routes are written."""
    if prefix and (path == prefix or path.startswith(prefix + "/")):
        return path[len(prefix) :] or "/"
    return path


def route_path(scope: MutableMapping[str, Any]) -> str:
    """Return the path of a request without the prefix."""
    return strip_prefix(scope["path"], scope.get("root_path", ""))


def prefix_links(html: str, prefix: str) -> str:
    """Add the prefix to the links of a page that start at the root; text is escaped and cannot match."""
    return _LINK_PATTERN.sub(rf"\g<1>{prefix}/", html) if prefix else html


class PathPrefix:
    """Middleware that serves the application below a path of a site, like ``https://example.com/expunge``.

    A proxy may pass the path on as it is, or strip the prefix: both work, so probes of the port itself need none.
    Routes, redirects and templates are written without the prefix; it is added here to the URLs that leave the service.
    """

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self.app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = self._prefix + strip_prefix(scope["path"], self._prefix)
        raw = scope.get("raw_path") or scope["path"].encode()
        raw = (self._prefix + strip_prefix(raw.decode("latin-1"), self._prefix)).encode("latin-1")

        async def send_prefixed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [(name, self._prefix_redirect(name, value)) for name, value in message["headers"]]
            await send(message)

        inner = {**scope, "root_path": self._prefix, "path": path, "raw_path": raw}
        await self.app(inner, receive, send_prefixed)

    def _prefix_redirect(self, name: bytes, value: bytes) -> bytes:
        """Add the prefix to a redirect to one of our own paths."""
        ours = name.lower() == b"location" and value.startswith(b"/") and not value.startswith(b"//")
        return self._prefix.encode() + value if ours else value


_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_KNOWN_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_QUIET_ROUTES = {"/healthz", "/readyz", "/metrics"}  # polled every few seconds


class RequestMonitor:
    """Middleware around everything: it logs and counts responses by route, never by URL, and sets security headers."""

    def __init__(self, app: ASGIApp, *, state: Any) -> None:
        self.app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def send_monitored(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                headers["X-Request-Id"] = facts.request_id
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if outside := scope.get("state", {}).get("outside_rows", 0):
                    headers["Expunge-Outside-Rows"] = str(outside)
                    self._state.metrics.outside.inc(outside)
                if self._state.service.draining:  # so that the client's next request reaches another instance
                    headers["Connection"] = "close"
            await send(message)

        with request_scope(Headers(scope=scope).get("x-request-id")) as facts:
            try:
                if self._state.service.closing and scope["method"] not in ("GET", "HEAD"):
                    raise Problem(503, "draining", "the service is shutting down", {"Retry-After": "5"})
                await self.app(scope, receive, send_monitored)
            except Exception as error:  # no handler answered it
                response = await answer_error(Request(scope), error)
                if not status:
                    await response(scope, receive, send_monitored)
            finally:
                took = time.perf_counter() - started
                route, method = getattr(scope.get("route"), "path", "unknown"), scope["method"]
                self._state.metrics.http.labels(route, str(status)).inc()
                self._state.metrics.seconds.labels(route).observe(took)
                known = method if method in _KNOWN_METHODS else "other"
                level: Level = "debug" if route in _QUIET_ROUTES else "warning" if status >= 500 else "info"
                log("http", level=level, method=known, route=route, status=status, ms=round(1e3 * took, 2))
