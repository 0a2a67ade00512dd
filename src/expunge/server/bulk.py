"""The bulk process: predictions of large bodies, beside the process that received them.

One interpreter runs Python in one thread at a time, so a thread that parses 20 MB of JSON delays every other request.
A large body is therefore parsed, predicted and formatted in a process of its own, with a lower priority where that is
allowed. It is started with the first large body, kept, and answers one call after the other. It opens the vault
read-only: `expunge.vault` proves that it never answers from a model that an acknowledged erasure has not left.

Bodies and answers pass through a socket pair, which is its standard input, so nothing of them is on a disk. It ends
when the other socket is closed, even in the middle of a call: so it ends with the process that started it, however that
ends. If it dies itself, its caller gets 503, and the next call starts another one.
"""

import gc
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Response

from ..vault import Vault
from .logs import capture_logging, get_level, log, request_facts, request_scope, set_level, tag_process, tag_token
from .problems import Problem, respond_to_error
from .protocols.predictions import PredictionCall, answer_call, refuse_inference
from .service import Service

_NICE = 10  # lower than a service, and still some of a processor that others keep busy
_limiter: RunVar[CapacityLimiter] = RunVar("the caller of the bulk process")


class BulkProcess:
    """The process that predicts large bodies; nothing is started before the first one."""

    def __init__(self, service: Service) -> None:
        self._settings = {"vault": str(service.vault.places.vault.resolve()), "max_rows": service.options.max_rows}
        self._lock = threading.Lock()  # held to start or end the process
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._closed = False

    async def answer(self, call: PredictionCall, raw: bytes) -> tuple[Response, int]:
        """Answer as `answer_call` does; callers wait for each other without a thread."""
        limiter = _limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(1)
            _limiter.set(limiter)
        return await to_thread.run_sync(self._ask, call, raw, limiter=limiter)

    def _ask(self, call: PredictionCall, raw: bytes) -> tuple[Response, int]:
        try:
            connection = self._connect()
            connection.send_bytes(json.dumps(asdict(call) | {"request": request_facts()}).encode())
            connection.send_bytes(raw)
            head, body = json.loads(connection.recv_bytes()), connection.recv_bytes()
        except (EOFError, OSError):
            with self._lock:
                self._forget()
            problem = Problem(503, "interrupted", "the prediction was interrupted: send it again", {"Retry-After": "1"})
            return problem.response() if call.model is None else refuse_inference(problem), 0
        return Response(body, head["status"], head["headers"]), head["outside"]

    def _connect(self) -> Connection:
        with self._lock:
            if self._closed:
                raise EOFError
            if self._connection is not None and self._connection.poll():  # it died while nobody called
                self._forget()
            if self._connection is None:
                self._connection, theirs = Pipe()
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "expunge.server.bulk"], stdin=theirs.fileno()
                    )
                with suppress(OSError):  # not every environment allows it
                    os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICE)
                self._connection.send_bytes(json.dumps(self._settings | {"log_level": get_level()}).encode())
            return self._connection

    def _forget(self) -> None:
        """Forget a process that died, or whose answer was incomplete."""
        if self._connection is not None and self._process is not None:
            self._connection.close()
            self._process.kill()
            code = self._process.wait()
            if not self._closed:
                log("bulk-process-ended", level="warning", code=code)
        self._connection = self._process = None

    def close(self) -> None:
        """End the process; a call that is under way gets 503."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()  # a caller that waits for an answer reads the end of the connection, and closes it
                self._process.wait()


def main() -> None:
    """Answer calls until the other end of the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the service gets it as well, and ends us
    connection = Connection(sys.stdin.fileno())
    settings = json.loads(connection.recv_bytes())
    set_level(settings["log_level"])
    capture_logging()
    tag_process(bulk=os.getpid())
    calls = queue.SimpleQueue[tuple[bytes, bytes]]()

    def receive() -> None:
        try:
            while True:
                calls.put((connection.recv_bytes(), connection.recv_bytes()))
        finally:  # nobody waits for an answer any more
            os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    vault = Vault.open(Path(settings["vault"]), read_only=True)
    gc.disable()  # it would visit millions of lists again and again while they are made
    while True:
        _answer_next(connection, *calls.get(), vault, settings["max_rows"])
        gc.collect()


def _answer_next(connection: Connection, head: bytes, raw: bytes, vault: Vault, max_rows: int) -> None:
    call = json.loads(head)
    request = call.pop("request")
    with request_scope(request.get("request_id")):
        tag_token(request.get("token", ""))
        try:
            response, outside = answer_call(vault, max_rows, PredictionCall(**call), raw)
        except Exception as error:
            response, outside = respond_to_error(error), 0
    about = {"status": response.status_code, "headers": dict(response.headers), "outside": outside}
    connection.send_bytes(json.dumps(about).encode())
    connection.send_bytes(response.body)


if __name__ == "__main__":
    main()
