"""How long a plan takes, and its memory: ``python -m benchmarks.quality.speed`` measures in a process of its own."""

import subprocess
import sys
import time

from ..measure import peak_memory, reset_peak
from ..tasks import synthetic
from .scores import Goal

ROWS, INPUTS = 20_000, 20


def speed() -> list[Goal]:
    """Plan once on drawn rows, references included, with as many threads as there are cores."""
    command = [sys.executable, "-m", "benchmarks.quality.speed"]
    seconds, peak = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    what = f"plan on {ROWS:,} x {INPUTS}"
    return [Goal(f"{what}, time", seconds, 60, " s"), Goal(f"{what}, memory beyond the table", peak / 1e9, 1, " GB")]


def _measure() -> None:
    from expunge import plan

    task = synthetic(ROWS, 1, d=INPUTS)
    before, started = reset_peak(), time.perf_counter()
    plan(task.X, task.y)
    print(time.perf_counter() - started, peak_memory() - before)


if __name__ == "__main__":
    _measure()
