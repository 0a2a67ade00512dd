"""Verification: a button that begins one, how far it is, and what it found."""

from typing import Annotated

from fastapi import APIRouter, Request, Response

from ..access import service_of
from .rendering import PageRoute, page, to
from .visiting import Posted, Visitor, looks, posts

router = APIRouter(route_class=PageRoute)


@router.get("/verify")
def verification(request: Request, visitor: Annotated[Visitor, looks("read")]) -> Response:
    """The newest verification."""
    return page(request, "verify.html", visitor, job=service_of(request).verifications.newest())


@router.post("/verify")
def verify(request: Request, posted: Annotated[Posted, posts("read")]) -> Response:
    """Begin one."""
    service_of(request).verifications.start()
    return to("/verify")
