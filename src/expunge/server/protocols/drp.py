"""The Data Rights Protocol 1.0, under /drp: deletion requests that agents send for consumers in signed messages.

Agents and their public keys come from a directory file. An agent gets a token for a signed message; only the token's
hash is stored. Agents know people by e-mail address, which the service's aliases map to an id. Only ``deletion`` is
supported.
"""

import base64
import binascii
import hashlib
import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from ...errors import ExpungeError, InvalidInput, InvalidSetting
from ..auth import get_service
from ..bodies import parse_json
from ..clocks import Clock, Regulation, format_time, parse_time
from ..database import Database
from ..deliveries import check_url
from ..matters import Author
from ..problems import Problem, to_problem
from ..queue import ERASURE, Job, JobKind, NewJob, ProtocolName
from ..service import Event, Service, run_in_writer_thread

_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_MAX_MESSAGE_BYTES = 64 * 2**10
_MAX_LIFETIME = timedelta(days=1)  # of a message; the protocol recommends ten minutes
_REPLAY_RETENTION = timedelta(
    days=1
)  # how long a message is remembered after it expires, in case the clock is set back
_DRP_VERSION = "1.0"


class AgentRefusal(Exception):
    """The refusal of a message; ``fatal`` if sending it again is useless."""

    def __init__(self, status: int, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.status, self.message, self.fatal = status, message, fatal


@dataclass(frozen=True)
class Agent:
    """An agent in the directory."""

    id: str
    name: str
    key: bytes  # Ed25519 public key


def read_directory(path: Path) -> list[Agent]:
    """Read the agents from a file: a JSON list of objects with id, name and verify_key (base64)."""
    try:
        documents = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSetting(f"{path} is not a readable directory of agents: {type(error).__name__}") from None
    if not isinstance(documents, list):
        raise InvalidSetting(f"{path} must be a JSON list of agents, with id, name and verify_key")
    agents = [_parse_agent(document, f"{path}: agent {number}") for number, document in enumerate(documents, 1)]
    if len({agent.id for agent in agents}) < len(agents):
        raise InvalidSetting(f"{path} contains two agents with the same id")
    return agents


def _parse_agent(document: Any, where: str) -> Agent:
    id_, name, key = (
        document.get(part) if isinstance(document, dict) else None for part in ("id", "name", "verify_key")
    )
    for part, text in (("id", id_), ("name", name)):
        if not isinstance(text, str) or not 1 <= len(text) <= 80 or not text.isprintable():
            raise InvalidSetting(f"{where}: {part} must be one line of 1 to 80 characters")
    raw = _parse_key(key) if isinstance(key, str) else None
    if raw is None:
        raise InvalidSetting(f"{where}: verify_key must be an Ed25519 public key, 32 bytes in base64")
    return Agent(str(id_), str(name), raw)


def _parse_key(text: str) -> bytes | None:
    """Decode a key in base64, or in hexadecimal as some directories have it."""
    for decode in (bytes.fromhex, lambda encoded: base64.b64decode(encoded, validate=True)):
        try:
            if len(raw := decode(text)) == _KEY_BYTES:
                return raw
        except ValueError:
            continue
    return None


class Agents:
    """The agents of a service, their tokens, and the messages it has seen."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        mark: Callable[[bytes], str],
        business: str,
        known: Iterable[Agent] = (),
    ) -> None:
        self._database, self._clock, self._mark, self._business = database, clock, mark, business
        self._known = {agent.id: agent for agent in known}
        with database.transaction():
            for row in database.fetch_all("SELECT id, key FROM agents"):
                agent = self._known.get(row["id"])
                if agent is None or agent.key.hex() != row["key"]:  # the token was issued for a different key
                    database.execute("DELETE FROM agents WHERE id = ?", row["id"])

    def get(self, id_: str) -> Agent:
        """Return the agent with an id."""
        if id_ not in self._known:
            raise AgentRefusal(403, "unknown agent")
        return self._known[id_]

    def register(self, agent: Agent, raw: bytes) -> str:
        """Create the token of an agent that signed a request for it; its previous token becomes invalid."""
        self.read_claims(agent, raw)
        token = secrets.token_urlsafe(32)
        with self._database.transaction() as database:
            database.execute(
                "INSERT OR REPLACE INTO agents (id, name, key, token) VALUES (?, ?, ?, ?)",
                agent.id, agent.name, agent.key.hex(), _hash_token(token),
            )  # fmt: skip
        return token

    def find_by_token(self, header: str | None) -> Agent:
        """Return the agent whose token is in an Authorization header."""
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            row = self._database.fetch_one("SELECT id FROM agents WHERE token = ?", _hash_token(token.strip()))
            if row is not None and row["id"] in self._known:
                return self._known[row["id"]]
        raise AgentRefusal(401, "send the token from POST /drp/v1/agent/{id} as Authorization: Bearer ...")

    def read_claims(self, agent: Agent, raw: bytes) -> dict[str, Any]:
        """Return the signed claims of a message, checked in the order of the protocol, and refuse a replay."""
        text, now = open_message(agent, raw), self._clock()
        message = _parse_object(text)
        self._check_names(agent, message)
        issued, expires = _read_message_time(message, "issued-at"), _read_message_time(message, "expires-at")
        if issued > now:
            raise AgentRefusal(400, "issued-at is in the future: check the clock")
        if expires <= now:
            raise AgentRefusal(400, "the message has expired", fatal=True)
        if expires - issued > _MAX_LIFETIME:
            raise AgentRefusal(400, "a message may be valid for at most one day", fatal=True)
        if message.get("drp.version", _DRP_VERSION) != _DRP_VERSION:
            raise AgentRefusal(400, f"drp.version must be {_DRP_VERSION}", fatal=True)
        self._refuse_replay(agent, text, expires)
        return message

    def check_revocation(self, agent: Agent, raw: bytes) -> None:
        """Check a revocation: it needs only a reason, but the claims that it contains must be correct."""
        message = _parse_object(open_message(agent, raw))
        if "agent-id" in message or "business-id" in message:
            self._check_names(agent, message)
        if "expires-at" in message and _read_message_time(message, "expires-at") <= self._clock():
            raise AgentRefusal(400, "the message has expired", fatal=True)

    def _check_names(self, agent: Agent, message: dict[str, Any]) -> None:
        if message.get("agent-id") != agent.id:
            raise AgentRefusal(403, "agent-id is not the agent that sent this message", fatal=True)
        if message.get("business-id") != self._business:
            raise AgentRefusal(403, "business-id is not this business", fatal=True)

    def _refuse_replay(self, agent: Agent, text: bytes, expires: datetime) -> None:
        """Remember a message by its keyed hash, or refuse it if it was seen before."""
        mark = self._mark(f"expunge message {agent.id}\n".encode() + text)
        until = format_time(expires + _REPLAY_RETENTION)
        with self._database.transaction() as database:
            database.execute("DELETE FROM seen WHERE until < ?", format_time(self._clock()))
            if not database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", mark, until):
                raise AgentRefusal(409, "this message was already sent: sign a new one", fatal=True)


def open_message(agent: Agent, raw: bytes) -> bytes:
    """Return the text that an agent signed: a message is base64 of the signature followed by the text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(raw) > _MAX_MESSAGE_BYTES:
        raise AgentRefusal(413, f"a message can have at most {_MAX_MESSAGE_BYTES:,} bytes", fatal=True)
    try:
        data = base64.b64decode(raw.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise AgentRefusal(400, "the body must be base64", fatal=True) from None
    signature, text = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(agent.key).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise AgentRefusal(403, "the signature is not valid for this agent's key", fatal=True) from None
    return text


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        message = parse_json(text)
    except (Problem, InvalidInput):
        message = None
    if not isinstance(message, dict):
        raise AgentRefusal(400, "the signed message must be a JSON object", fatal=True)
    return message


def _read_message_time(message: dict[str, Any], name: str) -> datetime:
    try:
        if not isinstance(text := message[name], str):
            raise TypeError(name)
        return parse_time(text)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise AgentRefusal(400, f"{name} must be an ISO 8601 time", fatal=True) from None


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


router = APIRouter(prefix="/drp/v1", tags=["Data Rights Protocol"])

PROTOCOL: ProtocolName = "drp"
REVOKED = "revoked by the agent"
_RIGHTS: tuple[JobKind, ...] = ("access", "access:categories", "access:specific", "sale:opt-out", "sale:opt-in")
_EXERCISES: dict[Any, JobKind] = {"deletion": ERASURE, **{right: right for right in _RIGHTS}}
_CALLBACK_EVENTS = ("done", "not_known", "cancelled", "refused")  # events that change the status
_MAX_NAME_LENGTH = 200  # of an agent's name for a request
_SIGNED_BODY = {
    "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string", "format": "byte"}}}}
}


