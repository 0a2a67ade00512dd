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
from ...vault.tables import check_no_json
from ..access import Who, needs, service_of
from ..bodies import media_type
from ..problems import Problem
from ..queue import CARRIED_OUT, ERASURE, Job, NewJob, Way
from ..service import Service
from ..threads import run_in_writers
from ..views import request_view
from .credentials import needs_bare
from .identities import people_of
from .models import read_body

router = APIRouter(prefix="/fides", tags=["Fides"])
PROTOCOL: Way = "fides"
Erase, Read, Secret = needs("erase"), needs("read"), needs_bare("erase")

_FILES = ("config.yml", "dataset.yml")
_LONGEST_ID = 1000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_WEBHOOK = {
    "type": "object",
    "required": ["privacy_request_id", "direction", "callback_type", "identity"],
    "properties": {
        "privacy_request_id": {"type": "string", "pattern": f"^{_NAME.pattern}$"},
        "direction": {"enum": ["one_way", "two_way"]},
        "callback_type": {"enum": ["pre", "post", "pre_approval"]},
        "identity": {"type": "object", "properties": {"external_id": {"type": ["string", "null"]}}},
        "policy_action": {"type": ["string", "null"]},
    },
}
_Id = Annotated[str, Field(min_length=1, max_length=_LONGEST_ID)] | Annotated[int, Field(strict=True)]


_PERSON = {"type": "string", "minLength": 1, "maxLength": _LONGEST_ID}


def _body(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}}


class Labelled(BaseModel):
    """An identity that somebody defined in Fides."""

    value: _Id | list[_Id] | None = None


class Identity(BaseModel):
    """Who a privacy request is about; Fides sends more kinds of identities than we know."""

    external_id: _Id | Labelled | None = None
    email: Annotated[str, Field(max_length=_LONGEST_ID)] | None = None

    @property
    def ids(self) -> list[str]:
        """The ids of the vault that are in it."""
        found = self.external_id.value if isinstance(self.external_id, Labelled) else self.external_id
        some = found if isinstance(found, list) else [found]
        return [str(one) for one in some if one is not None]


class Webhook(BaseModel):
    """What Fides posts to a policy's webhook, as far as it matters here."""

    privacy_request_id: Annotated[str, Field(pattern=f"^{_NAME.pattern}$")]
    direction: Literal["one_way", "two_way"]
    callback_type: Literal["pre", "post", "pre_approval"]
    identity: Identity
    policy_action: Annotated[str, Field(max_length=100)] | None = None

    @property
    def erases(self) -> bool:
        """Whether somebody is to be erased: an erasure that was approved."""
        return self.policy_action == "erasure" and self.callback_type != "pre_approval"


@router.post("/webhook", openapi_extra=_body("application/json", _WEBHOOK))
async def webhook(request: Request, who: Annotated[Who, Secret]) -> dict[str, Any]:
    """Erase the person of a privacy request, before or after Fides carries it out.

    Only erasures that are approved erase; of all others nothing is done. A legal hold halts the request.
    """
    asked = await read_body(request, Webhook)
    entry = await run_in_writers(_by_webhook, service_of(request), asked, who) if asked.erases else None
    if asked.direction == "one_way":
        return {}
    return {"halt": entry is not None and not _on_its_way(entry), "derived_identity": {}}


def _by_webhook(service: Service, asked: Webhook, who: Who) -> Job | None:
    """Have the person erased; None if they are nobody whom the vault knows."""
    ids = people_of(service, asked.identity.ids, [asked.identity.email] if asked.identity.email else [])
    if ids is None:
        raise Problem(422, "no-identity", "identity has no external_id: that is the id that the vault knows")
    return _erased(service, ids, asked.privacy_request_id, who) if ids else None


# What the connector calls


@router.get("/connection")
def connection(who: Annotated[Who, Erase]) -> dict[str, str]:
    """Whether the connector's token counts, and may erase."""
    return {"status": "ok"}


@router.post("/people", openapi_extra=_body("text/plain", _PERSON))
async def people(request: Request, who: Annotated[Who, Erase]) -> dict[str, Any]:
    """Whether a person has rows; the body is the id, as plain text."""
    id_ = _person(request, await request.body())
    (holding,) = await run_in_writers(service_of(request).vault.holds, [id_])
    return {"people": [{"id": id_, "rows": holding.rows}] if holding.state == "present" else []}


@router.post(
    "/erasures",
    openapi_extra=_body("text/plain", _PERSON),
    responses={202: {"description": "written down, and carried out later"}},
)
async def erasures(
    request: Request, who: Annotated[Who, Erase], fides_privacy_request: Annotated[str, Header()] = ""
) -> Response:
    """Erase a person; the body is the id, as plain text. For the same privacy request it is done once."""
    if fides_privacy_request and not _NAME.fullmatch(fides_privacy_request):
        raise Problem(422, "invalid-request", "Fides-Privacy-Request must be the id of a privacy request")
    id_ = _person(request, await request.body())
    entry = await run_in_writers(_erased, service_of(request), [id_], fides_privacy_request, who)
    if not _on_its_way(entry):
        raise Problem(409, "not-erased", _refusal_of(entry))
    return JSONResponse(request_view(entry, similar=True), 200 if entry.carried_out else 202)


@router.get("/connector.zip")
def connector(request: Request, who: Annotated[Who, Read]) -> Response:
    """The SaaS connector, to be uploaded to Fides."""
    found, prefix = io.BytesIO(), service_of(request).options.root_path.encode()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _FILES:
            content = (resources.files("expunge.server") / "fides" / name).read_bytes()
            content = content.replace(b"path: /fides/", b"path: " + prefix + b"/fides/")
            archive.writestr(zipfile.ZipInfo(f"expunge_{name}"), content)  # no time: the same zip each time
    saved = {"Content-Disposition": 'attachment; filename="expunge-fides.zip"'}
    return Response(found.getvalue(), media_type="application/zip", headers=saved)


def _person(request: Request, raw: bytes) -> str:
    if media_type(request) not in ("text/plain", ""):
        raise Problem(415, "wrong-type", "the body must be an id, as text/plain")
    try:
        text = raw.decode()
        check_no_json(text)
    except UnicodeDecodeError:
        raise Problem(400, "invalid-text", "the id must be in UTF-8") from None
    except InvalidInput as error:
        raise Problem(400, "invalid-text", str(error)) from None
    if not 0 < len(text) <= _LONGEST_ID:
        raise Problem(422, "invalid-request", f"the body must be an id of 1 to {_LONGEST_ID:,} characters")
    return text


def _erased(service: Service, ids: list[str], name: str, who: Who) -> Job:
    """Have people erased; the same people for the same privacy request once."""
    asked = NewJob(ERASURE, PROTOCOL, service.options.regulation, name, who.name, who.key)
    if not name:
        return service.erase(ids, asked)
    hashes = b"".join(sorted({one.hash for one in service.vault.seal(ids)}))
    key = service.mark(f"{PROTOCOL}\n{who.key}\n{name}\n".encode() + hashes)
    return service.erase(ids, replace(asked, answers=(key, service.mark(hashes))))


def _refusal_of(entry: Job) -> str:
    """Return why nobody was erased, and what to do."""
    if entry.state == "cancelled":
        return "the erasure for this privacy request was cancelled: make a new privacy request to ask again"
    return entry.reason


def _on_its_way(entry: Job) -> bool:
    """Whether the people of a request are erased, will be, or are not known here: Fides need not try again."""
    return entry.state in (*CARRIED_OUT, "waiting", "running")
