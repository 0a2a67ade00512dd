"""Models: the bodies of the service's own API, as they must be."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from ..bodies import SUFFIXES, parse_json
from ..clocks import Regulation
from ..matters import MatterAction
from ..problems import PROBLEM_MEDIA_TYPE, Problem
from ..queue import JobKind, JobState, ProtocolName

# MERGED answers: Answers: what the service's own API gives back, as its OpenAPI document tells it.


class ResponseBody(BaseModel):
    """An answer: nothing else is in it."""

    model_config = ConfigDict(extra="forbid")


class AcceptedRequest(ResponseBody):
    """A request that brings rows or names erased people, for a token with neither `erase` nor `read`.

    It is the same whoever is in the vault: what became of the request is told to tokens with one of those scopes.
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
    """A request; whose it is, is not in it."""

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
    people: int
    reference: str
    actor: str
    outcome: dict[str, Any]


class CertifiedRequest(RequestInfo):
    """A request that was carried out, and its certificate (compact JWS)."""

    certificate: str | None


class ErasureResponse(CertifiedRequest):
    """An erasure; once it is done, with a receipt for each person, in the order of the ids."""

    receipts: list[dict[str, Any] | None] | None


class RequestPage(ResponseBody):
    """Requests, the newest first, and where the next page begins."""

    requests: list[RequestInfo]
    next: int | None


class MatterLogView(ResponseBody):
    """What somebody did to a matter."""

    time: str
    what: MatterAction
    actor: str
    token: str
    people: int
    reason: str


class MatterView(ResponseBody):
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
    release: MatterLogView | None


class MatterWithCounts(MatterView):
    """A matter, how many people were put on it, and how many of those named the vault has, erased or does not know."""

    added: int
    present: int
    erased: int
    unknown: int
    similar: int


class MatterDetails(MatterView):
    """A matter, the requests that wait on it, and what was done to it, the oldest first."""

    waiting: list[str]
    log: list[MatterLogView]


class ReleaseView(ResponseBody):
    """What a release will do: ``text`` says it in a sentence."""

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
            "description": "The same key and body get the same answer; nothing is done twice.",
        }
    ]
}


M = TypeVar("M", bound=BaseModel)
ShortText = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
_MAX_ID_LENGTH = 1000  # characters
PersonId = Annotated[str, Field(min_length=1, max_length=_MAX_ID_LENGTH)] | int
_MAX_ERRORS = 20  # places of a body that are named


class RequestBody(BaseModel):
    """A body: unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ErasureBody(RequestBody):
    """Whose rows are to be erased."""

    ids: list[PersonId] = Field(min_length=1)
    regulation: Regulation | None = None
    reference: ShortText = ""


class IdsBody(RequestBody):
    """Whom a request is about."""

    ids: list[PersonId] = Field(min_length=1)
    reference: ShortText = ""


RequiredText = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class NewMatter(RequestBody):
    """A matter: its name, its reason, whom it holds, and when somebody has to look at it again."""

    name: RequiredText
    reason: RequiredText
    ids: list[PersonId] = Field(default_factory=list)
    review: AwareDatetime | None = Field(default=None, strict=False)


class MatterChange(RequestBody):
    """When somebody has to look at a matter again; null: nobody has to."""

    review: AwareDatetime | None = Field(strict=False)


class MatterRelease(RequestBody):
    """A release: the matter's name, typed as it is, why, and whom it is about if not everybody."""

    name: RequiredText
    reason: RequiredText
    ids: list[PersonId] = Field(default_factory=list)


class ReleaseConfirmation(RequestBody):
    """The second token's word: the matter's name, typed as it is."""

    name: RequiredText


class ReasonBody(RequestBody):
    """Why."""

    reason: RequiredText


def describe_body(model: type[BaseModel], *more: str) -> dict[str, Any]:
    """What OpenAPI says of a body that is read here."""
    content: dict[str, Any] = {"application/json": {"schema": model.model_json_schema()}}
    content |= {kind: {"schema": {"type": "string"}} for kind in more}
    return {"requestBody": {"required": True, "content": content}}


def describe_rows_body() -> dict[str, Any]:
    """What OpenAPI says of a body that brings rows."""
    rows = {"type": "array", "minItems": 1, "items": {"type": "object"}}
    table = {"type": "object", "required": ["rows"], "properties": {"rows": rows}}
    content: dict[str, Any] = {"application/json": {"schema": table}}
    content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in SUFFIXES}
    return {"requestBody": {"required": True, "content": content}}


def validate_body(model: type[M], body: Any) -> M:
    """A body as it must be; what is wrong is named by its place, never by its value or a name that we do not know."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[:_MAX_ERRORS]
        places = sorted({_describe_error(model, one["loc"], one["type"], one["msg"]) for one in wrong})
        raise Problem(422, "invalid-request", "; ".join(places)[:1000]) from None


def _describe_error(model: type[BaseModel], place: Sequence[str | int], kind: str, text: str) -> str:
    """What is wrong at a place, in words that name no class or type of this program."""
    if not place:
        return "the body must be a JSON object"
    if kind == "extra_forbidden" and len(place) == 1:
        return f"there is a member that is not known here; those of this body are {', '.join(model.model_fields)}"
    if place[0] == "ids" and len(place) > 1:
        return f"ids.{place[1]}: an id is text of 1 to {_MAX_ID_LENGTH:,} characters, or a whole number"
    return f"{_format_location(place, model.model_fields)}: {text}"


async def read_body(request: Request, model: type[M]) -> M:
    """Read a body as it must be, in a thread: a long one would keep the event loop from everybody else."""
    raw = await request.body()
    return await run_in_threadpool(lambda: validate_body(model, parse_json(raw)))


def _format_location(parts: Sequence[str | int], known: Collection[str]) -> str:
    return ".".join(str(part) if isinstance(part, int) or part in known else "?" for part in parts)
