"""The page of a plan: one HTML file with its picture in it, without scripts."""

import io
import math
import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .candidates import CODINGS, MAX_GIVEN_UP, Candidate, Coding
from .finals import Reference

# MERGED advice: Advice: what was chosen, why, and what was given up, in words.


def write_advice(
    choice: Candidate,
    table: Sequence[Candidate],
    references: Sequence[Reference],
    forget_ms: float | None,
    line_advantage: float | None = None,
) -> str:
    """A few sentences about a choice; ``doubt`` is by how much cosines did worse than a line on new rows, if known."""
    what = f"{choice.code} with {choice.in_words} and alpha={choice.alpha:g}"
    said = [
        f"Train {what}: R2 {choice.r2:.4f} on validation rows, about {_format_ms(choice.forget_ms)} to forget a row."
    ]
    if choice.features == "identity":
        said.append("It is a linear model, without cosines.")
    if "log" in choice.target_scales:
        said.append("The target is learned on a log scale: small models did better so.")
    if choice.outside == "extrapolate":
        said.append("Rows outside the bounds are extrapolated: rows that judged were predicted better so.")
    if line_advantage is not None and line_advantage >= 0:
        said.append(
            f"Cosines whose shape was found without the rows that judge them had {line_advantage:.1%} more error than the line: "
            "the smaller errors of candidates in the table come from fitting those very rows."
        )
    else:
        said += _describe_given_up(choice, table, forget_ms)
    said += _compare_with_references(choice, references)
    said.append(f"What {choice.code} buys: {Coding(choice.shards, choice.rate).describe_benefit()}.")
    coded = min((one for one in table if one.rate > 1), key=lambda one: one.error, default=None)
    if choice.shards == 1 and coded is not None:
        more = _relative_excess(coded.error, choice.error)
        said.append(
            f"What coding would buy, the best of it here ({coded.code}, {coded.cosines} cosines) with {more:+.1%}"
        )
        said.append(f"error: {Coding(coded.shards, coded.rate).describe_benefit()}.")
    return " ".join(said)


def _describe_given_up(choice: Candidate, table: Sequence[Candidate], forget_ms: float | None) -> list[str]:
    """How much better the best candidates are, if another was chosen."""
    allowed = [one for one in table if forget_ms is None or one.forget_ms <= forget_ms] or [choice]
    best, free = (min(some, key=lambda one: one.error) for some in (allowed, table))
    said = []
    if best != choice:
        least = f"The least error had {best.code} with {best.cosines} cosines"
        part = f"{_relative_excess(choice.error, best.error):.1%} of it was given up"
        rule = f"within one standard error, and at most {MAX_GIVEN_UP:.0%}"
        if "log" in choice.target_scales:
            rule += " on the log scale"
        said.append(f"{least}: {part} ({rule}) to train in {choice.train_s:.2g} s instead of {best.train_s:.2g} s.")
    if forget_ms is not None and choice.forget_ms > forget_ms:
        said.append(f"No candidate forgets within {forget_ms:g} ms; this is the fastest.")
    elif forget_ms is not None and free.forget_ms > forget_ms:
        less, time = -_relative_excess(free.error, choice.error), _format_ms(free.forget_ms)
        said.append(f"Without the limit of {forget_ms:g} ms the error would be {less:.1%} less, at {time} per row.")
    return said


def _compare_with_references(choice: Candidate, references: Sequence[Reference]) -> list[str]:
    """How it compares with the best reference."""
    if not references:
        return []
    best = min(references, key=lambda one: one.error)
    if choice.error <= best.error:
        less = abs(_relative_excess(choice.error, best.error))
        return [f"Its error is {less:.0%} below that of the best reference ({best.name})."]
    less = -_relative_excess(best.error, choice.error)
    reason = "another kind of model, which follows this table more closely; exact forgetting itself costs no accuracy"
    return [f"The best reference ({best.name}) has {less:.0%} less error: it is {reason}."]


def _format_ms(time: float) -> str:
    return f"{time:.1f} ms" if time < 10 else f"{time:.0f} ms"


def _relative_excess(error: float, than: float) -> float:
    """How much larger an error is, as a part of the other; a constant target has none at all."""
    return error / than - 1 if than else 0.0


