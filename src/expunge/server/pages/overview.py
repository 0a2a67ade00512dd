"""The overview with its three charts, and the pages of verifications.

The charts are small SVG pictures. Their colours are classes in the style sheet, so they follow the dark theme.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import median
from typing import Annotated

from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from ...reports.svg import PlotArea, svg_element, tooltip
from ...vault import LoggedRequest
from ..auth import get_service
from ..clocks import parse_time
from ..queue import ERASURE, OPEN_STATES, JobFilter
from ..service import Service
from .templating import PageRoute, format_count, format_seconds, pluralize, redirect_to, render_page
from .visitors import SubmittedForm, Visitor, require_form, require_visitor

router = APIRouter(route_class=PageRoute)

_MAX_LISTED = 6  # requests in each of the two lists
_MAX_VERIFICATIONS = 50  # in the history
_CHART_DAYS = 30
_CHART_ERASURES = 60
_CHART_REQUESTS = 300  # requests of the vault in the chart of rows, so that its cost does not grow over the years


@router.get("/")
def show_overview(request: Request, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:
    """Show what the vault holds, which requests are due, and the charts."""
    service = get_service(request)
    status, times = service.vault.status(), read_erasure_seconds(service)
    charts = [draw_requests_per_day(count_per_day(service))]
    if times:
        charts.append(draw_erasure_seconds(times))
    charts.append(
        draw_rows_held(rows_over_time(service.vault.requests[-_CHART_REQUESTS:], status.rows), service.clock())
    )
    open_jobs = service.queue.page(JobFilter(OPEN_STATES, limit=1000))
    return render_page(
        request,
        "overview.html",
        visitor,
        status_=status,
        totals=count_requests(service),
        due_next=sorted(open_jobs, key=lambda job: job.due)[:_MAX_LISTED],
        newest=service.queue.page(JobFilter(limit=_MAX_LISTED)),
        charts=charts,
        alarm=service.verifications.newest_outcome(),  # as in /readyz: a running verification does not end the alarm
        verification=service.verifications.newest(),
        keys=service.vault.public_keys(),
        options=service.options,
        renewal=service.renewals.newest(),
        next_renewal=service.renewals.next_time(),
    )


@router.get("/verify")
def show_verifications(request: Request, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:
    """Show the newest verification and the history."""
    service = get_service(request)
    history = service.verifications.page(_MAX_VERIFICATIONS)
    newest = history[0] if history else None
    every = service.options.verify_every
    return render_page(request, "verify.html", visitor, verification=newest, history=history, every=every)


@router.get("/verify/{id}")
def show_verification(request: Request, id: str, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:  # noqa: A002
    """Show a verification."""
    verification = get_service(request).verifications.get(id)
    return render_page(request, "verification.html", visitor, verification=verification)


@router.post("/verify")
def start_verification(request: Request, form: Annotated[SubmittedForm, require_form("read")]) -> Response:
    """Start a verification."""
    get_service(request).verifications.start("page", actor=form.visitor.name, caller=form.visitor.token_id)
    return redirect_to("/verify")


@dataclass(frozen=True)
class RequestTotals:
    """Numbers of requests."""

    open: int
    held: int
    overdue: int
    done: int
    all: int


def count_requests(service: Service) -> RequestTotals:
    """Count the requests by state."""
    states = dict[str, int]()
    for (_, _, state), number in service.queue.counts().items():
        states[state] = states.get(state, 0) + number
    return RequestTotals(
        open=sum(states.get(state, 0) for state in OPEN_STATES),
        held=states.get("held", 0),
        overdue=service.queue.overdue_count(),
        done=states.get("done", 0),
        all=sum(states.values()),
    )


def count_per_day(service: Service) -> list[tuple[date, int]]:
    """Return the number of requests received on each of the last days."""
    first = service.clock().date() - timedelta(days=_CHART_DAYS - 1)
    rows = service.database.fetch_all(
        "SELECT substr(received, 1, 10) AS day, COUNT(*) AS n FROM requests WHERE received >= ? GROUP BY 1",
        first.isoformat(),
    )
    counts = {row["day"]: row["n"] for row in rows}
    days = [first + timedelta(days=k) for k in range(_CHART_DAYS)]
    return [(day, counts.get(day.isoformat(), 0)) for day in days]


def read_erasure_seconds(service: Service) -> list[float]:
    """Return how long each of the newest erasures took in the vault, oldest first."""
    rows = service.database.fetch_all(
        "SELECT json_extract(outcome, '$.seconds') AS s FROM requests WHERE kind = ? AND state IN ('erased', 'done')"
        " AND json_extract(outcome, '$.request') IS NOT NULL ORDER BY number DESC LIMIT ?",
        ERASURE,
        _CHART_ERASURES,
    )
    return [float(row["s"]) for row in reversed(rows) if row["s"] is not None]


def rows_over_time(log: Sequence[LoggedRequest], rows: int) -> list[tuple[datetime, int]]:
    """Return the number of rows after each request of the vault, counted back from the current number.

    It begins with the training, or with a restore or clone: the log does not say how many rows there were before.
    """
    points = list[tuple[datetime, int]]()
    for entry in reversed(log):
        points.append((parse_time(entry.time), rows))
        if entry.kind in ("train", "restore", "cloned"):
            break
        rows += {"unlearn": entry.rows, "add": -entry.rows}.get(entry.kind, 0)
    return points[::-1]


_WIDTH, _HEIGHT = 340, 140
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 10, 22  # margins, with the labels of the axes on the left and at the bottom
_AREA = PlotArea(_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM)
_MAX_POINTS = 400


def draw_requests_per_day(days: Sequence[tuple[date, int]]) -> Markup:
    """Draw a bar for each day: the number of requests received."""
    most, total = max(n for _, n in days), sum(n for _, n in days)
    step = (_WIDTH - _LEFT - _RIGHT) / len(days)
    bars = [
        _draw_bar(_LEFT + k * step + 1, step - 2, n / max(most, 1), f"{_format_day(day)}: {pluralize(n, 'request')}")
        for k, (day, n) in enumerate(days)
    ]
    summary = f"{pluralize(total, 'request')} in {len(days)} days"
    if total:
        summary += f", at most {format_count(most)} in one day"
    x_labels, y_labels = (_format_day(days[0][0]), "today"), ("0", format_count(max(most, 1)))
    return _draw_chart("Requests per day", summary, bars, x_labels, y_labels)


def draw_erasure_seconds(times: Sequence[float]) -> Markup:
    """Draw a bar for each erasure, the time it took, and a line at the median."""
    most, middle, width = max(times), median(times), _WIDTH - _LEFT - _RIGHT
    step = min(width / len(times), 14.0)
    bars = list[str]()
    for k, seconds in enumerate(times):
        later = len(times) - 1 - k
        position = f"{pluralize(later, 'erasure')} before the newest" if later else "newest"
        tip = f"{position}: {format_seconds(seconds)}"
        bars.append(_draw_bar(_LEFT + k * step + 0.5, max(step - 1, 1), seconds / most, tip))
    y = _AREA.y(middle / most)
    line = svg_element("line", class_="middle", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y)
    summary = f"The last erasure took {format_seconds(most)}"
    if len(times) > 1:
        last = f"The last {pluralize(len(times), 'erasure')}"
        summary = f"{last}: half took at most {format_seconds(middle)}, the slowest {format_seconds(most)}"
    newest = "newest" if step * len(times) > 0.8 * width else ""
    return _draw_chart("Time per erasure", summary, [*bars, line], ("oldest", newest), ("0", format_seconds(most)))


def draw_rows_held(points: Sequence[tuple[datetime, int]], now: datetime) -> Markup:
    """Draw a step line: the number of rows in the vault over time."""
    points = [*points[:: max(1, len(points) // _MAX_POINTS)], (max(now, points[-1][0]), points[-1][1])]
    first, last = points[0][0], points[-1][0]
    duration = max((last - first) / timedelta(seconds=1), 1.0)
    most, least = max(n for _, n in points), min(n for _, n in points)
    low = max(0, least - max(most - least, most // 20, 1))  # a change is visible, however large the vault is

    def position(time: datetime, n: int) -> tuple[float, float]:
        share = (time - first) / timedelta(seconds=1) / duration
        return _AREA.x(share), _AREA.y((n - low) / max(most - low, 1))

    x, y = position(*points[0])
    path, spots = f"M{x:.1f} {y:.1f}", list[str]()
    height = _HEIGHT - _TOP - _BOTTOM
    for (time, n), (_, rows) in zip(points[1:], points, strict=False):
        left, (x, y) = x, position(time, n)
        path += f"H{x:.1f}V{y:.1f}"
        tip = f"{pluralize(rows, 'row')} until {_format_day(time.date())}"
        size = {"width": max(x - left, 0.5), "height": height}
        spots.append(svg_element("rect", tooltip(tip), class_="spot", x=left, y=_TOP, **size))
    path += f"H{_WIDTH - _RIGHT}"
    area = f"{path}V{_HEIGHT - _BOTTOM}H{_LEFT}Z"
    line = svg_element("path", class_="under", d=area) + svg_element("path", class_="line", d=path)
    first_day = _format_day(first.date())
    summary = f"{pluralize(points[0][1], 'row')} on {first_day}, {pluralize(points[-1][1], 'row')} now"
    y_labels = format_count(low), format_count(most)
    return _draw_chart("Rows in the vault", summary, [line, *spots], (first_day, "now"), y_labels)


def _draw_bar(x: float, width: float, share: float, tip: str) -> str:
    y = _AREA.y(share)
    if share > 0:
        y = min(y, _HEIGHT - _BOTTOM - 1.5)
    size = {"width": float(width), "height": _HEIGHT - _BOTTOM - y}
    return svg_element("rect", tooltip(tip), class_="bar", x=x, y=y, **size)


def _format_day(day: date) -> str:
    return f"{day.day} {day:%b}"


def _draw_chart(title: str, summary: str, parts: Sequence[str], x: tuple[str, str], y: tuple[str, str]) -> Markup:
    """Draw a chart with a caption and two axes; ``x`` and ``y`` label the ends of each axis, low and high."""
    base, name = _HEIGHT - _BOTTOM, title.lower().replace(" ", "-")
    frame = Markup(
        '<line class="grid" x1="{l}" x2="{r}" y1="{t}" y2="{t}"/>'
        '<line class="axis" x1="{l}" x2="{r}" y1="{b}" y2="{b}"/>'
        '<line class="axis" x1="{l}" x2="{l}" y1="{t}" y2="{b}"/>'
        '<text x="{l}" y="{below}">{x0}</text><text x="{r}" y="{below}" text-anchor="end">{x1}</text>'
        '<text x="{beside}" y="{b}" text-anchor="end">{y0}</text>'
        '<text x="{beside}" y="{high}" text-anchor="end">{y1}</text>'
    ).format(
        l=_LEFT, r=_WIDTH - _RIGHT, t=_TOP, b=base, below=_HEIGHT - 6, beside=_LEFT - 5, high=_TOP + 8,
        x0=x[0], x1=x[1], y0=y[0], y1=y[1],
    )  # fmt: skip
    drawing = Markup("".join(parts))  # noqa: S704 - the elements have escaped their text
    return Markup(
        '<figcaption id="{name}">{}<span>{}</span></figcaption>'
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{name}"><title>{}: {}</title>{}{}</svg>'
    ).format(title, summary, _WIDTH, _HEIGHT, title, summary, frame, drawing, name=name)
