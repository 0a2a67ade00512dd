"""The trade-off: each model's test error beside the time it takes to forget a row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .measure import in_turns
from .methods import Boosting, Downdate, Method, Ours, PaperProtocol, Sharded, ShermanMorrison, codes_of, forgetting
from .tasks import Task, computer_activity, power_plant, protein

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


def points(*, quick: bool = False, tasks: tuple[Callable[[int], Task], ...] | None = None) -> Iterator[Point]:
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
