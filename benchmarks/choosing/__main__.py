"""Measure, print and draw: ``python -m benchmarks.choosing`` (or ``make choosing``); a few minutes."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from . import effects, figures
from .effects import TABLES, kept, table

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
_KERNELS = ("computer-activity", "protein")
_WORKERS = 2


def main() -> None:
    """Print every number that docs/choosing.md has, and keep the text beside the pictures."""
    text = list[str]()
    with ProcessPoolExecutor(_WORKERS) as pool:
        names = ("planned", "useless", "cosines", "forgetting", "penalties", "scales", "codes")
        parts: dict[str, Future[Any]] = {name: pool.submit(getattr(effects, name)) for name in names}
        parts |= {name: pool.submit(effects.kernels, name) for name in _KERNELS}
        for line in _told({name: part.result() for name, part in parts.items()}):
            text.append(line)
            print(line, flush=True)
    (FIGURES / "choosing.txt").write_text("\n".join([*text, ""]), encoding="utf-8")
    print(f"\n{sum(os.times()[:4]):.0f} s of CPU time")


def _told(found: dict[str, Any]) -> Iterator[str]:
    """Draw the pictures, and say what is in them."""
    yield "Errors are mean squared errors over the target's variance, on 1,500 rows, after learning 4,500 others."
    yield from _lines("Cosines: error", found["cosines"])
    yield from _lines("Cosines: ms to forget a row, one learner, Computer Activity", found["forgetting"])
    figures.cosines(found["cosines"], found["forgetting"], FIGURES / "choosing-cosines.png")
    yield from _lines("alpha: error, Protein", found["penalties"])
    figures.penalties(found["penalties"], FIGURES / "choosing-alpha.png")
    for name in _KERNELS:
        yield from _lines(f"Kernel and scale: error, {TABLES[name]}, 500 cosines", found[name])
    figures.kernels({TABLES[name]: found[name] for name in _KERNELS}, FIGURES / "choosing-kernel.png")
    yield from _lines("Useless inputs beside the four of Power Plant: error, 500 cosines", found["useless"])
    figures.relevance(found["useless"], found["planned"], FIGURES / "choosing-relevance.png")
    yield from _lines(f"Scales ({', '.join(effects.SCALES)}): error, 500 cosines", found["scales"])
    figures.scales(found["scales"], table("computer-activity")[0], FIGURES / "choosing-scales.png")
    yield from _codes(found["codes"])
    yield from ("", "A plan for Computer Activity, target_bounds=(0, 100)", str(found["planned"]))
    found["planned"].figure(FIGURES / "choosing-plan.png")
    yield from ("", "Preprocessing keeps people: a StandardScaler before a model, Computer Activity")
    X, y = table("computer-activity", 500)
    yield from kept(X, y, person=int(np.argsort(X[:, 0])[-2]), column=0)


def _lines(title: str, lines: effects.Lines) -> Iterator[str]:
    yield from ("", title)
    for name, points in lines.items():
        yield f"  {name:26} " + "  ".join(f"{place:g}: {value:.4g}" for place, value in points.items())


def _codes(codes: effects.Codes) -> Iterator[str]:
    yield from ("", "Codes: Computer Activity, 500 cosines; costs predicted and (measured here)")
    for name, (error, costs, (forget, train)) in codes.items():
        times = f"forget {costs.forget_ms:.2f} ms ({forget:.2f}), train {costs.train_s:.3f} s ({train:.3f})"
        yield f"  {name:26} error {error:.4f}, {times}, {costs.mb:.1f} MB"
    figures.codes(codes, FIGURES / "choosing-codes.png")


if __name__ == "__main__":
    main()
