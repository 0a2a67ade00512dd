"""Agents: who may send data rights requests for others, and the messages that they sign.

Agents and their keys come from a directory file. An agent gets a token for a signed message; what is kept is its hash.
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

from ..errors import InvalidInput, InvalidSetting
from .bodies import parsed
from .clocks import Clock, as_text, as_time
from .database import Database
from .problems import Problem

_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_LONGEST = 64 * 2**10  # bytes of a message
_MOST_LIFE = timedelta(days=1)  # of a message; the protocol recommends ten minutes
_KEPT = timedelta(days=1)  # how long a mark outlives its message: a clock that is set back opens nothing
_VERSION = "1.0"


class Refusal(Exception):
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
    agents = [_agent(one, f"{path}: agent {number}") for number, one in enumerate(found, 1)]
    if len({agent.id for agent in agents}) < len(agents):
        raise InvalidSetting(f"{path} has two agents with one id")
    return agents


def _agent(one: Any, where: str) -> Agent:
    id_, name, key = (one.get(part) if isinstance(one, dict) else None for part in ("id", "name", "verify_key"))
    for part, text in (("id", id_), ("name", name)):
        if not isinstance(text, str) or not 1 <= len(text) <= 80 or not text.isprintable():
            raise InvalidSetting(f"{where}: {part} must be one line of 1 to 80 characters")
    raw = _key(key) if isinstance(key, str) else None
    if raw is None:
        raise InvalidSetting(f"{where}: verify_key must be an Ed25519 public key, 32 bytes in base64")
    return Agent(str(id_), str(name), raw)


def _key(text: str) -> bytes | None:
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
        with database.writing():
            for row in database.all("SELECT id, key FROM agents"):
                agent = self._known.get(row["id"])
                if agent is None or agent.key.hex() != row["key"]:  # a token of another key does not count
                    database.execute("DELETE FROM agents WHERE id = ?", row["id"])

    def get(self, id_: str) -> Agent:
        """The agent with this id."""
        if id_ not in self._known:
            raise Refusal(403, "there is no such agent")
        return self._known[id_]

    def register(self, agent: Agent, raw: bytes) -> str:
        """Make the token of an agent who signed for it; one that it had counts no more."""
        self.claims(agent, raw)
        token = secrets.token_urlsafe(32)
        with self._database.writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO agents (id, name, key, token) VALUES (?, ?, ?, ?)",
                agent.id, agent.name, agent.key.hex(), _hash(token),
            )  # fmt: skip
        return token

    def bearer(self, header: str | None) -> Agent:
        """The agent whose token a request carries."""
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            row = self._database.one("SELECT id FROM agents WHERE token = ?", _hash(token.strip()))
            if row is not None and row["id"] in self._known:
                return self._known[row["id"]]
        raise Refusal(401, "send the token that POST /drp/v1/agent/{id} gave: Authorization: Bearer ...")

    # Messages

    def claims(self, agent: Agent, raw: bytes) -> dict[str, Any]:
        """What an agent signed, checked in the order that the protocol asks for, and seen for the first time."""
        text, now = signed(agent, raw), self._clock()
        message = _object(text)
        self._check_names(agent, message)
        issued, expires = _time(message, "issued-at"), _time(message, "expires-at")
        if issued > now:
            raise Refusal(400, "issued-at is in the future: whose clock is wrong?")
        if expires <= now:
            raise Refusal(400, "the message has expired", fatal=True)
        if expires - issued > _MOST_LIFE:
            raise Refusal(400, "a message is valid for at most a day", fatal=True)
        if message.get("drp.version", _VERSION) != _VERSION:
            raise Refusal(400, f"drp.version must be {_VERSION}", fatal=True)
        self._see(agent, text, expires)
        return message

    def revocation(self, agent: Agent, raw: bytes) -> None:
        """Check a message that names only a reason; claims that it has all the same must be right."""
        message = _object(signed(agent, raw))
        if "agent-id" in message or "business-id" in message:
            self._check_names(agent, message)
        if "expires-at" in message and _time(message, "expires-at") <= self._clock():
            raise Refusal(400, "the message has expired", fatal=True)

    def _check_names(self, agent: Agent, message: dict[str, Any]) -> None:
        if message.get("agent-id") != agent.id:
            raise Refusal(403, "agent-id is not the agent that sent this", fatal=True)
        if message.get("business-id") != self._business:
            raise Refusal(403, "business-id is not this business", fatal=True)

    def _see(self, agent: Agent, text: bytes, expires: datetime) -> None:
        """Note what was signed, as a keyed hash, or refuse it if it was noted before."""
        mark, until = self._mark(f"expunge message {agent.id}\n".encode() + text), as_text(expires + _KEPT)
        with self._database.writing() as database:
            database.execute("DELETE FROM seen WHERE until < ?", as_text(self._clock()))
            if not database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", mark, until):
                raise Refusal(409, "this message was sent before: sign a new one", fatal=True)


def signed(agent: Agent, raw: bytes) -> bytes:
    """What this agent signed: a message is base64 of the signature, followed by that."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(raw) > _LONGEST:
        raise Refusal(413, f"a message has at most {_LONGEST:,} bytes", fatal=True)
    try:
        data = base64.b64decode(raw.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(400, "the body must be base64", fatal=True) from None
    signature, text = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(agent.key).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise Refusal(403, "the signature is not one of this agent", fatal=True) from None
    return text


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = parsed(text)
    except (Problem, InvalidInput):
        found = None
    if not isinstance(found, dict):
        raise Refusal(400, "what is signed must be a JSON object", fatal=True)
    return found


def _time(message: dict[str, Any], name: str) -> datetime:
    try:
        return as_time(message[name])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Refusal(400, f"{name} must be a time as ISO 8601 has it", fatal=True) from None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
