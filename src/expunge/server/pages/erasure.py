"""The erasure form in three steps: enter ids, review what will happen, see the result.

Between the first two steps the browser holds the ids sealed, as the queue stores them: only the vault can read them.
"""

import base64
import binascii
import io
import secrets
import zipfile
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Request, Response

from ...errors import ExpungeError, InvalidFile, InvalidInput
from ...vault import PersonalReceipt
from ...vault.certificates.jws import unverified_payload
from ...vault.sealed_ids import SealedId
from ..auth import get_service
from ..clocks import REGULATIONS
from ..problems import Problem, to_problem
from ..queue import ERASURE, Job, NewJob
from ..service import MAX_RECEIPTS, ErasureResult, Service
from .templating import PageRoute, redirect_to, render_page
from .visitors import SubmittedForm, Visitor, check_line, parse_ids, require_form, require_visitor

router = APIRouter(route_class=PageRoute)

_MAX_LISTED = 20  # people listed on a page
_MAX_RECEIPTS = MAX_RECEIPTS  # receipts offered on a page


@router.get("/erase")
def show_form(request: Request, visitor: Annotated[Visitor, require_visitor("erase")]) -> Response:
    """Show the empty form."""
    return _render_form(request, visitor)


def _render_form(
    request: Request, visitor: Visitor, typed: dict[str, str] | None = None, problem: str = ""
) -> Response:
    service = get_service(request)
    fields = {"ids": "", "reference": "", "regulation": service.options.regulation} | (typed or {})
    status = 422 if problem else 200
    return render_page(
        request, "erase.html", visitor, status=status, fields=fields, problem=problem, options=service.options
    )


@router.post("/erase")
def preview_erasure(request: Request, form: Annotated[SubmittedForm, require_form("erase")]) -> Response:
    """Show what an erasure will do, without doing it."""
    service = get_service(request)
    try:
        ids = parse_ids(form.get("ids"), service.options.max_ids)
        new_job = _read_job(form)
        plan = _build_preview(service, ids, new_job)
    except (InvalidInput, Problem) as error:
        typed = {name: form.get(name) for name in ("ids", "reference")}
        return _render_form(request, form.visitor, typed, to_problem(error).detail)
    return render_page(
        request,
        "confirm.html",
        form.visitor,
        plan=plan,
        reference=new_job.reference,
        regulation=new_job.regulation,
        options=service.options,
        once=secrets.token_urlsafe(16),
    )


@router.get("/erase/now")
def redirect_to_form() -> Response:
    """Redirect to the form: opening the URL confirms nothing."""
    return redirect_to("/erase")


@router.post("/erase/now")
def submit_erasure(request: Request, form: Annotated[SubmittedForm, require_form("erase")]) -> Response:
    """Carry out the erasure, or queue it if the service delays requests; sending the form twice makes one request."""
    service = get_service(request)
    ids = unpack_sealed_ids(service, form.get("people"))
    key = service.keyed_hash(f"page {form.visitor.proof} {form.get('once')}".encode())
    result = service.erase_people(ids, _read_job(form, idempotency=(key, key)), receipts=True)
    if result.job.state == "cancelled":  # the form was sent before
        raise Problem(409, "cancelled", "The request of this form was cancelled. To erase these people, start again.")
    downloads, problem = _collect_receipts(service, result, ids)
    return render_page(
        request,
        "erased.html",
        form.visitor,
        job=result.job,
        people=len(ids),
        downloads=downloads[:_MAX_LISTED],
        archive=_zip_receipts(downloads),
        problem=problem,
    )


def _read_job(form: SubmittedForm, idempotency: tuple[str, str] | None = None) -> NewJob:
    """Return the job that a form describes, without its people."""
    regulation = form.get("regulation")
    if regulation not in REGULATIONS:
        raise Problem(422, "invalid-input", f"Choose one of the regulations: {', '.join(REGULATIONS)}.")
    return NewJob(
        kind=ERASURE,
        protocol="dashboard",
        regulation=regulation,
        reference=check_line(form.get("reference"), "the reference"),
        actor=form.visitor.name,
        caller=form.visitor.token_id,
        idempotency=idempotency,
    )


