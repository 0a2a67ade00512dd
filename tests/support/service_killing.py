"""Kill a service that has traffic, at random instants, again and again: everything it acknowledged is there, once.

    cd tests; python -m support.service_killing --kills 5000 --seed 1

Clients erase people (at once and later) and add rows, over HTTP, and note what was acknowledged before they ask for
more. Then the process is killed. The next one has to finish all of it by itself; what was not acknowledged is asked for
again with the same Idempotency-Key, and must not be done twice. In the end the vault is verified.

This process imports everything once and forks a service for each life.
"""

import argparse
import http.client
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from expunge.server.app import Limits
from expunge.server.process import ListenAddress, serve
from expunge.server.service import Options
from expunge.vault import Vault

from support.processes import Served, small_vault

PEOPLE = 4000
KILLS_A_VAULT = 50
LONGEST = 0.25  # seconds of a life with traffic; a request takes about 10 ms
LIMITS = Limits(per_second=1e6, burst=1e6)


class Life:
    """A service in a process of its own, from its start to its end."""

    def __init__(self, path, log):
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                handle = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
                os.dup2(handle, 2)
                serve(Vault.open(path), ListenAddress(port=0), Options(), LIMITS)
                code = 0
            finally:
                os._exit(code)
        self.port = self._port(log)

    def _port(self, log):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(FileNotFoundError):
                lines = log.read_text().splitlines(keepends=True)
                for line in lines:
                    if '"serving"' in line and line.endswith("\n"):
                        log.unlink()
                        return int(json.loads(line)["address"].rpartition(":")[2])
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                raise AssertionError(f"the service does not start: {log.read_text()}")
            time.sleep(0.005)
        raise AssertionError("the service does not answer")

    def end(self, number=signal.SIGKILL):
        """End it, and return how it ended."""
        os.kill(self.pid, number)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def asker(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)


class Traffic:
    """What clients ask for, and what was acknowledged."""

    def __init__(self, rng):
        self.rng = rng
        self.people = iter(range(PEOPLE))
        self.lock = threading.Lock()
        self.acknowledged, self.open = {}, {}  # by key: the request's id; what was asked
        self.rows = set()  # keys of requests that brought rows

    def asks(self, kind):
        """A new request, with its key."""
        with self.lock:
            k = next(self.people)
        if kind == "rows":
            self.rows.add(f"k{k}")
            row = {"who": f"new{k}", "age": 0.5, "visits": k % 100 / 100, "spend": 0.25}
            return f"k{k}", ("/api/v1/rows", {"rows": [row]}, {})
        later = {"Prefer": "respond-async"} if kind == "later" else {}
        return f"k{k}", ("/api/v1/erasures", {"ids": [f"p{k}"]}, later)

    def ask(self, connection, key, asked):
        """Ask, and note the answer once it is there."""
        path, body, headers = asked
        self.open[key] = asked
        status, answer = Served.on(connection, "POST", path, body, {"Idempotency-Key": key, **headers})
        assert status in (200, 202), (status, answer)
        self.acknowledged[key] = answer["id"]
        del self.open[key]

    def run(self, life, kind, stop):
        """Ask until the service is gone."""
        connection = life.asker()
        try:
            while not stop.is_set():
                self.ask(connection, *self.asks(kind))
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def again(self, life):
        """Ask once more for all that was not acknowledged."""
        connection = life.asker()
        for key, asked in list(self.open.items()):
            self.ask(connection, key, asked)
        connection.close()

    def checked(self, path):
        """Everything acknowledged is there, once."""
        vault = Vault.open(path)
        keys = list(self.acknowledged)
        erased = [key for key in keys if key not in self.rows]
        assert self.acknowledged.keys().isdisjoint(self.open)
        states = vault.find([f"p{key[1:]}" for key in erased]) if erased else []
        assert {one.state for one in states} <= {"erased"}
        added = [f"new{key[1:]}" for key in keys if key in self.rows]
        assert {one.rows for one in (vault.find(added) if added else [])} <= {1}
        jobs = [(one.kind, caller.job) for one in vault.requests for caller in one.callers]
        # An erasure that is taken up after a kill may share another request: nobody is erased twice by that.
        assert set(Counter(job for kind, job in jobs if kind == "add").values()) <= {1}
        assert set(self.acknowledged.values()) <= {job for _, job in jobs}
        assert len(set(self.acknowledged.values())) == len(keys)
        assert vault.status().people == PEOPLE - len(erased) + len(added)
        return vault


def finished(life):
    """Wait until nothing is open any more."""
    connection = life.asker()
    while True:
        status, page = Served.on(connection, "GET", "/api/v1/requests?state=waiting&state=running&state=held")
        assert status == 200
        if not page["requests"]:
            connection.close()
            return
        time.sleep(0.01)


def killed(folder, kills, rng):
    """One vault, killed so often; return how many requests were acknowledged."""
    path, log, traffic = folder / "spend.vault", folder / "log", Traffic(rng)
    small_vault(path, PEOPLE)
    for _ in range(kills):
        life, stop = Life(path, log), threading.Event()
        clients = [
            threading.Thread(target=traffic.run, args=(life, kind, stop)) for kind in ("now", "later", "rows", "now")
        ]
        for client in clients:
            client.start()
        time.sleep(rng.random() * LONGEST)
        assert life.end() == -signal.SIGKILL
        stop.set()
        for client in clients:
            client.join()
    life = Life(path, log)
    traffic.again(life)
    finished(life)
    assert life.end(signal.SIGTERM) == 0
    assert traffic.checked(path).verify().ok
    return len(traffic.acknowledged)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng, left, done = random.Random(args.seed), args.kills, 0
    while left:
        some = min(left, KILLS_A_VAULT)
        with tempfile.TemporaryDirectory() as folder:
            done += killed(Path(folder), some, rng)
        left -= some
        sys.stdout.write(f"{args.kills - left} kills, {done} requests acknowledged, all there, once\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
