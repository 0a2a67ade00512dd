"""A plan as advice, as text for a terminal, as a figure and as an HTML page."""

import html
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..reports import render_report
from .candidates import CODINGS, MAX_GIVEN_UP, Candidate, Coding
from .finals import Reference

if TYPE_CHECKING:
    from .planner import Plan

OPTION_NOTE = "an option of expunge train; the relevance of each input is stored only in the plan"

_TEXT_HEAD = ("", "code", "features", "alpha", "R2", "error", "+-", "forget ms", "(here)", "train s", "MB")
_NUMBERS = {
    "alpha": "g",
    "r2": ".4f",
    "error": ".5f",
    "spread": ".5f",
    "forget_ms": ".2f",
    "measured_forget_ms": ".2f",
    "train_s": ".3g",
    "mb": ".1f",
}  # the columns of numbers in a table of candidates, and their formats

_COLOURS = ("#1f5fa8", "#2e8b57", "#c26a00", "#8b3a8b", "#b03030", "#708090")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_SAME_ERROR = 0.005  # errors this close, relatively, are called the same
_MARGIN = 1.25  # a factor beyond the ends of a logarithmic axis
_FAR_APART = 5  # a ratio of errors from which on they are drawn on a logarithmic axis


def write_advice(
    choice: Candidate,
    table: Sequence[Candidate],
    references: Sequence[Reference],
    forget_ms: float | None,
    line_advantage: float | None = None,
) -> str:
    """Return short sentences on the choice, its reasons and its trade-offs, one per line.

    ``line_advantage`` is the relative excess error of cosines over the linear model on new rows, if it was measured.
    """
    model = f"{choice.code} with {choice.in_words} and alpha={choice.alpha:g}"
    sentences = [
        f"Train {model}: R2 {choice.r2:.4f} on validation rows, about {_format_ms(choice.forget_ms)} to forget a row."
    ]
    if choice.features == "identity":
        sentences.append("It is a linear model, without cosines.")
    if "log" in choice.target_scales:
        sentences.append("The target is learned on a log scale, on which small models had less error.")
    if choice.outside == "extrapolate":
        sentences.append("Rows outside the bounds are extrapolated, which had less error on validation rows.")
    if line_advantage is not None and line_advantage >= 0:
        sentences.append(
            f"Cosines whose shape was found without the validation rows had {line_advantage:.1%} more error than the "
            "linear model. The smaller errors in the table come from fitting those very rows."
        )
    else:
        sentences += _describe_given_up(choice, table, forget_ms)
    sentences += _compare_with_references(choice, references)
    sentences.append(f"Benefits of {choice.code}: {Coding(choice.shards, choice.rate).describe_benefit()}.")
    coded = min((each for each in table if each.rate > 1), key=lambda each: each.error, default=None)
    if choice.shards == 1 and coded is not None:
        excess = _relative_excess(coded.error, choice.error)
        benefit = Coding(coded.shards, coded.rate).describe_benefit()
        sentences.append(f"The best code ({coded.code}, {coded.cosines} cosines) has {excess:+.1%} error.")
        sentences.append(f"Benefits of that code: {benefit}.")
    return "\n".join(sentences)


def _describe_given_up(choice: Candidate, table: Sequence[Candidate], forget_ms: float | None) -> list[str]:
    """Return how much better the best candidates are, if another was chosen."""
    allowed = [each for each in table if forget_ms is None or each.forget_ms <= forget_ms] or [choice]
    best, best_of_all = (min(group, key=lambda each: each.error) for group in (allowed, table))
    sentences = []
    if best != choice:
        rule = f"within one standard error, and at most {MAX_GIVEN_UP:.0%}"
        if "log" in choice.target_scales:
            rule += " on the log scale"
        sentences.append(
            f"{best.code} with {best.cosines} cosines had the lowest error. "
            f"{_relative_excess(choice.error, best.error):.1%} of it was given up ({rule}) "
            f"to train in {choice.train_s:.2g} s instead of {best.train_s:.2g} s."
        )
    if forget_ms is not None and choice.forget_ms > forget_ms:
        sentences.append(f"No candidate forgets within {forget_ms:g} ms; this is the fastest.")
    elif forget_ms is not None and best_of_all.forget_ms > forget_ms:
        less, time = -_relative_excess(best_of_all.error, choice.error), _format_ms(best_of_all.forget_ms)
        sentences.append(
            f"Without the limit of {forget_ms:g} ms the error would be {less:.1%} lower, at {time} per row."
        )
    return sentences


def _compare_with_references(choice: Candidate, references: Sequence[Reference]) -> list[str]:
    if not references:
        return []
    best = min(references, key=lambda reference: reference.error)
    excess = _relative_excess(choice.error, best.error)
    if abs(excess) < _SAME_ERROR:
        return [f"Its error is that of the best reference ({best.name})."]
    if excess < 0:
        return [f"Its error is {-excess:.0%} below that of the best reference ({best.name})."]
    less, reason = -_relative_excess(best.error, choice.error), "another kind of model, which fits this table better"
    return [
        f"The best reference ({best.name}) has {less:.0%} less error: it is {reason}.",
        "Exact forgetting itself costs no accuracy.",
    ]


def _format_ms(time: float) -> str:
    return f"{time:.1f} ms" if time < 10 else f"{time:.0f} ms"


def _relative_excess(error: float, reference: float) -> float:
    """Return how much larger an error is than the reference, as a share of it; 0 for a constant target."""
    return error / reference - 1 if reference else 0.0


def render_text(plan: "Plan") -> str:
    """Return the candidates, in the order of their time to forget, the references and the advice."""
    option = f"--features {plan.choice.features} ({OPTION_NOTE})"
    return "\n".join([render_table(plan), "", plan.advice, option, _describe_sample(plan)])