def install(service: Service) -> Agents:
    """Read the directory of agents, and register the listener that sends their callbacks."""
    options = service.options
    if options.drp_directory is not None and not options.business_id:
        raise InvalidSetting("--drp-directory needs --business-id, the name that agents use for this business")
    agents = () if options.drp_directory is None else read_directory(options.drp_directory)

    def send_callbacks(event: Event) -> None:
        if event.job.protocol == PROTOCOL and event.name in _CALLBACK_EVENTS:
            body = json.dumps(status_view(event.job)).encode()
            for url in event.job.callbacks:
                service.deliveries.add(url, body, {"content-type": "application/json"})

    service.listeners.append(send_callbacks)
    return Agents(service.database, service.clock, service.keyed_hash, options.business_id, agents)


@router.post("/agent/{agent_id}", openapi_extra=_SIGNED_BODY)
async def register_agent(request: Request, agent_id: str) -> Response:
    """Issue a token to an agent for a message that it signed; an older token becomes invalid."""
    agents, raw = _get_agents(request), await request.body()

    def register() -> dict[str, str]:
        _check_rate(request, "")
        agent = agents.get(agent_id)
        return {"agent-id": agent.id, "token": agents.register(agent, raw)}

    response = await _respond(register)
    if response.status_code in (200, 429, 503):
        return response
    return Response(status_code=403)  # the protocol's answer to every error


