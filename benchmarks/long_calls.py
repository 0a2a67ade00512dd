"""Long calls: how long one-row predictions take while somebody else asks for a lot, beside how long they take alone.

    python -m benchmarks.long_calls

Prints, side by side, p50 and p99 of one-row predictions: alone, during predictions of 700,000 rows (JSON and CSV), and
during erasures of 100,000 ids; and the ratio of each p99 to the p50 alone. Exits with 1 if a ratio is above 10. One
caller, one connection; the long calls come from another process, so that only the service can be what stalls.
"""

import argparse
import http.client
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from expunge import CodedRegressor
from expunge.vault import Vault

MOST = 10.0  # the goal: times the p50 alone
_ROW = json.dumps({"instances": [[0.5, 0.5]]})
_JSON, _CSV, _TEXT = "application/json", "text/csv", "text/plain"


def make_vault(folder: Path, people: int = 1000) -> Path:
    """Make a small vault; most of the ids that are erased are unknown to it."""
    rng = np.random.default_rng(0)
    columns = {name: rng.random(people) for name in ("age", "visits", "spend")}
    table = pa.table({"who": [f"p{k}" for k in range(people)], **columns})
    model = CodedRegressor(shards=20, rate=5, random_state=0)
    Vault.create(folder / "spend.vault", table, target="spend", id="who", model=model)
    return folder / "spend.vault"


def ask(port: int, path: str, body: Path, kind: str) -> int:
    """Send a file; return the status once the whole answer was read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", path, body.read_bytes(), {"Content-Type": kind})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def time_predictions(port: int, goes_on: Callable[[int], bool]) -> list[float]:
    """Predict one row after the other on one connection; return the milliseconds that each took."""
    connection, taken = http.client.HTTPConnection("127.0.0.1", port, timeout=600), list[float]()
    while goes_on(len(taken)):
        started = time.perf_counter()
        connection.request("POST", "/invocations", _ROW, {"Content-Type": _JSON})
        connection.getresponse().read()
        taken.append(1e3 * (time.perf_counter() - started))
    connection.close()
    return taken


def measure(port: int, folder: Path, rows: int, ids: int) -> float:
    """Print the table; return the largest ratio beside a long call."""
    worst = 0.0
    rng = np.random.default_rng(1)
    data = rng.random((rows, 2)).round(6).tolist()
    calls = {
        f"{rows:,} rows, JSON": ("/invocations", json.dumps({"instances": data}), _JSON),
        f"{rows:,} rows, CSV": ("/invocations", "age,visits\n" + "\n".join(f"{a},{b}" for a, b in data), _CSV),
        f"{ids:,} ids": ("/api/v1/erasures", "\n".join(f"x{k}" for k in range(ids)), _TEXT),
    }
    time_predictions(port, lambda count: count < 100)
    alone = np.percentile(time_predictions(port, lambda count: count < 1000), [50, 99])
    print(f"{'':24}{'p50':>10}{'p99':>10}{'p99 / p50 alone':>18}{'the call':>12}")
    print(f"{'alone':24}{alone[0]:7.2f} ms{alone[1]:7.2f} ms{alone[1] / alone[0]:18.1f}")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        other.submit(int).result()  # it has started
        for name, (path, body, kind) in calls.items():
            (folder / "body").write_text(body)
            started = time.perf_counter()
            call = other.submit(ask, port, path, folder / "body", kind)
            taken = time_predictions(port, lambda count: not count or not call.done())
            worst = max(worst, float(np.percentile(taken, 99) / alone[0]))
            seconds, (p50, p99) = time.perf_counter() - started, np.percentile(taken, [50, 99])
            print(f"{name:24}{p50:7.2f} ms{p99:7.2f} ms{p99 / alone[0]:18.1f}{seconds:10.1f} s  ({call.result()})")
    return worst


def main() -> None:
    """Serve a vault, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=700_000)
    parser.add_argument("--ids", type=int, default=100_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        vault = make_vault(Path(folder))
        command = [sys.executable, "-m", "expunge", "serve", "--vault", str(vault), "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as served:
            assert served.stderr is not None
            port = next(int(found[1]) for line in served.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
            threading.Thread(target=served.stderr.read, daemon=True).start()
            try:
                worst = measure(port, Path(folder), args.rows, args.ids)
            finally:
                served.terminate()
    print(f"largest ratio: {worst:.1f}, at most {MOST:g} is expected")
    sys.exit(worst > MOST)


if __name__ == "__main__":
    main()
