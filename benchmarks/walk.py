"""How much of the package one call enters: ``python -m benchmarks.walk [NAME] [--list]``.

Counts the files, functions and calls below `src/expunge` that each operation enters, on its second call (creating a
vault: the first). ``--list`` prints the functions with their calls, file by file: the story that a reader has to
follow.
"""

import argparse
import io
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pyarrow as pa
from fastapi.testclient import TestClient

import expunge
from expunge import CodedRegressor
from expunge.server.app import create_app
from expunge.server.database import Database, queue_path
from expunge.server.service import Service
from expunge.vault import Vault

_PACKAGE = str(Path(expunge.__file__).parent) + "/"


class CallCounter:
    """Counts the calls of the package's functions, in all threads that start after it was made."""

    def __init__(self) -> None:
        self._calls: Counter[CodeType] | None = None
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        code, calls = frame.f_code, self._calls
        # Comprehensions and lambdas belong to their functions.
        if calls is None or event != "call" or code.co_name.startswith("<"):
            return
        if code.co_filename.startswith(_PACKAGE):
            calls[code] += 1

    def run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, Counter[CodeType]]:
        """Return what a call returns, and the calls that it leads to."""
        calls = self._calls = Counter[CodeType]()
        try:
            return call(*arguments, **options), calls
        finally:
            self._calls = None


def measure(folder: Path) -> Iterator[tuple[str, Counter[CodeType]]]:
    """Yield each operation and its calls."""
    counter, rng = CallCounter(), np.random.default_rng(0)
    X, y = rng.uniform(0, 1, (200, 3)), rng.uniform(0, 1, 200)
    table = pa.table({"who": np.arange(200), "y": y, **{f"x{j}": X[:, j] for j in range(3)}})
    fitted, model = (CodedRegressor(shards=10, rate=5, random_state=0) for _ in range(2))
    fitted.fit(X, y)
    yield "fit", counter.run(fitted.fit, X, y)[1]
    fitted.unlearn([3])
    yield "unlearn", counter.run(fitted.unlearn, [4])[1]
    vault, calls = counter.run(Vault.create, folder / "spend.vault", table, target="y", id="who", model=model)
    yield "Vault.create", calls
    vault.unlearn([3])
    yield "Vault.unlearn", counter.run(vault.unlearn, [4])[1]
    service = Service(vault, Database(queue_path(vault.places.vault)))
    rows = {"dataframe_records": [{"x0": 0.5, "x1": 0.5, "x2": 0.5}]}
    with TestClient(create_app(service), base_url="http://localhost") as client, redirect_stderr(io.StringIO()):
        client.post("/api/v1/erasures", json={"ids": [5]})
        answer, calls = counter.run(client.post, "/api/v1/erasures", json={"ids": [6]})
        assert answer.is_success, answer.text
        yield "HTTP erasure", calls
        client.post("/invocations", json=rows)
        answer, calls = counter.run(client.post, "/invocations", json=rows)
        assert answer.is_success, answer.text
        yield "HTTP prediction", calls
    service.stop()


def main() -> None:
    """Print one line per operation."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walk", description=__doc__)
    parser.add_argument("name", nargs="?", help="one operation; all by default")
    parser.add_argument("--list", action="store_true", help="also print the functions")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, calls in measure(Path(folder)):
            if given.name in (None, name):
                files = {code.co_filename for code in calls}
                print(f"{name:16} {len(files):3} files {len(calls):4} functions {sum(calls.values()):5} calls")
                for file in sorted(files) if given.list else ():
                    print(f"  {file.removeprefix(_PACKAGE)}")
                    here = sorted((code.co_firstlineno, code) for code in calls if code.co_filename == file)
                    for line, code in here:
                        print(f"    {line:4} {code.co_qualname} {calls[code]}")


if __name__ == "__main__":
    main()
