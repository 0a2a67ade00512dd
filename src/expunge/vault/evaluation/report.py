"""The page of an evaluation: its scores, and charts of the errors.

The charts show predictions against true values, errors by prediction, and the distribution of errors. They count
rows and show no single row. The axes leave out the outermost half per cent at either end, so that a few rows do not
shrink the rest; the labels say how many rows are left out.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...exact.arrays import Floats
from ...reports import render_report
from ...reports.svg import BLUE, FAINT, INK, PALE, SvgChart
from .scores import CONFIDENCE_LEVEL, format_score

if TYPE_CHECKING:
    from .evaluation import Evaluation

_CELLS = 40  # along either axis
_SHADES = 6
_BARS = 40
_MAX_GROUPS, _ROWS_PER_GROUP = 20, 25
_TRIMMED_SHARE = 0.005  # of the rows, at either end of an axis

_ROW_LABELS = {
    "vault": "this vault",
    "linear": "a linear model of the vault's rows",
    "trees": "boosted trees of the vault's rows",
    "mean": "the mean of the vault's rows",
}


def render_page(evaluation: "Evaluation", title: str) -> str:
    """Return the page."""
    targets = []
    for target in evaluation.targets:
        rows = []
        for name, label in _ROW_LABELS.items():
            if (scores := getattr(target, name)) is None:
                continue
            rows.append((label, format_score(scores.r2, decimals=3), *map(format_score, (scores.rmse, scores.mae))))
        targets.append(
            {
                "name": target.target,
                "advice": target.advice[:1].upper() + target.advice[1:],
                "scores": rows,
                "charts": list(draw_plots(target.target, target.y, target.predicted)),
            }
        )
    level = f"{CONFIDENCE_LEVEL:.0%}"
    return render_report("evaluation.html", title=title, evaluation=evaluation, targets=targets, level=level)


def draw_plots(target: str, y: Floats, predicted: Floats) -> Iterator[str]:
    """Yield the charts of one target as SVG."""
    yield draw_predicted_against_true(target, y, predicted)
    yield draw_errors_along_predictions(target, y, predicted)
    yield draw_error_sizes(target, y - predicted)


def draw_predicted_against_true(target: str, y: Floats, predicted: Floats) -> str:
    """Draw predictions against true values: the number of rows in each cell."""
    ends = _axis_range(np.concatenate([y, predicted]))
    counts, xs, ys = np.histogram2d(predicted, y, bins=_CELLS, range=[ends, ends])
    labels = _axis_label(f"predicted {target}", len(y), counts.sum()), f"true {target}"
    chart = SvgChart("Predicted and true", ends, ends, labels)
    shade = np.ceil(np.sqrt(counts / max(counts.max(), 1)) * _SHADES).astype(int)  # 0 for an empty cell
    for level in range(1, _SHADES + 1):
        cells = np.argwhere(shade == level).tolist()
        chart.boxes(((xs[i], ys[j], xs[i + 1], ys[j + 1]) for i, j in cells), BLUE, level / _SHADES)
    chart.line(*ends[:1] * 2, *ends[1:] * 2, INK, dashed=True)
    return chart.to_svg()


def draw_errors_along_predictions(target: str, y: Floats, predicted: Floats) -> str:
    """Draw the errors of rows with similar predictions: the middle 90 % of them, the middle half, and the median."""
    errors = y - predicted
    group_count = int(np.clip(len(y) // _ROWS_PER_GROUP, 1, _MAX_GROUPS))
    order = np.argsort(predicted, kind="stable")
    groups = np.array_split(order, group_count)
    ends = _axis_range(predicted)
    quantiles = [np.quantile(errors[group], [0.05, 0.25, 0.5, 0.75, 0.95]) for group in groups]
    span = _widen(float(min(q[0] for q in quantiles)), float(max(q[-1] for q in quantiles)))
    chart = SvgChart("Errors by prediction", ends, span, (f"predicted {target}", "true - predicted"))
    edges = [predicted[group[0]] for group in groups] + [predicted[order[-1]]]
    for left, right, (q05, q25, q50, q75, q95) in zip(edges, edges[1:], quantiles, strict=False):
        right = max(right, left + 0.004 * (ends[1] - ends[0]))
        chart.box(left, q05, right, q95, "#dfeaf5")
        chart.box(left, q25, right, q75, PALE, f"half of the errors are between {q25:.4g} and {q75:.4g}")
        chart.line(left, q50, right, q50, BLUE)
    chart.line(ends[0], 0.0, ends[1], 0.0, INK, dashed=True)
    return chart.to_svg()


def draw_error_sizes(target: str, errors: Floats) -> str:
    """Draw a histogram of the errors."""
    ends = _axis_range(errors)
    counts, edges = np.histogram(errors, bins=_BARS, range=ends)
    labels = _axis_label(f"true - predicted {target}", len(errors), counts.sum()), "rows"
    chart = SvgChart("Distribution of errors", ends, (0.0, max(float(counts.max()), 1.0) * 1.05), labels)
    for count, left, right in zip(counts.tolist(), edges, edges[1:], strict=False):
        if count:
            chart.box(left, 0.0, right, count, PALE, f"{count:,} rows from {left:.4g} to {right:.4g}")
    chart.line(0.0, 0.0, 0.0, chart.y[1], FAINT, dashed=True)
    return chart.to_svg()


def _axis_range(values: Floats) -> tuple[float, float]:
    """Return the ends of an axis."""
    low, high = np.quantile(values, [_TRIMMED_SHARE, 1 - _TRIMMED_SHARE])
    return _widen(float(low), float(high))


def _widen(low: float, high: float) -> tuple[float, float]:
    """Return a range with a margin, which is never empty."""
    room = 0.03 * (high - low) or 0.03 * abs(low) or 1.0
    return low - room, high + room


def _axis_label(label: str, rows: int, drawn: float) -> str:
    """Return an axis' label, with the number of rows beyond its ends."""
    return label if rows == drawn else f"{label} ({rows - int(drawn):,} of {rows:,} rows are beyond)"
