"""A table that is sorted by its target, beside the same in any order: what the order costs."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from expunge import CodedRegressor, RandomFourier
from expunge.vault import Vault

_ROWS, _TESTED, _INPUTS = 300_000, 20_000, 10


def errors() -> dict[str, float]:
    """The mean squared error on other rows of a vault that was trained on a table in either order."""
    rng = np.random.default_rng(0)
    X = rng.random((_ROWS + _TESTED, _INPUTS))
    y = np.sin(X @ rng.normal(size=_INPUTS)) + np.abs(X[:, 0] - X[:, 1]) + rng.normal(0, 0.3, len(X))
    rows = {"any order": np.arange(_ROWS), "sorted by target": np.argsort(y[:_ROWS])}
    return {name: _error(X[order], y[order], X[_ROWS:], y[_ROWS:]) for name, order in rows.items()}


def _error(X: np.ndarray, y: np.ndarray, others: np.ndarray, truth: np.ndarray) -> float:
    model = CodedRegressor(shards=20, rate=5, features=RandomFourier(200), bounds=(0, 1), random_state=0)
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    table = pa.table({"who": np.arange(len(y)), **columns, "y": y})
    with TemporaryDirectory() as folder:
        vault = Vault.create(Path(folder) / "t.vault", table, target="y", id="who", model=model)
        return float(((vault.predict(others) - truth) ** 2).mean())
