"""The service's own API, under /api/v1."""

import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from ...errors import ErasedId, InvalidInput, PeopleMismatch, SigningFailed, Unfinished, UnknownId, VaultBusy
from ...tables import parse_id_list
from ...vault import PersonalReceipt, Receipt
from ...vault.certificates.jws import unverified_payload
from ..audit import format_csv, format_json, read_trail
from ..auth import Principal, get_service, require_scope
from ..bodies import media_type, parse_json, read_upload
from ..clocks import Regulation, format_time
from ..matters import Author
from ..problems import Problem
from ..queue import ERASURE, JOB_STATES, Job, JobFilter, JobKind, NewJob, ProtocolName
from ..service import MAX_RECEIPTS, ErasureResult, run_in_writer_thread
from .api_models import (
    IDEMPOTENCY_HEADER,
    PROBLEM_RESPONSES,
    AcceptedRequest,
    CertifiedRequest,
    ErasureBody,
    ErasureResponse,
    IdsBody,
    ReasonBody,
    RequestInfo,
    RequestPage,
    ShortText,
    describe_body,
    describe_rows_body,
    read_body,
    validate_body,
)

router = APIRouter(prefix="/api/v1", tags=["own API"], responses=PROBLEM_RESPONSES)

Erase, Read, Rows = require_scope("erase"), require_scope("read"), require_scope("rows")
Admin = require_scope("admin")
Follow = require_scope("read", "erase", "rows")  # a caller may follow its own request: its id cannot be guessed
_RESPOND_ASYNC = "respond-async"
_MAX_RECEIPTS = MAX_RECEIPTS  # in a response: each contains the certificate
_KEY_PATTERN = re.compile(r"[\x20-\x7e]{1,255}")
_lock, _in_flight = threading.Lock(), set[str]()


@dataclass(frozen=True)
class IdempotencyRecord:
    """The job that an Idempotency-Key was used for before, if any, and what to store with a new job."""

    job: Job | None = None
    idempotency: tuple[str, str] | None = None


@contextmanager
def check_idempotency(request: Request, principal: Principal, body: bytes) -> Iterator[IdempotencyRecord]:
    """Look up the request's Idempotency-Key, and refuse other requests with that key while this one is running.

    The same key and body get the same response; the same key with another body is refused.
    """
    header = request.headers.get("idempotency-key")
    if header is None:
        yield IdempotencyRecord()
        return
    if not _KEY_PATTERN.fullmatch(header):
        raise Problem(400, "invalid-key", "an Idempotency-Key must have 1 to 255 printable ASCII characters")
    service = get_service(request)
    target = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    key, mark = service.keyed_hash(f"{principal.token_id}\n{header}".encode()), service.keyed_hash(target + body)
    with _lock:
        if key in _in_flight:
            raise Problem(409, "in-flight", "a request with this Idempotency-Key is still running")
        _in_flight.add(key)
    try:
        known = service.queue.find_answered(key)
        if known is not None and known[0] != mark:
            raise Problem(422, "key-reused", "this Idempotency-Key was already used for a different request")
        if known is not None and known[1].state == "cancelled":  # a client that retries expects an erasure
            detail = "the request with this Idempotency-Key was cancelled: use a new key to make a new request"
            raise Problem(409, "cancelled", detail)
        if known is not None and known[1].state == "running":  # it was interrupted: the ledger knows the outcome
            service.settle_interrupted()
            known = service.queue.find_answered(key)
            if known is not None and known[1].state == "running":
                raise Unfinished("the request with this Idempotency-Key was accepted but has not finished: try again")
        yield IdempotencyRecord(None if known is None else known[1], (key, mark))
    finally:
        with _lock:
            _in_flight.discard(key)


@router.post(
    "/erasures",
    openapi_extra=describe_body(ErasureBody, "text/plain") | IDEMPOTENCY_HEADER,
    responses={
        200: {
            "model": ErasureResponse,
            "description": "carried out; the state is not_known if none of these people are known here, and erased if "
            "it is complete with the next renewal (complete_by)",
        },
        202: {"model": ErasureResponse, "description": "accepted, and carried out later"},
    },
)
async def erase(
    request: Request,
    principal: Annotated[Principal, Erase],
    prefer: Annotated[str, Header()] = "",
    regulation: Regulation | None = None,
    reference: ShortText = "",
) -> Response:
    """Erase all rows of people, permanently, from the model and from the disk.

    Ids are sent as JSON, or as text/plain with one per line; regulation and reference are then query parameters.
    """
    raw, kind = await request.body(), media_type(request)
    if kind not in ("application/json", "text/plain", ""):
        raise Problem(415, "wrong-type", "send ids as application/json, or as text/plain with one id per line")

    def read() -> ErasureBody:
        if kind != "text/plain":
            return validate_body(ErasureBody, parse_json(raw))
        return validate_body(
            ErasureBody, {"ids": _read_id_lines(raw), "regulation": regulation, "reference": reference}
        )

    body = await run_in_threadpool(read)
    return await run_in_writer_thread(_erase, request, body, raw, principal, _RESPOND_ASYNC in prefer)