@router.get("/agent/{agent_id}")
async def get_agent(request: Request, agent_id: str) -> Response:
    """Confirm that an agent's token is valid."""

    def check() -> dict[str, str]:
        if _authenticate_agent(request).id != agent_id:
            raise AgentRefusal(403, "the token belongs to another agent")
        return {}

    return await _respond(check)


@router.post("/data-rights-request", openapi_extra=_SIGNED_BODY)
@router.post("/data-rights-request/", include_in_schema=False)
async def exercise_right(request: Request) -> Response:
    """Accept a signed request. Deletions are carried out, other rights are denied."""
    raw = await request.body()

    def start() -> dict[str, Any]:
        agent, service = _authenticate_agent(request), get_service(request)
        return status_view(_start_request(service, agent, _get_agents(request).read_claims(agent, raw)))

    return await _respond(start)


@router.get("/data-rights-request/{request_id}")
@router.get("/data-rights-request/{request_id}/", include_in_schema=False)
async def get_status(request: Request, request_id: str) -> Response:
    """Return the status of a request."""
    return await _respond(lambda: status_view(_find_own_request(request, _authenticate_agent(request), request_id)))


@router.delete("/data-rights-request/{request_id}", openapi_extra=_SIGNED_BODY)
@router.delete("/data-rights-request/{request_id}/", include_in_schema=False)
async def revoke_request(request: Request, request_id: str) -> Response:
    """Revoke a request that has not been carried out."""
    raw = await request.body()

    def revoke() -> dict[str, Any]:
        agent = _authenticate_agent(request)
        _get_agents(request).check_revocation(agent, raw)
        job = _find_own_request(request, agent, request_id)
        if (job.state, job.reason) != ("cancelled", REVOKED):  # revoking twice is not an error
            cancelled = get_service(request).cancel(job.id, REVOKED, Author(agent.name, agent.id))
            if cancelled is None:
                raise AgentRefusal(409, "the request is already closed and cannot be revoked")
            job = cancelled
        return status_view(job)

    return await _respond(revoke)


def _start_request(service: Service, agent: Agent, message: dict[str, Any]) -> Job:
    right = message.get("exercise")
    if not isinstance(right, str) or right not in _EXERCISES:
        raise AgentRefusal(400, f"exercise must be one of {', '.join(_EXERCISES)}", fatal=True)
    name = _read_line(message, "agent-request-id")
    facts = {"_agent": agent.id} | ({} if name is None else {"_agent_request_id": name})
    new_job = NewJob(
        kind=_EXERCISES[right],
        protocol=PROTOCOL,
        regulation=_read_regulation(service, message),
        actor=agent.name,
        caller=agent.id,
        outside=name or "",
        callbacks=_read_callbacks(service, message),
        facts=facts,
    )
    if right != "deletion":
        return _deny_request(service, new_job, "claim_not_covered", "only deletion is supported")
    email = message.get("email")
    if not isinstance(email, str) or not email.strip():
        return _deny_request(service, new_job, "no_match", "the request has no email, by which people are found")
    if message.get("email_verified") not in (True, "true"):
        return _deny_request(service, new_job, "insuf_verification", "email_verified must be true")
    person = service.aliases.find(email)
    if person is None:
        return _deny_request(service, new_job, "no_match", "no person is known by this email")
    return service.erase(service.vault.unseal([person]), new_job)


