"""Processes: a real `expunge serve`, on a port of its own, and a client that speaks to it over a socket."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from expunge import CodedRegressor
from expunge.vault import Vault


def small_vault(path, count=400, seed=0):
    """A vault of people p0, p1, ... with two inputs."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.random(count) for name in ("age", "visits")}
    table = pa.table({"who": [f"p{k}" for k in range(count)], **columns, "spend": rng.random(count)})
    model = CodedRegressor(shards=20, rate=5, random_state=0)
    return Vault.create(path, table, target="spend", id="who", model=model)


class Served:
    """A process that serves a vault; its log is kept."""

    def __init__(self, vault, *options):
        drain = () if "--drain" in options else ("--drain", "0s")  # nobody balances a load here
        command = [sys.executable, "-m", "expunge", "serve", "--vault", str(vault), "--port", "0", *drain, *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.lines, self._ready = [], threading.Event()
        self.port = self.predict_port = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self._ready.wait(60)
        if self.port is None:
            raise AssertionError(f"it does not serve: {self.lines}")

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if self.port is None and b'"serving"' in line:
                facts = json.loads(line)
                self.predict_port = urlsplit(facts.get("predictions", "")).port
                self.port = urlsplit(facts["address"]).port
                self._ready.set()
        self._ready.set()

    def ask(self, method, path, body=None, headers=None, timeout=60.0, port=None):
        """One request on a connection of its own: the status, and what was answered (JSON if it is)."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        try:
            return self.on(connection, method, path, body, headers)
        finally:
            connection.close()

    @staticmethod
    def on(connection, method, path, body=None, headers=None):
        """One request on a connection that is kept."""
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        sent = {"Content-Type": "application/json"} if isinstance(body, (dict, list)) else {}
        connection.request(method, path, data, sent | (headers or {}))
        answer = connection.getresponse()
        raw = answer.read()
        with suppress(ValueError):
            return answer.status, json.loads(raw)
        return answer.status, raw

    def kill(self):
        """End it without a word."""
        self.process.kill()
        self.process.wait()
        self._thread.join()

    def stop(self, timeout=10.0):
        """Ask it to end; it has 10 seconds. Return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout)
        self._thread.join()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.process.stderr.close()

    def children(self, pid=None):
        """The processes that it started, or that one of them started."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[1]) == (pid or self.process.pid) and fields[0] != "Z":
                    found.append(int(path.parent.name))
        return found


def until(true):
    """Wait for another process, without keeping it from its work."""
    pause, left = threading.Event(), 6000
    while not true():
        pause.wait(0.02)
        left -= 1
        assert left, "it took more than two minutes"


def alive(pid):
    """Whether a process is there."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
