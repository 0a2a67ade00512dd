"""The trade-off: each model's test error beside the time it takes to forget a row."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .measure import in_turns
from .methods import Boosting, Downdate, Method, Ours, PaperProtocol, Sharded, codes_of, forgetting
from .tasks import Task, computer_activity, power_plant, protein


@dataclass(frozen=True)
class Point:
    """One model on one data set."""

    data: str
    method: str
    shape: str
    seconds: float  # to forget one row
    error: float  # mean squared, on rows that it did not see


def points(*, quick: bool = False, tasks: tuple[Task, ...] | None = None) -> Iterator[Point]:
    """All methods, on all data sets."""
    for task in tasks or (protein(), computer_activity(), power_plant()):
        methods: list[tuple[str, Method]] = [("", Boosting(task)), ("s=1", Downdate(task)), ("s=1", Sharded(task, 1))]
        methods.append(("s=20", Sharded(task, 20)))
        for shape, given in codes_of(task, 20).items():
            methods.append((shape, Ours(task, **given)))
            if "rate" in shape:
                methods.append((shape, PaperProtocol(task, **given)))
        for shape, method in methods:
            error = float(np.mean((method.predict(task.X_test) - task.y_test) ** 2))
            calls = 10 if isinstance(method, Ours | Downdate) else 1
            seconds = in_turns(forgetting(method), rounds=3, calls=calls)[0].median
            name = "expunge" if isinstance(method, Ours) else method.name.split(",")[0]
            yield Point(task.name, name, shape, seconds, error)
