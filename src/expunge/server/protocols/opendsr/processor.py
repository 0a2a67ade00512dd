"""The processor, as OpenDSR calls who carries requests out: takes them, tells of them, signs and calls back."""

import base64
import json
import re
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ....errors import ExpungeError, InvalidInput, InvalidSetting
from ...auth import Principal, require_scope_basic
from ...bodies import parse_json
from ...clocks import REGULATIONS, Regulation, format_time
from ...deliveries import check_url
from ...logs import log_error
from ...matters import Author
from ...problems import Problem, to_problem
from ...queue import ERASURE, Job, NewJob, ProtocolName
from ...service import Event, Service, run_in_writer_thread
from ..identities import has_aliases, record_unknown_people, resolve_people
from .keys import SigningFiles

# MERGED bodies: Requests as OpenDSR has them, and as they are seen in the wild: strict about whom and what, lenient about form.


REQUEST_TYPES = ("access", "portability", "erasure")
CUSTOMER_ID, RAW_FORMAT = "controller_customer_id", "raw"
EMAIL = "email"

_IDENTITY_SCHEMA = {f"identity_{part}": {"type": "string"} for part in ("type", "value", "format")}
REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["subject_request_id", "subject_request_type", "submitted_time", "subject_identities"],
    "properties": {
        "regulation": {"enum": list(REGULATIONS)},
        "subject_request_id": {"type": "string", "format": "uuid"},
        "subject_request_type": {"enum": list(REQUEST_TYPES)},
        "submitted_time": {"type": "string", "format": "date-time"},
        "subject_identities": {"type": "array", "items": {"type": "object", "properties": _IDENTITY_SCHEMA}},
        "api_version": {"type": "string"},
        "status_callback_urls": {"type": "array", "items": {"type": "string"}},
        "extensions": {"type": "object"},
    },
}

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[Tt ]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.[0-9]+)?)?"
    r" ?(?:[Zz]|([+-])([0-9]{1,2}):?([0-9]{2}))?)?"
)
_MAX_IDENTITIES, _MAX_CALLBACKS = 100, 20
_MAX_ID_LENGTH = 1000


@dataclass(frozen=True)
class OpenDsrRequest:
    """What a request asks for: `ids` are the vault's, `emails` have to be looked up."""

    id: str
    submitted: datetime  # since when the law's clock runs
    regulation: Regulation | None
    ids: tuple[str, ...]
    emails: tuple[str, ...]
    callbacks: tuple[str, ...]


def parse_request(body: Any, domain: str, allowed_hosts: Collection[str] = ()) -> OpenDsrRequest:
    """A request to erase; what is wrong is named by its field, never by its value.

    ``domain`` is ours, under which extensions are for us; ``allowed`` are hosts inside that may be called back.
    """
    if not isinstance(body, dict):
        raise bad_request("invalid", "the body must be an object")
    id_ = parse_request_id(_get_required(body, "subject_request_id"))
    kind = _get_required(body, "subject_request_type")
    if kind not in REQUEST_TYPES:
        raise bad_request("invalid", f"subject_request_type must be one of {', '.join(REQUEST_TYPES)}")
    if kind != "erasure":
        raise bad_request("not-supported", f"{kind} is not supported: a model has no copy to hand out; erasure is")
    submitted = parse_time(_get_required(body, "submitted_time"))
    identities = list(_find_identities(body, domain))
    if len(identities) > _MAX_IDENTITIES:
        raise bad_request("invalid", f"subject_identities must be at most {_MAX_IDENTITIES}")
    ids, emails = (tuple(dict.fromkeys(v for kind, v in identities if kind == name)) for name in (CUSTOMER_ID, EMAIL))
    callbacks = _parse_callbacks(body.get("status_callback_urls"), allowed_hosts)
    return OpenDsrRequest(id_, submitted, _parse_regulation(body.get("regulation")), ids, emails, callbacks)


def bad_request(reason: str, message: str) -> Problem:
    """What is answered to a request that cannot be taken."""
    return Problem(400, reason, message)


