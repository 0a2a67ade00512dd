"""The routes of OpenDSR, and its form of errors."""

import base64
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ....errors import ExpungeError
from ...access import Who
from ...bodies import parsed
from ...clocks import as_text
from ...problems import Problem, problem_of
from ...threads import run_in_writers
from ..credentials import needs_basic
from ..identities import knows_emails
from .bodies import EMAIL, FORMAT, IDENTITY, SCHEMA, read_request
from .processor import PREFIX, VERSION, Processor


class Route(APIRoute):
    """A route whose errors have OpenDSR's form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Answer, or tell in this form why not."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except (Problem, ExpungeError, RequestValidationError, HTTPException) as error:
                return refused(problem_of(error))

        return handle


def refused(problem: Problem) -> Response:
    """A problem as OpenDSR has it; what a caller has to correct is always 400 there."""
    status = 400 if problem.status in (409, 422) else problem.status
    message = problem.detail or "the request cannot be answered"
    domain = "Validation" if status == 400 else "Service"
    errors = [{"domain": domain, "reason": problem.kind, "message": message}]
    return JSONResponse(
        {"error": {"code": status, "message": message, "errors": errors}}, status, headers=problem.headers
    )


router = APIRouter(tags=["OpenDSR"], route_class=Route)
Erase = needs_basic("erase")
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": SCHEMA}}}}
_OLD: dict[str, Any] = {"include_in_schema": False, "response_model": None}
_NEW: dict[str, Any] = {"response_model": None}
_OLD_PLACES = (f"{PREFIX}/opengdpr_requests", "/opendsr/opengdpr_requests")


def processor_of(request: Request) -> Processor:
    """Who answers."""
    found: Processor = request.app.state.opendsr
    return found


def _is_old(request: Request) -> bool:
    """Whether somebody speaks OpenGDPR: by the path, or by a header."""
    named = any(name.startswith("x-opengdpr-") for name in request.headers)
    return named or "/opengdpr_requests" in request.url.path


@router.get("/opendsr/discovery", **_OLD)
@router.get(f"{PREFIX}/discovery", **_NEW)
def discovery(request: Request) -> Response:
    """What is supported, and where the certificate is that signatures are checked with."""
    processor = processor_of(request)
    kinds = [IDENTITY, EMAIL] if knows_emails(processor.service) else [IDENTITY]
    return JSONResponse(
        {
            "api_version": VERSION,
            "supported_identities": [{"identity_type": kind, "identity_format": FORMAT} for kind in kinds],
            "supported_subject_request_types": ["erasure"],
            "processor_certificate": f"{processor.address}{PREFIX}/certificate.pem",
        }
    )


@router.get(f"{PREFIX}/certificate.pem", **_NEW)
def certificate(request: Request) -> Response:
    """The X.509 certificate of the key that signs answers and callbacks."""
    return Response(processor_of(request).files.signer().pem, media_type="application/x-pem-file")


@router.post(f"{PREFIX}/requests", status_code=201, openapi_extra=_BODY, **_NEW)
async def ask(request: Request, who: Annotated[Who, Erase]) -> Response:
    """Take an erasure request. The same request again gets the same answer."""
    raw, old = await request.body(), _is_old(request)
    return await run_in_writers(_ask, processor_of(request), raw, who, old)


def _ask(processor: Processor, raw: bytes, who: Who, old: bool) -> Response:
    domain, allowed = processor.files.signer().domain, processor.service.deliveries.allowed
    entry = processor.take(read_request(parsed(raw), domain, allowed), raw, who, old=old)
    told = {
        **processor.about(entry),
        "received_time": as_text(entry.received),
        "expected_completion_time": as_text(entry.due),
        "encoded_request": base64.b64encode(raw).decode(),
    }
    return processor.signed(told, 201, old=old)


@router.get(f"{PREFIX}/status/{{id}}", **_OLD)
@router.get(f"{PREFIX}/requests/{{id}}", **_NEW)
def status(request: Request, id: str, who: Annotated[Who, Erase]) -> Response:  # noqa: A002
    """How far a request is."""
    processor = processor_of(request)
    return processor.signed(processor.status(processor.get(id, who)), 200, old=_is_old(request))


@router.delete(f"{PREFIX}/requests/{{id}}", status_code=202, **_NEW)
async def cancel(request: Request, id: str, who: Annotated[Who, Erase]) -> Response:  # noqa: A002
    """Cancel a request that is pending."""
    return await run_in_writers(_cancel, request, id, who)


def _cancel(request: Request, id_: str, who: Who) -> Response:
    processor = processor_of(request)
    entry = processor.cancel(id_, who)
    when = entry.ended or processor.service.clock()
    return processor.signed({**processor.about(entry), "received_time": as_text(when)}, 202, old=_is_old(request))


@router.get(f"{PREFIX}/requests/{{id}}/results", **_NEW)
def results(request: Request, id: str, who: Annotated[Who, Erase]) -> Response:  # noqa: A002
    """The certificate of a request that is completed: compact JWS."""
    processor = processor_of(request)
    text = processor.service.certificate(processor.get(id, who))
    if text is None:
        raise Problem(404, "not-certified", "the request has no certificate, or none yet")
    return PlainTextResponse(text, media_type="application/jose")


for _place in _OLD_PLACES:
    router.add_api_route(_place, ask, methods=["POST"], status_code=201, **_OLD)
    router.add_api_route(f"{_place}/{{id}}", status, methods=["GET"], **_OLD)
    router.add_api_route(f"{_place}/{{id}}", cancel, methods=["DELETE"], status_code=202, **_OLD)
