"""Time and memory to train."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from expunge import Code
from expunge.encoding.placement import draw_slots

from .measure import Result, compare, in_turns, peak_memory, products, reset_peak
from .methods import encoded
from .tasks import Task, computer_activity, power_plant, protein, synthetic

SHAPES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("s=20, rate 5", 20, {"shards": 20, "rate": 5}),
    ("s=1", 1, {"code": Code.single()}),
)

COSINES = (
    "training does more than multiply: at D=300 the cosines of a coded row's five rows take a third of the time of its "
    "three exact products; each learner then accesses its moments for the first time and solves"
)

SHARED = (
    "two threads train four learners of about 20 ms each and compete for memory and caches; with faster kernels "
    "there is less work to share"
)


def against_shards(*, quick: bool = False) -> Iterator[Result]:
    """Rate 5 against scikit-learn on uncoded shards and on coded ones, features included on all sides."""
    for task in (protein(), computer_activity(), power_plant()):
        for name, shards, shape in SHAPES:
            model = task.model(**shape)
            functions: list[Callable[[], object]] = [
                partial(model.fit, task.X, task.y),
                partial(_floats, task, shards),
            ]
            if shards > 1:
                code, key = model.fit(task.X, task.y).code_, model._state.blueprint.key
                functions.append(partial(_coded_floats, task, code, draw_slots(key, 0, len(task.X), shards)))
            mine, *theirs = in_turns(*functions, rounds=3 if quick else 7)
            what = f"train, {task.name} D={task.D}, {name}"
            goal, other = (1.0, "SISA, 20 shards") if shards > 1 else (1.0, "one Ridge")
            yield compare("train", what, mine, theirs[0], against=other, goal=goal, why=COSINES)
            if shards > 1:
                yield compare("train", what, mine, theirs[1], against="paper's training")


def against_dsyrk(*, quick: bool = False) -> Iterator[Result]:
    """How much of the time is the products themselves."""
    goals = {300: 1.8, 1_000: 1.3, 2_000: 1.45}
    for D in (300, 1_000) if quick else (300, 1_000, 2_000):
        task = protein() if D == 300 else synthetic(20_000, D)
        model, coded = task.model(shards=20, rate=5), -(-len(task.X) // 20)
        own, one = products(coded, D + 2, 3), products(coded, D + 2)
        functions = [
            lambda: model.fit(task.X, task.y),
            lambda: [own() for _ in range(4)],
            lambda: [one() for _ in range(4)],
        ]
        mine, three, single = in_turns(*functions, rounds=3 if quick else 5)
        what = f"train, {task.name}, D={D:,}, s=20, rate 5"
        yield compare("train", what, mine, three, against="own products", kind="of", goal=goals[D], why=COSINES)
        yield compare("train", what, mine, single, against="one dsyrk of the coded rows", kind="of")


def growth(*, quick: bool = False) -> Iterator[Result]:
    """Time as n and D grow, against n D^2; features grow with n D, solutions with D^3."""
    base_n, base_D = 20_000, 200
    for n, D in ((80_000, 200), (320_000, 200), (20_000, 400), (20_000, 800)):
        small, large = synthetic(base_n, base_D), synthetic(n, D)
        models = small.model(shards=20, rate=5), large.model(shards=20, rate=5)
        mine, theirs = in_turns(
            lambda: models[1].fit(large.X, large.y), lambda: models[0].fit(small.X, small.y), rounds=3 if quick else 5
        )
        times = n / base_n * (D / base_D) ** 2
        what = f"train {n:,} rows, D={D}: {times:.0f}x n D^2"
        yield compare("growth", what, mine, theirs, against=f"{base_n:,} rows, D={base_D}", kind="of")


def threads(*, quick: bool = False) -> Iterator[Result]:
    """From one thread to two."""
    task = protein()

    def fit(count: int) -> None:
        with threadpool_limits(count):
            task.model(shards=20, rate=5).fit(task.X, task.y)

    two, one = in_turns(lambda: fit(2), lambda: fit(1), rounds=3 if quick else 7)
    what = "train, protein D=300, s=20, rate 5, 2 threads"
    yield compare("threads", what, two, one, against="1 thread", goal=1.6, why=SHARED)


def memory(*, quick: bool = False) -> Iterator[Result]:
    """Peak memory beyond the table, in a process of its own: rows and moments, and at most 300 MB whatever n is."""
    why = "an id and a slot are 16 bytes per row"
    cases = [(500_000, 300), (2_000_000, 300), (8_000_000, 300), (500_000, 1_000)]
    for n, D in cases[:2] if quick else cases:
        held, peak = _measured(n, D, "expunge")
        what, limit = f"peak memory to train {n:,} x 20, D={D:,}", held + 300e6
        against = "rows, moments and 300 MB"
        yield Result("memory", what, against, peak, limit, "of", peak / limit, goal=1.0, why=why, unit="B")
    ridge = _measured(cases[0][0], 300, "ridge")[1]
    peak = _measured(cases[0][0], 300, "expunge")[1]
    what = f"peak memory to train {cases[0][0]:,} x 20, D=300"
    yield Result("memory", what, "features of all rows and Ridge", peak, ridge, "of", peak / ridge, unit="B")


def _measured(n: int, D: int, method: str) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.training", str(n), str(D), method]
    held, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(held), float(peak)


def _floats(task: Task, shards: int) -> None:
    phi = task.features(task.X)
    for k in range(shards):
        Ridge(task.alpha).fit(phi[k::shards], task.y[k::shards])


def _coded_floats(task: Task, code: Code, slots: Any) -> None:
    rows = np.column_stack([task.features(task.X), np.ones(len(task.X)), task.y])
    for q in encoded(code, rows, slots)[0]:
        Ridge(task.alpha, fit_intercept=False).fit(q[:, :-1], q[:, -1])


def _measure(n: int, D: int, method: str) -> None:
    """Print the bytes of rows and moments that a model holds, and its peak beyond the table it was given."""
    rng = np.random.default_rng(0)
    X, y = np.empty((n, 20)), np.empty(n)
    for start in range(0, n, 100_000):
        some = slice(start, start + 100_000)
        X[some] = rng.random((min(100_000, n - start), 20))
        np.mean(X[some], axis=1, out=y[some])
    task = Task("memory", X, y, X[:1], y[:1], D, 1e-3)
    model = task.model(shards=20, rate=5)
    before = reset_peak()
    if method == "ridge":
        Ridge(1e-3).fit(task.features(X), y)
    else:
        model.fit(task.X, task.y)
    peak, width = peak_memory() - before, D + 2
    print(n * 8 * 21 + 4 * 3 * width * (width + 1) // 2 * 8, peak)


if __name__ == "__main__":
    _measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
