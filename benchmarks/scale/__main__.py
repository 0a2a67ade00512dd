"""Measure large vaults: ``python -m benchmarks.scale`` (or ``make scale``), into docs/scale.md."""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from expunge import CodedRegressor, RandomFourier
from expunge.vault import Vault

from .jobs import SyntheticTable


@dataclass(frozen=True)
class Cost:
    """What a program took."""

    seconds: float  # as the program tells
    processor: float  # seconds of all processes, as it tells
    memory: int  # bytes of the largest process at its peak, without mapped files
    together: int  # the same of all processes at once
    read: int  # bytes that came from the disk
    told: dict[str, Any]  # what it printed, as JSON


def run_watched(arguments: list[str], *, threads: int | None = None) -> Cost:
    """Run a program with this Python, and watch it."""
    environment = dict(os.environ)
    if threads is not None:
        environment |= {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True) as process:
        watch = _Watch(process.pid)
        printed = process.stdout.read() if process.stdout else ""
        process.wait()
        watch.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise RuntimeError(f"{arguments} ended with {process.returncode}")
    read = (after.ru_inblock - before.ru_inblock) * 512
    told = json.loads(printed)
    return Cost(told.get("seconds", 0.0), told.get("processor", 0.0), watch.most, watch.together, read, told)


