"""Visiting: who looks at a page, what they may do, and whether a form comes from a page of ours."""

import hmac
import ipaddress
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials
from starlette.responses import Response

from ..access import Who, identified, service_of
from ..bodies import media_type
from ..logs import log_seldom, tag_token
from ..problems import Problem
from ..tokens import Scope
from .sessions import LIFETIME, Sessions

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 20
_PROOF_BYTES = 32
_LONGEST_COOKIE = 200
_FOREIGN = (
    "this form was not sent from a page of this service. If you came here through a proxy, the proxy replaces the Host "
    "header, as nginx does by default: whoever runs the service has it pass on the Host that the browser sent, or "
    "starts the service with --public-url and the address of this page (docs/proxies.md)"
)


@dataclass(frozen=True)
class Visitor:
    """Who looks at a page; ``who`` is None for somebody who has not logged in."""

    who: Who | None
    proof: str  # what their forms send back
    fresh: bool = False  # whether their browser has yet to be given the proof

    def may(self, scope: Scope) -> bool:
        """Whether they may do this."""
        return self.who is not None and self.who.allows(scope)

    @property
    def name(self) -> str:
        """What the ledger says of them."""
        return "" if self.who is None else self.who.name

    @property
    def key(self) -> str:
        """What tells visitors apart: the id of their token."""
        return "" if self.who is None else self.who.key

    @property
    def logged_in(self) -> bool:
        """Whether there is something to log out of."""
        return self.who is not None and self.who.token is not None


@dataclass(frozen=True)
class Posted:
    """A form that somebody sent from a page of ours."""

    visitor: Visitor
    fields: dict[str, str]

    def get(self, name: str) -> str:
        """A field without the spaces around it; empty if it is not there."""
        return self.fields.get(name, "").strip()


def sessions_of(request: Request) -> Sessions:
    """The sessions of the service that answers."""
    found: Sessions = request.app.state.sessions
    return found


def visitor_of(request: Request) -> Visitor:
    """Who looks: the session's token, or somebody on this machine while there are no tokens; else nobody."""
    session = sessions_of(request).find(session_cookie(request))
    if session is not None:
        token, kept = session
        tag_token(token.id)
        return Visitor(Who(token), kept.proof)
    try:
        who: Who | None = identified(request, None)
    except Problem as problem:
        if problem.status != 401:
            raise
        who = _by_header(request)
    proof = request.cookies.get(_name(request, "form"), "")
    if 20 <= len(proof) <= _LONGEST_COOKIE:
        return Visitor(who, proof)
    return Visitor(who, secrets.token_urlsafe(_PROOF_BYTES), fresh=True)


def _by_header(request: Request) -> Who | None:
    """Whoever sends a token with a request to see a page: no browser does that by itself."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if request.method != "GET" or scheme.lower() != "bearer":
        return None
    return identified(request, HTTPAuthorizationCredentials(scheme=scheme, credentials=text.strip()))


def looks(scope: Scope) -> Any:
    """What a page depends on: a visitor who may do this."""

    def looking(request: Request) -> Visitor:
        visitor = visitor_of(request)
        check_allowed(request, visitor, scope)
        return visitor

    return Depends(looking)


def posts(scope: Scope | None) -> Any:
    """What a form's route depends on: a form of ours, from a visitor who may do this; None for everybody."""

    def posted(request: Request, body: Annotated[bytes, Depends(_body)]) -> Posted:
        visitor = visitor_of(request)
        if scope is not None:
            check_allowed(request, visitor, scope)
        fields = form(request, body)
        proof = fields.pop("proof", "")
        _check_origin(request)
        if not hmac.compare_digest(proof.encode(), visitor.proof.encode()):
            raise Problem(403, "foreign-form", "this form is too old, or was not sent from here: load the page again")
        return Posted(visitor, fields)

    return Depends(posted)


