"""The processor, OpenDSR's name for a service that carries out requests: its routes, signed responses and callbacks.

Parsing is strict about the people and the kind of request, and lenient about the form, because senders deviate from the
specification.
"""

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
from ...auth import Principal, basic_password, require_scope
from ...bodies import parse_json
from ...clocks import REGULATIONS, Regulation, format_time
from ...deliveries import check_url
from ...logs import log_error
from ...matters import Author
from ...problems import Problem, to_problem
from ...queue import ERASURE, Job, NewJob, ProtocolName, erasure_outcome
from ...service import Event, Service, run_in_writer_thread
from .keys import SigningFiles

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
    """A parsed request; `ids` are those of the vault, `emails` are looked up among the aliases."""

    id: str
    submitted: datetime  # from when the deadline is counted
    regulation: Regulation | None
    ids: tuple[str, ...]
    emails: tuple[str, ...]
    callbacks: tuple[str, ...]


def parse_request(body: Any, domain: str, allowed_hosts: Collection[str] = ()) -> OpenDsrRequest:
    """Parse an erasure request. Errors name the field, never its value.

    ``domain`` is our key among the extensions; ``allowed_hosts`` are private hosts that callbacks may be sent to.
    """
    if not isinstance(body, dict):
        raise bad_request("invalid", "the body must be an object")
    id_ = parse_request_id(_get_required(body, "subject_request_id"))
    kind = _get_required(body, "subject_request_type")
    if kind not in REQUEST_TYPES:
        raise bad_request("invalid", f"subject_request_type must be one of {', '.join(REQUEST_TYPES)}")
    if kind != "erasure":
        raise bad_request(
            "not-supported", f"{kind} is not supported, because a model keeps no copy of the data; only erasure is"
        )
    submitted = parse_time(_get_required(body, "submitted_time"))
    identities = list(_find_identities(body, domain))
    if len(identities) > _MAX_IDENTITIES:
        raise bad_request("invalid", f"subject_identities can have at most {_MAX_IDENTITIES} entries")
    ids, emails = (tuple(dict.fromkeys(v for kind, v in identities if kind == name)) for name in (CUSTOMER_ID, EMAIL))
    callbacks = _parse_callbacks(body.get("status_callback_urls"), allowed_hosts)
    return OpenDsrRequest(id_, submitted, _parse_regulation(body.get("regulation")), ids, emails, callbacks)


def bad_request(reason: str, message: str) -> Problem:
    """Return the problem of a request that cannot be accepted."""
    return Problem(400, reason, message)


def parse_request_id(value: Any) -> str:
    """Return a request's id, a UUID, in lower case."""
    text = value.lower() if isinstance(value, str) else ""
    if not _UUID.fullmatch(text):
        raise bad_request("invalid", "subject_request_id must be a UUID")
    return text


