"""The form for an erasure: whom, then what will happen, then what happened.

Between the first two the ids travel sealed, as the queue keeps them: only the vault can read what a browser remembers.
"""

import base64
import binascii
import io
import secrets
import zipfile
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from ...errors import ExpungeError, InvalidFile, InvalidInput
from ...vault import PersonalReceipt
from ...vault.certificates.jws import unverified_payload
from ...vault.sealed_ids import SealedId
from ..auth import get_service
from ..clocks import REGULATIONS, Regulation
from ..problems import Problem, to_problem
from ..queue import ERASURE, Job, NewJob
from ..service import MAX_RECEIPTS, ErasureResult, Service
from .templating import PageRoute, redirect_to, render_page
from .visitors import SubmittedForm, Visitor, check_line, parse_ids, require_form, require_visitor

router = APIRouter(route_class=PageRoute)

_MAX_LISTED = 20  # people who are shown one by one
_MAX_RECEIPTS = MAX_RECEIPTS  # that a page hands out


@router.get("/erase")
def show_form(request: Request, visitor: Annotated[Visitor, require_visitor("erase")]) -> Response:
    """The form that asks for whom."""
    return _render_form(request, visitor)


def _render_form(
    request: Request, visitor: Visitor, typed: dict[str, str] | None = None, problem: str = ""
) -> Response:
    service = get_service(request)
    filled = {"ids": "", "reference": "", "regulation": service.options.regulation} | (typed or {})
    facts = {"filled": filled, "problem": problem, "options": service.options}
    return render_page(request, "erase.html", visitor, status=422 if problem else 200, **facts)


@router.post("/erase")
def preview_erasure(request: Request, posted: Annotated[SubmittedForm, require_form("erase")]) -> Response:
    """What will happen; nothing does yet."""
    service = get_service(request)
    try:
        named = parse_ids(posted.get("ids"), service.options.max_ids)
        reference, regulation = _read_details(posted)
        asked = NewJob(ERASURE, "dashboard", regulation, reference, posted.visitor.name, posted.visitor.token_id)
        plan = _build_preview(service, named, asked)
    except (InvalidInput, Problem) as error:
        detail = to_problem(error).detail
        typed = {name: posted.get(name) for name in ("ids", "reference")}
        return _render_form(request, posted.visitor, typed, detail)
    return render_page(
        request,
        "confirm.html",
        posted.visitor,
        plan=plan,
        reference=reference,
        regulation=regulation,
        options=service.options,
        once=secrets.token_urlsafe(16),
    )


@router.get("/erase/now")
def redirect_to_form() -> Response:
    """Whoever comes here by address has confirmed nothing."""
    return redirect_to("/erase")


@router.post("/erase/now")
def submit_erasure(request: Request, posted: Annotated[SubmittedForm, require_form("erase")]) -> Response:
    """Carry it out, or have it wait as the service is set; a form that is sent twice is one request."""
    service = get_service(request)
    named = unpack_sealed_ids(service, posted.get("people"))
    reference, regulation = _read_details(posted)
    key = service.keyed_hash(f"page {posted.visitor.proof} {posted.get('once')}".encode())
    asked = NewJob(
        ERASURE,
        "dashboard",
        regulation,
        reference,
        posted.visitor.name,
        posted.visitor.token_id,
        idempotency=(key, key),
    )
    erased = service.erase_people(named, asked, receipts=True)
    entry = erased.job
    if entry.state == "cancelled":  # the form was sent before
        raise Problem(409, "cancelled", "The request of this form was cancelled. Fill in a new form to ask again.")
    handed, problem = _collect_receipts(service, erased, named)
    facts: dict[str, Any] = {"listed": handed[:_MAX_LISTED], "zipped": _zip_receipts(handed), "problem": problem}
    return render_page(request, "erased.html", posted.visitor, entry=entry, people=len(named), **facts)


def _read_details(posted: SubmittedForm) -> tuple[str, Regulation]:
    """What else a form says about an erasure."""
    regulation = posted.get("regulation")
    if regulation not in REGULATIONS:
        raise Problem(422, "invalid-input", f"Choose one of the regulations: {', '.join(REGULATIONS)}.")
    return check_line(posted.get("reference"), "the reference"), regulation


