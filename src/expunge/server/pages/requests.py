"""Requests: all of them, filtered and page by page, and one with its steps, its clock and what can be done about it."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import segno
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from markupsafe import Markup

from ...errors import InvalidCertificate
from ...vault.certificates.jws import PublicKey, unverified_header, unverified_payload, verify_statement
from ..audit import format_csv, format_json, read_trail
from ..auth import LOCAL_HOSTS, get_service
from ..clocks import format_time
from ..matters import Author
from ..problems import Problem
from ..queue import CARRIED_OUT_STATES, ERASURE, JOB_STATES, OPEN_STATES, Job, JobFilter, was_repeated
from ..service import Service
from .templating import STATE_LABELS as STATE_WORDS
from .templating import PageRoute, redirect_to, render_page, source_label
from .visitors import SubmittedForm, Visitor, check_line, require_form, require_visitor

# MERGED certifying: A certificate as a page to print: what it says in words, and the text that proves it.


certificate_router = APIRouter(route_class=PageRoute)

_MOST_EARLIER = 10  # earlier requests that a page names
_PROOF_LABELS = {
    "commitment": "Commitment to the new state",
    "previous": "Record of the request",
    "schema": "Schema",
    "receipts": "Root of the receipts",
}


@certificate_router.get("/requests/{id}/certificate.html")
def show_certificate(
    request: Request,
    id: str,  # noqa: A002 - the name in the address
    visitor: Annotated[Visitor, require_visitor("read")],
) -> Response:
    """The certificate of a request, for people: what it says in words first, what proves it last."""
    service = get_service(request)
    job, text = _find_certificate(service, id)
    said = _read_certificate(text, [PublicKey.from_x(one["x"]) for one in service.vault.jwks()])
    outcome, repeated = job.outcome, job.kind == ERASURE and was_repeated(job.outcome)
    people, rows = said["said"]["people"], said["said"]["rows"]
    if job.kind == ERASURE:  # the certificate covers everybody whose requests were carried out together
        people, rows = outcome["erased_earlier"] if repeated else outcome["erased"], outcome["rows"]
    in_time = job.ended <= job.due if job.kind == ERASURE and job.ended is not None and not repeated else None
    address = f"{service.options.base_url}/receipt"
    reachable = urlsplit(address).hostname not in LOCAL_HOSTS
    return render_page(
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
        qr=_draw_qr_code(address) if reachable else None,
        **said,
    )


@certificate_router.get("/requests/{id}/certificate.jws")
def download_certificate(
    request: Request,
    id: str,  # noqa: A002 - the name in the address
    visitor: Annotated[Visitor, require_visitor("read")],
) -> Response:
    """The certificate of a request as a file to take away."""
    _, text = _find_certificate(get_service(request), id)
    headers = {"Content-Disposition": f'attachment; filename="{_file_name(unverified_payload(text))}"'}
    return Response(f"{text}\n", media_type="application/jose", headers=headers)


def _find_certificate(service: Service, id_: str) -> tuple[Job, str]:
    job = service.queue.get(id_)
    text = service.certificate(job)
    if text is None:
        raise Problem(404, "not-certified", "The request has no certificate, or none yet.")
    return job, text


def _earlier(service: Service, job: Job) -> list[tuple[int, str]]:
    """Return the requests that had erased people of a job before it, the newest first, and when each was."""
    numbers = reversed(job.outcome.get("earlier", [])[-_MOST_EARLIER:])
    return [(number, service.vault.requests[number - 1].time) for number in numbers]


def _file_name(payload: dict[str, Any]) -> str:
    return f"certificate-{int(payload['request']):06}.jws"


def _draw_qr_code(address: str) -> Markup:
    """Return a QR code as SVG, dark on light whatever the page's colours are: cameras want it so."""
    drawn = segno.make(address, error="m", micro=False).svg_inline(scale=4, border=2, light="#ffffff", dark="#000000")
    return Markup(drawn)  # noqa: S704 - drawn by segno from modules, not from text


def _read_certificate(text: str, keys: list[PublicKey]) -> dict[str, Any]:
    """What a certificate says, and whether a key of the vault signed it."""
    try:
        said, fits = verify_statement(text, keys), True
    except InvalidCertificate:
        said, fits = unverified_payload(text), False
    return {
        "said": said,
        "fits": fits,
        "key": unverified_header(text).get("kid", ""),
        "time": format_time(datetime.fromtimestamp(said["iat"], UTC)),
        "proofs": {label: said[name] for name, label in _PROOF_LABELS.items() if name in said},
    }


request_router = APIRouter(route_class=PageRoute)

_PAGE_SIZE = 25
_FILTER_LABELS = {"open": "Open", "overdue": "Overdue", **STATE_WORDS}


