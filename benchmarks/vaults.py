"""The vault: durable and certified, against the same in memory plus the file syncs that it makes."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from expunge import CodedRegressor, RandomFourier
from expunge.saving import files
from expunge.vault import Receipt, Vault

from .forgetting import mixed
from .measure import Result, Times, compare, in_turns, peak_memory, syncs
from .tasks import Floats, Rows, Task, protein, synthetic

BIG_ROWS = 5_000_000
SYNCS = 12  # of a request that forgets one person, which is the goal
LEAVES = 2  # more, of one that forgets several: what their receipts are made of
LISTS = 8  # more, of one whose slots and people lie beside the ledger

FILES = "a request writes, hashes and wipes a megabyte of moments (D=300) and opens about 15 files"
HASHES = "a vault also reads the table, hashes every id with a key, writes every row with a checksum, and syncs"


class Counting(files.System):
    """The file system, with its syncs counted and timed."""

    def __init__(self) -> None:
        self.syncs, self.seconds = 0, 0.0

    def sync(self, fd: int) -> None:
        started = time.perf_counter()
        super().sync(fd)
        self.syncs, self.seconds = self.syncs + 1, self.seconds + time.perf_counter() - started


def durable(*, quick: bool = False) -> Iterator[Result]:
    """Protein, 42,000 rows, D=300, s=5, rate 5: train from Parquet, forget 1 id, forget 1,000."""
    task = protein()
    with tempfile.TemporaryDirectory() as name:
        folder, numbers = Path(name), count()
        pq.write_table(_table(task.X, task.y), folder / "protein.parquet")

        def train() -> Vault:
            path = folder / f"v{next(numbers)}.vault"
            model = task.model(shards=5, rate=5)
            return Vault.create(path, folder / "protein.parquet", target="y", id="who", model=model)

        model = task.model(shards=5, rate=5)
        mine, theirs = in_turns(train, lambda: model.fit(task.X, task.y), rounds=3 if quick else 7)
        what = "train a vault from Parquet, protein D=300, s=5, rate 5"
        yield compare("vault", what, mine, theirs, against="fit in memory", kind="of", goal=1.3, why=HASHES)
        vault = train()
        for size in (1, 10, 100, 1_000, 10_000):
            yield from _forgetting(vault, task, size, {1: 4.0, 1_000: 3.0}.get(size), quick)


def features(*, quick: bool = False) -> Iterator[Result]:
    """Growth with D: the moments that a request writes, hashes and wipes grow with its square."""
    with tempfile.TemporaryDirectory() as name:
        for D in (25, 1_000) if quick else (25, 1_000, 2_000):
            task = synthetic(20_000, D)
            vault = _vault(Path(name) / f"D{D}.vault", task)
            yield from _forgetting(vault, task, 1, None, quick, calls=20 if D == 25 else 3)


def sustained(*, quick: bool = False) -> Iterator[Result]:
    """Requests of mixed size for a minute, each durable and certified: ids forgotten a second."""
    task, limit = protein(), 5.0 if quick else 60.0
    with tempfile.TemporaryDirectory() as name:
        numbers = count()

        def fresh() -> Callable[[Rows], object]:
            return _vault(Path(name) / f"v{next(numbers)}.vault", task).unlearn

        yield mixed("vault", "ids forgotten a second in a vault", fresh, task, limit)


def _vault(path: Path, task: Task) -> Vault:
    model = task.model(shards=5, rate=5)
    return Vault.create(path, _table(task.X, task.y), target="y", id="who", model=model)


def _forgetting(
    vault: Vault, task: Task, size: int, goal: float | None, quick: bool, calls: int = 20
) -> Iterator[Result]:
    """With its syncs against memory and as many syncs of a small file; and without them against memory alone."""
    model = task.model(shards=5, rate=5).fit(task.X, task.y)
    batches = [iter(_batches(len(task.X), size)) for _ in range(2)]
    counting, calls = Counting(), calls if size == 1 else 1
    rounds = 2 if size == 10_000 else 4 if quick else 9  # there are not more rows
    without: list[float] = []
    made = SYNCS + (LEAVES if size > 1 else 0) + (LISTS if size >= 1_000 else 0)

    def forget() -> None:
        counting.seconds, counting.syncs, started = 0.0, 0, time.perf_counter()
        vault.unlearn(next(batches[0]))
        without.append(time.perf_counter() - started - counting.seconds)

    files.system, before = counting, files.system
    try:
        with syncs(vault.places.vault.parent, made) as limit:
            memory = partial(next, map(model.unlearn, batches[1]))
            mine, theirs, synced = in_turns(forget, memory, limit, rounds=rounds, calls=calls)
    finally:
        files.system = before
    if counting.syncs != made:
        raise AssertionError(f"a request made {counting.syncs} syncs: compare it with as many")
    bare = Times(tuple(np.median(np.reshape(without[1:], (rounds, calls)), axis=1).tolist()))
    what = f"forget {size:,} {'id' if size == 1 else 'ids'} in a vault, {task.name} D={task.D:,}"
    both = f"in memory and {made} syncs"
    yield compare("vault", what, mine, theirs + synced, against=both, kind="of")
    less = f"{what}, less its syncs"
    yield compare("vault", less, bare, theirs, against="in memory", kind="of", goal=goal, why=FILES)


def _batches(rows: int, size: int) -> Iterator[Rows]:
    """Rows to forget, so many at once; those of each size are others, so that sizes can follow each other."""
    first = {1: 0, 10: 400, 100: 600, 1_000: 2_000, 10_000: 12_000}[size]
    return (np.arange(start, start + size) for start in range(first, rows - size + 1, size))


def large(*, quick: bool = False) -> Iterator[Result]:
    """5,000,000 x 20 rows, D=100: trained within 2 GB of memory, and one id forgotten as fast as in a small vault."""
    n = BIG_ROWS // 10 if quick else BIG_ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vaults = []
        for rows in (n, 10_000):
            path = folder / f"{rows}.parquet"
            _write(path, rows)
            command = [sys.executable, "-m", "benchmarks.vaults", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            vaults.append((Vault.open(path.with_suffix(".vault")), float(done.stdout)))
        peak = vaults[0][1]
        what = f"peak memory to train a vault of {n:,} x 20, D=100, all of the process"
        why = "the ids of a table are hashed and sorted in memory, and pages of the mapped rows count while they stay"
        yield Result("vault", what, "2 GB", peak, 2e9, "of", peak / 2e9, goal=1.0, why=why, unit="B")
        mine, theirs = in_turns(*(_unlearning(vault) for vault, _ in vaults), rounds=5, calls=20)
        what = f"forget 1 id in a vault of {n:,} rows"
        yield compare("vault", what, mine, theirs, against="a vault of 10,000 rows", kind="of")


def _unlearning(vault: Vault) -> Callable[[], Receipt]:
    ids = count()
    return lambda: vault.unlearn(next(ids))


def _table(X: Floats, y: Floats, first: int = 0) -> pa.Table:
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    return pa.table({"who": np.arange(first, first + len(X)), **columns, "y": y})


def _write(path: Path, rows: int) -> None:
    """A table of uniform rows, a row group at a time."""
    rng, writer = np.random.default_rng(0), None
    for first in range(0, rows, 100_000):
        X = rng.random((min(100_000, rows - first), 20))
        table = _table(X, X.mean(axis=1), first)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _measure(path: Path) -> None:
    """Train a vault and print the peak memory of the process."""
    model = CodedRegressor(
        shards=20, rate=5, features=RandomFourier(100), bounds=(0, 1), target_bounds=(0, 1), random_state=0
    )
    Vault.create(path.with_suffix(".vault"), path, target="y", id="who", model=model)
    print(peak_memory())


if __name__ == "__main__":
    _measure(Path(sys.argv[1]))
