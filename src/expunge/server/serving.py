"""Serving: one process that owns the writer, from the first socket to the last answer, and its readers."""

import asyncio
import os
import queue
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from ..errors import InvalidSetting, VaultBusy
from ..saving import files
from ..vault import Vault
from .app import Limits, create_app
from .database import Database, make_queue_folder, queue_path
from .limits import App, Message, Receive, Send
from .listening import Address, config
from .logs import Level, capture_everything, log, set_level
from .predicting import warm
from .readers import Readers
from .service import Options, Service
from .tokens import Tokens

__all__ = ["Address", "serve"]

_UNGUARDED = "without a token only this machine may ask: make one (expunge token new) before you listen elsewhere"
# Seconds for answers that are under way once the port is closed, and for what follows; beyond --drain 7 are promised.
_UNDER_WAY, _LAST = 5.0, 1.5


def serve(
    vault: Vault,
    address: Address,
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
    with _alone(path), tempfile.TemporaryDirectory(prefix="expunge-") if readers else nullcontext("") as folder:
        database = Database(path)
        try:
            if not (address.local and _is_local(options.public)) and not Tokens(database).valid():
                raise InvalidSetting(_UNGUARDED)
            sock = address.bound()
            options = replace(options, public=address.public(sock) if options.public is None else options.public)
            service = Service(vault, database, options)
            app = create_app(service, limits)  # its protocols listen before anything happens
        except BaseException:
            database.close()
            raise
        facts = _facts(vault, address, options, limits, folder) | {"log_level": log_level}
        others = Readers(readers, sock, facts, app.state.metrics)
        capture_everything()
        warm(vault)
        service.start()
        sock.listen(2048)  # who comes from now on waits until somebody answers
        try:
            _run(app, address, sock, service, others, drain)
        finally:
            clean = service.stop(_LAST)
            log("stopped", clean=clean)
    if not clean:  # a thread is at work that nobody waits for: what it does is safe at any moment
        os._exit(0)


def _is_local(public: str | None) -> bool:
    """Whether the public address, if one was given, is one of this machine: no proxy shows the service to others."""
    return public is None or Address(urlsplit(public).hostname or "").local


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
        "root_path": options.root_path,
        "limits": vars(limits),
        **files,
    }


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Be the only service of a vault: two of them would take up each other's requests."""
    lock = make_queue_folder(path) / "serving"  # where nobody else can hold it
    with files.opened(lock, os.O_CREAT | os.O_RDWR) as handle:
        try:
            files.system.lock(handle)
        except OSError:
            raise VaultBusy("another process serves this vault") from None
        yield


def _run(app: Any, address: Address, sock: socket.socket, service: Service, readers: Readers, drain: float) -> None:
    """Run until a signal; requests that are under way when the port closes are finished."""
    server = uvicorn.Server(config(app, address, _UNDER_WAY))
    private = uvicorn.Server(config(_with_scheme(app, address), None, 1.0)) if readers.count else None

    def close() -> None:
        service.closing = True
        server.should_exit = True
        readers.end()

    # A handler interrupts the main thread anywhere, also while it holds a lock: it only hands the signal on.
    signals = queue.SimpleQueue[int]()
    threading.Thread(target=_end, args=(signals, service, drain, close), name="expunge-ending", daemon=True).start()
    before = {
        one: signal.signal(one, lambda number, frame: signals.put(number)) for one in (signal.SIGTERM, signal.SIGINT)
    }
    log("serving", address=address.url(sock))  # signals are handled from here on
    try:
        for one in filter(None, (server, private)):
            one.capture_signals = nullcontext  # type: ignore[method-assign, assignment] # ours are in place
        asyncio.run(_served(server, sock, private, readers))
    finally:
        readers.stop()
        for name, handler in before.items():
            signal.signal(name, handler)


def _end(signals: "queue.SimpleQueue[int]", service: Service, drain: float, close: Callable[[], None]) -> None:
    """Wait for a signal, drain and close; end the process at the second one."""
    first = signals.get()
    service.draining = True
    seconds = drain if first == signal.SIGTERM else 0.0
    log("draining", seconds=seconds)
    with suppress(queue.Empty):
        signals.get(timeout=seconds)
        _end_now()
    close()
    signals.get()
    _end_now()


def _end_now() -> None:
    """End without waiting for anybody: what is written is safe at any moment, and readers end with their writer."""
    log("stopped", level="warning", clean=False)
    os._exit(0)


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