class _Watch:
    """Looks at the memory of a process, and of those that it started, ten times a second."""

    def __init__(self, pid: int) -> None:
        self._pid, self.most, self.together = pid, 0, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            sizes = [_anonymous(pid) for pid in _family(self._pid)]
            self.most, self.together = max(self.most, *sizes, 0), max(self.together, sum(sizes))


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                waiting += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def _anonymous(pid: int) -> int:
    """The memory of a process that no file has."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)


_ROWS, _TESTED, _INPUTS = 300_000, 20_000, 10


def errors() -> dict[str, float]:
    """The mean squared error on other rows of a vault that was trained on a table in either order."""
    rng = np.random.default_rng(0)
    X = rng.random((_ROWS + _TESTED, _INPUTS))
    y = np.sin(X @ rng.normal(size=_INPUTS)) + np.abs(X[:, 0] - X[:, 1]) + rng.normal(0, 0.3, len(X))
    rows = {"any order": np.arange(_ROWS), "sorted by target": np.argsort(y[:_ROWS])}
    return {name: _error(X[order], y[order], X[_ROWS:], y[_ROWS:]) for name, order in rows.items()}


def _error(X: np.ndarray, y: np.ndarray, others: np.ndarray, truth: np.ndarray) -> float:
    model = CodedRegressor(shards=20, rate=5, features=RandomFourier(200), bounds=(0, 1), random_state=0)
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    table = pa.table({"who": np.arange(len(y)), **columns, "y": y})
    with TemporaryDirectory() as folder:
        vault = Vault.create(Path(folder) / "t.vault", table, target="y", id="who", model=model)
        return float(((vault.predict(others) - truth) ** 2).mean())


MARKS = ("<!-- measured -->", "<!-- end of what was measured -->")
HEAD = "| work | by | seconds | processor s per 10^6 rows | peak MB, largest process | all together | faster |"
_BESIDE = (".ledger", ".key", ".pub", ".certificates", ".leaves", ".lists")


@dataclass(frozen=True)
class Size:
    """A table, and the model that learns it."""

    rows: int
    inputs: int
    features: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows x {self.inputs}, D = {self.features}"


@dataclass(frozen=True)
class Line:
    """One job by somebody."""

    work: str
    by: str
    rows: int  # that it is about
    cost: Cost

    def text(self, first: Cost) -> str:
        """A line of the table; ``first`` is what one process took."""
        cost, per = self.cost, self.cost.processor / self.rows * 1e6
        faster = "" if cost is first else f"{first.seconds / cost.seconds:.2f}x"
        memory, together = cost.memory / 2**20, cost.together / 2**20
        cells = self.work, self.by, f"{cost.seconds:,.1f}", f"{per:,.2f}", f"{memory:,.0f}", f"{together:,.0f}", faster
        return f"| {' | '.join(cells)} |"


class Scale:
    """Runs jobs on a size, and checks that all give the same model."""

    def __init__(self, size: Size, folder: Path, *, alone: Sequence[int]) -> None:
        self.size, self._folder, self._alone = size, folder, alone
        self._data = SyntheticTable(size.rows, size.inputs, folder).write()
        self._vault, self._digests = folder / "scale.vault", set[str]()

    def lines(self) -> Iterator[str]:
        """The lines of the table, as they are measured."""
        yield from ("", f"### {self.size}", "", HEAD, "|---|---|---:|---:|---:|---:|---:|")
        yield from self._train()
        yield from self._each("verify", self.size.rows, "verify", str(self._vault))
        yield self._size_on_disk()
        if self.size.rows <= 10**7:
            tenth = self.size.rows // 10
            erased = self._job("erase", str(self._vault), str(tenth), str(self.size.rows), "0")
            yield Line(f"erase {tenth:,} people", "one process", tenth, erased).text(erased)
            told = self._job("add", str(self._vault), str(self._data)).told
            yield f"| add one row | one process | {told['milliseconds'] / 1e3:.3f} | | | | |"
        self._clear()

    def _train(self) -> Iterator[str]:
        first: Cost | None = None
        for by, workers, threads in self._who():
            self._clear()
            cost = self._job(
                "train", str(self._vault), str(self._data), str(self.size.features), str(workers), threads=threads
            )
            self._digests.add(cost.told["digest"])
            first = first or cost
            yield Line("train", by, self.size.rows, cost).text(first)
        if len(self._digests) > 1:
            raise RuntimeError("workers gave another model")

    def _each(self, work: str, rows: int, *arguments: str) -> Iterator[str]:
        first: Cost | None = None
        for by, workers, threads in self._who():
            cost = self._job(*arguments, str(workers), threads=threads)
            first = first or cost
            yield Line(work, by, rows, cost).text(first)

    def _who(self) -> Iterator[tuple[str, int, int | None]]:
        for threads in self._alone:
            yield f"one process, {threads} thread{'s'[: threads > 1]}", 0, threads
        yield "two workers", 2, None

    def _job(self, *arguments: str, threads: int | None = None) -> Cost:
        cost = run_watched(["-m", "benchmarks.scale.jobs", *arguments], threads=threads)
        if not cost.told.get("ok", True):
            raise RuntimeError("the vault does not fit")
        return cost

    def _size_on_disk(self) -> str:
        bytes_ = sum(file.stat().st_size for file in self._vault.iterdir())
        table = sum(file.stat().st_size for file in self._data.iterdir())
        per = bytes_ / self.size.rows
        return f"| on disk | | {bytes_ / 1e9:.2f} GB, {per:.0f} bytes per row; the table {table / 1e9:.2f} GB | | | | |"

    def _clear(self) -> None:
        shutil.rmtree(self._vault, ignore_errors=True)
        for ending in _BESIDE:
            path = self._vault.with_suffix(ending)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--large", action="store_true", help="also 10^8 rows x 20, D = 300: 60 GB of disk, an hour")
    parser.add_argument("--rows", type=int, default=10**7, help="of the smaller table")
    parser.add_argument("--folder", type=Path, default=Path("build/scale"), help="where tables and vaults are made")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where scale.md is")
    given = parser.parse_args(arguments)
    lines: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    say(f"By `make scale`, on {os.cpu_count()} cores; seconds are this machine's, ratios are of one run.")
    for text in Scale(Size(given.rows, 10, 50), given.folder, alone=(1, 2)).lines():
        say(text)
    for text in _ordered():
        say(text)
    if given.large:
        for text in Scale(Size(10**8, 20, 300), given.folder, alone=(2,)).lines():
            say(text)
    _write_page(given.docs / "scale.md", lines)


def _ordered() -> Iterator[str]:
    yield from ("", "### A sorted table", "", "| rows come | test error (MSE) |", "|---|---:|")
    for name, error in errors().items():
        yield f"| {name} | {error:.4f} |"


def _write_page(page: Path, lines: Sequence[str]) -> None:
    """Write the lines between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    text = "\n".join(lines)
    page.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
