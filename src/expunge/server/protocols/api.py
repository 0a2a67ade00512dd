"""The service's own API, under /api/v1."""

import csv
import io
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse

from ...errors import ExpungeError, InvalidFile, InvalidInput, SigningFailed, Unfinished, VaultBusy
from ...vault import Receipt
from ...vault.certificates.jws import unchecked
from ..access import Who, needs, service_of
from ..bodies import media_type, parsed, uploaded
from ..clocks import Regulation
from ..idempotency import Answered, idempotent
from ..problems import Problem
from ..queue import ERASURE, STATES, Asked, Entry, Filter, Kind, Way
from ..service import Service
from ..views import receipt_view, request_view
from .answers import KEYED, PROBLEMS, Changed, Erased, Page, Told
from .models import Erasure, Ids, Line, Reason, body_of, rows_body, validated

router = APIRouter(prefix="/api/v1", tags=["own API"], responses=PROBLEMS)

Erase, Read, Rows = needs("erase"), needs("read"), needs("rows")
Follow = needs("read", "erase", "rows")  # whoever asked may look at what becomes of it: nobody guesses its id
_PREFER = "respond-async"
_MOST_RECEIPTS = 1000  # in an answer: each has the certificate


# Erasures


@router.post(
    "/erasures",
    openapi_extra=body_of(Erasure, "text/plain") | KEYED,
    responses={
        200: {"model": Erased, "description": "carried out"},
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
    service, raw, kind = service_of(request), await request.body(), media_type(request)
    if kind not in ("application/json", "text/plain", ""):
        raise Problem(415, "wrong-type", "ids come as application/json, or as text/plain with one per line")

    def read() -> Erasure:
        bulk = {"regulation": regulation, "reference": reference}
        return validated(Erasure, {"ids": _lines(raw), **bulk} if kind == "text/plain" else parsed(raw))

    asked = await run_in_threadpool(read)
    with idempotent(request, who, raw) as answered:
        return await run_in_threadpool(_erase, service, asked, who, answered, _PREFER in prefer)


def _erase(service: Service, body: Erasure, who: Who, answered: Answered, later: bool) -> Response:
    entry = answered.entry
    if entry is None:
        asked = Asked(
            ERASURE,
            "api",
            body.regulation or service.options.regulation,
            reference=body.reference,
            actor=who.name,
            answers=answered.answers,
        )
        entry = service.erase(body.ids, asked, wait=not later)
    found = request_view(entry) | {"certificate": None, "receipts": None}
    if entry.state == "done":
        found["certificate"] = service.certificate(entry)
        with suppress(VaultBusy, Unfinished, SigningFailed):  # it is done all the same: they can be asked for
            strangers = bool(entry.outcome["unknown"])  # who came back since is none
            if len(body.ids) <= _MOST_RECEIPTS:
                found["receipts"] = [receipt_view(one) for one in service.receipts(body.ids, strangers=strangers)]
    where = {"Location": f"/api/v1/requests/{entry.id}"}
    return JSONResponse(found, 200 if entry.state == "done" and not later else 202, headers=where)


def _lines(raw: bytes) -> list[str]:
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise Problem(400, "invalid-text", "the ids must be in UTF-8") from None
    if "\0" in text:  # of UTF-16, most likely
        raise Problem(400, "invalid-text", "the ids must be in UTF-8, without zero characters")
    lines = [id_ for line in text.split("\n") if (id_ := line.strip())]
    if not lines:
        raise Problem(422, "invalid-input", "there is no id: write one per line")
    return lines


@router.post("/receipts", openapi_extra=body_of(Ids))
async def receipts(request: Request, who: Annotated[Who, Erase]) -> list[Any]:
    """The receipt of each person, for them to keep and check; null for who has rows and was not erased."""
    body = validated(Ids, parsed(await request.body()))
    found = await run_in_threadpool(service_of(request).receipts, body.ids)
    return [receipt_view(one) for one in found]


# Requests that bring rows, or name erased people


@router.post("/rectifications", response_model=Changed, openapi_extra=rows_body() | KEYED)
async def rectify(request: Request, who: Annotated[Who, Rows], reference: Line = "") -> Any:
    """Replace all rows of people by right ones. Rows come as JSON, CSV, Parquet or Arrow."""
    service = service_of(request)
    return await _with_table(
        request, who, "rectification", reference, lambda data, **said: service.vault.rectify(data, **said)
    )


@router.post("/rows", response_model=Changed, openapi_extra=rows_body() | KEYED)
async def add(
    request: Request, who: Annotated[Who, Rows], reference: Line = "", clip: bool = False, skip_erased: bool = False
) -> Any:
    """Learn more rows, which come as JSON, CSV, Parquet or Arrow."""
    service = service_of(request)

    def carry_out(data: Any, **said: Any) -> Receipt:
        return service.vault.add(data, clip=clip, skip_erased=skip_erased, **said)

    return await _with_table(request, who, "addition", reference, carry_out)


async def _with_table(
    request: Request, who: Who, kind: Kind, reference: str, carry_out: Callable[..., Receipt]
) -> dict[str, Any]:
    service = service_of(request)
    async with uploaded(request, service.options.most_rows) as (data, mark):
        with idempotent(request, who, mark) as answered:
            if answered.entry is not None:
                return _changed(service, answered.entry)
            asked = Asked(kind, "api", service.options.regulation, reference, actor=who.name, answers=answered.answers)
            entry, _ = await run_in_threadpool(
                service.change,
                asked,
                lambda reference, actor: _with_body(carry_out, data, reference=reference, actor=actor),
            )
            return _changed(service, entry)


def _with_body(carry_out: Callable[..., Receipt], data: Any, **said: str) -> Receipt:
    """Carry out a request with a table that somebody sent: what is wrong with it is not wrong with a file of ours."""
    try:
        return carry_out(data, **said)
    except ExpungeError as error:
        if not isinstance(data, Path) or str(data) not in str(error):
            raise
        if isinstance(error, InvalidFile):
            raise InvalidInput("the body is damaged, or not of the type that it says") from None
        raise InvalidInput(str(error).replace(str(data), "the body")) from None


@router.post("/readmissions", response_model=Changed, openapi_extra=body_of(Ids) | KEYED)
async def readmit(request: Request, who: Annotated[Who, Rows]) -> Any:
    """Let erased people come again, who consented. Their rows are not back: add them."""
    service, raw = service_of(request), await request.body()
    body = validated(Ids, parsed(raw))
    with idempotent(request, who, raw) as answered:
        if answered.entry is not None:
            return _changed(service, answered.entry)
        asked = Asked(
            "readmission",
            "api",
            service.options.regulation,
            body.reference,
            actor=who.name,
            answers=answered.answers,
        )
        entry, _ = await run_in_threadpool(
            service.change,
            asked,
            lambda reference, actor: service.vault.readmit(body.ids, reference=reference, actor=actor),
        )
        return _changed(service, entry)


def _changed(service: Service, entry: Entry) -> dict[str, Any]:
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
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> dict[str, Any]:
    """Requests, the newest first; ``next`` is what ``before`` has to be for the next page."""
    wanted = Filter(state or (), kind, protocol, overdue, before, limit)
    found = service_of(request).queue.page(wanted)
    return {
        "requests": [request_view(one) for one in found],
        "next": found[-1].number if len(found) == limit else None,
    }


@router.get("/requests/{id}", response_model=Told)
def one_request(request: Request, id: str, who: Annotated[Who, Follow]) -> dict[str, Any]:  # noqa: A002
    """One request."""
    return request_view(service_of(request).queue.get(id))


@router.delete("/requests/{id}", response_model=Told)
def cancel(request: Request, id: str, who: Annotated[Who, Erase]) -> dict[str, Any]:  # noqa: A002
    """Cancel a request that is not carried out yet."""
    entry = service_of(request).cancel(id, f"cancelled by {who.name}" if who.name else "cancelled")
    if entry is None:
        raise Problem(409, "too-late", "the request is carried out, or cancelled, already")
    return request_view(entry)


@router.post("/requests/{id}/extension", response_model=Told, openapi_extra=body_of(Reason))
async def extend(request: Request, id: str, who: Annotated[Who, Erase]) -> dict[str, Any]:  # noqa: A002
    """Give a request the longer time that its regulation allows, and say why."""
    service, body = service_of(request), validated(Reason, parsed(await request.body()))
    entry = service.queue.get(id)
    if not entry.open or entry.extension or entry.due < service.clock():
        raise Problem(409, "too-late", "the request or its time is over, or was extended already")
    return request_view(service.queue.extend(id, body.reason))


@router.get("/requests/{id}/certificate")
def certificate(request: Request, id: str, who: Annotated[Who, Follow]) -> Response:  # noqa: A002
    """The certificate of a request: compact JWS, or its payload (Accept: application/json)."""
    service = service_of(request)
    text = service.certificate(service.queue.get(id))
    if text is None:
        raise Problem(404, "not-certified", "the request has no certificate, or none yet")
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse(unchecked(text))
    return PlainTextResponse(text, media_type="application/jose")


_OUTCOME = ("rows", "erased", "earlier", "unknown", "held", "request")  # of an outcome, in a table


@router.get("/audit")
def audit(request: Request, who: Annotated[Who, Read], format: Literal["json", "csv"] = "json") -> Response:  # noqa: A002
    """Every request with its times and states, for auditors: no identities."""
    found = [request_view(one) for one in service_of(request).queue.page(Filter(limit=10**9))]
    if format == "json":
        return JSONResponse(found)
    out = io.StringIO()
    names = [name for name in (found[0] if found else {"id": 0}) if name != "outcome"]
    writer = csv.DictWriter(out, [*names, *_OUTCOME], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for one in found:
        cells = {**one, **{name: one["outcome"].get(name) for name in _OUTCOME}}
        writer.writerow({name: _guarded(value) for name, value in cells.items()})
    return PlainTextResponse(out.getvalue(), media_type="text/csv")


def _guarded(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula; yes and no as JSON has them."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value


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
