"""The service's own API, under /api/v1."""

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
from ...vault import Receipt
from ...vault.certificates.jws import unverified_payload
from ..audit import format_csv, format_json, read_trail
from ..auth import Principal, get_service, require_scope
from ..bodies import media_type, parse_json, read_upload
from ..clocks import Regulation
from ..matters import Author
from ..problems import Problem
from ..queue import ERASURE, JOB_STATES, Job, JobFilter, JobKind, NewJob, ProtocolName
from ..service import MAX_RECEIPTS, ErasureResult, Service, run_in_writer_thread
from ..views import accepted_view, receipt_view, request_view
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

# MERGED idempotency: Idempotency-Key: the same key and body get the same answer; another body, or one in flight, is refused.


_KEY_PATTERN = re.compile(r"[\x20-\x7e]{1,255}")
_lock, _in_flight = threading.Lock(), set[str]()


@dataclass(frozen=True)
class IdempotencyRecord:
    """The request that a key was used for before, if it was; else what is to be kept with a new one."""

    job: Job | None = None
    idempotency: tuple[str, str] | None = None


@contextmanager
def check_idempotency(request: Request, principal: Principal, body: bytes) -> Iterator[IdempotencyRecord]:
    """Look a key up, and refuse others that come with it until this one is answered."""
    said = request.headers.get("idempotency-key")
    if said is None:
        yield IdempotencyRecord()
        return
    if not _KEY_PATTERN.fullmatch(said):
        raise Problem(400, "invalid-key", "an Idempotency-Key has 1 to 255 printable characters")
    service = get_service(request)
    about = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    key, mark = service.keyed_hash(f"{principal.token_id}\n{said}".encode()), service.keyed_hash(about + body)
    with _lock:
        if key in _in_flight:
            raise Problem(409, "in-flight", "a request with this Idempotency-Key is being carried out")
        _in_flight.add(key)
    try:
        known = service.queue.find_answered(key)
        if known is not None and known[0] != mark:
            raise Problem(422, "key-reused", "this Idempotency-Key was used with another request")
        if known is not None and known[1].state == "cancelled":  # whoever sends it again expects an erasure
            raise Problem(
                409, "cancelled", "the request with this Idempotency-Key was cancelled: use a new key to ask again"
            )
        if known is not None and known[1].state == "running":  # it was cut off: the ledger knows what became of it
            service.settle_interrupted()
            known = service.queue.find_answered(key)
            if known is not None and known[1].state == "running":
                raise Unfinished(
                    "the request with this Idempotency-Key was accepted and is not finished yet: try again"
                )
        yield IdempotencyRecord(None if known is None else known[1], (key, mark))
    finally:
        with _lock:
            _in_flight.discard(key)


router = APIRouter(prefix="/api/v1", tags=["own API"], responses=PROBLEM_RESPONSES)

Erase, Read, Rows = require_scope("erase"), require_scope("read"), require_scope("rows")
Follow = require_scope("read", "erase", "rows")  # whoever asked may look at what becomes of it: nobody guesses its id
_RESPOND_ASYNC = "respond-async"
_MAX_RECEIPTS = MAX_RECEIPTS  # in an answer: each has the certificate


# Erasures


@router.post(
    "/erasures",
    openapi_extra=describe_body(ErasureBody, "text/plain") | IDEMPOTENCY_HEADER,
    responses={
        200: {
            "model": ErasureResponse,
            "description": "carried out; the state is not_known if none of these people is known here",
        },
        202: {"model": ErasureResponse, "description": "written down, and carried out later"},
    },
)
async def erase(
    request: Request,
    who: Annotated[Principal, Erase],
    prefer: Annotated[str, Header()] = "",
    regulation: Regulation | None = None,
    reference: ShortText = "",
) -> Response:
    """Erase all rows of people: from the model, from the disk, for good.

    Bulk: text/plain, one id per line; regulation and reference are then in the query.
    """
    raw, kind = await request.body(), media_type(request)
    if kind not in ("application/json", "text/plain", ""):
        raise Problem(415, "wrong-type", "ids come as application/json, or as text/plain with one per line")

    def read() -> ErasureBody:
        bulk = {"regulation": regulation, "reference": reference}
        return validate_body(
            ErasureBody, {"ids": _read_id_lines(raw), **bulk} if kind == "text/plain" else parse_json(raw)
        )

    asked = await run_in_threadpool(read)
    return await run_in_writer_thread(_erase_once, request, asked, raw, who, _RESPOND_ASYNC in prefer)


