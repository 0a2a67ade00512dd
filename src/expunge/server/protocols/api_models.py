"""The bodies of requests and responses of the service's own API, as its OpenAPI document describes them."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from ..bodies import SUFFIXES, parse_json
from ..clocks import Regulation
from ..matters import MatterAction
from ..problems import PROBLEM_MEDIA_TYPE, Problem
from ..queue import JobKind, JobState, ProtocolName


class ResponseBody(BaseModel):
    """Base class of responses, which have no other members than the declared ones."""

    model_config = ConfigDict(extra="forbid")


class AcceptedRequest(ResponseBody):
    """A request to change rows or readmit people, as shown to a token with neither `erase` nor `read`.

    It is the same whoever is in the vault: the outcome is shown only to tokens with one of those scopes.
    """

    id: str
    kind: JobKind
    protocol: ProtocolName
    regulation: Regulation
    received: str
    since: str
    reference: str
    actor: str


class RequestInfo(ResponseBody):
    """A request, without the ids of its people."""

    id: str
    kind: JobKind
    protocol: ProtocolName
    state: JobState
    reason: str
    regulation: Regulation
    received: str
    since: str
    runs: str
    due: str | None
    extension: str
    overdue: bool
    ended: str | None
    complete: bool
    complete_by: str | None
    people: int
    reference: str
    actor: str
    outcome: dict[str, Any]


class CertifiedRequest(RequestInfo):
    """A request that was carried out, with its certificate (compact JWS)."""

    certificate: str | None


class ErasureResponse(CertifiedRequest):
    """An erasure; once it is done, with a receipt per person in the order of the ids."""

    receipts: list[dict[str, Any] | None] | None


class RequestPage(ResponseBody):
    """A page of requests, newest first, and where the next page begins."""

    requests: list[RequestInfo]
    next: int | None


class MatterLogView(ResponseBody):
    """An entry of a matter's log."""

    time: str
    what: MatterAction
    actor: str
    token: str
    people: int
    reason: str


class MatterView(ResponseBody):
    """A matter, without the ids of its people. ``release`` is set while a release waits for a second token."""

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
    release: MatterLogView | None


class MatterWithCounts(MatterView):
    """A matter, how many people were added, and how many of the ids are present, erased or unknown in the vault."""

    added: int
    present: int
    erased: int
    unknown: int
    similar: int


class MatterDetails(MatterView):
    """A matter, the requests that wait for it, and its log, oldest first."""

    waiting: list[str]
    log: list[MatterLogView]


class ReleaseView(ResponseBody):
    """The effect of a release; ``text`` describes it in a sentence."""

    text: str
    people: int
    elsewhere: int
    requests: int
    waiting: int
    erased: int
    rows: int
    window_seconds: float


class ProblemDetails(ResponseBody):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str = ""


_PROBLEM_RESPONSE = {
    "description": "A problem",
    "content": {PROBLEM_MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}},
}
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {"default": _PROBLEM_RESPONSE, 422: _PROBLEM_RESPONSE}

IDEMPOTENCY_HEADER: dict[str, Any] = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
            "description": "A repeat with the same key and body gets the same response, and nothing is done twice.",
        }
    ]
}


M = TypeVar("M", bound=BaseModel)
ShortText = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
_MAX_ID_LENGTH = 1000  # characters
PersonId = Annotated[str, Field(min_length=1, max_length=_MAX_ID_LENGTH)] | int
_MAX_ERRORS = 20  # errors listed per body


class RequestBody(BaseModel):
    """Base class of request bodies, which refuse unknown members."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ErasureBody(RequestBody):
    """The people whose rows to erase."""

    ids: list[PersonId] = Field(min_length=1)
    regulation: Regulation | None = None
    reference: ShortText = ""


class IdsBody(RequestBody):
    """The people that a request is about."""

    ids: list[PersonId] = Field(min_length=1)
    reference: ShortText = ""


RequiredText = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class NewMatter(RequestBody):
    """A new matter: its name, its reason, its people and its review date."""

    name: RequiredText
    reason: RequiredText
    ids: list[PersonId] = Field(default_factory=list)
    review: AwareDatetime | None = Field(default=None, strict=False)


class MatterChange(RequestBody):
    """The new review date of a matter, or null for none."""

    review: AwareDatetime | None = Field(strict=False)


class MatterRelease(RequestBody):
    """A release: the matter's exact name, the reason, and the people to release, or everyone without ``ids``."""

    name: RequiredText
    reason: RequiredText
    ids: list[PersonId] = Field(default_factory=list)


class ReleaseConfirmation(RequestBody):
    """A confirmation by a second token: the matter's exact name."""

    name: RequiredText


class ReasonBody(RequestBody):
    """A reason."""

    reason: RequiredText


def describe_body(model: type[BaseModel], *more: str) -> dict[str, Any]:
    """Return the OpenAPI description of a JSON body, or of plain text of other media types."""
    content: dict[str, Any] = {"application/json": {"schema": model.model_json_schema()}}
    content |= {kind: {"schema": {"type": "string"}} for kind in more}
    return {"requestBody": {"required": True, "content": content}}


def describe_rows_body() -> dict[str, Any]:
    """Return the OpenAPI description of a body with rows."""
    rows = {"type": "array", "minItems": 1, "items": {"type": "object"}}
    table = {"type": "object", "required": ["rows"], "properties": {"rows": rows}}
    content: dict[str, Any] = {"application/json": {"schema": table}}
    content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in SUFFIXES}
    return {"requestBody": {"required": True, "content": content}}


def validate_body(model: type[M], body: Any) -> M:
    """Return the validated body. Errors name the location, never a value or an unknown member's name."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)[:_MAX_ERRORS]
        texts = sorted({_describe_error(model, item["loc"], item["type"], item["msg"]) for item in errors})
        raise Problem(422, "invalid-request", "; ".join(texts)[:1000]) from None


def _describe_error(model: type[BaseModel], location: Sequence[str | int], kind: str, text: str) -> str:
    """Describe a validation error without naming our classes or types."""
    if not location:
        return "the body must be a JSON object"
    if kind == "extra_forbidden" and len(location) == 1:
        return f"the body has an unknown member; it can have {', '.join(model.model_fields)}"
    if location[0] == "ids" and len(location) > 1:
        return f"ids.{location[1]}: an id must be a string of 1 to {_MAX_ID_LENGTH:,} characters, or an integer"
    known = model.model_fields
    path = ".".join(str(part) if isinstance(part, int) or part in known else "?" for part in location)
    return f"{path}: {text}"


async def read_body(request: Request, model: type[M]) -> M:
    """Read and validate a body, in a thread, because a long one would block the event loop."""
    raw = await request.body()
    return await run_in_threadpool(lambda: validate_body(model, parse_json(raw)))
