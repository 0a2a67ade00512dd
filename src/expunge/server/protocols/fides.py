"""Fides, under /fides: the webhook that a policy calls, and what the SaaS connector calls.

A connector asks whether a person is known, and has them erased. An id travels as the whole of a plain text body: Fides
puts values into bodies as they are, which JSON would not survive, and into no address. What is not going to be erased
(a legal hold) is an error for Fides, or halts it: a request must not be called complete there.
"""

import io
import re
import zipfile
from dataclasses import replace
from importlib import resources
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from ...errors import InvalidInput
from ...tables import refuse_json
from ..auth import Principal, get_service, require_scope, require_scope_bare
from ..bodies import media_type
from ..problems import Problem
from ..queue import CARRIED_OUT_STATES, ERASURE, Job, NewJob, ProtocolName
from ..service import Service, run_in_writer_thread
from ..views import request_view
from .api_models import read_body
from .identities import resolve_people

router = APIRouter(prefix="/fides", tags=["Fides"])
PROTOCOL: ProtocolName = "fides"
Erase, Read, Secret = require_scope("erase"), require_scope("read"), require_scope_bare("erase")

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
    """An identity that somebody defined in Fides."""

    value: _Id | list[_Id] | None = None


class FidesIdentity(BaseModel):
    """Who a privacy request is about; Fides sends more kinds of identities than we know."""

    external_id: _Id | LabelledIdentity | None = None
    email: Annotated[str, Field(max_length=_MAX_ID_LENGTH)] | None = None

    @property
    def ids(self) -> list[str]:
        """The ids of the vault that are in it."""
        found = self.external_id.value if isinstance(self.external_id, LabelledIdentity) else self.external_id
        some = found if isinstance(found, list) else [found]
        return [str(one) for one in some if one is not None]


class FidesWebhook(BaseModel):
    """What Fides posts to a policy's webhook, as far as it matters here."""

    privacy_request_id: Annotated[str, Field(pattern=f"^{_REQUEST_NAME.pattern}$")]
    direction: Literal["one_way", "two_way"]
    callback_type: Literal["pre", "post", "pre_approval"]
    identity: FidesIdentity
    policy_action: Annotated[str, Field(max_length=100)] | None = None

    @property
    def erases(self) -> bool:
        """Whether somebody is to be erased: an erasure that was approved."""
        return self.policy_action == "erasure" and self.callback_type != "pre_approval"


@router.post("/webhook", openapi_extra=_describe_body("application/json", _WEBHOOK_SCHEMA))
async def receive_webhook(request: Request, who: Annotated[Principal, Secret]) -> dict[str, Any]:
    """Erase the person of a privacy request, before or after Fides carries it out.

    Only erasures that are approved erase; of all others nothing is done. A legal hold halts the request.
    """
    asked = await read_body(request, FidesWebhook)
    entry = await run_in_writer_thread(_erase_for_webhook, get_service(request), asked, who) if asked.erases else None
    if asked.direction == "one_way":
        return {}
    return {"halt": entry is not None and not _is_accepted(entry), "derived_identity": {}}


def _erase_for_webhook(service: Service, message: FidesWebhook, who: Principal) -> Job | None:
    """Have the person erased; None if they are nobody whom the vault knows."""
    ids = resolve_people(service, message.identity.ids, [message.identity.email] if message.identity.email else [])
    if ids is None:
        raise Problem(422, "no-identity", "identity has no external_id: that is the id that the vault knows")
    return _erase_people(service, ids, message.privacy_request_id, who) if ids else None


# What the connector calls


@router.get("/connection")
def check_connection(who: Annotated[Principal, Erase]) -> dict[str, str]:
    """Whether the connector's token counts, and may erase."""
    return {"status": "ok"}


@router.post("/people", openapi_extra=_describe_body("text/plain", _PERSON_SCHEMA))
async def find_person(request: Request, who: Annotated[Principal, Erase]) -> dict[str, Any]:
    """Whether a person has rows; the body is the id, as plain text."""
    id_ = _read_person_id(request, await request.body())
    (holding,) = await run_in_writer_thread(get_service(request).vault.find, [id_])
    return {"people": [{"id": id_, "rows": holding.rows}] if holding.state == "present" else []}


@router.post(
    "/erasures",
    openapi_extra=_describe_body("text/plain", _PERSON_SCHEMA),
    responses={202: {"description": "written down, and carried out later"}},
)
async def erase_person(
    request: Request, who: Annotated[Principal, Erase], fides_privacy_request: Annotated[str, Header()] = ""
) -> Response:
    """Erase a person; the body is the id, as plain text. For the same privacy request it is done once."""
    if fides_privacy_request and not _REQUEST_NAME.fullmatch(fides_privacy_request):
        raise Problem(422, "invalid-request", "Fides-Privacy-Request must be the id of a privacy request")
    id_ = _read_person_id(request, await request.body())
    entry = await run_in_writer_thread(_erase_people, get_service(request), [id_], fides_privacy_request, who)
    if not _is_accepted(entry):
        raise Problem(409, "not-erased", _refusal_of(entry))
    return JSONResponse(request_view(entry, similar=True), 200 if entry.carried_out else 202)


@router.get("/connector.zip")
def download_connector(request: Request, who: Annotated[Principal, Read]) -> Response:
    """The SaaS connector, to be uploaded to Fides."""
    found, prefix = io.BytesIO(), get_service(request).options.root_path.encode()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _CONNECTOR_FILES:
            content = (resources.files("expunge.server") / "fides" / name).read_bytes()
            content = content.replace(b"path: /fides/", b"path: " + prefix + b"/fides/")
            archive.writestr(zipfile.ZipInfo(f"expunge_{name}"), content)  # no time: the same zip each time
    saved = {"Content-Disposition": 'attachment; filename="expunge-fides.zip"'}
    return Response(found.getvalue(), media_type="application/zip", headers=saved)


def _read_person_id(request: Request, raw: bytes) -> str:
    if media_type(request) not in ("text/plain", ""):
        raise Problem(415, "wrong-type", "the body must be an id, as text/plain")
    try:
        text = raw.decode()
        refuse_json(text)
    except UnicodeDecodeError:
        raise Problem(400, "invalid-text", "the id must be in UTF-8") from None
    except InvalidInput as error:
        raise Problem(400, "invalid-text", str(error)) from None
    if not 0 < len(text) <= _MAX_ID_LENGTH:
        raise Problem(422, "invalid-request", f"the body must be an id of 1 to {_MAX_ID_LENGTH:,} characters")
    return text


def _erase_people(service: Service, ids: list[str], name: str, who: Principal) -> Job:
    """Have people erased; the same people for the same privacy request once."""
    asked = NewJob(ERASURE, PROTOCOL, service.options.regulation, name, who.name, who.token_id)
    if not name:
        return service.erase(ids, asked)
    hashes = b"".join(sorted({one.hash for one in service.vault.seal(ids)}))
    key = service.keyed_hash(f"{PROTOCOL}\n{who.token_id}\n{name}\n".encode() + hashes)
    return service.erase(ids, replace(asked, idempotency=(key, service.keyed_hash(hashes))))


def _refusal_of(entry: Job) -> str:
    """Return why nobody was erased, and what to do."""
    if entry.state == "cancelled":
        return "the erasure for this privacy request was cancelled: make a new privacy request to ask again"
    return entry.reason


def _is_accepted(entry: Job) -> bool:
    """Whether the people of a request are erased, will be, or are not known here: Fides need not try again."""
    return entry.state in (*CARRIED_OUT_STATES, "waiting", "running")