def _deny_request(service: Service, new_job: NewJob, reason: str, detail: str) -> Job:
    """Record a request that is denied, and the reason."""
    with service.database.transaction():
        job = service.queue.add(new_job, service.clock(), "running")
        job = service.queue.move(job.id, "failed", detail, _denied=reason)
        service.emit("refused", job)
    return job


def _read_regulation(service: Service, message: dict[str, Any]) -> Regulation:
    """Return the regulation that sets the deadline: the message's regime if it is known, else the service's default."""
    regime = message.get("regime")
    known: dict[Any, Regulation] = {"ccpa": "ccpa", "gdpr": "gdpr"}
    if regime is not None and not isinstance(regime, str):
        raise AgentRefusal(400, "regime must be a string", fatal=True)
    return known.get(regime, service.options.regulation)


def _read_callbacks(service: Service, message: dict[str, Any]) -> tuple[str, ...]:
    url = message.get("status_callback")
    if url is None or url == "":
        return ()
    if not isinstance(url, str):
        raise AgentRefusal(400, "status_callback must be a URL", fatal=True)
    try:
        check_url(url, service.deliveries.allowed)
    except InvalidInput as error:
        raise AgentRefusal(400, f"status_callback: {error}", fatal=True) from None
    return (url,)


def _read_line(message: dict[str, Any], name: str) -> str | None:
    text = message.get(name)
    if text is not None and not (isinstance(text, str) and len(text) <= _MAX_NAME_LENGTH and text.isprintable()):
        raise AgentRefusal(400, f"{name} must be one line of at most {_MAX_NAME_LENGTH} characters", fatal=True)
    return text


def status_view(job: Job) -> dict[str, Any]:
    """Return the status object of a request, without members that have no value."""
    state, reason, details = _describe_state(job)
    view = {
        "request_id": job.id,
        "status": state,
        "reason": reason,
        "processing_details": details,
        "received_at": job.received.isoformat(timespec="seconds"),
        "expected_by": job.due.isoformat(timespec="seconds"),
        "agent_request_id": job.outcome.get("_agent_request_id"),
    }
    return {name: value for name, value in view.items() if value is not None}


def _describe_state(job: Job) -> tuple[str, str | None, str | None]:
    """Return the protocol's status, reason and details of a request; the reason of a hold is not disclosed."""
    if job.state == "done":
        return "fulfilled", None, None
    if job.state == "not_known":
        return "denied", "no_match", "the person with this email is not known here"
    if job.incomplete:
        return "in_progress", None, "the data are erased; complete once the settings of the model are chosen again"
    if job.state == "cancelled":
        return ("revoked", None, None) if job.reason == REVOKED else ("denied", "other", "the business cancelled it")
    if job.state == "failed":
        why = job.outcome.get("_denied")
        return "denied", why or "other", job.reason if why else "the request could not be carried out"
    if job.extension:
        return "in_progress", None, f"the deadline was extended: {job.extension}"
    return "in_progress", None, "the data must be kept for now by law" if job.state == "held" else None


def _get_agents(request: Request) -> Agents:
    agents: Agents = request.app.state.agents
    return agents


def _authenticate_agent(request: Request) -> Agent:
    """Return the agent that sends a request, unless it exceeds the rate limit."""
    agent = _get_agents(request).find_by_token(request.headers.get("authorization"))
    _check_rate(request, agent.id)
    return agent


def _check_rate(request: Request, key: str) -> None:
    if request.app.state.limit(f"{PROTOCOL} {key}") > 0:
        raise AgentRefusal(429, "too many requests: wait a moment and try again")


def _find_own_request(request: Request, agent: Agent, id_: str) -> Job:
    """Return a request of this agent."""
    job = get_service(request).queue.get(id_)
    if job.protocol != PROTOCOL:
        raise LookupError
    if job.outcome.get("_agent") != agent.id:
        raise AgentRefusal(403, "the request belongs to another agent")
    return job


async def _respond(task: Callable[[], dict[str, Any]]) -> Response:
    """Run a task and return its result, or an error in the form of the protocol."""
    try:
        return JSONResponse(await run_in_writer_thread(task))
    except AgentRefusal as refusal:
        status, message, fatal = refusal.status, refusal.message, refusal.fatal
    except LookupError:
        status, message, fatal = 404, "there is no request with this id", False
    except ExpungeError as error:
        problem = to_problem(error)
        status, message, fatal = problem.status, problem.detail, False
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(status)
    return JSONResponse({"code": str(status), "message": message, "fatal": fatal}, status, headers=headers)
