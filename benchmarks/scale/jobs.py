"""The jobs that are measured, each in a process of its own: ``python -m benchmarks.scale.jobs JOB ...``."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from expunge import CodedRegressor, RandomFourier
from expunge.distributed import own_cluster
from expunge.vault import Vault

SHARDS, RATE = 20, 5


@contextmanager
def helped(workers: int) -> Iterator[Any]:
    """So many workers; none at all is this process alone."""
    if not workers:
        yield None
    else:
        with own_cluster(workers) as cluster:
            yield cluster


@contextmanager
def timed(cluster: Any) -> Iterator[dict[str, float]]:
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
    with helped(workers) as client, timed(client) as took:
        made = Vault.create(vault, data, target="y", id="who", model=model, client=client)
    return {"digest": made.digest(), **took}


def verify(vault: Path, workers: int) -> dict[str, Any]:
    """Verify a vault."""
    with helped(workers) as client, timed(client) as took:
        verdict = Vault.open(vault).verify(client=client)
    return {"ok": verdict.ok, **took}


def erase(vault: Path, people: int, of: int, workers: int) -> dict[str, Any]:
    """Erase so many people of as many as there are, in one request."""
    ids = np.random.default_rng(0).choice(of, people, replace=False)
    with helped(workers) as client, timed(client) as took:
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
