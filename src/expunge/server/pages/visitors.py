"""Visitors of the pages: their sessions and cookies, what they may do, and the forms that they send.

A form is accepted only from one of our own pages. Sessions live in memory and end with the process.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials
from starlette.responses import Response

from ...errors import InvalidInput
from ...tables import parse_id_list
from ..auth import Principal, check_rate, get_service, identify
from ..bodies import media_type
from ..clocks import Clock
from ..logs import log_seldom, tag_token
from ..problems import Problem
from ..tokens import Scope, Token, Tokens

_MAX_LINE_LENGTH = 200
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


def check_line(text: str, label: str, *, allow_empty: bool = True) -> str:
    """Return a field's text if it is a single line that is not too long."""
    if not text and not allow_empty:
        raise Problem(422, "invalid-input", f"Fill in {label}.")
    if len(text) > _MAX_LINE_LENGTH or _CONTROL_CHARACTER.search(text):
        raise Problem(422, "invalid-input", f"Enter {label} in one line of at most {_MAX_LINE_LENGTH} characters.")
    return text


def parse_ids(text: str, max_ids: int) -> list[str]:
    """Return the distinct ids in a text with one per line; spaces around them and empty lines are ignored."""
    ids = list(dict.fromkeys(parse_id_list(text)))
    if not ids:
        raise InvalidInput("Enter at least one id, each on its own line.")
    if len(ids) > max_ids:
        raise InvalidInput(f"A request can name at most {max_ids:,} ids, but this one names {len(ids):,}.")
    if max(map(len, ids)) > 1000:
        raise InvalidInput("An id can have at most 1,000 characters.")
    return ids


def parse_future_date(text: str, now: datetime) -> datetime | None:
    """Return the beginning of a future day, in UTC, or None for an empty field."""
    if not text:
        return None
    try:
        day = datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise Problem(422, "invalid-input", "Enter the date as 2027-01-31.") from None
    if day <= now:
        raise Problem(422, "invalid-input", "The date must be in the future.")
    return day


SESSION_LIFETIME = timedelta(hours=12)
_MAX_SESSIONS = 10_000  # at a time; then the oldest one ends
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Session:
    """A browser that logged in with a token."""

    token: str  # its id
    proof: str  # sent with every form of this session, so that no other site can forge one
    expires: datetime


class Sessions:
    """The sessions of a service, by the hash of their cookie, so that a copy of this table cannot be used to log in."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens, self._clock = tokens, clock
        self._lock, self._sessions = threading.Lock(), dict[bytes, Session]()

    def begin(self, token: Token) -> str:
        """Begin a session and return its cookie."""
        cookie, now = secrets.token_urlsafe(_SECRET_BYTES), self._clock()
        with self._lock:
            self._sessions = {key: session for key, session in self._sessions.items() if now < session.expires}
            for key in list(self._sessions)[: len(self._sessions) - _MAX_SESSIONS + 1]:
                del self._sessions[key]
            session = Session(token.id, secrets.token_urlsafe(_SECRET_BYTES), now + SESSION_LIFETIME)
            self._sessions[_hash_cookie(cookie)] = session
        return cookie

    def find(self, cookie: str) -> tuple[Token, Session] | None:
        """Return a cookie's token and session, or None if either is no longer valid."""
        now = self._clock()
        with self._lock:
            session = self._sessions.get(_hash_cookie(cookie))
        if session is None or now >= session.expires:
            return None
        for token in self._tokens.list_all():
            if token.id == session.token and token.is_valid(now):
                return token, session
        return None

    def end(self, cookie: str) -> None:
        """End a cookie's session, if it has one."""
        with self._lock:
            self._sessions.pop(_hash_cookie(cookie), None)


def _hash_cookie(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="surrogatepass")).digest()


FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 20
_PROOF_BYTES = 32
_MAX_COOKIE_LENGTH = 200
_FOREIGN_FORM_HELP = (
    "this form was not sent from a page of this service. If the service is behind a proxy, the proxy may replace the "
    "Host header, as nginx does by default: the operator should configure it to pass on the browser's Host, or start "
    "the service with --public-url and the address of this page (docs/proxies.md)"
)


@dataclass(frozen=True)
class Visitor:
    """A visitor of a page; ``principal`` is None until they log in."""

    principal: Principal | None
    proof: str  # sent back with their forms
    needs_cookie: bool = False  # whether their browser does not have the proof yet

    def may(self, scope: Scope) -> bool:
        """Return whether the visitor has a scope."""
        return self.principal is not None and self.principal.allows(scope)

    @property
    def name(self) -> str:
        """Name of their token, as recorded in the ledger."""
        return "" if self.principal is None else self.principal.name

    @property
    def token_id(self) -> str:
        """Id of their token."""
        return "" if self.principal is None else self.principal.token_id

    @property
    def logged_in(self) -> bool:
        """Whether they can log out."""
        return self.principal is not None and self.principal.token is not None


@dataclass(frozen=True)
class SubmittedForm:
    """A form that was sent from one of our pages."""

    visitor: Visitor
    fields: dict[str, str]

    def get(self, name: str) -> str:
        """Return a field without surrounding spaces, or an empty text if it is missing."""
        return self.fields.get(name, "").strip()


def get_sessions(request: Request) -> Sessions:
    """Return the sessions of the service."""
    sessions: Sessions = request.app.state.sessions
    return sessions


