"""Plain SVG: a frame with two axes, and what is drawn in it. No fonts are measured, and nothing is run."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ...exact.arrays import Floats
from .scores import CONFIDENCE_LEVEL, Scores, format_score

INK, FAINT, LINE, BLUE, PALE = "#1f2933", "#5f6c7b", "#d5dce3", "#2f6fb3", "#a9c7e6"

_WIDTH, _HEIGHT = 440, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 16, 34, 52  # margins, for the title and the labels


@dataclass
class SvgChart:
    """A picture with a horizontal and a vertical axis, from (low, high) to (low, high)."""

    title: str
    x: tuple[float, float]
    y: tuple[float, float]
    labels: tuple[str, str]
    _parts: list[str] = field(default_factory=list)

    def box(self, left: float, low: float, right: float, high: float, fill: str, tip: str = "") -> None:
        """Draw a filled box, given by its corners in the units of the axes; whoever points at it sees ``tip``."""
        x0, x1, y0, y1 = self._x(left), self._x(right), self._y(high), self._y(low)
        shape = f'x="{x0:.1f}" y="{y0:.1f}" width="{max(x1 - x0, 0.5):.1f}" height="{max(y1 - y0, 0.5):.1f}"'
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(f'<rect {shape} fill="{fill}">{inside}</rect>')

    def boxes(self, corners: Iterable[tuple[float, float, float, float]], fill: str, opacity: float) -> None:
        """Draw many boxes of one colour."""
        path = "".join(
            f"M{self._x(left):.1f} {self._y(low):.1f}H{self._x(right):.1f}V{self._y(high):.1f}H{self._x(left):.1f}Z"
            for left, low, right, high in corners
        )
        if path:
            self._parts.append(f'<path d="{path}" fill="{fill}" fill-opacity="{opacity:.2f}"/>')

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: str = INK, *, dashed: bool = False) -> None:
        """Draw a line between two points in the units of the axes."""
        ends = f'x1="{self._x(x0):.1f}" y1="{self._y(y0):.1f}" x2="{self._x(x1):.1f}" y2="{self._y(y1):.1f}"'
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(f'<line {ends} stroke="{colour}" stroke-width="1.2"{dash}/>')

    def to_svg(self) -> str:
        """Return the picture as an SVG element."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
                f"<title>{escape(self.title)}</title>",
                _text_element(_LEFT, 20, self.title, 14, INK, "start"),
                *self._grid(),
                *self._parts,
                _text_element((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, self.labels[0], 12, FAINT, "middle"),
                _text_element(
                    -(_TOP + _HEIGHT - _BOTTOM) / 2, 14, self.labels[1], 12, FAINT, "middle", ' transform="rotate(-90)"'
                ),
                "</svg>",
            ]
        )

    def _grid(self) -> Iterable[str]:
        low, high = self._y(self.y[0]), self._y(self.y[1])
        for tick in ticks(*self.x):
            x = self._x(tick)
            yield f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" stroke="{LINE}"/>'
            yield _text_element(x, low + 16, format_tick(tick, self.x), 11, FAINT, "middle")
        for tick in ticks(*self.y):
            y = self._y(tick)
            yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="{LINE}"/>'
            yield _text_element(_LEFT - 6, y + 4, format_tick(tick, self.y), 11, FAINT, "end")

    def _x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * _axis_fraction(value, *self.x)

    def _y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * _axis_fraction(value, *self.y)


def ticks(low: float, high: float) -> Sequence[float]:
    """Return some four to eight round numbers within a range."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(times for times in (5, 2, 1) if step * times * 4 <= (high - low) * (1 + 1e-9) or times == 1)
    return [k * step + 0.0 for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def format_tick(number: float, axis: tuple[float, float]) -> str:
    """Return a number with as many digits as tell it from its neighbours on an axis."""
    size, step = max(map(abs, axis)), (axis[1] - axis[0]) / 8
    if not 1e-4 <= size < 1e7:
        return f"{number:.{max(0, math.ceil(math.log10(size / step)))}g}"
    return f"{number:,.{max(0, -math.floor(math.log10(step)))}f}"


def _axis_fraction(value: float, low: float, high: float) -> float:
    """Return how far along an axis a value lies; what is beyond its ends is at the end."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _text_element(x: float, y: float, text: str, size: int, colour: str, anchor: str, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{more}'
    return f"<text {place}>{escape(text)}</text>"


# MERGED plots: Plots of errors: what was predicted against what came true, the errors along the predictions, and how large they are.
# MERGED plots:
# MERGED plots: All of them count rows and show no single one. The axes leave out the outermost half per cent at either end, so that a
# MERGED plots: few rows do not shrink the rest; the labels say how many rows are left out.


_CELLS = 40  # along either axis
_SHADES = 6
_BARS = 40
_MAX_GROUPS, _ROWS_PER_GROUP = 20, 25
_TRIMMED_SHARE = 0.005  # of the rows, at either end of an axis


def draw_plots(target: str, y: Floats, predicted: Floats) -> Iterator[str]:
    """Yield the pictures of one target as SVG."""
    yield draw_predicted_against_true(target, y, predicted)
    yield draw_errors_along_predictions(target, y, predicted)
    yield draw_error_sizes(target, y - predicted)


