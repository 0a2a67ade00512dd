"""Access: who may do what. A scope is asked for by every route; without any token only this machine may ask."""

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

bearer = HTTPBearer(auto_error=False, description="A token that `expunge token new` made.")


@dataclass(frozen=True)
class Principal:
    """Who asks: a token, or somebody on this machine while there are no tokens."""

    token: Token | None

    @property
    def name(self) -> str:
        """What the ledger says of who asked."""
        return "" if self.token is None else self.token.name

    @property
    def token_id(self) -> str:
        """What tells callers apart."""
        return "" if self.token is None else self.token.id

    def allows(self, scope: Scope) -> bool:
        """Whether they may do this."""
        return self.token is None or self.token.allows(scope)

    @property
    def can_see_people(self) -> bool:
        """Whether they may learn of an id whether it is in the vault."""
        return self.allows("erase") or self.allows("read")


def get_service(request: Request) -> Service:
    """The service that answers."""
    found: Service = request.app.state.service
    return found


def identify(request: Request, credentials: HTTPAuthorizationCredentials | None) -> Principal:
    """Who asks, or a refusal."""
    service = get_service(request)
    text = None if credentials is None else credentials.credentials
    if text is None and not service.tokens.has_any():
        if (request.url.hostname or "") not in LOCAL_HOSTS:  # a page elsewhere that has a name lead here
            raise Problem(403, "not-allowed", "without a token only this machine may ask, by the name localhost")
        if any(name in request.headers for name in _PROXY_HEADERS):
            raise Problem(403, "not-allowed", "this came through a proxy: make a token first (expunge token new)")
        return Principal(None)
    token = None if text is None else service.tokens.authenticate(text)
    if token is None:
        raise Problem(401, "no-token", "send a token that counts: Authorization: Bearer ...", _CHALLENGE)
    tag_token(token.id)
    return Principal(token)


def _refuse_cross_site(request: Request) -> None:
    """Refuse what a page of another site had a browser on this machine send: without a token nothing else tells."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "none")
    if site not in ("none", "same-origin") or (origin is not None and urlsplit(origin).netloc != request.url.netloc):
        raise Problem(403, "not-allowed", "without a token no other page may ask")


def authorize(request: Request, credentials: HTTPAuthorizationCredentials | None, *scopes: Scope) -> Principal:
    """Who asks, if one of these scopes is theirs and they do not ask too often."""
    who = identify(request, credentials)
    if who.token is None:
        _refuse_cross_site(request)
    if not any(map(who.allows, scopes)):
        raise Problem(403, "not-allowed", f"the token lacks the scope {' or '.join(map(repr, scopes))}")
    limit: Callable[[str], float] = request.app.state.limit
    if (wait := limit(who.token_id)) > 0:
        raise Problem(429, "too-many-requests", "slow down", {"Retry-After": str(int(wait) + 1)})
    return who


def require_scope(*scopes: Scope) -> Any:
    """What a route depends on: who asks, who must have one of these scopes."""

    def allowed(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
    ) -> Principal:
        return authorize(request, credentials, *scopes)

    return Depends(allowed)


# Credentials: tokens of ours that come otherwise than as Bearer, as other systems send them.


def require_scope_basic(scope: Scope) -> Any:
    """Who asks with a token as Bearer, or as the password of Basic."""
    return _require_scope(scope, _basic_password)


def require_scope_bare(scope: Scope) -> Any:
    """Who asks with a token as Bearer, or as all that Authorization says."""
    return _require_scope(scope, str.strip)


def _require_scope(scope: Scope, token: Callable[[str], str]) -> Any:
    def allowed(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
    ) -> Principal:
        said = request.headers.get("authorization", "")
        if credentials is None and said:
            credentials = HTTPAuthorizationCredentials(scheme="", credentials=token(said))
        return authorize(request, credentials, scope)

    return Depends(allowed)


def _basic_password(header: str) -> str:
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
