"""Figures of the benchmark."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from .drift import Drift
from .tradeoff import Point

MARKS = {
    "expunge": ("o", "C3"),
    "paper's protocol": ("s", "C0"),
    "SISA": ("^", "C2"),
    "full retrain": ("D", "C4"),
    "float downdate": ("x", "0.4"),
    "boosted trees": ("*", "C1"),
}


def tradeoff(points: Sequence[Point], path: Path) -> None:
    """Error against time to forget one row, a panel a data set."""
    names = list(dict.fromkeys(point.data for point in points))
    figure, axes = plt.subplots(1, len(names), figsize=(4.4 * len(names), 3.9), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for method, (mark, colour) in MARKS.items():
            mine = [p for p in points if p.data == name and p.method == method]
            if not mine:
                continue
            axis.scatter(
                [p.seconds * 1e3 for p in mine], [p.error for p in mine], marker=mark, c=colour, s=60, label=method
            )
        axis.set(xscale="log", yscale="log", title=name, xlabel="time to forget one row (ms)")
        axis.grid(alpha=0.3, which="both")
        axis.margins(0.15)
    axes[0][0].set_ylabel("test error (MSE, target in [0, 1])")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, ncol=len(labels), loc="lower center", frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def drift(drifts: Sequence[Drift], path: Path) -> None:
    """Relative error of the weights against the number of deletions and insertions."""
    figure, axis = plt.subplots(figsize=(5.6, 3.6))
    for method in dict.fromkeys(d.method for d in drifts):
        mine = [d for d in drifts if d.method == method]
        if all(d.error == 0.0 for d in mine):
            floor = 1e-17
            axis.plot([d.steps for d in mine], [floor] * len(mine), "o-", color="C3", label=f"{method}: exactly zero")
        else:
            axis.plot([d.steps for d in mine], [d.error or np.nan for d in mine], "x-", label=method)
    axis.set(xscale="log", yscale="log", xlabel="deletions and insertions", ylabel="relative error of the weights")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
