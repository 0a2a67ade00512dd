"""The process of `expunge serve`: it owns the writer, from the first socket to the last answer, and starts workers."""

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
from .listener import ListenAddress, build_config
from .logs import Level, capture_logging, log, set_level
from .service import Options, Service
from .tokens import Tokens
from .workers import PredictionWorkers, warm_up, worker_settings

__all__ = ["ListenAddress", "serve"]

_BACKLOG = 2048  # connections that wait to be accepted
# Seconds for answers under way once the port is closed, and for what follows; the docs promise 7 after --drain.
_ANSWER_TIMEOUT, _STOP_TIMEOUT = 5.0, 1.5


def serve(
    vault: Vault,
    address: ListenAddress,
    options: Options,
    limits: Limits,
    *,
    predict_workers: int = 0,
    predict_port: int = 8081,
    drain: float = 5.0,
    log_level: Level = "info",
) -> None:
    """Serve requests until the process is stopped.

    SIGTERM drains: the service reports that it is not ready, answers for ``drain`` seconds more, and closes its ports
    then. SIGINT closes them at once. A second signal ends the process at once.
    """
    set_level(log_level)
    path = queue_path(vault.places.vault)
    address.check_tls()
    with (
        _hold_service_lock(path),
        tempfile.TemporaryDirectory(prefix="expunge-") if predict_workers else nullcontext("") as metrics_folder,
    ):
        database = Database(path)
        try:
            if not (address.is_local and _is_local_url(options.public_url)) and not Tokens(database).has_valid():
                raise InvalidSetting(
                    "without a token only this machine may connect: create one (expunge token new) before you listen "
                    "on another address"
                )
            sock = address.bind()
            predict_sock = replace(address, port=predict_port).bind() if predict_workers else sock
            if options.public_url is None:
                options = replace(options, public_url=address.localhost_url(sock))
            service = Service(vault, database, options)
            app = create_app(service, limits)  # before the service starts: its protocols listen to events
        except BaseException:
            database.close()
            raise
        settings = worker_settings(vault, address, options, limits, log_level)
        workers = PredictionWorkers(predict_workers, predict_sock, settings, metrics_folder)
        capture_logging()
        warm_up(vault)
        service.start()
        for bound in {sock, predict_sock}:
            bound.listen(_BACKLOG)  # connections wait from now on until a process accepts them
        try:
            _run_server(app, address, sock, service, workers, drain)
        finally:
            clean = service.stop(_STOP_TIMEOUT)
            log("stopped", clean=clean)
    if not clean:  # a thread is still at work; what it does is safe at any moment, so do not wait for it
        os._exit(0)


def _is_local_url(public_url: str | None) -> bool:
    """Return whether no proxy shows the service to other machines: no public URL was given, or a local one."""
    return public_url is None or ListenAddress(urlsplit(public_url).hostname or "").is_local


@contextmanager
def _hold_service_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a vault's only service: two services would carry out each other's requests."""
    lock = make_queue_folder(path) / "serving"  # in a folder that no other user can enter
    with files.open_file(lock, os.O_CREAT | os.O_RDWR) as handle:
        try:
            files.system.lock(handle)
        except OSError:
            raise VaultBusy("another process serves this vault") from None
        yield


def _run_server(
    app: Any, address: ListenAddress, sock: socket.socket, service: Service, workers: PredictionWorkers, drain: float
) -> None:
    """Run until a signal; finish requests that are under way when the ports close."""
    server = uvicorn.Server(build_config(app, address, _ANSWER_TIMEOUT))
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment] # ours are in place

    def begin_drain() -> None:
        service.draining = True
        workers.drain()

    def close() -> None:
        service.closing = True
        server.should_exit = True
        workers.end()

    # A handler interrupts the main thread anywhere, also while it holds a lock: it only passes the signal on.
    signals = queue.SimpleQueue[int]()
    threading.Thread(
        target=_handle_signals, args=(signals, begin_drain, close, drain), name="expunge-signals", daemon=True
    ).start()
    before = {
        number: signal.signal(number, lambda received, frame: signals.put(received))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    facts: dict[str, Any] = {"predictions": address.url(workers.sock)} if workers.count else {}
    log("serving", address=address.url(sock), **facts)  # signals are handled from here on
    try:
        workers.start()
        asyncio.run(server.serve([sock]))
    finally:
        workers.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _handle_signals(
    signals: "queue.SimpleQueue[int]", begin_drain: Callable[[], None], close: Callable[[], None], drain: float
) -> None:
    """Wait for a signal, drain and close; end the process at the second signal."""
    first = signals.get()
    begin_drain()
    seconds = drain if first == signal.SIGTERM else 0.0
    log("draining", seconds=seconds)
    with suppress(queue.Empty):
        signals.get(timeout=seconds)
        _exit_now()
    close()
    signals.get()
    _exit_now()


def _exit_now() -> None:
    """End at once: what is written is safe at any moment, and workers end with this process."""
    log("stopped", level="warning", clean=False)
    os._exit(0)
