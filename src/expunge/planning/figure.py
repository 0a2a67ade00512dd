"""The picture of a plan: error against time to forget, all candidates and the references."""

import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .planner import Plan

_COLOURS = ("#1f5fa8", "#2e8b57", "#c26a00", "#8b3a8b", "#b03030", "#708090")
_MARKS = ("o", "s", "^", "D", "v", "P")


def write_figure(plan: "Plan", path: str | os.PathLike[str]) -> None:
    """Write the picture to a file; its ending says the format."""
    _drawn(plan).savefig(path, dpi=150)


def as_svg(plan: "Plan") -> str:
    """The picture as an SVG element for a page."""
    page = io.StringIO()
    _drawn(plan).savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    text = page.getvalue()
    return text[text.index("<svg") :]


def _drawn(plan: "Plan") -> Any:
    """Draw without a window: a figure of its own, not one of pyplot's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    for k, code in enumerate(dict.fromkeys(one.code for one in plan.table)):
        some = sorted((one for one in plan.table if one.code == code), key=lambda one: one.forget_ms)
        times, errors = [one.forget_ms for one in some], [one.error for one in some]
        style: dict[str, Any] = {"color": _COLOURS[k % 6], "marker": _MARKS[k % 6], "label": code}
        axes.errorbar(times, errors, yerr=[one.spread for one in some], linewidth=1, capsize=2, **style)
    for dash, other in zip(("-.", "--", ":"), plan.references, strict=False):
        axes.axhline(other.error, color="#555555", linestyle=dash, linewidth=1, label=other.name)
    ring: dict[str, Any] = {"markersize": 15, "fillstyle": "none", "color": "black", "label": "chosen"}
    axes.plot([plan.choice.forget_ms], [plan.choice.error], "o", **ring)
    axes.set(xscale="log", xlabel="time to forget a row, ms (predicted)", ylabel="validation error / variance")
    low = min([one.error for one in plan.table] + [other.error for other in plan.references])
    axes.set_ylim(0.9 * low, min(axes.get_ylim()[1], 4 * low))
    axes.set_xticks(ticks := [1, 2, 5, 10, 20, 50, 100], [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=8, ncols=2)
    return figure
