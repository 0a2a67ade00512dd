"""The methods that are compared: each learns a task, forgets rows, and predicts.

Methods 1, 2, 3 and 5 are perfect: after forgetting they are the model that never saw the row (up to rounding). Method 4
is as fast as it gets without exactness. All but ours keep their features in memory and compute none when they forget:
what is measured is the least that each of them has to do.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

import numpy as np
from scipy.linalg.blas import dsyr
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from expunge import Code
from expunge.slots import draw_slots

from .tasks import Floats, Task


class Method(Protocol):
    """What can be measured."""

    name: str

    def forget(self, row: int) -> None:
        """Forget one row."""

    def predict(self, X: Floats) -> Floats:
        """Predict rows."""


class Ours:
    """Expunge."""

    def __init__(self, task: Task, **shape: Any) -> None:
        self.model = task.model(**shape).fit(task.X, task.y)
        code = self.model.code_
        self.name = f"expunge, s={code.shards}, r={code.learners}"

    def forget(self, row: int) -> None:
        self.model.unlearn(row)

    def predict(self, X: Floats) -> Floats:
        return self.model.predict(X)


class PaperProtocol:
    """1: the paper, to the letter: subtract the row from its coded rows, refit the learners that saw it."""

    name = "paper's protocol"

    def __init__(self, task: Task, **shape: Any) -> None:
        self._task, self._ours = task, Ours(task, **shape).model
        self._code, key = self._ours.code_, self._ours._state.blueprint.key
        self._slots = draw_slots(key, 0, len(task.X), self._code.shards)
        self._shards = [self._ours.coded_shard(j) for j in range(self._code.learners)]
        stripes = len(self._shards[0][0])
        self._members = np.count_nonzero(self._code.G, axis=0)[:, None].repeat(stripes, axis=1)
        self._at = [np.arange(stripes) for _ in self._shards]
        self._models = [self._fit(j) for j in range(self._code.learners)]

    def _fit(self, learner: int) -> Any:
        X, y = self._shards[learner]
        if not self._task.intercept:
            return Ridge(self._task.alpha, fit_intercept=False).fit(X, y)
        return Ridge(self._task.alpha).fit(X[:, :-1], y)

    def forget(self, row: int) -> None:
        stripe, lane = divmod(int(self._slots[row]), self._code.shards)
        gone = np.append(self._task.phi[row], np.ones(int(self._task.intercept)))
        for j in np.flatnonzero(self._code.G[lane]).tolist():
            (X, y), at = self._shards[j], self._at[j]
            place, self._members[j, stripe] = int(at[stripe]), self._members[j, stripe] - 1
            X[place] -= self._code.G[lane, j] * gone
            y[place] -= self._code.G[lane, j] * self._task.y[row]
            if not self._members[j, stripe]:  # a coded row without a row is no row: the last takes its place
                X[place], y[place], at[at == len(X) - 1] = X[-1], y[-1], place
                self._shards[j] = X[:-1], y[:-1]
            self._models[j] = self._fit(j)

    def predict(self, X: Floats) -> Floats:
        phi = self._task.features(X)
        members = self._code.G.sum(axis=0)  # the intercept of a coded row is that of all its rows
        parts = [phi @ m.coef_[: self._task.D] + m.intercept_ / k for m, k in zip(self._models, members, strict=True)]
        predictions: Floats = np.mean(parts, axis=0)
        return predictions


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

    def forget(self, row: int) -> None:
        shard = row % len(self._parts)
        (X, y), at = self._parts[shard], self._at[shard]
        place = int(np.flatnonzero(at == row)[0])
        X[place], y[place], at[place] = X[-1], y[-1], at[-1]
        self._parts[shard], self._at[shard] = (X[:-1], y[:-1]), at[:-1]
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
        self._A = np.asfortranarray(self.rows.T @ self.rows)
        self._b = self.rows.T @ task.y
        self._A[np.arange(task.D), np.arange(task.D)] += task.alpha
        self.weights = self._solved()

    def _solved(self) -> Floats:
        factor, _ = dpotrf(self._A, lower=1, clean=0)
        W: Floats = dpotrs(factor, self._b, lower=1)[0]
        return W

    def change(self, row: int, sign: float) -> None:
        """Add or subtract a row, without solving."""
        dsyr(sign, self.rows[row], a=self._A, lower=1, overwrite_a=1)
        self._b += sign * self._task.y[row] * self.rows[row]

    def forget(self, row: int) -> None:
        self.change(row, -1.0)
        self.weights = self._solved()

    def predict(self, X: Floats) -> Floats:
        phi = self._task.features(X)
        predictions: Floats = np.column_stack([phi, np.ones((len(X), int(self._task.intercept)))]) @ self.weights
        return predictions


class ShermanMorrison(Downdate):
    """4: the same with the inverse kept and updated, so that nothing is ever solved."""

    name = "Sherman-Morrison"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._P = np.asfortranarray(dpotri(dpotrf(self._A, lower=1)[0], lower=1)[0])
        self._P = np.tril(self._P) + np.tril(self._P, -1).T

    def change(self, row: int, sign: float) -> None:
        x = self.rows[row]
        Px = self._P @ x
        self._P -= np.outer(Px, Px) * (sign / (1.0 + sign * (x @ Px)))
        self._b += sign * self._task.y[row] * x

    def forget(self, row: int) -> None:
        self.change(row, -1.0)
        self.weights = self._P @ self._b


class Boosting:
    """5: what a practitioner would train instead, retrained without the row."""

    name = "boosted trees"

    def __init__(self, task: Task) -> None:
        self._task, self._live = task, np.ones(len(task.X), dtype=np.bool_)
        self._model = self._fit()

    def _fit(self) -> Any:
        X, y = self._task.X[self._live], self._task.y[self._live]
        return HistGradientBoostingRegressor(random_state=0).fit(X, y)

    def forget(self, row: int) -> None:
        self._live[row] = False
        self._model = self._fit()

    def predict(self, X: Floats) -> Floats:
        predictions: Floats = self._model.predict(X)
        return predictions


def forgetting(method: Method) -> Callable[[], None]:
    """A function that forgets one row after the other."""
    rows = count()
    return lambda: method.forget(next(rows))


def codes_of(task: Task, shards: int) -> dict[str, dict[str, Any]]:
    """The shapes of our model that are compared."""
    return {
        "s=1": {"code": Code.single()},
        f"s={shards}, rate 5": {"shards": shards, "rate": 5},
        f"s={shards}, uncoded": {"code": Code.uncoded(shards)},
    }
