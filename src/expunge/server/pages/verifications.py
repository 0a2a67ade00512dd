"""Verifications: a button that starts one, its progress, what it found, and the history."""

from typing import Annotated

from fastapi import APIRouter, Request, Response

from ..access import service_of
from .rendering import PageRoute, page, to
from .visiting import Posted, Visitor, looks, posts

router = APIRouter(route_class=PageRoute)

_SHOWN = 50


@router.get("/verify")
def verification(request: Request, visitor: Annotated[Visitor, looks("read")]) -> Response:
    """The newest verification, and those before it."""
    service = service_of(request)
    found = service.verifications.page(_SHOWN)
    newest = found[0] if found else None
    return page(request, "verify.html", visitor, job=newest, history=found, every=service.options.verify_every)


@router.get("/verify/{id}")
def past_verification(request: Request, id: str, visitor: Annotated[Visitor, looks("read")]) -> Response:  # noqa: A002
    """One of them."""
    service = service_of(request)
    return page(request, "verification.html", visitor, job=service.verifications.get(id))


@router.post("/verify")
def verify(request: Request, posted: Annotated[Posted, posts("read")]) -> Response:
    """Start one."""
    visitor = posted.visitor
    service_of(request).verifications.start("page", actor=visitor.name, caller=visitor.key)
    return to("/verify")
