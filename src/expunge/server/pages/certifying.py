"""A certificate as a page to print: what it says in words, and the text that proves it."""

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

import segno
from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from ...errors import InvalidCertificate
from ...vault.certificates.jws import PublicKey, checked, header, unchecked
from ..access import LOCAL_HOSTS, service_of
from ..clocks import as_text
from ..outcomes import was_repeated
from ..problems import Problem
from ..queue import ERASURE, Job
from ..service import Service
from .rendering import PageRoute, page
from .visiting import Visitor, looks

router = APIRouter(route_class=PageRoute)

_MOST_EARLIER = 10  # earlier requests that a page names
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
    """The certificate of a request, for people: what it says in words first, what proves it last."""
    service = service_of(request)
    job, text = _certificate(service, id)
    said = _said(text, [PublicKey.of(one["x"]) for one in service.vault.jwks()])
    outcome, repeated = job.outcome, job.kind == ERASURE and was_repeated(job.outcome)
    people, rows = said["said"]["people"], said["said"]["rows"]
    if job.kind == ERASURE:  # the certificate covers everybody whose requests were carried out together
        people, rows = outcome["erased_earlier"] if repeated else outcome["erased"], outcome["rows"]
    in_time = job.ended <= job.due if job.kind == ERASURE and job.ended is not None and not repeated else None
    address = f"{service.options.address}/receipt"
    reachable = urlsplit(address).hostname not in LOCAL_HOSTS
    return page(
        request,
        "certificate.html",
        visitor,
        entry=job,
        text=text,
        file_name=_file_name(said["said"]),
        in_time=in_time,
        people=people,
        rows=rows,
        repeated=repeated,
        earlier=_earlier(service, job),
        organisation=service.options.organisation,
        check_url=address if reachable else None,
        qr=_qr_code(address) if reachable else None,
        **said,
    )


@router.get("/requests/{id}/certificate.jws")
def certificate_file(
    request: Request,
    id: str,  # noqa: A002 - the name in the address
    visitor: Annotated[Visitor, looks("read")],
) -> Response:
    """The certificate of a request as a file to take away."""
    _, text = _certificate(service_of(request), id)
    headers = {"Content-Disposition": f'attachment; filename="{_file_name(unchecked(text))}"'}
    return Response(f"{text}\n", media_type="application/jose", headers=headers)


def _certificate(service: Service, id_: str) -> tuple[Job, str]:
    job = service.queue.get(id_)
    text = service.certificate(job)
    if text is None:
        raise Problem(404, "not-certified", "The request has no certificate, or none yet.")
    return job, text


def _earlier(service: Service, job: Job) -> list[tuple[int, str]]:
    """Return the requests that had erased people of a job before it, the newest first, and when each was."""
    numbers = reversed(job.outcome.get("earlier", [])[-_MOST_EARLIER:])
    return [(number, service.vault.requests[number - 1].time) for number in numbers]


def _file_name(said: dict[str, Any]) -> str:
    return f"certificate-{int(said['request']):06}.jws"


def _qr_code(address: str) -> Markup:
    """Return a QR code as SVG, dark on light whatever the page's colours are: cameras want it so."""
    drawn = segno.make(address, error="m", micro=False).svg_inline(scale=4, border=2, light="#ffffff", dark="#000000")
    return Markup(drawn)  # noqa: S704 - drawn by segno from modules, not from text


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
