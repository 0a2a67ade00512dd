"""The page of a plan: one HTML file with its picture in it, without scripts."""

import os
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from .codes import CODINGS
from .figure import as_svg

if TYPE_CHECKING:
    from .planner import Plan

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-size: 0.85rem } td, th { padding: 0.2rem 0.6rem; text-align: left }
tr:nth-child(even) { background: #f4f4f4 } tr.chosen { background: #dcebd9; font-weight: bold }
td.number { text-align: right; font-variant-numeric: tabular-nums } svg { max-width: 100%; height: auto }
"""

_HEAD = ("code", "features", "alpha", "R2", "error", "standard error", "ms to forget", "measured", "s to train", "MB")


def write_report(plan: "Plan", path: str | os.PathLike[str]) -> None:
    """Write the page."""
    Path(path).write_text(as_html(plan), encoding="utf-8")


def as_html(plan: "Plan") -> str:
    """The page as text."""
    parts = [
        "<h1>A plan</h1>",
        f"<p>{escape(plan.advice)}</p>",
        as_svg(plan),
        "<h2>Candidates</h2>",
        "<p>Errors are mean squared errors on validation rows over the target's variance there. Times are predicted from "
        "counts of operations, so that they decide alike on every machine; measured ones, of the sample, stand beside "
        "them.</p>",
        _table(_HEAD, ((_cells(one), one == plan.choice) for one in plan.table)),
        "<h2>References on the same rows</h2>" if plan.references else "",
        _table(
            ("model", "R2", "error", "s to train"),
            (((r.name, f"{r.r2:.4f}", f"{r.error:.5f}", f"{r.train_s:.2f}"), False) for r in plan.references),
        )
        if plan.references
        else "",
        "<h2>What the codes buy</h2>",
        _table(("code", "what it buys"), (((str(one), one.buys()), False) for one in CODINGS)),
        "<h2>What this plan may know</h2>",
        f"<p>It was chosen by looking at {plan.sampled:,} of {plan.rows:,} rows, some of which may be erased later, and it "
        f"stays as it is then. It is one of finitely many settings, so it tells at most {plan.bits:,.0f} bits about all "
        "these people together. Plan on rows that are not personal if that is too much.</p>",
    ]
    style = f"<style>{_STYLE}</style>"
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>A plan</title>{style}' + "\n".join(parts)


def _cells(one: object) -> tuple[str, ...]:
    names = ("alpha", "r2", "error", "spread", "forget_ms", "measured_forget_ms", "train_s", "mb")
    forms = ("g", ".4f", ".5f", ".5f", ".2f", ".2f", ".3g", ".1f")
    numbers = (format(getattr(one, name), form) for name, form in zip(names, forms, strict=True))
    return (str(getattr(one, "code")), str(getattr(one, "features")), *numbers)


def _table(head: Iterable[str], lines: Iterable[tuple[Iterable[str], bool]]) -> str:
    """A table; a line that is marked stands out."""
    rows = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
    for cells, marked in lines:
        cells_ = "".join(f"<td{' class=number' * _is_number(cell)}>{escape(cell)}</td>" for cell in cells)
        rows.append(f"<tr{' class=chosen' * marked}>{cells_}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:2] in {"-0", "0."}
