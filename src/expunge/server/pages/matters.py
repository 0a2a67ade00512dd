"""Matters: the legal holds in force, one with its people counted, its requests and its log, and its release.

A release says first what will happen, and counts only if the matter's name is typed. Where two people have to release,
the second one sees the same, and confirms with another token.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from ...errors import InvalidInput, OnHold, UnknownId
from ..access import service_of
from ..matters import Added, Author, Matter
from ..problems import Problem, problem_of
from .erasing import pack, unpack
from .fields import future, ids, line
from .rendering import PageRoute, page, to
from .visiting import Posted, Visitor, looks, posts

router = APIRouter(route_class=PageRoute)

Number = Annotated[int, Query(ge=0, le=10**9)]
_REFUSED = (InvalidInput, OnHold, UnknownId, Problem)  # what a form can get wrong
_NEW = {"name": "", "reason": "", "ids": "", "review": ""}
_LISTED = 100  # requests that a matter's page shows


@router.get("/matters")
def matters(request: Request, visitor: Annotated[Visitor, looks("read")], released: bool = False) -> Response:
    """The matters in force, or those that were released."""
    return _list(request, visitor, released=released)


def _list(
    request: Request,
    visitor: Visitor,
    *,
    released: bool = False,
    typed: dict[str, str] | None = None,
    problem: str = "",
    **facts: Any,
) -> Response:
    service = service_of(request)
    return page(
        request,
        "matters.html",
        visitor,
        status=422 if problem else 200,
        matters=service.matters.all(released=released),
        released=released,
        filled=typed or _NEW,
        problem=problem,
        **{"found": None, "asked": "", "lookup_problem": ""} | facts,
    )


@router.post("/matters")
def open_matter(request: Request, posted: Annotated[Posted, posts("admin")]) -> Response:
    """Open a matter."""
    service = service_of(request)
    try:
        named = ids(posted.get("ids"), service.options.most_ids)
        name, reason = (line(posted.get(name), f"the {name}", empty=False) for name in ("name", "reason"))
        review = future(posted.get("review"), service.clock())
        added = service.matters.open(name, reason, review, _author(posted), named)
    except _REFUSED as error:
        typed = {name: posted.get(name) for name in _NEW}
        return _list(request, posted.visitor, typed=typed, problem=problem_of(error).detail)
    return _to(added)


@router.post("/matters/lookup")
def look_up(request: Request, posted: Annotated[Posted, posts("admin")]) -> Response:
    """The matters that people are on."""
    service, asked = service_of(request), posted.get("people")
    try:
        named = ids(asked, service.options.most_ids)
        found = list(zip(named, service.matters.look_up(named), strict=True))
    except _REFUSED as error:
        return _list(request, posted.visitor, asked=asked, lookup_problem=problem_of(error).detail)
    return _list(request, posted.visitor, asked=asked, found=found)


# One matter


@router.get("/matters/{id}")
def one_matter(
    request: Request,
    id: str,  # noqa: A002 - the name in the address
    visitor: Annotated[Visitor, looks("read")],
    added: Number | None = None,
    unknown: Number = 0,
    similar: Number = 0,
) -> Response:
    """One matter."""
    return _matter(request, visitor, service_of(request).matters.get(id), added=added, unknown=unknown, similar=similar)


def _matter(
    request: Request, visitor: Visitor, matter: Matter, *, problem: str = "", typed: str = "", **facts: Any
) -> Response:
    service = service_of(request)
    pending = matter.release is not None and visitor.may("admin")
    return page(
        request,
        "matter.html",
        visitor,
        status=422 if problem else 200,
        matter=matter,
        log=service.matters.log(matter.id),
        waiting=[service.queue.get(job) for job in service.matters.waiting(matter.id)[:_LISTED]],
        plan=service.matters.plan_release(matter.id) if pending else None,
        own=matter.release is not None and matter.release.token == visitor.key,
        problem=problem,
        filled=typed,
        **{"added": None, "unknown": 0, "similar": 0} | facts,
    )


@router.post("/matters/{id}/people")
def add_people(request: Request, id: str, posted: Annotated[Posted, posts("admin")]) -> Response:  # noqa: A002
    """Put more people on a matter."""
    service = service_of(request)
    try:
        named = ids(posted.get("ids"), service.options.most_ids)
        return _to(service.matters.add_people(id, named, _author(posted)))
    except _REFUSED as error:
        return _again(request, posted, id, error)


@router.post("/matters/{id}/review")
def set_review(request: Request, id: str, posted: Annotated[Posted, posts("admin")]) -> Response:  # noqa: A002
    """Set the date on which somebody has to look at a matter again."""
    service = service_of(request)
    try:
        service.matters.set_review(id, future(posted.get("review"), service.clock()), _author(posted))
    except _REFUSED as error:
        return _again(request, posted, id, error)
    return to(f"/matters/{id}")


# Releasing


@router.get("/matters/{id}/release")
def plan_release(request: Request, id: str, visitor: Annotated[Visitor, looks("admin")]) -> Response:  # noqa: A002
    """What a release will do, and the form for it; nothing happens yet."""
    return _release(request, visitor, id)


def _release(
    request: Request, visitor: Visitor, id_: str, named: list[str] | None = None, *, problem: str = "", reason: str = ""
) -> Response:
    service = service_of(request)
    facts: dict[str, Any] = {
        "plan": service.matters.plan_release(id_, named or ()),
        "people": pack(service.vault.seal(named)) if named else "",
        "two_person": service.options.two_person_release,
        "batched": service.options.batch_every is not None or service.options.batch_size is not None,
    }
    status = 422 if problem else 200
    return page(request, "release.html", visitor, status=status, problem=problem, reason=reason, **facts)


@router.post("/matters/{id}/release/people")
def plan_people(request: Request, id: str, posted: Annotated[Posted, posts("admin")]) -> Response:  # noqa: A002
    """What the release of some people will do."""
    service = service_of(request)
    try:
        return _release(request, posted.visitor, id, ids(posted.get("leaving"), service.options.most_ids))
    except _REFUSED as error:
        return _again(request, posted, id, error)


@router.post("/matters/{id}/release")
def release(request: Request, id: str, posted: Annotated[Posted, posts("admin")]) -> Response:  # noqa: A002
    """Release a matter whose name was typed, or ask for it where another token has to confirm."""
    service = service_of(request)
    named = unpack(service, posted.get("people")) if posted.get("people") else []
    try:
        reason = line(posted.get("reason"), "the reason", empty=False)
        service.matters.release(id, posted.get("name"), reason, _author(posted), named)
    except _REFUSED as error:
        facts = {"problem": problem_of(error).detail, "reason": posted.get("reason")}
        return _release(request, posted.visitor, id, named, **facts)
    return to(f"/matters/{id}")


@router.post("/matters/{id}/release/confirm")
def confirm_release(request: Request, id: str, posted: Annotated[Posted, posts("admin")]) -> Response:  # noqa: A002
    """Confirm the release that another token asked for."""
    service = service_of(request)
    try:
        service.matters.confirm_release(id, posted.get("name"), _author(posted), service.tokens.counts)
    except _REFUSED as error:
        return _again(request, posted, id, error)
    return to(f"/matters/{id}")


@router.post("/matters/{id}/release/withdraw")
def withdraw_release(request: Request, id: str, posted: Annotated[Posted, posts("admin")]) -> Response:  # noqa: A002
    """Withdraw a release that waits for its second token."""
    service_of(request).matters.withdraw_release(id, _author(posted))
    return to(f"/matters/{id}")


def _again(request: Request, posted: Posted, id_: str, error: Exception) -> Response:
    """The matter's page, with what is wrong and what was typed."""
    matter = service_of(request).matters.get(id_)
    return _matter(request, posted.visitor, matter, problem=problem_of(error).detail, typed=posted.get("ids"))


def _to(added: Added) -> Response:
    counts = f"added={added.people}&unknown={added.unknown}&similar={added.similar}"
    return to(f"/matters/{added.matter.id}?{counts}")


def _author(posted: Posted) -> Author:
    return Author(posted.visitor.name, posted.visitor.key)
