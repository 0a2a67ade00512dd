"""Prediction workers: processes that only predict, on a port of their own, beside the process that writes.

All workers accept connections from one listening socket that they inherit, so no connection is lost when a worker ends
and is started again. A worker opens the vault read-only: `expunge.vault` proves that it never answers from a model that
an acknowledged erasure has not left. It checks tokens in the service's database, so a revoked token ends at once. It
answers predictions, health and metrics; any other request gets 421, with a hint to use the service's own port. A
standard proxy in front of both ports routes by path (docs/proxies.md).

A worker lives as long as its standard input is open, so it ends with the writer, however that ends. A line on standard
input says that the service is draining. Workers count in files that they share (prometheus_client's multiprocess mode),
so `/metrics` of their port is the sum of all of them. Rate limits apply to each process.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from ..errors import ExpungeError
from ..vault import Vault
from .app import HttpMetrics, Limits, configure_app, healthz, metrics, readyz
from .database import Database, queue_path
from .listener import ListenAddress, build_config
from .logs import Level, capture_logging, log, set_level, tag_process
from .problems import Problem
from .protocols import predictions
from .service import Options, Service

_RESTART_DELAY = 0.5  # seconds until a worker that ended is started again
_SHUTDOWN_TIMEOUT = 5.0  # seconds for answers that are under way
_SWITCH_INTERVAL = 5e-4  # seconds that a thread computes while others wait; Python's default is ten times as long
_COLLECTOR_THRESHOLDS = 700, 10, 1000  # Python's are 700, 10, 10


@dataclass
class PredictionWorkers:
    """The worker processes of a service. With a ``count`` of 0 nothing is started."""

    count: int
    sock: socket.socket  # listening
    settings: dict[str, Any]  # of each worker, see `worker_settings`
    metrics_folder: str  # where workers keep their counters
    _processes: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start all workers, and start each again that ends."""
        self._threads = [threading.Thread(target=self._supervise, args=(k,), daemon=True) for k in range(self.count)]
        for thread in self._threads:
            thread.start()

    def _supervise(self, k: int) -> None:
        while not self._ending.is_set():
            worker = self._processes[k] = self._start_worker()
            if self._ending.is_set():
                _close_input(worker)
            code = worker.wait()
            if not self._ending.wait(_RESTART_DELAY):
                log("worker-ended", level="warning", code=code)

    def _start_worker(self) -> "subprocess.Popen[bytes]":
        handle = self.sock.fileno()
        worker = subprocess.Popen(
            [sys.executable, "-m", "expunge.server.workers"],
            pass_fds=(handle,),
            stdin=subprocess.PIPE,
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": self.metrics_folder},
        )
        _write_line(worker, json.dumps(self.settings | {"handle": handle}))
        return worker

    def drain(self) -> None:
        """Make workers report that they are not ready, while they still answer."""
        for worker in list(self._processes.values()):
            _write_line(worker, "drain")

    def end(self) -> None:
        """Let workers accept no more requests; return at once."""
        self._ending.set()
        for worker in list(self._processes.values()):
            _close_input(worker)

    def stop(self) -> None:
        """End the workers: wait for answers that are under way, and kill workers that take too long."""
        self.end()
        for worker in list(self._processes.values()):
            try:
                worker.wait(_SHUTDOWN_TIMEOUT + 1)
            except subprocess.TimeoutExpired:
                worker.kill()
        for thread in self._threads:
            thread.join(1.0)


def worker_settings(
    vault: Vault, address: ListenAddress, options: Options, limits: Limits, log_level: Level
) -> dict[str, Any]:
    """Return the settings of a worker, as JSON can hold them."""
    files = {name: getattr(address, name) for name in ("certificate", "key")}
    return {
        "vault": str(vault.places.vault.resolve()),
        "options": {name: getattr(options, name) for name in ("max_rows", "root_path", "open_metrics")},
        "limits": asdict(limits),
        "log_level": log_level,
        **{name: None if file is None else str(file.resolve()) for name, file in files.items()},
    }


def _write_line(worker: "subprocess.Popen[bytes]", line: str) -> None:
    assert worker.stdin is not None
    with suppress(BrokenPipeError, ValueError):  # it has just ended, or its input was closed
        worker.stdin.write(line.encode() + b"\n")
        worker.stdin.flush()


def _close_input(worker: "subprocess.Popen[bytes]") -> None:
    if worker.stdin is not None and not worker.stdin.closed:
        with suppress(BrokenPipeError):
            worker.stdin.close()


def warm_up(vault: Vault) -> None:
    """Load everything that a prediction needs, so that the first one is as fast as the others.

    Also make threads that compute for long hand over soon, and let the garbage collector, for which all threads wait,
    visit no modules, and old objects rarely: else it visits all of them several times while an erasure of 100,000
    people makes more and more.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    with suppress(ExpungeError):
        vault.predict(np.zeros((1, len(vault.inputs))))
    gc.collect()
    gc.freeze()


class WorkerMetrics(HttpMetrics):
    """The metrics of all workers, whichever of them renders them."""

    def render(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def create_prediction_app(service: Service, limits: Limits) -> FastAPI:
    """Return the application of a worker: predictions, health and metrics."""
    app = FastAPI(title="expunge", docs_url=None, redoc_url=None, openapi_url=None)
    configure_app(app, service, WorkerMetrics(), limits)
    app.include_router(predictions.router)
    app.include_router(predictions.v2_router)
    for path, route in (("/healthz", healthz), ("/readyz", readyz)):
        app.add_api_route(path, route, methods=["GET", "HEAD"])
    app.get("/metrics")(metrics)
    app.add_exception_handler(404, _answer_misdirected)
    return app


async def _answer_misdirected(request: Request, error: Exception) -> JSONResponse:
    detail = "this port answers predictions only: send this request to the port of the service (--port)"
    return Problem(421, "misdirected", detail).response()


def main() -> None:
    """Run a worker until standard input ends."""
    settings = json.loads(sys.stdin.readline())
    set_level(settings["log_level"])
    capture_logging()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the writer gets it as well, and ends us
    vault = Vault.open(Path(settings["vault"]), read_only=True)
    service = Service(vault, Database(queue_path(vault.places.vault)), Options(**settings["options"]))
    warm_up(vault)
    app = create_prediction_app(service, Limits(**settings["limits"]))
    certificate, key = (settings[name] and Path(settings[name]) for name in ("certificate", "key"))
    server = uvicorn.Server(build_config(app, ListenAddress(certificate=certificate, key=key), _SHUTDOWN_TIMEOUT))
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment] # ours are in place

    def end(*_: object) -> None:
        service.draining = service.closing = server.should_exit = True

    def watch_input() -> None:
        for _ in sys.stdin:
            service.draining = True
        end()

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=watch_input, daemon=True).start()
    tag_process(worker=os.getpid())
    log("predicting")
    server.run(sockets=[socket.socket(fileno=settings["handle"])])
    os._exit(0)  # not sys.exit: the thread that reads standard input would keep the process


if __name__ == "__main__":
    main()