def parse_request_id(value: Any) -> str:
    """The name of a request: a UUID, in lower case."""
    text = value.lower() if isinstance(value, str) else ""
    if not _UUID.fullmatch(text):
        raise bad_request("invalid", "subject_request_id must be a UUID")
    return text


def parse_time(value: Any) -> datetime:
    """A time of RFC 3339, or one whose parts are not padded, or a mere date; without a zone it is UTC."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise bad_request("invalid", "submitted_time must be a time like 2026-01-31T12:00:00Z")
    *parts, sign, hours, minutes = match.groups(default="0")
    year, month, day, hour, minute, second = map(int, parts)
    ahead = timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone(ahead))  # 60: a leap second
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise bad_request("invalid", "submitted_time must be a time that there is") from None


def _get_required(body: dict[str, Any], name: str) -> Any:
    if body.get(name) is None:
        raise bad_request("required", f"{name} field is required")
    return body[name]


def _parse_regulation(value: Any) -> Regulation | None:
    if value is None or value == "":
        return None
    text = value.lower() if isinstance(value, str) else ""
    for one in REGULATIONS:
        if one == text:
            return one
    raise bad_request("not-supported", f"regulation must be one of {', '.join(REGULATIONS)}")


def _find_identities(body: dict[str, Any], domain: str) -> Iterator[tuple[str, str]]:
    """The identities of types and formats that we know; there must be some of any type."""
    extensions = body.get("extensions")
    ours = extensions.get(domain) if isinstance(extensions, dict) else None
    places = [body, ours] if isinstance(ours, dict) else [body]
    given = [one for place in places for one in _list_identities(place.get("subject_identities"))]
    if not given:
        raise bad_request("required", "subject_identities field is required")
    for one in given:
        kind, value = one.get("identity_type"), one.get("identity_value")
        format_ = one.get("identity_format")
        if kind in (CUSTOMER_ID, EMAIL) and format_ in (None, "", RAW_FORMAT):
            yield str(kind), _parse_identity_value(value)


def _list_identities(identities: Any) -> list[dict[str, Any]]:
    """Identities as a list of objects, whether they came as such or as a map: {"email": {"value", "encoding"}}."""
    if identities is None:
        return []
    if isinstance(identities, dict):
        identities = [
            _identity_from_map(kind, one)
            for kind, some in identities.items()
            for one in (some if _is_list(some) else [some])
        ]
    if not isinstance(identities, list) or not all(isinstance(one, dict) for one in identities):
        raise bad_request("invalid", "subject_identities must be a list of objects")
    return identities


def _is_list(found: Any) -> bool:
    return isinstance(found, list)


def _identity_from_map(kind: str, identity: Any) -> dict[str, Any]:
    if not isinstance(identity, dict):
        return {"identity_type": kind, "identity_value": identity}
    value, format_ = identity.get("identity_value", identity.get("value")), identity.get("identity_format")
    return {"identity_type": kind, "identity_value": value, "identity_format": format_ or identity.get("encoding")}


def _parse_identity_value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise bad_request("invalid", "identity_value must be a string")
    text = str(value)
    if not 0 < len(text) <= _MAX_ID_LENGTH:
        raise bad_request("invalid", f"identity_value must have 1 to {_MAX_ID_LENGTH:,} characters")
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise bad_request("invalid", "identity_value must be valid Unicode")
    return text


def _parse_callbacks(value: Any, allowed_hosts: Collection[str]) -> tuple[str, ...]:
    if value is None:
        return ()
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, list) or len(urls) > _MAX_CALLBACKS or not all(isinstance(url, str) for url in urls):
        raise bad_request("invalid", f"status_callback_urls must be a list of at most {_MAX_CALLBACKS} addresses")
    try:
        for url in urls:
            check_url(url, allowed_hosts)
    except InvalidInput as error:
        raise bad_request("invalid", f"status_callback_urls: {error}") from None
    return tuple(dict.fromkeys(urls))


PROTOCOL: ProtocolName = "opendsr"
VERSION = "2.0"
PREFIX = "/opendsr/v2"
_STATUS_NAMES = {
    "waiting": "pending",
    "held": "pending",
    "running": "in_progress",
    "done": "completed",
    "not_known": "completed",  # with results_count 0
    "cancelled": "cancelled",
    "failed": "cancelled",
}
_HEADER_PREFIXES, _OLD_HEADER_PREFIXES = ("X-OpenDSR",), ("X-OpenDSR", "X-OpenGDPR")
_CALLBACKS_WRITTEN = "_told"  # the state that callbacks were written down for
_PENDING_CALLBACKS = """SELECT id FROM requests WHERE protocol = 'opendsr' AND ended IS NOT NULL AND callbacks != '[]'
AND json_extract(outcome, '$._told') IS NULL ORDER BY number"""


class Processor:
    """What the service is in OpenDSR: who answers, signs, and calls back."""

    def __init__(self, service: Service) -> None:
        self.service, self.address = service, service.options.base_url.rstrip("/")
        domain = _parse_host(self.address)
        self.signing_files = SigningFiles(service.vault.places.vault, domain, service.clock)
        service.listeners.append(self.handle_event)
        for row in service.database.fetch_all(_PENDING_CALLBACKS):  # a crash kept them from being told
            self.handle_event(Event("done", service.queue.get(row["id"])))

    # Requests

    def accept(self, request: OpenDsrRequest, raw: bytes, who: Principal, *, old: bool) -> Job:
        """Take a request of one caller; sent again, it gets the answer of the first time.

        A UUID that this caller used for another request is refused, and so is one that was cancelled: whoever sends it
        again expects an erasure, and none would follow.
        """
        service = self.service
        key = service.keyed_hash(f"{PROTOCOL}\n{who.token_id}\n{request.id}".encode())
        mark = service.keyed_hash(raw)
        if (known := self._find_duplicate(key, mark)) is not None:
            return known
        ids = resolve_people(service, request.ids, request.emails)
        if ids is None:
            raise bad_request("not-supported", f"of subject_identities only {CUSTOMER_ID} ({RAW_FORMAT}) is known here")
        asked = NewJob(
            ERASURE,
            PROTOCOL,
            request.regulation or service.options.regulation,
            request.id,
            who.name,
            who.token_id,
            request.id,
            request.callbacks,
            since=request.submitted,
            idempotency=(key, mark),
            facts={"_old": True} if old else {},
        )
        job = service.erase(ids, asked) if ids else record_unknown_people(service, asked, len(request.emails))
        return self._find_duplicate(key, mark) or job  # another of the same name may have come at the same time

    def _find_duplicate(self, key: str, mark: str) -> Job | None:
        """Return the request that was sent before, if it is the same and was not cancelled."""
        known = self.service.queue.find_answered(key)
        if known is None:
            return None
        if known[0] != mark:
            raise bad_request("already-used", "subject_request_id was used for another request")
        if known[1].state == "cancelled":
            raise bad_request("cancelled", "the request was cancelled: ask again with a new subject_request_id")
        return known[1]

    def get(self, id_: str, who: Principal) -> Job:
        """Return the caller's request of this name; admins may look at those of others."""
        queue, name = self.service.queue, parse_request_id(id_)
        entry = queue.find(PROTOCOL, name, who.token_id)
        if entry is None and who.allows("admin"):
            entry = queue.find(PROTOCOL, name)
        if entry is None:
            raise Problem(404, "not-found", "there is no request with this subject_request_id")
        return entry

    def cancel(self, id_: str, who: Principal) -> Job:
        """Cancel a request that is pending; one that was cancelled before stays so."""
        entry = self.get(id_, who)
        if entry.state == "cancelled":
            return entry
        cancelled = self.service.cancel(entry.id, "cancelled by the controller", Author(who.name, who.token_id))
        if cancelled is None:
            raise bad_request("too-late", "only a request that is pending can be cancelled")
        return cancelled

    # What is told

    def common_fields(self, entry: Job) -> dict[str, Any]:
        """What every answer tells of a request."""
        return {"controller_id": entry.actor or "local", "subject_request_id": entry.outside, "api_version": VERSION}

    def status_fields(self, entry: Job) -> dict[str, Any]:
        """How far a request is."""
        told = {
            **self.common_fields(entry),
            "expected_completion_time": format_time(entry.due),
            "request_status": _STATUS_NAMES[entry.state],
        }
        if entry.carried_out:
            told["results_count"] = entry.outcome.get("rows", 0)
            if entry.outcome.get("request") is not None:
                told["results_url"] = f"{self.address}{PREFIX}/requests/{entry.outside}/results"
        return told

    def sign_response(self, fields: dict[str, Any], status: int, *, old: bool) -> Response:
        """An answer with its signature."""
        body = json.dumps(fields).encode()
        return Response(body, status, self.signature_headers(body, old=old), "application/json")

    def signature_headers(self, body: bytes, *, old: bool) -> dict[str, str]:
        """Who says a body, and the signature of it, under the name of now and, for who asked by the old, under both."""
        signer = self.signing_files.load_signer()
        said = {"Processor-Domain": signer.domain, "Signature": signer.sign(body)}
        names = _OLD_HEADER_PREFIXES if old else _HEADER_PREFIXES
        return {f"{name}-{part}": value for name in names for part, value in said.items()}

    # Callbacks

    def handle_event(self, event: Event) -> None:
        """Have every address told that a request has another state. It must not stop who changed it."""
        entry = event.job
        if entry.protocol != PROTOCOL or event.name not in ("done", "not_known", "cancelled") or not entry.callbacks:
            return
        try:
            self._call_back(entry)
        except (ExpungeError, OSError, sqlite3.Error) as error:  # at the next start it is tried again
            log_error("callback-failed", error)

    def _call_back(self, entry: Job) -> None:
        posts = list[tuple[str, bytes, dict[str, str]]]()
        for url in entry.callbacks:
            body = json.dumps({**self.status_fields(entry), "status_callback_url": url}).encode()
            headers = self.signature_headers(body, old=bool(entry.outcome.get("_old")))
            posts.append((url, body, {"Content-Type": "application/json", **headers}))
        with self.service.database.transaction() as database:
            row = database.fetch_one("SELECT outcome FROM requests WHERE id = ?", entry.id)
            outcome = {} if row is None else json.loads(row["outcome"])
            if _CALLBACKS_WRITTEN in outcome:
                return
            for url, body, headers in posts:
                self.service.deliveries.add(url, body, headers)
            kept = json.dumps(outcome | {_CALLBACKS_WRITTEN: entry.state})
            database.execute("UPDATE requests SET outcome = ? WHERE id = ?", kept, entry.id)