def _erase(request: Request, body: ErasureBody, raw: bytes, principal: Principal, later: bool) -> Response:
    service, with_receipts = get_service(request), len(body.ids) <= _MAX_RECEIPTS
    with check_idempotency(request, principal, raw) as record:
        if record.job is not None:
            result = ErasureResult(record.job)
        else:
            new_job = NewJob(
                kind=ERASURE,
                protocol="api",
                regulation=body.regulation or service.options.regulation,
                reference=body.reference,
                actor=principal.name,
                caller=principal.token_id,
                idempotency=record.idempotency,
            )
            result = service.erase_people(body.ids, new_job, wait=not later, receipts=with_receipts)
        job = result.job
        view = service.view(job, similar=True) | {"certificate": None, "receipts": None}
        if job.carried_out:
            view["certificate"] = result.certificate or service.certificate(job)
            with suppress(VaultBusy, Unfinished, SigningFailed):  # the erasure is done: receipts can be fetched later
                if with_receipts:
                    attest = bool(job.outcome["unknown"])  # a person who came back since gets no statement
                    receipts = result.receipts or service.issue_receipts(body.ids, attest_unknown=attest)
                    view["receipts"] = [_receipt_view(receipt) for receipt in receipts]
    headers = {"Location": f"/api/v1/requests/{job.id}"}
    return JSONResponse(view, 200 if job.carried_out and not later else 202, headers=headers)


