"""Time and memory to train."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from expunge import Code

from .limits import products
from .measure import Result, compared, in_turns, peak_memory
from .tasks import Task, computer_activity, power_plant, protein, synthetic

SHAPES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("s=20, rate 5", 20, {"shards": 20, "rate": 5}),
    ("s=1", 1, {"code": Code.single()}),
)


def against_shards(*, quick: bool = False) -> Iterator[Result]:
    """Rate 5 against scikit-learn on uncoded shards, features included on both sides; s=1 against one Ridge."""
    for task in (protein(), computer_activity(), power_plant()):
        for name, shards, shape in SHAPES:
            fit, floats = partial(task.model(**shape).fit, task.X, task.y), partial(_floats, task, shards)
            mine, theirs = in_turns(fit, floats, rounds=3 if quick else 7)
            goal, other = (1.0, "SISA, 20 shards") if shards > 1 else (None, "one Ridge")
            what = f"train, {task.name} D={task.D}, {name}"
            yield compared("train", what, mine, theirs, against=other, goal=goal)


def against_dsyrk(*, quick: bool = False) -> Iterator[Result]:
    """How much of the time is the products themselves (goal: at least 60 %, so at most 1.67x their time)."""
    for D in (300, 1_000) if quick else (300, 1_000, 2_000):
        task = protein() if D == 300 else synthetic(20_000, D)
        model, coded = task.model(shards=20, rate=5), -(-len(task.X) // 20)
        own = products(coded, D + 2, 3)
        mine, theirs = in_turns(lambda: model.fit(task.X, task.y), lambda: [own() for _ in range(4)], rounds=3)
        what = f"train, {task.name}, D={D:,}, s=20, rate 5"
        yield compared("train", what, mine, theirs, against="own dsyrk", kind="of", goal=1 / 0.6)


def growth(*, quick: bool = False) -> Iterator[Result]:
    """Time a row and feature pair as n and D grow: the flop count is n D^2."""
    base_n, base_D = 20_000, 200
    for n, D in ((80_000, 200), (320_000, 200), (20_000, 400), (20_000, 800)):
        small, large = synthetic(base_n, base_D), synthetic(n, D)
        models = small.model(shards=20, rate=5), large.model(shards=20, rate=5)
        mine, theirs = in_turns(
            lambda: models[1].fit(large.X, large.y), lambda: models[0].fit(small.X, small.y), rounds=3
        )
        flops = n / base_n * (D / base_D) ** 2
        what = f"train {n:,} rows, D={D}: {flops:.0f}x the flops"
        yield compared("growth", what, mine, theirs, against=f"{base_n:,} rows, D={base_D}", kind="of")


def threads(*, quick: bool = False) -> Iterator[Result]:
    """From one thread to two."""
    task = protein()

    def fit(count: int) -> None:
        with threadpool_limits(count):
            task.model(shards=20, rate=5).fit(task.X, task.y)

    two, one = in_turns(lambda: fit(2), lambda: fit(1), rounds=3 if quick else 7)
    yield compared("threads", "train, protein D=300, s=20, rate 5, 2 threads", two, one, against="1 thread")


def memory(*, quick: bool = False) -> Iterator[Result]:
    """Peak memory above the loaded program, in a process of its own: rows + moments + at most 300 MB, flat in n."""
    for n in (500_000, 2_000_000) if quick else (500_000, 2_000_000, 8_000_000):
        command = [sys.executable, "-m", "benchmarks.training", str(n)]
        held, peak = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
        what = f"memory to train {n:,} x 20, D=300: {peak / 1e6:,.0f} MB beyond the table"
        limit = held + 300e6
        yield Result("memory", what, "rows + moments + 300 MB", peak, limit, "of", peak / limit, (0, 0), 1.0)


def _floats(task: Task, shards: int) -> None:
    phi = task.features(task.X)
    for k in range(shards):
        Ridge(task.alpha).fit(phi[k::shards], task.y[k::shards])


def _measure(n: int) -> None:
    """Print the bytes of rows and moments that a model holds, and its peak beyond the table it was given."""
    rng = np.random.default_rng(0)
    X = np.empty((n, 20))
    for start in range(0, n, 100_000):
        X[start : start + 100_000] = rng.random((min(100_000, n - start), 20))
    task = Task("memory", X, np.clip(X.sum(axis=1) / 20, 0, 1), X[:1], X[:1, 0], 300, 1e-3)
    before = peak_memory()
    model = task.model(shards=20, rate=5).fit(task.X, task.y)
    peak = peak_memory() - before
    print(n * 8 * 21 + model.code_.learners * 3 * 302 * 303 // 2 * 8, peak)


if __name__ == "__main__":
    _measure(int(sys.argv[1]))