def _parse_host(address: str) -> str:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or not host.isascii() or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise InvalidSetting("the public address must be like https://privacy.example.com, in ASCII")
    return host


# MERGED routes: The routes of OpenDSR, and its form of errors.


class OpenDsrRoute(APIRoute):
    """A route whose errors have OpenDSR's form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Answer, or tell in this form why not."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except (Problem, ExpungeError, RequestValidationError, HTTPException) as error:
                return error_response(to_problem(error))

        return handle


def error_response(problem: Problem) -> Response:
    """A problem as OpenDSR has it; what a caller has to correct is always 400 there."""
    status = 400 if problem.status in (409, 422) else problem.status
    message = problem.detail or "the request cannot be answered"
    domain = "Validation" if status == 400 else "Service"
    errors = [{"domain": domain, "reason": problem.kind, "message": message}]
    return JSONResponse(
        {"error": {"code": status, "message": message, "errors": errors}}, status, headers=problem.headers
    )


router = APIRouter(tags=["OpenDSR"], route_class=OpenDsrRoute)
Erase = require_scope_basic("erase")
_REQUEST_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": REQUEST_SCHEMA}}}}
_OLD_ROUTE: dict[str, Any] = {"include_in_schema": False, "response_model": None}
_ROUTE: dict[str, Any] = {"response_model": None}
_OLD_PATHS = (f"{PREFIX}/opengdpr_requests", "/opendsr/opengdpr_requests")


def get_processor(request: Request) -> Processor:
    """Who answers."""
    found: Processor = request.app.state.opendsr
    return found


def _is_old(request: Request) -> bool:
    """Whether somebody speaks OpenGDPR: by the path, or by a header."""
    named = any(name.startswith("x-opengdpr-") for name in request.headers)
    return named or "/opengdpr_requests" in request.url.path


@router.get("/opendsr/discovery", **_OLD_ROUTE)
@router.get(f"{PREFIX}/discovery", **_ROUTE)
def discover(request: Request) -> Response:
    """What is supported, and where the certificate is that signatures are checked with."""
    processor = get_processor(request)
    kinds = [CUSTOMER_ID, EMAIL] if has_aliases(processor.service) else [CUSTOMER_ID]
    return JSONResponse(
        {
            "api_version": VERSION,
            "supported_identities": [{"identity_type": kind, "identity_format": RAW_FORMAT} for kind in kinds],
            "supported_subject_request_types": ["erasure"],
            "processor_certificate": f"{processor.address}{PREFIX}/certificate.pem",
        }
    )


@router.get(f"{PREFIX}/certificate.pem", **_ROUTE)
def get_signing_certificate(request: Request) -> Response:
    """The X.509 certificate of the key that signs answers and callbacks."""
    return Response(get_processor(request).signing_files.load_signer().pem, media_type="application/x-pem-file")


@router.post(f"{PREFIX}/requests", status_code=201, openapi_extra=_REQUEST_BODY, **_ROUTE)
async def submit_request(request: Request, who: Annotated[Principal, Erase]) -> Response:
    """Take an erasure request. The same request again gets the same answer."""
    raw, old = await request.body(), _is_old(request)
    return await run_in_writer_thread(_submit, get_processor(request), raw, who, old)


def _submit(processor: Processor, raw: bytes, who: Principal, old: bool) -> Response:
    domain, allowed = processor.signing_files.load_signer().domain, processor.service.deliveries.allowed
    entry = processor.accept(parse_request(parse_json(raw), domain, allowed), raw, who, old=old)
    told = {
        **processor.common_fields(entry),
        "received_time": format_time(entry.received),
        "expected_completion_time": format_time(entry.due),
        "encoded_request": base64.b64encode(raw).decode(),
    }
    return processor.sign_response(told, 201, old=old)


@router.get(f"{PREFIX}/status/{{id}}", **_OLD_ROUTE)
@router.get(f"{PREFIX}/requests/{{id}}", **_ROUTE)
def get_request_status(request: Request, id: str, who: Annotated[Principal, Erase]) -> Response:  # noqa: A002
    """How far a request is."""
    processor = get_processor(request)
    return processor.sign_response(processor.status_fields(processor.get(id, who)), 200, old=_is_old(request))


@router.delete(f"{PREFIX}/requests/{{id}}", status_code=202, **_ROUTE)
async def cancel_request(request: Request, id: str, who: Annotated[Principal, Erase]) -> Response:  # noqa: A002
    """Cancel a request that is pending."""
    return await run_in_writer_thread(_cancel, request, id, who)


def _cancel(request: Request, id_: str, who: Principal) -> Response:
    processor = get_processor(request)
    entry = processor.cancel(id_, who)
    when = entry.ended or processor.service.clock()
    return processor.sign_response(
        {**processor.common_fields(entry), "received_time": format_time(when)}, 202, old=_is_old(request)
    )


@router.get(f"{PREFIX}/requests/{{id}}/results", **_ROUTE)
def get_results(request: Request, id: str, who: Annotated[Principal, Erase]) -> Response:  # noqa: A002
    """The certificate of a request that is completed: compact JWS."""
    processor = get_processor(request)
    text = processor.service.certificate(processor.get(id, who))
    if text is None:
        raise Problem(404, "not-certified", "the request has no certificate, or none yet")
    return PlainTextResponse(text, media_type="application/jose")


for _place in _OLD_PATHS:
    router.add_api_route(_place, submit_request, methods=["POST"], status_code=201, **_OLD_ROUTE)
    router.add_api_route(f"{_place}/{{id}}", get_request_status, methods=["GET"], **_OLD_ROUTE)
    router.add_api_route(f"{_place}/{{id}}", cancel_request, methods=["DELETE"], status_code=202, **_OLD_ROUTE)
