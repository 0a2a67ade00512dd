"""The service's own API, under /api/v1."""

import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from ...errors import ErasedId, InvalidInput, OtherPeople, SigningFailed, Unfinished, UnknownId, VaultBusy
from ...vault import Receipt
from ...vault.certificates.jws import unchecked
from ...vault.tables import id_lines
from ..access import Who, needs, service_of
from ..audit import read_trail, write_csv, write_json
from ..bodies import media_type, parsed, uploaded
from ..clocks import Regulation
from ..idempotency import Answered, idempotent
from ..matters import Author
from ..problems import Problem
from ..queue import ERASURE, STATES, Filter, Job, Kind, NewJob, Way
from ..service import MOST_RECEIPTS, ErasureResult, Service
from ..threads import run_in_writers
from ..views import accepted_view, receipt_view, request_view
from .answers import KEYED, PROBLEMS, Accepted, Changed, Erased, Page, RequestInfo
from .models import Erasure, Ids, Line, Reason, body_of, read_body, rows_body, validated

router = APIRouter(prefix="/api/v1", tags=["own API"], responses=PROBLEMS)

Erase, Read, Rows = needs("erase"), needs("read"), needs("rows")
Follow = needs("read", "erase", "rows")  # whoever asked may look at what becomes of it: nobody guesses its id
_PREFER = "respond-async"
_MOST_RECEIPTS = MOST_RECEIPTS  # in an answer: each has the certificate


# Erasures


@router.post(
    "/erasures",
    openapi_extra=body_of(Erasure, "text/plain") | KEYED,
    responses={
        200: {
            "model": Erased,
            "description": "carried out; the state is not_known if none of these people is known here",
        },
        202: {"model": Erased, "description": "written down, and carried out later"},
    },
)
async def erase(
    request: Request,
    who: Annotated[Who, Erase],
    prefer: Annotated[str, Header()] = "",
    regulation: Regulation | None = None,
    reference: Line = "",
) -> Response:
    """Erase all rows of people: from the model, from the disk, for good.

    Bulk: text/plain, one id per line; regulation and reference are then in the query.
    """
    raw, kind = await request.body(), media_type(request)
    if kind not in ("application/json", "text/plain", ""):
        raise Problem(415, "wrong-type", "ids come as application/json, or as text/plain with one per line")

    def read() -> Erasure:
        bulk = {"regulation": regulation, "reference": reference}
        return validated(Erasure, {"ids": _lines(raw), **bulk} if kind == "text/plain" else parsed(raw))

    asked = await run_in_threadpool(read)
    return await run_in_writers(_erase_once, request, asked, raw, who, _PREFER in prefer)


def _erase_once(request: Request, asked: Erasure, raw: bytes, who: Who, later: bool) -> Response:
    with idempotent(request, who, raw) as answered:
        return _erase(service_of(request), asked, who, answered, later)


def _erase(service: Service, body: Erasure, who: Who, answered: Answered, later: bool) -> Response:
    erased = None if answered.entry is None else ErasureResult(answered.entry)
    if erased is None:
        asked = NewJob(
            ERASURE,
            "api",
            body.regulation or service.options.regulation,
            reference=body.reference,
            actor=who.name,
            caller=who.key,
            answers=answered.answers,
        )
        erased = service.erase_people(body.ids, asked, wait=not later, receipts=len(body.ids) <= _MOST_RECEIPTS)
    entry = erased.job
    found = request_view(entry, similar=True) | {"certificate": None, "receipts": None}
    if entry.carried_out:
        found["certificate"] = erased.certificate or service.certificate(entry)
        with suppress(VaultBusy, Unfinished, SigningFailed):  # it is done all the same: they can be asked for
            if len(body.ids) <= _MOST_RECEIPTS:
                strangers = bool(entry.outcome["unknown"])  # who came back since is none
                receipts = erased.receipts or service.receipts(body.ids, strangers=strangers)
                found["receipts"] = [receipt_view(one) for one in receipts]
    where = {"Location": f"/api/v1/requests/{entry.id}"}
    return JSONResponse(found, 200 if entry.carried_out and not later else 202, headers=where)


