"""Rendering: pages from Jinja templates, with labels and filters for what they show, and static files.

The content security policy lets a page load nothing from other hosts. The address of a static file changes with its
content, so browsers may cache it for good.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException

from ... import __version__
from ...errors import ExpungeError
from ..auth import get_service
from ..clocks import format_time, parse_time
from ..logs import log_error
from ..middleware import prefix_links, route_path
from ..problems import Problem, answer_error, to_problem
from ..queue import Job
from ..verifications import Verification
from .visitors import Visitor, identify_visitor, set_proof_cookie

router = APIRouter()  # of static files

_MEDIA_TYPES = {
    "style.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@lru_cache(maxsize=len(_MEDIA_TYPES))
def read_asset(name: str) -> bytes:
    """Return the content of a static file."""
    return files(__package__).joinpath("static", name).read_bytes()


def asset_url(name: str) -> str:
    """Return the address of a static file."""
    return f"/static/{name}?v={hashlib.sha256(read_asset(name)).hexdigest()[:12]}"


@router.get("/static/{name}")
def serve_asset(name: str) -> Response:
    """Serve a static file."""
    if name not in _MEDIA_TYPES:
        raise Problem(404, "not-found")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(read_asset(name), headers=headers, media_type=_MEDIA_TYPES[name])


STATE_LABELS = {
    "waiting": "Waiting",
    "held": "On hold",
    "running": "Running",
    "erased": "Erased",
    "corrected": "Corrected",
    "done": "Done",
    "not_known": "Not known here",
    "cancelled": "Cancelled",
    "failed": "Failed",
}
_KIND_LABELS = {
    "erasure": "Erasure",
    "rectification": "Correction",
    "addition": "New rows",
    "readmission": "Readmission",
}
_ACTION_LABELS = {
    "unlearn": "erased the rows of",
    "rectify": "replaced the rows of",
    "add": "added rows of",
    "readmit": "allowed the return, after an erasure, of",
    "train": "trained a model on the rows of",
    "replan": "chose the settings again from the rows of",
    "rebound": "set new bounds for the rows of",
    "restore": "repeated the erasures of",
    "clone": "recorded that a clone of the vault was made with the rows of",
    "cloned": "took over, as a clone of another vault, the rows of",
}
_MATTER_EVENT_LABELS = {
    "opened": "Opened",
    "people_added": "Put on hold",
    "review_changed": "Review date set",
    "review_due": "Review was due",
    "release_requested": "Release requested",
    "release_withdrawn": "Release withdrawn",
    "people_released": "Some people released",
    "released": "Released",
}
_PROTOCOL_LABELS = {
    "api": "API",
    "dashboard": "Dashboard",
    "opendsr": "OpenDSR",
    "drp": "Data Rights Protocol",
    "fides": "Fides",
}
_STARTER_LABELS = {
    "schedule": "the schedule",
    "api": "the API",
    "page": "the dashboard",
    "command line": "the command line",
}
_PLURALS = {
    "person": "people",
    "has": "have",
    "is": "are",
    "erasure or correction": "erasures or corrections",
}


def format_count(number: int) -> str:
    """Format a number with commas between thousands."""
    return f"{number:,}"


def pluralize(number: int, singular: str) -> str:
    """Format a number with its noun: "1 row", "2 rows"."""
    return f"{number:,} {singular if number == 1 else _PLURALS.get(singular, singular + 's')}"


def time_element(time: datetime | str | None) -> Markup:
    """Format a time to the minute, in UTC, as HTML."""
    if time is None:
        return Markup("&ndash;")
    time = parse_time(time) if isinstance(time, str) else time.astimezone(UTC)
    text = f"{time.day} {time:%b %Y, %H:%M}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(format_time(time), format_time(time), text)


def date_element(time: datetime | str) -> Markup:
    """Format a date as HTML."""
    time = parse_time(time) if isinstance(time, str) else time.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        format_time(time), format_time(time), f"{time.day} {time:%b %Y}"
    )


def format_duration(length: timedelta) -> str:
    """Format a length of time in its largest unit."""
    seconds = abs(length.total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return pluralize(int(seconds // size), unit)
    return "less than a minute"


def format_time_left(job: Job, now: datetime) -> str:
    """Return how much time is left until the deadline of an open request, or how late it is."""
    if not job.open:
        return ""
    return f"{format_duration(job.due - now)} {'left' if job.due >= now else 'late'}"


def is_late(job: Job, now: datetime) -> bool:
    """Return whether an open request is overdue."""
    return job.open and job.due < now


def format_seconds(number: float) -> str:
    """Format seconds, in milliseconds if they are few."""
    if number >= 1:
        return f"{number:.1f} s" if number < 100 else f"{number:,.0f} s"
    return f"{1e3 * number:.0f} ms" if number >= 0.01 else f"{1e3 * number:.1f} ms"


def format_bytes(number: int) -> str:
    """Format a size in bytes, kB, MB or GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000  # type: ignore[assignment]
    return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"


