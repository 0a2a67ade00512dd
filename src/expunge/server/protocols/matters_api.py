"""Matters over HTTP, under /api/v1/matters: legal holds, who is on them, and their release in two steps."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from ..auth import Principal, get_service, require_scope
from ..matters import Author, Matter, MatterAddition
from ..problems import Problem
from ..service import Service, run_in_writer_thread
from ..views import matter_entry_view, matter_view, release_view
from .api_models import (
    PROBLEM_RESPONSES,
    IdsBody,
    MatterChange,
    MatterDetails,
    MatterRelease,
    MatterView,
    MatterWithCounts,
    NewMatter,
    ReleaseConfirmation,
    ReleaseView,
    describe_body,
    read_body,
)

router = APIRouter(prefix="/api/v1/matters", tags=["own API"], responses=PROBLEM_RESPONSES)
Read, Admin = require_scope("read"), require_scope("admin")


@router.get("", response_model=list[MatterView])
def list_matters(request: Request, who: Annotated[Principal, Read], released: bool = False) -> list[dict[str, Any]]:
    """The matters in force, or those that were released; whom they hold is not told."""
    service = get_service(request)
    return [_view_matter(service, matter) for matter in service.matters.list_all(released=released)]


@router.post("", status_code=201, response_model=MatterWithCounts, openapi_extra=describe_body(NewMatter))
async def open_matter(request: Request, who: Annotated[Principal, Admin], response: Response) -> dict[str, Any]:
    """Open a matter: requests to erase its people wait until it is released."""
    service, body = get_service(request), await read_body(request, NewMatter)
    _check_id_count(service, body.ids)
    added = await run_in_writer_thread(
        service.matters.open, body.name, body.reason, _to_utc(body.review), _author(who), body.ids
    )
    response.headers["Location"] = f"/api/v1/matters/{added.matter.id}"
    return _view_added(service, added)


@router.post("/lookup", response_model=list[list[MatterView]], openapi_extra=describe_body(IdsBody))
async def find_matters(request: Request, who: Annotated[Principal, Admin]) -> list[list[dict[str, Any]]]:
    """The matters that each of these people is on, in their order."""
    service, body = get_service(request), await read_body(request, IdsBody)
    _check_id_count(service, body.ids)
    found = await run_in_writer_thread(service.matters.find_by_people, body.ids)
    return [[_view_matter(service, matter) for matter in some] for some in found]


@router.get("/{id}", response_model=MatterDetails)
def get_matter(request: Request, id: str, who: Annotated[Principal, Read]) -> dict[str, Any]:  # noqa: A002
    """A matter, the requests that wait on it, and who did what to it."""
    service = get_service(request)
    found = _view_matter(service, service.matters.get(id))
    log = [matter_entry_view(entry) for entry in service.matters.log(id)]
    return found | {"waiting": service.matters.waiting_jobs(id), "log": log}


@router.patch("/{id}", response_model=MatterView, openapi_extra=describe_body(MatterChange))
async def set_review(request: Request, id: str, who: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Set the date on which somebody has to look at a matter again."""
    service, body = get_service(request), await read_body(request, MatterChange)
    return _view_matter(
        service, await run_in_writer_thread(service.matters.set_review, id, _to_utc(body.review), _author(who))
    )


@router.post("/{id}/people", response_model=MatterWithCounts, openapi_extra=describe_body(IdsBody))
async def add_people(request: Request, id: str, who: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Put more people on a matter."""
    service, body = get_service(request), await read_body(request, IdsBody)
    _check_id_count(service, body.ids)
    return _view_added(service, await run_in_writer_thread(service.matters.add_people, id, body.ids, _author(who)))


# Releasing


@router.get("/{id}/release", response_model=ReleaseView)
def plan_release(request: Request, id: str, who: Annotated[Principal, Read]) -> dict[str, Any]:  # noqa: A002
    """What will happen when a matter is released; nothing does yet."""
    return release_view(get_service(request).matters.preview_release(id))


@router.post(
    "/{id}/release",
    response_model=MatterView,
    openapi_extra=describe_body(MatterRelease),
    responses={202: {"model": MatterView, "description": "asked for: another token has to confirm it"}},
)
async def release_matter(
    request: Request, id: str, who: Annotated[Principal, Admin], response: Response
) -> dict[str, Any]:
    """Release a matter, or only some people from it. Requests that waited for it start their window again."""
    service, body = get_service(request), await read_body(request, MatterRelease)
    found = await run_in_writer_thread(service.matters.release, id, body.name, body.reason, _author(who), body.ids)
    response.status_code = 200 if found.release is None else 202
    return _view_matter(service, found)


@router.delete("/{id}/release", response_model=MatterView)
def withdraw_release(request: Request, id: str, who: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Withdraw a release that waits for a second token."""
    service = get_service(request)
    return _view_matter(service, service.matters.withdraw_release(id, _author(who)))


@router.post("/{id}/release/confirmation", response_model=MatterView, openapi_extra=describe_body(ReleaseConfirmation))
async def confirm_release(request: Request, id: str, who: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Confirm the release that another token asked for."""
    service, body = get_service(request), await read_body(request, ReleaseConfirmation)
    confirm = service.matters.confirm_release
    return _view_matter(
        service, await run_in_writer_thread(confirm, id, body.name, _author(who), service.tokens.is_valid)
    )


def _author(who: Principal) -> Author:
    return Author(who.name, who.token_id)


def _view_matter(service: Service, matter: Matter) -> dict[str, Any]:
    return matter_view(matter, service.clock())


def _view_added(service: Service, added: MatterAddition) -> dict[str, Any]:
    counts = {"added": added.people, "present": added.present, "erased": added.erased, "unknown": added.unknown}
    return _view_matter(service, added.matter) | counts | {"similar": added.similar}


def _check_id_count(service: Service, ids: list[Any]) -> None:
    if len(ids) > service.options.max_ids:
        raise Problem(422, "invalid-input", f"at most {service.options.max_ids:,} ids at a time, got {len(ids):,}")


def _to_utc(moment: datetime | None) -> datetime | None:
    try:
        return None if moment is None else moment.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise Problem(422, "invalid-request", "review: no such time") from None
