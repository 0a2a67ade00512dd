"""The person's receipt: a page for everybody that checks one, and the page that does so without this service.

Nothing but the public keys is needed, so nobody has to log in; neither the receipt nor the id is kept.
"""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from ...errors import ExpungeError
from ...vault import check_receipt
from ...vault.certificates.keys import public_pem
from ...vault.certificates.personal_receipts import offline_checker_page as offline_page
from ..auth import get_service
from ..logs import log, tag_token
from ..service import Service
from .templating import PageRoute, redirect_to, render_page
from .visitors import (
    SubmittedForm,
    Visitor,
    check_rate,
    delete_session_cookie,
    get_sessions,
    identify_visitor,
    read_session_cookie,
    require_form,
    set_session_cookie,
)

# MERGED login: Login: a token is shown once, and a cookie stands for it until the session ends.


login_router = APIRouter(route_class=PageRoute)

_OWN_PATH = re.compile(r"/(?:[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*)?")


@login_router.get("/login")
def show_login(request: Request, next: Annotated[str, Query(max_length=200)] = "/") -> Response:  # noqa: A002
    """The form."""
    visitor = identify_visitor(request)
    if visitor.who is not None:
        return redirect_to(_safe_path(next))
    return _render_login(request, visitor, _safe_path(next))


def _render_login(request: Request, visitor: Visitor, next_: str, problem: str = "") -> Response:
    return render_page(request, "login.html", visitor, status=422 if problem else 200, next=next_, problem=problem)


@login_router.post("/login")
def log_in(request: Request, posted: Annotated[SubmittedForm, require_form(None)]) -> Response:
    """Begin a session."""
    check_rate(request, f"login {'' if request.client is None else request.client.host}")
    next_ = _safe_path(posted.get("next"))
    token = get_service(request).tokens.authenticate(posted.get("token"))
    if token is None:
        log("login", level="warning", right=False)
        return _render_login(
            request, posted.visitor, next_, "This token is not valid: it is unknown, expired or revoked."
        )
    get_sessions(request).end(read_session_cookie(request))
    response = redirect_to(next_)
    set_session_cookie(request, response, get_sessions(request).begin(token))
    tag_token(token.id)
    get_service(request).audit.record("login", actor=token.name, subject=token.id)
    log("login", right=True)
    return response


@login_router.post("/logout")
def log_out(request: Request, posted: Annotated[SubmittedForm, require_form(None)]) -> Response:
    """End the session."""
    get_sessions(request).end(read_session_cookie(request))
    response = redirect_to("/login")
    delete_session_cookie(request, response)
    return response


def _safe_path(path: str) -> str:
    """A page of ours to go on to; for anything else the overview."""
    return path if _OWN_PATH.fullmatch(path) else "/"


receipt_router = APIRouter(route_class=PageRoute)

_POLICY_TAG = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]+)"')


@receipt_router.get("/receipt")
def show_receipt_form(request: Request) -> Response:
    """The form."""
    return _render_receipt_form(request, identify_visitor(request))


@receipt_router.post("/receipt")
def check_receipt_form(request: Request, posted: Annotated[SubmittedForm, require_form(None)]) -> Response:
    """What a receipt proves to whoever has this id."""
    check_rate(request, f"receipt {'' if request.client is None else request.client.host}")
    text, person = posted.get("receipt"), posted.get("id")
    try:
        said = check_receipt(text, person, _public_keys_pem(get_service(request)))
    except ExpungeError as error:
        return _render_receipt_form(request, posted.visitor, receipt=text, problem=str(error))
    return _render_receipt_form(request, posted.visitor, receipt=text, said=said)


def _render_receipt_form(request: Request, visitor: Visitor, **facts: Any) -> Response:
    thumbprints = get_service(request).vault.public_keys()
    shown: dict[str, Any] = {"receipt": "", "said": None, "problem": "", "keys": thumbprints} | facts
    return render_page(request, "receipt.html", visitor, status=422 if shown["problem"] else 200, **shown)


def _public_keys_pem(service: Service) -> bytes:
    return b"".join(public_pem(one["x"]) for one in service.vault.jwks())


@receipt_router.get("/receipt/check.html")
def download_checker() -> Response:
    """The page that checks receipts without a network, to be saved; its own policy lets only its own script run."""
    text = offline_page()
    policy = _POLICY_TAG.search(text)
    assert policy is not None
    headers = {"Content-Security-Policy": f"{policy[1]}; frame-ancestors 'none'"}
    return Response(text, headers=headers, media_type="text/html; charset=utf-8")


@receipt_router.get("/receipt/keys.pem")
def download_keys(request: Request) -> Response:
    """The public keys that receipts are checked with, the newest first."""
    return Response(_public_keys_pem(get_service(request)), media_type="application/x-pem-file")