# What will happen


@dataclass(frozen=True)
class PersonPreview:
    """Somebody whom a request names, and what the vault holds of them."""

    id: str
    state: str  # present, erased or unknown
    rows: int
    held: bool
    similar: bool  # whether a similar id is there, if this one is not


@dataclass(frozen=True)
class ErasurePreview:
    """What an erasure will do."""

    people: list[PersonPreview]
    sealed: str
    same: Job | None  # a request that this visitor has open for exactly these people and this reference

    @property
    def listed(self) -> list[PersonPreview]:
        """Those who are shown."""
        return self.people[:_MAX_LISTED]

    @property
    def rows(self) -> int:
        """How many rows will go."""
        return sum(one.rows for one in self.people)

    def number(self, state: str) -> int:
        """How many people are in a state."""
        return sum(one.state == state for one in self.people)

    @property
    def similar(self) -> int:
        """For how many unknown ids a similar one is there."""
        return sum(one.similar for one in self.people)

    @property
    def held(self) -> int:
        """How many are on hold."""
        return sum(one.held for one in self.people)


def _build_preview(service: Service, ids: list[str], new_job: NewJob) -> ErasurePreview:
    """Look people up; each counts once, also if they are written in two ways."""
    sealed = service.vault.seal(ids)
    once = {one.hash: (name, one) for name, one in zip(ids, sealed, strict=True)}
    found = service.vault.find([name for name, _ in once.values()])
    held = service.matters.filter_held(once)
    people = [
        PersonPreview(name, holding.state, holding.rows, hash_ in held, holding.similar)
        for (hash_, (name, _)), holding in zip(once.items(), found, strict=True)
    ]
    same = service.find_open_job(new_job, once)
    return ErasurePreview(people, pack_sealed_ids([one for _, one in once.values()]), same)


def pack_sealed_ids(people: list[SealedId]) -> str:
    """Sealed people as the text of a field."""
    return " ".join(base64.b64encode(one.to_bytes()).decode() for one in people)


def unpack_sealed_ids(service: Service, text: str) -> list[str]:
    """The ids that `pack` put into a field, of whatever somebody sends."""
    try:
        sealed = [SealedId.from_bytes(base64.b64decode(one, validate=True)) for one in text.split(" ")]
        return service.vault.unseal(sealed)
    except (binascii.Error, ValueError, InvalidFile):
        raise Problem(422, "invalid-input", "The form was changed on its way: begin again.") from None


# What happened


@dataclass(frozen=True)
class ReceiptDownload:
    """A receipt for somebody, as a file that a browser saves."""

    id: str
    name: str
    text: str
    kind: str

    @property
    def address(self) -> str:
        """The file itself, in its own address: no other request tells whose it is."""
        return f"data:application/json;base64,{base64.b64encode(self.text.encode()).decode()}"


def _collect_receipts(service: Service, erased: ErasureResult, ids: list[str]) -> tuple[list[ReceiptDownload], str]:
    """The receipts of people whose erasure is carried out, or why there are none."""
    if not erased.job.carried_out:
        return [], ""
    if len(ids) > _MAX_RECEIPTS:
        return [], f"A page hands out at most {_MAX_RECEIPTS:,} receipts; POST /api/v1/receipts has no such limit."
    try:
        found = service.issue_receipts(ids) if erased.receipts is None else erased.receipts
    except ExpungeError as error:
        return [], str(error)
    return [_build_download(name, one) for name, one in zip(ids, found, strict=True) if one is not None], ""


def _build_download(name: str, receipt: PersonalReceipt) -> ReceiptDownload:
    kind = str(unverified_payload(receipt.certificate)["kind"])
    return ReceiptDownload(name, f"{receipt.request:06}-{receipt.name}.json", receipt.to_json(), kind)


def _zip_receipts(downloads: list[ReceiptDownload]) -> str:
    """All receipts in one file, numbered as the people were named; the names of files tell nothing else."""
    if len(downloads) < 2:
        return ""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for k, one in enumerate(downloads, 1):
            archive.writestr(f"{k:04}-{one.name}", one.text)
    return f"data:application/zip;base64,{base64.b64encode(out.getvalue()).decode()}"
