"""The pages that need no session: login and logout, and the check of a person's receipt.

A token is entered once; a cookie stands for it until the session ends. Checking a receipt needs only the public keys,
so nobody has to log in for it; neither the receipt nor the id is stored.
"""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from ...errors import ExpungeError
from ...vault import check_receipt
from ...vault.certificates.keys import public_pem
from ...vault.certificates.personal_receipts import offline_checker_page
from ..auth import check_rate, get_service
from ..clocks import format_time
from ..logs import log, tag_token
from ..service import Service
from .templating import PageRoute, redirect_to, render_page
from .visitors import (
    SubmittedForm,
    Visitor,
    delete_session_cookie,
    get_sessions,
    identify_visitor,
    read_session_cookie,
    require_form,
    set_session_cookie,
)

router = APIRouter(route_class=PageRoute)

_OWN_PATH = re.compile(r"/(?:[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*)?")
_POLICY_TAG = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]+)"')


@router.get("/login")
def show_login(request: Request, next: Annotated[str, Query(max_length=200)] = "/") -> Response:  # noqa: A002
    """Show the login form, or redirect to the next page if the visitor needs none."""
    visitor = identify_visitor(request)
    if visitor.principal is not None:
        return redirect_to(_safe_path(next))
    return _render_login(request, visitor, _safe_path(next))


def _render_login(request: Request, visitor: Visitor, next_: str, problem: str = "") -> Response:
    return render_page(request, "login.html", visitor, status=422 if problem else 200, next=next_, problem=problem)


@router.post("/login")
def log_in(request: Request, form: Annotated[SubmittedForm, require_form(None)]) -> Response:
    """Begin a session."""
    check_rate(request, f"login {'' if request.client is None else request.client.host}")
    next_ = _safe_path(form.get("next"))
    token = get_service(request).tokens.authenticate(form.get("token"))
    if token is None:
        log("login", level="warning", right=False)
        problem = "This token is not valid: it is unknown, expired or revoked."
        return _render_login(request, form.visitor, next_, problem)
    get_sessions(request).end(read_session_cookie(request))
    response = redirect_to(next_)
    set_session_cookie(request, response, get_sessions(request).begin(token))
    tag_token(token.id)
    get_service(request).audit.record("login", actor=token.name, subject=token.id)
    log("login", right=True)
    return response


@router.post("/logout")
def log_out(request: Request, form: Annotated[SubmittedForm, require_form(None)]) -> Response:
    """End the session."""
    get_sessions(request).end(read_session_cookie(request))
    response = redirect_to("/login")
    delete_session_cookie(request, response)
    return response


def _safe_path(path: str) -> str:
    """Return the path if it is one of our pages, else that of the overview."""
    return path if _OWN_PATH.fullmatch(path) else "/"


@router.get("/receipt")
def show_receipt_form(request: Request) -> Response:
    """Show the form that checks a receipt."""
    return _render_receipt_form(request, identify_visitor(request))


@router.post("/receipt")
def check_receipt_form(request: Request, form: Annotated[SubmittedForm, require_form(None)]) -> Response:
    """Show what a receipt proves about an id."""
    check_rate(request, f"receipt {'' if request.client is None else request.client.host}")
    text, id_ = form.get("receipt"), form.get("id")
    try:
        statement = check_receipt(text, id_, _public_keys_pem(get_service(request)))
    except ExpungeError as error:
        return _render_receipt_form(request, form.visitor, receipt=text, problem=str(error))
    completion = _describe_completion(get_service(request), statement)
    return _render_receipt_form(request, form.visitor, receipt=text, statement=statement, completion=completion)


def _describe_completion(service: Service, statement: dict[str, Any]) -> str:
    """Return whether the erasure or correction of a valid receipt is complete, or by when it will be."""
    if "complete" not in statement:  # another kind of request
        return ""
    settled = service.vault.settled
    if statement["complete"]:
        return "It was complete at once: no setting of the model was chosen with the help of its people."
    if statement["request"] < settled:
        return f"It is complete: request {settled} chose the settings of the model again, without the people who left."
    by = format_time(service.renewals.expected_time())[:10]
    return (
        f"The rows are gone. It is complete with the next renewal, by {by}: some settings of the model were chosen "
        f"with the help of {statement['open']:,} of its {statement['people']:,} people, and are then chosen again."
    )


def _render_receipt_form(request: Request, visitor: Visitor, **facts: Any) -> Response:
    thumbprints = get_service(request).vault.public_keys()
    facts = {"receipt": "", "statement": None, "completion": "", "problem": "", "keys": thumbprints} | facts
    return render_page(request, "receipt.html", visitor, status=422 if facts["problem"] else 200, **facts)


def _public_keys_pem(service: Service) -> bytes:
    return b"".join(public_pem(key["x"]) for key in service.vault.jwks())


@router.get("/receipt/check.html")
def download_checker() -> Response:
    """Serve the page that checks receipts offline; its own policy allows only its own script."""
    text = offline_checker_page()
    policy = _POLICY_TAG.search(text)
    assert policy is not None
    headers = {"Content-Security-Policy": f"{policy[1]}; frame-ancestors 'none'"}
    return Response(text, headers=headers, media_type="text/html; charset=utf-8")


@router.get("/receipt/keys.pem")
def download_keys(request: Request) -> Response:
    """Serve the public keys that receipts are checked with, newest first."""
    return Response(_public_keys_pem(get_service(request)), media_type="application/x-pem-file")
