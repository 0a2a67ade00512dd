"""The API of matters (legal holds), under /api/v1/matters."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from ..auth import Principal, get_service, require_scope
from ..matters import Author, Matter, MatterAddition
from ..problems import Problem
from ..service import Service, run_in_writer_thread
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
def list_matters(
    request: Request, principal: Annotated[Principal, Read], released: bool = False
) -> list[dict[str, Any]]:
    """List the active matters, or the released ones, without the ids of their people."""
    service = get_service(request)
    return [_view_matter(service, matter) for matter in service.matters.list_all(released=released)]


@router.post("", status_code=201, response_model=MatterWithCounts, openapi_extra=describe_body(NewMatter))
async def open_matter(request: Request, principal: Annotated[Principal, Admin], response: Response) -> dict[str, Any]:
    """Open a matter. Requests to erase its people wait until it is released."""
    service, body = get_service(request), await read_body(request, NewMatter)
    _check_id_count(service, body.ids)
    added = await run_in_writer_thread(
        service.matters.open, body.name, body.reason, _to_utc(body.review), _author(principal), body.ids
    )
    response.headers["Location"] = f"/api/v1/matters/{added.matter.id}"
    return _view_added(service, added)


@router.post("/lookup", response_model=list[list[MatterView]], openapi_extra=describe_body(IdsBody))
async def find_matters(request: Request, principal: Annotated[Principal, Admin]) -> list[list[dict[str, Any]]]:
    """Return the matters that each person is on, in the order of the ids."""
    service, body = get_service(request), await read_body(request, IdsBody)
    _check_id_count(service, body.ids)
    by_person = await run_in_writer_thread(service.matters.find_by_people, body.ids)
    return [[_view_matter(service, matter) for matter in matters] for matters in by_person]


@router.get("/{id}", response_model=MatterDetails)
def get_matter(request: Request, id: str, principal: Annotated[Principal, Read]) -> dict[str, Any]:  # noqa: A002
    """Return a matter, the requests that wait for it, and its log."""
    service = get_service(request)
    view = _view_matter(service, service.matters.get(id))
    log = [entry.view() for entry in service.matters.log(id)]
    return view | {"waiting": service.matters.waiting_jobs(id), "log": log}


@router.patch("/{id}", response_model=MatterView, openapi_extra=describe_body(MatterChange))
async def set_review(request: Request, id: str, principal: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Set the date on which a matter has to be reviewed."""
    service, body = get_service(request), await read_body(request, MatterChange)
    return _view_matter(
        service, await run_in_writer_thread(service.matters.set_review, id, _to_utc(body.review), _author(principal))
    )


@router.post("/{id}/people", response_model=MatterWithCounts, openapi_extra=describe_body(IdsBody))
async def add_people(request: Request, id: str, principal: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Add people to a matter."""
    service, body = get_service(request), await read_body(request, IdsBody)
    _check_id_count(service, body.ids)
    return _view_added(
        service, await run_in_writer_thread(service.matters.add_people, id, body.ids, _author(principal))
    )


@router.get("/{id}/release", response_model=ReleaseView)
def plan_release(request: Request, id: str, principal: Annotated[Principal, Read]) -> dict[str, Any]:  # noqa: A002
    """Return what releasing a matter would do, without releasing it."""
    return get_service(request).matters.preview_release(id).view()


@router.post(
    "/{id}/release",
    response_model=MatterView,
    openapi_extra=describe_body(MatterRelease),
    responses={202: {"model": MatterView, "description": "requested; another token has to confirm it"}},
)
async def release_matter(
    request: Request,
    id: str,  # noqa: A002
    principal: Annotated[Principal, Admin],
    response: Response,
) -> dict[str, Any]:
    """Release a matter, or only some of its people. Requests that waited for it get a new cancellation period."""
    service, body = get_service(request), await read_body(request, MatterRelease)
    matter = await run_in_writer_thread(
        service.matters.release, id, body.name, body.reason, _author(principal), body.ids
    )
    response.status_code = 200 if matter.release is None else 202
    return _view_matter(service, matter)


@router.delete("/{id}/release", response_model=MatterView)
def withdraw_release(request: Request, id: str, principal: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Withdraw a release that waits for confirmation."""
    service = get_service(request)
    return _view_matter(service, service.matters.withdraw_release(id, _author(principal)))


@router.post("/{id}/release/confirmation", response_model=MatterView, openapi_extra=describe_body(ReleaseConfirmation))
async def confirm_release(request: Request, id: str, principal: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Confirm a release that another token requested."""
    service, body = get_service(request), await read_body(request, ReleaseConfirmation)
    confirm = service.matters.confirm_release
    return _view_matter(
        service, await run_in_writer_thread(confirm, id, body.name, _author(principal), service.tokens.is_valid)
    )


def _author(principal: Principal) -> Author:
    return Author(principal.name, principal.token_id)


def _view_matter(service: Service, matter: Matter) -> dict[str, Any]:
    return matter.view(service.clock())


def _view_added(service: Service, added: MatterAddition) -> dict[str, Any]:
    counts = {"added": added.people, "present": added.present, "erased": added.erased, "unknown": added.unknown}
    return _view_matter(service, added.matter) | counts | {"similar": added.similar}


def _check_id_count(service: Service, ids: list[Any]) -> None:
    if len(ids) > service.options.max_ids:
        raise Problem(
            422,
            "invalid-input",
            f"a request can name at most {service.options.max_ids:,} ids, but this one names {len(ids):,}",
        )


def _to_utc(time: datetime | None) -> datetime | None:
    try:
        return None if time is None else time.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise Problem(422, "invalid-request", "review: the time is out of range") from None
