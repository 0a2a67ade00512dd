"""The API of webhooks and their deliveries, under /api/v1/webhooks."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from ..auth import Principal, get_service, require_scope
from ..problems import Problem
from ..webhooks import WEBHOOK_EVENTS, WebhookEvent
from .api_models import RequestBody, describe_body, read_body

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])
Admin = require_scope("admin")


class NewWebhook(RequestBody):
    """A new webhook: its URL, and the events to send; without ``events`` it gets all of them."""

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    events: list[WebhookEvent] = Field(default=list(WEBHOOK_EVENTS), min_length=1)


@router.get("")
def list_webhooks(request: Request, principal: Annotated[Principal, Admin]) -> list[dict[str, Any]]:
    """List the webhooks, each with the number of its deliveries by state."""
    service = get_service(request)
    return [hook.view() | {"deliveries": service.deliveries.counts(hook.id)} for hook in service.hooks.list_all()]


@router.post("", status_code=201, openapi_extra=describe_body(NewWebhook))
async def create_webhook(request: Request, principal: Annotated[Principal, Admin]) -> dict[str, Any]:
    """Create a webhook. The secret that verifies its signatures is only in this response."""
    service, body = get_service(request), await read_body(request, NewWebhook)
    hook, secret = await run_in_threadpool(service.hooks.create, body.url, body.events, principal.name)
    return hook.view() | {"secret": secret}


@router.get("/key")
def get_public_key(request: Request, principal: Annotated[Principal, Admin]) -> dict[str, str]:
    """Return the public key that verifies signatures of version v1a."""
    return {"public_key": get_service(request).hooks.public_key()}


@router.delete("/{id}", status_code=204)
def remove_webhook(request: Request, id: str, principal: Annotated[Principal, Admin]) -> None:  # noqa: A002
    """Remove a webhook; its waiting deliveries are not sent."""
    if not get_service(request).hooks.remove(id, principal.name):
        raise Problem(404, "not-found", "there is no webhook with this id")


@router.get("/{id}/deliveries")
def list_deliveries(
    request: Request,
    id: str,  # noqa: A002
    principal: Annotated[Principal, Admin],
    state: Literal["waiting", "sent", "failed"] | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> list[dict[str, Any]]:
    """List the deliveries to a webhook in the last 30 days, newest first, with the reason of the last failure."""
    service = get_service(request)
    deliveries = service.deliveries.list_for_hook(service.hooks.get(id).id, state=state, limit=limit)
    return [delivery.view() for delivery in deliveries]


@router.post("/{id}/deliveries/{delivery}/resend", status_code=202)
def resend_delivery(request: Request, id: str, delivery: int, principal: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Send a delivery again with the same webhook-id, or at once if it is waiting."""
    return get_service(request).hooks.resend(id, delivery).view()


@router.post("/{id}/test")
def test_webhook(request: Request, id: str, principal: Annotated[Principal, Admin]) -> dict[str, Any]:  # noqa: A002
    """Send a webhook.test message now, once; the response says whether it was delivered."""
    return get_service(request).hooks.send_test(id).view()
