"""Answers: what the service's own API gives back, as its OpenAPI document tells it."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from ..clocks import Regulation
from ..matters import What
from ..problems import MEDIA_TYPE
from ..queue import Kind, State, Way


class Answer(BaseModel):
    """An answer: nothing else is in it."""

    model_config = ConfigDict(extra="forbid")


class Accepted(Answer):
    """A request that brings rows or names erased people, for a token with neither `erase` nor `read`.

    It is the same whoever is in the vault: what became of the request is told to tokens with one of those scopes.
    """

    id: str
    kind: Kind
    protocol: Way
    regulation: Regulation
    received: str
    since: str
    reference: str
    actor: str


class RequestInfo(Answer):
    """A request; whose it is, is not in it."""

    id: str
    kind: Kind
    protocol: Way
    state: State
    reason: str
    regulation: Regulation
    received: str
    since: str
    runs: str
    due: str | None
    extension: str
    overdue: bool
    ended: str | None
    people: int
    reference: str
    actor: str
    outcome: dict[str, Any]


class Changed(RequestInfo):
    """A request that was carried out, and its certificate (compact JWS)."""

    certificate: str | None


class Erased(Changed):
    """An erasure; once it is done, with a receipt for each person, in the order of the ids."""

    receipts: list[dict[str, Any] | None] | None


class Page(Answer):
    """Requests, the newest first, and where the next page begins."""

    requests: list[RequestInfo]
    next: int | None


class MatterEntry(Answer):
    """What somebody did to a matter."""

    time: str
    what: What
    actor: str
    token: str
    people: int
    reason: str


class MatterView(Answer):
    """A matter; whom it holds is not in it. ``release`` waits for a second token."""

    id: str
    name: str
    reason: str
    opened: str
    actor: str
    review: str | None
    review_due: bool
    released: str | None
    people: int
    requests: int
    release: MatterEntry | None


class MatterAdded(MatterView):
    """A matter, how many people were put on it, and how many of those named the vault has, erased or does not know."""

    added: int
    present: int
    erased: int
    unknown: int
    similar: int


class MatterDetails(MatterView):
    """A matter, the requests that wait on it, and what was done to it, the oldest first."""

    waiting: list[str]
    log: list[MatterEntry]


class ReleaseView(Answer):
    """What a release will do: ``text`` says it in a sentence."""

    text: str
    people: int
    elsewhere: int
    requests: int
    waiting: int
    erased: int
    rows: int
    window_seconds: float


class ProblemDetails(Answer):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str = ""


_PROBLEM = {"description": "A problem", "content": {MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {"default": _PROBLEM, 422: _PROBLEM}

KEYED: dict[str, Any] = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
            "description": "The same key and body get the same answer; nothing is done twice.",
        }
    ]
}
