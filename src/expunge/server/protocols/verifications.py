"""Verifications over HTTP, under /api/v1/verifications."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from ..access import Who, needs, service_of
from .answers import PROBLEMS

router = APIRouter(prefix="/api/v1", tags=["own API"], responses=PROBLEMS)
Read = needs("read")


@router.post("/verifications", status_code=202)
def verify(request: Request, who: Annotated[Who, Read], response: Response) -> dict[str, Any]:
    """Train again from the surviving rows and compare, check every record and certificate; requests go on meanwhile."""
    found = service_of(request).verifications.start("api", actor=who.name, caller=who.key)
    response.headers["Location"] = f"/api/v1/verifications/{found.id}"
    return found.view()


@router.get("/verifications")
def verifications(
    request: Request, who: Annotated[Who, Read], limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> list[dict[str, Any]]:
    """Verifications, the newest first, also those of the command line."""
    return [found.view() for found in service_of(request).verifications.page(limit)]


@router.get("/verifications/{id}")
def verification(request: Request, id: str, who: Annotated[Who, Read]) -> dict[str, Any]:  # noqa: A002
    """How far a verification is, and what it found."""
    return service_of(request).verifications.get(id).view()