def kind_label(name: str) -> str:
    """Return the name of a kind of request."""
    return _KIND_LABELS.get(name, name)


def describe_features(text: str) -> str:
    """Describe a feature map, given as the code that the vault's status shows."""
    name, settings = text.partition("(")[0], dict(re.findall(r"(\w+)='?([\w+.-]+)", text))
    if name == "Identity":
        return "the inputs as they are"
    if name == "RandomFourier":
        kernels = settings.get("kernel", "gaussian").replace("+", " and ")
        return f"{int(settings.get('n_features', 100)):,} random cosines of the inputs ({kernels})"
    if name == "Powers":
        return f"powers of the inputs up to {settings.get('degree', 2)}"
    return name


def describe_action(name: str) -> str:
    """Describe what a request of the vault did to people."""
    return _ACTION_LABELS.get(name, name)


def shorten_id(id_: str) -> str:
    """Shorten a request's id for display."""
    return id_[:8]


def source_label(protocol: str) -> str:
    """Return the name of the protocol through which a request came."""
    return _PROTOCOL_LABELS.get(protocol, protocol)


def describe_starter(verification: Verification) -> str:
    """Describe who started a verification, and from where."""
    source = _STARTER_LABELS[verification.source]
    return f"{verification.actor} ({source})" if verification.actor else source


FILTERS: dict[str, Callable[..., Any]] = {
    "count": format_count,
    "many": pluralize,
    "moment": time_element,
    "day": date_element,
    "span": format_duration,
    "clock": format_time_left,
    "late": is_late,
    "seconds": format_seconds,
    "size": format_bytes,
    "kind": kind_label,
    "features": describe_features,
    "did": describe_action,
    "short": shorten_id,
    "matter_event": _MATTER_EVENT_LABELS.__getitem__,
    "source": source_label,
    "starter": describe_starter,
    "state": STATE_LABELS.__getitem__,
}

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
# Forms need same-origin: with no-referrer a browser does not say from which page it sends them.
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_ERROR_TITLES = {
    400: "Invalid request",
    403: "Not allowed",
    404: "Page not found",
    405: "Not possible here",
    409: "Not possible now",
    413: "Too large",
    415: "Invalid request",
    422: "Invalid input",
    429: "Too many requests",
    503: "Not available right now",
}
_NOT_FOUND = "The address may be mistyped, or the page may no longer exist."

_environment = Environment(
    loader=PackageLoader("expunge.server.pages"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
_environment.filters |= FILTERS
_environment.globals |= {"static": asset_url, "version": __version__}


def render_page(request: Request, template: str, visitor: Visitor, *, status: int = 200, **facts: Any) -> HTMLResponse:
    """Render a page for a visitor."""
    service = get_service(request)
    text = _environment.get_template(template).render(
        visitor=visitor,
        proof=visitor.proof,
        path=route_path(request.scope),
        now=service.clock(),
        vault_name=service.vault.places.vault.stem,
        complete_by=service.complete_by,
        **facts,
    )
    response = HTMLResponse(prefix_links(text, request.scope.get("root_path", "")), status, headers=_HEADERS)
    if visitor.needs_cookie:
        set_proof_cookie(request, response, visitor.proof)
    return response


def redirect_to(path: str) -> RedirectResponse:
    """Redirect to another page, to be loaded with GET."""
    return RedirectResponse(path, 303)


class PageRoute(APIRoute):
    """A route whose errors are shown as pages."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the handler, wrapped so that its errors become pages."""
        handle = super().get_route_handler()

        async def handle_errors(request: Request) -> Response:
            try:
                return await handle(request)
            except (Problem, HTTPException, RequestValidationError, ExpungeError, LookupError) as error:
                return _render_error(request, to_problem(error))
            except Exception as error:  # unexpected: the log says where it was raised
                log_error("page-failed", error)
                return _render_error(request, to_problem(error))

        return handle_errors


async def answer_browser(request: Request, error: Exception) -> Response:
    """Answer an error that no route handled, such as an unknown address: browsers get a page, others a problem."""
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return await run_in_threadpool(_render_error, request, to_problem(error))
    return await answer_error(request, error)


def _render_error(request: Request, problem: Problem) -> Response:
    """Render the page of an error; a visitor who has to log in is redirected to the login page, and back later."""
    if problem.status == 401:
        back = route_path(request.scope) if request.method == "GET" else "/"
        return redirect_to("/login" if back == "/" else f"/login?next={quote(back)}")
    try:
        visitor = identify_visitor(request)
    except Problem:
        visitor = Visitor(None, "")
    title = _ERROR_TITLES.get(problem.status, "Internal error")
    detail = problem.detail or (_NOT_FOUND if problem.status == 404 else "")
    response = render_page(request, "error.html", visitor, status=problem.status, title=title, detail=detail)
    response.headers.update(problem.headers)
    return response