def parse_time(value: Any) -> datetime:
    """Parse an RFC 3339 time; unpadded parts and a date alone are also accepted, and UTC is the default zone."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise bad_request("invalid", "submitted_time must be a time like 2026-01-31T12:00:00Z")
    *parts, sign, hours, minutes = match.groups(default="0")
    year, month, day, hour, minute, second = map(int, parts)
    offset = timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    try:
        time = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone(offset))  # 60: a leap second
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise bad_request("invalid", "submitted_time must be a valid time") from None


def _get_required(body: dict[str, Any], name: str) -> Any:
    if body.get(name) is None:
        raise bad_request("required", f"{name} field is required")
    return body[name]


def _parse_regulation(value: Any) -> Regulation | None:
    if value is None or value == "":
        return None
    text = value.lower() if isinstance(value, str) else ""
    for regulation in REGULATIONS:
        if regulation == text:
            return regulation
    raise bad_request("not-supported", f"regulation must be one of {', '.join(REGULATIONS)}")


def _find_identities(body: dict[str, Any], domain: str) -> Iterator[tuple[str, str]]:
    """Yield type and value of the identities that are supported here; there must be at least one of any type."""
    extensions = body.get("extensions")
    ours = extensions.get(domain) if isinstance(extensions, dict) else None
    documents = [body, ours] if isinstance(ours, dict) else [body]
    identities = [item for document in documents for item in _list_identities(document.get("subject_identities"))]
    if not identities:
        raise bad_request("required", "subject_identities field is required")
    for identity in identities:
        kind, format_ = identity.get("identity_type"), identity.get("identity_format")
        if kind in (CUSTOMER_ID, EMAIL) and format_ in (None, "", RAW_FORMAT):
            yield str(kind), _parse_identity_value(identity.get("identity_value"))


def _list_identities(identities: Any) -> list[dict[str, Any]]:
    """Return identities as a list of objects, also if they came as a map: {"email": {"value", "encoding"}}."""
    if identities is None:
        return []
    if isinstance(identities, dict):
        identities = [
            _identity_from_map(kind, value)
            for kind, values in identities.items()
            for value in (values if isinstance(values, list) else [values])
        ]
    if not isinstance(identities, list) or not all(isinstance(identity, dict) for identity in identities):
        raise bad_request("invalid", "subject_identities must be a list of objects")
    return identities


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
        raise bad_request("invalid", f"status_callback_urls must be a list of at most {_MAX_CALLBACKS} URLs")
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
    "erased": "in_progress",  # until no setting of the model was chosen with the person's help
    "done": "completed",
    "not_known": "completed",  # with results_count 0
    "cancelled": "cancelled",
    "failed": "cancelled",
}
_HEADER_PREFIXES, _OLD_HEADER_PREFIXES = ("X-OpenDSR",), ("X-OpenDSR", "X-OpenGDPR")
_CALLBACKS_WRITTEN = "_told"  # in a job's outcome: the state whose callbacks are stored
_PENDING_CALLBACKS = """SELECT id FROM requests WHERE protocol = 'opendsr' AND ended IS NOT NULL AND callbacks != '[]'
AND json_extract(outcome, '$._told') IS NULL ORDER BY number"""


class Processor:
    """The service as OpenDSR sees it: it accepts requests, signs responses and sends callbacks."""

    def __init__(self, service: Service) -> None:
        self.service, self.address = service, service.options.base_url.rstrip("/")
        domain = _parse_host(self.address)
        self.signing_files = SigningFiles(service.vault.places.vault, domain, service.clock)
        service.listeners.append(self.handle_event)
        for row in service.database.fetch_all(_PENDING_CALLBACKS):  # a crash came before their callbacks
            self.handle_event(Event("done", service.queue.get(row["id"])))

    def accept(self, request: OpenDsrRequest, raw: bytes, principal: Principal, *, old: bool) -> Job:
        """Accept a caller's request; a repeat gets the first response.

        A UUID that this caller used for a different request is refused, and so is that of a cancelled request: a caller
        that repeats it expects an erasure, which would not follow.
        """
        service = self.service
        key = service.keyed_hash(f"{PROTOCOL}\n{principal.token_id}\n{request.id}".encode())
        mark = service.keyed_hash(raw)
        if (known := self._find_duplicate(key, mark)) is not None:
            return known
        ids = service.aliases.resolve(request.ids, request.emails)
        if ids is None:
            detail = f"subject_identities has no {CUSTOMER_ID} ({RAW_FORMAT}), the only supported identity"
            raise bad_request("not-supported", detail)
        new_job = NewJob(
            kind=ERASURE,
            protocol=PROTOCOL,
            regulation=request.regulation or service.options.regulation,
            reference=request.id,
            actor=principal.name,
            caller=principal.token_id,
            outside=request.id,
            callbacks=request.callbacks,
            since=request.submitted,
            idempotency=(key, mark),
            facts={"_old": True} if old else {},
        )
        job = service.erase(ids, new_job) if ids else self._record_unknown(new_job, len(request.emails))
        return self._find_duplicate(key, mark) or job  # the same UUID may have been sent at the same time

    def _record_unknown(self, new_job: NewJob, people: int) -> Job:
        """Record an erasure of people whose e-mail addresses belong to nobody: it is closed, and nothing was erased."""
        service = self.service
        with service.database.transaction():
            if new_job.idempotency and (known := service.queue.find_answered(new_job.idempotency[0])) is not None:
                return known[1]
            job = service.queue.add(new_job, service.clock(), "running")
            service.emit("accepted", job)
            outcome = erasure_outcome([], None) | {"unknown": people, "people": people}
            job = service.queue.move(job.id, "not_known", **outcome)
            service.emit("not_known", job)
        return job

    def _find_duplicate(self, key: str, mark: str) -> Job | None:
        """Return the job of an earlier identical request; refuse one that differs or was cancelled."""
        known = self.service.queue.find_answered(key)
        if known is None:
            return None
        if known[0] != mark:
            raise bad_request("already-used", "subject_request_id was already used for a different request")
        if known[1].state == "cancelled":
            raise bad_request("cancelled", "the request was cancelled: make a new one with a new subject_request_id")
        return known[1]

    def get(self, id_: str, principal: Principal) -> Job:
        """Return the caller's request with an id; admins may also see those of others."""
        queue, name = self.service.queue, parse_request_id(id_)
        job = queue.find(PROTOCOL, name, principal.token_id)
        if job is None and principal.allows("admin"):
            job = queue.find(PROTOCOL, name)
        if job is None:
            raise Problem(404, "not-found", "there is no request with this subject_request_id")
        return job

    def cancel(self, id_: str, principal: Principal) -> Job:
        """Cancel a pending request; cancelling twice is not an error."""
        job = self.get(id_, principal)
        if job.state == "cancelled":
            return job
        cancelled = self.service.cancel(
            job.id, "cancelled by the controller", Author(principal.name, principal.token_id)
        )
        if cancelled is None:
            raise bad_request("too-late", "only a pending request can be cancelled")
        return cancelled

    def common_fields(self, job: Job) -> dict[str, Any]:
        """Return the fields of a request that are in every response."""
        return {"controller_id": job.actor or "local", "subject_request_id": job.outside, "api_version": VERSION}

    def status_fields(self, job: Job) -> dict[str, Any]:
        """Return the fields of a status response or callback."""
        fields = {
            **self.common_fields(job),
            "expected_completion_time": format_time(job.due),
            "request_status": _STATUS_NAMES[job.state],
        }
        if job.complete:
            fields["results_count"] = job.outcome.get("rows", 0)
            if job.outcome.get("request") is not None:
                fields["results_url"] = f"{self.address}{PREFIX}/requests/{job.outside}/results"
        return fields

    def sign_response(self, fields: dict[str, Any], status: int, *, old: bool) -> Response:
        """Return a signed response."""
        body = json.dumps(fields).encode()
        return Response(body, status, self.signature_headers(body, old=old), "application/json")

    def signature_headers(self, body: bytes, *, old: bool) -> dict[str, str]:
        """Return the headers with our domain and the signature of a body; an OpenGDPR caller gets both spellings."""
        signer = self.signing_files.load_signer()
        values = {"Processor-Domain": signer.domain, "Signature": signer.sign(body)}
        prefixes = _OLD_HEADER_PREFIXES if old else _HEADER_PREFIXES
        return {f"{prefix}-{name}": value for prefix in prefixes for name, value in values.items()}

    def handle_event(self, event: Event) -> None:
        """Store the callbacks that report a new state. A failure must not stop the caller that changed the state."""
        job = event.job
        if job.protocol != PROTOCOL or event.name not in ("done", "not_known", "cancelled") or not job.callbacks:
            return
        try:
            self._call_back(job)
        except (ExpungeError, OSError, sqlite3.Error) as error:  # tried again at the next start
            log_error("callback-failed", error)

    def _call_back(self, job: Job) -> None:
        posts = list[tuple[str, bytes, dict[str, str]]]()
        for url in job.callbacks:
            body = json.dumps({**self.status_fields(job), "status_callback_url": url}).encode()
            headers = self.signature_headers(body, old=bool(job.outcome.get("_old")))
            posts.append((url, body, {"Content-Type": "application/json", **headers}))
        with self.service.database.transaction() as database:
            row = database.fetch_one("SELECT outcome FROM requests WHERE id = ?", job.id)
            outcome = {} if row is None else json.loads(row["outcome"])
            if _CALLBACKS_WRITTEN in outcome:
                return
            for url, body, headers in posts:
                self.service.deliveries.add(url, body, headers)
            stored = json.dumps(outcome | {_CALLBACKS_WRITTEN: job.state})
            database.execute("UPDATE requests SET outcome = ? WHERE id = ?", stored, job.id)


