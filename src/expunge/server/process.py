"""Serving: one process that owns the writer, from the first socket to the last answer, and its readers."""

import asyncio
import ipaddress
import os
import queue
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import InvalidSetting, VaultBusy
from ..saving import files
from ..vault import Vault
from .app import Limits, create_app
from .database import Database, make_queue_folder, queue_path
from .logs import Level, capture_logging, log, set_level
from .middleware import ASGIApp, BodyLengthGuard, Message, Receive, Send
from .service import Options, Service
from .tokens import Tokens
from .workers import PredictionWorkers, warm_up

# MERGED listening: Listening: sockets, and the HTTP server on them, which waits for nobody for ever.


_HEAD_TIMEOUT = 15.0  # seconds for the head of a request, and for the next one


@dataclass(frozen=True)
class ListenAddress:
    """Where to listen, and the certificate to do it with."""

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

    def localhost_url(self, sock: socket.socket) -> str:
        """How systems on this machine reach it."""
        return f"{self._scheme}://localhost:{sock.getsockname()[1]}"

    @property
    def _scheme(self) -> str:
        return "http" if self.certificate is None else "https"


class HeadTimeoutProtocol(H11Protocol):
    """A connection that is cut if the head of a request does not come: uvicorn waits for the body only."""

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


def build_config(app: Any, address: ListenAddress | None, drain: float) -> uvicorn.Config:
    """How uvicorn serves an application: at an address with its certificate, or between processes (None)."""
    tls: dict[str, Any] = {}
    if address is not None and address.certificate is not None:
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
        timeout_graceful_shutdown=int(drain),
        h11_max_incomplete_event_size=16 * 2**10,
        **tls,
    )


__all__ = ["ListenAddress", "serve"]

_TOKEN_REQUIRED = "without a token only this machine may ask: make one (expunge token new) before you listen elsewhere"
# Seconds for answers that are under way once the port is closed, and for what follows; beyond --drain 7 are promised.
_ANSWER_TIMEOUT, _STOP_TIMEOUT = 5.0, 1.5


def serve(
    vault: Vault,
    address: ListenAddress,
    options: Options,
    limits: Limits,
    readers: int = 0,
    *,
    drain: float = 5.0,
    log_level: Level = "info",
) -> None:
    """Answer until somebody stops the process.

    SIGTERM drains: the service says that it is not ready, answers for ``drain`` seconds more, and closes its port then.
    SIGINT closes the port at once. A second signal ends the process at once.
    """
    set_level(log_level)
    path = queue_path(vault.places.vault)
    if (address.certificate is None) != (address.key is None):
        raise InvalidSetting("TLS needs both a certificate and its key")
    address.check_tls()
    with (
        _hold_service_lock(path),
        tempfile.TemporaryDirectory(prefix="expunge-") if readers else nullcontext("") as folder,
    ):
        database = Database(path)
        try:
            if not (address.is_local and _is_local_url(options.public_url)) and not Tokens(database).has_valid():
                raise InvalidSetting(_TOKEN_REQUIRED)
            sock = address.bind()
            options = replace(
                options, public_url=address.localhost_url(sock) if options.public_url is None else options.public_url
            )
            service = Service(vault, database, options)
            app = create_app(service, limits)  # its protocols listen before anything happens
        except BaseException:
            database.close()
            raise
        facts = _worker_settings(vault, address, options, limits, folder) | {"log_level": log_level}
        others = PredictionWorkers(readers, sock, facts, app.state.metrics)
        capture_logging()
        warm_up(vault)
        service.start()
        sock.listen(2048)  # who comes from now on waits until somebody answers
        try:
            _run_server(app, address, sock, service, others, drain)
        finally:
            clean = service.stop(_STOP_TIMEOUT)
            log("stopped", clean=clean)
    if not clean:  # a thread is at work that nobody waits for: what it does is safe at any moment
        os._exit(0)


