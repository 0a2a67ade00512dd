"""Speed and memory, as ratios to something measured in the same run.

Every row is timed in turns with what it is compared with, on one BLAS thread, and both are medians; machines are
noisy, ratios less so. Run with ``make bench``; ``THREADS=2 make bench`` gives both sides two threads.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from expunge import Code, CodedRegressor, RandomFourier
from expunge.paper.data import read

Floats = NDArray[np.float64]
THREADS = int(os.environ.get("THREADS", "1"))
MEMORY_ROWS, MEMORY_INPUTS, MEMORY_FEATURES = 2_000_000, 20, 300


def main() -> None:
    """Print the table."""
    print(f"expunge benchmark: medians, in turns, BLAS threads: {THREADS}\n")
    print(f"{'what':44} {'ours':>10} {'theirs':>10} {'ratio':>8} {'goal':>8}")
    with threadpool_limits(THREADS):
        protein()
        computer_activity()
    memory()


def protein() -> None:
    """Protein, D = 300: forgetting, training and predicting."""
    X, y = shuffled("protein", 42_000)
    shapes: dict[str, dict[str, Any]] = {"s=5, rate 5": {"shards": 5, "rate": 5}, "s=1": {"code": Code.single()}}
    for (name, shape), goal, goal_many in zip(shapes.items(), (18, 90), (590, None), strict=True):
        model = fitted(X, y, 300, 1e-4, **shape)
        phi, target = coded_shard(model)
        ids = iter(range(len(X)))
        ours, theirs = in_turns(lambda: model.unlearn(next(ids)), lambda: Ridge(1e-4).fit(phi, target), 7, calls=5)
        show(f"unlearn 1 row, Protein D=300, {name}", ours, theirs, goal)
        if goal_many is None:
            continue
        batch, _ = in_turns(lambda: model.unlearn([next(ids) for _ in range(1000)]), nothing, 9)
        show(f"unlearn 1,000 rows at once, {name}", batch, 1000 * theirs, goal_many)
        own = own_products(phi.shape[1] + 2, 1000, 9)
        show("  the same against its own dsyrk and Cholesky", batch, own, 1 / 1.5)
    features = RandomFourier(300, random_state=0)
    for s, goal_fit in ((20, 1.5), (1, 1.0)):
        model = (
            unfitted(X, y, features, 1e-4, shards=s, rate=5)
            if s > 1
            else unfitted(X, y, features, 1e-4, code=Code.single())
        )
        floats = float_training(X, y, model.fit(X, y), s)
        ours, theirs = in_turns(lambda: model.fit(X, y), floats, 5)
        show(f"fit, Protein D=300, s={s}, features included", ours, theirs, goal_fit)
    many = np.tile(X, (3, 1))[:100_000]
    project, weights = projection(model), np.ones(300)
    ours, theirs = in_turns(lambda: model.predict(many), lambda: project(many) @ weights, 5)
    show("predict 100,000 rows, D=300", ours, theirs, 1.5)


def computer_activity() -> None:
    """Computer Activity, D = 25: where Python's overhead counts."""
    X, y = shuffled("computer-activity", 7_500)
    model = fitted(X, y, 25, 1e-3, shards=5, rate=5)
    phi, target = coded_shard(model)
    ids = iter(range(len(X)))
    ours, theirs = in_turns(lambda: model.unlearn(next(ids)), lambda: Ridge(1e-3).fit(phi, target), 30, calls=20)
    show("unlearn 1 row, Computer Activity D=25, s=5", ours, theirs, 4)


