"""Prediction and start: the latency of one row, the throughput of many, and how long a command takes to start."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from expunge.learning.settings import Settings
from expunge.vault import Vault

from .measure import Result, compare, in_turns
from .methods import Boosting, Downdate, Ours
from .tasks import Floats, Task, protein


def measure_predictions(*, quick: bool = False) -> Iterator[Result]:
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
        yield compare("predict", what, mine, theirs[0], against=bare, kind="of", goal=1.4)
        for name, times in zip(rest, theirs[1:], strict=True):
            yield compare("predict", what, mine, times, against=name)


def _product(task: Task, weights: Floats, X: Floats) -> Floats:
    """The same model in floats, as lean as it gets."""
    out = np.empty(len(X))
    for start in range(0, len(X), 1_000):
        some = slice(start, start + 1_000)
        out[some] = task.features(X[some]) @ weights[:-1] + weights[-1]
    return out


IMPORTS = "most of the time is the import of the standard library's modules"

_GOALS = {"--help": 3.0, "unlearn --help": None, "status": 8.0, "log": None, "unlearn": None}


def measure_commands(*, quick: bool = False) -> Iterator[Result]:
    """Commands as a shell runs them, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spend.vault"
        rows = 1_000
        table = pa.table({"who": range(rows), "x": np.arange(rows) % 17, "y": np.arange(rows) % 5})
        Vault.create(path, table, target="y", id="who", model=Settings(shards=20, rate=5, random_state=0))
        people = iter(range(rows))
        smallest = partial(_run, "-c", "import json")
        for words, goal in _GOALS.items():
            ours, theirs = in_turns(_command(words, path, people), smallest, rounds=5 if quick else 15)
            what, against = f"expunge {words}", 'python -c "import json"'
            yield compare("start", what, ours, theirs, against=against, kind="of", goal=goal, why=IMPORTS)


def _command(words: str, path: Path, people: Iterator[int]) -> Callable[[], None]:
    arguments = words.split()
    if not words.endswith("--help"):
        arguments += ["--vault", str(path)]
    if words == "unlearn":
        return lambda: _run("-m", "expunge", *arguments, "--id", str(next(people)))
    return partial(_run, "-m", "expunge", *arguments)


def _run(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
