"""Measuring: functions timed in turns, ratios round by round, goals, and the physical limits of this machine.

Machines are noisy, and a slow moment is slow for every method: two functions are compared within a round, a ratio is
the median over rounds, and its spread is their quartiles.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf

Kind: TypeAlias = Literal["faster", "of"]


@dataclass(frozen=True)
class Times:
    """Seconds of a call, one per round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle round."""
        return float(np.median(self.rounds))

    def __add__(self, other: "Times") -> "Times":
        return Times(tuple(a + b for a, b in zip(self.rounds, other.rounds, strict=True)))


@dataclass(frozen=True)
class Result:
    """One line of the table: how many times faster than another method, or how many times the cost of a limit."""

    section: str
    what: str
    against: str
    ours: float
    theirs: float
    kind: Kind
    ratio: float
    spread: tuple[float, float] | None = None  # None: measured once
    goal: float | None = None
    why: str = ""  # what to know if the goal is missed
    unit: Literal["s", "B"] = "s"

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if there is none."""
        if self.goal is None:
            return None
        return self.ratio >= self.goal if self.kind == "faster" else self.ratio <= self.goal

    @property
    def close(self) -> bool:
        """Whether the goal lies within the quartiles: another run may say otherwise."""
        return self.goal is not None and self.spread is not None and self.spread[0] <= self.goal <= self.spread[1]


def in_turns(*functions: Callable[[], Any], rounds: int = 7, calls: int | Sequence[int] = 1) -> list[Times]:
    """Time functions side by side: in each round each is called ``calls`` times, and the median call counts."""
    each = [calls] * len(functions) if isinstance(calls, int) else calls
    for function in functions:
        function()
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, count, taken in zip(functions, each, seconds, strict=True):
            taken.append(float(np.median([_timed(function) for _ in range(count)])))
    return [Times(tuple(taken)) for taken in seconds]


def compare(
    section: str,
    what: str,
    ours: Times,
    theirs: Times,
    *,
    against: str,
    kind: Kind = "faster",
    goal: float | None = None,
    why: str = "",
) -> Result:
    """Our time and another's as a ratio, round by round."""
    pairs = zip(ours.rounds, theirs.rounds, strict=True)
    ratios = [b / a if kind == "faster" else a / b for a, b in pairs]
    low, middle, high = np.percentile(ratios, (25, 50, 75)).tolist()
    return Result(section, what, against, ours.median, theirs.median, kind, middle, (low, high), goal, why)


def peak_memory() -> int:
    """The most memory that this program has held, in bytes."""
    if Path("/proc/self/status").exists():  # getrusage would tell of the parent's, if that is more
        return _status("VmHWM")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def reset_peak() -> int:
    """Begin to look for a new peak, where the system can do that; the memory that is held now, in bytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return peak_memory()
    return _status("VmRSS")


def _status(field: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _timed(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def cholesky(size: int) -> Callable[[], Any]:
    """One Cholesky factorisation of this size."""
    rng = np.random.default_rng(0)
    B = rng.standard_normal((size, size))
    A = np.asfortranarray(B @ B.T + size * np.eye(size))
    return lambda: dpotrf(A, lower=1)


def products(rows: int, width: int, slices: int = 1) -> Callable[[], Any]:
    """The dsyrk calls over coded rows of this width, in blocks as ours are; exact integers take three of them."""
    block = np.random.default_rng(0).integers(-(2**18), 2**18, (max(1, min(rows, 384)), width)).astype(np.float64)
    whole, rest = divmod(rows, len(block))

    def run() -> None:
        for _ in range(slices):
            C = np.zeros((width, width), order="F")
            for _ in range(whole):
                C = dsyrk(1.0, block.T, beta=1.0, c=C, lower=1, overwrite_c=1)
            if rest:
                dsyrk(1.0, block[:rest].T, beta=1.0, c=C, lower=1, overwrite_c=1)

    return run


def moments_pass(width: int) -> Callable[[], Any]:
    """One pass over a learner's moments in memory."""
    limbs = np.ones((3, width * (width + 1) // 2))
    return limbs.sum


@contextmanager
def syncs(folder: Path, count: int) -> Iterator[Callable[[], None]]:
    """As many file syncs, each after a small write, in a folder of the same disk."""
    handle, name = tempfile.mkstemp(dir=folder)

    def run() -> None:
        for k in range(count):
            os.pwrite(handle, bytes([k % 256]) * 4096, 0)
            os.fsync(handle)

    try:
        yield run
    finally:
        os.close(handle)
        Path(name).unlink()
