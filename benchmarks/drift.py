"""Drift: how far weights are from a retrain after many deletions and insertions. Ours must be at exactly zero."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .methods import Downdate, ShermanMorrison
from .tasks import Floats, Task, computer_activity

STEPS = (1, 100, 10_000, 1_000_000)


@dataclass(frozen=True)
class Drift:
    """Relative error of the weights against a retrain, after so many deletions and insertions."""

    method: str
    steps: int
    error: float


def drifts(*, quick: bool = False, task: Task | None = None) -> Iterator[Drift]:
    """A row leaves and comes back, again and again; in the end the rows are those of the beginning."""
    task = task or computer_activity()
    steps = STEPS[:-1] if quick else STEPS
    for method in (Downdate(task), ShermanMorrison(task)):
        retrained, done = method.weights.copy(), 0
        for goal in steps:
            for k in range(done // 2, -(-goal // 2)):
                row = k * 7919 % len(task.X)
                method.change(row, -1.0)
                method.change(row, 1.0)
            done = goal
            weights = method._P @ method._b if isinstance(method, ShermanMorrison) else method._solved()
            yield Drift(method.name, goal, _apart(weights, retrained))
    yield from _ours(task, steps)


def _ours(task: Task, steps: tuple[int, ...]) -> Iterator[Drift]:
    """The same with batches: each row is replaced by another and then by itself again."""
    model = task.model(shards=20, rate=5).fit(task.X, task.y)
    retrained, done, digest = model.retrained().coef_, 0, model.digest()
    for goal in steps:
        while done < goal:
            size = min(1_000, len(task.X), -(-(goal - done) // 2))
            ids = (np.arange(size) * 7919 + done) % len(task.X)
            model.rectify(ids, task.X[ids[::-1]], task.y[ids[::-1]])
            model.rectify(ids, task.X[ids], task.y[ids])
            done += 2 * size
        if model.digest() != digest:
            raise AssertionError("the digest moved: this must never happen")
        yield Drift("expunge", goal, _apart(model.coef_, retrained))


def _apart(weights: Floats, right: Floats) -> float:
    return float(np.abs(weights - right).max() / np.abs(right).max())
