"""Matters over HTTP, under /api/v1/matters: legal holds, who is on them, and their release in two steps."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from ..access import Who, needs, service_of
from ..matters import Added, Author, Matter
from ..problems import Problem
from ..service import Service
from ..threads import run_in_writers
from ..views import matter_entry_view, matter_view, release_view
from .answers import PROBLEMS, MatterAdded, MatterDetails, MatterView, ReleaseView
from .models import Ids, MatterChange, MatterRelease, NewMatter, ReleaseConfirmation, body_of, read_body

router = APIRouter(prefix="/api/v1/matters", tags=["own API"], responses=PROBLEMS)
Read, Admin = needs("read"), needs("admin")


@router.get("", response_model=list[MatterView])
def matters(request: Request, who: Annotated[Who, Read], released: bool = False) -> list[dict[str, Any]]:
    """The matters in force, or those that were released; whom they hold is not told."""
    service = service_of(request)
    return [_view(service, matter) for matter in service.matters.all(released=released)]


@router.post("", status_code=201, response_model=MatterAdded, openapi_extra=body_of(NewMatter))
async def open_matter(request: Request, who: Annotated[Who, Admin], response: Response) -> dict[str, Any]:
    """Open a matter: requests to erase its people wait until it is released."""
    service, body = service_of(request), await read_body(request, NewMatter)
    _check_number(service, body.ids)
    added = await run_in_writers(
        service.matters.open, body.name, body.reason, _utc(body.review), _author(who), body.ids
    )
    response.headers["Location"] = f"/api/v1/matters/{added.matter.id}"
    return _added(service, added)


@router.post("/lookup", response_model=list[list[MatterView]], openapi_extra=body_of(Ids))
async def look_up(request: Request, who: Annotated[Who, Admin]) -> list[list[dict[str, Any]]]:
    """The matters that each of these people is on, in their order."""
    service, body = service_of(request), await read_body(request, Ids)
    _check_number(service, body.ids)
    found = await run_in_writers(service.matters.look_up, body.ids)
    return [[_view(service, matter) for matter in some] for some in found]


@router.get("/{id}", response_model=MatterDetails)
def matter(request: Request, id: str, who: Annotated[Who, Read]) -> dict[str, Any]:  # noqa: A002
    """A matter, the requests that wait on it, and who did what to it."""
    service = service_of(request)
    found = _view(service, service.matters.get(id))
    log = [matter_entry_view(entry) for entry in service.matters.log(id)]
    return found | {"waiting": service.matters.waiting(id), "log": log}


@router.patch("/{id}", response_model=MatterView, openapi_extra=body_of(MatterChange))
async def change(request: Request, id: str, who: Annotated[Who, Admin]) -> dict[str, Any]:  # noqa: A002
    """Set the date on which somebody has to look at a matter again."""
    service, body = service_of(request), await read_body(request, MatterChange)
    return _view(service, await run_in_writers(service.matters.set_review, id, _utc(body.review), _author(who)))


@router.post("/{id}/people", response_model=MatterAdded, openapi_extra=body_of(Ids))
async def add_people(request: Request, id: str, who: Annotated[Who, Admin]) -> dict[str, Any]:  # noqa: A002
    """Put more people on a matter."""
    service, body = service_of(request), await read_body(request, Ids)
    _check_number(service, body.ids)
    return _added(service, await run_in_writers(service.matters.add_people, id, body.ids, _author(who)))


# Releasing


@router.get("/{id}/release", response_model=ReleaseView)
def plan_release(request: Request, id: str, who: Annotated[Who, Read]) -> dict[str, Any]:  # noqa: A002
    """What will happen when a matter is released; nothing does yet."""
    return release_view(service_of(request).matters.plan_release(id))


@router.post(
    "/{id}/release",
    response_model=MatterView,
    openapi_extra=body_of(MatterRelease),
    responses={202: {"model": MatterView, "description": "asked for: another token has to confirm it"}},
)
async def release(request: Request, id: str, who: Annotated[Who, Admin], response: Response) -> dict[str, Any]:  # noqa: A002
    """Release a matter, or only some people from it. Requests that waited for it start their window again."""
    service, body = service_of(request), await read_body(request, MatterRelease)
    found = await run_in_writers(service.matters.release, id, body.name, body.reason, _author(who), body.ids)
    response.status_code = 200 if found.release is None else 202
    return _view(service, found)


@router.delete("/{id}/release", response_model=MatterView)
def withdraw_release(request: Request, id: str, who: Annotated[Who, Admin]) -> dict[str, Any]:  # noqa: A002
    """Withdraw a release that waits for a second token."""
    service = service_of(request)
    return _view(service, service.matters.withdraw_release(id, _author(who)))


@router.post("/{id}/release/confirmation", response_model=MatterView, openapi_extra=body_of(ReleaseConfirmation))
async def confirm_release(request: Request, id: str, who: Annotated[Who, Admin]) -> dict[str, Any]:  # noqa: A002
    """Confirm the release that another token asked for."""
    service, body = service_of(request), await read_body(request, ReleaseConfirmation)
    confirm = service.matters.confirm_release
    return _view(service, await run_in_writers(confirm, id, body.name, _author(who), service.tokens.counts))


def _author(who: Who) -> Author:
    return Author(who.name, who.key)


def _view(service: Service, matter: Matter) -> dict[str, Any]:
    return matter_view(matter, service.clock())


def _added(service: Service, added: Added) -> dict[str, Any]:
    counts = {"added": added.people, "present": added.present, "erased": added.erased, "unknown": added.unknown}
    return _view(service, added.matter) | counts | {"similar": added.similar}


def _check_number(service: Service, ids: list[Any]) -> None:
    if len(ids) > service.options.most_ids:
        raise Problem(422, "invalid-input", f"at most {service.options.most_ids:,} ids at a time, got {len(ids):,}")


def _utc(moment: datetime | None) -> datetime | None:
    try:
        return None if moment is None else moment.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise Problem(422, "invalid-request", "review: no such time") from None
