"""The listener: a socket, and the HTTP server on it.

Each request head must arrive within `_HEAD_TIMEOUT`; bodies have limits of their own (`middleware.BodyLimit`).
"""

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
from .middleware import BodyLengthGuard

_HEAD_TIMEOUT = 15.0  # seconds for the head of a request, and for the next request on a kept connection


@dataclass(frozen=True)
class ListenAddress:
    """Where to listen, and the certificate for TLS."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bind(self) -> socket.socket:
        """Return a socket that is bound to this address and can be inherited by other processes."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only then
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
        """Refuse a certificate or key that cannot be used."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidSetting("TLS needs both a certificate and its key")
        if self.certificate is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:  # of files, and of TLS
            files = f"{self.certificate} and {self.key} are not a certificate and its key (PEM)"
            raise InvalidSetting(f"{files}: {getattr(error, 'strerror', None) or error}") from None

    def url(self, sock: socket.socket) -> str:
        """Return the URL of a socket that was bound here."""
        host, port = sock.getsockname()[:2]
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def localhost_url(self, sock: socket.socket) -> str:
        """Return the URL by which programs on this machine reach the socket."""
        return f"{self._scheme}://localhost:{sock.getsockname()[1]}"

    @property
    def _scheme(self) -> str:
        return "http" if self.certificate is None else "https"


class HeadTimeoutProtocol(H11Protocol):
    """A connection that is closed if no request head arrives in time: uvicorn itself waits for ever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def _update_timer(self) -> None:
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy or self.transport.is_closing():
            self._cancel_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_TIMEOUT, self._close_idle)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_idle(self) -> None:
        self._timer = None
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()


def build_config(app: Any, address: ListenAddress, shutdown_timeout: float) -> uvicorn.Config:
    """Return uvicorn's settings for an application at this address."""
    tls: dict[str, Any] = {}
    if address.certificate is not None:
        tls = {"ssl_certfile": str(address.certificate), "ssl_keyfile": str(address.key)}
    return uvicorn.Config(
        BodyLengthGuard(app),
        http=HeadTimeoutProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(_HEAD_TIMEOUT),
        timeout_graceful_shutdown=int(shutdown_timeout),
        h11_max_incomplete_event_size=16 * 2**10,
        **tls,
    )
