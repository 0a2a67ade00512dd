"""Rendering: a template and its facts as an answer, with the policy that lets a page load nothing from elsewhere."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException

from ... import __version__
from ...errors import ExpungeError
from ..access import service_of
from ..logs import log_error
from ..prefix import path_of, prefix_links
from ..problems import Problem, answer, problem_of
from . import words
from .static import address
from .visiting import Visitor, give_proof, visitor_of

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
# Forms need same-origin: with no-referrer a browser does not say which page it sends them from.
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TITLES = {
    400: "This cannot be read",
    403: "You may not do this",
    404: "There is no such page",
    405: "This cannot be done here",
    409: "Too late",
    413: "Too large",
    415: "This cannot be read",
    422: "This cannot be carried out",
    429: "Slow down",
    503: "Not now: try again",
}
_DETAILS = {404: "The address may be mistyped, or what it led to no longer exists."}  # for problems that have none

_templates = Environment(
    loader=PackageLoader("expunge.server.pages"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
_templates.filters |= words.FILTERS
_templates.globals |= {"static": address, "version": __version__}


def page(request: Request, template: str, visitor: Visitor, *, status: int = 200, **facts: Any) -> HTMLResponse:
    """A page for a visitor."""
    service = service_of(request)
    text = _templates.get_template(template).render(
        visitor=visitor,
        proof=visitor.proof,
        path=path_of(request.scope),
        now=service.clock(),
        vault_name=service.vault.places.vault.stem,
        **facts,
    )
    response = HTMLResponse(prefix_links(text, request.scope.get("root_path", "")), status, headers=_HEADERS)
    if visitor.fresh:
        give_proof(request, response, visitor.proof)
    return response


def to(where: str) -> RedirectResponse:
    """Go on to another page, with GET."""
    return RedirectResponse(where, 303)


class PageRoute(APIRoute):
    """A route whose errors are pages, too."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The handler, and what is shown when it fails."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except (Problem, HTTPException, RequestValidationError, ExpungeError, LookupError) as error:
                return _failed(request, problem_of(error))
            except Exception as error:  # nobody expected it: the log says where it was raised
                log_error("page-failed", error)
                return _failed(request, problem_of(error))

        return handled


async def answer_browser(request: Request, error: Exception) -> Response:
    """Answer an address that is not there: a page for a browser, a problem for everybody else."""
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return await run_in_threadpool(_failed, request, problem_of(error))
    return await answer(request, error)


def _failed(request: Request, problem: Problem) -> Response:
    """The page of an error; who has to log in is led there, and back."""
    if problem.status == 401:
        back = path_of(request.scope) if request.method == "GET" else "/"
        return to("/login" if back == "/" else f"/login?next={quote(back)}")
    try:
        visitor = visitor_of(request)
    except Problem:
        visitor = Visitor(None, "")
    title = _TITLES.get(problem.status, "The service failed")
    detail = problem.detail or _DETAILS.get(problem.status, "")
    answer = page(request, "error.html", visitor, status=problem.status, title=title, detail=detail)
    answer.headers.update(problem.headers)
    return answer