def _erase_once(request: Request, body: ErasureBody, raw: bytes, who: Principal, later: bool) -> Response:
    with check_idempotency(request, who, raw) as answered:
        return _erase(get_service(request), body, who, answered, later)


def _erase(service: Service, body: ErasureBody, who: Principal, answered: IdempotencyRecord, later: bool) -> Response:
    erased = None if answered.job is None else ErasureResult(answered.job)
    if erased is None:
        asked = NewJob(
            ERASURE,
            "api",
            body.regulation or service.options.regulation,
            reference=body.reference,
            actor=who.name,
            caller=who.token_id,
            idempotency=answered.idempotency,
        )
        erased = service.erase_people(body.ids, asked, wait=not later, receipts=len(body.ids) <= _MAX_RECEIPTS)
    entry = erased.job
    found = request_view(entry, similar=True) | {"certificate": None, "receipts": None}
    if entry.carried_out:
        found["certificate"] = erased.certificate or service.certificate(entry)
        with suppress(VaultBusy, Unfinished, SigningFailed):  # it is done all the same: they can be asked for
            if len(body.ids) <= _MAX_RECEIPTS:
                strangers = bool(entry.outcome["unknown"])  # who came back since is none
                receipts = erased.receipts or service.issue_receipts(body.ids, attest_unknown=strangers)
                found["receipts"] = [receipt_view(one) for one in receipts]
    where = {"Location": f"/api/v1/requests/{entry.id}"}
    return JSONResponse(found, 200 if entry.carried_out and not later else 202, headers=where)


