"""Requests: all of them, filtered and page by page, and one with its steps, its clock and what can be done about it."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from ..access import service_of
from ..audit import read_trail, write_csv, write_json
from ..matters import Author
from ..outcomes import was_repeated
from ..problems import Problem
from ..queue import CARRIED_OUT, OPEN, STATES, Filter, Job
from ..service import Service
from .fields import line
from .rendering import PageRoute, page, to
from .visiting import Posted, Visitor, looks, posts
from .words import STATES as STATE_WORDS
from .words import source

router = APIRouter(route_class=PageRoute)

_PAGE = 25
_SHOWS = {"open": "Open", "overdue": "Overdue", **STATE_WORDS}


@router.get("/requests")
def requests(
    request: Request,
    visitor: Annotated[Visitor, looks("read")],
    show: Annotated[str, Query(max_length=20)] = "",
    kind: Annotated[str, Query(max_length=40)] = "",
    protocol: Annotated[str, Query(max_length=40)] = "",
    reference: Annotated[str, Query(max_length=200)] = "",
    since: Annotated[str, Query(max_length=10)] = "",
    until: Annotated[str, Query(max_length=10)] = "",
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Response:
    """Requests, the newest first."""
    service = service_of(request)
    counts = service.queue.counts()
    states = OPEN if show == "open" else (show,) if show in STATES else ()
    overdue = True if show == "overdue" else None
    wanted = Filter(
        states=states,
        kind=kind or None,
        protocol=protocol or None,
        overdue=overdue,
        reference=reference.strip(),
        since=_day(since),
        until=_day(until),
        before=before,
        limit=_PAGE + 1,
    )
    found = service.queue.page(wanted)
    typed = {
        "show": show, "kind": kind, "protocol": protocol, "reference": reference, "since": since, "until": until,
    }  # fmt: skip
    chosen = {name: value for name, value in typed.items() if value}
    older = urlencode({**chosen, "before": found[_PAGE - 1].number}) if len(found) > _PAGE else None
    return page(
        request,
        "requests.html",
        visitor,
        found=found[:_PAGE],
        shows=_SHOWS,
        kinds=sorted({one for one, _, _ in counts}),
        protocols=sorted({one for _, one, _ in counts}),
        chosen=typed,
        filtered=bool(chosen),
        newest=urlencode(chosen) if before is not None else None,
        older=older,
        total=sum(counts.values()),
    )


def _day(text: str) -> date | None:
    """Return the date that a field has; nothing for an empty one."""
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise Problem(422, "invalid-input", "A date has the form 2026-01-31.") from None


@router.get("/audit.csv")
@router.get("/audit.json")
def audit(request: Request, visitor: Annotated[Visitor, looks("read")]) -> Response:
    """Everything that happened, with who did it, as a file to take away."""
    service, name = service_of(request), request.url.path.rpartition("/")[2]
    write, kind = (write_csv, "text/csv") if name == "audit.csv" else (write_json, "application/json")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(write(read_trail(service.vault, service.database)), media_type=kind, headers=headers)


@router.get("/requests/{id}")
def one_request(
    request: Request,
    id: str,  # noqa: A002 - the name in the address
    visitor: Annotated[Visitor, looks("read")],
) -> Response:
    """One request."""
    service = service_of(request)
    entry = service.queue.get(id)
    certificate = service.certificate(entry)
    return page(
        request,
        "request.html",
        visitor,
        entry=entry,
        steps=steps(service, entry, certificate is not None),
        certificate=certificate,
        repeated=was_repeated(entry.outcome),
        matters=service.matters.holding(entry.id),
        batched=service.options.batch_every is not None or service.options.batch_size is not None,
    )


@router.post("/requests/{id}/cancel")
def cancel(request: Request, id: str, posted: Annotated[Posted, posts("erase")]) -> Response:  # noqa: A002
    """Cancel a request that is not carried out yet."""
    author = Author(posted.visitor.name, posted.visitor.key)
    reason = f"cancelled by {author.name}" if author.name else "cancelled"
    if service_of(request).cancel(id, reason, author) is None:
        raise Problem(409, "too-late", "The request is carried out, or cancelled, already.")
    return to(f"/requests/{id}")


@router.post("/requests/{id}/extend")
def extend(request: Request, id: str, posted: Annotated[Posted, posts("erase")]) -> Response:  # noqa: A002
    """Give a request the longer time that its regulation allows, and say why."""
    reason = line(posted.get("reason"), "the reason", empty=False)
    if service_of(request).extend(id, reason, Author(posted.visitor.name, posted.visitor.key)) is None:
        raise Problem(409, "too-late", "The request or its time is over, or was extended already.")
    return to(f"/requests/{id}")


@dataclass(frozen=True)
class Step:
    """Something that happened to a request, or will."""

    name: str
    state: str  # past, now, next, bad or off
    time: datetime | None = None
    detail: str = ""


def steps(service: Service, entry: Job, certified: bool) -> list[Step]:
    """The way of a request."""
    found = [Step("Received", "past", entry.received, f"source: {source(entry.protocol)}")]
    delayed = entry.runs - entry.received >= timedelta(seconds=1)
    if entry.state == "held":
        found.append(Step("On hold", "now", None, entry.reason))
    elif entry.state == "waiting":
        found.append(Step("Waiting", "now", entry.runs, entry.reason or _waits(service, entry)))
    elif delayed and entry.state in ("running", *CARRIED_OUT):
        found.append(Step("Waited", "past", entry.runs, "until then it could be cancelled"))
    if entry.state in ("cancelled", "failed"):
        state = "off" if entry.state == "cancelled" else "bad"
        return [*found, Step(STATE_WORDS[entry.state], state, entry.ended, entry.reason)]
    if entry.state == "not_known":
        why = "nothing was erased: the vault has no rows of these people, and never erased any"
        return [*found, Step(STATE_WORDS[entry.state], "off", entry.ended, why)]
    over = entry.state == "done"
    return [
        *found,
        Step("Carried out", "past" if over else "now" if entry.state == "running" else "next", entry.ended),
        Step("Certified", "past" if certified else "now" if over else "next", None, _certified(over, certified)),
    ]


def _waits(service: Service, entry: Job) -> str:
    if entry.runs > service.clock():
        return "until then it can be cancelled"
    if service.options.batch_every is not None or service.options.batch_size is not None:
        return "for other requests: they are carried out together"
    return "it is carried out next"


def _certified(over: bool, certified: bool) -> str:
    return "it is signed as soon as the signing key is available" if over and not certified else ""
