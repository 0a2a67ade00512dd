"""Authentication and authorisation of HTTP requests.

Every route requires a scope. While no token exists, requests from this machine are allowed everything. Tokens come as
Bearer or, from systems that cannot send that, as the password of Basic or as the bare Authorization header.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from .logs import tag_token
from .problems import Problem
from .service import Service
from .tokens import Scope, Token

LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]", "::1"}
_PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_CHALLENGE = {"WWW-Authenticate": "Bearer"}

bearer = HTTPBearer(auto_error=False, description="A token from `expunge token new`.")


@dataclass(frozen=True)
class Principal:
    """The caller: a token, or an anonymous caller on this machine while there are no tokens."""

    token: Token | None

    @property
    def name(self) -> str:
        """The name that the ledger records."""
        return "" if self.token is None else self.token.name

    @property
    def token_id(self) -> str:
        """The token's id, which tells callers apart."""
        return "" if self.token is None else self.token.id

    def allows(self, scope: Scope) -> bool:
        """Return whether the caller has this scope."""
        return self.token is None or self.token.allows(scope)

    @property
    def can_see_people(self) -> bool:
        """Whether the caller may learn if an id is in the vault."""
        return self.allows("erase") or self.allows("read")


def get_service(request: Request) -> Service:
    """Return the service behind the application."""
    service: Service = request.app.state.service
    return service


def identify(request: Request, credentials: HTTPAuthorizationCredentials | None) -> Principal:
    """Return the caller; raise a Problem without a valid token."""
    service = get_service(request)
    text = None if credentials is None else credentials.credentials
    if text is None and not service.tokens.has_any():
        if (request.url.hostname or "") not in LOCAL_HOSTS:  # DNS rebinding: a foreign name leads to this machine
            raise Problem(403, "not-allowed", "without a token, only localhost may connect, under that name")
        if any(name in request.headers for name in _PROXY_HEADERS):
            raise Problem(
                403, "not-allowed", "this request came through a proxy: create a token first (expunge token new)"
            )
        return Principal(None)
    token = None if text is None else service.tokens.authenticate(text)
    if token is None:
        raise Problem(401, "no-token", "send a valid token: Authorization: Bearer ...", _CHALLENGE)
    tag_token(token.id)
    return Principal(token)


def _refuse_cross_site(request: Request) -> None:
    """Refuse requests that a browser on this machine sends for a page of another site."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "none")
    if site not in ("none", "same-origin") or (origin is not None and urlsplit(origin).netloc != request.url.netloc):
        raise Problem(403, "not-allowed", "requests from pages of other sites need a token")


def authorize(request: Request, credentials: HTTPAuthorizationCredentials | None, *scopes: Scope) -> Principal:
    """Return the caller; raise a Problem unless they have one of these scopes and stay within the rate limit."""
    caller = identify(request, credentials)
    if caller.token is None:
        _refuse_cross_site(request)
    if not any(map(caller.allows, scopes)):
        raise Problem(403, "not-allowed", f"the token lacks the scope {' or '.join(map(repr, scopes))}")
    check_rate(request, caller.token_id)
    return caller


def check_rate(request: Request, key: str) -> None:
    """Refuse a caller that exceeds the rate limit."""
    limit: Callable[[str], float] = request.app.state.limit
    if (wait := limit(key)) > 0:
        raise Problem(429, "too-many-requests", "too many requests: retry later", {"Retry-After": str(int(wait) + 1)})


def require_scope(*scopes: Scope, extract_token: Callable[[str], str] | None = None) -> Any:
    """Return a dependency for routes: the caller, who must have one of these scopes.

    ``extract_token`` returns the token in an Authorization header that is not Bearer; by default none is accepted.
    """

    def check(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
    ) -> Principal:
        header = request.headers.get("authorization", "")
        if extract_token is not None and credentials is None and header:
            credentials = HTTPAuthorizationCredentials(scheme="", credentials=extract_token(header))
        return authorize(request, credentials, *scopes)

    return Depends(check)


def basic_password(header: str) -> str:
    """Return the password of Basic in an Authorization header, or an empty text."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
