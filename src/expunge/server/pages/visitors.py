"""Visiting: who looks at a page, what they may do, and whether a form comes from a page of ours."""

import hashlib
import hmac
import ipaddress
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials
from starlette.responses import Response

from ...errors import InvalidInput
from ...tables import parse_id_list
from ..auth import Principal, get_service, identify
from ..bodies import media_type
from ..clocks import Clock
from ..logs import log_seldom, tag_token
from ..problems import Problem
from ..tokens import Scope, Token, Tokens

# MERGED fields: Fields: what people type into forms, checked.


_MAX_LINE_LENGTH = 200
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


def check_line(text: str, label: str, *, allow_empty: bool = True) -> str:
    """One line of text that is not too long."""
    if not text and not allow_empty:
        raise Problem(422, "invalid-input", f"Fill in {label}.")
    if len(text) > _MAX_LINE_LENGTH or _CONTROL_CHARACTER.search(text):
        raise Problem(422, "invalid-input", f"Write {label} in one line of at most {_MAX_LINE_LENGTH} characters.")
    return text


def parse_ids(text: str, max_ids: int) -> list[str]:
    """Ids, one per line; spaces around them and lines without one do not count."""
    found = list(dict.fromkeys(parse_id_list(text)))
    if not found:
        raise InvalidInput("Write at least one id, each on a line of its own.")
    if len(found) > max_ids:
        raise InvalidInput(f"A request names at most {max_ids:,} ids, got {len(found):,}.")
    if max(map(len, found)) > 1000:
        raise InvalidInput("An id has at most 1,000 characters.")
    return found


def parse_future_date(text: str, now: datetime) -> datetime | None:
    """The beginning of a day to come, in UTC, or None if none is given."""
    if not text:
        return None
    try:
        found = datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise Problem(422, "invalid-input", "Write the date like 2027-01-31.") from None
    if found <= now:
        raise Problem(422, "invalid-input", "The date must be in the future.")
    return found


# MERGED sessions: Sessions: who has shown a token to the login page. They live in memory, and end with the process.


SESSION_LIFETIME = timedelta(hours=12)
_MAX_SESSIONS = 10_000  # sessions at one time; beyond that the oldest ends
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Session:
    """A browser that showed a token."""

    token: str  # its id
    proof: str  # what a form of this session sends back, so that no other site can send it
    expires: datetime


class Sessions:
    """The sessions of a service. Of a cookie its hash is kept, so that nothing here can be shown as one."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens, self._clock = tokens, clock
        self._lock, self._kept = threading.Lock(), dict[bytes, Session]()

    def begin(self, token: Token) -> str:
        """Begin a session; return the text of its cookie."""
        cookie, now = secrets.token_urlsafe(_SECRET_BYTES), self._clock()
        with self._lock:
            self._kept = {key: one for key, one in self._kept.items() if now < one.expires}
            for key in list(self._kept)[: len(self._kept) - _MAX_SESSIONS + 1]:
                del self._kept[key]
            self._kept[_hash_cookie(cookie)] = Session(
                token.id, secrets.token_urlsafe(_SECRET_BYTES), now + SESSION_LIFETIME
            )
        return cookie

    def find(self, cookie: str) -> tuple[Token, Session] | None:
        """The session of a cookie and its token, if both still count."""
        now = self._clock()
        with self._lock:
            session = self._kept.get(_hash_cookie(cookie))
        if session is None or now >= session.expires:
            return None
        token = next((one for one in self._tokens.list_all() if one.id == session.token and one.is_valid(now)), None)
        return None if token is None else (token, session)

    def end(self, cookie: str) -> None:
        """End a session, if there is one."""
        with self._lock:
            self._kept.pop(_hash_cookie(cookie), None)


def _hash_cookie(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="surrogatepass")).digest()


FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 20
_PROOF_BYTES = 32
_MAX_COOKIE_LENGTH = 200
_FOREIGN_FORM_HELP = (
    "this form was not sent from a page of this service. If you came here through a proxy, the proxy replaces the Host "
    "header, as nginx does by default: whoever runs the service has it pass on the Host that the browser sent, or "
    "starts the service with --public-url and the address of this page (docs/proxies.md)"
)


@dataclass(frozen=True)
class Visitor:
    """Who looks at a page; ``who`` is None for somebody who has not logged in."""

    who: Principal | None
    proof: str  # what their forms send back
    needs_cookie: bool = False  # whether their browser has yet to be given the proof

    def may(self, scope: Scope) -> bool:
        """Whether they may do this."""
        return self.who is not None and self.who.allows(scope)

    @property
    def name(self) -> str:
        """What the ledger says of them."""
        return "" if self.who is None else self.who.name

    @property
    def token_id(self) -> str:
        """What tells visitors apart: the id of their token."""
        return "" if self.who is None else self.who.token_id

    @property
    def logged_in(self) -> bool:
        """Whether there is something to log out of."""
        return self.who is not None and self.who.token is not None


@dataclass(frozen=True)
class SubmittedForm:
    """A form that somebody sent from a page of ours."""

    visitor: Visitor
    fields: dict[str, str]

    def get(self, name: str) -> str:
        """A field without the spaces around it; empty if it is not there."""
        return self.fields.get(name, "").strip()


def get_sessions(request: Request) -> Sessions:
    """The sessions of the service that answers."""
    found: Sessions = request.app.state.sessions
    return found


def identify_visitor(request: Request) -> Visitor:
    """Who looks: the session's token, or somebody on this machine while there are no tokens; else nobody."""
    session = get_sessions(request).find(read_session_cookie(request))
    if session is not None:
        token, kept = session
        tag_token(token.id)
        return Visitor(Principal(token), kept.proof)
    try:
        who: Principal | None = identify(request, None)
    except Problem as problem:
        if problem.status != 401:
            raise
        who = _identify_by_header(request)
    proof = request.cookies.get(_cookie_name(request, "form"), "")
    if 20 <= len(proof) <= _MAX_COOKIE_LENGTH:
        return Visitor(who, proof)
    return Visitor(who, secrets.token_urlsafe(_PROOF_BYTES), needs_cookie=True)


