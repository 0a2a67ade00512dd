"""Hooks: systems that want to know what happens to requests, told as Standard Webhooks has it.

Secrets are not stored: they are derived from the vault's key and a number that is drawn for each hook, so that a copy
of the database signs nothing. What is sent never tells whose a request is.
"""

import base64
import hashlib
import hmac
import json
import secrets
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from ..errors import InvalidInput
from .addresses import Unreachable, checked, resolved
from .clocks import as_text, as_time
from .views import request_view

if TYPE_CHECKING:
    from sqlite3 import Row

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from .service import Service, Told

Event: TypeAlias = Literal["accepted", "done", "certified", "cancelled", "refused", "overdue"]
EVENTS: tuple[Event, ...] = get_args(Event)

_MOST = 100  # hooks


@dataclass(frozen=True)
class Hook:
    """Where to tell what."""

    id: str
    url: str
    events: tuple[str, ...]
    made: datetime
    off: datetime | None  # since when nothing is sent, because the receiver said that it is gone


class Hooks:
    """The hooks of a service; they hear everything that it tells."""

    def __init__(self, service: "Service") -> None:
        self._service, self._database = service, service.database
        service.listeners.append(self.hear)
        service.deliveries.signer = self

    # Which there are

    def new(self, url: str, events: Iterable[str] = EVENTS) -> tuple[Hook, str]:
        """Make a hook; its secret is shown to its owner once."""
        wanted = tuple(event for event in EVENTS if event in set(events))
        if not wanted:
            raise InvalidInput(f"events must be some of {', '.join(EVENTS)}")
        allowed = self._service.deliveries.allowed
        target = checked(url, allowed)
        with suppress(Unreachable):  # a name that is not known yet may be when something is sent
            resolved(target, allowed)
        hook, salt = Hook(str(uuid.uuid4()), url, wanted, self._service.clock(), None), secrets.token_hex(16)
        with self._database.writing() as database:
            if len(self.every()) >= _MOST:
                raise InvalidInput(f"there are {_MOST} hooks already, and no more are taken: delete one")
            database.execute(
                "INSERT INTO hooks (id, url, events, secret, made) VALUES (?, ?, ?, ?, ?)",
                hook.id, url, " ".join(wanted), salt, as_text(hook.made),
            )  # fmt: skip
        return hook, "whsec_" + base64.b64encode(self._secret(salt)).decode()

    def every(self) -> list[Hook]:
        """All of them, in the order in which they were made."""
        return [_hook(row) for row in self._database.all("SELECT * FROM hooks ORDER BY made, id")]

    def remove(self, id_: str) -> bool:
        """Remove a hook, and what waits for it; whether there was one."""
        with self._database.writing() as database:
            self._service.deliveries.give_up(id_)
            return database.execute("DELETE FROM hooks WHERE id = ?", id_) > 0

    def switch_off(self, hook: str) -> None:
        """Send nothing to a hook any more: its receiver is gone."""
        with self._database.writing() as database:
            database.execute("UPDATE hooks SET off = ? WHERE id = ?", as_text(self._service.clock()), hook)
            self._service.deliveries.give_up(hook)

    # What they are told

    def hear(self, told: "Told") -> None:
        """Write down what is to be sent to the hooks that want to know this."""
        wanted = [hook for hook in self.every() if hook.off is None and told.event in hook.events]
        if not wanted:
            return
        payload = {
            "type": f"request.{told.event}",
            "timestamp": as_text(self._service.clock()),
            "data": request_view(told.entry),
        }
        body = json.dumps(payload, separators=(",", ":")).encode()
        for hook in wanted:
            headers = {"content-type": "application/json", "webhook-id": f"msg_{uuid.uuid4().hex}"}
            self._service.deliveries.add(hook.url, body, headers, hook=hook.id)

    def sign(self, hook: str, message: str, body: bytes) -> dict[str, str] | None:
        """The headers of a try: its time, and signatures with the hook's secret and with the service's key."""
        row = self._database.one("SELECT * FROM hooks WHERE id = ? AND off IS NULL", hook)
        if row is None:
            return None
        time = str(int(self._service.clock().timestamp()))
        text = f"{message}.{time}.".encode() + body
        by_secret, by_key = hmac.digest(self._secret(row["secret"]), text, "sha256"), self._key().sign(text)
        pairs = (("v1", by_secret), ("v1a", by_key))
        signature = " ".join(f"{version},{base64.b64encode(one).decode()}" for version, one in pairs)
        return {"webhook-timestamp": time, "webhook-signature": signature}

    def public_key(self) -> str:
        """What receivers check v1a signatures with."""
        return "whpk_" + base64.b64encode(self._key().public_key().public_bytes_raw()).decode()

    def _key(self) -> "Ed25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._derived("key"))

    def _secret(self, salt: str) -> bytes:
        return self._derived(f"secret {salt}")

    def _derived(self, purpose: str) -> bytes:
        """32 bytes that only this vault's keys lead to; a keyed hash alone would not do, since ledgers tell some."""
        (sealed,) = self._service.vault.seal([f"expunge webhooks {purpose}".encode().hex()])
        return hashlib.sha256(sealed.to_bytes()).digest()


def _hook(row: "Row") -> Hook:
    off = None if row["off"] is None else as_time(row["off"])
    return Hook(row["id"], row["url"], tuple(row["events"].split()), as_time(row["made"]), off)
