"""Webhooks over HTTP: which there are, what was posted to them, and tries to find out why something was not."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from ..auth import Principal, get_service, require_scope
from ..problems import Problem
from ..views import delivery_view, webhook_view
from ..webhooks import WEBHOOK_EVENTS, WebhookEvent
from .api_models import RequestBody, describe_body, read_body

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])
Admin = require_scope("admin")


class NewWebhook(RequestBody):
    """Where to post, and which events; without ``events`` all of them."""

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    events: list[WebhookEvent] = Field(default=list(WEBHOOK_EVENTS), min_length=1)


@router.get("")
def list_webhooks(request: Request, who: Annotated[Principal, Admin]) -> list[dict[str, Any]]:
    """The hooks, and how many deliveries of each wait, arrived, or were given up."""
    service = get_service(request)
    return [webhook_view(one) | {"deliveries": service.deliveries.counts(one.id)} for one in service.hooks.list_all()]


@router.post("", status_code=201, openapi_extra=describe_body(NewWebhook))
async def create_webhook(request: Request, who: Annotated[Principal, Admin]) -> dict[str, Any]:
    """Have events posted somewhere. The secret that checks their signatures is in this answer only."""
    service, body = get_service(request), await read_body(request, NewWebhook)
    hook, secret = await run_in_threadpool(service.hooks.create, body.url, body.events, who.name)
    return webhook_view(hook) | {"secret": secret}


@router.get("/key")
def get_public_key(request: Request, who: Annotated[Principal, Admin]) -> dict[str, str]:
    """The public key that checks signatures of version v1a."""
    return {"public_key": get_service(request).hooks.public_key()}


@router.delete("/{id}", status_code=204)
def remove_webhook(request: Request, id: str, who: Annotated[Principal, Admin]) -> None:  # noqa: A002
    """Remove a hook; what waits for it is not sent."""
    if not get_service(request).hooks.remove(id, who.name):
        raise Problem(404, "not-found", "there is no such hook")


@router.get("/{id}/deliveries")
def list_deliveries(
    request: Request,
    id: str,  # noqa: A002
    who: Annotated[Principal, Admin],
    state: Literal["waiting", "sent", "failed"] | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> list[dict[str, Any]]:
    """The messages to a webhook of the last 30 days, the newest first: their states, and why the last try failed."""
    service = get_service(request)
    found = service.deliveries.list_for_hook(service.hooks.get(id).id, state=state, limit=limit)
    return [delivery_view(one) for one in found]


@router.post("/{id}/deliveries/{delivery}/resend", status_code=202)
def resend_delivery(request: Request, id: str, delivery: int, who: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Send a message again, with its webhook-id; one that waits is tried now."""
    return delivery_view(get_service(request).hooks.resend(id, delivery))


@router.post("/{id}/test")
def test_webhook(request: Request, id: str, who: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Post a message of the type webhook.test now, once; the answer says how that went."""
    return delivery_view(get_service(request).hooks.send_test(id))