@request_router.get("/requests")
def list_requests(
    request: Request,
    visitor: Annotated[Visitor, require_visitor("read")],
    show: Annotated[str, Query(max_length=20)] = "",
    kind: Annotated[str, Query(max_length=40)] = "",
    protocol: Annotated[str, Query(max_length=40)] = "",
    reference: Annotated[str, Query(max_length=200)] = "",
    since: Annotated[str, Query(max_length=10)] = "",
    until: Annotated[str, Query(max_length=10)] = "",
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Response:
    """Requests, the newest first."""
    service = get_service(request)
    counts = service.queue.counts()
    states = OPEN_STATES if show == "open" else (show,) if show in JOB_STATES else ()
    overdue = True if show == "overdue" else None
    wanted = JobFilter(
        states=states,
        kind=kind or None,
        protocol=protocol or None,
        overdue=overdue,
        reference=reference.strip(),
        since=_parse_date(since),
        until=_parse_date(until),
        before=before,
        limit=_PAGE_SIZE + 1,
    )
    found = service.queue.page(wanted)
    typed = {
        "show": show, "kind": kind, "protocol": protocol, "reference": reference, "since": since, "until": until,
    }  # fmt: skip
    chosen = {name: value for name, value in typed.items() if value}
    older = urlencode({**chosen, "before": found[_PAGE_SIZE - 1].number}) if len(found) > _PAGE_SIZE else None
    return render_page(
        request,
        "requests.html",
        visitor,
        found=found[:_PAGE_SIZE],
        shows=_FILTER_LABELS,
        kinds=sorted({one for one, _, _ in counts}),
        protocols=sorted({one for _, one, _ in counts}),
        chosen=typed,
        filtered=bool(chosen),
        newest=urlencode(chosen) if before is not None else None,
        older=older,
        total=sum(counts.values()),
    )


def _parse_date(text: str) -> date | None:
    """Return the date that a field has; nothing for an empty one."""
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise Problem(422, "invalid-input", "A date has the form 2026-01-31.") from None


@request_router.get("/audit.csv")
@request_router.get("/audit.json")
def download_audit(request: Request, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:
    """Everything that happened, with who did it, as a file to take away."""
    service, name = get_service(request), request.url.path.rpartition("/")[2]
    write, kind = (format_csv, "text/csv") if name == "audit.csv" else (format_json, "application/json")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(write(read_trail(service.vault, service.database)), media_type=kind, headers=headers)


@request_router.get("/requests/{id}")
def show_request(
    request: Request,
    id: str,  # noqa: A002 - the name in the address
    visitor: Annotated[Visitor, require_visitor("read")],
) -> Response:
    """One request."""
    service = get_service(request)
    entry = service.queue.get(id)
    certificate = service.certificate(entry)
    return render_page(
        request,
        "request.html",
        visitor,
        entry=entry,
        steps=list_steps(service, entry, certificate is not None),
        certificate=certificate,
        repeated=was_repeated(entry.outcome),
        matters=service.matters.find_for_job(entry.id),
        batched=service.options.batch_every is not None or service.options.batch_size is not None,
    )


@request_router.post("/requests/{id}/cancel")
def cancel_request(request: Request, id: str, posted: Annotated[SubmittedForm, require_form("erase")]) -> Response:  # noqa: A002
    """Cancel a request that is not carried out yet."""
    author = Author(posted.visitor.name, posted.visitor.token_id)
    reason = f"cancelled by {author.name}" if author.name else "cancelled"
    if get_service(request).cancel(id, reason, author) is None:
        raise Problem(409, "too-late", "The request is carried out, or cancelled, already.")
    return redirect_to(f"/requests/{id}")


@request_router.post("/requests/{id}/extend")
def extend_request(request: Request, id: str, posted: Annotated[SubmittedForm, require_form("erase")]) -> Response:  # noqa: A002
    """Give a request the longer time that its regulation allows, and say why."""
    reason = check_line(posted.get("reason"), "the reason", allow_empty=False)
    if get_service(request).extend(id, reason, Author(posted.visitor.name, posted.visitor.token_id)) is None:
        raise Problem(409, "too-late", "The request or its time is over, or was extended already.")
    return redirect_to(f"/requests/{id}")


@dataclass(frozen=True)
class RequestStep:
    """Something that happened to a request, or will."""

    name: str
    state: str  # past, now, next, bad or off
    time: datetime | None = None
    detail: str = ""


def list_steps(service: Service, entry: Job, certified: bool) -> list[RequestStep]:
    """The way of a request."""
    found = [RequestStep("Received", "past", entry.received, f"source: {source_label(entry.protocol)}")]
    delayed = entry.runs - entry.received >= timedelta(seconds=1)
    if entry.state == "held":
        found.append(RequestStep("On hold", "now", None, entry.reason))
    elif entry.state == "waiting":
        found.append(RequestStep("Waiting", "now", entry.runs, entry.reason or _describe_wait(service, entry)))
    elif delayed and entry.state in ("running", *CARRIED_OUT_STATES):
        found.append(RequestStep("Waited", "past", entry.runs, "until then it could be cancelled"))
    if entry.state in ("cancelled", "failed"):
        state = "off" if entry.state == "cancelled" else "bad"
        return [*found, RequestStep(STATE_WORDS[entry.state], state, entry.ended, entry.reason)]
    if entry.state == "not_known":
        why = "nothing was erased: the vault has no rows of these people, and never erased any"
        return [*found, RequestStep(STATE_WORDS[entry.state], "off", entry.ended, why)]
    over = entry.state == "done"
    return [
        *found,
        RequestStep("Carried out", "past" if over else "now" if entry.state == "running" else "next", entry.ended),
        RequestStep(
            "Certified",
            "past" if certified else "now" if over else "next",
            None,
            _describe_certification(over, certified),
        ),
    ]


def _describe_wait(service: Service, entry: Job) -> str:
    if entry.runs > service.clock():
        return "until then it can be cancelled"
    if service.options.batch_every is not None or service.options.batch_size is not None:
        return "for other requests: they are carried out together"
    return "it is carried out next"


def _describe_certification(over: bool, certified: bool) -> str:
    return "it is signed as soon as the signing key is available" if over and not certified else ""
