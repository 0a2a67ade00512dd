"""Login: a token is shown once, and a cookie stands for it until the session ends."""

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from ..access import service_of
from ..logs import log, tag_token
from .rendering import PageRoute, page, to
from .visiting import (
    Posted,
    Visitor,
    check_rate,
    give_session,
    posts,
    session_cookie,
    sessions_of,
    take_session,
    visitor_of,
)

router = APIRouter(route_class=PageRoute)

_OURS = re.compile(r"/(?:[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*)?")


@router.get("/login")
def login(request: Request, next: Annotated[str, Query(max_length=200)] = "/") -> Response:  # noqa: A002
    """The form."""
    visitor = visitor_of(request)
    if visitor.who is not None:
        return to(_inside(next))
    return _shown(request, visitor, _inside(next))


def _shown(request: Request, visitor: Visitor, next_: str, problem: str = "") -> Response:
    return page(request, "login.html", visitor, status=422 if problem else 200, next=next_, problem=problem)


@router.post("/login")
def enter(request: Request, posted: Annotated[Posted, posts(None)]) -> Response:
    """Begin a session."""
    check_rate(request, f"login {'' if request.client is None else request.client.host}")
    next_ = _inside(posted.get("next"))
    token = service_of(request).tokens.check(posted.get("token"))
    if token is None:
        log("login", level="warning", right=False)
        return _shown(request, posted.visitor, next_, "This token is not valid: it is unknown, expired or revoked.")
    sessions_of(request).end(session_cookie(request))
    response = to(next_)
    give_session(request, response, sessions_of(request).begin(token))
    tag_token(token.id)
    service_of(request).audit.record("login", actor=token.name, subject=token.id)
    log("login", right=True)
    return response


@router.post("/logout")
def leave(request: Request, posted: Annotated[Posted, posts(None)]) -> Response:
    """End the session."""
    sessions_of(request).end(session_cookie(request))
    response = to("/login")
    take_session(request, response)
    return response


def _inside(path: str) -> str:
    """A page of ours to go on to; for anything else the overview."""
    return path if _OURS.fullmatch(path) else "/"
