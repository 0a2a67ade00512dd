"""Measuring: functions timed in turns, ratios round by round, and goals.

Machines are noisy, and what is slow now is slow for everybody: two functions are compared within a round, a ratio is
the median over rounds, and its spread is their quartiles.
"""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

Kind: TypeAlias = Literal["faster", "of", "plain"]


@dataclass(frozen=True)
class Times:
    """Seconds of a call, one a round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle round."""
        return float(np.median(self.rounds))

    def __add__(self, other: "Times") -> "Times":
        return Times(tuple(a + b for a, b in zip(self.rounds, other.rounds, strict=True)))

    def __mul__(self, factor: float) -> "Times":
        return Times(tuple(a * factor for a in self.rounds))


@dataclass(frozen=True)
class Result:
    """One line of the table: how many times faster than something, or how many times the time of a limit."""

    section: str
    what: str
    against: str
    ours: float
    theirs: float
    kind: Kind
    ratio: float
    spread: tuple[float, float]
    goal: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if there is none."""
        if self.goal is None:
            return None
        return self.ratio >= self.goal if self.kind == "faster" else self.ratio <= self.goal


def in_turns(*functions: Callable[[], Any], rounds: int = 7, calls: int = 1) -> list[Times]:
    """Time functions side by side: in each round each is called ``calls`` times, and the median call counts."""
    for function in functions:
        function()
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, taken in zip(functions, seconds, strict=True):
            taken.append(float(np.median([_timed(function) for _ in range(calls)])))
    return [Times(tuple(taken)) for taken in seconds]


def compared(
    section: str,
    what: str,
    ours: Times,
    theirs: Times,
    *,
    against: str,
    kind: Kind = "faster",
    goal: float | None = None,
    note: str = "",
) -> Result:
    """Our time and another's as a ratio, round by round."""
    pairs = zip(ours.rounds, theirs.rounds, strict=True)
    ratios = [b / a if kind == "faster" else a / b for a, b in pairs]
    low, middle, high = np.percentile(ratios, (25, 50, 75)).tolist()
    return Result(section, what, against, ours.median, theirs.median, kind, middle, (low, high), goal, note)


def peak_memory() -> int:
    """The most memory that this program has held, in bytes."""
    status = Path("/proc/self/status")  # getrusage would tell of the parent's, if that is more
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _timed(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
