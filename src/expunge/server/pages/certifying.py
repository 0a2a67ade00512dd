"""A certificate as a page to print: what it says in words, and the text that proves it."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from ...errors import InvalidCertificate
from ...vault.certificates.jws import PublicKey, checked, header, unchecked
from ..access import service_of
from ..clocks import as_text
from ..problems import Problem
from .rendering import PageRoute, page
from .visiting import Visitor, looks

router = APIRouter(route_class=PageRoute)

_PROOFS = {
    "commitment": "Commitment to the new state",
    "previous": "Record of the request",
    "schema": "Schema",
    "receipts": "Root of the receipts",
}


@router.get("/requests/{id}/certificate.html")
def certificate(
    request: Request,
    id: str,  # noqa: A002 - the name in the address
    visitor: Annotated[Visitor, looks("read")],
) -> Response:
    """The certificate of a request."""
    service = service_of(request)
    entry = service.queue.get(id)
    text = service.certificate(entry)
    if text is None:
        raise Problem(404, "not-certified", "The request has no certificate, or none yet.")
    keys = [PublicKey.of(one["x"]) for one in service.vault.jwks()]
    return page(request, "certificate.html", visitor, entry=entry, text=text, **_said(text, keys))


def _said(text: str, keys: list[PublicKey]) -> dict[str, Any]:
    """What a certificate says, and whether a key of the vault signed it."""
    try:
        said, fits = checked(text, keys), True
    except InvalidCertificate:
        said, fits = unchecked(text), False
    return {
        "said": said,
        "fits": fits,
        "key": header(text).get("kid", ""),
        "time": as_text(datetime.fromtimestamp(said["iat"], UTC)),
        "proofs": {label: said[name] for name, label in _PROOFS.items() if name in said},
    }
