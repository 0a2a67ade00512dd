"""The pages of requests: the list with its filters, a single request with its steps, and its printable certificate."""

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
from ..clocks import format_time, parse_time
from ..matters import Author
from ..problems import Problem
from ..queue import ERASURE, JOB_STATES, OPEN_STATES, Job, JobFilter, was_repeated
from ..service import Service
from .templating import STATE_LABELS, PageRoute, redirect_to, render_page, source_label
from .visitors import SubmittedForm, Visitor, check_line, require_form, require_visitor

router = APIRouter(route_class=PageRoute)

_PAGE_SIZE = 25
_FILTER_LABELS = {"open": "Open", "overdue": "Overdue", **STATE_LABELS}
_MAX_EARLIER = 10  # earlier requests named on a certificate's page
_PROOF_LABELS = {
    "commitment": "Commitment to the new state",
    "previous": "Record of the request",
    "schema": "Schema",
    "receipts": "Root of the receipts",
}


@router.get("/requests")
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
    """Show a page of requests, newest first."""
    service = get_service(request)
    counts = service.queue.counts()
    jobs = service.queue.page(
        JobFilter(
            states=OPEN_STATES if show == "open" else (show,) if show in JOB_STATES else (),
            kind=kind or None,
            protocol=protocol or None,
            overdue=True if show == "overdue" else None,
            reference=reference.strip(),
            since=_parse_date(since),
            until=_parse_date(until),
            before=before,
            limit=_PAGE_SIZE + 1,
        )
    )
    filters = {
        "show": show, "kind": kind, "protocol": protocol, "reference": reference, "since": since, "until": until,
    }  # fmt: skip
    chosen = {name: value for name, value in filters.items() if value}
    older = urlencode({**chosen, "before": jobs[_PAGE_SIZE - 1].number}) if len(jobs) > _PAGE_SIZE else None
    return render_page(
        request,
        "requests.html",
        visitor,
        jobs=jobs[:_PAGE_SIZE],
        states=_FILTER_LABELS,
        kinds=sorted({kind for kind, _, _ in counts}),
        protocols=sorted({protocol for _, protocol, _ in counts}),
        filters=filters,
        filtered=bool(chosen),
        newest=urlencode(chosen) if before is not None else None,
        older=older,
        total=sum(counts.values()),
    )


def _parse_date(text: str) -> date | None:
    """Return the date in a field, or None if the field is empty."""
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise Problem(422, "invalid-input", "Enter the date as 2026-01-31.") from None


