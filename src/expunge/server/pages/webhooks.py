"""Webhooks: where they lead, what was posted to them and why it failed; buttons that test one and send again."""

from typing import Annotated

from fastapi import APIRouter, Request, Response

from ..access import service_of
from ..addresses import REASONS
from ..hooks import EVENTS
from .rendering import PageRoute, page, to
from .visiting import Posted, Visitor, looks, posts

router = APIRouter(route_class=PageRoute)

_SHOWN = 20  # deliveries of each


@router.get("/webhooks")
def webhooks(request: Request, visitor: Annotated[Visitor, looks("admin")]) -> Response:
    """All of them, each with its newest deliveries."""
    service = service_of(request)
    found = [(hook, service.deliveries.of_hook(hook.id, limit=_SHOWN)) for hook in service.hooks.every()]
    return page(request, "webhooks.html", visitor, webhooks=found, reasons=REASONS, events=EVENTS)


@router.post("/webhooks/{id}/test")
def test(request: Request, id: str, posted: Annotated[Posted, posts("admin")]) -> Response:  # noqa: A002
    """Post a test message now; its line shows how that went."""
    service_of(request).hooks.test(id)
    return to("/webhooks")


@router.post("/webhooks/{id}/deliveries/{delivery}/resend")
def resend(request: Request, id: str, delivery: int, posted: Annotated[Posted, posts("admin")]) -> Response:  # noqa: A002
    """Send a message again."""
    service_of(request).hooks.resend(id, delivery)
    return to("/webhooks")
