"""The measured jobs, each in its own process (``python -m benchmarks.scale.jobs JOB ...``), and their tables."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from expunge import CodedRegressor, RandomFourier
from expunge.distributed import own_cluster
from expunge.vault import Vault

_AT_ONCE = 2**20  # rows of a file
_GROUP = 2**18  # rows of a row group


@dataclass(frozen=True)
class SyntheticTable:
    """A table of so many rows, each of somebody else, and of so many inputs in [0, 1]."""

    rows: int
    inputs: int
    folder: Path

    def write(self) -> Path:
        """Write the files, unless they exist, and return their folder."""
        path = self.folder / f"{self.rows}x{self.inputs}"
        for k, first in enumerate(range(0, self.rows, _AT_ONCE)):
            file = path / f"part-{k:05}.parquet"
            if not file.exists():
                path.mkdir(parents=True, exist_ok=True)
                self._write(file, k, range(first, min(first + _AT_ONCE, self.rows)))
        return path

    def _write(self, file: Path, part: int, rows: range) -> None:
        rng = np.random.default_rng([self.inputs, part])
        X = rng.random((len(rows), self.inputs))
        columns = {f"x{j}": X[:, j] for j in range(self.inputs)}
        table = pa.table({"who": np.arange(rows.start, rows.stop), **columns, "y": self.target(X, rng)})
        draft = file.with_suffix(".new")
        pq.write_table(table, draft, row_group_size=_GROUP, compression="none", use_dictionary=False)
        draft.rename(file)

    def target(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A smooth function of the inputs, with noise, in [-1, 1]."""
        weights = np.random.default_rng(self.inputs).normal(size=(self.inputs, 3)) / np.sqrt(self.inputs)
        noisy: np.ndarray = np.tanh(2 * np.sin(3 * X @ weights).mean(axis=1) + rng.normal(0, 0.05, len(X)))
        return noisy


SHARDS, RATE = 20, 5


@contextmanager
def start_workers(workers: int) -> Iterator[Any]:
    """So many workers; none at all is this process alone."""
    if not workers:
        yield None
    else:
        with own_cluster(workers) as cluster:
            yield cluster


@contextmanager
def measure_time(cluster: Any) -> Iterator[dict[str, float]]:
    """What is done within takes in seconds, and of processors, workers' among them; not what it took to start."""
    took: dict[str, float] = {}
    before, started = _processor(cluster), time.perf_counter()
    yield took
    took |= {"seconds": time.perf_counter() - started, "processor": _processor(cluster) - before}


def _processor(cluster: Any) -> float:
    """Seconds of processor time that this process and its workers have taken."""
    return time.process_time() + (0 if cluster is None else sum(cluster.everywhere(time.process_time).values()))


def train(vault: Path, data: Path, features: int, workers: int) -> dict[str, Any]:
    """Train a vault; its digest."""
    model = CodedRegressor(
        shards=SHARDS,
        rate=RATE,
        features=RandomFourier(features, random_state=0),
        alpha=1e-3,
        bounds=(0, 1),
        target_bounds=(-1, 1),
        random_state=0,
    )
    with start_workers(workers) as client, measure_time(client) as took:
        made = Vault.create(vault, data, target="y", id="who", model=model, client=client)
    return {"digest": made.digest(), **took}


def verify(vault: Path, workers: int) -> dict[str, Any]:
    """Verify a vault."""
    with start_workers(workers) as client, measure_time(client) as took:
        verdict = Vault.open(vault).verify(client=client)
    return {"ok": verdict.ok, **took}


def erase(vault: Path, people: int, of: int, workers: int) -> dict[str, Any]:
    """Erase so many people of as many as there are, in one request."""
    ids = np.random.default_rng(0).choice(of, people, replace=False)
    with start_workers(workers) as client, measure_time(client) as took:
        opened = Vault.open(vault)
        receipt = opened.unlearn(ids, client=client)
    return {"rows": receipt.rows, "digest": opened.digest(), **took}


def add(vault: Path, data: Path) -> dict[str, Any]:
    """Add one row, a few times, by somebody who has the vault open; the median of milliseconds."""
    opened, row = Vault.open(vault), pq.read_table(next(data.glob("*.parquet"))).slice(0, 1)
    seconds = []
    for _ in range(7):
        started = time.perf_counter()
        opened.add(row)
        seconds.append(time.perf_counter() - started)
    return {"milliseconds": float(np.median(seconds)) * 1e3}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"train": train, "verify": verify, "erase": erase, "add": add}


if __name__ == "__main__":
    name, *given = sys.argv[1:]
    print(json.dumps(JOBS[name](*(int(one) if one.isdigit() else Path(one) for one in given))))