# MERGED figure: The picture of a plan: error against time to forget, all candidates and the references.
# MERGED figure:
# MERGED figure: All of them are within the axes. Where a straight line, say, is far worse than the others, errors are shown on a
# MERGED figure: logarithmic axis: on another, the candidates would be one heap.


if TYPE_CHECKING:
    from .planner import Plan

_COLOURS = ("#1f5fa8", "#2e8b57", "#c26a00", "#8b3a8b", "#b03030", "#708090")
_MARGIN = 1.25  # a factor beyond the ends of a logarithmic axis
_FAR_APART = 5  # a factor between errors from which on they need one
_MARKERS = ("o", "s", "^", "D", "v", "P")


def write_figure(plan: "Plan", path: str | os.PathLike[str]) -> None:
    """Write the picture to a file; its ending says the format."""
    draw_figure(plan).savefig(path, dpi=150)


def render_svg(plan: "Plan") -> str:
    """The picture as an SVG element for a page."""
    page = io.StringIO()
    draw_figure(plan).savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    text = page.getvalue()
    return text[text.index("<svg") :]


def draw_figure(plan: "Plan") -> Any:
    """Draw without a window: a figure of its own, not one of pyplot's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for k, code in enumerate(dict.fromkeys(one.code for one in plan.table)):
        some = sorted((one for one in plan.table if one.code == code), key=lambda one: one.forget_ms)
        times, errors = [one.forget_ms for one in some], [one.error for one in some]
        style: dict[str, Any] = {"color": _COLOURS[k % 6], "marker": _MARKERS[k % 6], "label": code}
        axes.errorbar(times, errors, yerr=[one.spread for one in some], linewidth=1, capsize=2, **style)
    for dash, other in zip(("-.", "--", ":"), plan.references, strict=False):
        label = f"{other.name} ({other.error:.3g})"
        axes.axhline(other.error, color="#555555", linestyle=dash, linewidth=1, label=label)
    ring: dict[str, Any] = {"markersize": 15, "fillstyle": "none", "color": "black", "label": "chosen"}
    axes.plot([plan.choice.forget_ms], [plan.choice.error], "o", **ring)
    axes.set(xscale="log", xlabel="time to forget a row, ms (predicted)", ylabel="validation error / variance")
    _set_error_axis(axes, plan)
    times = [one.forget_ms for one in plan.table]
    low, high = min(times) / _MARGIN, max(times) * _MARGIN
    _set_log_ticks(axes.xaxis, low, high)
    axes.set_xlim(low, high)
    axes.minorticks_off()
    figure.legend(fontsize=8, loc="outside right upper")
    return figure


def _set_error_axis(axes: Any, plan: "Plan") -> None:
    """Let the axis of the errors hold everything that is drawn."""
    ends = [(one.error - one.spread, one.error, one.error + one.spread) for one in plan.table]
    ends += [(other.error,) * 3 for other in plan.references]
    below, errors, above = zip(*ends, strict=True)
    least = min(errors)
    if 0 < least < max(errors) / _FAR_APART:
        low, high = max(min(below), least / 2) / _MARGIN, max(above) * _MARGIN
        axes.set_yscale("log")
        _set_log_ticks(axes.yaxis, low, high)
    else:
        room = 0.1 * (max(above) - min(below)) or 1.0  # without any error, too
        low, high = min(below) - room, max(above) + room
    axes.set_ylim(low, high)


def _set_log_ticks(axis: Any, low: float, high: float) -> None:
    """Put plain numbers on a logarithmic axis, more of them in each order of magnitude if there are few of these."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 3, 4, 5, 7) if high < 10 * low else (1, 2, 5) if len(powers) < 6 else (1,)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    ticks = [tick for tick in ticks if low <= tick <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])


# MERGED text: A plan as text for a terminal.


if TYPE_CHECKING:
    from .planner import Plan

OPTION_NOTE = "as expunge train takes it; how much each input counts is in the plan only"

_TEXT_HEAD = ("", "code", "features", "alpha", "R2", "error", "+-", "forget ms", "(here)", "train s", "MB")