def _lines(raw: bytes) -> list[str]:
    try:
        lines = id_lines(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Problem(400, "invalid-text", "the ids must be in UTF-8") from None
    except InvalidInput as error:
        raise Problem(400, "invalid-text", str(error)) from None
    if not lines:
        raise Problem(422, "invalid-input", "there is no id: write one per line")
    return lines


@router.post("/receipts", openapi_extra=body_of(Ids))
async def receipts(request: Request, who: Annotated[Who, Erase]) -> list[Any]:
    """The receipt of each person, for them to keep and check; null for who has rows and was not erased."""
    body = await read_body(request, Ids)
    found = await run_in_writers(service_of(request).receipts, body.ids)
    return [receipt_view(one) for one in found]


# Requests that bring rows, or name erased people


_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": Accepted, "description": "taken, for a token that may not learn what became of it"}
}


@router.post("/rectifications", response_model=Changed, responses=_ACCEPTED, openapi_extra=rows_body() | KEYED)
async def rectify(request: Request, who: Annotated[Who, Rows], reference: Line = "") -> Any:
    """Replace all rows of people by right ones. Rows come as JSON, CSV, Parquet or Arrow."""
    service = service_of(request)
    return await _with_table(
        request, who, "rectification", reference, lambda data, **said: service.vault.rectify(data, **said)
    )


@router.post("/rows", response_model=Changed, responses=_ACCEPTED, openapi_extra=rows_body() | KEYED)
async def add(
    request: Request,
    who: Annotated[Who, Rows],
    reference: Line = "",
    clip: bool = False,
    skip_erased: bool | None = None,
) -> Any:
    """Learn more rows, which come as JSON, CSV, Parquet or Arrow.

    Rows of erased people are refused, or left out (`skip_erased`); for a token with neither `erase` nor `read` they are
    always left out.
    """
    service = service_of(request)
    if skip_erased is False and not who.sees_people:
        detail = "without the scope 'erase' or 'read' rows of erased people are left out: skip_erased cannot be false"
        raise Problem(403, "not-allowed", detail)
    skip = not who.sees_people if skip_erased is None else skip_erased

    def carry_out(data: Any, **said: Any) -> Receipt:
        return service.vault.add(data, clip=clip, skip_erased=skip, **said)

    return await _with_table(request, who, "addition", reference, carry_out)


async def _with_table(request: Request, who: Who, kind: Kind, reference: str, carry_out: Callable[..., Receipt]) -> Any:
    async with uploaded(request, service_of(request)) as (data, mark):
        return await run_in_writers(
            _change, request, who, mark, kind, reference, lambda **said: carry_out(data, **said)
        )


@router.post("/readmissions", response_model=Changed, responses=_ACCEPTED, openapi_extra=body_of(Ids) | KEYED)
async def readmit(request: Request, who: Annotated[Who, Rows]) -> Any:
    """Let erased people come again, who consented. Their rows are not back: add them."""
    body, raw, vault = await read_body(request, Ids), await request.body(), service_of(request).vault
    return await run_in_writers(
        _change, request, who, raw, "readmission", body.reference, lambda **said: vault.readmit(body.ids, **said)
    )


def _change(
    request: Request, who: Who, mark: bytes, kind: Kind, reference: str, carry_out: Callable[..., Receipt]
) -> Any:
    """Carry out a request; who may not learn which people are in the vault is answered alike whoever they are."""
    service, id_ = service_of(request), str(uuid.uuid4())
    with idempotent(request, who, mark) as answered:
        if answered.entry is not None:
            entry = answered.entry
        else:
            asked = NewJob(
                kind,
                "api",
                service.options.regulation,
                reference,
                who.name,
                who.key,
                answers=answered.answers,
                id=id_,
            )
            try:
                entry, _ = service.change(asked, carry_out)
            except (UnknownId, ErasedId, OtherPeople):
                if who.sees_people:
                    raise
                service.queue.remember(answered.answers, id_)  # of a failed request the key is forgotten
                entry = service.queue.get(id_)
    if who.sees_people:
        return _changed(service, entry)
    return JSONResponse(accepted_view(entry), 202, headers={"Location": f"/api/v1/requests/{entry.id}"})