def _read_id_lines(raw: bytes) -> list[str]:
    try:
        lines = parse_id_list(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Problem(400, "invalid-text", "the ids must be encoded in UTF-8") from None
    except InvalidInput as error:
        raise Problem(400, "invalid-text", str(error)) from None
    if not lines:
        raise Problem(422, "invalid-input", "the body contains no ids: write one per line")
    return lines


@router.post("/receipts", openapi_extra=describe_body(IdsBody))
async def create_receipts(request: Request, principal: Annotated[Principal, Erase]) -> list[Any]:
    """Return a receipt for each person to keep and check; null for a person who has rows and was not erased."""
    body = await read_body(request, IdsBody)
    receipts = await run_in_writer_thread(get_service(request).issue_receipts, body.ids)
    return [_receipt_view(receipt) for receipt in receipts]


def _receipt_view(receipt: PersonalReceipt | None) -> Any:
    """Return a person's receipt as JSON: what the command line writes to a file."""
    return None if receipt is None else json.loads(receipt.to_json())


_ACCEPTED_RESPONSE: dict[int | str, dict[str, Any]] = {
    202: {"model": AcceptedRequest, "description": "accepted; the token has no scope that shows the outcome"}
}


@router.post(
    "/rectifications",
    response_model=CertifiedRequest,
    responses=_ACCEPTED_RESPONSE,
    openapi_extra=describe_rows_body() | IDEMPOTENCY_HEADER,
)
async def rectify(request: Request, principal: Annotated[Principal, Rows], reference: ShortText = "") -> Any:
    """Replace all rows of people by corrected ones, sent as JSON, CSV, Parquet or Arrow."""
    service = get_service(request)
    return await _change_with_table(
        request, principal, "rectification", reference, lambda data, **facts: service.vault.rectify(data, **facts)
    )


@router.post(
    "/rows",
    response_model=CertifiedRequest,
    responses=_ACCEPTED_RESPONSE,
    openapi_extra=describe_rows_body() | IDEMPOTENCY_HEADER,
)
async def add_rows(
    request: Request,
    principal: Annotated[Principal, Rows],
    reference: ShortText = "",
    clip: bool = False,
    skip_erased: bool | None = None,
) -> Any:
    """Add rows to the model, sent as JSON, CSV, Parquet or Arrow.

    Rows of erased people are refused, or left out with `skip_erased`. For a token with neither `erase` nor `read` they
    are always left out.
    """
    service = get_service(request)
    if skip_erased is False and not principal.can_see_people:
        detail = "skip_erased=false needs the scope 'erase' or 'read'"
        raise Problem(403, "not-allowed", detail)
    skip = not principal.can_see_people if skip_erased is None else skip_erased

    def carry_out(data: Any, **facts: Any) -> Receipt:
        return service.vault.add(data, clip=clip, skip_erased=skip, **facts)

    return await _change_with_table(request, principal, "addition", reference, carry_out)


async def _change_with_table(
    request: Request, principal: Principal, kind: JobKind, reference: str, carry_out: Callable[..., Receipt]
) -> Any:
    async with read_upload(request, get_service(request)) as (data, mark):
        return await run_in_writer_thread(
            _change, request, principal, mark, kind, reference, lambda **facts: carry_out(data, **facts)
        )


@router.post(
    "/readmissions",
    response_model=CertifiedRequest,
    responses=_ACCEPTED_RESPONSE,
    openapi_extra=describe_body(IdsBody) | IDEMPOTENCY_HEADER,
)
async def readmit(request: Request, principal: Annotated[Principal, Rows]) -> Any:
    """Allow erased people to return, with their consent. Their rows are not restored: add them."""
    body, raw, vault = await read_body(request, IdsBody), await request.body(), get_service(request).vault
    return await run_in_writer_thread(
        _change,
        request,
        principal,
        raw,
        "readmission",
        body.reference,
        lambda **facts: vault.readmit(body.ids, **facts),
    )


def _change(
    request: Request,
    principal: Principal,
    mark: bytes,
    kind: JobKind,
    reference: str,
    carry_out: Callable[..., Receipt],
) -> Any:
    """Carry out a request that changes rows.

    A token that may not see who is in the vault gets the same response whoever the people are.
    """
    service, id_ = get_service(request), str(uuid.uuid4())
    with check_idempotency(request, principal, mark) as record:
        if record.job is not None:
            job = record.job
        else:
            new_job = NewJob(
                kind=kind,
                protocol="api",
                regulation=service.options.regulation,
                reference=reference,
                actor=principal.name,
                caller=principal.token_id,
                idempotency=record.idempotency,
                id=id_,
            )
            try:
                job, _ = service.run_now(new_job, carry_out)
            except (UnknownId, ErasedId, PeopleMismatch):
                if principal.can_see_people:
                    raise
                service.queue.remember_key(record.idempotency, id_)  # a failed request does not keep its key
                job = service.queue.get(id_)
    if principal.can_see_people:
        return service.view(job) | {"certificate": service.certificate(job)}
    return JSONResponse(job.accepted_view(), 202, headers={"Location": f"/api/v1/requests/{job.id}"})


@router.get("/requests", response_model=RequestPage)
def list_requests(
    request: Request,
    principal: Annotated[Principal, Read],
    state: Annotated[list[Literal[JOB_STATES]] | None, Query()] = None,  # type: ignore[valid-type]
    kind: JobKind | None = None,
    protocol: ProtocolName | None = None,
    overdue: bool | None = None,
    reference: Annotated[str, Query(max_length=200)] = "",
    since: date | None = None,
    until: date | None = None,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> dict[str, Any]:
    """List requests, newest first; pass ``next`` as ``before`` to get the next page.

    ``reference`` matches part of a request's reference; ``since`` and ``until`` limit the day of receipt.
    """
    job_filter = JobFilter(state or (), kind, protocol, overdue, reference, since, until, before, limit)
    service, similar = get_service(request), principal.allows("erase")
    jobs = service.queue.page(job_filter)
    return {
        "requests": [service.view(job, similar=similar) for job in jobs],
        "next": jobs[-1].number if len(jobs) == limit else None,
    }


@router.get("/requests/{id}", response_model=RequestInfo | AcceptedRequest)
def get_request(request: Request, id: str, principal: Annotated[Principal, Follow]) -> dict[str, Any]:  # noqa: A002
    """Return a request; its outcome is shown only to tokens with `erase` or `read`.

    It is `complete` when no setting in use was chosen with the help of its people. One that is `erased` or `corrected`
    will be with the vault's next renewal, `complete_by`.
    """
    service = get_service(request)
    job = service.queue.get(id)
    return service.view(job, similar=principal.allows("erase")) if principal.can_see_people else job.accepted_view()


@router.delete("/requests/{id}", response_model=RequestInfo)
async def cancel_request(request: Request, id: str, principal: Annotated[Principal, Erase]) -> dict[str, Any]:  # noqa: A002
    """Cancel a request that has not been carried out."""
    reason = f"cancelled by {principal.name}" if principal.name else "cancelled"
    job = await run_in_writer_thread(
        get_service(request).cancel, id, reason, Author(principal.name, principal.token_id)
    )
    if job is None:
        raise Problem(409, "too-late", "the request was already carried out or cancelled")
    return job.view()


@router.post("/requests/{id}/extension", response_model=RequestInfo, openapi_extra=describe_body(ReasonBody))
async def extend_request(request: Request, id: str, principal: Annotated[Principal, Erase]) -> dict[str, Any]:  # noqa: A002
    """Extend a request's deadline as its regulation allows, and record the reason."""
    body = await read_body(request, ReasonBody)
    job = await run_in_writer_thread(
        get_service(request).extend, id, body.reason, Author(principal.name, principal.token_id)
    )
    if job is None:
        raise Problem(409, "too-late", "the request is closed or overdue, or its deadline was already extended")
    return get_service(request).view(job)


@router.get("/requests/{id}/certificate")
def get_certificate(
    request: Request,
    id: str,  # noqa: A002
    principal: Annotated[Principal, require_scope("read", "erase")],
) -> Response:
    """Return the certificate of a request as a compact JWS, or its payload with Accept: application/json."""
    service = get_service(request)
    text = service.certificate(service.queue.get(id))
    if text is None:
        raise Problem(404, "not-certified", "the request has no certificate yet, or will not have one")
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse(unverified_payload(text))
    return PlainTextResponse(text, media_type="application/jose")


@router.get("/audit")
def export_audit(
    request: Request,
    principal: Annotated[Principal, Read],
    format: Literal["json", "csv"] = "json",  # noqa: A002
) -> Response:
    """Export the audit trail: every event of the vault and the service and who caused it, without anyone's id."""
    service = get_service(request)
    trail = read_trail(service.vault, service.database)
    if format == "json":
        return StreamingResponse(format_json(trail), media_type="application/json")
    return StreamingResponse(format_csv(trail), media_type="text/csv")


@router.get("/status")
def get_status(request: Request, principal: Annotated[Principal, Read]) -> dict[str, Any]:
    """Return what the vault contains, how many requests are waiting, and when the next renewal starts, if one is due.

    `open` counts the erasures and corrections of people that it will make complete.
    """
    service = get_service(request)
    states = Counter(job.state for job in service.queue.pending())
    counts = {"waiting": states["waiting"] + states["running"], "held": states["held"]}
    return {**vars(service.vault.status()), **counts, "complete_by": format_time(service.renewals.next_time())}


@router.get("/keys")
def list_keys(request: Request, principal: Annotated[Principal, Read]) -> dict[str, Any]:
    """Return the public keys that certificates are checked with, newest first, and the signed key changes."""
    vault = get_service(request).vault
    return {"thumbprints": vault.public_keys(), "changes": vault.key_changes()}


@router.post("/verifications", status_code=202)
def start_verification(request: Request, principal: Annotated[Principal, Read], response: Response) -> dict[str, Any]:
    """Start a verification: retrain from the remaining rows, compare, and check every record and certificate.

    The service keeps answering requests while it runs.
    """
    verification = get_service(request).verifications.start("api", actor=principal.name, caller=principal.token_id)
    response.headers["Location"] = f"/api/v1/verifications/{verification.id}"
    return verification.view()


@router.get("/verifications")
def list_verifications(
    request: Request, principal: Annotated[Principal, Read], limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> list[dict[str, Any]]:
    """List verifications, newest first, including those started on the command line."""
    return [verification.view() for verification in get_service(request).verifications.page(limit)]


@router.get("/verifications/{id}")
def get_verification(request: Request, id: str, principal: Annotated[Principal, Read]) -> dict[str, Any]:  # noqa: A002
    """Return the progress of a verification, and its result."""
    return get_service(request).verifications.get(id).view()


@router.post("/replan", status_code=202)
def start_renewal(request: Request, principal: Annotated[Principal, Admin], response: Response) -> dict[str, Any]:
    """Start a renewal: choose the settings again from the rows that are there, which completes all erasures so far.

    The service does this by itself in time for every deadline. It keeps answering requests meanwhile; the model in use
    predicts until the new one has learned. If a renewal is running, that one is returned.
    """
    renewal = get_service(request).renewals.start("api", actor=principal.name, caller=principal.token_id)
    response.headers["Location"] = f"/api/v1/replan/{renewal.id}"
    return renewal.view()


@router.get("/replan")
def list_renewals(
    request: Request, principal: Annotated[Principal, Read], limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> list[dict[str, Any]]:
    """List renewals, newest first; `request` is that of the vault which chose the settings."""
    return [renewal.view() for renewal in get_service(request).renewals.page(limit)]


@router.get("/replan/{id}")
def get_renewal(request: Request, id: str, principal: Annotated[Principal, Read]) -> dict[str, Any]:  # noqa: A002
    """Return the progress of a renewal, and its result."""
    return get_service(request).renewals.get(id).view()
