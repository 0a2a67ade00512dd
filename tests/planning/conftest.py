"""Small tables and plans, made once; the search is shortened, not changed."""

import numpy as np
import pytest

from expunge.planning.planner import plan

from support.planning import short_search


@pytest.fixture(scope="session", autouse=True)
def quick_search():
    """Plans in a second or less."""
    with short_search():
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
