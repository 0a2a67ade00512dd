"""The picture of a plan: error against time to forget, all candidates and the references.

All of them are within the axes. Where a straight line, say, is far worse than the others, errors are shown on a
logarithmic axis: on another, the candidates would be one heap.
"""

import io
import math
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .planner import Plan

_COLOURS = ("#1f5fa8", "#2e8b57", "#c26a00", "#8b3a8b", "#b03030", "#708090")
_MARGIN = 1.25  # a factor beyond the ends of a logarithmic axis
_FAR_APART = 5  # a factor between errors from which on they need one
_MARKS = ("o", "s", "^", "D", "v", "P")


def write_figure(plan: "Plan", path: str | os.PathLike[str]) -> None:
    """Write the picture to a file; its ending says the format."""
    drawn(plan).savefig(path, dpi=150)


def as_svg(plan: "Plan") -> str:
    """The picture as an SVG element for a page."""
    page = io.StringIO()
    drawn(plan).savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    text = page.getvalue()
    return text[text.index("<svg") :]


def drawn(plan: "Plan") -> Any:
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
        label = f"{other.name} ({other.error:.3g})"
        axes.axhline(other.error, color="#555555", linestyle=dash, linewidth=1, label=label)
    ring: dict[str, Any] = {"markersize": 15, "fillstyle": "none", "color": "black", "label": "chosen"}
    axes.plot([plan.choice.forget_ms], [plan.choice.error], "o", **ring)
    axes.set(xscale="log", xlabel="time to forget a row, ms (predicted)", ylabel="validation error / variance")
    _lay_out_errors(axes, plan)
    times = [one.forget_ms for one in plan.table]
    low, high = min(times) / _MARGIN, max(times) * _MARGIN
    _mark(axes.xaxis, low, high)
    axes.set_xlim(low, high)
    axes.minorticks_off()
    figure.legend(fontsize=8, loc="outside right upper")
    return figure


def _lay_out_errors(axes: Any, plan: "Plan") -> None:
    """Let the axis of the errors hold everything that is drawn."""
    ends = [(one.error - one.spread, one.error, one.error + one.spread) for one in plan.table]
    ends += [(other.error,) * 3 for other in plan.references]
    below, errors, above = zip(*ends, strict=True)
    least = min(errors)
    if 0 < least < max(errors) / _FAR_APART:
        low, high = max(min(below), least / 2) / _MARGIN, max(above) * _MARGIN
        axes.set_yscale("log")
        _mark(axes.yaxis, low, high)
    else:
        room = 0.1 * (max(above) - min(below)) or 1.0  # without any error, too
        low, high = min(below) - room, max(above) + room
    axes.set_ylim(low, high)


def _mark(axis: Any, low: float, high: float) -> None:
    """Put plain numbers on a logarithmic axis, more of them in each order of magnitude if there are few of these."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 3, 4, 5, 7) if high < 10 * low else (1, 2, 5) if len(powers) < 6 else (1,)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    ticks = [tick for tick in ticks if low <= tick <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
