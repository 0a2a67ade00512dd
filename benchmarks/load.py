"""Load: predictions over HTTP at a steady rate while people are erased: ``python -m benchmarks.load --seconds 1800``.

Real clients on real sockets. An answer is stale if it is of a model that an erasure, acknowledged before the question
was sent, has left: each model's answer to the probe is computed from the files. In the end every acknowledged erasure
is looked up in the vault. With ``--mlflow PYTHON``, an interpreter that has mlflow and scikit-learn, one prediction is
also compared with MLflow's own server, in turns.
"""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from expunge import CodedRegressor
from expunge.vault import Vault

from .history import make_history

PROBE = [[0.4, 0.5]]
PEOPLE = 20_000
COLUMNS = ("age", "visits")
Answer = tuple[int, dict[str, Any]]
_SLOWER = 1.5  # times the p99 at an empty history: the goal


class Client:
    """A connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, path: str, body: object) -> Answer:
        """Send JSON; return the status and what came back."""
        self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw) if raw.startswith(b"{") else {}


@dataclass
class Seen:
    """What the clients saw."""

    acknowledged: list[str] = field(default_factory=list)  # people
    truths: list[float] = field(default_factory=list)  # the probe's answer after so many erasures
    answers: Counter[tuple[int, float]] = field(default_factory=Counter)  # how many were acknowledged; the prediction
    seconds: list[float] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)

    @property
    def stale(self) -> int:
        """Answers of models that had been left."""
        newest = {truth: k for k, truth in enumerate(self.truths)}
        return sum(count for (asked, value), count in self.answers.items() if newest.get(value, -1) < asked)


def main() -> None:
    """Run, print, and fail if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=200.0, help="predictions per second")
    parser.add_argument("--erasures", type=float, default=2.0, help="per second")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1, help="processes that predict beside the writer")
    parser.add_argument(
        "--history", type=int, default=0, help="past requests; the p99 is compared with that at an empty history"
    )
    parser.add_argument("--mlflow", metavar="PYTHON", help="an interpreter that has mlflow and scikit-learn")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broken, before = False, 0.0
        if args.history:
            print("an empty history, for comparison:")
            shorter = argparse.Namespace(**{**vars(args), "seconds": max(30.0, args.seconds / 10), "mlflow": None})
            broken, before = _run(Path(folder) / "empty", shorter, history=0)
            print(f"\n{args.history:,} past requests:")
        failed, p99 = _run(Path(folder) / "long", args, history=args.history)
        if args.history:
            print(f"p99 at {args.history:,} past requests: {p99 / before:.2f} times that at none (goal {_SLOWER})")
            failed = failed or p99 / before > _SLOWER
    sys.exit(broken or failed)


def _run(folder: Path, args: argparse.Namespace, history: int) -> tuple[bool, float]:
    """Load a service and print what was seen; return whether a promise was broken, and the p99 in milliseconds."""
    folder.mkdir()
    path = make_vault(folder / "spend.vault", PEOPLE + history)
    if history:
        make_history(path, range(PEOPLE, PEOPLE + history))
    with serve(path, args.workers) as (port, predict_port):
        seen, took = _loaded(path, port, predict_port, args)
        if args.mlflow:
            _compare(args.mlflow, predict_port, folder)
    lost = [one.state for one in Vault.open(path).find(seen.acknowledged)] if seen.acknowledged else []
    print(f"{len(seen.seconds):,} predictions in {took:.0f} s: {len(seen.seconds) / took:.1f} per second")
    p50, p99 = (1e3 * float(value) for value in np.quantile(seen.seconds, [0.5, 0.99]))
    print(f"p50 {p50:.2f} ms, p99 {p99:.2f} ms; {len(seen.acknowledged):,} erasures acknowledged")
    missing = sum(state != "erased" for state in lost)
    print(f"stale answers: {seen.stale}; lost requests: {missing}; errors: {dict(seen.errors) or 0}", flush=True)
    return bool(seen.stale or missing or seen.errors), p99


def make_vault(path: Path, people: int = PEOPLE) -> Path:
    """Train a small model of many people."""
    rng = np.random.default_rng(0)
    columns = {name: rng.random(people) for name in (*COLUMNS, "spend")}
    table = pa.table({"who": [f"p{k}" for k in range(people)], **columns})
    Vault.create(path, table, target="spend", id="who", model=CodedRegressor(shards=50, rate=5, random_state=0))
    return path


