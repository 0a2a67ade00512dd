"""Scores: errors over splits, ratios to boosted trees, and the goals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .outcomes import BOOSTED, LINEAR, PLAN, PLAN_5, Outcome
from .tables import Shape, Table


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
    limited = geometric_mean(score.ratio(PLAN_5) for score in scores)
    return [
        Goal("plan / better boosting, geometric mean", geometric_mean(ratios.values()), 0.95),
        Goal(f"plan / better boosting, worst table ({worst})", ratios[worst], 1.3),
        Goal(f"plan / linear, worst table ({bent})", lines[bent], 1.02),
        Goal("plan limited to 5 ms / better boosting, geometric mean", limited, 1.05),
    ]