def memory() -> None:
    """Peak memory of training on many rows, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True)
    rows, peak = (float(number) for number in done.stdout.split())
    size = f"{MEMORY_ROWS:,} x {MEMORY_INPUTS}, D={MEMORY_FEATURES}"
    met = "met" if peak <= rows + 1e9 else "MISSED"
    print(f"\nfit {size}: rows {rows / 1e6:,.0f} MB, peak {peak / 1e6:,.0f} MB (goal: rows + 1,000 MB, {met})")


def measure_memory() -> None:
    """Print the size of the rows and the peak memory above that of the loaded program, in bytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    X = np.random.default_rng(0).random((MEMORY_ROWS, MEMORY_INPUTS))
    y = X.sum(axis=1)
    model = CodedRegressor(shards=20, rate=5, features=RandomFourier(MEMORY_FEATURES), random_state=0).fit(X, y)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(X.nbytes + y.nbytes, peak if model.n_rows_ else 0)


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any], times: int, *, calls: int = 1) -> tuple[float, float]:
    """Median seconds a call of two functions, each called ``calls`` times before it is the other's turn."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for function in (ours, theirs):
        function()
    for _ in range(times):
        for function, taken in zip((ours, theirs), seconds, strict=True):
            for _ in range(calls):
                started = time.perf_counter()
                function()
                taken.append(time.perf_counter() - started)
    return median(seconds[0]), median(seconds[1])


def show(what: str, ours: float, theirs: float, goal: float) -> None:
    """Print one line of the table."""
    ratio = theirs / ours
    mark = "" if ratio >= goal else "  MISSED"
    print(f"{what:44} {ours * 1e3:8.2f}ms {theirs * 1e3:8.2f}ms {ratio:7.2f}x {goal:7.2f}x{mark}", flush=True)


def shuffled(name: str, rows: int) -> tuple[Floats, Floats]:
    """Some rows of a table, in random order."""
    X, y = read(name)
    order = np.random.default_rng(0).permutation(len(X))[:rows]
    return X[order], y[order]


def unfitted(X: Floats, y: Floats, features: RandomFourier, alpha: float, **shape: Any) -> CodedRegressor:
    """A model with declared bounds, so that no deletion moves one."""
    bounds: dict[str, Any] = {"bounds": (X.min(axis=0), X.max(axis=0)), "target_bounds": (y.min(), y.max())}
    return CodedRegressor(features=features, alpha=alpha, random_state=0, **bounds, **shape)


def fitted(X: Floats, y: Floats, D: int, alpha: float, **shape: Any) -> CodedRegressor:
    """The same, trained."""
    return unfitted(X, y, RandomFourier(D), alpha, **shape).fit(X, y)


def coded_shard(model: CodedRegressor) -> tuple[Floats, Floats]:
    """What scikit-learn would be refitted on: the first learner's coded rows, as floats."""
    X, y = model.coded_shard(0)
    return np.ascontiguousarray(X[:, :-1]), y


def projection(model: CodedRegressor) -> Callable[[Floats], Floats]:
    """The same features with np.cos."""
    theta, offset = model.features_.theta_, model.features_.offset_
    low, width = model.bounds_.low, model.bounds_.width
    return lambda X: np.cos((X - low) / width @ theta + offset)


def float_training(X: Floats, y: Floats, model: CodedRegressor, shards: int) -> Callable[[], None]:
    """np.cos features and one Ridge a shard: what a user of scikit-learn would write."""
    project = projection(model)

    def train() -> None:
        phi = project(X)
        for part, target in zip(np.array_split(phi, shards), np.array_split(y, shards), strict=True):
            Ridge(1e-4).fit(part, target)

    return train


def own_products(width: int, rows: int, times: int) -> float:
    """Seconds of the dsyrk calls (three slices, before and after) and the Cholesky of a batch."""
    slices = np.random.default_rng(0).integers(-(2**18), 2**18, (rows, width)).astype(np.float64)
    A = np.eye(width - 1, order="F") * 2.0

    def products() -> None:
        for _ in range(6):
            dsyrk(1.0, slices.T, lower=1)
        dpotrf(A, lower=1)

    return in_turns(products, nothing, times)[0]


def nothing() -> None:
    """Take no time."""


if __name__ == "__main__":
    measure_memory() if "--memory" in sys.argv else main()
