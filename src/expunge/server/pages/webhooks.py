"""The webhooks page: each webhook with its recent deliveries, and buttons to test it and to send a delivery again."""

from typing import Annotated

from fastapi import APIRouter, Request, Response

from ..auth import get_service
from ..deliveries import FAILURE_REASONS
from ..webhooks import WEBHOOK_EVENTS
from .templating import PageRoute, redirect_to, render_page
from .visitors import SubmittedForm, Visitor, require_form, require_visitor

router = APIRouter(route_class=PageRoute)

_MAX_DELIVERIES = 20  # listed per webhook


@router.get("/webhooks")
def show_webhooks(request: Request, visitor: Annotated[Visitor, require_visitor("admin")]) -> Response:
    """Show all webhooks, each with its newest deliveries."""
    service = get_service(request)
    webhooks = [
        (hook, service.deliveries.list_for_hook(hook.id, limit=_MAX_DELIVERIES)) for hook in service.hooks.list_all()
    ]
    return render_page(
        request, "webhooks.html", visitor, webhooks=webhooks, reasons=FAILURE_REASONS, events=WEBHOOK_EVENTS
    )


@router.post("/webhooks/{id}/test")
def test_webhook(request: Request, id: str, form: Annotated[SubmittedForm, require_form("admin")]) -> Response:  # noqa: A002
    """Send a test message now; the list of deliveries shows the result."""
    get_service(request).hooks.send_test(id)
    return redirect_to("/webhooks")


@router.post("/webhooks/{id}/deliveries/{delivery}/resend")
def resend_delivery(
    request: Request,
    id: str,  # noqa: A002
    delivery: int,
    form: Annotated[SubmittedForm, require_form("admin")],
) -> Response:
    """Send a delivery again."""
    get_service(request).hooks.resend(id, delivery)
    return redirect_to("/webhooks")
