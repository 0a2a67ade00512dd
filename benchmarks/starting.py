"""Starting: how long a command takes before it does anything, against the smallest program that does something."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from expunge.learning.settings import Settings
from expunge.vault import Vault

from .measure import Result, compared, in_turns

IMPORTS = "most of the time is the import of the standard library's modules"

_GOALS = {"--help": 3.0, "unlearn --help": None, "status": 8.0, "log": None, "unlearn": None}


def commands(*, quick: bool = False) -> Iterator[Result]:
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
            yield compared("start", what, ours, theirs, against=against, kind="of", goal=goal, why=IMPORTS)


def _command(words: str, path: Path, people: Iterator[int]) -> Callable[[], None]:
    arguments = words.split()
    if not words.endswith("--help"):
        arguments += ["--vault", str(path)]
    if words == "unlearn":
        return lambda: _run("-m", "expunge", *arguments, "--id", str(next(people)))
    return partial(_run, "-m", "expunge", *arguments)


def _run(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