def _identify_by_header(request: Request) -> Principal | None:
    """Whoever sends a token with a request to see a page: no browser does that by itself."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if request.method != "GET" or scheme.lower() != "bearer":
        return None
    return identify(request, HTTPAuthorizationCredentials(scheme=scheme, credentials=text.strip()))


def require_visitor(scope: Scope) -> Any:
    """What a page depends on: a visitor who may do this."""

    def looking(request: Request) -> Visitor:
        visitor = identify_visitor(request)
        check_allowed(request, visitor, scope)
        return visitor

    return Depends(looking)


def require_form(scope: Scope | None) -> Any:
    """What a form's route depends on: a form of ours, from a visitor who may do this; None for everybody."""

    def posted(request: Request, body: Annotated[bytes, Depends(_read_body)]) -> SubmittedForm:
        visitor = identify_visitor(request)
        if scope is not None:
            check_allowed(request, visitor, scope)
        fields = parse_form(request, body)
        proof = fields.pop("proof", "")
        _check_origin(request)
        if not hmac.compare_digest(proof.encode(), visitor.proof.encode()):
            raise Problem(403, "foreign-form", "this form is too old, or was not sent from here: load the page again")
        return SubmittedForm(visitor, fields)

    return Depends(posted)


def check_allowed(request: Request, visitor: Visitor, scope: Scope) -> None:
    """Refuse who may not, or who asks too often."""
    if visitor.who is None:
        raise Problem(401, "no-token", "log in with a token")
    if not visitor.who.allows(scope):
        raise Problem(403, "not-allowed", f"your token does not have the scope {scope}")
    check_rate(request, visitor.who.token_id)


def check_rate(request: Request, key: str) -> None:
    """Refuse who asks too often."""
    limit: Callable[[str], float] = request.app.state.limit
    if (wait := limit(key)) > 0:
        raise Problem(429, "too-many-requests", "slow down", {"Retry-After": str(int(wait) + 1)})


async def _read_body(request: Request) -> bytes:
    return await request.body()


def parse_form(request: Request, body: bytes) -> dict[str, str]:
    """The fields of a form. They stay in memory: a body in parts could be put into a file on the way."""
    if media_type(request) != FORM_TYPE:
        raise Problem(415, "wrong-type", f"a form comes as {FORM_TYPE}")
    try:
        return dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
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
    public = urlsplit(get_service(request).options.base_url)
    if origin and (urlsplit(origin).netloc == host or origin == f"{public.scheme}://{public.netloc}"):
        return
    log_seldom("foreign-form", level="warning", host=_printable_host(host), hint="see docs/proxies.md")
    raise Problem(403, "foreign-form", _FOREIGN_FORM_HELP)


def _printable_host(host: str) -> str:
    """Return a Host header for the log if it is an address: any other text could be whatever somebody sent."""
    name = host.rpartition(":")[0] if re.search(r":[0-9]{1,5}$", host) else host
    try:
        return host if name == "localhost" or ipaddress.ip_address(name.strip("[]")) else ""
    except ValueError:
        return "(a name)" if host else ""


# Cookies


def read_session_cookie(request: Request) -> str:
    """The text of the session's cookie; empty if there is none."""
    return request.cookies.get(_cookie_name(request, "session"), "")[:_MAX_COOKIE_LENGTH]


def set_session_cookie(request: Request, response: Response, cookie: str) -> None:
    """Give a browser its session, and let it forget the proof of who has none."""
    _set_cookie(request, response, "session", cookie, int(SESSION_LIFETIME.total_seconds()))
    _set_cookie(request, response, "form", "", 0)


def delete_session_cookie(request: Request, response: Response) -> None:
    """Let a browser forget its session."""
    _set_cookie(request, response, "session", "", 0)


def set_proof_cookie(request: Request, response: Response, proof: str) -> None:
    """Give a browser without a session what its forms must send back."""
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
    """Whether the browser came by https: to us, or to the proxy that has our public address."""
    public = urlsplit(get_service(request).options.base_url)
    behind = public.scheme == "https" and public.netloc == request.headers.get("host", "")
    return behind or request.url.scheme == "https"


def _cookie_name(request: Request, name: str) -> str:
    """A cookie's name; under https one that browsers take from this very host only, or only if it is secure.

    The first is not possible for a cookie that is sent to one path of a host.
    """
    kind = "" if not _is_secure(request) else "__Secure-" if _root_path(request) else "__Host-"
    return f"{kind}expunge_{name}"


def _root_path(request: Request) -> str:
    found: str = request.scope.get("root_path", "")
    return found
