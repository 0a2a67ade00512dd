"""Traces: which functions of the package a small example enters, in which order."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import expunge
from expunge.learning.rules import Rule
from expunge.stores.store import Store

from .house import PACKAGE, sentences

_PROTOCOLS = (Store, Rule)  # they document methods of classes that do not inherit from them
_ENOUGH = 75  # letters: two sentences are taken if they have no more


@dataclass(frozen=True)
class Step:
    """A function that was entered."""

    module: str  # without the package
    name: str  # with its class

    @property
    def room(self) -> str:
        """The folder that it is in; a file that stands alone is its own room."""
        return self.module.rpartition(".")[0] or self.module

    @property
    def file(self) -> str:
        """The file that it is in."""
        return f"{self.module.replace('.', '/')}.py"

    @property
    def gist(self) -> str:
        """What it does, in a few words of its docstring."""
        found: Any = importlib.import_module(f"{PACKAGE}.{self.module}")
        for part in self.name.split("."):
            found = getattr(found, part)
        method = self.name.rpartition(".")[2]
        documents = (found, *(getattr(protocol, method, None) for protocol in _PROTOCOLS))
        return _shortened(sentences(next(filter(None, map(inspect.getdoc, documents)))))


def _shortened(told: list[str]) -> str:
    """The first sentence, without shapes; one more if it is short."""
    told = [re.split(r"[:,] \([^)]*\)(?=,| ->| and)", sentence)[0].rstrip(".") for sentence in told]
    two = ". ".join(told[:2])
    return two if len(two) <= _ENOUGH else told[0]


def entered(run: Callable[[], object]) -> list[Step]:
    """Run something and return the functions of the package that it entered, in the order of their first entries."""
    found: dict[Step, None] = {}
    package = Path(expunge.__file__).parent

    def profile(frame: FrameType, event: str, arg: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(package):
            parts = path.relative_to(package).with_suffix("").parts
            found.setdefault(Step(".".join(parts), frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(found)
