"""Access: who may do what. A scope is asked for by every route; without any token only this machine may ask."""

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
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_CHALLENGE = {"WWW-Authenticate": "Bearer"}

bearer = HTTPBearer(auto_error=False, description="A token that `expunge token new` made.")


@dataclass(frozen=True)
class Who:
    """Who asks: a token, or somebody on this machine while there are no tokens."""

    token: Token | None

    @property
    def name(self) -> str:
        """What the ledger says of who asked."""
        return "" if self.token is None else self.token.name

    @property
    def key(self) -> str:
        """What tells callers apart."""
        return "" if self.token is None else self.token.id

    def allows(self, scope: Scope) -> bool:
        """Whether they may do this."""
        return self.token is None or self.token.allows(scope)

    @property
    def sees_people(self) -> bool:
        """Whether they may learn of an id whether it is in the vault."""
        return self.allows("erase") or self.allows("read")


def service_of(request: Request) -> Service:
    """The service that answers."""
    found: Service = request.app.state.service
    return found


def identified(request: Request, credentials: HTTPAuthorizationCredentials | None) -> Who:
    """Who asks, or a refusal."""
    service = service_of(request)
    text = None if credentials is None else credentials.credentials
    if text is None and not service.tokens.any():
        if (request.url.hostname or "") not in LOCAL_HOSTS:  # a page elsewhere that has a name lead here
            raise Problem(403, "not-allowed", "without a token only this machine may ask, by the name localhost")
        if any(name in request.headers for name in _FORWARDED):
            raise Problem(403, "not-allowed", "this came through a proxy: make a token first (expunge token new)")
        return Who(None)
    token = None if text is None else service.tokens.check(text)
    if token is None:
        raise Problem(401, "no-token", "send a token that counts: Authorization: Bearer ...", _CHALLENGE)
    tag_token(token.id)
    return Who(token)


def _refuse_pages_of_others(request: Request) -> None:
    """Refuse what a page of another site had a browser on this machine send: without a token nothing else tells."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "none")
    if site not in ("none", "same-origin") or (origin is not None and urlsplit(origin).netloc != request.url.netloc):
        raise Problem(403, "not-allowed", "without a token no other page may ask")


def admitted(request: Request, credentials: HTTPAuthorizationCredentials | None, *scopes: Scope) -> Who:
    """Who asks, if one of these scopes is theirs and they do not ask too often."""
    who = identified(request, credentials)
    if who.token is None:
        _refuse_pages_of_others(request)
    if not any(map(who.allows, scopes)):
        raise Problem(403, "not-allowed", f"the token lacks the scope {' or '.join(map(repr, scopes))}")
    limit: Callable[[str], float] = request.app.state.limit
    if (wait := limit(who.key)) > 0:
        raise Problem(429, "too-many-requests", "slow down", {"Retry-After": str(int(wait) + 1)})
    return who


def needs(*scopes: Scope) -> Any:
    """What a route depends on: who asks, who must have one of these scopes."""

    def allowed(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Who:
        return admitted(request, credentials, *scopes)

    return Depends(allowed)
