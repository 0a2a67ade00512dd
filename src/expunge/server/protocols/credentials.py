"""Credentials: tokens of ours that come otherwise than as Bearer, as other systems send them."""

import base64
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials

from ..access import Who, admitted, bearer
from ..tokens import Scope


def needs_basic(scope: Scope) -> Any:
    """Who asks with a token as Bearer, or as the password of Basic."""
    return _needs(scope, _password)


def needs_bare(scope: Scope) -> Any:
    """Who asks with a token as Bearer, or as all that Authorization says."""
    return _needs(scope, str.strip)


def _needs(scope: Scope, token: Callable[[str], str]) -> Any:
    def allowed(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Who:
        said = request.headers.get("authorization", "")
        if credentials is None and said:
            credentials = HTTPAuthorizationCredentials(scheme="", credentials=token(said))
        return admitted(request, credentials, scope)

    return Depends(allowed)


def _password(said: str) -> str:
    scheme, _, rest = said.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