def draw_predicted_against_true(target: str, y: Floats, predicted: Floats) -> str:
    """Draw predictions against truth: how many rows are in each cell."""
    ends = _axis_range(np.concatenate([y, predicted]))
    counts, xs, ys = np.histogram2d(predicted, y, bins=_CELLS, range=[ends, ends])
    frame = SvgChart(
        "Predicted and true", ends, ends, (_axis_label(f"predicted {target}", len(y), counts.sum()), f"true {target}")
    )
    shade = np.ceil(np.sqrt(counts / max(counts.max(), 1)) * _SHADES).astype(int)  # 0 where there is no row
    for level in range(1, _SHADES + 1):
        cells = np.argwhere(shade == level).tolist()
        frame.boxes(((xs[i], ys[j], xs[i + 1], ys[j + 1]) for i, j in cells), BLUE, level / _SHADES)
    frame.line(*ends[:1] * 2, *ends[1:] * 2, INK, dashed=True)
    return frame.to_svg()


def draw_errors_along_predictions(target: str, y: Floats, predicted: Floats) -> str:
    """Draw the errors of rows with about the same prediction: the middle 90 % of them, the middle half, the median."""
    errors = y - predicted
    groups = int(np.clip(len(y) // _ROWS_PER_GROUP, 1, _MAX_GROUPS))
    order = np.argsort(predicted, kind="stable")
    ends = _axis_range(predicted)
    quantiles = [np.quantile(errors[some], [0.05, 0.25, 0.5, 0.75, 0.95]) for some in np.array_split(order, groups)]
    span = _widen(float(min(q[0] for q in quantiles)), float(max(q[-1] for q in quantiles)))
    frame = SvgChart("Errors along the predictions", ends, span, (f"predicted {target}", "true - predicted"))
    edges = [predicted[some[0]] for some in np.array_split(order, groups)] + [predicted[order[-1]]]
    for left, right, (q05, q25, q50, q75, q95) in zip(edges, edges[1:], quantiles, strict=False):
        right = max(right, left + 0.004 * (ends[1] - ends[0]))
        frame.box(left, q05, right, q95, "#dfeaf5")
        frame.box(left, q25, right, q75, PALE, f"half of the errors are between {q25:.4g} and {q75:.4g}")
        frame.line(left, q50, right, q50, BLUE)
    frame.line(ends[0], 0.0, ends[1], 0.0, INK, dashed=True)
    return frame.to_svg()


def draw_error_sizes(target: str, errors: Floats) -> str:
    """Draw how many rows have which error."""
    ends = _axis_range(errors)
    counts, edges = np.histogram(errors, bins=_BARS, range=ends)
    frame = SvgChart("Sizes of the errors", ends, (0.0, max(float(counts.max()), 1.0) * 1.05), ("", "rows"))
    frame.labels = _axis_label(f"true - predicted {target}", len(errors), counts.sum()), "rows"
    for count, left, right in zip(counts.tolist(), edges, edges[1:], strict=False):
        if count:
            frame.box(left, 0.0, right, count, PALE, f"{count:,} rows from {left:.4g} to {right:.4g}")
    frame.line(0.0, 0.0, 0.0, frame.y[1], FAINT, dashed=True)
    return frame.to_svg()


def _axis_range(values: Floats) -> tuple[float, float]:
    """Return where an axis begins and ends."""
    low, high = np.quantile(values, [_TRIMMED_SHARE, 1 - _TRIMMED_SHARE])
    return _widen(float(low), float(high))


def _widen(low: float, high: float) -> tuple[float, float]:
    """Return a range with a little room around it, and some where there is none."""
    room = 0.03 * (high - low) or 0.03 * abs(low) or 1.0
    return low - room, high + room


def _axis_label(label: str, rows: int, drawn: float) -> str:
    """Return an axis' label, and how many rows are beyond its ends."""
    return label if rows == drawn else f"{label} ({rows - int(drawn):,} of {rows:,} rows are beyond)"


# MERGED page: The page: an evaluation as one HTML file, without scripts and without anything from elsewhere.


if TYPE_CHECKING:
    from .evaluation import Evaluation, TargetScores

_PAGE_HEAD = """\
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

_EXPLANATION = """\
<p class="note">Intervals hold {level} of the scores of {draws} draws of {whom}, with replacement. R2 is the part of the
variance that is explained: 0 is as good as the mean of this very table, 1 is perfect. RMSE and MAE are in the units of
the target. In the second picture each strip is for as many rows, with the middle 90 % of their errors, the middle half,
and the median. The pictures count rows and show no single one, but they are drawn from the rows of the table: keep this
page as you keep the table.</p>"""

_ROW_LABELS = {
    "vault": "this vault",
    "linear": "a linear model of the vault's rows",
    "mean": "the mean of the vault's rows",
}


def render_page(evaluation: "Evaluation", title: str) -> str:
    """Return the page."""
    return "\n".join(
        [_PAGE_HEAD.format(title=escape(title)), *_render_body(evaluation, title), "</body>", "</html>", ""]
    )


def _render_body(evaluation: "Evaluation", title: str) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    people = "" if evaluation.people is None else f" of {evaluation.people:,} people"
    yield f"<p>{evaluation.rows:,} rows{people}. {' '.join(f'{escape(note)}.' for note in evaluation.notes)}</p>"
    for target in evaluation.targets:
        yield from _render_target(target)
    whom = "rows" if evaluation.people is None else "people"
    yield _EXPLANATION.format(level=f"{CONFIDENCE_LEVEL:.0%}", draws=f"{evaluation.resamples:,}", whom=whom)


def _render_target(target: "TargetScores") -> Iterator[str]:
    yield f"<h2>{escape(target.target)}</h2>"
    yield f"<p>{escape(target.advice.capitalize())}.</p>"
    yield "<table><tr><th></th><th>R2</th><th>RMSE</th><th>MAE</th></tr>"
    for name, words in _ROW_LABELS.items():
        scores: Scores = getattr(target, name)
        cells = (format_score(scores.r2, decimals=3), format_score(scores.rmse), format_score(scores.mae))
        yield f"<tr><td>{words}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>"
    yield from draw_plots(target.target, target.y, target.predicted)
