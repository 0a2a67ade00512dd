"""A generic test: unlearning equals retraining, bit for bit.

Every code, feature map, learner and store has to pass it, those of this package and your own.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier

from .encoding.randomness import Seed, as_generator
from .estimator import CodedEstimator
from .exact.arrays import Floats

#: scikit-learn estimators that give the same bytes when they are trained on the same bytes, on one thread and with a
#: derived seed. For a model with one of these as learner, predictions are compared byte by byte.
DETERMINISTIC = (
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "ElasticNet",
    "GradientBoostingRegressor",
    "HistGradientBoostingClassifier",
    "HistGradientBoostingRegressor",
    "HuberRegressor",
    "KNeighborsClassifier",
    "KNeighborsRegressor",
    "Lasso",
    "LinearRegression",
    "LogisticRegression",
    "RandomForestClassifier",
    "RandomForestRegressor",
    "Ridge",
    "SGDRegressor",
    "SVR",
)


def check_unlearning(
    estimator: CodedEstimator, X: ArrayLike, y: ArrayLike, *, requests: int = 6, random_state: Seed = 0
) -> None:
    """Check that a model that unlearned rows is the model that never saw them.

    Train on some of the rows, then make random requests (unlearn a batch, add rows, correct rows). After each request
    compare the model with one that is trained from scratch on the remaining rows in their slots: the digest, and the
    bytes of the weights (of the predictions, if the learner is one of the estimators in `DETERMINISTIC`). Of a
    classifier also compare the classes, and the bytes of the probabilities.

    Parameters
    ----------
    estimator : CodedRegressor or CodedClassifier
        The model to check; a clone of it is trained.
    X, y : array
        Rows to learn and unlearn, at least twice as many as shards. With ``keep="coded"``, inside the bounds.
    requests : int
        How many requests to make.
    random_state : int, Generator, RandomState or None
        The seed of the requests.

    Raises
    ------
    AssertionError
        If the two models differ. The message says after which requests, and in what.

    Examples
    --------
    >>> from expunge import CodedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 3))
    >>> check_unlearning(CodedRegressor(shards=4, rate=2, random_state=0), X, X.sum(axis=1))
    """
    y = np.asarray(y, dtype=None if is_classifier(estimator) else np.float64)
    _UnlearningCheck(clone(estimator), np.asarray(X, dtype=np.float64), y, random_state).run(requests)


class _UnlearningCheck:
    """A model and a plain record of the rows that it should have."""

    def __init__(self, model: CodedEstimator, X: Floats, y: NDArray[Any], seed: Seed) -> None:
        self.model, self.X, self.y, self.rng = model, X, y, as_generator(seed)
        self.coded = model.keep == "coded"
        self.history: list[str] = []
        self.rows: dict[int, list[int]] = {}  # id -> the rows of X and y that it has now, in order of arrival
        self.next_id = 0

    def run(self, requests: int) -> None:
        first = len(self.X) // 2
        self.add(np.arange(first), self.model.fit)
        spare = np.array_split(np.arange(first, len(self.X)), max(1, requests))
        self.compare()
        for k in range(requests):
            kind = self.rng.integers(3)
            if kind == 0 or not self.rows:
                self.add(spare[k], self.model.partial_fit)
            else:
                (self.unlearn if kind == 1 else self.rectify)()
            self.compare()
        while self.rows:
            self.unlearn()
        self.compare()

    def add(self, picked: Any, learn: Callable[..., Any]) -> None:
        """Learn rows of new people, with one to three rows each, and one more row of a known person."""
        if not len(picked):
            return
        ids = self.next_id + self.rng.integers(0, max(1, len(picked) // 2), size=len(picked))
        self.next_id += len(picked)
        if self.rows:
            ids[0] = self.rng.choice(list(self.rows))
        learn(self.X[picked], self.y[picked], ids=ids)
        for person, row in zip(ids.tolist(), picked.tolist(), strict=True):
            self.rows.setdefault(person, []).append(row)
        self.history.append(f"learned {len(picked)} rows")

    def unlearn(self) -> None:
        people = self.choose_people()
        if self.coded:
            ids, picked = self.rows_of(people)
            self.model.unlearn(ids, self.X[picked], self.y[picked])
        else:
            self.model.unlearn(people)
        for person in people:
            del self.rows[person]
        self.history.append(f"unlearned {len(people)} ids")

    def rectify(self) -> None:
        people = self.choose_people()
        ids, picked = self.rows_of(people, shuffle=False)
        corrected = self.rng.integers(0, len(self.X), size=len(picked))
        old = {"old_X": self.X[picked], "old_y": self.y[picked]} if self.coded else {}
        self.model.rectify(ids, self.X[corrected], self.y[corrected], **old)
        for person in people:
            self.rows[person] = corrected[np.array(ids) == person].tolist()
        self.history.append(f"corrected {len(people)} ids")

    def compare(self) -> None:
        if self.coded:
            ids, picked = self.rows_of(list(self.rows))
            fresh = self.model.retrained(self.X[picked], self.y[picked], ids=ids)
        else:
            fresh = self.model.retrained()
        expected = sum(map(len, self.rows.values()))
        self.require(self.model.n_rows_ == expected, f"{self.model.n_rows_} rows instead of {expected}")
        self.require(self.model.digest() == fresh.digest(), "the digest differs from the retrained model's")
        if isinstance(self.model.learner, str):
            for j, (weights, retrained) in enumerate(zip(_weights(self.model), _weights(fresh), strict=True)):
                self.require(weights == retrained, f"the weights of learner {j} differ from the retrained model's")
        reproducible = isinstance(self.model.learner, str) or type(self.model.learner).__name__ in DETERMINISTIC
        if is_classifier(self.model):
            same = np.array_equal(self.model.classes_, fresh.classes_)
            self.require(same, "the classes differ from the retrained model's")
            predict = "predict_proba"
        else:
            predict, reproducible = "predict", reproducible and not isinstance(self.model.learner, str)
        if reproducible and self.rows:
            same = getattr(self.model, predict)(self.X).tobytes() == getattr(fresh, predict)(self.X).tobytes()
            self.require(same, "the predictions differ from the retrained model's")

    def require(self, holds: bool, problem: str) -> None:
        if not holds:  # not by assert, which python -O leaves out
            raise AssertionError(f"after: {', '.join(self.history)}: {problem}")

    def choose_people(self) -> list[int]:
        """Return a random batch of people, in random order: up to half of them, or the last one."""
        people = list(self.rows)
        share = int(self.rng.integers(1, max(2, len(people) // 2)))
        return [int(person) for person in self.rng.permutation(people)[:share]]

    def rows_of(self, people: list[int], *, shuffle: bool = True) -> tuple[list[int], list[int]]:
        """Return the ids and rows of these people, one entry per row."""
        pairs = [(person, row) for person in people for row in self.rows[person]]
        if shuffle:
            pairs = [pairs[i] for i in self.rng.permutation(len(pairs))]
        return [person for person, _ in pairs], [row for _, row in pairs]


def _weights(model: CodedEstimator) -> list[bytes | None]:
    """Return the bytes of every learner's weights."""
    return [None if W is None else W.tobytes() for W in model._state.ensemble.models]
