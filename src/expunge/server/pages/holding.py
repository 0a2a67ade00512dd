"""Legal holds: which there are, a form for more, and a button that ends one."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from ...errors import InvalidInput
from ..access import service_of
from ..problems import Problem, problem_of
from .fields import future, ids, line
from .rendering import PageRoute, page, to
from .visiting import Posted, Visitor, looks, posts

router = APIRouter(route_class=PageRoute)

_EMPTY = {"ids": "", "reason": "", "until": ""}
Number = Annotated[int, Query(ge=0, le=10**9)]


@router.get("/holds")
def holds(
    request: Request, visitor: Annotated[Visitor, looks("read")], made: Number = 0, released: Number = 0
) -> Response:
    """The holds in force; whom they are about is not known here."""
    return _shown(request, visitor, made=made, released=released)


def _shown(
    request: Request,
    visitor: Visitor,
    *,
    typed: dict[str, str] | None = None,
    problem: str = "",
    made: int = 0,
    released: int = 0,
) -> Response:
    found = service_of(request).holds.every()
    facts = {"holds": found, "filled": typed or _EMPTY, "problem": problem, "made": made, "released": released}
    return page(request, "holds.html", visitor, status=422 if problem else 200, **facts)


@router.post("/holds")
def hold(request: Request, posted: Annotated[Posted, posts("admin")]) -> Response:
    """Hold people."""
    service = service_of(request)
    try:
        named = ids(posted.get("ids"), service.options.most_ids)
        reason = line(posted.get("reason"), "the reason", empty=False)
        until = future(posted.get("until"), service.clock())
        made = service.hold(named, reason, until, posted.visitor.name)
    except (InvalidInput, Problem) as error:
        detail = problem_of(error).detail
        return _shown(request, posted.visitor, typed={name: posted.get(name) for name in _EMPTY}, problem=detail)
    return to(f"/holds?made={len(made)}")


@router.post("/holds/{id}/release")
def release(request: Request, id: str, posted: Annotated[Posted, posts("admin")]) -> Response:  # noqa: A002
    """End a hold; what waited for it is carried out soon."""
    service = service_of(request)
    if not service.holds.release(id):
        raise Problem(404, "not-found", "There is no such hold.")
    service.wake()
    return to("/holds?released=1")
