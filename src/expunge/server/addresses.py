"""Addresses: where the service may post to. What callers name must not lead inside.

A name is resolved once, every address that it has is checked, and the connection goes to the very address that was
checked: a name that leads elsewhere a moment later does not matter. Redirects are not followed.
"""

import http.client
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ..errors import InvalidInput

Found: TypeAlias = tuple[socket.AddressFamily, Any]  # a family and an address as `connect` takes it

_URL = re.compile(r"[\x21-\x7e]{1,2000}")
_PORTS = {"http": 80, "https": 443}
# The special-purpose registries of IANA, whole: also blocks that can be reached from anywhere, where no hook would be.
# `ipaddress` knows a part of them, which depends on the release of Python.
_SPECIAL_4 = [
    ipaddress.IPv4Network(block)
    for block in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),  # multicast, and reserved with the broadcast address
    )
]
_UNICAST = ipaddress.IPv6Network("2000::/3")  # all of IPv6 that was given out; the registry has more outside of it
_SPECIAL_6 = [
    ipaddress.IPv6Network(block) for block in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")
]  # 2002::/16 is judged by the address inside
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_INSIDE = "the address is private or reserved; the service posts there only if it was started with --allow-host for it"


class Unreachable(Exception):
    """Nobody answered, or not in HTTP, or not in time; its text is one of the reasons in `REASONS`."""


REASONS: Mapping[str, str] = {
    "dns": "the host's name has no address",
    "refused": "nobody listens at this address",
    "tls": "no secure connection: the certificate or the protocol does not fit",
    "timeout": "there was no answer in time",
    "closed": "the connection was closed before an answer came",
    "not-http": "the answer is not HTTP",
    "network": "the host cannot be reached",
    "private-address": "the address is private, and no --allow-host was given for it",
    "status": "the receiver refused it: see the status code",
    "removed": "the webhook was removed or switched off",
}


@dataclass(frozen=True)
class Target:
    """A URL in parts."""

    scheme: str
    host: str  # without brackets
    port: int
    path: str  # with the query


@dataclass(frozen=True)
class Answer:
    """What is taken from an answer; its body is not read."""

    status: int
    retry_after: int | None = None  # seconds


def target_of(url: str) -> Target:
    """The parts of a URL that can be posted to."""
    if not _URL.fullmatch(url) or "\\" in url:
        raise InvalidInput("a URL must have 1 to 2,000 printable ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidInput("the URL cannot be read") from None
    if parts.scheme not in _PORTS or not host:
        raise InvalidInput("a URL must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("a URL must not hold a user or a password")
    if port == 0:
        raise InvalidInput("port 0 cannot be connected to")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], path)


def checked(url: str, allowed: Collection[str] = ()) -> Target:
    """The parts of a URL, or a refusal if it leads inside by itself; names are resolved when something is sent."""
    target = target_of(url)
    if not _is_allowed(target.host, allowed) and not _passes_unresolved(_plain(target.host)):
        raise InvalidInput(_INSIDE)
    return target


def resolved(target: Target, allowed: Collection[str] = ()) -> list[Found]:
    """The addresses of a host, each of which may be posted to."""
    try:
        rows = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreachable("dns") from None
    found: list[Found] = [(row[0], row[4]) for row in rows if row[0] in (socket.AF_INET, socket.AF_INET6)]
    if not found:
        raise Unreachable("dns")
    if not _is_allowed(target.host, allowed) and not all(is_public(str(address[0])) for _, address in found):
        raise InvalidInput(_INSIDE)
    return found


def is_public(text: str) -> bool:
    """Whether an address is one of the open Internet; one that holds an IPv4 address is judged by that as well."""
    ip = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
        return ip in _UNICAST and not any(ip in block for block in _SPECIAL_6)
    return not any(ip in block for block in _SPECIAL_4)


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _is_allowed(host: str, allowed: Collection[str]) -> bool:
    return _plain(host) in {_plain(one) for one in allowed}


def _passes_unresolved(host: str) -> bool:
    """Whether a host may be public: a name, or a public address, in any form that the resolver takes for one."""
    try:
        return is_public(host)
    except ValueError:
        pass
    try:
        return is_public(socket.inet_ntoa(socket.inet_aton(host)))  # 127.1, 0x7f000001, 2130706433
    except (OSError, UnicodeError):
        return host != "localhost" and not host.endswith(".localhost")


def post(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allowed: Collection[str] = (),
    patience: float = 15.0,
) -> Answer:
    """Post a body; the whole try takes at most ``patience`` seconds from the moment the name is resolved."""
    connection = _Pinned(target, resolved(target, allowed), patience)
    timer = threading.Timer(patience, connection.cut)
    timer.daemon = True
    timer.start()
    try:
        connection.request("POST", target.path, body, dict(headers))
        with connection.getresponse() as answer:
            return Answer(answer.status, _seconds(answer.getheader("Retry-After")))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable("timeout" if connection.over else _reason(error)) from None
    finally:
        timer.cancel()
        connection.close()


def _reason(error: Exception) -> str:
    """Name the reason of a failed connection; the error's own text may hold what the other side sent."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ssl.SSLError | ssl.CertificateError):
        return "tls"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ConnectionError):  # also one that ended without an answer
        return "closed"
    return "network" if isinstance(error, OSError) else "not-http"


def _seconds(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text.strip()) else None


class _Pinned(http.client.HTTPConnection):
    """A connection to addresses that were checked, in the name of the host that has them."""

    def __init__(self, target: Target, found: Sequence[Found], patience: float) -> None:
        super().__init__(target.host, target.port, timeout=patience)
        self.default_port = _PORTS[target.scheme]  # the Host header names any other
        self._target, self._found, self._patience = target, found, patience
        self._raw: socket.socket | None = None
        self.over = False

    def connect(self) -> None:
        """Connect to the first address that answers, and speak TLS if the URL says so."""
        raw = self._raw = self._reached()
        if self._target.scheme == "https":
            context = ssl.create_default_context()
            raw = self._raw = context.wrap_socket(raw, server_hostname=self._target.host, do_handshake_on_connect=False)
            self._go_on()
            raw.do_handshake()
        self._go_on()
        self.sock = raw

    def _reached(self) -> socket.socket:
        failure: OSError = TimeoutError()
        for family, address in self._found:
            self._go_on()
            self._raw = raw = socket.socket(family, socket.SOCK_STREAM)
            raw.settimeout(self._patience)
            try:
                raw.connect(address)
                return raw
            except OSError as error:
                raw.close()
                failure = error
        raise failure

    def _go_on(self) -> None:
        """Stop here if the time is over: a socket that was not connected yet could not be cut."""
        if self.over:
            raise TimeoutError

    def cut(self) -> None:
        """End it from another thread: the time is over, however slowly bytes still come."""
        self.over = True
        if (raw := self._raw) is not None:
            try:
                socket.socket.shutdown(raw, socket.SHUT_RDWR)  # below TLS, which would wait for its peer
            except OSError:
                return

    def close(self) -> None:
        super().close()
        if self._raw is not None:
            self._raw.close()
