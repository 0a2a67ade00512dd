"""The page of a plan: one HTML file with its picture in it, without scripts."""

import os
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from .codes import CODINGS
from .figure import as_svg
from .text import NOT_SAID, as_option, cells

if TYPE_CHECKING:
    from .planner import Plan

_PAGE = """<!doctype html>
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

_HEAD = ("code", "features", "alpha", "R2", "error", "standard error", "ms to forget", "measured", "s to train", "MB")


def write_report(plan: "Plan", path: str | os.PathLike[str]) -> None:
    """Write the page."""
    Path(path).write_text(as_html(plan), encoding="utf-8")


def as_html(plan: "Plan") -> str:
    """The page as text."""
    others = [((r.name, f"{r.r2:.4f}", f"{r.error:.5f}", f"{r.train_s:.2f}"), False) for r in plan.references]
    return _PAGE.format(
        advice=escape(plan.advice),
        picture=as_svg(plan),
        candidates=_table(_HEAD, ((cells(one), one == plan.choice) for one in plan.table)),
        option=escape(as_option(plan.choice)),
        not_said=NOT_SAID,
        references=_table(("model", "R2", "error", "s to train"), others) if others else "<p>None were tried.</p>",
        codes=_table(("code", "what it buys"), (((str(one), one.buys()), False) for one in CODINGS)),
        sampled=plan.sampled,
        rows=plan.rows,
        bits=plan.bits,
    )


def _table(head: Iterable[str], lines: Iterable[tuple[Iterable[str], bool]]) -> str:
    """A table; a line that is marked stands out."""
    rows = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
    for line, marked in lines:
        shown = "".join(f"<td>{escape(cell)}</td>" for cell in line)
        rows.append(f"<tr{' class=chosen' * marked}>{shown}</tr>")
    return f"<table>{''.join(rows)}</table>"
