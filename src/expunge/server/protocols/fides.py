"""Fides, under /fides: the webhook of a policy, and the endpoints of the SaaS connector.

The connector asks whether a person is known, and erases them. An id is sent as a whole plain text body: Fides inserts
values into bodies unescaped, which could break JSON, and ids must not be in URLs. If a person is not going to be erased
(legal hold), Fides gets an error or is halted, so that it does not mark the privacy request as complete.
"""

import io
import re
import zipfile
from importlib import resources
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from ...errors import InvalidInput
from ...tables import refuse_json
from ..auth import Principal, get_service, require_scope
from ..bodies import media_type
from ..problems import Problem
from ..queue import ERASURE, Job, NewJob, ProtocolName
from ..service import Service, run_in_writer_thread
from .api_models import read_body

router = APIRouter(prefix="/fides", tags=["Fides"])
PROTOCOL: ProtocolName = "fides"
Erase, Read, Secret = require_scope("erase"), require_scope("read"), require_scope("erase", extract_token=str.strip)

_CONNECTOR_FILES = ("config.yml", "dataset.yml")
_MAX_ID_LENGTH = 1000
_REQUEST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_WEBHOOK_SCHEMA = {
    "type": "object",
    "required": ["privacy_request_id", "direction", "callback_type", "identity"],
    "properties": {
        "privacy_request_id": {"type": "string", "pattern": f"^{_REQUEST_NAME.pattern}$"},
        "direction": {"enum": ["one_way", "two_way"]},
        "callback_type": {"enum": ["pre", "post", "pre_approval"]},
        "identity": {"type": "object", "properties": {"external_id": {"type": ["string", "null"]}}},
        "policy_action": {"type": ["string", "null"]},
    },
}
_Id = Annotated[str, Field(min_length=1, max_length=_MAX_ID_LENGTH)] | Annotated[int, Field(strict=True)]
_PERSON_SCHEMA = {"type": "string", "minLength": 1, "maxLength": _MAX_ID_LENGTH}


def _describe_body(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}}


class LabelledIdentity(BaseModel):
    """A custom identity defined in Fides."""

    value: _Id | list[_Id] | None = None


class FidesIdentity(BaseModel):
    """The person of a privacy request; other kinds of identities that Fides sends are ignored."""

    external_id: _Id | LabelledIdentity | None = None
    email: Annotated[str, Field(max_length=_MAX_ID_LENGTH)] | None = None

    @property
    def ids(self) -> list[str]:
        """The ids of the vault among them."""
        value = self.external_id.value if isinstance(self.external_id, LabelledIdentity) else self.external_id
        values = value if isinstance(value, list) else [value]
        return [str(id_) for id_ in values if id_ is not None]


class FidesWebhook(BaseModel):
    """The message that Fides posts to a policy's webhook, as far as it is used here."""

    privacy_request_id: Annotated[str, Field(pattern=f"^{_REQUEST_NAME.pattern}$")]
    direction: Literal["one_way", "two_way"]
    callback_type: Literal["pre", "post", "pre_approval"]
    identity: FidesIdentity
    policy_action: Annotated[str, Field(max_length=100)] | None = None

    @property
    def erases(self) -> bool:
        """Whether to erase the person: only for an approved erasure."""
        return self.policy_action == "erasure" and self.callback_type != "pre_approval"


@router.post("/webhook", openapi_extra=_describe_body("application/json", _WEBHOOK_SCHEMA))
async def receive_webhook(request: Request, principal: Annotated[Principal, Secret]) -> dict[str, Any]:
    """Erase the person of a privacy request, before or after Fides carries it out.

    Only approved erasures erase anyone; other privacy requests are ignored. A legal hold halts the privacy request.
    """
    message = await read_body(request, FidesWebhook)
    job = None
    if message.erases:
        job = await run_in_writer_thread(_erase_for_webhook, get_service(request), message, principal)
    if message.direction == "one_way":
        return {}
    return {"halt": job is not None and not _is_accepted(job), "derived_identity": {}}


def _erase_for_webhook(service: Service, message: FidesWebhook, principal: Principal) -> Job | None:
    """Erase the person; return None if their e-mail address belongs to nobody."""
    ids = service.aliases.resolve(message.identity.ids, [message.identity.email] if message.identity.email else [])
    if ids is None:
        raise Problem(422, "no-identity", "identity has no external_id, which is the id in the vault")
    return _erase_people(service, ids, message.privacy_request_id, principal) if ids else None


