"""Tables, and the error of one setting on them."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from expunge import RandomFourier
from expunge.encoding.encoder import Outside
from expunge.encoding.scales import ScalesLike
from expunge.exact.arrays import Floats
from expunge.paper.data import read_dataset
from expunge.planning.candidates import SINGLE, Coding
from expunge.planning.sample import Validation, draw_sample
from expunge.planning.trial import single_learner, try_settings

TABLES = {"computer-activity": "Computer Activity", "protein": "Protein", "power-plant": "Power Plant"}
ROWS = 6_000  # a quarter of them judges
ALPHAS = (1e-4, 1e-2, 1.0, 10.0)


@cache
def table(name: str, rows: int = ROWS) -> tuple[Floats, Floats]:
    """Some rows of a table, in random order."""
    X, y = read_dataset(name)
    some = np.random.default_rng(0).permutation(len(X))[:rows]
    return X[some], y[some]


def ground(X: Floats, y: Floats, scales: ScalesLike = None, outside: Outside = "clamp") -> Validation:
    """Rows to learn from and rows that judge, scaled."""
    sample = draw_sample(X, y.reshape(len(y), 1), None, np.random.default_rng(0), max_rows=len(X))
    return Validation.from_sample(sample, bounds=None, target_bounds=None, scales=scales, outside=outside)


def error(
    where: Validation,
    features: RandomFourier,
    coding: Coding = SINGLE,
    alphas: Sequence[float] = ALPHAS,
    seed: int = 0,
) -> float:
    """Mean squared error over the target's variance, with the best of the penalties."""
    return try_settings(where, coding.apply(single_learner(features, seed)), alphas).error