def _parse_host(address: str) -> str:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or not host.isascii() or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise InvalidSetting("the public URL must be an ASCII address like https://privacy.example.com")
    return host


class OpenDsrRoute(APIRoute):
    """A route whose errors have the form of OpenDSR."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, wrapped so that its errors have the form of OpenDSR."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except (Problem, ExpungeError, RequestValidationError, HTTPException) as error:
                return error_response(to_problem(error))

        return handle


def error_response(problem: Problem) -> Response:
    """Return a problem in the form of OpenDSR, where every mistake of the caller is a 400."""
    status = 400 if problem.status in (409, 422) else problem.status
    message = problem.detail or "the request could not be answered"
    domain = "Validation" if status == 400 else "Service"
    errors = [{"domain": domain, "reason": problem.kind, "message": message}]
    return JSONResponse(
        {"error": {"code": status, "message": message, "errors": errors}}, status, headers=problem.headers
    )


router = APIRouter(tags=["OpenDSR"], route_class=OpenDsrRoute)
Erase = require_scope("erase", extract_token=basic_password)
_REQUEST_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": REQUEST_SCHEMA}}}}
_OLD_ROUTE: dict[str, Any] = {"include_in_schema": False, "response_model": None}
_ROUTE: dict[str, Any] = {"response_model": None}
_OLD_PATHS = (f"{PREFIX}/opengdpr_requests", "/opendsr/opengdpr_requests")


def get_processor(request: Request) -> Processor:
    """Return the processor of the service."""
    processor: Processor = request.app.state.opendsr
    return processor


def _is_old(request: Request) -> bool:
    """Return whether a caller uses OpenGDPR, by the path or by a header."""
    has_header = any(name.startswith("x-opengdpr-") for name in request.headers)
    return has_header or "/opengdpr_requests" in request.url.path


@router.get("/opendsr/discovery", **_OLD_ROUTE)
@router.get(f"{PREFIX}/discovery", **_ROUTE)
def discover(request: Request) -> Response:
    """Return what is supported, and the URL of the certificate that verifies signatures."""
    processor = get_processor(request)
    kinds = [CUSTOMER_ID, EMAIL] if processor.service.aliases.has_any() else [CUSTOMER_ID]
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
    """Return the X.509 certificate of the key that signs responses and callbacks."""
    return Response(get_processor(request).signing_files.load_signer().pem, media_type="application/x-pem-file")


@router.post(f"{PREFIX}/requests", status_code=201, openapi_extra=_REQUEST_BODY, **_ROUTE)
async def submit_request(request: Request, principal: Annotated[Principal, Erase]) -> Response:
    """Accept an erasure request. Repeating it returns the same response."""
    raw, old = await request.body(), _is_old(request)
    return await run_in_writer_thread(_submit, get_processor(request), raw, principal, old)


def _submit(processor: Processor, raw: bytes, principal: Principal, old: bool) -> Response:
    domain, allowed = processor.signing_files.load_signer().domain, processor.service.deliveries.allowed
    job = processor.accept(parse_request(parse_json(raw), domain, allowed), raw, principal, old=old)
    fields = {
        **processor.common_fields(job),
        "received_time": format_time(job.received),
        "expected_completion_time": format_time(job.due),
        "encoded_request": base64.b64encode(raw).decode(),
    }
    return processor.sign_response(fields, 201, old=old)


@router.get(f"{PREFIX}/status/{{id}}", **_OLD_ROUTE)
@router.get(f"{PREFIX}/requests/{{id}}", **_ROUTE)
def get_request_status(request: Request, id: str, principal: Annotated[Principal, Erase]) -> Response:  # noqa: A002
    """Return the status of a request."""
    processor = get_processor(request)
    return processor.sign_response(processor.status_fields(processor.get(id, principal)), 200, old=_is_old(request))


@router.delete(f"{PREFIX}/requests/{{id}}", status_code=202, **_ROUTE)
async def cancel_request(request: Request, id: str, principal: Annotated[Principal, Erase]) -> Response:  # noqa: A002
    """Cancel a pending request."""
    return await run_in_writer_thread(_cancel, request, id, principal)


def _cancel(request: Request, id_: str, principal: Principal) -> Response:
    processor = get_processor(request)
    job = processor.cancel(id_, principal)
    time = job.ended or processor.service.clock()
    return processor.sign_response(
        {**processor.common_fields(job), "received_time": format_time(time)}, 202, old=_is_old(request)
    )


@router.get(f"{PREFIX}/requests/{{id}}/results", **_ROUTE)
def get_results(request: Request, id: str, principal: Annotated[Principal, Erase]) -> Response:  # noqa: A002
    """Return the certificate of a completed request as a compact JWS."""
    processor = get_processor(request)
    text = processor.service.certificate(processor.get(id, principal))
    if text is None:
        raise Problem(404, "not-certified", "the request has no certificate yet, or will not have one")
    return PlainTextResponse(text, media_type="application/jose")


for _path in _OLD_PATHS:
    router.add_api_route(_path, submit_request, methods=["POST"], status_code=201, **_OLD_ROUTE)
    router.add_api_route(f"{_path}/{{id}}", get_request_status, methods=["GET"], **_OLD_ROUTE)
    router.add_api_route(f"{_path}/{{id}}", cancel_request, methods=["DELETE"], status_code=202, **_OLD_ROUTE)
