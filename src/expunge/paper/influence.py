"""Influence: what happens to one learner when outliers, or inliers, are taken away (the paper's Section III-B).

A row's depth is how far its most extreme original feature is from the nearer end of that feature's distribution, as a
percentile. The paper's two criteria, with percentiles varied symmetrically, are the two ends of one ranking: outliers
are the rows of least depth, inliers those of most.
"""

from typing import Any

import numpy as np
from scipy.stats import rankdata

from ..encoding.codes import Code
from ..exact.arrays import Floats
from ..regressor import CodedRegressor
from ..transformers import RandomFourier
from .data import DATASETS
from .experiments import Influence


def run(experiment: Influence, seed: int, *, share: float = 1.0) -> list[dict[str, Any]]:
    """One run: the error on the test rows for each share of the training rows left, by either criterion."""
    rng = np.random.default_rng([seed, 1])
    sample = DATASETS[experiment.data].sample(rng, share=share)
    features = (
        None
        if experiment.features is None
        else RandomFourier(experiment.features, random_state=int(rng.integers(2**31)))
    )
    order = np.argsort(depth(sample.original[: sample.train]), kind="stable")  # the most extreme row first
    columns = experiment.features or sample.X.shape[1]
    rows = []
    for left in np.linspace(1.0, 0.1, experiment.points):
        n = round(left * sample.train)
        if n <= columns:
            break
        for removed, kept in (("outliers", order[-n:]), ("inliers", order[:n])):
            model = CodedRegressor(
                code=Code.single(), features=features, alpha=experiment.alpha, fit_intercept=False, bounds="unit",
                target_bounds="unit", outside="extrapolate", random_state=0,
            ).fit(sample.X[kept], sample.y[kept])  # fmt: skip
            error = np.mean((model.predict(sample.X[sample.train :]) - sample.y[sample.train :]) ** 2)
            rows.append({"removed": removed, "left": round(float(left), 3), "test_mse": float(error)})
    return rows


def depth(original: Floats) -> Floats:
    """How deep each row lies: the least of its features' distances, in ranks, from the nearer end."""
    ranks = rankdata(original, axis=0, method="average") / len(original)
    least: Floats = np.minimum(ranks, 1 - ranks).min(axis=1)
    return least