def _is_local_url(public: str | None) -> bool:
    """Whether the public address, if one was given, is one of this machine: no proxy shows the service to others."""
    return public is None or ListenAddress(urlsplit(public).hostname or "").is_local


def _worker_settings(
    vault: Vault, address: ListenAddress, options: Options, limits: Limits, folder: str
) -> dict[str, Any]:
    """What a reader has to know."""
    files = {name: None if file is None else str(file.resolve()) for name, file in
             (("certificate", address.certificate), ("key", address.key))}  # fmt: skip
    place = vault.places.vault.resolve()
    return {
        "vault": str(place),
        "queue": str(queue_path(place)),
        "writer": f"{folder}/writer",
        "most_rows": options.max_rows,
        "root_path": options.root_path,
        "limits": vars(limits),
        **files,
    }


@contextmanager
def _hold_service_lock(path: Path) -> Iterator[None]:
    """Be the only service of a vault: two of them would take up each other's requests."""
    lock = make_queue_folder(path) / "serving"  # where nobody else can hold it
    with files.open_file(lock, os.O_CREAT | os.O_RDWR) as handle:
        try:
            files.system.lock(handle)
        except OSError:
            raise VaultBusy("another process serves this vault") from None
        yield


def _run_server(
    app: Any, address: ListenAddress, sock: socket.socket, service: Service, readers: PredictionWorkers, drain: float
) -> None:
    """Run until a signal; requests that are under way when the port closes are finished."""
    server = uvicorn.Server(build_config(app, address, _ANSWER_TIMEOUT))
    private = uvicorn.Server(build_config(_with_scheme(app, address), None, 1.0)) if readers.count else None

    def close() -> None:
        service.closing = True
        server.should_exit = True
        readers.end()

    # A handler interrupts the main thread anywhere, also while it holds a lock: it only hands the signal on.
    signals = queue.SimpleQueue[int]()
    threading.Thread(
        target=_handle_signals, args=(signals, service, drain, close), name="expunge-ending", daemon=True
    ).start()
    before = {
        one: signal.signal(one, lambda number, frame: signals.put(number)) for one in (signal.SIGTERM, signal.SIGINT)
    }
    log("serving", address=address.url(sock))  # signals are handled from here on
    try:
        for one in filter(None, (server, private)):
            one.capture_signals = nullcontext  # type: ignore[method-assign, assignment] # ours are in place
        asyncio.run(_serve_sockets(server, sock, private, readers))
    finally:
        readers.stop()
        for name, handler in before.items():
            signal.signal(name, handler)


def _handle_signals(
    signals: "queue.SimpleQueue[int]", service: Service, drain: float, close: Callable[[], None]
) -> None:
    """Wait for a signal, drain and close; end the process at the second one."""
    first = signals.get()
    service.draining = True
    seconds = drain if first == signal.SIGTERM else 0.0
    log("draining", seconds=seconds)
    with suppress(queue.Empty):
        signals.get(timeout=seconds)
        _exit_now()
    close()
    signals.get()
    _exit_now()


def _exit_now() -> None:
    """End without waiting for anybody: what is written is safe at any moment, and readers end with their writer."""
    log("stopped", level="warning", clean=False)
    os._exit(0)


async def _serve_sockets(
    server: uvicorn.Server, sock: socket.socket, private: uvicorn.Server | None, readers: PredictionWorkers
) -> None:
    """Serve everybody and, behind that, the readers, which end first."""
    if private is None:
        await server.serve([sock])
        return
    behind = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    behind.bind(readers.facts["writer"])
    task = asyncio.create_task(private.serve([behind]))
    readers.start()
    await server.serve([sock.dup()])
    await asyncio.to_thread(readers.stop)
    sock.close()
    private.should_exit = True
    await task


def _with_scheme(app: ASGIApp, address: ListenAddress) -> ASGIApp:
    """The same application for readers, who speak TLS in its place."""

    async def answered(scope: Message, receive: Receive, send: Send) -> None:
        scope["scheme"] = "http" if address.certificate is None else "https"
        await app(scope, receive, send)

    return answered
