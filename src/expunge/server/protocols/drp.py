"""The Data Rights Protocol 1.0, under /drp: deletions that agents of consumers ask for, in signed messages.

Agents know people by e-mail; the aliases of the service tell whose id that is. Only ``deletion`` is carried out.
"""

import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from ...errors import ExpungeError, InvalidInput, InvalidSetting
from ..access import service_of
from ..addresses import checked
from ..agents import Agent, Agents, Refusal, read_directory
from ..clocks import Regulation
from ..matters import Author
from ..problems import problem_of
from ..queue import ERASURE, Job, Kind, NewJob, Way
from ..service import Event, Service
from ..threads import run_in_writers

router = APIRouter(prefix="/drp/v1", tags=["Data Rights Protocol"])

PROTOCOL: Way = "drp"
REVOKED = "revoked by the agent"
_RIGHTS: tuple[Kind, ...] = ("access", "access:categories", "access:specific", "sale:opt-out", "sale:opt-in")
_EXERCISES: dict[Any, Kind] = {"deletion": ERASURE, **{right: right for right in _RIGHTS}}
_TELLING = ("done", "not_known", "cancelled", "refused")  # events after which the status is another
_LONGEST = 200  # characters of an agent's name for a request
_SIGNED = {
    "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string", "format": "byte"}}}}
}


def installed(service: Service) -> Agents:
    """The agents of the directory, and a listener that calls them back."""
    options = service.options
    if options.drp_directory is not None and not options.business_id:
        raise InvalidSetting("--drp-directory needs --business-id: what agents call this business")
    known = () if options.drp_directory is None else read_directory(options.drp_directory)

    def hear(event: Event) -> None:
        if event.job.protocol == PROTOCOL and event.name in _TELLING:
            body = json.dumps(status_view(event.job)).encode()
            for url in event.job.callbacks:
                service.deliveries.add(url, body, {"content-type": "application/json"})

    service.listeners.append(hear)
    return Agents(service.database, service.clock, service.mark, options.business_id, known)


# Agents


@router.post("/agent/{agent_id}", openapi_extra=_SIGNED)
async def register(request: Request, agent_id: str) -> Response:
    """Give an agent of the directory a token, for a message that it signed; an older token counts no more."""
    agents, raw = _agents(request), await request.body()

    def work() -> dict[str, str]:
        _limit(request, "")
        agent = agents.get(agent_id)
        return {"agent-id": agent.id, "token": agents.register(agent, raw)}

    answer = await _answered(work)
    limited = answer.status_code in (200, 429, 503)
    return answer if limited else Response(status_code=403)  # as the protocol has it, whatever was wrong


@router.get("/agent/{agent_id}")
async def agent_information(request: Request, agent_id: str) -> Response:
    """Tell an agent whether its token counts."""

    def work() -> dict[str, str]:
        if _who(request).id != agent_id:
            raise Refusal(403, "the token is another agent's")
        return {}

    return await _answered(work)


# Requests


@router.post("/data-rights-request", openapi_extra=_SIGNED)
@router.post("/data-rights-request/", include_in_schema=False)
async def exercise(request: Request) -> Response:
    """Take a signed request; a deletion is carried out, anything else is denied."""
    raw = await request.body()

    def work() -> dict[str, Any]:
        agent, service = _who(request), service_of(request)
        return status_view(_exercised(service, agent, _agents(request).claims(agent, raw)))

    return await _answered(work)


@router.get("/data-rights-request/{request_id}")
@router.get("/data-rights-request/{request_id}/", include_in_schema=False)
async def status(request: Request, request_id: str) -> Response:
    """How far a request is."""
    return await _answered(lambda: status_view(_own(request, _who(request), request_id)))


@router.delete("/data-rights-request/{request_id}", openapi_extra=_SIGNED)
@router.delete("/data-rights-request/{request_id}/", include_in_schema=False)
async def revoke(request: Request, request_id: str) -> Response:
    """Revoke a request that is not carried out yet."""
    raw = await request.body()

    def work() -> dict[str, Any]:
        agent = _who(request)
        _agents(request).revocation(agent, raw)
        entry = _own(request, agent, request_id)
        if (entry.state, entry.reason) != ("cancelled", REVOKED):  # to say it twice is no error
            cancelled = service_of(request).cancel(entry.id, REVOKED, Author(agent.name, agent.id))
            if cancelled is None:
                raise Refusal(409, "the request is over already: it cannot be revoked")
            entry = cancelled
        return status_view(entry)

    return await _answered(work)


