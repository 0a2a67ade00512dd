"""Small tables and plans, made once; the search is shortened, not changed."""

import numpy as np
import pytest

from expunge.planning import search
from expunge.planning.planner import plan


@pytest.fixture(scope="session", autouse=True)
def short_search():
    """Fewer cosines, rounds and sweeps: a plan of a small table takes a second or less."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"_COSINES": 40, "_FINE": 40, "_ROUNDS": 2, "_SWEEPS": 1, "_INPUTS": 2}.items():
            patched.setattr(search, name, value)
        yield


@pytest.fixture(scope="session")
def table():
    """Rows of 60 people, of which each has five: X, y and ids."""
    rng = np.random.default_rng(1)
    X = rng.random((300, 3))
    y = np.sin(7 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * rng.standard_normal(300)
    return X, y, np.repeat(np.arange(60), 5)


@pytest.fixture(scope="session")
def planned(table):
    """A whole plan of the table, with codes and references."""
    X, y, ids = table
    return plan(X, y, ids, max_features=30)
