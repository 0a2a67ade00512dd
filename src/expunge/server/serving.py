"""Serving: one process that owns the writer, from the first socket to the last answer, and its readers."""

import asyncio
import fcntl
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from ..errors import InvalidSetting, VaultBusy
from ..vault import Vault
from .app import Limits, create_app
from .database import Database, queue_path
from .limits import App, Message, Receive, Send
from .listening import Address, config
from .logs import log
from .predicting import warm
from .readers import Readers
from .service import Options, Service
from .tokens import Tokens

__all__ = ["Address", "serve"]

_UNGUARDED = "without a token only this machine may ask: make one (expunge token new) before you listen elsewhere"
_DRAIN, _LAST = 5.0, 1.5  # seconds for answers that are under way at the end, and for what follows; 10 are promised


def serve(vault: Vault, address: Address, options: Options, limits: Limits, readers: int = 0) -> None:
    """Answer until somebody stops the process (SIGTERM or SIGINT)."""
    path = queue_path(vault.places.vault)
    if (address.certificate is None) != (address.key is None):
        raise InvalidSetting("TLS needs both a certificate and its key")
    address.check_tls()
    with _alone(path), tempfile.TemporaryDirectory(prefix="expunge-") if readers else nullcontext("") as folder:
        database = Database(path)
        try:
            if not address.local and not Tokens(database).valid():
                raise InvalidSetting(_UNGUARDED)
            sock = address.bound()
            options = replace(options, public=address.public(sock) if options.public is None else options.public)
            service = Service(vault, database, options)
            app = create_app(service, limits)  # its protocols listen before anything happens
        except BaseException:
            database.close()
            raise
        others = Readers(readers, sock, _facts(vault, address, options, limits, folder), app.state.metrics)
        warm(vault)
        service.start()
        sock.listen(2048)  # who comes from now on waits until somebody answers
        log("serving", address=address.url(sock))
        try:
            _run(app, address, sock, service, others)
        finally:
            clean = service.stop(_LAST)
            log("stopped", clean=clean)
    if not clean:  # a thread is at work that nobody waits for: what it does is safe at any moment
        os._exit(0)


def _facts(vault: Vault, address: Address, options: Options, limits: Limits, folder: str) -> dict[str, Any]:
    """What a reader has to know."""
    files = {name: None if file is None else str(file.resolve()) for name, file in
             (("certificate", address.certificate), ("key", address.key))}  # fmt: skip
    place = vault.places.vault.resolve()
    return {
        "vault": str(place),
        "queue": str(queue_path(place)),
        "writer": f"{folder}/writer",
        "most_rows": options.most_rows,
        "limits": vars(limits),
        **files,
    }


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Be the only service of a vault: two of them would take up each other's requests."""
    handle = os.open(path.with_suffix(".serving"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise VaultBusy("another process serves this vault") from None
    try:
        yield
    finally:
        os.close(handle)


def _run(app: Any, address: Address, sock: socket.socket, service: Service, readers: Readers) -> None:
    """Run until a signal, at which no new request is taken and those that are under way are finished."""
    server = uvicorn.Server(config(app, address, _DRAIN))
    private = uvicorn.Server(config(_with_scheme(app, address), None, 1.0)) if readers.count else None

    def ending(number: int, frame: Any) -> None:
        service.draining = True
        server.should_exit = True
        readers.end()

    before = {one: signal.signal(one, ending) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        for one in filter(None, (server, private)):
            one.capture_signals = nullcontext  # type: ignore[method-assign, assignment] # ours are in place
        asyncio.run(_served(server, sock, private, readers))
    finally:
        readers.stop()
        for name, handler in before.items():
            signal.signal(name, handler)


async def _served(
    server: uvicorn.Server, sock: socket.socket, private: uvicorn.Server | None, readers: Readers
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


def _with_scheme(app: App, address: Address) -> App:
    """The same application for readers, who speak TLS in its place."""

    async def answered(scope: Message, receive: Receive, send: Send) -> None:
        scope["scheme"] = "http" if address.certificate is None else "https"
        await app(scope, receive, send)

    return answered
