"""Problems: error responses by RFC 9457, with one stable type per class of error. None identifies a person."""

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
    400: "The request is malformed",
    401: "A valid token is required",
    403: "The token does not allow this",
    404: "Not found",
    405: "Method not allowed",
    408: "The body arrived too slowly",
    409: "The current state does not allow this",
    413: "The body is too large",
    415: "Unsupported media type",
    421: "This port does not answer this request",
    422: "The request is invalid",
    428: "A header is missing",
    429: "Too many requests",
    503: "Temporarily unavailable: try again",
}


class Problem(Exception):
    """An error that is sent as the response."""

    def __init__(self, status: int, kind: str, detail: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.headers = status, kind, detail, dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the problem as JSON."""
        title = _TITLES.get(self.status, "An error")
        members: dict[str, Any] = {"type": _TYPE_PREFIX + self.kind, "title": title, "status": self.status}
        return members | ({"detail": self.detail} if self.detail else {})

    def response(self) -> JSONResponse:
        """Return the problem as a response."""
        return JSONResponse(self.body(), self.status, headers=self.headers, media_type=PROBLEM_MEDIA_TYPE)


def to_problem(error: BaseException) -> Problem:
    """Return the problem for an error; for an unexpected error it gives no details."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.ExpungeError):
        status = next((_STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _STATUS_BY_ERROR), 500)
        retry = {"Retry-After": "1"} if status == 503 else {}
        return Problem(status, _to_kebab_case(type(error).public_name()), str(error), retry)
    if isinstance(error, RequestValidationError):
        places = sorted({".".join(map(str, entry["loc"])) + ": " + str(entry["msg"]) for entry in error.errors()})
        return Problem(422, "invalid-request", "; ".join(places)[:1000])
    if isinstance(error, HTTPException):
        kind = {401: "no-token", 403: "not-allowed", 404: "not-found", 405: "wrong-method"}.get(error.status_code)
        return Problem(error.status_code, kind or "http-error", "", error.headers)
    if type(error) is LookupError:  # not KeyError, which would be a bug
        return Problem(404, "not-found")
    if isinstance(error, ClientDisconnect):
        return Problem(400, "cut-off", "the connection ended before the body was complete")
    if isinstance(error, sqlite3.OperationalError | OSError):
        full = error.errno == errno.ENOSPC if isinstance(error, OSError) else "full" in str(error)
        detail = "the disk is full" if full else "a file of the service or of the vault cannot be used at the moment"
        return Problem(503, "disk-full" if full else "storage", detail, {"Retry-After": "1"})
    return Problem(500, "unexpected", "unexpected error; see the service's log for the id in X-Request-Id")


def respond_to_error(error: Exception) -> JSONResponse:
    """Return the response to an error, and log it if an operator has to look at it."""
    problem = to_problem(error)
    if problem.status == 500 or problem.kind in ("storage", "disk-full"):
        log_error("request-failed", error, problem=problem.kind)
    return problem.response()


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error: `respond_to_error` as a handler of the application."""
    return respond_to_error(error)


def _to_kebab_case(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")
