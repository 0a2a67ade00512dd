"""The person's receipt: a page for everybody that checks one, and the page that does so without this service.

Nothing but the public keys is needed, so nobody has to log in; neither the receipt nor the id is kept.
"""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from ...errors import ExpungeError
from ...vault import check_receipt
from ...vault.certificates.keyring import public_pem
from ...vault.certificates.page import page as offline_page
from ..access import service_of
from ..service import Service
from .rendering import PageRoute, page
from .visiting import Posted, Visitor, check_rate, posts, visitor_of

router = APIRouter(route_class=PageRoute)

_POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]+)"')


@router.get("/receipt")
def receipt(request: Request) -> Response:
    """The form."""
    return _shown(request, visitor_of(request))


@router.post("/receipt")
def check(request: Request, posted: Annotated[Posted, posts(None)]) -> Response:
    """What a receipt proves to whoever has this id."""
    check_rate(request, f"receipt {'' if request.client is None else request.client.host}")
    text, person = posted.get("receipt"), posted.get("id")
    try:
        said = check_receipt(text, person, _keys(service_of(request)))
    except ExpungeError as error:
        return _shown(request, posted.visitor, receipt=text, problem=str(error))
    return _shown(request, posted.visitor, receipt=text, said=said)


def _shown(request: Request, visitor: Visitor, **facts: Any) -> Response:
    thumbprints = service_of(request).vault.public_keys()
    shown: dict[str, Any] = {"receipt": "", "said": None, "problem": "", "keys": thumbprints} | facts
    return page(request, "receipt.html", visitor, status=422 if shown["problem"] else 200, **shown)


def _keys(service: Service) -> bytes:
    return b"".join(public_pem(one["x"]) for one in service.vault.jwks())


@router.get("/receipt/check.html")
def offline() -> Response:
    """The page that checks receipts without a network, to be saved; its own policy lets only its own script run."""
    text = offline_page()
    policy = _POLICY.search(text)
    assert policy is not None
    headers = {"Content-Security-Policy": f"{policy[1]}; frame-ancestors 'none'"}
    return Response(text, headers=headers, media_type="text/html; charset=utf-8")


@router.get("/receipt/keys.pem")
def keys(request: Request) -> Response:
    """The public keys that receipts are checked with, the newest first."""
    return Response(_keys(service_of(request)), media_type="application/x-pem-file")
