"""The Data Rights Protocol 1.0, under /drp: deletions that agents of consumers ask for, in signed messages.

Agents know people by e-mail; the aliases of the service tell whose id that is. Only ``deletion`` is carried out.
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

# MERGED agents: Agents: who may send data rights requests for others, and the messages that they sign.
# MERGED agents:
# MERGED agents: Agents and their keys come from a directory file. An agent gets a token for a signed message; what is kept is its hash.


_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_MAX_MESSAGE_BYTES = 64 * 2**10  # bytes of a message
_MAX_LIFETIME = timedelta(days=1)  # of a message; the protocol recommends ten minutes
_REPLAY_RETENTION = timedelta(days=1)  # how long a mark outlives its message: a clock that is set back opens nothing
_DRP_VERSION = "1.0"


class AgentRefusal(Exception):
    """Why a message is not taken; ``fatal``: to send it again is useless."""

    def __init__(self, status: int, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.status, self.message, self.fatal = status, message, fatal


@dataclass(frozen=True)
class Agent:
    """An agent of the directory."""

    id: str
    name: str
    key: bytes  # Ed25519, public


def read_directory(path: Path) -> list[Agent]:
    """The agents of a file: a JSON list of objects with id, name and verify_key (base64)."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSetting(f"{path} cannot be read as a directory of agents: {type(error).__name__}") from None
    if not isinstance(found, list):
        raise InvalidSetting(f"{path} must be a JSON list of agents, with id, name and verify_key")
    agents = [_parse_agent(one, f"{path}: agent {number}") for number, one in enumerate(found, 1)]
    if len({agent.id for agent in agents}) < len(agents):
        raise InvalidSetting(f"{path} has two agents with one id")
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
    """A key in base64, or in hexadecimal as some directories have it."""
    for decode in (bytes.fromhex, lambda one: base64.b64decode(one, validate=True)):
        try:
            if len(raw := decode(text)) == _KEY_BYTES:
                return raw
        except ValueError:
            continue
    return None


class Agents:
    """The agents that a service knows, and what it has seen of them."""

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
                if agent is None or agent.key.hex() != row["key"]:  # a token of another key does not count
                    database.execute("DELETE FROM agents WHERE id = ?", row["id"])

    def get(self, id_: str) -> Agent:
        """The agent with this id."""
        if id_ not in self._known:
            raise AgentRefusal(403, "there is no such agent")
        return self._known[id_]

    def register(self, agent: Agent, raw: bytes) -> str:
        """Make the token of an agent who signed for it; one that it had counts no more."""
        self.read_claims(agent, raw)
        token = secrets.token_urlsafe(32)
        with self._database.transaction() as database:
            database.execute(
                "INSERT OR REPLACE INTO agents (id, name, key, token) VALUES (?, ?, ?, ?)",
                agent.id, agent.name, agent.key.hex(), _hash_token(token),
            )  # fmt: skip
        return token

    def find_by_token(self, header: str | None) -> Agent:
        """The agent whose token a request carries."""
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            row = self._database.fetch_one("SELECT id FROM agents WHERE token = ?", _hash_token(token.strip()))
            if row is not None and row["id"] in self._known:
                return self._known[row["id"]]
        raise AgentRefusal(401, "send the token that POST /drp/v1/agent/{id} gave: Authorization: Bearer ...")

    # Messages

    def read_claims(self, agent: Agent, raw: bytes) -> dict[str, Any]:
        """What an agent signed, checked in the order that the protocol asks for, and seen for the first time."""
        text, now = open_message(agent, raw), self._clock()
        message = _parse_object(text)
        self._check_names(agent, message)
        issued, expires = _read_message_time(message, "issued-at"), _read_message_time(message, "expires-at")
        if issued > now:
            raise AgentRefusal(400, "issued-at is in the future: whose clock is wrong?")
        if expires <= now:
            raise AgentRefusal(400, "the message has expired", fatal=True)
        if expires - issued > _MAX_LIFETIME:
            raise AgentRefusal(400, "a message is valid for at most a day", fatal=True)
        if message.get("drp.version", _DRP_VERSION) != _DRP_VERSION:
            raise AgentRefusal(400, f"drp.version must be {_DRP_VERSION}", fatal=True)
        self._refuse_replay(agent, text, expires)
        return message

    def check_revocation(self, agent: Agent, raw: bytes) -> None:
        """Check a message that names only a reason; claims that it has all the same must be right."""
        message = _parse_object(open_message(agent, raw))
        if "agent-id" in message or "business-id" in message:
            self._check_names(agent, message)
        if "expires-at" in message and _read_message_time(message, "expires-at") <= self._clock():
            raise AgentRefusal(400, "the message has expired", fatal=True)

    def _check_names(self, agent: Agent, message: dict[str, Any]) -> None:
        if message.get("agent-id") != agent.id:
            raise AgentRefusal(403, "agent-id is not the agent that sent this", fatal=True)
        if message.get("business-id") != self._business:
            raise AgentRefusal(403, "business-id is not this business", fatal=True)

    def _refuse_replay(self, agent: Agent, text: bytes, expires: datetime) -> None:
        """Note what was signed, as a keyed hash, or refuse it if it was noted before."""
        mark, until = (
            self._mark(f"expunge message {agent.id}\n".encode() + text),
            format_time(expires + _REPLAY_RETENTION),
        )
        with self._database.transaction() as database:
            database.execute("DELETE FROM seen WHERE until < ?", format_time(self._clock()))
            if not database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", mark, until):
                raise AgentRefusal(409, "this message was sent before: sign a new one", fatal=True)


