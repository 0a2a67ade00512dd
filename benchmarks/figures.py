"""Figures of the benchmark."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from .accuracy import Drift, Point

MARKS = {
    ("expunge", "s=1"): ("o", "#7f0000"),
    ("expunge", "s=20, rate 5"): ("o", "#d62728"),
    ("expunge", "s=20, uncoded"): ("o", "#ff9896"),
    ("paper's protocol", "s=20, rate 5"): ("s", "C0"),
    ("SISA", "s=20"): ("^", "C2"),
    ("full retrain", "s=1"): ("D", "C4"),
    ("boosted trees", ""): ("*", "C1"),
    ("float downdate", "s=1"): ("x", "0.2"),
    ("Sherman-Morrison", "s=1"): ("+", "0.2"),
}
NAMES = {"s=1": ", one learner", "s=20, rate 5": ", coded, rate 5", "s=20, uncoded": ", uncoded"}
LINES = {
    "float downdate": ("x", "0.2"),
    "Sherman-Morrison": ("+", "C0"),
    "float retrain, reordered": ("1", "C2"),
    "expunge": ("o", "C3"),
}


def tradeoff(points: Sequence[Point], path: Path) -> None:
    """Error against time to forget one row, a panel a data set; bars are the spread over splits."""
    names = list(dict.fromkeys(point.data for point in points))
    figure, axes = plt.subplots(1, len(names), figsize=(4.6 * len(names), 4.4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for (method, shape), (mark, colour) in MARKS.items():
            (point,) = [p for p in points if (p.data, p.method, p.shape) == (name, method, shape)]
            label = method + NAMES.get(shape, "") if method == "expunge" else method
            style = {"fmt": mark, "color": colour, "markersize": 8, "elinewidth": 1, "capsize": 2, "label": label}
            axis.errorbar([point.seconds * 1e3], [point.error], [point.spread], **style)
        axis.set(xscale="log", yscale="log", title=name, xlabel="time to forget one row (ms)")
        axis.grid(alpha=0.3, which="both")
        axis.margins(0.12)
    axes[0][0].set_ylabel("test error (MSE, target in [0, 1])")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, ncol=5, loc="lower center", frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.13, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def drift(drifts: Sequence[Drift], path: Path) -> None:
    """Relative error of the weights against the number of changes; zero has a place of its own."""
    experiments = {
        "churn": "rows leave and come back: deletions and insertions",
        "leaving": "rows leave for good: deletions",
    }
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.7), sharey=True)
    least = min((d.error for d in drifts if d.error), default=1e-16)
    zero = 10.0 ** (np.floor(np.log10(least)) - 1)
    for axis, (experiment, label) in zip(axes, experiments.items(), strict=True):
        for method in dict.fromkeys(d.method for d in drifts):
            mine = [d for d in drifts if d.experiment == experiment and d.method == method and d.steps]
            mark, colour = LINES[method]
            axis.plot([d.steps for d in mine], [d.error or zero for d in mine], marker=mark, color=colour, label=method)
        axis.set(xscale="log", yscale="log", xlabel=label)
        axis.axhline(zero * 3, color="0.7", linewidth=0.8, linestyle=":")
        axis.grid(alpha=0.3)
    powers = 10.0 ** np.arange(np.log10(zero) + 1, -5)
    axes[0].set_yticks([zero, *powers], ["exactly 0", *(f"$10^{{{int(np.log10(p))}}}$" for p in powers)])
    axes[0].set_ylabel("relative error of the weights")
    axes[1].legend(frameon=False, loc="center left", bbox_to_anchor=(0, 0.3))
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
