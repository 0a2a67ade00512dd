"""Tables, and the error of one setting on them."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from expunge import RandomFourier
from expunge.encoding.encoder import Outside
from expunge.encoding.scales import ScalesLike
from expunge.exact.arrays import Floats
from expunge.paper.data import read
from expunge.planning.codes import SINGLE, Coding
from expunge.planning.ground import Ground
from expunge.planning.sample import draw_sample
from expunge.planning.trial import single, tried

TABLES = {"computer-activity": "Computer Activity", "protein": "Protein", "power-plant": "Power Plant"}
ROWS = 6_000  # a quarter of them judges
ALPHAS = (1e-4, 1e-2, 1.0, 10.0)


@cache
def table(name: str, rows: int = ROWS) -> tuple[Floats, Floats]:
    """Some rows of a table, in random order."""
    X, y = read(name)
    some = np.random.default_rng(0).permutation(len(X))[:rows]
    return X[some], y[some]


def ground(X: Floats, y: Floats, scales: ScalesLike = None, outside: Outside = "clamp") -> Ground:
    """Rows to learn from and rows that judge, scaled."""
    sample = draw_sample(X, y.reshape(len(y), 1), None, np.random.default_rng(0), most=len(X))
    return Ground.of(sample, bounds=None, target_bounds=None, scales=scales, outside=outside)


def error(
    where: Ground,
    features: RandomFourier,
    coding: Coding = SINGLE,
    alphas: Sequence[float] = ALPHAS,
    seed: int = 0,
) -> float:
    """Mean squared error over the target's variance, with the best of the penalties."""
    return tried(where, coding.applied(single(features, seed)), alphas).error
