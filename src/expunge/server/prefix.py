"""Prefix: the service below a path of a site, as ``https://example.com/expunge``.

A proxy may pass the path on as it came, or take the prefix away: both are answered, so probes that ask the port itself
need none. Routes, redirects and templates are written as if there were no prefix; it is added here, to the addresses
that leave the service.
"""

import re
from collections.abc import MutableMapping
from typing import Any

from ..errors import InvalidSetting
from .limits import App, Message, Receive, Send

_FORM = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._~-]*)+")
_LINK = re.compile(r'\b((?:href|src|action)=")/(?!/)')
# The first parts of our own paths: if the prefix were one of these, nobody could tell whether a proxy took it away.
OWN = frozenset((
    *("api", "audit", "audit.csv", "audit.json", "check", "drp", "erase", "fides", "health", "healthz", "holds"),
    *("invocations", "login", "logout", "matters"),
    *("metrics", "opendsr", "openapi.json", "ping", "readyz", "receipt", "requests", "static", "v2", "verify"),
    *("version", "webhooks", ".well-known"),
))  # fmt: skip


def check_prefix(prefix: str) -> str:
    """Return a prefix that can be used, without a slash at its end."""
    prefix = prefix.rstrip("/")
    if prefix and (not _FORM.fullmatch(prefix) or len(prefix) > 200):
        raise InvalidSetting(f"a root path must look like /expunge, got {prefix!r}")
    if prefix and prefix.split("/")[1] in OWN:
        raise InvalidSetting(f"the service itself has paths that begin with {prefix!r}: choose another root path")
    return prefix


def strip_prefix(path: str, prefix: str) -> str:
    """Return a path as routes know it."""
    if prefix and (path == prefix or path.startswith(prefix + "/")):
        return path[len(prefix) :] or "/"
    return path


def path_of(scope: MutableMapping[str, Any]) -> str:
    """Return the path of a request as routes know it."""
    return strip_prefix(scope["path"], scope.get("root_path", ""))


def prefix_links(html: str, prefix: str) -> str:
    """Have the links of a page that begin at the root begin at the prefix; texts are escaped and have no quotes."""
    return _LINK.sub(rf"\g<1>{prefix}/", html) if prefix else html


class Prefix:
    """Middleware that lets an application answer below a prefix."""

    def __init__(self, app: App, *, prefix: str) -> None:
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
                message["headers"] = [(name, self._moved(name, value)) for name, value in message["headers"]]
            await send(message)

        inner = {**scope, "root_path": self._prefix, "path": path, "raw_path": raw}
        await self.app(inner, receive, sent)

    def _moved(self, name: bytes, value: bytes) -> bytes:
        """Add the prefix to a redirect to another of our paths."""
        ours = name.lower() == b"location" and value.startswith(b"/") and not value.startswith(b"//")
        return self._prefix.encode() + value if ours else value