def _read_id_lines(raw: bytes) -> list[str]:
    try:
        lines = parse_id_list(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Problem(400, "invalid-text", "the ids must be in UTF-8") from None
    except InvalidInput as error:
        raise Problem(400, "invalid-text", str(error)) from None
    if not lines:
        raise Problem(422, "invalid-input", "there is no id: write one per line")
    return lines


@router.post("/receipts", openapi_extra=describe_body(IdsBody))
async def create_receipts(request: Request, who: Annotated[Principal, Erase]) -> list[Any]:
    """The receipt of each person, for them to keep and check; null for who has rows and was not erased."""
    body = await read_body(request, IdsBody)
    found = await run_in_writer_thread(get_service(request).issue_receipts, body.ids)
    return [receipt_view(one) for one in found]


# Requests that bring rows, or name erased people


_ACCEPTED_RESPONSE: dict[int | str, dict[str, Any]] = {
    202: {"model": AcceptedRequest, "description": "taken, for a token that may not learn what became of it"}
}


@router.post(
    "/rectifications",
    response_model=CertifiedRequest,
    responses=_ACCEPTED_RESPONSE,
    openapi_extra=describe_rows_body() | IDEMPOTENCY_HEADER,
)
async def rectify(request: Request, who: Annotated[Principal, Rows], reference: ShortText = "") -> Any:
    """Replace all rows of people by right ones. Rows come as JSON, CSV, Parquet or Arrow."""
    service = get_service(request)
    return await _change_with_table(
        request, who, "rectification", reference, lambda data, **said: service.vault.rectify(data, **said)
    )


@router.post(
    "/rows",
    response_model=CertifiedRequest,
    responses=_ACCEPTED_RESPONSE,
    openapi_extra=describe_rows_body() | IDEMPOTENCY_HEADER,
)
async def add_rows(
    request: Request,
    who: Annotated[Principal, Rows],
    reference: ShortText = "",
    clip: bool = False,
    skip_erased: bool | None = None,
) -> Any:
    """Learn more rows, which come as JSON, CSV, Parquet or Arrow.

    Rows of erased people are refused, or left out (`skip_erased`); for a token with neither `erase` nor `read` they are
    always left out.
    """
    service = get_service(request)
    if skip_erased is False and not who.can_see_people:
        detail = "without the scope 'erase' or 'read' rows of erased people are left out: skip_erased cannot be false"
        raise Problem(403, "not-allowed", detail)
    skip = not who.can_see_people if skip_erased is None else skip_erased

    def carry_out(data: Any, **said: Any) -> Receipt:
        return service.vault.add(data, clip=clip, skip_erased=skip, **said)

    return await _change_with_table(request, who, "addition", reference, carry_out)


async def _change_with_table(
    request: Request, who: Principal, kind: JobKind, reference: str, carry_out: Callable[..., Receipt]
) -> Any:
    async with read_upload(request, get_service(request)) as (data, mark):
        return await run_in_writer_thread(
            _change, request, who, mark, kind, reference, lambda **said: carry_out(data, **said)
        )


@router.post(
    "/readmissions",
    response_model=CertifiedRequest,
    responses=_ACCEPTED_RESPONSE,
    openapi_extra=describe_body(IdsBody) | IDEMPOTENCY_HEADER,
)
async def readmit(request: Request, who: Annotated[Principal, Rows]) -> Any:
    """Let erased people come again, who consented. Their rows are not back: add them."""
    body, raw, vault = await read_body(request, IdsBody), await request.body(), get_service(request).vault
    return await run_in_writer_thread(
        _change, request, who, raw, "readmission", body.reference, lambda **said: vault.readmit(body.ids, **said)
    )


def _change(
    request: Request, who: Principal, mark: bytes, kind: JobKind, reference: str, carry_out: Callable[..., Receipt]
) -> Any:
    """Carry out a request; who may not learn which people are in the vault is answered alike whoever they are."""
    service, id_ = get_service(request), str(uuid.uuid4())
    with check_idempotency(request, who, mark) as answered:
        if answered.job is not None:
            entry = answered.job
        else:
            asked = NewJob(
                kind,
                "api",
                service.options.regulation,
                reference,
                who.name,
                who.token_id,
                idempotency=answered.idempotency,
                id=id_,
            )
            try:
                entry, _ = service.run_now(asked, carry_out)
            except (UnknownId, ErasedId, PeopleMismatch):
                if who.can_see_people:
                    raise
                service.queue.remember_key(answered.idempotency, id_)  # of a failed request the key is forgotten
                entry = service.queue.get(id_)
    if who.can_see_people:
        return _certified_view(service, entry)
    return JSONResponse(accepted_view(entry), 202, headers={"Location": f"/api/v1/requests/{entry.id}"})


def _certified_view(service: Service, entry: Job) -> dict[str, Any]:
    return request_view(entry) | {"certificate": service.certificate(entry)}


# Looking


@router.get("/requests", response_model=RequestPage)
def list_requests(
    request: Request,
    who: Annotated[Principal, Read],
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
    """Requests, the newest first; ``next`` is what ``before`` has to be for the next page.

    ``reference`` is a part of what the caller calls it; ``since`` and ``until`` are days on which requests came.
    """
    wanted = JobFilter(state or (), kind, protocol, overdue, reference, since, until, before, limit)
    found, similar = get_service(request).queue.page(wanted), who.allows("erase")
    return {
        "requests": [request_view(one, similar=similar) for one in found],
        "next": found[-1].number if len(found) == limit else None,
    }


@router.get("/requests/{id}", response_model=RequestInfo | AcceptedRequest)
def get_request(request: Request, id: str, who: Annotated[Principal, Follow]) -> dict[str, Any]:  # noqa: A002
    """One request; what became of it is told to tokens with `erase` or `read` only."""
    entry = get_service(request).queue.get(id)
    return request_view(entry, similar=who.allows("erase")) if who.can_see_people else accepted_view(entry)


@router.delete("/requests/{id}", response_model=RequestInfo)
async def cancel_request(request: Request, id: str, who: Annotated[Principal, Erase]) -> dict[str, Any]:  # noqa: A002
    """Cancel a request that is not carried out yet."""
    reason = f"cancelled by {who.name}" if who.name else "cancelled"
    entry = await run_in_writer_thread(get_service(request).cancel, id, reason, Author(who.name, who.token_id))
    if entry is None:
        raise Problem(409, "too-late", "the request is carried out, or cancelled, already")
    return request_view(entry)


@router.post("/requests/{id}/extension", response_model=RequestInfo, openapi_extra=describe_body(ReasonBody))
async def extend_request(request: Request, id: str, who: Annotated[Principal, Erase]) -> dict[str, Any]:  # noqa: A002
    """Give a request the longer time that its regulation allows, and say why."""
    body = await read_body(request, ReasonBody)
    entry = await run_in_writer_thread(get_service(request).extend, id, body.reason, Author(who.name, who.token_id))
    if entry is None:
        raise Problem(409, "too-late", "the request or its time is over, or was extended already")
    return request_view(entry)


@router.get("/requests/{id}/certificate")
def get_certificate(request: Request, id: str, who: Annotated[Principal, require_scope("read", "erase")]) -> Response:  # noqa: A002
    """The certificate of a request: compact JWS, or its payload (Accept: application/json)."""
    service = get_service(request)
    text = service.certificate(service.queue.get(id))
    if text is None:
        raise Problem(404, "not-certified", "the request has no certificate, or none yet")
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse(unverified_payload(text))
    return PlainTextResponse(text, media_type="application/jose")


@router.get("/audit")
def export_audit(
    request: Request,
    who: Annotated[Principal, Read],
    format: Literal["json", "csv"] = "json",  # noqa: A002
) -> Response:
    """Everything that happened to the vault and the service, with who did it, for auditors: no identities."""
    service = get_service(request)
    trail = read_trail(service.vault, service.database)
    if format == "json":
        return StreamingResponse(format_json(trail), media_type="application/json")
    return StreamingResponse(format_csv(trail), media_type="text/csv")


@router.get("/status")
def get_status(request: Request, who: Annotated[Principal, Read]) -> dict[str, Any]:
    """What is in the vault, and how many requests wait."""
    service = get_service(request)
    found = vars(service.vault.status())
    states = Counter(one.state for one in service.queue.pending())
    return {**found, "waiting": states["waiting"] + states["running"], "held": states["held"]}


@router.get("/keys")
def list_keys(request: Request, who: Annotated[Principal, Read]) -> dict[str, Any]:
    """The keys that certificates are checked with, the newest first, and what each signed about the next."""
    vault = get_service(request).vault
    return {"thumbprints": vault.public_keys(), "changes": vault.key_changes()}


# MERGED verifications: Verifications over HTTP, under /api/v1/verifications.


verification_router = APIRouter(prefix="/api/v1", tags=["own API"], responses=PROBLEM_RESPONSES)
ReadVerifications = require_scope("read")


@verification_router.post("/verifications", status_code=202)
def start_verification(
    request: Request, who: Annotated[Principal, ReadVerifications], response: Response
) -> dict[str, Any]:
    """Train again from the surviving rows and compare, check every record and certificate; requests go on meanwhile."""
    found = get_service(request).verifications.start("api", actor=who.name, caller=who.token_id)
    response.headers["Location"] = f"/api/v1/verifications/{found.id}"
    return found.view()


@verification_router.get("/verifications")
def list_verifications(
    request: Request, who: Annotated[Principal, ReadVerifications], limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> list[dict[str, Any]]:
    """Verifications, the newest first, also those of the command line."""
    return [found.view() for found in get_service(request).verifications.page(limit)]


@verification_router.get("/verifications/{id}")
def get_verification(request: Request, id: str, who: Annotated[Principal, ReadVerifications]) -> dict[str, Any]:  # noqa: A002
    """How far a verification is, and what it found."""
    return get_service(request).verifications.get(id).view()
