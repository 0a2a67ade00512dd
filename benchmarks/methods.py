"""The methods that are compared: each learns a task, forgets rows, and predicts.

Methods 1, 2, 3 and 5 are perfect up to the rounding of floats: after forgetting they are the model that never saw the
row. Method 4 is as fast as it gets without exactness. All but ours keep their features in memory and compute none when
they forget: what is measured is the least that each of them has to do. Rows that are forgotten in one request are
subtracted together, and every learner that they touch is refitted once.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from scipy.linalg.blas import dsymv, dsyr, dsyrk
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from expunge import Code
from expunge.encoding.placement import draw_slots

from .tasks import Floats, Rows, Task

_LARGE = 1e3  # a column of ones so large that the penalty on its weight vanishes


class Method(Protocol):
    """What can be measured."""

    name: str

    def forget(self, rows: Rows) -> None:
        """Forget rows, in one request."""

    def predict(self, X: Floats) -> Floats:
        """Predict rows."""


class Ours:
    """Expunge."""

    def __init__(self, task: Task, **shape: Any) -> None:
        self.model = task.model(**shape).fit(task.X, task.y)
        code = self.model.code_
        self.name = f"expunge, s={code.shards}, r={code.learners}"

    def forget(self, rows: Rows) -> None:
        self.model.unlearn(rows)

    def predict(self, X: Floats) -> Floats:
        return self.model.predict(X)


class PaperProtocol:
    """1: the paper, to the letter: subtract rows from their coded rows, refit the learners that saw them.

    Like ours it encodes a column of ones as well: a coded row has as many intercepts as rows in it.
    """

    name = "paper's protocol"

    def __init__(self, task: Task, **shape: Any) -> None:
        ours = task.model(**shape).fit(task.X, task.y)  # for its code and its slots
        self._task, self._code = task, ours.code_
        s = self._code.shards
        self._rows = np.column_stack([task.phi, np.full((len(task.X), int(task.intercept)), _LARGE), task.y])
        self._slots = draw_slots(ours._state.blueprint.key, 0, len(task.X), s)
        self._shards, self._members, self._at = encoded(self._code, self._rows, self._slots)
        self._models = [self._fit(j) for j in range(self._code.learners)]

    def _fit(self, learner: int) -> Floats:
        q = self._shards[learner]
        weights: Floats = Ridge(self._task.alpha, fit_intercept=False).fit(q[:, :-1], q[:, -1]).coef_
        return weights

    def forget(self, rows: Rows) -> None:
        stripe, lane = np.divmod(self._slots[rows], self._code.shards)
        for j in np.flatnonzero(self._code.G[lane].any(axis=0)).tolist():
            weight = self._code.G[lane, j]
            which = np.flatnonzero(weight)
            place = self._at[j][stripe[which]]
            np.subtract.at(self._shards[j], place, weight[which, None] * self._rows[rows[which]])
            np.subtract.at(self._members[j], place, 1)
            self._drop_empty(j, place)
            self._models[j] = self._fit(j)

    def _drop_empty(self, learner: int, places: Rows) -> None:
        """A coded row without a row is no row: the last takes its place."""
        q, members, at = self._shards[learner], self._members[learner], self._at[learner]
        for place in sorted({k for k in places.tolist() if not members[k]}, reverse=True):
            last = len(q) - 1
            q[place], members[place], at[at == last] = q[last], members[last], place
            q, members = q[:last], members[:last]
        self._shards[learner], self._members[learner] = q, members

    def predict(self, X: Floats) -> Floats:
        phi = self._task.features(X)
        if self._task.intercept:
            phi = np.column_stack([phi, np.full(len(X), _LARGE)])
        predictions: Floats = phi @ np.mean(self._models, axis=0)
        return predictions


class BareRefit(PaperProtocol):
    """1: the same refit without scikit-learn around it: products and a Cholesky factorisation."""

    name = "the same, bare BLAS"

    def _fit(self, learner: int) -> Floats:
        q, D = self._shards[learner], self._task.D
        M = dsyrk(1.0, q.T, lower=1)
        M[np.arange(D), np.arange(D)] += self._task.alpha
        factor, _ = dpotrf(np.asfortranarray(M[:-1, :-1]), lower=1, clean=0, overwrite_a=1)
        weights: Floats = dpotrs(factor, M[-1, :-1].copy(), lower=1)[0]
        return weights


def encoded(code: Code, rows: Floats, slots: Rows) -> tuple[list[Floats], list[Rows], list[Rows]]:
    """Each learner's coded rows, in floats; how many rows are in each; and where that of a stripe is."""
    s = code.shards
    stripes = np.zeros((-(-len(rows) // s), s, rows.shape[1]))
    stripes.reshape(-1, rows.shape[1])[slots] = rows
    live = np.zeros(stripes.shape[:2], dtype=np.int64)
    live.reshape(-1)[slots] = 1
    shards = [np.ascontiguousarray(q) for q in code.encode(stripes)]
    members = [live[:, np.flatnonzero(g)].sum(axis=1) for g in code.G.T]
    filled = [m > 0 for m in members]
    at = [np.cumsum(full) - 1 for full in filled]
    parts = zip(shards, members, filled, strict=True)
    kept = [(q[full], m[full]) for q, m, full in parts]
    return [q for q, _ in kept], [m for _, m in kept], at


class Sharded:
    """2: uncoded shards (SISA), and with one shard 3: a full retrain. A row that leaves is overwritten by the last."""

    def __init__(self, task: Task, shards: int) -> None:
        self.name = f"SISA, {shards} shards" if shards > 1 else "full retrain"
        self._task = task
        self._parts = [(task.phi[k::shards].copy(), task.y[k::shards].copy()) for k in range(shards)]
        self._at = [np.arange(k, len(task.X), shards) for k in range(shards)]
        self._models = [self._fit(k) for k in range(shards)]

    def _fit(self, shard: int) -> Any:
        return Ridge(self._task.alpha, fit_intercept=self._task.intercept).fit(*self._parts[shard])

    def forget(self, rows: Rows) -> None:
        for shard in np.unique(rows % len(self._parts)).tolist():
            (X, y), at = self._parts[shard], self._at[shard]
            for place in np.flatnonzero(np.isin(at, rows))[::-1].tolist():
                X[place], y[place], at[place] = X[-1], y[-1], at[-1]
                X, y, at = X[:-1], y[:-1], at[:-1]
            self._parts[shard], self._at[shard] = (X, y), at
            self._models[shard] = self._fit(shard)

    def predict(self, X: Floats) -> Floats:
        phi = self._task.features(X)
        predictions: Floats = np.mean([model.predict(phi) for model in self._models], axis=0)
        return predictions


class Downdate:
    """4: float moments of all rows; subtract the row's, solve by Cholesky. Fast, and never quite forgets."""

    name = "float downdate"

    def __init__(self, task: Task) -> None:
        self._task = task
        self.rows = np.column_stack([task.phi, np.ones((len(task.X), int(task.intercept)))])
        self._A, self._b = self._moments(np.arange(len(task.X)))
        self.weights = self.solved()

    def _moments(self, rows: Rows) -> tuple[Floats, Floats]:
        X, y, D = self.rows[rows], self._task.y[rows], self._task.D
        A = np.asfortranarray(X.T @ X)
        A[np.arange(D), np.arange(D)] += self._task.alpha
        return A, X.T @ y

    def retrained(self, rows: Rows) -> Floats:
        """The weights that these rows alone give, from scratch."""
        return _solution(*self._moments(rows))

    def solved(self) -> Floats:
        """The weights of what is there."""
        return _solution(self._A, self._b)

    def change(self, row: int, sign: float) -> None:
        """Add or subtract a row, without solving."""
        dsyr(sign, self.rows[row], a=self._A, lower=1, overwrite_a=1)
        self._b += sign * self._task.y[row] * self.rows[row]

    def learn(self, row: int) -> None:
        """Add a row."""
        self.change(row, 1.0)
        self.weights = self.solved()

    def forget(self, rows: Rows) -> None:
        for row in rows.tolist():
            self.change(row, -1.0)
        self.weights = self.solved()

    def predict(self, X: Floats) -> Floats:
        phi = self._task.features(X)
        predictions: Floats = np.column_stack([phi, np.ones((len(X), int(self._task.intercept)))]) @ self.weights
        return predictions


def _solution(A: Floats, b: Floats) -> Floats:
    factor, _ = dpotrf(A, lower=1, clean=0)
    W: Floats = dpotrs(factor, b, lower=1)[0]
    return W


class ShermanMorrison(Downdate):
    """4: the same with the inverse kept and updated, so that nothing is ever solved."""

    name = "Sherman-Morrison"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._P = dpotri(dpotrf(self._A, lower=1)[0], lower=1, overwrite_c=1)[0]

    def solved(self) -> Floats:
        if not hasattr(self, "_P"):
            return super().solved()
        W: Floats = dsymv(1.0, self._P, self._b, lower=1)
        return W

    def change(self, row: int, sign: float) -> None:
        x = self.rows[row]
        Px = dsymv(1.0, self._P, x, lower=1)
        dsyr(-sign / (1.0 + sign * (x @ Px)), Px, a=self._P, lower=1, overwrite_a=1)
        self._b += sign * self._task.y[row] * x


class Boosting:
    """5: what a practitioner would train instead, retrained without the row."""

    name = "boosted trees"

    def __init__(self, task: Task) -> None:
        self._task, self._live = task, np.ones(len(task.X), dtype=np.bool_)
        self._model = self._fit()

    def _fit(self) -> Any:
        X, y = self._task.X[self._live], self._task.y[self._live]
        return HistGradientBoostingRegressor(random_state=0).fit(X, y)

    def forget(self, rows: Rows) -> None:
        self._live[rows] = False
        self._model = self._fit()

    def predict(self, X: Floats) -> Floats:
        predictions: Floats = self._model.predict(X)
        return predictions


def forgetting(method: Method, size: int = 1, rows: int = 10**9) -> Callable[[], None]:
    """A function that forgets the first rows, then the next, and so on, up to ``rows`` of them."""
    batches = (np.arange(start, start + size) for start in range(0, rows - size + 1, size))
    return lambda: method.forget(next(batches))


def codes_of(shards: int) -> dict[str, dict[str, Any]]:
    """The shapes of our model that are compared."""
    return {
        "s=1": {"code": Code.single()},
        f"s={shards}, rate 5": {"shards": shards, "rate": 5},
        f"s={shards}, uncoded": {"code": Code.uncoded(shards)},
    }
