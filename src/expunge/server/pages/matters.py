"""Matters: the legal holds in force, one with its people counted, its requests and its log, and its release.

A release says first what will happen, and counts only if the matter's name is typed. Where two people have to release,
the second one sees the same, and confirms with another token.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from ...errors import InvalidInput, OnHold, UnknownId
from ..auth import get_service
from ..matters import Author, Matter, MatterAddition
from ..problems import Problem, to_problem
from .erasure import pack_sealed_ids, unpack_sealed_ids
from .templating import PageRoute, redirect_to, render_page
from .visitors import SubmittedForm, Visitor, check_line, parse_future_date, parse_ids, require_form, require_visitor

router = APIRouter(route_class=PageRoute)

PeopleCount = Annotated[int, Query(ge=0, le=10**9)]
_FORM_ERRORS = (InvalidInput, OnHold, UnknownId, Problem)  # what a form can get wrong
_EMPTY_FORM = {"name": "", "reason": "", "ids": "", "review": ""}
_MAX_LISTED = 100  # requests that a matter's page shows


@router.get("/matters")
def show_matters(
    request: Request, visitor: Annotated[Visitor, require_visitor("read")], released: bool = False
) -> Response:
    """The matters in force, or those that were released."""
    return _render_matters(request, visitor, released=released)


def _render_matters(
    request: Request,
    visitor: Visitor,
    *,
    released: bool = False,
    typed: dict[str, str] | None = None,
    problem: str = "",
    **facts: Any,
) -> Response:
    service = get_service(request)
    return render_page(
        request,
        "matters.html",
        visitor,
        status=422 if problem else 200,
        matters=service.matters.list_all(released=released),
        released=released,
        filled=typed or _EMPTY_FORM,
        problem=problem,
        **{"found": None, "asked": "", "lookup_problem": ""} | facts,
    )


@router.post("/matters")
def open_matter(request: Request, posted: Annotated[SubmittedForm, require_form("admin")]) -> Response:
    """Open a matter."""
    service = get_service(request)
    try:
        named = parse_ids(posted.get("ids"), service.options.max_ids)
        name, reason = (check_line(posted.get(name), f"the {name}", allow_empty=False) for name in ("name", "reason"))
        review = parse_future_date(posted.get("review"), service.clock())
        added = service.matters.open(name, reason, review, _author(posted), named)
    except _FORM_ERRORS as error:
        typed = {name: posted.get(name) for name in _EMPTY_FORM}
        return _render_matters(request, posted.visitor, typed=typed, problem=to_problem(error).detail)
    return _redirect_to_matter(added)


@router.post("/matters/lookup")
def find_people(request: Request, posted: Annotated[SubmittedForm, require_form("admin")]) -> Response:
    """The matters that people are on."""
    service, asked = get_service(request), posted.get("people")
    try:
        named = parse_ids(asked, service.options.max_ids)
        found = list(zip(named, service.matters.find_by_people(named), strict=True))
    except _FORM_ERRORS as error:
        return _render_matters(request, posted.visitor, asked=asked, lookup_problem=to_problem(error).detail)
    return _render_matters(request, posted.visitor, asked=asked, found=found)


# One matter


@router.get("/matters/{id}")
def show_matter(
    request: Request,
    id: str,  # noqa: A002 - the name in the address
    visitor: Annotated[Visitor, require_visitor("read")],
    added: PeopleCount | None = None,
    unknown: PeopleCount = 0,
    similar: PeopleCount = 0,
) -> Response:
    """One matter."""
    return _render_matter(
        request, visitor, get_service(request).matters.get(id), added=added, unknown=unknown, similar=similar
    )


def _render_matter(
    request: Request, visitor: Visitor, matter: Matter, *, problem: str = "", typed: str = "", **facts: Any
) -> Response:
    service = get_service(request)
    pending = matter.release is not None and visitor.may("admin")
    return render_page(
        request,
        "matter.html",
        visitor,
        status=422 if problem else 200,
        matter=matter,
        log=service.matters.log(matter.id),
        waiting=[service.queue.get(job) for job in service.matters.waiting_jobs(matter.id)[:_MAX_LISTED]],
        plan=service.matters.preview_release(matter.id) if pending else None,
        own=matter.release is not None and matter.release.token == visitor.token_id,
        problem=problem,
        filled=typed,
        **{"added": None, "unknown": 0, "similar": 0} | facts,
    )


@router.post("/matters/{id}/people")
def add_people(request: Request, id: str, posted: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Put more people on a matter."""
    service = get_service(request)
    try:
        named = parse_ids(posted.get("ids"), service.options.max_ids)
        return _redirect_to_matter(service.matters.add_people(id, named, _author(posted)))
    except _FORM_ERRORS as error:
        return _render_problem(request, posted, id, error)


