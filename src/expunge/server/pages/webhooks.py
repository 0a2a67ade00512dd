"""Webhooks: where they lead, what was posted to them and why it failed; buttons that test one and send again."""

from typing import Annotated

from fastapi import APIRouter, Request, Response

from ..auth import get_service
from ..deliveries import FAILURE_REASONS
from ..webhooks import WEBHOOK_EVENTS
from .templating import PageRoute, redirect_to, render_page
from .visitors import SubmittedForm, Visitor, require_form, require_visitor

router = APIRouter(route_class=PageRoute)

_SHOWN_DELIVERIES = 20  # deliveries of each


@router.get("/webhooks")
def show_webhooks(request: Request, visitor: Annotated[Visitor, require_visitor("admin")]) -> Response:
    """All of them, each with its newest deliveries."""
    service = get_service(request)
    found = [
        (hook, service.deliveries.list_for_hook(hook.id, limit=_SHOWN_DELIVERIES)) for hook in service.hooks.list_all()
    ]
    return render_page(
        request, "webhooks.html", visitor, webhooks=found, reasons=FAILURE_REASONS, events=WEBHOOK_EVENTS
    )


@router.post("/webhooks/{id}/test")
def test_webhook(request: Request, id: str, posted: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Post a test message now; its line shows how that went."""
    get_service(request).hooks.send_test(id)
    return redirect_to("/webhooks")


@router.post("/webhooks/{id}/deliveries/{delivery}/resend")
def resend_delivery(
    request: Request, id: str, delivery: int, posted: Annotated[SubmittedForm, require_form("admin")]
) -> Response:
    """Send a message again."""
    get_service(request).hooks.resend(id, delivery)
    return redirect_to("/webhooks")