def render_text(plan: "Plan") -> str:
    """The candidates by their time to forget, the references, and the advice."""
    rising = sorted(plan.table, key=lambda one: (one.forget_ms, one.error))
    lines: list[tuple[str, ...]] = [
        _TEXT_HEAD,
        *(("*" if one == plan.choice else "", *candidate_cells(one)) for one in rising),
    ]
    lines += [("", r.name, "", "", f"{r.r2:.4f}", f"{r.error:.5f}", *[""] * 5) for r in plan.references]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    looked = (
        f"looked at {plan.sampled:,} of {plan.rows:,} rows; the plan tells at most {plan.bits:,.0f} bits about them"
    )
    return "\n".join([*table, "", plan.advice, f"{train_option(plan.choice)} ({OPTION_NOTE})", looked])


def train_option(candidate: Candidate) -> str:
    """The features as an option of `expunge train`."""
    return f"--features {candidate.features}"


def candidate_cells(candidate: Candidate) -> tuple[str, ...]:
    """A candidate as a line of a table: code, features, and its numbers."""
    names = ("alpha", "r2", "error", "spread", "forget_ms", "measured_forget_ms", "train_s", "mb")
    forms = ("g", ".4f", ".5f", ".5f", ".2f", ".2f", ".3g", ".1f")
    return candidate.code, candidate.in_words, *map(format, (getattr(candidate, name) for name in names), forms)


if TYPE_CHECKING:
    from .planner import Plan

_PAGE_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A plan</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse; font-size: 0.85rem }} td, th {{ padding: 0.2rem 0.6rem; text-align: left }}
tr:nth-child(even) {{ background: #f4f4f4 }} tr.chosen {{ background: #dcebd9; font-weight: bold }}
svg {{ max-width: 100%; height: auto }}
</style></head><body>
<h1>A plan</h1><p>{advice}</p>
{picture}
<h2>Candidates</h2>
<p>Errors are mean squared errors on validation rows over the target's variance there. Times are predicted from counts
of operations, so that they decide alike on every machine; measured ones, of the sample, stand beside them.</p>
{candidates}
<p>The chosen features: <code>{option}</code> ({not_said}).</p>
<h2>References on the same rows</h2>
{references}
<h2>What the codes buy</h2>
{codes}
<h2>What this plan may know</h2>
<p>It was chosen by looking at {sampled:,} of {rows:,} rows, some of which may be erased later, and it stays as it is
then. The model and the plan file are one of finitely many, so they tell at most {bits:,.0f} bits about all these people
together. Plan on rows that are not personal if that is too much. This page tells more, the errors of all candidates: do
not keep it longer than you need it.</p>
</body></html>
"""

_HTML_HEAD = (
    "code",
    "features",
    "alpha",
    "R2",
    "error",
    "standard error",
    "ms to forget",
    "measured",
    "s to train",
    "MB",
)


def write_report(plan: "Plan", path: str | os.PathLike[str]) -> None:
    """Write the page."""
    Path(path).write_text(render_html(plan), encoding="utf-8")


def render_html(plan: "Plan") -> str:
    """The page as text."""
    others = [((r.name, f"{r.r2:.4f}", f"{r.error:.5f}", f"{r.train_s:.2f}"), False) for r in plan.references]
    return _PAGE_TEMPLATE.format(
        advice=escape(plan.advice),
        picture=render_svg(plan),
        candidates=_html_table(_HTML_HEAD, ((candidate_cells(one), one == plan.choice) for one in plan.table)),
        option=escape(train_option(plan.choice)),
        not_said=OPTION_NOTE,
        references=_html_table(("model", "R2", "error", "s to train"), others) if others else "<p>None were tried.</p>",
        codes=_html_table(("code", "what it buys"), (((str(one), one.describe_benefit()), False) for one in CODINGS)),
        sampled=plan.sampled,
        rows=plan.rows,
        bits=plan.bits,
    )


def _html_table(head: Iterable[str], lines: Iterable[tuple[Iterable[str], bool]]) -> str:
    """A table; a line that is marked stands out."""
    rows = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
    for line, marked in lines:
        shown = "".join(f"<td>{escape(cell)}</td>" for cell in line)
        rows.append(f"<tr{' class=chosen' * marked}>{shown}</tr>")
    return f"<table>{''.join(rows)}</table>"