def check_allowed(request: Request, visitor: Visitor, scope: Scope) -> None:
    """Refuse who may not, or who asks too often."""
    if visitor.who is None:
        raise Problem(401, "no-token", "log in with a token")
    if not visitor.who.allows(scope):
        raise Problem(403, "not-allowed", f"your token does not have the scope {scope}")
    check_rate(request, visitor.who.key)


def check_rate(request: Request, key: str) -> None:
    """Refuse who asks too often."""
    limit: Callable[[str], float] = request.app.state.limit
    if (wait := limit(key)) > 0:
        raise Problem(429, "too-many-requests", "slow down", {"Retry-After": str(int(wait) + 1)})


async def _body(request: Request) -> bytes:
    return await request.body()


def form(request: Request, body: bytes) -> dict[str, str]:
    """The fields of a form. They stay in memory: a body in parts could be put into a file on the way."""
    if media_type(request) != FORM:
        raise Problem(415, "wrong-type", f"a form comes as {FORM}")
    try:
        return dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
        )
    except ValueError:
        raise Problem(400, "invalid-form", "the form cannot be read") from None


def _check_origin(request: Request) -> None:
    """Refuse a form that does not come from our own pages.

    A browser says so itself (Sec-Fetch-Site), where the connection is secure. Otherwise the page's origin must be our
    public address, or what the request calls us (Host), which proxies replace unless they are told not to.
    """
    if request.headers.get("sec-fetch-site") == "same-origin":
        return
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    public = urlsplit(service_of(request).options.address)
    if origin and (urlsplit(origin).netloc == host or origin == f"{public.scheme}://{public.netloc}"):
        return
    log_seldom("foreign-form", level="warning", host=_printable(host), hint="see docs/proxies.md")
    raise Problem(403, "foreign-form", _FOREIGN)


def _printable(host: str) -> str:
    """Return a Host header for the log if it is an address: any other text could be whatever somebody sent."""
    name = host.rpartition(":")[0] if re.search(r":[0-9]{1,5}$", host) else host
    try:
        return host if name == "localhost" or ipaddress.ip_address(name.strip("[]")) else ""
    except ValueError:
        return "(a name)" if host else ""


# Cookies


def session_cookie(request: Request) -> str:
    """The text of the session's cookie; empty if there is none."""
    return request.cookies.get(_name(request, "session"), "")[:_LONGEST_COOKIE]


def give_session(request: Request, response: Response, cookie: str) -> None:
    """Give a browser its session, and let it forget the proof of who has none."""
    _set(request, response, "session", cookie, int(LIFETIME.total_seconds()))
    _set(request, response, "form", "", 0)


def take_session(request: Request, response: Response) -> None:
    """Let a browser forget its session."""
    _set(request, response, "session", "", 0)


def give_proof(request: Request, response: Response, proof: str) -> None:
    """Give a browser without a session what its forms must send back."""
    _set(request, response, "form", proof, int(LIFETIME.total_seconds()))


def _set(request: Request, response: Response, name: str, text: str, seconds: int) -> None:
    response.set_cookie(
        _name(request, name),
        text,
        max_age=seconds,
        path=_root(request) or "/",
        secure=_secure(request),
        httponly=True,
        samesite="strict",
    )


def _secure(request: Request) -> bool:
    """Whether the browser came by https: to us, or to the proxy that has our public address."""
    public = urlsplit(service_of(request).options.address)
    behind = public.scheme == "https" and public.netloc == request.headers.get("host", "")
    return behind or request.url.scheme == "https"


def _name(request: Request, name: str) -> str:
    """A cookie's name; under https one that browsers take from this very host only, or only if it is secure.

    The first is not possible for a cookie that is sent to one path of a host.
    """
    kind = "" if not _secure(request) else "__Secure-" if _root(request) else "__Host-"
    return f"{kind}expunge_{name}"


def _root(request: Request) -> str:
    found: str = request.scope.get("root_path", "")
    return found