@dataclass(frozen=True)
class PersonPreview:
    """A person named in a request, and what the vault holds of them."""

    id: str
    state: str  # present, erased or unknown
    rows: int
    held: bool
    similar: bool  # the id is unknown, but the vault has a similar one


@dataclass(frozen=True)
class ErasurePreview:
    """What an erasure will do."""

    people: list[PersonPreview]
    sealed: str
    same: Job | None  # a request that this visitor has open for exactly these people and this reference

    @property
    def listed(self) -> list[PersonPreview]:
        """The people listed on the page."""
        return self.people[:_MAX_LISTED]

    @property
    def rows(self) -> int:
        """Number of rows that will be erased."""
        return sum(person.rows for person in self.people)

    def number(self, state: str) -> int:
        """Return the number of people in a state."""
        return sum(person.state == state for person in self.people)

    @property
    def similar(self) -> int:
        """Number of unknown ids for which the vault has a similar one."""
        return sum(person.similar for person in self.people)

    @property
    def held(self) -> int:
        """Number of people on legal hold."""
        return sum(person.held for person in self.people)


def _build_preview(service: Service, ids: list[str], new_job: NewJob) -> ErasurePreview:
    """Look people up. Two spellings of the same id count as one person."""
    by_hash = {sealed.hash: (id_, sealed) for id_, sealed in zip(ids, service.vault.seal(ids), strict=True)}
    holdings = service.vault.find([id_ for id_, _ in by_hash.values()])
    held = service.matters.filter_held(by_hash)
    people = [
        PersonPreview(id_, holding.state, holding.rows, hash_ in held, holding.similar)
        for (hash_, (id_, _)), holding in zip(by_hash.items(), holdings, strict=True)
    ]
    same = service.find_open_job(new_job, by_hash)
    return ErasurePreview(people, pack_sealed_ids([sealed for _, sealed in by_hash.values()]), same)


def pack_sealed_ids(people: list[SealedId]) -> str:
    """Encode sealed ids as the value of a form field."""
    return " ".join(base64.b64encode(sealed.to_bytes()).decode() for sealed in people)


def unpack_sealed_ids(service: Service, text: str) -> list[str]:
    """Return the ids that `pack_sealed_ids` encoded; the field may have been tampered with."""
    try:
        sealed = [SealedId.from_bytes(base64.b64decode(part, validate=True)) for part in text.split(" ")]
        return service.vault.unseal(sealed)
    except (binascii.Error, ValueError, InvalidFile):
        raise Problem(422, "invalid-input", "The form was changed after this service sent it: start again.") from None


@dataclass(frozen=True)
class ReceiptDownload:
    """A person's receipt as a file to download."""

    id: str
    name: str
    text: str
    kind: str

    @property
    def address(self) -> str:
        """The file as a data URL: no second request reveals whose receipt it is."""
        return f"data:application/json;base64,{base64.b64encode(self.text.encode()).decode()}"


def _collect_receipts(service: Service, result: ErasureResult, ids: list[str]) -> tuple[list[ReceiptDownload], str]:
    """Return the receipts of an erasure that was carried out, and what to show if there are none."""
    if not result.job.carried_out:
        return [], ""
    if len(ids) > _MAX_RECEIPTS:
        return [], f"This page offers at most {_MAX_RECEIPTS:,} receipts; POST /api/v1/receipts has no limit."
    try:
        receipts = service.issue_receipts(ids) if result.receipts is None else result.receipts
    except ExpungeError as error:
        return [], str(error)
    return [_build_download(id_, receipt) for id_, receipt in zip(ids, receipts, strict=True) if receipt], ""


def _build_download(id_: str, receipt: PersonalReceipt) -> ReceiptDownload:
    kind = str(unverified_payload(receipt.certificate)["kind"])
    return ReceiptDownload(id_, f"{receipt.request:06}-{receipt.name}.json", receipt.to_json(), kind)


def _zip_receipts(downloads: list[ReceiptDownload]) -> str:
    """Return a data URL of a zip with all receipts, numbered in the order of the ids; file names contain no id."""
    if len(downloads) < 2:
        return ""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, download in enumerate(downloads, 1):
            archive.writestr(f"{number:04}-{download.name}", download.text)
    return f"data:application/zip;base64,{base64.b64encode(out.getvalue()).decode()}"
