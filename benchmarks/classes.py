"""Compare classifiers on the tables that come with scikit-learn, and time forgetting: ``python -m benchmarks.classes``.

The numbers are printed and written into docs/classification.md. For every table: log loss on a fifth of the rows, the
mean over five splits. All candidates run with one thread.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from expunge import Code, CodedClassifier, CodedRegressor, RandomFourier

PAGE = Path(__file__).parents[1] / "docs" / "classification.md"
BEGIN, END = "<!-- python -m benchmarks.classes -->", "<!-- end -->"

TABLES = {"breast cancer": load_breast_cancer, "iris": load_iris, "wine": load_wine, "digits": load_digits}
SPLITS = 5

OURS: dict[str, Any] = {"alpha": 0.1, "random_state": 0}
COSINES = RandomFourier(300, linear=True, random_state=0)
CANDIDATES = {
    "300 cosines": CodedClassifier(features=COSINES, **OURS),
    "linear": CodedClassifier(**OURS),
    "linear, no pairs": CodedClassifier(pairs=False, **OURS),
    "linear, rate 2": CodedClassifier(shards=2, rate=2, **OURS),
    "linear, 4 votes": CodedClassifier(code=Code.uncoded(4), aggregate="vote", **OURS),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "random forest": RandomForestClassifier(random_state=0),
    "boosted trees": HistGradientBoostingClassifier(random_state=0),
}


def main() -> None:
    """Print the numbers and write them into the page."""
    with threadpool_limits(1):
        lines = [*compare(), "", *time_forgetting()]
    print("\n".join(lines))
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text("\n".join([head + BEGIN, "", *lines, "", END + rest.split(END)[1]]), encoding="utf-8")


def compare() -> list[str]:
    """Return a table of log losses."""
    losses = {
        name: [f"{_mean_loss(model, load):.3f}" for load in TABLES.values()] for name, model in CANDIDATES.items()
    }
    head = f"| log loss | {' | '.join(TABLES)} |"
    rows = [f"| {name} | {' | '.join(cells)} |" for name, cells in losses.items()]
    return [head, "|---|" + "---|" * len(TABLES), *rows]


def _mean_loss(model: Any, load: Callable[..., tuple[NDArray[np.float64], NDArray[np.int64]]]) -> float:
    X, y = load(return_X_y=True)
    losses = []
    for split in range(SPLITS):
        order = np.random.default_rng(1000 + split).permutation(len(X))
        train, test = np.split(order, [len(X) * 4 // 5])
        fitted = clone(model).fit(X[train], y[train])
        losses.append(log_loss(y[test], fitted.predict_proba(X[test])))
    return float(np.mean(losses))


def time_forgetting() -> list[str]:
    """Return a table of the time to forget one row and predict another, as a multiple of the same regression's."""
    lines = ["| rows | classes | times a regression's |", "|---|---|---|"]
    for rows, classes in ((10_000, 2), (100_000, 2), (10_000, 10)):
        rng = np.random.default_rng(0)
        X = rng.random((rows, 10))
        score = np.sin(4 * X[:, 0]) + 2 * X[:, 1] * X[:, 2] + rng.normal(0, 0.3, rows)
        y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
        shared: dict[str, Any] = {"features": RandomFourier(300), "bounds": (0, 1), "random_state": 0}
        models = [CodedRegressor(shards=1, rate=1, **shared).fit(X, score), CodedClassifier(**shared).fit(X, y)]
        regression, classification = (_median_time(model, X) for model in models)
        lines.append(f"| {rows:,} | {classes} | {classification / regression:.0f} |")
    return lines


def _median_time(model: CodedRegressor | CodedClassifier, X: NDArray[np.float64]) -> float:
    """Return the processor time to forget a row and predict one."""
    model.predict(X[:1])
    times = []
    for person in range(11):
        started = time.thread_time()
        model.unlearn(person)
        model.predict(X[:1])
        times.append(time.thread_time() - started)
    return float(np.median(times))


if __name__ == "__main__":
    main()
