"""Models of scikit-learn that are compared with ours, as they come."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .outcomes import BOOSTED, LINEAR, TREES, Method, Outcome, source
from .splits import Floats, Split


def linear(split: Split) -> Floats:
    """Predict by a linear model; ridge with a penalty by leave-one-out, so that rare categories do no harm."""
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))
    return _predicted(model.fit(split.X, split.y), split.X_test)


def boosting(split: Split, iterations: int) -> Floats:
    """Predict by HistGradientBoosting, with its own treatment of categories and gaps."""
    mask = split.categorical if split.categorical.any() else None
    model = HistGradientBoostingRegressor(
        max_iter=iterations, categorical_features=mask, early_stopping=False, random_state=split.number
    )
    return _predicted(model.fit(split.trees, split.y), split.trees_test)


def extra_trees(split: Split, trees: int) -> Floats:
    """Predict by extremely randomised trees; categories by number, the most frequent first."""
    model = ExtraTreesRegressor(trees, random_state=split.number)
    return _predicted(model.fit(split.trees, split.y), split.trees_test)


def references(*, iterations: tuple[int, int] = (100, 400), trees: int = 200) -> list[Method]:
    """All references; smaller numbers are for tests."""
    few, many = iterations
    return [
        _method(LINEAR, linear),
        _method(BOOSTED[0], boosting, iterations=few),
        _method(BOOSTED[1], boosting, iterations=many),
        _method(TREES, extra_trees, trees=trees),
    ]


def _method(name: str, predict: Callable[..., Floats], **settings: int) -> Method:
    known = {"scikit-learn": sklearn.__version__, "code": source(Path(__file__))}
    return Method((name,), partial(_timed, name, partial(predict, **settings)), {**known, **settings})


def _timed(name: str, predict: Callable[[Split], Floats], split: Split) -> Mapping[str, Outcome]:
    started = time.perf_counter()
    mse = split.mse(predict(split))
    return {name: Outcome(mse, time.perf_counter() - started)}


def _predicted(model: Any, X: Floats) -> Floats:
    predictions: Floats = model.predict(X)
    return predictions