@router.get("/connection")
def check_connection(principal: Annotated[Principal, Erase]) -> dict[str, str]:
    """Confirm that the connector's token is valid and may erase."""
    return {"status": "ok"}


@router.post("/people", openapi_extra=_describe_body("text/plain", _PERSON_SCHEMA))
async def find_person(request: Request, principal: Annotated[Principal, Erase]) -> dict[str, Any]:
    """Return whether a person has rows; the body is the id, as plain text."""
    id_ = _read_person_id(request, await request.body())
    (holding,) = await run_in_writer_thread(get_service(request).vault.find, [id_])
    return {"people": [{"id": id_, "rows": holding.rows}] if holding.state == "present" else []}


@router.post(
    "/erasures",
    openapi_extra=_describe_body("text/plain", _PERSON_SCHEMA),
    responses={202: {"description": "accepted, and carried out or complete later"}},
)
async def erase_person(
    request: Request, principal: Annotated[Principal, Erase], fides_privacy_request: Annotated[str, Header()] = ""
) -> Response:
    """Erase a person; the body is the id, as plain text. Repeats for the same privacy request do nothing."""
    if fides_privacy_request and not _REQUEST_NAME.fullmatch(fides_privacy_request):
        raise Problem(422, "invalid-request", "Fides-Privacy-Request must be the id of a privacy request")
    id_ = _read_person_id(request, await request.body())
    job = await run_in_writer_thread(_erase_people, get_service(request), [id_], fides_privacy_request, principal)
    if job.state == "cancelled":
        detail = "the erasure for this privacy request was cancelled: create a new privacy request"
        raise Problem(409, "not-erased", detail)
    if not _is_accepted(job):
        raise Problem(409, "not-erased", job.reason)
    return JSONResponse(get_service(request).view(job, similar=True), 200 if job.complete else 202)


@router.get("/connector.zip")
def download_connector(request: Request, principal: Annotated[Principal, Read]) -> Response:
    """Serve the SaaS connector as a zip to upload to Fides."""
    out, prefix = io.BytesIO(), get_service(request).options.root_path.encode()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _CONNECTOR_FILES:
            content = (resources.files("expunge.server") / "fides" / name).read_bytes()
            content = content.replace(b"path: /fides/", b"path: " + prefix + b"/fides/")
            archive.writestr(zipfile.ZipInfo(f"expunge_{name}"), content)  # without a time: the same zip every time
    headers = {"Content-Disposition": 'attachment; filename="expunge-fides.zip"'}
    return Response(out.getvalue(), media_type="application/zip", headers=headers)


def _read_person_id(request: Request, raw: bytes) -> str:
    if media_type(request) not in ("text/plain", ""):
        raise Problem(415, "wrong-type", "the body must be an id, as text/plain")
    try:
        text = raw.decode()
        refuse_json(text)
    except UnicodeDecodeError:
        raise Problem(400, "invalid-text", "the id must be encoded in UTF-8") from None
    except InvalidInput as error:
        raise Problem(400, "invalid-text", str(error)) from None
    if not 0 < len(text) <= _MAX_ID_LENGTH:
        raise Problem(422, "invalid-request", f"the body must be an id of 1 to {_MAX_ID_LENGTH:,} characters")
    return text


def _erase_people(service: Service, ids: list[str], name: str, principal: Principal) -> Job:
    """Erase people; a repeat for the same people and the same privacy request returns the first job."""
    idempotency = None
    if name:
        hashes = b"".join(sorted({sealed.hash for sealed in service.vault.seal(ids)}))
        key = service.keyed_hash(f"{PROTOCOL}\n{principal.token_id}\n{name}\n".encode() + hashes)
        idempotency = key, service.keyed_hash(hashes)
    new_job = NewJob(
        kind=ERASURE,
        protocol=PROTOCOL,
        regulation=service.options.regulation,
        reference=name,
        actor=principal.name,
        caller=principal.token_id,
        idempotency=idempotency,
    )
    return service.erase(ids, new_job)


def _is_accepted(job: Job) -> bool:
    """Return whether the people are erased, will be, or are not known here, so that Fides need not try again."""
    return job.carried_out or job.state in ("waiting", "running")
