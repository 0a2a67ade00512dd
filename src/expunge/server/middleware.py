"""Limits: how many requests, how large, how slow. What is beyond them is refused before anything is done."""

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request

from ..errors import InvalidSetting
from .logs import Level, log, request_scope
from .problems import Problem, answer_error

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

_MAX_CALLERS = 10_000
_MIN_BYTES_PER_SECOND = 10_000  # bytes per second of a body, once the patience is over


class RateLimiter:
    """A bucket of requests for each caller, that fills again."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._rate, self._burst = per_second, burst
        self._lock, self._buckets = threading.Lock(), dict[str, tuple[float, float]]()

    def __call__(self, key: str) -> float:
        """Take one; 0, or how many seconds there is to wait for one."""
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
    """Middleware that refuses a request which tells the length of its body in two ways.

    Who stands between a caller and us may believe the other one, and take the rest of the body for another request
    (RFC 9112, section 6.3). So the connection is closed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        names = [name for name, _ in scope.get("headers", ())]
        if b"transfer-encoding" in names and (b"content-length" in names or names.count(b"transfer-encoding") > 1):
            detail = "give the length of the body once: Content-Length or Transfer-Encoding"
            await Problem(400, "two-lengths", detail, {"Connection": "close"}).response()(scope, receive, send)
            return
        await self.app(scope, receive, send)


class BodyLimit:
    """Middleware that cuts bodies off which are too large, or come too slowly."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout: float) -> None:
        self.app, self.max_bytes, self.timeout = app, max_bytes, timeout

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.max_bytes:
            await self._too_large().response()(scope, receive, send)
            return
        seen, ended, began = 0, False, time.monotonic()

        async def taken() -> Message:
            nonlocal seen, ended
            if ended:  # whoever waits now waits for the client to go
                return await receive()
            left = began + self.timeout + seen / _MIN_BYTES_PER_SECOND - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, left))
            except TimeoutError:
                raise Problem(408, "too-slow", "the body comes too slowly", {"Connection": "close"}) from None
            seen += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if seen > self.max_bytes:
                raise self._too_large()
            return message

        await self.app(scope, taken, send)

    def _too_large(self) -> Problem:
        return Problem(413, "too-large", f"a body has at most {self.max_bytes:,} bytes", {"Connection": "close"})


# Prefix: the service below a path of a site, as ``https://example.com/expunge``.
#
# A proxy may pass the path on as it came, or strip the prefix: both are answered, so probes that ask the port itself
# need none. Routes, redirects and templates are written as if there were no prefix; it is added here, to the addresses
# that leave the service.


_PREFIX_PATTERN = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._~-]*)+")
_LINK_PATTERN = re.compile(r'\b((?:href|src|action)=")/(?!/)')
# The first parts of our own paths: if the prefix were one of these, nobody could tell whether a proxy took it away.
RESERVED_SEGMENTS = frozenset((
    *("api", "audit", "audit.csv", "audit.json", "check", "drp", "erase", "fides", "health", "healthz", "holds"),
    *("invocations", "login", "logout", "matters"),
    *("metrics", "opendsr", "openapi.json", "ping", "readyz", "receipt", "requests", "static", "v2", "verify"),
    *("version", "webhooks", ".well-known"),
))  # fmt: skip


def check_prefix(prefix: str) -> str:
    """Return a prefix that can be used, without a slash at its end."""
    prefix = prefix.rstrip("/")
    if prefix and (not _PREFIX_PATTERN.fullmatch(prefix) or len(prefix) > 200):
        raise InvalidSetting(f"a root path must look like /expunge, got {prefix!r}")
    if prefix and prefix.split("/")[1] in RESERVED_SEGMENTS:
        raise InvalidSetting(f"the service itself has paths that begin with {prefix!r}: choose another root path")
    return prefix


def strip_prefix(path: str, prefix: str) -> str:
    """Return a path as routes know it."""
    if prefix and (path == prefix or path.startswith(prefix + "/")):
        return path[len(prefix) :] or "/"
    return path


def route_path(scope: MutableMapping[str, Any]) -> str:
    """Return the path of a request as routes know it."""
    return strip_prefix(scope["path"], scope.get("root_path", ""))


def prefix_links(html: str, prefix: str) -> str:
    """Have the links of a page that begin at the root begin at the prefix; texts are escaped and have no quotes."""
    return _LINK_PATTERN.sub(rf"\g<1>{prefix}/", html) if prefix else html


class PathPrefix:
    """Middleware that lets an application answer below a prefix."""

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self.app, self._prefix = app, prefix

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = self._prefix + strip_prefix(scope["path"], self._prefix)
        raw = scope.get("raw_path") or scope["path"].encode()
        raw = (self._prefix + strip_prefix(raw.decode("latin-1"), self._prefix)).encode("latin-1")

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [(name, self._prefix_redirect(name, value)) for name, value in message["headers"]]
            await send(message)

        inner = {**scope, "root_path": self._prefix, "path": path, "raw_path": raw}
        await self.app(inner, receive, sent)

    def _prefix_redirect(self, name: bytes, value: bytes) -> bytes:
        """Add the prefix to a redirect to another of our paths."""
        ours = name.lower() == b"location" and value.startswith(b"/") and not value.startswith(b"//")
        return self._prefix.encode() + value if ours else value


# Watching: every answer is counted and logged by its route, never by its address, and gets a careful server's headers.
#
# It is plain ASGI: a body that is cut off has to reach the route as it is.


_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_KNOWN_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_QUIET_ROUTES = {"/healthz", "/readyz", "/metrics"}  # asked every few seconds


class RequestMonitor:
    """Middleware around everything that answers."""

    def __init__(self, app: ASGIApp, *, state: Any) -> None:
        self.app, self._state = app, state

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with request_scope(Headers(scope=scope).get("x-request-id")) as facts:
            await self._handle(scope, receive, send, facts.request_id)

    async def _handle(self, scope: Message, receive: Receive, send: Send, request_id: str) -> None:
        started, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                for name, value in _SECURITY_HEADERS.items():
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
            response = await answer_error(Request(scope), error)
            if not status:
                await response(scope, receive, sent)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def _record(self, scope: Message, status: int, took: float) -> None:
        route, method = getattr(scope.get("route"), "path", "unknown"), scope["method"]
        self._state.metrics.http.labels(route, str(status)).inc()
        self._state.metrics.seconds.labels(route).observe(took)
        known = method if method in _KNOWN_METHODS else "other"
        level: Level = "debug" if route in _QUIET_ROUTES else "warning" if status >= 500 else "info"
        log("http", level=level, method=known, route=route, status=status, ms=round(1e3 * took, 2))
