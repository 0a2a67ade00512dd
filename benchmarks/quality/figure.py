"""The picture: each table's errors, as ratios to those of the better boosted trees."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from .outcomes import LINEAR, PAPER, PLAN, PLAN_2, PLAN_5, TREES
from .scores import Scores

MARKS = {
    PAPER: ("s", "C0", "paper's protocol"),
    LINEAR: ("|", "0.4", "linear"),
    TREES: ("^", "C2", "extra trees"),
    PLAN_2: ("o", "#ffbb99", "plan, at most 2 ms"),
    PLAN_5: ("o", "#ff7f50", "plan, at most 5 ms"),
    PLAN: ("o", "#7f0000", "plan"),
}


def ratios(scores: Sequence[Scores], path: Path) -> None:
    """Draw a line per table, the best for the plan at the top; tables that were held out come below a gap."""
    ordered = sorted(scores, key=lambda score: (score.table.held_out, score.ratio(PLAN)))
    places = [-place - score.table.held_out for place, score in enumerate(ordered)]
    figure, axis = plt.subplots(figsize=(8.6, 1.6 + 0.34 * len(ordered)))
    axis.axvline(1, color="C1", linewidth=1.2, label="better boosted trees")
    for method, (mark, colour, label) in MARKS.items():
        style: dict[str, Any] = {"fmt": mark, "color": colour, "markersize": 7, "elinewidth": 1, "label": label}
        spreads = [score.spread(method) for score in ordered] if method == PLAN else None
        axis.errorbar([score.ratio(method) for score in ordered], places, xerr=spreads, **style)
    names = [score.table.name + (" (held out)" if score.table.held_out else "") for score in ordered]
    axis.set_yticks(places, names)
    axis.set(xscale="log", xlabel="test MSE, as a ratio to the better of two HistGradientBoosting models")
    ticks = [0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50]
    low, high = axis.get_xlim()
    axis.set_xticks([t for t in ticks if low < t < high], [f"{t:g}" for t in ticks if low < t < high])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    figure.legend(*axis.get_legend_handles_labels(), ncol=4, loc="lower center", frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.7 / figure.get_figheight(), 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
