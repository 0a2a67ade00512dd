"""Scores: every method on every split, from a cache where possible; ratios to boosted trees, and the goals."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from .methods import BOOSTED, LINEAR, PLAN, PLAN_5, SMALL, Method, Outcome
from .splits import split
from .tables import Loaded, Shape, Table


@dataclass(frozen=True)
class Cache:
    """A folder with one file per table, split, method and settings. Its files are only as good as who wrote them."""

    folder: Path

    def get(self, table: str, split: int, data: str, method: Method) -> dict[str, Outcome] | None:
        """Return the results of a method if all are there, for the same data and settings."""
        found = {}
        for name in method.names:
            path = self._path(_key(table, split, data, name, method.settings))
            if not path.exists():
                return None
            found[name] = Outcome(**json.loads(path.read_text(encoding="utf-8"))["outcome"])
        return found

    def put(self, table: str, split: int, data: str, method: Method, outcomes: Mapping[str, Outcome]) -> None:
        """Keep the results of a method; whole or not at all."""
        for name in method.names:
            key = _key(table, split, data, name, method.settings)
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.write_text(json.dumps({"key": key, "outcome": asdict(outcomes[name])}, indent=1), encoding="utf-8")
            new.replace(path)

    def _path(self, key: Mapping[str, Any]) -> Path:
        text = json.dumps(key, sort_keys=True)
        name = key["method"].replace(" ", "-").replace(",", "")
        tail = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self.folder / str(key["table"]) / f"{key['split']}-{name}-{tail}.json"


def _key(table: str, split: int, data: str, method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"table": table, "split": split, "data": data, "method": method, "settings": dict(settings)}


@dataclass(frozen=True)
class Scores:
    """What all methods reached on one table."""

    table: Table
    shape: Shape
    splits: Sequence[Mapping[str, Outcome]]

    @property
    def methods(self) -> list[str]:
        """Names of the methods that were run."""
        return list(self.splits[0])

    def mse(self, method: str) -> NDArray[np.float64]:
        """Test error on each split: (splits,)."""
        return np.array([outcomes[method].mse for outcomes in self.splits])

    def forget_ms(self, method: str) -> float | None:
        """Median of the milliseconds to forget a row; None if the method cannot."""
        measured = [outcomes[method].forget_ms for outcomes in self.splits]
        return None if None in measured else float(np.median([ms for ms in measured if ms is not None]))

    @property
    def better(self) -> str:
        """The boosted trees with the smaller mean error."""
        return min(BOOSTED, key=lambda name: self.mse(name).mean())

    def ratio(self, method: str, against: str | None = None) -> float:
        """Mean error of a method over that of another, by default the better boosted trees."""
        return float(self.mse(method).mean() / self.mse(against or self.better).mean())

    def worst_ratio(self, method: str, against: str) -> float:
        """Return the largest ratio of two methods' errors on one split."""
        return float((self.mse(method) / self.mse(against)).max())

    def spread(self, method: str) -> float:
        """Standard deviation over splits of a method's ratio to the better boosted trees."""
        return float(np.std(self.mse(method) / self.mse(self.better)))


@dataclass(frozen=True)
class Goal:
    """Something that should be at most so much."""

    what: str
    value: float
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.value <= self.limit

    def __str__(self) -> str:
        verdict = "met" if self.met else "MISSED"
        return f"{self.what}: {self.value:.3g}{self.unit}, goal at most {self.limit:g}{self.unit}, {verdict}"


def geometric_mean(values: Iterable[float]) -> float:
    """The mean of ratios: two and a half make one."""
    return float(np.exp(np.mean(np.log(list(values)))))


def goals(scores: Sequence[Scores]) -> list[Goal]:
    """Judge the goals of the plan over some tables; no tables, no goals."""
    if not scores:
        return []
    ratios = {score.table.name: score.ratio(PLAN) for score in scores}
    lines = {score.table.name: score.ratio(PLAN, LINEAR) for score in scores}
    worst, bent = max(ratios, key=ratios.__getitem__), max(lines, key=lines.__getitem__)
    wild = {score.table.name: score.worst_ratio(SMALL, LINEAR) for score in scores}
    wildest = max(wild, key=wild.__getitem__)
    limited = geometric_mean(score.ratio(PLAN_5) for score in scores)
    return [
        Goal("plan / better boosting, geometric mean", geometric_mean(ratios.values()), 0.95),
        Goal(f"plan / better boosting, worst table ({worst})", ratios[worst], 1.3),
        Goal(f"plan / linear, worst table ({bent})", lines[bent], 1.02),
        Goal("plan limited to 5 ms / better boosting, geometric mean", limited, 1.05),
        Goal("small plan / better boosting, geometric mean", geometric_mean(s.ratio(SMALL) for s in scores), 1.02),
        Goal(f"small plan / linear, worst split ({wildest})", wild[wildest], 1.1),
    ]


def run(
    tables: Sequence[Table], methods: Sequence[Method], cache: Cache, *, splits: int, jobs: int
) -> Iterator[Scores]:
    """Yield the scores of each table, in order; so many tables are worked on at a time."""
    one = partial(run_table, methods=methods, cache=cache, splits=splits)
    if jobs == 1:
        yield from map(one, tables)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        yield from workers.map(one, tables)


def run_table(table: Table, methods: Sequence[Method], cache: Cache, splits: int) -> Scores:
    """Load a table and run the methods on its splits."""
    loaded = table.load()
    return Scores(table, loaded.shape, [run_split(loaded, number, methods, cache) for number in range(splits)])


def run_split(table: Loaded, number: int, methods: Sequence[Method], cache: Cache) -> dict[str, Outcome]:
    """Return the outcome of each method on a split, by name."""
    rows = split(table, number)
    data, outcomes = rows.fingerprint(), {}
    for method in methods:
        found = cache.get(table.name, number, data, method)
        if found is None:
            with threadpool_limits(1):  # threads that wait for one another are slow where others work as well
                found = dict(method.run(rows))
            cache.put(table.name, number, data, method, found)
        outcomes.update(found)
    return outcomes
