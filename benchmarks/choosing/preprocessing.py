"""Preprocessing keeps people: what a scaler in a Pipeline still knows of a row that the model has unlearned."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import CodedRegressor, RandomFourier
from expunge.exact.arrays import Floats


def kept(X: Floats, y: Floats, *, person: int, column: int) -> Iterator[str]:
    """Lines that compare a pipeline that unlearned a person with one that never saw them."""
    others = np.arange(len(X)) != person
    pipeline = make_pipeline(StandardScaler(), _model())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        pipeline.fit(X, y)
        fresh = make_pipeline(StandardScaler(), _model()).fit(X[others], y[others])
    pipeline[-1].unlearn(person)
    mean, refit = pipeline[0].mean_[column], fresh[0].mean_[column]
    n = len(X)
    yield f"rows {n}, of which one is erased; input {column}, its value in that row {X[person, column]:g}"
    yield f"the scaler's mean after the erasure {mean:.5f}, of a scaler that never saw the row {refit:.5f}"
    yield f"{n} times the first less {n - 1} times the second: {n * mean - (n - 1) * refit:.3f}"
    yield f"fit warned: {str(told[0].message).partition(':')[0]}"
    model = _model(bounds=_declared(X), scales="log").fit(X, y)
    model.unlearn(person)
    same = model.digest() == model.retrained().digest()
    yield f"scaled inside the model, with declared bounds: {'the same' if same else 'NOT THE SAME'} as never seen"


def _model(**given: Any) -> CodedRegressor:
    return CodedRegressor(shards=1, rate=1, features=RandomFourier(100, random_state=0), random_state=0, **given)


def _declared(X: Floats) -> tuple[float, Floats]:
    """Round numbers above every value; a user would declare them without a look at the rows."""
    return 0.0, 10.0 ** np.ceil(np.log10(X.max(axis=0)))