def _exercised(service: Service, agent: Agent, message: dict[str, Any]) -> Job:
    wanted = message.get("exercise")
    if not isinstance(wanted, str) or wanted not in _EXERCISES:
        raise Refusal(400, f"exercise must be one of {', '.join(_EXERCISES)}", fatal=True)
    name = _text(message, "agent-request-id")
    facts = {"_agent": agent.id} | ({} if name is None else {"_agent_request_id": name})
    asked = NewJob(
        _EXERCISES[wanted], PROTOCOL, _regulation(service, message),
        actor=agent.name, caller=agent.id, outside=name or "", callbacks=_callbacks(service, message), facts=facts,
    )  # fmt: skip
    if wanted != "deletion":
        return _denied(service, asked, "claim_not_covered", "only deletion is carried out here")
    email = message.get("email")
    if not isinstance(email, str) or not email.strip():
        return _denied(service, asked, "no_match", "people are found by email, which is not in the request")
    if message.get("email_verified") not in (True, "true"):
        return _denied(service, asked, "insuf_verification", "email_verified must be true")
    found = service.aliases.find(email)
    if found is None:
        return _denied(service, asked, "no_match", "nobody is known by this email")
    return service.erase(service.vault.unseal([found]), asked)


def _denied(service: Service, asked: NewJob, why: str, detail: str) -> Job:
    """Keep a request that is not carried out, and why."""
    with service.database.writing():
        entry = service.queue.add(asked, service.clock(), "running")
        entry = service.queue.move(entry.id, "failed", detail, _denied=why)
        service.tell("refused", entry)
    return entry


def _regulation(service: Service, message: dict[str, Any]) -> Regulation:
    """The law whose clock counts; a regime that we have no clock for gets the service's own."""
    regime = message.get("regime")
    known: dict[Any, Regulation] = {"ccpa": "ccpa", "gdpr": "gdpr"}
    if regime is not None and not isinstance(regime, str):
        raise Refusal(400, "regime must be a text", fatal=True)
    return known.get(regime, service.options.regulation)


def _callbacks(service: Service, message: dict[str, Any]) -> tuple[str, ...]:
    url = message.get("status_callback")
    if url is None or url == "":
        return ()
    if not isinstance(url, str):
        raise Refusal(400, "status_callback must be a URL", fatal=True)
    try:
        checked(url, service.deliveries.allowed)
    except InvalidInput as error:
        raise Refusal(400, f"status_callback: {error}", fatal=True) from None
    return (url,)


def _text(message: dict[str, Any], name: str) -> str | None:
    text = message.get(name)
    if text is not None and not (isinstance(text, str) and len(text) <= _LONGEST and text.isprintable()):
        raise Refusal(400, f"{name} must be one line of at most {_LONGEST} characters", fatal=True)
    return text


# Answers


def status_view(entry: Job) -> dict[str, Any]:
    """The status object of a request; members that there is nothing to say about are left out."""
    state, reason, details = _state(entry)
    found = {
        "request_id": entry.id,
        "status": state,
        "reason": reason,
        "processing_details": details,
        "received_at": entry.received.isoformat(timespec="seconds"),
        "expected_by": entry.due.isoformat(timespec="seconds"),
        "agent_request_id": entry.outcome.get("_agent_request_id"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _state(entry: Job) -> tuple[str, str | None, str | None]:
    """What the protocol calls the state of a request, the reason, and details; why somebody is held is not told."""
    if entry.state == "done":
        return "fulfilled", None, None
    if entry.state == "not_known":
        return "denied", "no_match", "nobody is known here by the id that this email leads to"
    if entry.state == "cancelled":
        return ("revoked", None, None) if entry.reason == REVOKED else ("denied", "other", "the business cancelled it")
    if entry.state == "failed":
        why = entry.outcome.get("_denied")
        return "denied", why or "other", entry.reason if why else "it could not be carried out"
    if entry.extension:
        return "in_progress", None, f"the time was extended: {entry.extension}"
    return "in_progress", None, "the data must be kept for now by law" if entry.state == "held" else None


def _agents(request: Request) -> Agents:
    found: Agents = request.app.state.agents
    return found


def _who(request: Request) -> Agent:
    """The agent that asks, unless it asks too often."""
    agent = _agents(request).bearer(request.headers.get("authorization"))
    _limit(request, agent.id)
    return agent


def _limit(request: Request, key: str) -> None:
    if request.app.state.limit(f"{PROTOCOL} {key}") > 0:
        raise Refusal(429, "slow down")


def _own(request: Request, agent: Agent, id_: str) -> Job:
    """A request of this agent."""
    entry = service_of(request).queue.get(id_)
    if entry.protocol != PROTOCOL:
        raise LookupError
    if entry.outcome.get("_agent") != agent.id:
        raise Refusal(403, "the request is another agent's")
    return entry


async def _answered(work: Callable[[], dict[str, Any]]) -> Response:
    """An answer, or an error as the protocol has it."""
    try:
        return JSONResponse(await run_in_writers(work))
    except Refusal as refusal:
        status, message, fatal = refusal.status, refusal.message, refusal.fatal
    except LookupError:
        status, message, fatal = 404, "there is no such request", False
    except ExpungeError as error:
        problem = problem_of(error)
        status, message, fatal = problem.status, problem.detail, False
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(status)
    return JSONResponse({"code": str(status), "message": message, "fatal": fatal}, status, headers=headers)