def identify_visitor(request: Request) -> Visitor:
    """Return the visitor: by session, by bearer token, or as local while the service has no tokens."""
    login = get_sessions(request).find(read_session_cookie(request))
    if login is not None:
        token, session = login
        tag_token(token.id)
        return Visitor(Principal(token), session.proof)
    try:
        principal: Principal | None = identify(request, None)
    except Problem as problem:
        if problem.status != 401:
            raise
        principal = _identify_by_header(request)
    proof = request.cookies.get(_cookie_name(request, "form"), "")
    if 20 <= len(proof) <= _MAX_COOKIE_LENGTH:
        return Visitor(principal, proof)
    return Visitor(principal, secrets.token_urlsafe(_PROOF_BYTES), needs_cookie=True)


def _identify_by_header(request: Request) -> Principal | None:
    """Return the owner of a bearer token sent with a GET, which no browser does by itself, or None."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if request.method != "GET" or scheme.lower() != "bearer":
        return None
    return identify(request, HTTPAuthorizationCredentials(scheme=scheme, credentials=text.strip()))


def require_visitor(scope: Scope) -> Any:
    """Return the dependency of a page: a visitor who has a scope."""

    def find_visitor(request: Request) -> Visitor:
        visitor = identify_visitor(request)
        check_allowed(request, visitor, scope)
        return visitor

    return Depends(find_visitor)


def require_form(scope: Scope | None) -> Any:
    """Return the dependency of a form's route: a form from one of our pages, by a visitor who has a scope, if any."""

    def read_form(request: Request, body: Annotated[bytes, Depends(_read_body)]) -> SubmittedForm:
        visitor = identify_visitor(request)
        if scope is not None:
            check_allowed(request, visitor, scope)
        fields = parse_form(request, body)
        proof = fields.pop("proof", "")
        _check_origin(request)
        if not hmac.compare_digest(proof.encode(), visitor.proof.encode()):
            raise Problem(403, "foreign-form", "this form has expired, or was not sent from here: reload the page")
        return SubmittedForm(visitor, fields)

    return Depends(read_form)


def check_allowed(request: Request, visitor: Visitor, scope: Scope) -> None:
    """Refuse a visitor who lacks a scope or exceeds the rate limit."""
    if visitor.principal is None:
        raise Problem(401, "no-token", "log in with a token")
    if not visitor.principal.allows(scope):
        raise Problem(403, "not-allowed", f"your token lacks the scope {scope!r}")
    check_rate(request, visitor.principal.token_id)


async def _read_body(request: Request) -> bytes:
    return await request.body()


def parse_form(request: Request, body: bytes) -> dict[str, str]:
    """Return the fields of a form. Multipart bodies are refused: their parts could be spooled to a file."""
    if media_type(request) != FORM_TYPE:
        raise Problem(415, "wrong-type", f"send the form as {FORM_TYPE}")
    try:
        return dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
        )
    except ValueError:
        raise Problem(400, "invalid-form", "the form cannot be read") from None


def _check_origin(request: Request) -> None:
    """Refuse a form that does not come from our own pages.

    On a secure connection the browser says so itself (Sec-Fetch-Site). Otherwise the page's origin must be our public
    address or the request's Host, which proxies replace unless they are configured not to.
    """
    if request.headers.get("sec-fetch-site") == "same-origin":
        return
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    public = urlsplit(get_service(request).options.base_url)
    if origin and (urlsplit(origin).netloc == host or origin == f"{public.scheme}://{public.netloc}"):
        return
    log_seldom("foreign-form", level="warning", host=_printable_host(host), hint="see docs/proxies.md")
    raise Problem(403, "foreign-form", _FOREIGN_FORM_HELP)


def _printable_host(host: str) -> str:
    """Return a Host header for the log if it is an address: anything else could be text that a client made up."""
    name = host.rpartition(":")[0] if re.search(r":[0-9]{1,5}$", host) else host
    try:
        return host if name == "localhost" or ipaddress.ip_address(name.strip("[]")) else ""
    except ValueError:
        return "(a name)" if host else ""


def read_session_cookie(request: Request) -> str:
    """Return the session cookie, or an empty text."""
    return request.cookies.get(_cookie_name(request, "session"), "")[:_MAX_COOKIE_LENGTH]


def set_session_cookie(request: Request, response: Response, cookie: str) -> None:
    """Set the session cookie, and delete the proof of visitors without a session."""
    _set_cookie(request, response, "session", cookie, int(SESSION_LIFETIME.total_seconds()))
    _set_cookie(request, response, "form", "", 0)


def delete_session_cookie(request: Request, response: Response) -> None:
    """Delete the session cookie."""
    _set_cookie(request, response, "session", "", 0)


def set_proof_cookie(request: Request, response: Response, proof: str) -> None:
    """Set the cookie with the proof that forms of a visitor without a session send back."""
    _set_cookie(request, response, "form", proof, int(SESSION_LIFETIME.total_seconds()))


def _set_cookie(request: Request, response: Response, name: str, text: str, seconds: int) -> None:
    response.set_cookie(
        _cookie_name(request, name),
        text,
        max_age=seconds,
        path=_root_path(request) or "/",
        secure=_is_secure(request),
        httponly=True,
        samesite="strict",
    )


def _is_secure(request: Request) -> bool:
    """Return whether the browser uses https, to us or to the proxy at our public address."""
    public = urlsplit(get_service(request).options.base_url)
    proxied = public.scheme == "https" and public.netloc == request.headers.get("host", "")
    return proxied or request.url.scheme == "https"


def _cookie_name(request: Request, name: str) -> str:
    """Return a cookie's name, under https with a prefix that makes browsers enforce where it comes from.

    ``__Host-`` (set by this very host only) is not possible for a cookie with a path; ``__Secure-`` is.
    """
    prefix = "" if not _is_secure(request) else "__Secure-" if _root_path(request) else "__Host-"
    return f"{prefix}expunge_{name}"


def _root_path(request: Request) -> str:
    path: str = request.scope.get("root_path", "")
    return path
