"""Problems: errors as RFC 9457 has them, with one stable type per class of error; no identity is in any."""

import errno
import sqlite3
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from .. import errors
from .logs import log_error

PROBLEM_MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "urn:expunge:problem:"

_STATUS_BY_ERROR: Mapping[type[errors.ExpungeError], int] = {
    errors.InvalidSetting: 422,
    errors.InvalidInput: 422,
    errors.ErasedId: 409,
    errors.UnknownId: 404,
    errors.NothingLearned: 409,
    errors.CapacityExceeded: 409,
    errors.OnHold: 409,
    errors.VaultBusy: 503,
    errors.Unfinished: 503,
    errors.SigningFailed: 503,
    errors.MissingData: 503,
}

_TITLES = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "The token does not allow this",
    404: "There is no such thing",
    405: "This cannot be done here",
    408: "The body came too slowly",
    409: "The state does not allow this",
    413: "The body is too large",
    415: "The body is of a type that is not taken",
    421: "This port does not answer this request",
    422: "The request cannot be carried out as it is",
    428: "A header is missing",
    429: "Too many requests",
    503: "Not now: try again",
}


class Problem(Exception):
    """What is answered instead of what was asked for."""

    def __init__(self, status: int, kind: str, detail: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.headers = status, kind, detail, dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The members of the problem."""
        title = _TITLES.get(self.status, "An error")
        found: dict[str, Any] = {"type": _TYPE_PREFIX + self.kind, "title": title, "status": self.status}
        return found | ({"detail": self.detail} if self.detail else {})

    def response(self) -> JSONResponse:
        """The answer."""
        return JSONResponse(self.body(), self.status, headers=self.headers, media_type=PROBLEM_MEDIA_TYPE)


def to_problem(error: BaseException) -> Problem:
    """The problem that an error is; of an error that nobody expected only that there was one."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.ExpungeError):
        status = next((_STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _STATUS_BY_ERROR), 500)
        retry = {"Retry-After": "1"} if status == 503 else {}
        return Problem(status, _to_kebab_case(type(error).public_name()), str(error), retry)
    if isinstance(error, RequestValidationError):
        places = sorted({".".join(map(str, one["loc"])) + ": " + str(one["msg"]) for one in error.errors()})
        return Problem(422, "invalid-request", "; ".join(places)[:1000])
    if isinstance(error, HTTPException):
        kind = {401: "no-token", 403: "not-allowed", 404: "not-found", 405: "wrong-method"}.get(error.status_code)
        return Problem(error.status_code, kind or "http-error", "", error.headers)
    if type(error) is LookupError:  # and no KeyError, which would be a mistake of ours
        return Problem(404, "not-found")
    if isinstance(error, ClientDisconnect):
        return Problem(400, "cut-off", "the body ended before its end")
    if isinstance(error, sqlite3.OperationalError | OSError):
        full = error.errno == errno.ENOSPC if isinstance(error, OSError) else "full" in str(error)
        detail = "the disk is full" if full else "a file of the service or of the vault cannot be used now"
        return Problem(503, "disk-full" if full else "storage", detail, {"Retry-After": "1"})
    return Problem(500, "unexpected", "the service failed; its log says where, under the id in X-Request-Id")


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error; the log hears of those that somebody has to look at."""
    problem = to_problem(error)
    if problem.status == 500 or problem.kind in ("storage", "disk-full"):
        log_error("request-failed", error, problem=problem.kind)
    return problem.response()


def _to_kebab_case(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")
