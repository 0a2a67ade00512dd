"""Listening: sockets, and the HTTP server on them, which waits for nobody for ever."""

import asyncio
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import InvalidSetting
from .limits import OneLength

_PATIENCE = 15.0  # seconds for the head of a request, and for the next one


@dataclass(frozen=True)
class Address:
    """Where to listen, and the certificate to do it with."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None

    @property
    def local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bound(self) -> socket.socket:
        """A socket at this address, which processes started later can have, too."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio asks for it: no delays
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((self.host, self.port))
        except OSError as error:
            sock.close()
            raise InvalidSetting(f"cannot listen on {self.host}:{self.port}: {error.strerror}") from None
        except OverflowError:
            sock.close()
            raise InvalidSetting(f"a port is at most 65535, got {self.port}") from None
        return sock

    def check_tls(self) -> None:
        """Refuse a certificate or key that cannot be used, before anybody is told that there is a service."""
        if self.certificate is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:  # of files, and of TLS
            what = f"{self.certificate} and {self.key} are no certificate and its key (PEM)"
            raise InvalidSetting(f"{what}: {getattr(error, 'strerror', None) or error}") from None

    def url(self, sock: socket.socket) -> str:
        """What to call it."""
        host, port = sock.getsockname()[:2]
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def public(self, sock: socket.socket) -> str:
        """How systems on this machine reach it."""
        return f"{self._scheme}://localhost:{sock.getsockname()[1]}"

    @property
    def _scheme(self) -> str:
        return "http" if self.certificate is None else "https"


class Impatient(H11Protocol):
    """A connection that is cut if the head of a request does not come: uvicorn waits for the body only."""

    _cut: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy or self.transport.is_closing():
            self._unwatch()
        elif self._cut is None:
            self._cut = self.loop.call_later(_PATIENCE, self._close)

    def _unwatch(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None

    def _close(self) -> None:
        self._cut = None
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()


def config(app: Any, address: Address | None, drain: float) -> uvicorn.Config:
    """How uvicorn serves an application: at an address with its certificate, or between processes (None)."""
    tls: dict[str, Any] = {}
    if address is not None and address.certificate is not None:
        tls = {"ssl_certfile": str(address.certificate), "ssl_keyfile": str(address.key)}
    return uvicorn.Config(
        OneLength(app),
        http=Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(_PATIENCE),
        timeout_graceful_shutdown=int(drain),
        h11_max_incomplete_event_size=16 * 2**10,
        **tls,
    )
