"""Charts: small pictures in SVG. Their colours are classes of the style, so that they follow a dark page."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from markupsafe import Markup, escape

from .words import count, many, seconds

_WIDE, _HIGH = 340, 140
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 10, 22  # margins; the axes' labels are left and below
_MOST_POINTS = 400


def requests_per_day(days: Sequence[tuple[date, int]]) -> Markup:
    """Bars: how many requests came each day."""
    most, total = max(n for _, n in days), sum(n for _, n in days)
    step = (_WIDE - _LEFT - _RIGHT) / len(days)
    bars = [
        _bar(_LEFT + k * step + 1, step - 2, n / max(most, 1), f"{_day(one)}: {many(n, 'request')}")
        for k, (one, n) in enumerate(days)
    ]
    said = f"{many(total, 'request')} in {len(days)} days" + (f", at most {count(most)} in one day" if total else "")
    return _drawn("Requests per day", said, bars, (_day(days[0][0]), "today"), ("0", count(max(most, 1))))


def time_to_forget(times: Sequence[float], middle: float) -> Markup:
    """Bars: how long each of the newest erasures took; a line at the median."""
    most = max(times)
    step = min((_WIDE - _LEFT - _RIGHT) / len(times), 14.0)
    bars = [
        _bar(_LEFT + k * step + 0.5, max(step - 1, 1), one / most, f"{_place(k, len(times))}: {seconds(one)}")
        for k, one in enumerate(times)
    ]
    y = _y(middle / most)
    line = Markup('<line class="middle" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(_LEFT, _WIDE - _RIGHT, y, y)
    said = f"The last {many(len(times), 'erasure')}: half took at most {seconds(middle)}, the slowest {seconds(most)}"
    newest = "newest" if step * len(times) > 0.8 * (_WIDE - _LEFT - _RIGHT) else ""
    return _drawn("Time to forget", said, [*bars, line], ("oldest", newest), ("0", seconds(most)))


def _place(k: int, total: int) -> str:
    return "newest" if k == total - 1 else f"{many(total - 1 - k, 'erasure')} before the newest"


def rows_held(points: Sequence[tuple[datetime, int]], now: datetime) -> Markup:
    """A line that steps: how many rows the vault held."""
    points = [*points[:: max(1, len(points) // _MOST_POINTS)], (max(now, points[-1][0]), points[-1][1])]
    first, last = points[0][0], points[-1][0]
    whole = max((last - first) / timedelta(seconds=1), 1.0)
    most, least = max(n for _, n in points), min(n for _, n in points)
    low = max(0, least - max(most - least, most // 20, 1))  # a change is seen, whatever the size of the vault

    def place(time: datetime, n: int) -> tuple[float, float]:
        share = (time - first) / timedelta(seconds=1) / whole
        return _LEFT + share * (_WIDE - _LEFT - _RIGHT), _y((n - low) / max(most - low, 1))

    x, y = place(*points[0])
    path, spots = f"M{x:.1f} {y:.1f}", list[Markup]()
    for (time, n), (_, held) in zip(points[1:], points, strict=False):
        before, (x, y) = x, place(time, n)
        path += f"H{x:.1f}V{y:.1f}"
        spots.append(_spot(before, x, f"{many(held, 'row')} until {_day(time.date())}"))
    path += f"H{_WIDE - _RIGHT}"
    under = f"{path}V{_HIGH - _BOTTOM}H{_LEFT}Z"
    parts = Markup('<path class="under" d="{}"/><path class="line" d="{}"/>').format(under, path)
    begun, left = many(points[0][1], "row"), many(points[-1][1], "row")
    said = f"{begun} on {_day(first.date())}, {left} now"
    return _drawn("Rows held", said, [parts, *spots], (_day(first.date()), "now"), (count(low), count(most)))


def _bar(x: float, wide: float, share: float, tip: str) -> Markup:
    y = _y(share)
    if share > 0:
        y = min(y, _HIGH - _BOTTOM - 1.5)
    return Markup(
        '<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
    ).format(x, y, wide, _HIGH - _BOTTOM - y, tip)


def _y(share: float) -> float:
    return _HIGH - _BOTTOM - share * (_HIGH - _TOP - _BOTTOM)


def _day(one: date) -> str:
    return f"{one.day} {one:%b}"


def _spot(left: float, right: float, tip: str) -> Markup:
    """Return a part of a chart that shows nothing but a title when it is pointed at."""
    box = Markup('<rect class="spot" x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}</title></rect>')
    return box.format(left, _TOP, max(right - left, 0.5), _HIGH - _TOP - _BOTTOM, tip)


def _drawn(title: str, said: str, parts: Sequence[Markup], x: tuple[str, str], y: tuple[str, str]) -> Markup:
    """Draw a chart with both axes, their ends labelled: left and right, low and high."""
    base, name = _HIGH - _BOTTOM, title.lower().replace(" ", "-")
    frame = Markup(
        '<line class="grid" x1="{l}" x2="{r}" y1="{t}" y2="{t}"/>'
        '<line class="axis" x1="{l}" x2="{r}" y1="{b}" y2="{b}"/>'
        '<line class="axis" x1="{l}" x2="{l}" y1="{t}" y2="{b}"/>'
        '<text x="{l}" y="{below}">{x0}</text><text x="{r}" y="{below}" text-anchor="end">{x1}</text>'
        '<text x="{beside}" y="{b}" text-anchor="end">{y0}</text>'
        '<text x="{beside}" y="{high}" text-anchor="end">{y1}</text>'
    ).format(
        l=_LEFT, r=_WIDE - _RIGHT, t=_TOP, b=base, below=_HIGH - 6, beside=_LEFT - 5, high=_TOP + 8,
        x0=x[0], x1=x[1], y0=y[0], y1=y[1],
    )  # fmt: skip
    return Markup(
        '<figcaption id="{name}">{}<span>{}</span></figcaption>'
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{name}"><title>{}: {}</title>{}{}</svg>'
    ).format(title, said, _WIDE, _HIGH, title, said, frame, Markup("").join(map(escape, parts)), name=name)
