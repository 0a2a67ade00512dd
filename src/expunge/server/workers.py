"""Readers: more processes that predict, on the same port, while one process writes.

All of them accept connections from one socket that they inherit, so none is lost when a reader ends or is started
again. A reader opens the vault read only: its answers are never from a model that an accepted request has not left,
which `expunge.vault` proves. It answers predictions and whether it is alive; it looks tokens up in the same database,
so that a revoked one ends at once. Every other request it passes on to the writer (`passing`), over a socket in a
folder that only this user can enter: there is one writer, one queue and one clock, whichever process was reached.

A reader lives as long as its standard input is open: it ends with the writer, however that ends. On its standard
output it tells the writer what it answered, for the metrics. What a caller may ask for per second is divided among the
processes.
"""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import numpy as np
from fastapi import FastAPI

from ..errors import ExpungeError
from ..vault import Vault
from .app import Limits, configure_app, healthz
from .logs import capture_logging, log, set_level, tag_process
from .middleware import ASGIApp, Message, Receive, Send, strip_prefix
from .problems import Problem
from .protocols import predictions
from .service import Service

# MERGED passing: Passing on: a reader hands every request that it does not answer itself to the writer, over a socket of their own.
# MERGED passing:
# MERGED passing: Bodies and answers are streamed; who leaves early is left by the writer, too.


_CHUNK_BYTES = 64 * 2**10
_HOP_HEADERS = {
    b"connection",
    b"keep-alive",
    b"transfer-encoding",
    b"te",
    b"trailer",
    b"upgrade",
    b"expect",
    b"proxy-connection",
}
_WRITER_AWAY = Problem(503, "writer-away", "the process that writes does not answer", {"Retry-After": "1"})

Headers = list[tuple[bytes, bytes]]


class WriterProxy:
    """An application that answers some paths, and passes the others on."""

    def __init__(self, app: ASGIApp, own: Iterable[str], below: tuple[str, ...], socket: str, prefix: str = "") -> None:
        self.app, self._own, self._below, self._socket, self._prefix = app, frozenset(own), below, socket, prefix

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = strip_prefix(scope.get("path", ""), self._prefix)
        if scope["type"] != "http" or path in self._own or path.startswith(self._below):
            await self.app(scope, receive, send)
            return
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            await _WRITER_AWAY.response()(scope, receive, send)
            return
        pump = asyncio.create_task(_send_request(scope, receive, writer))
        started = False
        try:
            async for message in _read_response(reader):
                started = True
                await send(message)
        except (OSError, h11.RemoteProtocolError):
            if not started:
                await _WRITER_AWAY.response()(scope, receive, send)
        finally:
            pump.cancel()
            with suppress(OSError, asyncio.CancelledError, h11.LocalProtocolError):
                await pump
            writer.close()


async def _send_request(scope: Message, receive: Receive, writer: asyncio.StreamWriter) -> None:
    """Send a request on, and then wait whether the client leaves."""
    connection, given = h11.Connection(h11.CLIENT), dict(scope["headers"])
    headers: Headers = [(name, value) for name, value in scope["headers"] if name not in _HOP_HEADERS]
    if b"transfer-encoding" in given:
        headers.append((b"transfer-encoding", b"chunked"))
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers.append((b"connection", b"close"))
    request = h11.Request(method=scope["method"].encode(), target=target or b"/", headers=headers)
    writer.write(connection.send(request) or b"")
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            writer.close()
            return
        if body := message.get("body", b""):
            writer.write(connection.send(h11.Data(data=body)) or b"")
            await writer.drain()
        more = message.get("more_body", False)
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()
    while (await receive())["type"] != "http.disconnect":
        pass
    writer.close()


async def _read_response(reader: asyncio.StreamReader) -> AsyncIterator[Message]:
    """What the writer answers, as messages."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "writer")]))  # it reads answers only then
    connection.send(h11.EndOfMessage())
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK_BYTES))
        elif isinstance(event, h11.Response):
            headers = [(name, value) for name, value in event.headers if name not in _HOP_HEADERS | {b"date"}]
            yield {"type": "http.response.start", "status": event.status_code, "headers": headers}
        elif isinstance(event, h11.Data):
            yield {"type": "http.response.body", "body": bytes(event.data), "more_body": True}
        elif isinstance(event, h11.EndOfMessage):
            yield {"type": "http.response.body", "body": b"", "more_body": False}
            return
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the writer went away")


# MERGED predicting: Predicting: the application of a process that does nothing else.


_SWITCH_INTERVAL = 5e-4  # seconds that a thread computes while others wait; Python gives it ten times as long


def warm_up(vault: Vault) -> None:
    """Have everything loaded that a prediction needs, so that the first that is asked for is as fast as the others.

    From then on a thread that computes for long hands over soon to one that has little to do, and garbage is collected
    only among what comes later.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    with suppress(ExpungeError):
        vault.predict(np.zeros((1, len(vault.inputs))))
    gc.collect()
    gc.freeze()  # modules stay for good: the collector need not look at them again and again


def create_prediction_app(service: Service, metrics: Any, limits: Limits) -> FastAPI:
    """The application of a reader: predictions, and whether it is alive."""
    app = FastAPI(title="expunge", docs_url=None, redoc_url=None, openapi_url=None)
    configure_app(app, service, metrics, limits)
    app.include_router(predictions.router)
    app.include_router(predictions.v2_router)
    app.get("/healthz")(healthz)
    return app


_RESTART_DELAY = 0.5  # seconds until a reader that ended is started again
_REPORT_INTERVAL = 0.5  # seconds between two lines about what was answered
_WORKER_PATHS = ("/invocations", "/ping", "/health", "/version", "/healthz", "/v2")
_WORKER_PREFIXES = ("/v2/",)
_DRAIN_SECONDS = 5.0


