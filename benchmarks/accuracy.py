"""Accuracy: test error beside the time to forget a row, and how far weights drift from a retrain.

Two experiments measure drift, with the same rows in the same order for every method and one learner on everything. In
*churn* a row leaves and returns, again and again. In *leaving* rows leave for good. Each method is compared with its
own retrain on the remaining rows, so that only the residue of forgetting is seen. Ours must be exactly zero.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from expunge import Code, CodedRegressor

from .measure import in_turns
from .methods import Boosting, Downdate, Method, Ours, PaperProtocol, Sharded, ShermanMorrison, codes_of, forgetting
from .tasks import Floats, Rows, Task, computer_activity, power_plant, protein

SPLITS = 5


@dataclass(frozen=True)
class Point:
    """One model on one data set."""

    data: str
    method: str
    shape: str
    seconds: float  # to forget one row
    error: float  # mean squared, on rows that it did not see; the mean over splits
    spread: float  # its standard deviation over splits


def measure_tradeoff(*, quick: bool = False, tasks: tuple[Callable[[int], Task], ...] | None = None) -> Iterator[Point]:
    """All methods, on all data sets, timed in turns on the first split."""
    for make in tasks or (protein, computer_activity, power_plant):
        errors: dict[tuple[str, str], list[float]] = {}
        for split in range(2 if quick else SPLITS):
            task = make(split)
            methods = {(_name(method), shape): method for shape, method in _methods(task)}
            for key, method in methods.items():
                error = float(np.mean((method.predict(task.X_test) - task.y_test) ** 2))
                errors.setdefault(key, []).append(error)
            if split == 0:
                calls = [1 if isinstance(method, Boosting | Sharded) else 10 for method in methods.values()]
                times = in_turns(*map(forgetting, methods.values()), rounds=3, calls=calls)
                seconds = {key: taken.median for key, taken in zip(methods, times, strict=True)}
        for (name, shape), found in errors.items():
            yield Point(task.name, name, shape, seconds[name, shape], float(np.mean(found)), float(np.std(found)))


def _methods(task: Task) -> Iterator[tuple[str, Method]]:
    yield "", Boosting(task)
    yield "s=1", Downdate(task)
    yield "s=1", ShermanMorrison(task)
    yield "s=1", Sharded(task, 1)
    yield "s=20", Sharded(task, 20)
    for shape, given in codes_of(20).items():
        yield shape, Ours(task, **given)
        if "rate" in shape:
            yield shape, PaperProtocol(task, **given)


def _name(method: Method) -> str:
    return "expunge" if isinstance(method, Ours) else method.name.split(",")[0]


CHURN = (0, 2, 100, 10_000, 1_000_000)  # changes: deletions and insertions
LEAVING = (0, 1, 100, 1_000, 6_000)  # rows that leave for good, of 7,500
_BATCH = 1_000  # how many of ours are asked for at once: by the invariant that does not show


@dataclass(frozen=True)
class Drift:
    """Relative error of the weights against a retrain, after so many changes."""

    experiment: str
    method: str
    steps: int
    error: float


def measure_drifts(*, quick: bool = False, task: Task | None = None) -> Iterator[Drift]:
    """Both experiments, all methods."""
    task = task or computer_activity()
    n = len(task.X)
    order = np.random.default_rng(0).permutation(n)
    leaving = [steps * n // 7_500 for steps in LEAVING]
    for kind in (Downdate, ShermanMorrison):
        yield from _churned(kind(task), order, CHURN[:-1] if quick else CHURN)
        yield from _left(kind(task), order, leaving)
    yield from _reordered(Downdate(task), order, leaving)
    yield from _ours(task, order, CHURN[:-1] if quick else CHURN, leaving)


def _churned(method: Downdate, order: Rows, steps: tuple[int, ...]) -> Iterator[Drift]:
    retrained, done = method.retrained(np.sort(order)), 0
    for goal in steps:
        for k in range(done // 2, goal // 2):
            row = int(order[k % len(order)])
            method.change(row, -1.0)
            method.change(row, 1.0)
        done = goal
        yield Drift("churn", method.name, goal, _apart(method.solved(), retrained))


def _left(method: Downdate, order: Rows, steps: list[int]) -> Iterator[Drift]:
    done = 0
    for goal in steps:
        for row in order[done:goal].tolist():
            method.change(row, -1.0)
        done, left = goal, np.sort(order[goal:])
        yield Drift("leaving", method.name, goal, _apart(method.solved(), method.retrained(left)))


def _reordered(method: Downdate, order: Rows, steps: list[int]) -> Iterator[Drift]:
    """Retrains that add up the same rows in another order: so far apart are floats that never saw the other rows."""
    for goal in steps:
        left = order[goal:]
        error = _apart(method.retrained(left), method.retrained(np.sort(left)))
        yield Drift("leaving", "float retrain, reordered", goal, error)


def _ours(task: Task, order: Rows, churn: tuple[int, ...], leaving: list[int]) -> Iterator[Drift]:
    model, done = task.model(code=Code.single()).fit(task.X, task.y, ids=np.arange(len(task.X))), 0
    for goal in churn:
        while done < goal:
            size = min(_BATCH, len(order), (goal - done) // 2)
            ids = np.take(order, np.arange(done // 2, done // 2 + size), mode="wrap")
            model.unlearn(ids)
            model.partial_fit(task.X[ids], task.y[ids], ids=ids)
            done += 2 * size
        yield Drift("churn", "expunge", goal, _exactly(model))
    model, done = task.model(code=Code.single()).fit(task.X, task.y), 0
    for goal in leaving:
        if goal > done:
            model.unlearn(order[done:goal])
        done = goal
        yield Drift("leaving", "expunge", goal, _exactly(model))


def _exactly(model: CodedRegressor) -> float:
    retrained = model.retrained()
    if model.digest() != retrained.digest():
        raise AssertionError("the digest is not that of a retrain: this must never happen")
    return _apart(model.weights_, retrained.weights_)


def _apart(weights: Floats, right: Floats) -> float:
    return float(np.abs(weights - right).max() / np.abs(right).max())
