"""The page: an evaluation as one HTML file, without scripts and without anything from elsewhere."""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from .plots import plots
from .scores import LEVEL, Scores, told

if TYPE_CHECKING:
    from .evaluation import Evaluation, TargetScores

_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ text-align: left; padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid #d5dce3; }}
td small {{ color: #5f6c7b; }}
svg {{ width: 27rem; max-width: 100%; font-family: system-ui, sans-serif; }}
p.note {{ color: #5f6c7b; }}
</style>
</head>
<body>"""

_EXPLAINED = """\
<p class="note">Intervals hold {level} of the scores of {draws} draws of {whom}, with replacement. R2 is the part of the
variance that is explained: 0 is as good as the mean of this very table, 1 is perfect. RMSE and MAE are in the units of
the target. In the second picture each strip is for as many rows, with the middle 90 % of their errors, the middle half,
and the median. The pictures count rows and show no single one, but they are drawn from the rows of the table: keep this
page as you keep the table.</p>"""

_ROWS = {
    "vault": "this vault",
    "linear": "a linear model of the vault's rows",
    "mean": "the mean of the vault's rows",
}


def page(found: "Evaluation", title: str) -> str:
    """Return the page."""
    return "\n".join([_HEAD.format(title=escape(title)), *_body(found, title), "</body>", "</html>", ""])


def _body(found: "Evaluation", title: str) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    people = "" if found.people is None else f" of {found.people:,} people"
    yield f"<p>{found.rows:,} rows{people}. {' '.join(f'{escape(note)}.' for note in found.notes)}</p>"
    for target in found.targets:
        yield from _target(target)
    whom = "rows" if found.people is None else "people"
    yield _EXPLAINED.format(level=f"{LEVEL:.0%}", draws=f"{found.resamples:,}", whom=whom)


def _target(target: "TargetScores") -> Iterator[str]:
    yield f"<h2>{escape(target.target)}</h2>"
    yield f"<p>{escape(target.advice.capitalize())}.</p>"
    yield "<table><tr><th></th><th>R2</th><th>RMSE</th><th>MAE</th></tr>"
    for name, words in _ROWS.items():
        scores: Scores = getattr(target, name)
        cells = (told(scores.r2, decimals=3), told(scores.rmse), told(scores.mae))
        yield f"<tr><td>{words}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>"
    yield from plots(target.target, target.y, target.predicted)
