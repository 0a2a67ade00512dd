"""The overview: what the vault holds, what waits and how long it may, and three small charts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import median
from typing import Annotated

from fastapi import APIRouter, Request, Response
from markupsafe import Markup, escape

from ...vault import LoggedRequest
from ..auth import get_service
from ..clocks import format_time, parse_time
from ..queue import ERASURE, OPEN_STATES, JobFilter
from ..service import Service
from .templating import PageRoute, format_count, format_seconds, pluralize, redirect_to, render_page
from .visitors import SubmittedForm, Visitor, require_form, require_visitor

# MERGED charts: Charts: small pictures in SVG. Their colours are classes of the style, so that they follow a dark page.


_WIDTH, _HEIGHT = 340, 140
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 10, 22  # margins; the axes' labels are left and below
_MAX_POINTS = 400


def draw_requests_per_day(days: Sequence[tuple[date, int]]) -> Markup:
    """Bars: how many requests came each day."""
    most, total = max(n for _, n in days), sum(n for _, n in days)
    step = (_WIDTH - _LEFT - _RIGHT) / len(days)
    bars = [
        _draw_bar(_LEFT + k * step + 1, step - 2, n / max(most, 1), f"{_format_day(one)}: {pluralize(n, 'request')}")
        for k, (one, n) in enumerate(days)
    ]
    said = f"{pluralize(total, 'request')} in {len(days)} days" + (
        f", at most {format_count(most)} in one day" if total else ""
    )
    return _draw_chart(
        "Requests per day", said, bars, (_format_day(days[0][0]), "today"), ("0", format_count(max(most, 1)))
    )


def draw_erasure_seconds(times: Sequence[float], median_time: float) -> Markup:
    """Bars: how long each of the newest erasures took; a line at the median."""
    most = max(times)
    step = min((_WIDTH - _LEFT - _RIGHT) / len(times), 14.0)
    bars = [
        _draw_bar(
            _LEFT + k * step + 0.5,
            max(step - 1, 1),
            one / most,
            f"{_describe_position(k, len(times))}: {format_seconds(one)}",
        )
        for k, one in enumerate(times)
    ]
    y = _y_position(median_time / most)
    line = Markup('<line class="middle" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(_LEFT, _WIDTH - _RIGHT, y, y)
    said = f"The last {pluralize(len(times), 'erasure')}: half took at most {format_seconds(median_time)}, the slowest {format_seconds(most)}"
    newest = "newest" if step * len(times) > 0.8 * (_WIDTH - _LEFT - _RIGHT) else ""
    return _draw_chart("Time to forget", said, [*bars, line], ("oldest", newest), ("0", format_seconds(most)))


def _describe_position(k: int, total: int) -> str:
    return "newest" if k == total - 1 else f"{pluralize(total - 1 - k, 'erasure')} before the newest"


def draw_rows_held(points: Sequence[tuple[datetime, int]], now: datetime) -> Markup:
    """A line that steps: how many rows the vault held."""
    points = [*points[:: max(1, len(points) // _MAX_POINTS)], (max(now, points[-1][0]), points[-1][1])]
    first, last = points[0][0], points[-1][0]
    whole = max((last - first) / timedelta(seconds=1), 1.0)
    most, least = max(n for _, n in points), min(n for _, n in points)
    low = max(0, least - max(most - least, most // 20, 1))  # a change is seen, whatever the size of the vault

    def place(time: datetime, n: int) -> tuple[float, float]:
        share = (time - first) / timedelta(seconds=1) / whole
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT), _y_position((n - low) / max(most - low, 1))

    x, y = place(*points[0])
    path, spots = f"M{x:.1f} {y:.1f}", list[Markup]()
    for (time, n), (_, held) in zip(points[1:], points, strict=False):
        before, (x, y) = x, place(time, n)
        path += f"H{x:.1f}V{y:.1f}"
        spots.append(_draw_tooltip_area(before, x, f"{pluralize(held, 'row')} until {_format_day(time.date())}"))
    path += f"H{_WIDTH - _RIGHT}"
    under = f"{path}V{_HEIGHT - _BOTTOM}H{_LEFT}Z"
    parts = Markup('<path class="under" d="{}"/><path class="line" d="{}"/>').format(under, path)
    begun, left = pluralize(points[0][1], "row"), pluralize(points[-1][1], "row")
    said = f"{begun} on {_format_day(first.date())}, {left} now"
    return _draw_chart(
        "Rows held", said, [parts, *spots], (_format_day(first.date()), "now"), (format_count(low), format_count(most))
    )


def _draw_bar(x: float, width: float, share: float, tip: str) -> Markup:
    y = _y_position(share)
    if share > 0:
        y = min(y, _HEIGHT - _BOTTOM - 1.5)
    return Markup(
        '<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
    ).format(x, y, width, _HEIGHT - _BOTTOM - y, tip)


def _y_position(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _format_day(when: date) -> str:
    return f"{when.day} {when:%b}"


def _draw_tooltip_area(left: float, right: float, tip: str) -> Markup:
    """Return a part of a chart that shows nothing but a title when it is pointed at."""
    box = Markup('<rect class="spot" x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}</title></rect>')
    return box.format(left, _TOP, max(right - left, 0.5), _HEIGHT - _TOP - _BOTTOM, tip)


def _draw_chart(title: str, summary: str, parts: Sequence[Markup], x: tuple[str, str], y: tuple[str, str]) -> Markup:
    """Draw a chart with both axes, their ends labelled: left and right, low and high."""
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
    return Markup(
        '<figcaption id="{name}">{}<span>{}</span></figcaption>'
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{name}"><title>{}: {}</title>{}{}</svg>'
    ).format(title, summary, _WIDTH, _HEIGHT, title, summary, frame, Markup("").join(map(escape, parts)), name=name)


# MERGED numbers: Numbers: what the charts of the dashboard show, asked of the queue and of the vault's log.


CHART_DAYS = 30
_CHART_ERASURES = 60  # whose times are shown


@dataclass(frozen=True)
class RequestTotals:
    """How many requests there are."""

    open: int
    held: int
    overdue: int
    done: int
    all: int


def count_requests(service: Service) -> RequestTotals:
    """Count the requests."""
    states = dict[str, int]()
    for (_, _, state), number in service.queue.counts().items():
        states[state] = states.get(state, 0) + number
    row = service.database.fetch_one(
        "SELECT COUNT(*) AS n FROM requests WHERE due < ? AND state IN (?, ?, ?)",
        format_time(service.clock()),
        *OPEN_STATES,
    )
    return RequestTotals(
        open=sum(states.get(one, 0) for one in OPEN_STATES),
        held=states.get("held", 0),
        overdue=0 if row is None else row["n"],
        done=states.get("done", 0),
        all=sum(states.values()),
    )


def count_per_day(service: Service) -> list[tuple[date, int]]:
    """How many requests came on each of the last days."""
    today = service.clock().date()
    first = today - timedelta(days=CHART_DAYS - 1)
    rows = service.database.fetch_all(
        "SELECT substr(received, 1, 10) AS day, COUNT(*) AS n FROM requests WHERE received >= ? GROUP BY 1",
        first.isoformat(),
    )
    found = {row["day"]: row["n"] for row in rows}
    days = [first + timedelta(days=k) for k in range(CHART_DAYS)]
    return [(one, found.get(one.isoformat(), 0)) for one in days]


def read_erasure_seconds(service: Service) -> list[float]:
    """The seconds that the newest erasures took in the vault, the oldest first."""
    rows = service.database.fetch_all(
        "SELECT json_extract(outcome, '$.seconds') AS s FROM requests WHERE kind = ? AND state = 'done'"
        " AND json_extract(outcome, '$.request') IS NOT NULL ORDER BY number DESC LIMIT ?",
        ERASURE,
        _CHART_ERASURES,
    )
    return [float(row["s"]) for row in reversed(rows) if row["s"] is not None]


def median_seconds(times: Sequence[float]) -> float:
    """The median."""
    return float(median(times))


def rows_over_time(log: Sequence[LoggedRequest], rows: int) -> list[tuple[datetime, int]]:
    """How many rows the vault held after each of its requests, back to the training, from how many it holds now.

    What was there before a folder was restored is not told by the log.
    """
    found = list[tuple[datetime, int]]()
    for one in reversed(log):
        found.append((parse_time(one.time), rows))
        if one.kind in ("train", "restore", "cloned"):
            break
        rows += {"unlearn": one.rows, "add": -one.rows}.get(one.kind, 0)
    return found[::-1]


overview_router = APIRouter(route_class=PageRoute)

_SHOWN_OPEN, _SHOWN_NEWEST = 6, 6  # requests that are shown
_CHART_REQUESTS = 300  # requests of the vault in the chart of rows: it must not cost more after years


@overview_router.get("/")
def show_overview(request: Request, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:
    """What there is."""
    service = get_service(request)
    now, status, times = service.clock(), service.vault.status(), read_erasure_seconds(service)
    rows = rows_over_time(service.vault.requests[-_CHART_REQUESTS:], status.rows)
    drawn = [draw_requests_per_day(count_per_day(service))]
    if times:
        drawn.append(draw_erasure_seconds(times, median_seconds(times)))
    drawn.append(draw_rows_held(rows, now))
    waiting = sorted(service.queue.page(JobFilter(OPEN_STATES, limit=1000)), key=lambda entry: entry.due)
    return render_page(
        request,
        "overview.html",
        visitor,
        status_=status,
        totals=count_requests(service),
        waiting=waiting[:_SHOWN_OPEN],
        newest=service.queue.page(JobFilter(limit=_SHOWN_NEWEST)),
        charts=drawn,
        outcome=service.verifications.newest_outcome(),  # as /readyz: one that is running does not end the alarm
        job=service.verifications.newest(),
        keys=service.vault.public_keys(),
        options=service.options,
    )


# MERGED verifications: Verifications: a button that starts one, its progress, what it found, and the history.


verification_router = APIRouter(route_class=PageRoute)

_SHOWN_VERIFICATIONS = 50


@verification_router.get("/verify")
def show_verifications(request: Request, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:
    """The newest verification, and those before it."""
    service = get_service(request)
    found = service.verifications.page(_SHOWN_VERIFICATIONS)
    newest = found[0] if found else None
    return render_page(request, "verify.html", visitor, job=newest, history=found, every=service.options.verify_every)


@verification_router.get("/verify/{id}")
def show_verification(request: Request, id: str, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:  # noqa: A002
    """One of them."""
    service = get_service(request)
    return render_page(request, "verification.html", visitor, job=service.verifications.get(id))


@verification_router.post("/verify")
def start_verification(request: Request, posted: Annotated[SubmittedForm, require_form("read")]) -> Response:
    """Start one."""
    visitor = posted.visitor
    get_service(request).verifications.start("page", actor=visitor.name, caller=visitor.token_id)
    return redirect_to("/verify")