def render_table(plan: "Plan") -> str:
    """Return the candidates and references as a table of text; a star marks the choice."""
    lines = _table_cells(plan)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def render_notebook(plan: "Plan") -> str:
    """Return the same table as HTML, with the choice in bold and the size of the sample below."""
    head, *lines = [[html.escape(cell) for cell in cells] for cells in _table_cells(plan)]
    rows = [f"<tr><th>{'</th><th>'.join(head)}</th></tr>"]
    for star, *cells in lines:
        style = ' style="font-weight: bold"' if star else ""
        rows.append(f"<tr{style}><td>{'</td><td>'.join([star, *cells])}</td></tr>")
    return f"<table>{''.join(rows)}</table><p>{_describe_sample(plan)}</p>"


def _table_cells(plan: "Plan") -> list[tuple[str, ...]]:
    candidates = sorted(plan.table, key=lambda each: (each.forget_ms, each.error))
    lines = [_TEXT_HEAD, *(("*" if each == plan.choice else "", *candidate_cells(each)) for each in candidates)]
    return [*lines, *(("", r.name, "", "", f"{r.r2:.4f}", f"{r.error:.5f}", *[""] * 5) for r in plan.references)]


def _describe_sample(plan: "Plan") -> str:
    return f"used {plan.sampled:,} of {plan.rows:,} rows; the plan reveals at most {plan.bits:,.0f} bits about them"


def candidate_cells(candidate: Candidate) -> tuple[str, ...]:
    """Return a candidate as a line of a table: code, features, and its numbers."""
    numbers = (format(getattr(candidate, name), spec) for name, spec in _NUMBERS.items())
    return candidate.code, candidate.in_words, *numbers


def write_report(plan: "Plan", path: str | os.PathLike[str]) -> None:
    """Write the HTML page."""
    Path(path).write_text(render_html(plan), encoding="utf-8")


def render_html(plan: "Plan") -> str:
    """Return the HTML page."""
    figure = io.StringIO()
    draw_figure(plan).savefig(figure, format="svg", metadata={"Date": None, "Creator": None})
    svg = figure.getvalue()
    return render_report(
        "plan.html",
        title="Plan",
        plan=plan,
        figure=svg[svg.index("<svg") :],
        candidates=list(map(candidate_cells, plan.table)),
        chosen=plan.table.index(plan.choice),
        option=f"--features {plan.choice.features}",
        option_note=OPTION_NOTE,
        references=[(r.name, f"{r.r2:.4f}", f"{r.error:.5f}", f"{r.train_s:.2f}") for r in plan.references],
        codes=[(coding, coding.describe_benefit()) for coding in CODINGS],
    )


def write_figure(plan: "Plan", path: str | os.PathLike[str]) -> None:
    """Write the figure to a file, in the format given by the file's suffix."""
    draw_figure(plan).savefig(path, dpi=150)


def draw_figure(plan: "Plan") -> Any:
    """Draw error against time to forget, for all candidates and references; without pyplot, so without a window.

    Everything lies within the axes. Where errors are far apart, as for a linear model among better candidates, they are
    drawn on a logarithmic axis: on a linear one the candidates could not be told apart.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for k, code in enumerate(dict.fromkeys(candidate.code for candidate in plan.table)):
        line = sorted((each for each in plan.table if each.code == code), key=lambda each: each.forget_ms)
        times, errors = [each.forget_ms for each in line], [each.error for each in line]
        style: dict[str, Any] = {"color": _COLOURS[k % 6], "marker": _MARKERS[k % 6], "label": code}
        axes.errorbar(times, errors, yerr=[each.spread for each in line], linewidth=1, capsize=2, **style)
    for dash, reference in zip(("-.", "--", ":"), plan.references, strict=False):
        label = f"{reference.name} ({reference.error:.3g})"
        axes.axhline(reference.error, color="#555555", linestyle=dash, linewidth=1, label=label)
    ring: dict[str, Any] = {"markersize": 15, "fillstyle": "none", "color": "black", "label": "chosen"}
    axes.plot([plan.choice.forget_ms], [plan.choice.error], "o", **ring)
    axes.set(xscale="log", xlabel="time to forget a row, ms (predicted)", ylabel="validation error / variance")
    _set_error_axis(axes, plan)
    times = [candidate.forget_ms for candidate in plan.table]
    low, high = min(times) / _MARGIN, max(times) * _MARGIN
    _set_log_ticks(axes.xaxis, low, high)
    axes.set_xlim(low, high)
    axes.minorticks_off()
    figure.legend(fontsize=8, loc="outside right upper")
    return figure


def _set_error_axis(axes: Any, plan: "Plan") -> None:
    """Let the axis of the errors include everything that is drawn."""
    spans = [(each.error - each.spread, each.error, each.error + each.spread) for each in plan.table]
    spans += [(reference.error,) * 3 for reference in plan.references]
    below, errors, above = zip(*spans, strict=True)
    lowest = min(errors)
    if 0 < lowest < max(errors) / _FAR_APART:
        low, high = max(min(below), lowest / 2) / _MARGIN, max(above) * _MARGIN
        axes.set_yscale("log")
        _set_log_ticks(axes.yaxis, low, high)
    else:
        room = 0.1 * (max(above) - min(below)) or 1.0  # all errors may be 0
        low, high = min(below) - room, max(above) + room
    axes.set_ylim(low, high)


def _set_log_ticks(axis: Any, low: float, high: float) -> None:
    """Put plain numbers on a logarithmic axis, and more per order of magnitude the fewer of these it spans."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 3, 4, 5, 7) if high < 10 * low else (1, 2, 5) if len(powers) < 6 else (1,)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    ticks = [tick for tick in ticks if low <= tick <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
