"""Answers: what the service's own API gives back, as its OpenAPI document tells it."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from ..clocks import Regulation
from ..problems import MEDIA_TYPE
from ..queue import Kind, State, Way


class Answer(BaseModel):
    """An answer: nothing else is in it."""

    model_config = ConfigDict(extra="forbid")


class Told(Answer):
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


class Changed(Told):
    """A request that was carried out, and its certificate (compact JWS)."""

    certificate: str | None


class Erased(Changed):
    """An erasure; once it is done, with a receipt for each person, in the order of the ids."""

    receipts: list[dict[str, Any] | None] | None


class Page(Answer):
    """Requests, the newest first, and where the next page begins."""

    requests: list[Told]
    next: int | None


class Held(Answer):
    """A legal hold; who is held is not in it."""

    id: str
    reason: str
    since: str
    until: str | None
    actor: str


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
