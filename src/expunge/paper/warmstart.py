"""Warm start: what a solver that is restarted from the old weights, as the paper proposes, has forgotten.

The error of the warm-started weights against retrained ones is shown beside the old weights' own distance: where the
two are equal, the solver stopped where it began, and nothing was forgotten.
"""

from typing import Any

import numpy as np
from scipy.sparse.linalg import cg

from ..encoding.drawing import random_code
from ..exact.arrays import Floats
from ..regressor import CodedRegressor
from ..transformers import RandomFourier
from .data import DATASETS
from .experiments import WarmStart

TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)


def run(experiment: WarmStart, seed: int, *, share: float = 1.0) -> list[dict[str, Any]]:
    """One run: unlearn a row and solve its learner again by conjugate gradients, from the old weights and from zero."""
    rng = np.random.default_rng([seed, 2])
    sample = DATASETS[experiment.data].sample(rng, share=share)
    model = CodedRegressor(
        code=random_code(experiment.shards, 1, random_state=rng), alpha=experiment.alpha, fit_intercept=False,
        features=RandomFourier(experiment.features, random_state=int(rng.integers(2**31))), bounds="unit",
        target_bounds="unit", outside="extrapolate", random_state=int(rng.integers(2**31)),
    ).fit(sample.X[: sample.train], sample.y[: sample.train])  # fmt: skip
    old = model.coef_
    model.unlearn(int(rng.integers(sample.train)))
    new = model.coef_
    Q, q = model.coded_shard(0)
    A, b = Q.T @ Q + experiment.alpha * np.eye(Q.shape[1]), Q.T @ q
    rows = []
    for tolerance in TOLERANCES:
        for start, name in ((old, "old weights"), (np.zeros_like(old), "zero")):
            solved, iterations = solve(A, b, start, tolerance)
            error = float(np.linalg.norm(solved - new) / np.linalg.norm(new))
            moved = float(np.linalg.norm(old - new) / np.linalg.norm(new))
            rows.append(
                {"start": name, "tolerance": tolerance, "iterations": iterations, "error": error, "old_error": moved}
            )
    return rows


def solve(A: Floats, b: Floats, start: Floats, tolerance: float) -> tuple[Floats, int]:
    """Conjugate gradients, and how many iterations they took."""
    iterations = 0

    def count(_: Floats) -> None:
        nonlocal iterations
        iterations += 1

    solved, _ = cg(A, b, x0=start, rtol=tolerance, atol=0.0, maxiter=100 * len(b), callback=count)
    return solved, iterations
