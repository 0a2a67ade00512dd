"""Prediction: the latency of one row, the throughput of many."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from .measure import Result, compared, in_turns
from .methods import Boosting, Ours
from .tasks import Floats, Task, protein


def one_and_many(*, quick: bool = False) -> Iterator[Result]:
    """Against np.cos features and a product, and against boosted trees."""
    task = protein()
    ours, boosted = Ours(task, shards=20, rate=5), Boosting(task)
    many = np.tile(task.X, (3, 1))[:100_000]
    for X, what, calls in ((task.X[:1], "predict 1 row", 50), (many, "predict 100,000 rows", 1)):
        mine, floats, trees = in_turns(
            partial(ours.predict, X),
            partial(_product, task, X),
            partial(boosted.predict, X),
            rounds=3 if quick else 5,
            calls=calls,
        )
        yield compared("predict", f"{what}, protein D=300", mine, floats, against="np.cos and a product")
        yield compared("predict", f"{what}, protein D=300", mine, trees, against="boosted trees")


def _product(task: Task, X: Floats) -> Floats:
    return task.features(X) @ np.ones(task.D)
