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
from ...vault.certificates.jws import unchecked
from ...vault.sealing import Sealed
from ..access import service_of
from ..clocks import REGULATIONS, Regulation
from ..problems import Problem, problem_of
from ..queue import ERASURE, Job, NewJob
from ..service import MOST_RECEIPTS, ErasureResult, Service
from .fields import ids, line
from .rendering import PageRoute, page, to
from .visiting import Posted, Visitor, looks, posts

router = APIRouter(route_class=PageRoute)

_LISTED = 20  # people who are shown one by one
_MOST_RECEIPTS = MOST_RECEIPTS  # that a page hands out


@router.get("/erase")
def form(request: Request, visitor: Annotated[Visitor, looks("erase")]) -> Response:
    """The form that asks for whom."""
    return _form(request, visitor)


def _form(request: Request, visitor: Visitor, typed: dict[str, str] | None = None, problem: str = "") -> Response:
    service = service_of(request)
    filled = {"ids": "", "reference": "", "regulation": service.options.regulation} | (typed or {})
    facts = {"filled": filled, "problem": problem, "options": service.options}
    return page(request, "erase.html", visitor, status=422 if problem else 200, **facts)


@router.post("/erase")
def confirm(request: Request, posted: Annotated[Posted, posts("erase")]) -> Response:
    """What will happen; nothing does yet."""
    service = service_of(request)
    try:
        named = ids(posted.get("ids"), service.options.most_ids)
        reference, regulation = _about(posted)
        asked = NewJob(ERASURE, "dashboard", regulation, reference, posted.visitor.name, posted.visitor.key)
        plan = _plan(service, named, asked)
    except (InvalidInput, Problem) as error:
        detail = problem_of(error).detail
        typed = {name: posted.get(name) for name in ("ids", "reference")}
        return _form(request, posted.visitor, typed, detail)
    return page(
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
def again() -> Response:
    """Whoever comes here by address has confirmed nothing."""
    return to("/erase")


@router.post("/erase/now")
def erase(request: Request, posted: Annotated[Posted, posts("erase")]) -> Response:
    """Carry it out, or have it wait as the service is set; a form that is sent twice is one request."""
    service = service_of(request)
    named = unpack(service, posted.get("people"))
    reference, regulation = _about(posted)
    key = service.mark(f"page {posted.visitor.proof} {posted.get('once')}".encode())
    asked = NewJob(
        ERASURE, "dashboard", regulation, reference, posted.visitor.name, posted.visitor.key, answers=(key, key)
    )
    erased = service.erase_people(named, asked, receipts=True)
    entry = erased.job
    if entry.state == "cancelled":  # the form was sent before
        raise Problem(409, "cancelled", "The request of this form was cancelled. Fill in a new form to ask again.")
    handed, problem = _receipts(service, erased, named)
    facts: dict[str, Any] = {"listed": handed[:_LISTED], "zipped": _zipped(handed), "problem": problem}
    return page(request, "erased.html", posted.visitor, entry=entry, people=len(named), **facts)


def _about(posted: Posted) -> tuple[str, Regulation]:
    """What else a form says about an erasure."""
    regulation = posted.get("regulation")
    if regulation not in REGULATIONS:
        raise Problem(422, "invalid-input", f"Choose one of the regulations: {', '.join(REGULATIONS)}.")
    return line(posted.get("reference"), "the reference"), regulation


# What will happen


@dataclass(frozen=True)
class Person:
    """Somebody whom a request names, and what the vault holds of them."""

    id: str
    state: str  # present, erased or unknown
    rows: int
    held: bool
    similar: bool  # whether a similar id is there, if this one is not


@dataclass(frozen=True)
class Plan:
    """What an erasure will do."""

    people: list[Person]
    sealed: str
    same: Job | None  # a request that this visitor has open for exactly these people and this reference

    @property
    def listed(self) -> list[Person]:
        """Those who are shown."""
        return self.people[:_LISTED]

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


def _plan(service: Service, named: list[str], asked: NewJob) -> Plan:
    """Look people up; each counts once, also if they are written in two ways."""
    sealed = service.vault.seal(named)
    once = {one.hash: (name, one) for name, one in zip(named, sealed, strict=True)}
    found = service.vault.holds([name for name, _ in once.values()])
    held = service.matters.held(once)
    people = [
        Person(name, holding.state, holding.rows, hash_ in held, holding.similar)
        for (hash_, (name, _)), holding in zip(once.items(), found, strict=True)
    ]
    same = service.open_request(asked, once)
    return Plan(people, pack([one for _, one in once.values()]), same)


def pack(people: list[Sealed]) -> str:
    """Sealed people as the text of a field."""
    return " ".join(base64.b64encode(one.to_bytes()).decode() for one in people)


def unpack(service: Service, text: str) -> list[str]:
    """The ids that `pack` put into a field, of whatever somebody sends."""
    try:
        sealed = [Sealed.of_bytes(base64.b64decode(one, validate=True)) for one in text.split(" ")]
        return service.vault.unseal(sealed)
    except (binascii.Error, ValueError, InvalidFile):
        raise Problem(422, "invalid-input", "The form was changed on its way: begin again.") from None


# What happened


@dataclass(frozen=True)
class Handed:
    """A receipt for somebody, as a file that a browser saves."""

    id: str
    name: str
    text: str
    kind: str

    @property
    def address(self) -> str:
        """The file itself, in its own address: no other request tells whose it is."""
        return f"data:application/json;base64,{base64.b64encode(self.text.encode()).decode()}"


def _receipts(service: Service, erased: ErasureResult, named: list[str]) -> tuple[list[Handed], str]:
    """The receipts of people whose erasure is carried out, or why there are none."""
    if not erased.job.carried_out:
        return [], ""
    if len(named) > _MOST_RECEIPTS:
        return [], f"A page hands out at most {_MOST_RECEIPTS:,} receipts; POST /api/v1/receipts has no such limit."
    try:
        found = service.receipts(named) if erased.receipts is None else erased.receipts
    except ExpungeError as error:
        return [], str(error)
    return [_handed(name, one) for name, one in zip(named, found, strict=True) if one is not None], ""


def _handed(name: str, receipt: PersonalReceipt) -> Handed:
    kind = str(unchecked(receipt.certificate)["kind"])
    return Handed(name, f"{receipt.request:06}-{receipt.name}.json", receipt.to_json(), kind)


def _zipped(handed: list[Handed]) -> str:
    """All receipts in one file, numbered as the people were named; the names of files tell nothing else."""
    if len(handed) < 2:
        return ""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for k, one in enumerate(handed, 1):
            archive.writestr(f"{k:04}-{one.name}", one.text)
    return f"data:application/zip;base64,{base64.b64encode(out.getvalue()).decode()}"
