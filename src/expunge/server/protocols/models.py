"""Models: the bodies of the service's own API, as they must be."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..bodies import SUFFIXES
from ..clocks import Regulation
from ..problems import Problem

M = TypeVar("M", bound=BaseModel)
Line = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Id = Annotated[str, Field(min_length=1, max_length=1000)] | int
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


class NewHold(Model):
    """Who must not be erased yet, why, and until when."""

    ids: list[Id] = Field(min_length=1)
    reason: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
    until: datetime | None = Field(default=None, strict=False)


class Reason(Model):
    """Why."""

    reason: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


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
        known = {*model.model_fields, "str", "int"}
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[:_MOST_WRONG]
        places = sorted({f"{_place(one['loc'], known)}: {one['msg']}" for one in wrong})
        raise Problem(422, "invalid-request", "; ".join(places)[:1000]) from None


def _place(parts: Sequence[str | int], known: Collection[str]) -> str:
    return ".".join(str(part) if isinstance(part, int) or part in known else "?" for part in parts)
