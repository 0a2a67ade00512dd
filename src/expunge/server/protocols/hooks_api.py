"""Hooks over HTTP, under /api/v1/hooks: who is told what happens to requests."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from ..access import Who, needs, service_of
from ..bodies import parsed
from ..clocks import as_text
from ..hooks import EVENTS, Event, Hook
from ..problems import Problem
from .models import Model, body_of, validated

router = APIRouter(prefix="/api/v1/hooks", tags=["hooks"])
Admin = needs("admin")


class NewHook(Model):
    """Where to post, and which events; without ``events`` all of them."""

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    events: list[Event] = Field(default=list(EVENTS), min_length=1)


@router.get("")
def hooks(request: Request, who: Annotated[Who, Admin]) -> list[dict[str, Any]]:
    """The hooks, and how many deliveries of each wait, arrived, or were given up."""
    service = service_of(request)
    return [_view(one) | {"deliveries": service.deliveries.counts(one.id)} for one in service.hooks.every()]


@router.post("", status_code=201, openapi_extra=body_of(NewHook))
async def new(request: Request, who: Annotated[Who, Admin]) -> dict[str, Any]:
    """Have events posted somewhere. The secret that checks their signatures is in this answer only."""
    service, body = service_of(request), validated(NewHook, parsed(await request.body()))
    hook, secret = await run_in_threadpool(service.hooks.new, body.url, body.events)
    return _view(hook) | {"secret": secret}


@router.get("/key")
def key(request: Request, who: Annotated[Who, Admin]) -> dict[str, str]:
    """The public key that checks signatures of version v1a."""
    return {"public_key": service_of(request).hooks.public_key()}


@router.delete("/{id}", status_code=204)
def remove(request: Request, id: str, who: Annotated[Who, Admin]) -> None:  # noqa: A002
    """Remove a hook; what waits for it is not sent."""
    if not service_of(request).hooks.remove(id):
        raise Problem(404, "not-found", "there is no such hook")


def _view(hook: Hook) -> dict[str, Any]:
    return {
        "id": hook.id,
        "url": hook.url,
        "events": list(hook.events),
        "made": as_text(hook.made),
        "off": None if hook.off is None else as_text(hook.off),
    }