def open_message(agent: Agent, raw: bytes) -> bytes:
    """What this agent signed: a message is base64 of the signature, followed by that."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(raw) > _MAX_MESSAGE_BYTES:
        raise AgentRefusal(413, f"a message has at most {_MAX_MESSAGE_BYTES:,} bytes", fatal=True)
    try:
        data = base64.b64decode(raw.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise AgentRefusal(400, "the body must be base64", fatal=True) from None
    signature, text = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(agent.key).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise AgentRefusal(403, "the signature is not one of this agent", fatal=True) from None
    return text


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        found = parse_json(text)
    except (Problem, InvalidInput):
        found = None
    if not isinstance(found, dict):
        raise AgentRefusal(400, "what is signed must be a JSON object", fatal=True)
    return found


def _read_message_time(message: dict[str, Any], name: str) -> datetime:
    try:
        return parse_time(message[name])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise AgentRefusal(400, f"{name} must be a time as ISO 8601 has it", fatal=True) from None


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


router = APIRouter(prefix="/drp/v1", tags=["Data Rights Protocol"])

PROTOCOL: ProtocolName = "drp"
REVOKED = "revoked by the agent"
_RIGHTS: tuple[JobKind, ...] = ("access", "access:categories", "access:specific", "sale:opt-out", "sale:opt-in")
_EXERCISES: dict[Any, JobKind] = {"deletion": ERASURE, **{right: right for right in _RIGHTS}}
_CALLBACK_EVENTS = ("done", "not_known", "cancelled", "refused")  # events after which the status is another
_MAX_NAME_LENGTH = 200  # characters of an agent's name for a request
_SIGNED_BODY = {
    "requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string", "format": "byte"}}}}
}


def install(service: Service) -> Agents:
    """The agents of the directory, and a listener that calls them back."""
    options = service.options
    if options.drp_directory is not None and not options.business_id:
        raise InvalidSetting("--drp-directory needs --business-id: what agents call this business")
    known = () if options.drp_directory is None else read_directory(options.drp_directory)

    def hear(event: Event) -> None:
        if event.job.protocol == PROTOCOL and event.name in _CALLBACK_EVENTS:
            body = json.dumps(status_view(event.job)).encode()
            for url in event.job.callbacks:
                service.deliveries.add(url, body, {"content-type": "application/json"})

    service.listeners.append(hear)
    return Agents(service.database, service.clock, service.keyed_hash, options.business_id, known)


# Agents


@router.post("/agent/{agent_id}", openapi_extra=_SIGNED_BODY)
async def register_agent(request: Request, agent_id: str) -> Response:
    """Give an agent of the directory a token, for a message that it signed; an older token counts no more."""
    agents, raw = _get_agents(request), await request.body()

    def work() -> dict[str, str]:
        _check_rate(request, "")
        agent = agents.get(agent_id)
        return {"agent-id": agent.id, "token": agents.register(agent, raw)}

    answer = await _respond(work)
    limited = answer.status_code in (200, 429, 503)
    return answer if limited else Response(status_code=403)  # as the protocol has it, whatever was wrong


@router.get("/agent/{agent_id}")
async def get_agent(request: Request, agent_id: str) -> Response:
    """Tell an agent whether its token counts."""

    def work() -> dict[str, str]:
        if _authenticate_agent(request).id != agent_id:
            raise AgentRefusal(403, "the token is another agent's")
        return {}

    return await _respond(work)


# Requests


@router.post("/data-rights-request", openapi_extra=_SIGNED_BODY)
@router.post("/data-rights-request/", include_in_schema=False)
async def exercise_right(request: Request) -> Response:
    """Take a signed request; a deletion is carried out, anything else is denied."""
    raw = await request.body()

    def work() -> dict[str, Any]:
        agent, service = _authenticate_agent(request), get_service(request)
        return status_view(_start_request(service, agent, _get_agents(request).read_claims(agent, raw)))

    return await _respond(work)


@router.get("/data-rights-request/{request_id}")
@router.get("/data-rights-request/{request_id}/", include_in_schema=False)
async def get_status(request: Request, request_id: str) -> Response:
    """How far a request is."""
    return await _respond(lambda: status_view(_find_own_request(request, _authenticate_agent(request), request_id)))


@router.delete("/data-rights-request/{request_id}", openapi_extra=_SIGNED_BODY)
@router.delete("/data-rights-request/{request_id}/", include_in_schema=False)
async def revoke_request(request: Request, request_id: str) -> Response:
    """Revoke a request that is not carried out yet."""
    raw = await request.body()

    def work() -> dict[str, Any]:
        agent = _authenticate_agent(request)
        _get_agents(request).check_revocation(agent, raw)
        entry = _find_own_request(request, agent, request_id)
        if (entry.state, entry.reason) != ("cancelled", REVOKED):  # to say it twice is no error
            cancelled = get_service(request).cancel(entry.id, REVOKED, Author(agent.name, agent.id))
            if cancelled is None:
                raise AgentRefusal(409, "the request is over already: it cannot be revoked")
            entry = cancelled
        return status_view(entry)

    return await _respond(work)


def _start_request(service: Service, agent: Agent, message: dict[str, Any]) -> Job:
    wanted = message.get("exercise")
    if not isinstance(wanted, str) or wanted not in _EXERCISES:
        raise AgentRefusal(400, f"exercise must be one of {', '.join(_EXERCISES)}", fatal=True)
    name = _read_line(message, "agent-request-id")
    facts = {"_agent": agent.id} | ({} if name is None else {"_agent_request_id": name})
    asked = NewJob(
        _EXERCISES[wanted], PROTOCOL, _read_regulation(service, message),
        actor=agent.name, caller=agent.id, outside=name or "", callbacks=_read_callbacks(service, message), facts=facts,
    )  # fmt: skip
    if wanted != "deletion":
        return _deny_request(service, asked, "claim_not_covered", "only deletion is carried out here")
    email = message.get("email")
    if not isinstance(email, str) or not email.strip():
        return _deny_request(service, asked, "no_match", "people are found by email, which is not in the request")
    if message.get("email_verified") not in (True, "true"):
        return _deny_request(service, asked, "insuf_verification", "email_verified must be true")
    found = service.aliases.find(email)
    if found is None:
        return _deny_request(service, asked, "no_match", "nobody is known by this email")
    return service.erase(service.vault.unseal([found]), asked)


def _deny_request(service: Service, new_job: NewJob, reason: str, detail: str) -> Job:
    """Keep a request that is not carried out, and why."""
    with service.database.transaction():
        entry = service.queue.add(new_job, service.clock(), "running")
        entry = service.queue.move(entry.id, "failed", detail, _denied=reason)
        service.emit("refused", entry)
    return entry


def _read_regulation(service: Service, message: dict[str, Any]) -> Regulation:
    """The law whose clock counts; a regime that we have no clock for gets the service's own."""
    regime = message.get("regime")
    known: dict[Any, Regulation] = {"ccpa": "ccpa", "gdpr": "gdpr"}
    if regime is not None and not isinstance(regime, str):
        raise AgentRefusal(400, "regime must be a text", fatal=True)
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