@dataclass
class PredictionWorkers:
    """The readers of a writer."""

    count: int
    sock: socket.socket
    facts: dict[str, Any]  # what a reader has to know
    metrics: Any = None
    _running: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start them all, and each again that ends."""
        self._threads = [threading.Thread(target=self._supervise, args=(k,), daemon=True) for k in range(self.count)]
        for thread in self._threads:
            thread.start()

    def _supervise(self, k: int) -> None:
        while not self._ending.is_set():
            reader = self._start_worker()
            self._running[k] = reader
            if self._ending.is_set():
                _close_input(reader)
            assert reader.stdout is not None
            for line in reader.stdout:
                self._record_answers(line)
            code = reader.wait()
            if not self._ending.wait(_RESTART_DELAY):
                log("reader-ended", level="warning", code=code)

    def _start_worker(self) -> "subprocess.Popen[bytes]":
        command, handle = [sys.executable, "-m", "expunge.server.workers"], self.sock.fileno()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        reader = subprocess.Popen(command, pass_fds=(handle,), **pipes)  # type: ignore[call-overload] # noqa: S603
        with suppress(BrokenPipeError):  # one that ended at once is waited for
            reader.stdin.write(json.dumps(self.facts | {"handle": handle}).encode() + b"\n")
            reader.stdin.flush()
        return reader  # type: ignore[no-any-return]

    def _record_answers(self, line: bytes) -> None:
        told = json.loads(line)
        for route, status, took in told["answers"]:
            self.metrics.http.labels(route, status).inc()
            self.metrics.seconds.labels(route).observe(took)
        self.metrics.outside.inc(told["outside"])

    def end(self) -> None:
        """Let them take no new requests; return at once."""
        self._ending.set()
        for reader in list(self._running.values()):
            _close_input(reader)

    def stop(self) -> None:
        """Wait until they have answered what they were asked, and end those that take too long."""
        self.end()
        for reader in list(self._running.values()):
            try:
                reader.wait(_DRAIN_SECONDS + 1)
            except subprocess.TimeoutExpired:
                reader.kill()
        for thread in self._threads:
            thread.join(1.0)


def _close_input(reader: "subprocess.Popen[bytes]") -> None:
    if reader.stdin is not None and not reader.stdin.closed:
        with suppress(BrokenPipeError):
            reader.stdin.close()


# In a reader


class WorkerMetrics:
    """Metrics of a process that has none: what is counted is told to another, line by line."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, str, float]] = []
        self._last: tuple[str, str] = ("", "")
        self.http = self.seconds = self
        self.outside = _RowCounter()

    def labels(self, route: str, status: str = "") -> "WorkerMetrics":
        """As those of Prometheus: first the answer, then how long it took."""
        if status:
            self._last = (route, status)
        return self

    def inc(self) -> None:
        """Its time follows."""

    def observe(self, took: float) -> None:
        """Keep an answer until it is told."""
        self._seen.append((*self._last, took))

    def report(self) -> None:
        """Write a line, if there is something to tell."""
        seen, self._seen = self._seen, []
        if seen:
            os.write(1, json.dumps({"answers": seen, "outside": self.outside.take()}).encode() + b"\n")


class _RowCounter:
    """A counter of rows, until they are told."""

    def __init__(self) -> None:
        self._lock, self._count = threading.Lock(), 0

    def inc(self, count: int) -> None:
        """Add to it."""
        with self._lock:
            self._count += count

    def take(self) -> int:
        """Return the count and begin again."""
        with self._lock:
            count, self._count = self._count, 0
        return count


def main() -> None:
    """Be a reader, until standard input ends."""
    import uvicorn

    from ..vault import Vault
    from .app import Limits
    from .database import Database
    from .process import ListenAddress, build_config

    # IMPORT GONE
    # IMPORT GONE
    from .service import Options, Service

    facts = json.loads(sys.stdin.readline())
    set_level(facts["log_level"])
    capture_logging()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the writer hears it, too
    vault = Vault.open(Path(facts["vault"]), read_only=True)
    service = Service(
        vault, Database(Path(facts["queue"])), Options(max_rows=facts["most_rows"], root_path=facts["root_path"])
    )
    warm_up(vault)
    metrics = WorkerMetrics()
    own = create_prediction_app(service, metrics, Limits(**facts["limits"]))
    app = WriterProxy(own, _WORKER_PATHS, _WORKER_PREFIXES, facts["writer"], facts["root_path"])
    certificate, key = (None if facts[name] is None else Path(facts[name]) for name in ("certificate", "key"))
    server = uvicorn.Server(build_config(app, ListenAddress(certificate=certificate, key=key), _DRAIN_SECONDS))
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment] # ours are in place

    _start_threads(server, service, metrics)
    tag_process(reader=os.getpid())
    log("reading")
    server.run(sockets=[socket.socket(fileno=facts["handle"])])
    metrics.report()
    os._exit(0)  # nothing is left to be done, and the thread that waits for standard input does not hear of an end


def _start_threads(server: Any, service: Any, metrics: WorkerMetrics) -> None:
    """Tell what was answered now and then, and end with the writer, or when asked to."""

    def end(*_: object) -> None:
        service.draining = service.closing = server.should_exit = True

    def tell() -> None:
        while not server.should_exit:
            metrics.report()
            threading.Event().wait(_REPORT_INTERVAL)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        end()

    signal.signal(signal.SIGTERM, end)
    for task in (tell, wait_for_the_end):
        threading.Thread(target=task, daemon=True).start()


if __name__ == "__main__":
    main()