@router.get("/audit.csv")
@router.get("/audit.json")
def download_audit(request: Request, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:
    """Serve the audit trail as a file: every event, and who caused it."""
    service, name = get_service(request), request.url.path.rpartition("/")[2]
    write, kind = (format_csv, "text/csv") if name == "audit.csv" else (format_json, "application/json")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(write(read_trail(service.vault, service.database)), media_type=kind, headers=headers)


@router.get("/requests/{id}")
def show_request(request: Request, id: str, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:  # noqa: A002
    """Show a request."""
    service = get_service(request)
    job = service.queue.get(id)
    certificate = service.certificate(job)
    return render_page(
        request,
        "request.html",
        visitor,
        job=job,
        steps=_list_steps(service, job, certificate is not None),
        certificate=certificate,
        repeated=was_repeated(job.outcome),
        matters=service.matters.find_for_job(job.id),
    )


@router.post("/requests/{id}/cancel")
def cancel_request(request: Request, id: str, form: Annotated[SubmittedForm, require_form("erase")]) -> Response:  # noqa: A002
    """Cancel a request that has not been carried out."""
    author = Author(form.visitor.name, form.visitor.token_id)
    reason = f"cancelled by {author.name}" if author.name else "cancelled"
    if get_service(request).cancel(id, reason, author) is None:
        raise Problem(409, "too-late", "The request was already carried out or cancelled.")
    return redirect_to(f"/requests/{id}")


@router.post("/requests/{id}/extend")
def extend_request(request: Request, id: str, form: Annotated[SubmittedForm, require_form("erase")]) -> Response:  # noqa: A002
    """Extend a request's deadline as its regulation allows, and record the reason."""
    reason = check_line(form.get("reason"), "the reason", allow_empty=False)
    if get_service(request).extend(id, reason, Author(form.visitor.name, form.visitor.token_id)) is None:
        raise Problem(409, "too-late", "The request is closed or overdue, or its deadline was already extended.")
    return redirect_to(f"/requests/{id}")


@dataclass(frozen=True)
class RequestStep:
    """A step of a request, past or future."""

    name: str
    state: str  # past, now, next, bad or off
    time: datetime | None = None
    detail: str = ""


def _list_steps(service: Service, job: Job, certified: bool) -> list[RequestStep]:
    """Return the steps of a request, in order."""
    steps = [RequestStep("Received", "past", job.received, f"source: {source_label(job.protocol)}")]
    delayed = job.runs - job.received >= timedelta(seconds=1)
    if job.state == "held":
        steps.append(RequestStep("On hold", "now", None, job.reason))
    elif job.state == "waiting":
        steps.append(RequestStep("Waiting", "now", job.runs, job.reason or _describe_wait(service, job)))
    elif delayed and (job.state == "running" or job.carried_out):
        steps.append(RequestStep("Waited", "past", job.runs, "could be cancelled until then"))
    if job.state in ("cancelled", "failed"):
        state = "off" if job.state == "cancelled" else "bad"
        return [*steps, RequestStep(STATE_LABELS[job.state], state, job.ended, job.reason)]
    if job.state == "not_known":
        reason = "nothing was erased: the vault has no rows of these people and no record of erasing any"
        return [*steps, RequestStep(STATE_LABELS[job.state], "off", job.ended, reason)]
    done, early = job.carried_out, job.outcome.get("carried_out")  # before it was complete
    time = job.ended if early is None else parse_time(early)
    steps.append(RequestStep("Carried out", "past" if done else "now" if job.state == "running" else "next", time))
    if certified:
        steps.append(RequestStep("Certified", "past"))
    else:
        wait = "signed as soon as the signing key is available" if done else ""
        steps.append(RequestStep("Certified", "now" if done else "next", None, wait))
    if job.incomplete:
        why = "the settings of the model are chosen again then, without these people's rows"
        steps.append(RequestStep("Complete with the next renewal", "now", service.complete_by(job), why))
    elif early is not None:
        why = f"request {job.outcome['renewal']} of the vault chose the settings again, without these people's rows"
        steps.append(RequestStep("Complete", "past", job.ended, why))
    return steps


def _describe_wait(service: Service, job: Job) -> str:
    if job.runs > service.clock():
        return "can be cancelled until then"
    if service.options.batch_every is not None or service.options.batch_size is not None:
        return "waiting for the next batch"
    return "next to be carried out"


@router.get("/requests/{id}/certificate.html")
def show_certificate(request: Request, id: str, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:  # noqa: A002
    """Show the certificate of a request for printing: what it states in words first, the proof last."""
    service = get_service(request)
    job, text = _find_certificate(service, id)
    try:
        statement = verify_statement(text, [PublicKey.from_x(key["x"]) for key in service.vault.jwks()])
        valid = True
    except InvalidCertificate:
        statement, valid = unverified_payload(text), False
    outcome, repeated = job.outcome, job.kind == ERASURE and was_repeated(job.outcome)
    people, rows, in_time = statement["people"], statement["rows"], None
    if job.kind == ERASURE:  # the certificate covers everyone whose requests were carried out together
        people, rows = outcome["erased_earlier"] if repeated else outcome["erased"], outcome["rows"]
        if job.ended is not None and not repeated:
            in_time = job.ended <= job.due
    earlier = reversed(outcome.get("earlier", [])[-_MAX_EARLIER:])  # requests that erased people of this one before
    address = f"{service.options.base_url}/receipt"
    reachable = urlsplit(address).hostname not in LOCAL_HOSTS
    return render_page(
        request,
        "certificate.html",
        visitor,
        job=job,
        text=text,
        statement=statement,
        valid=valid,
        key=unverified_header(text).get("kid", ""),
        time=format_time(datetime.fromtimestamp(statement["iat"], UTC)),
        proofs={label: statement[name] for name, label in _PROOF_LABELS.items() if name in statement},
        file_name=_file_name(statement),
        in_time=in_time,
        people=people,
        rows=rows,
        repeated=repeated,
        earlier=[(number, service.vault.requests[number - 1].time) for number in earlier],
        organisation=service.options.organisation,
        check_url=address if reachable else None,
        qr=_draw_qr_code(address) if reachable else None,
    )


@router.get("/requests/{id}/certificate.jws")
def download_certificate(request: Request, id: str, visitor: Annotated[Visitor, require_visitor("read")]) -> Response:  # noqa: A002
    """Serve the certificate of a request as a file."""
    _, text = _find_certificate(get_service(request), id)
    headers = {"Content-Disposition": f'attachment; filename="{_file_name(unverified_payload(text))}"'}
    return Response(f"{text}\n", media_type="application/jose", headers=headers)


def _find_certificate(service: Service, id_: str) -> tuple[Job, str]:
    job = service.queue.get(id_)
    text = service.certificate(job)
    if text is None:
        raise Problem(404, "not-certified", "The request has no certificate yet, or will not have one.")
    return job, text


def _file_name(statement: dict[str, Any]) -> str:
    return f"certificate-{int(statement['request']):06}.jws"


def _draw_qr_code(address: str) -> Markup:
    """Return a QR code as SVG, dark on light in both themes, as cameras need it."""
    svg = segno.make(address, error="m", micro=False).svg_inline(scale=4, border=2, light="#ffffff", dark="#000000")
    return Markup(svg)  # noqa: S704 - segno draws modules, no text
