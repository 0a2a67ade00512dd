"""Models: the bodies of the service's own API, as they must be."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from ..bodies import SUFFIXES, parsed
from ..clocks import Regulation
from ..problems import Problem

M = TypeVar("M", bound=BaseModel)
Line = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
_LONGEST_ID = 1000  # characters
Id = Annotated[str, Field(min_length=1, max_length=_LONGEST_ID)] | int
_MOST_WRONG = 20  # places of a body that are named


class Model(BaseModel):
    """A body: unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Erasure(Model):
    """Whose rows are to be erased."""

    ids: list[Id] = Field(min_length=1)
    regulation: Regulation | None = None
    reference: Line = ""


class Ids(Model):
    """Whom a request is about."""

    ids: list[Id] = Field(min_length=1)
    reference: Line = ""


Text = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class NewMatter(Model):
    """A matter: its name, its reason, whom it holds, and when somebody has to look at it again."""

    name: Text
    reason: Text
    ids: list[Id] = Field(default_factory=list)
    review: AwareDatetime | None = Field(default=None, strict=False)


class MatterChange(Model):
    """When somebody has to look at a matter again; null: nobody has to."""

    review: AwareDatetime | None = Field(strict=False)


class MatterRelease(Model):
    """A release: the matter's name, typed as it is, why, and whom it is about if not everybody."""

    name: Text
    reason: Text
    ids: list[Id] = Field(default_factory=list)


class ReleaseConfirmation(Model):
    """The second token's word: the matter's name, typed as it is."""

    name: Text


class Reason(Model):
    """Why."""

    reason: Text


def body_of(model: type[BaseModel], *more: str) -> dict[str, Any]:
    """What OpenAPI says of a body that is read here."""
    content: dict[str, Any] = {"application/json": {"schema": model.model_json_schema()}}
    content |= {kind: {"schema": {"type": "string"}} for kind in more}
    return {"requestBody": {"required": True, "content": content}}


def rows_body() -> dict[str, Any]:
    """What OpenAPI says of a body that brings rows."""
    rows = {"type": "array", "minItems": 1, "items": {"type": "object"}}
    table = {"type": "object", "required": ["rows"], "properties": {"rows": rows}}
    content: dict[str, Any] = {"application/json": {"schema": table}}
    content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in SUFFIXES}
    return {"requestBody": {"required": True, "content": content}}


def validated(model: type[M], found: Any) -> M:
    """A body as it must be; what is wrong is named by its place, never by its value or a name that we do not know."""
    try:
        return model.model_validate(found)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[:_MOST_WRONG]
        places = sorted({_told(model, one["loc"], one["type"], one["msg"]) for one in wrong})
        raise Problem(422, "invalid-request", "; ".join(places)[:1000]) from None


def _told(model: type[BaseModel], place: Sequence[str | int], kind: str, text: str) -> str:
    """What is wrong at a place, in words that name no class or type of this program."""
    if not place:
        return "the body must be a JSON object"
    if kind == "extra_forbidden" and len(place) == 1:
        return f"there is a member that is not known here; those of this body are {', '.join(model.model_fields)}"
    if place[0] == "ids" and len(place) > 1:
        return f"ids.{place[1]}: an id is text of 1 to {_LONGEST_ID:,} characters, or a whole number"
    return f"{_place(place, model.model_fields)}: {text}"


async def read_body(request: Request, model: type[M]) -> M:
    """Read a body as it must be, in a thread: a long one would keep the event loop from everybody else."""
    raw = await request.body()
    return await run_in_threadpool(lambda: validated(model, parsed(raw)))


def _place(parts: Sequence[str | int], known: Collection[str]) -> str:
    return ".".join(str(part) if isinstance(part, int) or part in known else "?" for part in parts)
