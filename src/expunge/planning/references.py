"""References: what a straight line and boosted trees reach on the same rows. No choice depends on them."""

import time
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from ..exact.arrays import Floats
from .sample import Sample


@dataclass(frozen=True)
class Reference:
    """A model of another kind, on the same split: ``error`` and ``r2`` as of a candidate, and what training took.

    It forgets a row by training anew: ``train_s`` is of the sample, on one thread.
    """

    name: str
    error: float
    r2: float
    train_s: float


def compared(sample: Sample, variance: Floats, seed: int) -> list[Reference]:
    """The error of each reference on the rows that judge."""
    linear = make_pipeline(StandardScaler(), Ridge(1.0))
    trees = {f"boosted trees, {n}": HistGradientBoostingRegressor(max_iter=n, random_state=seed) for n in (100, 400)}
    return [_tried(name, model, sample, variance) for name, model in {"linear": linear, **trees}.items()]


def _tried(name: str, model: BaseEstimator, sample: Sample, variance: Floats) -> Reference:
    errors, seconds = [], 0.0
    model = model if sample.y.shape[1] == 1 else MultiOutputRegressor(model)
    for judge in sample.folds:
        y = sample.y[~judge]
        with threadpool_limits(1):  # more threads wait for each other for ages if the machine is busy
            started = time.perf_counter()
            model.fit(sample.X[~judge], y[:, 0] if y.shape[1] == 1 else y)
            seconds += time.perf_counter() - started
            wrong = model.predict(sample.X[judge]).reshape(-1, y.shape[1]) - sample.y[judge]
        errors.append((wrong * wrong / variance).mean(axis=1))
    error = float(np.concatenate(errors).mean())
    return Reference(name, error, 1.0 - error, seconds / len(sample.folds))
