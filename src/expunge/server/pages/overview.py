"""The overview: what the vault holds, what waits and how long it may, and three small charts."""

from typing import Annotated

from fastapi import APIRouter, Request, Response

from ..access import service_of
from ..queue import OPEN, Filter
from . import charts, numbers
from .rendering import PageRoute, page
from .visiting import Visitor, looks

router = APIRouter(route_class=PageRoute)

_OPEN, _NEWEST = 6, 6  # requests that are shown
_LOGGED = 300  # requests of the vault in the chart of rows: it must not cost more after years


@router.get("/")
def overview(request: Request, visitor: Annotated[Visitor, looks("read")]) -> Response:
    """What there is."""
    service = service_of(request)
    now, status, times = service.clock(), service.vault.status(), numbers.forgetting(service)
    rows = numbers.rows_over_time(service.vault.requests[-_LOGGED:], status.rows)
    drawn = [charts.requests_per_day(numbers.per_day(service))]
    if times:
        drawn.append(charts.time_to_forget(times, numbers.middle(times)))
    drawn.append(charts.rows_held(rows, now))
    waiting = sorted(service.queue.page(Filter(OPEN, limit=1000)), key=lambda entry: entry.due)
    return page(
        request,
        "overview.html",
        visitor,
        status_=status,
        totals=numbers.totals(service),
        waiting=waiting[:_OPEN],
        newest=service.queue.page(Filter(limit=_NEWEST)),
        charts=drawn,
        outcome=service.verifications.outcome(),  # as /readyz: one that is running does not end the alarm
        job=service.verifications.newest(),
        keys=service.vault.public_keys(),
        options=service.options,
    )
