"""What tests of the command line share: a table, the usual options, and the programs that a shell runs."""

import os
import subprocess
import sys
from pathlib import Path

import expunge

from .vaults import random_table

V = ("--vault", "spend.vault")
SHAPE = ("--shards", "4", "--rate", "2", "--features", "fourier:5", "--seed", "0")
TRAIN = ("--target", "spend", "--id-column", "customer_id", *SHAPE)
SOURCES = Path(expunge.__file__).parents[1]


def customers(ids, seed=0):
    """Rows of customers: customer_id, age, visits and spend."""
    return random_table(ids, seed).rename_columns(["customer_id", "age", "visits", "spend"])


def newcomer():
    """The environment of somebody who has set nothing: no variable of this machine hides or shows anything."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", "PYTHONPATH": str(SOURCES)}


def shell(command):
    """Run a command line in a shell, with an emptied environment; ``expunge`` in it is the program."""
    words = command.replace("expunge ", f"{sys.executable} -m expunge ", 1)
    return subprocess.run(["/bin/bash", "-c", words], capture_output=True, text=True, check=False, env=newcomer())


def python(code, *args):
    """Run Python code in a fresh interpreter, with an emptied environment."""
    words = [sys.executable, "-c", code, *args]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=newcomer())
