"""What stands for a while: legal holds, and verifications that run. A part of the service's own API."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from ..access import Who, needs, service_of
from ..bodies import parsed
from ..problems import Problem
from ..views import hold_view
from .answers import PROBLEMS, Held
from .models import Ids, NewHold, body_of, validated

router = APIRouter(prefix="/api/v1", tags=["own API"], responses=PROBLEMS)
Read, Admin = needs("read"), needs("admin")


# Holds


@router.get("/holds", response_model=list[Held])
def holds(request: Request, who: Annotated[Who, Read], past: bool = False) -> list[dict[str, Any]]:
    """The legal holds in force, or those that are over; whom they are about is not told."""
    found = service_of(request).holds
    return [hold_view(one) for one in (found.past() if past else found.every())]


@router.post("/holds", status_code=201, response_model=list[Held], openapi_extra=body_of(NewHold))
async def hold(request: Request, who: Annotated[Who, Admin]) -> list[dict[str, Any]]:
    """Hold people: requests to erase them are refused, and run by themselves once the hold ends."""
    service, body = service_of(request), validated(NewHold, parsed(await request.body()))
    until = None if body.until is None else _end(body.until, service.clock())
    made = await run_in_threadpool(service.hold, body.ids, body.reason, until, who.name)
    return [hold_view(one) for one in made]


@router.post("/holds/lookup", response_model=list[list[Held]], openapi_extra=body_of(Ids))
async def look_up(request: Request, who: Annotated[Who, Admin]) -> list[list[dict[str, Any]]]:
    """The holds of each of these people, in their order."""
    service, body = service_of(request), validated(Ids, parsed(await request.body()))
    found = await run_in_threadpool(service.holds_of, body.ids)
    return [[hold_view(one) for one in some] for some in found]


def _end(until: datetime, now: datetime) -> datetime:
    if until.tzinfo is None:
        raise Problem(422, "invalid-request", "until: give the zone of the time, like 2027-01-31T00:00:00Z")
    try:
        until = until.astimezone(UTC)
    except OverflowError:
        raise Problem(422, "invalid-request", "until: no such time") from None
    if until <= now:
        raise Problem(422, "invalid-request", "until: this time is over")
    return until


@router.delete("/holds/{id}", status_code=204)
def release(request: Request, id: str, who: Annotated[Who, Admin]) -> None:  # noqa: A002
    """End a hold."""
    service = service_of(request)
    if not service.holds.release(id):
        raise Problem(404, "not-found", "there is no such hold")
    service.wake()


# Verification


@router.post("/verifications", status_code=202)
def verify(request: Request, who: Annotated[Who, Read], response: Response) -> dict[str, Any]:
    """Train again from the surviving rows and compare, check every record and certificate: a job."""
    job = service_of(request).verifications.start()
    response.headers["Location"] = f"/api/v1/verifications/{job.id}"
    return job.view()


@router.get("/verifications/{id}")
def verification(request: Request, id: str, who: Annotated[Who, Read]) -> dict[str, Any]:  # noqa: A002
    """How far a verification is, and what it found."""
    return service_of(request).verifications.get(id).view()