def _changed(service: Service, entry: Job) -> dict[str, Any]:
    return request_view(entry) | {"certificate": service.certificate(entry)}


# Looking


@router.get("/requests", response_model=Page)
def requests(
    request: Request,
    who: Annotated[Who, Read],
    state: Annotated[list[Literal[STATES]] | None, Query()] = None,  # type: ignore[valid-type]
    kind: Kind | None = None,
    protocol: Way | None = None,
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
    wanted = Filter(state or (), kind, protocol, overdue, reference, since, until, before, limit)
    found, similar = service_of(request).queue.page(wanted), who.allows("erase")
    return {
        "requests": [request_view(one, similar=similar) for one in found],
        "next": found[-1].number if len(found) == limit else None,
    }


@router.get("/requests/{id}", response_model=RequestInfo | Accepted)
def one_request(request: Request, id: str, who: Annotated[Who, Follow]) -> dict[str, Any]:  # noqa: A002
    """One request; what became of it is told to tokens with `erase` or `read` only."""
    entry = service_of(request).queue.get(id)
    return request_view(entry, similar=who.allows("erase")) if who.sees_people else accepted_view(entry)


@router.delete("/requests/{id}", response_model=RequestInfo)
async def cancel(request: Request, id: str, who: Annotated[Who, Erase]) -> dict[str, Any]:  # noqa: A002
    """Cancel a request that is not carried out yet."""
    reason = f"cancelled by {who.name}" if who.name else "cancelled"
    entry = await run_in_writers(service_of(request).cancel, id, reason, Author(who.name, who.key))
    if entry is None:
        raise Problem(409, "too-late", "the request is carried out, or cancelled, already")
    return request_view(entry)


@router.post("/requests/{id}/extension", response_model=RequestInfo, openapi_extra=body_of(Reason))
async def extend(request: Request, id: str, who: Annotated[Who, Erase]) -> dict[str, Any]:  # noqa: A002
    """Give a request the longer time that its regulation allows, and say why."""
    body = await read_body(request, Reason)
    entry = await run_in_writers(service_of(request).extend, id, body.reason, Author(who.name, who.key))
    if entry is None:
        raise Problem(409, "too-late", "the request or its time is over, or was extended already")
    return request_view(entry)


@router.get("/requests/{id}/certificate")
def certificate(request: Request, id: str, who: Annotated[Who, needs("read", "erase")]) -> Response:  # noqa: A002
    """The certificate of a request: compact JWS, or its payload (Accept: application/json)."""
    service = service_of(request)
    text = service.certificate(service.queue.get(id))
    if text is None:
        raise Problem(404, "not-certified", "the request has no certificate, or none yet")
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse(unchecked(text))
    return PlainTextResponse(text, media_type="application/jose")


@router.get("/audit")
def audit(
    request: Request,
    who: Annotated[Who, Read],
    format: Literal["json", "csv"] = "json",  # noqa: A002
) -> Response:
    """Everything that happened to the vault and the service, with who did it, for auditors: no identities."""
    service = service_of(request)
    trail = read_trail(service.vault, service.database)
    if format == "json":
        return StreamingResponse(write_json(trail), media_type="application/json")
    return StreamingResponse(write_csv(trail), media_type="text/csv")


@router.get("/status")
def status(request: Request, who: Annotated[Who, Read]) -> dict[str, Any]:
    """What is in the vault, and how many requests wait."""
    service = service_of(request)
    found = vars(service.vault.status())
    states = Counter(one.state for one in service.queue.pending())
    return {**found, "waiting": states["waiting"] + states["running"], "held": states["held"]}


@router.get("/keys")
def keys(request: Request, who: Annotated[Who, Read]) -> dict[str, Any]:
    """The keys that certificates are checked with, the newest first, and what each signed about the next."""
    vault = service_of(request).vault
    return {"thumbprints": vault.public_keys(), "changes": vault.key_changes()}
