"""Tasks: rows to learn, rows to test, and the features that all methods share."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge import Code, CodedRegressor, RandomFourier
from expunge.paper.data import read_dataset

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]  # their numbers

_BLOCK = 1_000  # rows whose features are computed at once


@dataclass(frozen=True, eq=False)
class Task:
    """A regression problem with random cosine features; bounds are declared, so that no deletion moves one."""

    name: str
    X: Floats  # (n, d)
    y: Floats  # (n,), in [0, 1]
    X_test: Floats
    y_test: Floats
    D: int
    alpha: float
    intercept: bool = True

    def model(self, **shape: object) -> CodedRegressor:
        """Our model, not fitted; ``shape`` is a code or its parameters."""
        given: Any = shape or {"code": Code.single()}
        return CodedRegressor(
            features=RandomFourier(self.D, random_state=0),
            alpha=self.alpha,
            fit_intercept=self.intercept,
            bounds=(self.X.min(axis=0), self.X.max(axis=0)),
            target_bounds=(0.0, 1.0),
            outside="extrapolate",  # as all that it is compared with
            random_state=0,
            **given,
        )

    @cached_property
    def phi(self) -> Floats:
        """The same features in floats, with np.cos: (n, D)."""
        return self.features(self.X)

    @cached_property
    def _projection(self) -> tuple[Floats, Floats, Floats, Floats]:
        """What there is to know before a row comes: theta, offset, and the scale of the inputs."""
        drawn = RandomFourier(self.D, random_state=0).fit(self.X[:1])
        low, high = self.X.min(axis=0), self.X.max(axis=0)
        return drawn.theta_, drawn.offset_, low, high - low

    def features(self, X: Floats) -> Floats:
        """np.cos of the same projection, in blocks that stay in cache: (n, d) -> (n, D)."""
        theta, offset, low, width = self._projection
        phi = np.empty((len(X), self.D))
        for start in range(0, len(X), _BLOCK):
            some = slice(start, start + _BLOCK)
            np.cos((X[some] - low) / width @ theta + offset, out=phi[some])
        return phi


def real(name: str, D: int, alpha: float, train: int, split: int) -> Task:
    """One of the paper's tables, shuffled; the target scaled to [0, 1]."""
    X, y = read_dataset(name)
    order = np.random.default_rng(split).permutation(len(X))
    X, y = X[order], (y[order] - y.min()) / (y.max() - y.min())
    return Task(name, X[:train], y[:train], X[train:], y[train:], D, alpha)


def protein(split: int = 0) -> Task:
    """Protein, as in the paper: 42,000 rows, D = 300."""
    return real("protein", 300, 1e-4, 42_000, split)


def computer_activity(split: int = 0) -> Task:
    """Computer Activity: 7,500 rows, D = 25."""
    return real("computer-activity", 25, 1e-3, 7_500, split)


def power_plant(split: int = 0) -> Task:
    """Power Plant: 9,000 rows, D = 20."""
    return real("power-plant", 20, 1e-3, 9_000, split)


def synthetic(n: int, D: int, d: int = 10) -> Task:
    """Uniform rows, a smooth target and some noise; as many rows as asked for."""
    rng = np.random.default_rng(0)
    X = rng.random((n + 1000, d))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(0, 0.05, len(X))
    y = (y - y.min()) / (y.max() - y.min())
    return Task(f"synthetic {n:,} x {d}", X[:n], y[:n], X[n:], y[n:], D, 1e-3)
