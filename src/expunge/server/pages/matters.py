"""The pages of matters (legal holds): the list, a single matter with its log, and its release.

Before a release the page shows what will happen, and the matter's name has to be typed to confirm it. If the service
requires two people for a release, the second sees the same preview and confirms with a different token.
"""

from collections.abc import Sequence
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

_PeopleCount = Annotated[int, Query(ge=0, le=10**9)]
_FORM_ERRORS = (InvalidInput, OnHold, UnknownId, Problem)  # mistakes in a form, shown beside it
_EMPTY_FORM = {"name": "", "reason": "", "ids": "", "review": ""}
_MAX_LISTED = 100  # requests listed on a matter's page


@router.get("/matters")
def show_matters(
    request: Request, visitor: Annotated[Visitor, require_visitor("read")], released: bool = False
) -> Response:
    """Show the active matters, or the released ones."""
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
        fields=typed or _EMPTY_FORM,
        problem=problem,
        **{"matches": None, "lookup_ids": "", "lookup_problem": ""} | facts,
    )


@router.post("/matters")
def open_matter(request: Request, form: Annotated[SubmittedForm, require_form("admin")]) -> Response:
    """Open a matter."""
    service = get_service(request)
    try:
        ids = parse_ids(form.get("ids"), service.options.max_ids)
        name, reason = (check_line(form.get(name), f"the {name}", allow_empty=False) for name in ("name", "reason"))
        review = parse_future_date(form.get("review"), service.clock())
        return _redirect_to_matter(service.matters.open(name, reason, review, _author(form), ids))
    except _FORM_ERRORS as error:
        typed = {name: form.get(name) for name in _EMPTY_FORM}
        return _render_matters(request, form.visitor, typed=typed, problem=to_problem(error).detail)


@router.post("/matters/lookup")
def find_people(request: Request, form: Annotated[SubmittedForm, require_form("admin")]) -> Response:
    """Show the matters that each person is on."""
    service, typed = get_service(request), form.get("people")
    try:
        ids = parse_ids(typed, service.options.max_ids)
        matches = list(zip(ids, service.matters.find_by_people(ids), strict=True))
    except _FORM_ERRORS as error:
        return _render_matters(request, form.visitor, lookup_ids=typed, lookup_problem=to_problem(error).detail)
    return _render_matters(request, form.visitor, lookup_ids=typed, matches=matches)


@router.get("/matters/{id}")
def show_matter(
    request: Request,
    id: str,  # noqa: A002
    visitor: Annotated[Visitor, require_visitor("read")],
    added: _PeopleCount | None = None,
    unknown: _PeopleCount = 0,
    similar: _PeopleCount = 0,
) -> Response:
    """Show a matter."""
    return _render_matter(
        request, visitor, get_service(request).matters.get(id), added=added, unknown=unknown, similar=similar
    )


def _render_matter(
    request: Request, visitor: Visitor, matter: Matter, *, problem: str = "", typed_ids: str = "", **facts: Any
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
        own_release=matter.release is not None and matter.release.token == visitor.token_id,
        problem=problem,
        typed_ids=typed_ids,
        **{"added": None, "unknown": 0, "similar": 0} | facts,
    )


@router.post("/matters/{id}/people")
def add_people(request: Request, id: str, form: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Add people to a matter."""
    service = get_service(request)
    try:
        ids = parse_ids(form.get("ids"), service.options.max_ids)
        return _redirect_to_matter(service.matters.add_people(id, ids, _author(form)))
    except _FORM_ERRORS as error:
        return _render_problem(request, form, id, error)


@router.post("/matters/{id}/review")
def set_review(request: Request, id: str, form: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Set the date on which a matter has to be reviewed."""
    service = get_service(request)
    try:
        service.matters.set_review(id, parse_future_date(form.get("review"), service.clock()), _author(form))
    except _FORM_ERRORS as error:
        return _render_problem(request, form, id, error)
    return redirect_to(f"/matters/{id}")


@router.get("/matters/{id}/release")
def preview_release(request: Request, id: str, visitor: Annotated[Visitor, require_visitor("admin")]) -> Response:  # noqa: A002
    """Show what a release will do, and the form that confirms it."""
    return _render_release(request, visitor, id)


def _render_release(
    request: Request, visitor: Visitor, id_: str, ids: Sequence[str] = (), *, problem: str = "", reason: str = ""
) -> Response:
    service = get_service(request)
    facts: dict[str, Any] = {
        "plan": service.matters.preview_release(id_, ids),
        "people": pack_sealed_ids(service.vault.seal(ids)) if ids else "",
        "two_person": service.options.two_person_release,
        "batched": service.options.batch_every is not None or service.options.batch_size is not None,
    }
    status = 422 if problem else 200
    return render_page(request, "release.html", visitor, status=status, problem=problem, reason=reason, **facts)


@router.post("/matters/{id}/release/people")
def preview_people_release(
    request: Request,
    id: str,  # noqa: A002
    form: Annotated[SubmittedForm, require_form("admin")],
) -> Response:
    """Show what releasing some people of a matter will do."""
    service = get_service(request)
    try:
        return _render_release(request, form.visitor, id, parse_ids(form.get("leaving"), service.options.max_ids))
    except _FORM_ERRORS as error:
        return _render_problem(request, form, id, error)


@router.post("/matters/{id}/release")
def release_matter(request: Request, id: str, form: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Release a matter whose name was typed, or request the release if a second token has to confirm it."""
    service = get_service(request)
    ids = unpack_sealed_ids(service, form.get("people")) if form.get("people") else []
    try:
        reason = check_line(form.get("reason"), "the reason", allow_empty=False)
        service.matters.release(id, form.get("name"), reason, _author(form), ids)
    except _FORM_ERRORS as error:
        facts = {"problem": to_problem(error).detail, "reason": form.get("reason")}
        return _render_release(request, form.visitor, id, ids, **facts)
    return redirect_to(f"/matters/{id}")


@router.post("/matters/{id}/release/confirm")
def confirm_release(request: Request, id: str, form: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Confirm a release that another token requested."""
    service = get_service(request)
    try:
        service.matters.confirm_release(id, form.get("name"), _author(form), service.tokens.is_valid)
    except _FORM_ERRORS as error:
        return _render_problem(request, form, id, error)
    return redirect_to(f"/matters/{id}")


@router.post("/matters/{id}/release/withdraw")
def withdraw_release(request: Request, id: str, form: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Withdraw a release that waits for confirmation."""
    get_service(request).matters.withdraw_release(id, _author(form))
    return redirect_to(f"/matters/{id}")


def _render_problem(request: Request, form: SubmittedForm, id_: str, error: Exception) -> Response:
    """Show the matter's page again, with the error and the ids that were typed."""
    matter = get_service(request).matters.get(id_)
    return _render_matter(request, form.visitor, matter, problem=to_problem(error).detail, typed_ids=form.get("ids"))


def _redirect_to_matter(added: MatterAddition) -> Response:
    counts = f"added={added.people}&unknown={added.unknown}&similar={added.similar}"
    return redirect_to(f"/matters/{added.matter.id}?{counts}")


def _author(form: SubmittedForm) -> Author:
    return Author(form.visitor.name, form.visitor.token_id)
