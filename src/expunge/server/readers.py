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

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .logs import capture_everything, log, set_level, tag_process

_AGAIN = 0.5  # seconds until a reader that ended is started again
_TELL = 0.5  # seconds between two lines about what was answered
_OWN = ("/invocations", "/ping", "/health", "/version", "/healthz", "/v2")
_BELOW = ("/v2/",)
_DRAIN = 5.0


@dataclass
class Readers:
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
        self._threads = [threading.Thread(target=self._keep, args=(k,), daemon=True) for k in range(self.count)]
        for thread in self._threads:
            thread.start()

    def _keep(self, k: int) -> None:
        while not self._ending.is_set():
            reader = self._started()
            self._running[k] = reader
            if self._ending.is_set():
                _let_go(reader)
            assert reader.stdout is not None
            for line in reader.stdout:
                self._count(line)
            code = reader.wait()
            if not self._ending.wait(_AGAIN):
                log("reader-ended", level="warning", code=code)

    def _started(self) -> "subprocess.Popen[bytes]":
        command, handle = [sys.executable, "-m", "expunge.server.readers"], self.sock.fileno()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        reader = subprocess.Popen(command, pass_fds=(handle,), **pipes)  # type: ignore[call-overload] # noqa: S603
        with suppress(BrokenPipeError):  # one that ended at once is waited for
            reader.stdin.write(json.dumps(self.facts | {"handle": handle}).encode() + b"\n")
            reader.stdin.flush()
        return reader  # type: ignore[no-any-return]

    def _count(self, line: bytes) -> None:
        told = json.loads(line)
        for route, status, took in told["answers"]:
            self.metrics.http.labels(route, status).inc()
            self.metrics.seconds.labels(route).observe(took)
        self.metrics.outside.inc(told["outside"])

    def end(self) -> None:
        """Let them take no new requests; return at once."""
        self._ending.set()
        for reader in list(self._running.values()):
            _let_go(reader)

    def stop(self) -> None:
        """Wait until they have answered what they were asked, and end those that take too long."""
        self.end()
        for reader in list(self._running.values()):
            try:
                reader.wait(_DRAIN + 1)
            except subprocess.TimeoutExpired:
                reader.kill()
        for thread in self._threads:
            thread.join(1.0)


def _let_go(reader: "subprocess.Popen[bytes]") -> None:
    if reader.stdin is not None and not reader.stdin.closed:
        with suppress(BrokenPipeError):
            reader.stdin.close()


# In a reader


class Reported:
    """Metrics of a process that has none: what is counted is told to another, line by line."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, str, float]] = []
        self._last: tuple[str, str] = ("", "")
        self.http = self.seconds = self
        self.outside = _Sum()

    def labels(self, route: str, status: str = "") -> "Reported":
        """As those of Prometheus: first the answer, then how long it took."""
        if status:
            self._last = (route, status)
        return self

    def inc(self) -> None:
        """Its time follows."""

    def observe(self, took: float) -> None:
        """Keep an answer until it is told."""
        self._seen.append((*self._last, took))

    def tell(self) -> None:
        """Write a line, if there is something to tell."""
        seen, self._seen = self._seen, []
        if seen:
            os.write(1, json.dumps({"answers": seen, "outside": self.outside.take()}).encode() + b"\n")


class _Sum:
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
    from .listening import Address, config
    from .options import Options
    from .passing import Passing
    from .predicting import create_reader, warm
    from .service import Service

    facts = json.loads(sys.stdin.readline())
    set_level(facts["log_level"])
    capture_everything()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the writer hears it, too
    vault = Vault.open(Path(facts["vault"]), read_only=True)
    service = Service(
        vault, Database(Path(facts["queue"])), Options(most_rows=facts["most_rows"], root_path=facts["root_path"])
    )
    warm(vault)
    metrics = Reported()
    own = create_reader(service, metrics, Limits(**facts["limits"]))
    app = Passing(own, _OWN, _BELOW, facts["writer"], facts["root_path"])
    certificate, key = (None if facts[name] is None else Path(facts[name]) for name in ("certificate", "key"))
    server = uvicorn.Server(config(app, Address(certificate=certificate, key=key), _DRAIN))
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment] # ours are in place

    _watch(server, service, metrics)
    tag_process(reader=os.getpid())
    log("reading")
    server.run(sockets=[socket.socket(fileno=facts["handle"])])
    metrics.tell()
    os._exit(0)  # nothing is left to be done, and the thread that waits for standard input does not hear of an end


def _watch(server: Any, service: Any, metrics: Reported) -> None:
    """Tell what was answered now and then, and end with the writer, or when asked to."""

    def end(*_: object) -> None:
        service.draining = service.closing = server.should_exit = True

    def tell() -> None:
        while not server.should_exit:
            metrics.tell()
            threading.Event().wait(_TELL)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        end()

    signal.signal(signal.SIGTERM, end)
    for task in (tell, wait_for_the_end):
        threading.Thread(target=task, daemon=True).start()


if __name__ == "__main__":
    main()
