"""The report: text for the terminal, a figure, and a page in the docs."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

from ..report import machine
from .methods import BOOSTED, LINEAR, NAMES, PAPER, PLAN, PLAN_2, PLAN_5, SMALL, TREES
from .scores import Goal, Scores, geometric_mean
from .splits import SHARE
from .tables import MOST_ROWS

matplotlib.use("Agg")


MARKS = {
    PAPER: ("s", "C0", "paper's protocol"),
    LINEAR: ("|", "0.4", "linear"),
    TREES: ("^", "C2", "extra trees"),
    PLAN_2: ("o", "#ffbb99", "plan, at most 2 ms"),
    PLAN_5: ("o", "#ff7f50", "plan, at most 5 ms"),
    PLAN: ("o", "#7f0000", "plan"),
}


def draw_ratios(scores: Sequence[Scores], path: Path) -> None:
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


_INTRODUCTION = (
    "Written by `make quality` on {date} ({machine}). Test errors of models that `expunge.plan` chose, beside others, "
    "on {tables} real tables, over {splits} splits ({test:.0%} of the people to test with; nobody is on both sides). "
    "A ratio is a mean squared error over that of the better of two HistGradientBoosting models: below 1 is better "
    "than boosted trees."
)

_METHODS = """\
*Plan* is what `expunge.plan` chooses by looking at the training rows, *5 ms* and *2 ms* what it chooses if forgetting a
row may take no longer, *small plan* what `expunge train` chooses by itself. *Paper* is the paper's protocol with fixed
settings: 20 shards, rate 5, 300 Gaussian features, alpha 1e-4. *Linear* is ridge regression with its penalty chosen by
leave-one-out. *Boosting* is scikit-learn's HistGradientBoostingRegressor with 100 and 400 iterations, which knows which
numbers are categories. *LightGBM* and *CatBoost*, where they are installed, stop when a fifth of the training people,
left out, gain nothing. *Extra trees* are 200 of scikit-learn's ExtraTreesRegressor. Trees get gaps as they are and
categories by number; all others get categories as one input per value (of those that ten training rows have) and gaps
filled by the median of the training rows, as a vault's schema does. Milliseconds are medians of deletions in memory,
measured while other tables were worked on."""

_PARTS = """\
## What each part gains

`python -m benchmarks.quality --ablation` plans without one part at a time; its table is in
[figures/ablation.txt](figures/ablation.txt)."""

_HELD_OUT = "Nothing was tuned on these: they were looked at once, at the end."


def lines(score: Scores) -> list[str]:
    """A table's block on the terminal."""
    people = "" if score.shape.people is None else f" of {score.shape.people:,}"
    head = f"{score.table.name}: {score.shape.rows:,} rows{people}, {score.shape.inputs} inputs, {score.table.about}"
    rows = [head, *(f"  {name:14} {_error(score, name)}" for name in score.methods)]
    if {SMALL, LINEAR} <= set(score.methods):
        ratio, worst = score.ratio(SMALL, LINEAR), score.worst_ratio(SMALL, LINEAR)
        rows.append(f"  {SMALL} / {LINEAR}: {ratio:.3f}, worst of {len(score.splits)} splits {worst:.3f}")
    return rows


def _error(score: Scores, name: str) -> str:
    mse, ms = score.mse(name), score.forget_ms(name)
    text = f"{mse.mean():12.6g} ± {mse.std():<10.3g}"
    if set(BOOSTED) <= set(score.methods):
        text += f" {score.ratio(name):7.3f}x ± {score.spread(name):.3f}"
    return text + ("" if ms is None else f"  {ms:7.2f} ms to forget")


def page(scores: Sequence[Scores], judged: Sequence[Goal], held_out: Sequence[Goal]) -> str:
    """The page for the docs: tables to develop with, and those that were held out, if they were run."""
    introduction = _INTRODUCTION.format(
        date=datetime.now(UTC).date(), machine=machine(), tables=len(scores), splits=len(scores[0].splits), test=SHARE
    )
    developed = [score for score in scores if not score.table.held_out]
    kept = [score for score in scores if score.table.held_out]
    aside = ["## Held out", "", _HELD_OUT, "", *_goals(held_out), "", *_ratios(kept)] if kept else []
    parts = ["# Quality", "", introduction, "", *_goals(judged), "", "![Errors as ratios](figures/quality.png)", ""]
    parts += [_METHODS, "", "## Ratios", "", *_ratios(developed), *aside, *_errors(scores), *_tables(scores)]
    return "\n".join([*parts, *_choices(scores), _PARTS, ""])


def _goals(judged: Sequence[Goal]) -> list[str]:
    return [f"- {goal}.".replace("MISSED", "**missed**") for goal in judged]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)] + [""]


def _ratios(scores: Sequence[Scores]) -> list[str]:
    rows = [[score.table.name, *(f"{score.ratio(name):.3f}" for name in NAMES)] for score in scores]
    folds: dict[str, Callable[[list[float]], float]] = {"geometric mean": geometric_mean, "worst": max}
    for what, fold in folds.items():
        rows.append([f"**{what}**", *(f"**{fold([score.ratio(name) for score in scores]):.3f}**" for name in NAMES)])
    return _table(["table", *NAMES], rows)


def _errors(scores: Sequence[Scores]) -> list[str]:
    rows = []
    for score in scores:
        for name in NAMES:
            mse, ms = score.mse(name), score.forget_ms(name)
            ratio = f"{score.ratio(name):.3f} ± {score.spread(name):.3f}"
            told = "" if ms is None else f"{ms:.2f} ms"
            rows.append([score.table.name, name, f"{mse.mean():.5g} ± {mse.std():.2g}", ratio, told])
    head = ["table", "method", "test MSE", "ratio", "to forget a row"]
    return ["## Errors", "", "Means over splits, with their standard deviations.", "", *_table(head, rows)]


def _tables(scores: Sequence[Scores]) -> list[str]:
    rows = []
    for score in scores:
        shape, facts = score.shape, score.table.facts
        used = f"{shape.rows:,}" + (f" of {facts.rows:,}" if facts.rows > shape.rows else "")
        people = "" if shape.people is None else f"{shape.people:,}"
        cells = [used, people, str(facts.inputs), str(facts.categories), str(shape.gaps)]
        rows.append([score.table.name, f"{score.table.about} (`{score.table.target}`)", *cells, score.table.source])
    text = (
        "Read from files inside installed packages; nothing is downloaded. Exact duplicates and rows without a target "
        f"are left out; of larger tables {MOST_ROWS:,} rows are drawn, by a fixed seed."
    )
    head = ["table", "target", "rows", "people", "inputs", "categories", "with gaps", "from"]
    return ["## The tables", "", text, "", *_table(head, rows)]


def _choices(scores: Sequence[Scores]) -> list[str]:
    rows = [[score.table.name, score.splits[0][PLAN].chosen] for score in scores]
    return ["## What the plan chose", "", "On the first split.", "", *_table(["table", "model"], rows)]