@contextmanager
def serve(path: Path, workers: int, env: Mapping[str, str] | None = None) -> Iterator[tuple[int, int]]:
    """Serve a vault in a process of its own; yield its port, and the port that predicts."""
    command = [sys.executable, "-m", "expunge", "serve", "--vault", str(path), "--port", "0"]
    command += ["--predict-workers", str(workers), "--predict-port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=env) as process:
        assert process.stderr is not None
        port, predict_port, waiting = 0, 0, 1 + workers
        for line in process.stderr:
            if b'"serving"' in line:
                facts = json.loads(line)
                port = urlsplit(facts["address"]).port or 0
                predict_port = urlsplit(facts.get("predictions", "")).port or port
            waiting -= b'"serving"' in line or b'"predicting"' in line
            if not waiting:
                break
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield port, predict_port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


def _loaded(path: Path, port: int, predict_port: int, args: argparse.Namespace) -> tuple[Seen, float]:
    """Have everybody ask until the time is over."""
    seen, end, lock = Seen(), time.monotonic() + args.seconds, threading.Lock()
    vault = Vault.open(path, read_only=True)
    seen.truths.append(float(vault.predict(np.array(PROBE))[0]))

    def predict(k: int) -> None:
        client, every = Client(predict_port), args.clients / args.rate
        due = time.monotonic() + every * k / args.clients
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            asked, started = len(seen.acknowledged), time.perf_counter()
            status, answer = client.post("/invocations", {"instances": PROBE})
            took = time.perf_counter() - started
            with lock:
                seen.seconds.append(took)
                if status == 200:
                    seen.answers[asked, answer["predictions"][0]] += 1
                else:
                    seen.errors[status] += 1
            due += every

    def erase() -> None:
        client = Client(port)
        for k in range(int(args.seconds * args.erasures)):
            if time.monotonic() >= end:
                return
            status, _ = client.post("/api/v1/erasures", {"ids": [f"p{k}"]})
            if status != 200:
                seen.errors[status] += 1
                return
            seen.truths.append(float(vault.predict(np.array(PROBE))[0]))
            seen.acknowledged.append(f"p{k}")
            time.sleep(1 / args.erasures)

    threads = [threading.Thread(target=predict, args=(k,)) for k in range(args.clients)]
    threads.append(threading.Thread(target=erase))
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen, time.monotonic() - started


_MLFLOW = """
import sys, mlflow, numpy as np, pandas as pd
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
rng = np.random.default_rng(0)
X = pd.DataFrame({name: rng.random(20_000) for name in ("age", "visits")})
mlflow.sklearn.save_model(make_pipeline(StandardScaler(), Ridge()).fit(X, rng.random(20_000)), sys.argv[1])
"""


def _compare(python: str, port: int, folder: Path, rounds: int = 300) -> None:
    """Time one prediction here and in MLflow's own server, in turns."""
    model = folder / "mlflow"
    subprocess.run([python, "-c", _MLFLOW, str(model)], check=True, capture_output=True)
    command = [python, "-m", "mlflow", "models", "serve", "-m", str(model), "--env-manager", "local", "-p", "18080"]
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, env=os.environ | {"PATH": path}, start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        body = {"dataframe_split": {"columns": list(COLUMNS), "data": PROBE}}
        slower = _ready(18080, body)  # first: it takes a while, and our server does not wait for ever
        clients = {"expunge": _ready(port, body), "mlflow": slower}
        took: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(rounds):
            for name, client in clients.items():
                started = time.perf_counter()
                status, _answer = client.post("/invocations", body)
                assert status == 200
                took[name].append(time.perf_counter() - started)
        ours, theirs = (1e3 * float(np.median(took[name])) for name in ("expunge", "mlflow"))
        print(f"one prediction, p50: expunge {ours:.2f} ms, MLflow {theirs:.2f} ms: {ours / theirs:.2f}x")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(10)


def _ready(port: int, body: object) -> Client:
    """A client of a server that answers; it may take a while to start."""
    for _ in range(240):
        client = Client(port)
        try:
            for _warm in range(20):
                client.post("/invocations", body)
            return client
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the server does not answer")


if __name__ == "__main__":
    main()