@router.post("/matters/{id}/review")
def set_review(request: Request, id: str, posted: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Set the date on which somebody has to look at a matter again."""
    service = get_service(request)
    try:
        service.matters.set_review(id, parse_future_date(posted.get("review"), service.clock()), _author(posted))
    except _FORM_ERRORS as error:
        return _render_problem(request, posted, id, error)
    return redirect_to(f"/matters/{id}")


# Releasing


@router.get("/matters/{id}/release")
def preview_release(request: Request, id: str, visitor: Annotated[Visitor, require_visitor("admin")]) -> Response:  # noqa: A002
    """What a release will do, and the form for it; nothing happens yet."""
    return _render_release(request, visitor, id)


def _render_release(
    request: Request, visitor: Visitor, id_: str, named: list[str] | None = None, *, problem: str = "", reason: str = ""
) -> Response:
    service = get_service(request)
    facts: dict[str, Any] = {
        "plan": service.matters.preview_release(id_, named or ()),
        "people": pack_sealed_ids(service.vault.seal(named)) if named else "",
        "two_person": service.options.two_person_release,
        "batched": service.options.batch_every is not None or service.options.batch_size is not None,
    }
    status = 422 if problem else 200
    return render_page(request, "release.html", visitor, status=status, problem=problem, reason=reason, **facts)


@router.post("/matters/{id}/release/people")
def preview_people_release(
    request: Request, id: str, posted: Annotated[SubmittedForm, require_form("admin")]
) -> Response:
    """What the release of some people will do."""
    service = get_service(request)
    try:
        return _render_release(request, posted.visitor, id, parse_ids(posted.get("leaving"), service.options.max_ids))
    except _FORM_ERRORS as error:
        return _render_problem(request, posted, id, error)


@router.post("/matters/{id}/release")
def release_matter(request: Request, id: str, posted: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Release a matter whose name was typed, or ask for it where another token has to confirm."""
    service = get_service(request)
    named = unpack_sealed_ids(service, posted.get("people")) if posted.get("people") else []
    try:
        reason = check_line(posted.get("reason"), "the reason", allow_empty=False)
        service.matters.release(id, posted.get("name"), reason, _author(posted), named)
    except _FORM_ERRORS as error:
        facts = {"problem": to_problem(error).detail, "reason": posted.get("reason")}
        return _render_release(request, posted.visitor, id, named, **facts)
    return redirect_to(f"/matters/{id}")


@router.post("/matters/{id}/release/confirm")
def confirm_release(request: Request, id: str, posted: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Confirm the release that another token asked for."""
    service = get_service(request)
    try:
        service.matters.confirm_release(id, posted.get("name"), _author(posted), service.tokens.is_valid)
    except _FORM_ERRORS as error:
        return _render_problem(request, posted, id, error)
    return redirect_to(f"/matters/{id}")


@router.post("/matters/{id}/release/withdraw")
def withdraw_release(request: Request, id: str, posted: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Withdraw a release that waits for its second token."""
    get_service(request).matters.withdraw_release(id, _author(posted))
    return redirect_to(f"/matters/{id}")


def _render_problem(request: Request, posted: SubmittedForm, id_: str, error: Exception) -> Response:
    """The matter's page, with what is wrong and what was typed."""
    matter = get_service(request).matters.get(id_)
    return _render_matter(request, posted.visitor, matter, problem=to_problem(error).detail, typed=posted.get("ids"))


def _redirect_to_matter(added: MatterAddition) -> Response:
    counts = f"added={added.people}&unknown={added.unknown}&similar={added.similar}"
    return redirect_to(f"/matters/{added.matter.id}?{counts}")


def _author(posted: SubmittedForm) -> Author:
    return Author(posted.visitor.name, posted.visitor.token_id)
