"""Webhooks over HTTP: which there are, what was posted to them, and tries to find out why something was not."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from ..access import Who, needs, service_of
from ..hooks import EVENTS, EventName
from ..problems import Problem
from ..views import delivery_view, webhook_view
from .models import Model, body_of, read_body

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])
Admin = needs("admin")


class NewHook(Model):
    """Where to post, and which events; without ``events`` all of them."""

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    events: list[EventName] = Field(default=list(EVENTS), min_length=1)


@router.get("")
def hooks(request: Request, who: Annotated[Who, Admin]) -> list[dict[str, Any]]:
    """The hooks, and how many deliveries of each wait, arrived, or were given up."""
    service = service_of(request)
    return [webhook_view(one) | {"deliveries": service.deliveries.counts(one.id)} for one in service.hooks.every()]


@router.post("", status_code=201, openapi_extra=body_of(NewHook))
async def new(request: Request, who: Annotated[Who, Admin]) -> dict[str, Any]:
    """Have events posted somewhere. The secret that checks their signatures is in this answer only."""
    service, body = service_of(request), await read_body(request, NewHook)
    hook, secret = await run_in_threadpool(service.hooks.new, body.url, body.events, who.name)
    return webhook_view(hook) | {"secret": secret}


@router.get("/key")
def key(request: Request, who: Annotated[Who, Admin]) -> dict[str, str]:
    """The public key that checks signatures of version v1a."""
    return {"public_key": service_of(request).hooks.public_key()}


@router.delete("/{id}", status_code=204)
def remove(request: Request, id: str, who: Annotated[Who, Admin]) -> None:  # noqa: A002
    """Remove a hook; what waits for it is not sent."""
    if not service_of(request).hooks.remove(id, who.name):
        raise Problem(404, "not-found", "there is no such hook")


@router.get("/{id}/deliveries")
def deliveries(
    request: Request,
    id: str,  # noqa: A002
    who: Annotated[Who, Admin],
    state: Literal["waiting", "sent", "failed"] | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> list[dict[str, Any]]:
    """The messages to a webhook of the last 30 days, the newest first: their states, and why the last try failed."""
    service = service_of(request)
    found = service.deliveries.of_hook(service.hooks.get(id).id, state=state, limit=limit)
    return [delivery_view(one) for one in found]


@router.post("/{id}/deliveries/{delivery}/resend", status_code=202)
def resend(request: Request, id: str, delivery: int, who: Annotated[Who, Admin]) -> dict[str, Any]:  # noqa: A002
    """Send a message again, with its webhook-id; one that waits is tried now."""
    return delivery_view(service_of(request).hooks.resend(id, delivery))


@router.post("/{id}/test")
def test(request: Request, id: str, who: Annotated[Who, Admin]) -> dict[str, Any]:  # noqa: A002
    """Post a message of the type webhook.test now, once; the answer says how that went."""
    return delivery_view(service_of(request).hooks.test(id))
