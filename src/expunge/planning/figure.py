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

    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for k, code in enumerate(dict.fromkeys(one.code for one in plan.table)):
        some = sorted((one for one in plan.table if one.code == code), key=lambda one: one.forget_ms)
        times, errors = [one.forget_ms for one in some], [one.error for one in some]
        style: dict[str, Any] = {"color": _COLOURS[k % 6], "marker": _MARKS[k % 6], "label": code}
        axes.errorbar(times, errors, yerr=[one.spread for one in some], linewidth=1, capsize=2, **style)
    for dash, other in zip(("-.", "--", ":"), plan.references, strict=False):
        label = f"{other.name} ({other.error:.3g})"  # so that one that is beyond the axis is told
        axes.axhline(other.error, color="#555555", linestyle=dash, linewidth=1, label=label)
    ring: dict[str, Any] = {"markersize": 15, "fillstyle": "none", "color": "black", "label": "chosen"}
    axes.plot([plan.choice.forget_ms], [plan.choice.error], "o", **ring)
    axes.set(xscale="log", xlabel="time to forget a row, ms (predicted)", ylabel="validation error / variance")
    shown = [one.error + one.spread for one in plan.table]
    low = min([one.error - one.spread for one in plan.table] + [other.error for other in plan.references])
    room = 0.1 * (max(shown) - low) or 1.0  # without any error, too
    axes.set_ylim(low - room, max(shown) + room)
    times = [one.forget_ms for one in plan.table]
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if min(times) / 2 < tick < 2 * max(times)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    figure.legend(fontsize=8, loc="outside right upper")
    return figure
