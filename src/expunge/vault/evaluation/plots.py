"""Plots of errors: what was predicted against what came true, the errors along the predictions, and how large they are.

All of them count rows and show no single one. The axes leave out the outermost half per cent at either end, so that a
few rows do not shrink the rest; the labels say how many rows are left out.
"""

from collections.abc import Iterator

import numpy as np

from ...exact.arrays import Floats
from .svg import BLUE, FAINT, INK, PALE, Frame

_CELLS = 40  # along either axis
_SHADES = 6
_BARS = 40
_MOST_GROUPS, _ROWS_OF_A_GROUP = 20, 25
_LEFT_OUT = 0.005  # of the rows, at either end of an axis


def plots(target: str, y: Floats, predicted: Floats) -> Iterator[str]:
    """Yield the pictures of one target as SVG."""
    yield against(target, y, predicted)
    yield along(target, y, predicted)
    yield sizes(target, y - predicted)


def against(target: str, y: Floats, predicted: Floats) -> str:
    """Draw predictions against truth: how many rows are in each cell."""
    ends = _range(np.concatenate([y, predicted]))
    counts, xs, ys = np.histogram2d(predicted, y, bins=_CELLS, range=[ends, ends])
    frame = Frame(
        "Predicted and true", ends, ends, (_axis(f"predicted {target}", len(y), counts.sum()), f"true {target}")
    )
    shade = np.ceil(np.sqrt(counts / max(counts.max(), 1)) * _SHADES).astype(int)  # 0 where there is no row
    for level in range(1, _SHADES + 1):
        cells = np.argwhere(shade == level).tolist()
        frame.boxes(((xs[i], ys[j], xs[i + 1], ys[j + 1]) for i, j in cells), BLUE, level / _SHADES)
    frame.line(*ends[:1] * 2, *ends[1:] * 2, INK, dashed=True)
    return frame.drawn()


def along(target: str, y: Floats, predicted: Floats) -> str:
    """Draw the errors of rows with about the same prediction: the middle 90 % of them, the middle half, the median."""
    errors = y - predicted
    groups = int(np.clip(len(y) // _ROWS_OF_A_GROUP, 1, _MOST_GROUPS))
    order = np.argsort(predicted, kind="stable")
    ends = _range(predicted)
    quantiles = [np.quantile(errors[some], [0.05, 0.25, 0.5, 0.75, 0.95]) for some in np.array_split(order, groups)]
    span = _widened(float(min(q[0] for q in quantiles)), float(max(q[-1] for q in quantiles)))
    frame = Frame("Errors along the predictions", ends, span, (f"predicted {target}", "true - predicted"))
    edges = [predicted[some[0]] for some in np.array_split(order, groups)] + [predicted[order[-1]]]
    for left, right, (q05, q25, q50, q75, q95) in zip(edges, edges[1:], quantiles, strict=False):
        right = max(right, left + 0.004 * (ends[1] - ends[0]))
        frame.box(left, q05, right, q95, "#dfeaf5")
        frame.box(left, q25, right, q75, PALE, f"half of the errors are between {q25:.4g} and {q75:.4g}")
        frame.line(left, q50, right, q50, BLUE)
    frame.line(ends[0], 0.0, ends[1], 0.0, INK, dashed=True)
    return frame.drawn()


def sizes(target: str, errors: Floats) -> str:
    """Draw how many rows have which error."""
    ends = _range(errors)
    counts, edges = np.histogram(errors, bins=_BARS, range=ends)
    frame = Frame("Sizes of the errors", ends, (0.0, max(float(counts.max()), 1.0) * 1.05), ("", "rows"))
    frame.labels = _axis(f"true - predicted {target}", len(errors), counts.sum()), "rows"
    for count, left, right in zip(counts.tolist(), edges, edges[1:], strict=False):
        if count:
            frame.box(left, 0.0, right, count, PALE, f"{count:,} rows from {left:.4g} to {right:.4g}")
    frame.line(0.0, 0.0, 0.0, frame.y[1], FAINT, dashed=True)
    return frame.drawn()


def _range(values: Floats) -> tuple[float, float]:
    """Return where an axis begins and ends."""
    low, high = np.quantile(values, [_LEFT_OUT, 1 - _LEFT_OUT])
    return _widened(float(low), float(high))


def _widened(low: float, high: float) -> tuple[float, float]:
    """Return a range with a little room around it, and some where there is none."""
    room = 0.03 * (high - low) or 0.03 * abs(low) or 1.0
    return low - room, high + room


def _axis(label: str, rows: int, drawn: float) -> str:
    """Return an axis' label, and how many rows are beyond its ends."""
    return label if rows == drawn else f"{label} ({rows - int(drawn):,} of {rows:,} rows are beyond)"