# Answers


def status_view(entry: Job) -> dict[str, Any]:
    """The status object of a request; members that there is nothing to say about are left out."""
    state, reason, details = _describe_state(entry)
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


def _describe_state(entry: Job) -> tuple[str, str | None, str | None]:
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


def _get_agents(request: Request) -> Agents:
    found: Agents = request.app.state.agents
    return found


def _authenticate_agent(request: Request) -> Agent:
    """The agent that asks, unless it asks too often."""
    agent = _get_agents(request).find_by_token(request.headers.get("authorization"))
    _check_rate(request, agent.id)
    return agent


def _check_rate(request: Request, key: str) -> None:
    if request.app.state.limit(f"{PROTOCOL} {key}") > 0:
        raise AgentRefusal(429, "slow down")


def _find_own_request(request: Request, agent: Agent, id_: str) -> Job:
    """A request of this agent."""
    entry = get_service(request).queue.get(id_)
    if entry.protocol != PROTOCOL:
        raise LookupError
    if entry.outcome.get("_agent") != agent.id:
        raise AgentRefusal(403, "the request is another agent's")
    return entry


async def _respond(work: Callable[[], dict[str, Any]]) -> Response:
    """An answer, or an error as the protocol has it."""
    try:
        return JSONResponse(await run_in_writer_thread(work))
    except AgentRefusal as refusal:
        status, message, fatal = refusal.status, refusal.message, refusal.fatal
    except LookupError:
        status, message, fatal = 404, "there is no such request", False
    except ExpungeError as error:
        problem = to_problem(error)
        status, message, fatal = problem.status, problem.detail, False
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(status)
    return JSONResponse({"code": str(status), "message": message, "fatal": fatal}, status, headers=headers)
