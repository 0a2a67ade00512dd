"""Prediction: the latency of one row, the throughput of many."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from .measure import Result, compared, in_turns
from .methods import Boosting, Downdate, Ours
from .tasks import Floats, Task, protein


def one_and_many(*, quick: bool = False) -> Iterator[Result]:
    """Against the same features and weights in floats, a pipeline of scikit-learn, and boosted trees."""
    task = protein()
    ours, boosted, floats = Ours(task, shards=20, rate=5), Boosting(task), Downdate(task)
    pipeline = make_pipeline(MinMaxScaler(), RBFSampler(n_components=task.D, random_state=0), Ridge(task.alpha))
    pipeline.fit(task.X, task.y)
    many = np.tile(task.X, (3, 1))[:100_000]
    for X, rows, calls in ((task.X[:1], "1 row", 50), (many, "100,000 rows", 1)):
        others = {
            "np.cos and a product, unchecked": partial(_product, task, floats.weights),
            "scikit-learn: RBFSampler, Ridge": pipeline.predict,
            "boosted trees": boosted.predict,
        }
        functions = [partial(predict, X) for predict in (ours.predict, *others.values())]
        mine, *theirs = in_turns(*functions, rounds=3 if quick else 7, calls=calls)
        what = f"predict {rows}, protein D=300"
        bare, *rest = others
        yield compared("predict", what, mine, theirs[0], against=bare, kind="of", goal=1.4)
        for name, times in zip(rest, theirs[1:], strict=True):
            yield compared("predict", what, mine, times, against=name)


def _product(task: Task, weights: Floats, X: Floats) -> Floats:
    """The same model in floats, as lean as it gets."""
    out = np.empty(len(X))
    for start in range(0, len(X), 1_000):
        some = slice(start, start + 1_000)
        out[some] = task.features(X[some]) @ weights[:-1] + weights[-1]
    return out
