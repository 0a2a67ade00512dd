"""Hooks: systems that want to know what happens to requests, told as Standard Webhooks has it.

Secrets are not stored: they are derived from the vault's key and a number that is drawn for each hook, so that a copy
of the database signs nothing. What is sent never tells whose a request is.
"""

import base64
import hmac
import json
import secrets
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from ..errors import InvalidInput
from .clocks import format_time, parse_time
from .deliveries import Delivery, Unreachable, check_url, resolve
from .matters import Matter, MatterLogEntry

if TYPE_CHECKING:
    from sqlite3 import Row

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from .service import Event, Service

WebhookEvent: TypeAlias = Literal[
    "accepted", "done", "not_known", "certified", "cancelled", "refused", "overdue",
    "matter.opened", "matter.people_added", "matter.review_changed", "matter.review_due", "matter.release_requested",
    "matter.release_withdrawn", "matter.people_released", "matter.released", "verification.failed",
]  # fmt: skip
WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)

_MAX_HOOKS = 100  # hooks


@dataclass(frozen=True)
class Hook:
    """Where to tell what."""

    id: str
    url: str
    events: tuple[str, ...]
    made: datetime
    off: datetime | None  # since when nothing is sent, because the receiver said that it is gone

    def view(self) -> dict[str, Any]:
        """Return the hook as JSON, without its secret."""
        return {
            "id": self.id,
            "url": self.url,
            "events": list(self.events),
            "made": format_time(self.made),
            "off": format_time(self.off),
        }


class Hooks:
    """The hooks of a service; they hear everything that it tells."""

    def __init__(self, service: "Service") -> None:
        self._service, self._database = service, service.database
        service.listeners.append(self.on_event)
        service.deliveries.signer = self

    # Which there are

    def create(self, url: str, events: Iterable[str] = WEBHOOK_EVENTS, actor: str = "") -> tuple[Hook, str]:
        """Make a hook; its secret is shown to its owner once."""
        wanted = tuple(event for event in WEBHOOK_EVENTS if event in set(events))
        if not wanted:
            raise InvalidInput(f"events must be some of {', '.join(WEBHOOK_EVENTS)}")
        allowed = self._service.deliveries.allowed
        target = check_url(url, allowed)
        with suppress(Unreachable):  # a name that is not known yet may be when something is sent
            resolve(target, allowed)
        hook, salt = Hook(str(uuid.uuid4()), url, wanted, self._service.clock(), None), secrets.token_hex(16)
        with self._database.transaction() as database:
            if len(self.list_all()) >= _MAX_HOOKS:
                raise InvalidInput(f"there are {_MAX_HOOKS} hooks already, and no more are taken: delete one")
            database.execute(
                "INSERT INTO hooks (id, url, events, secret, made) VALUES (?, ?, ?, ?, ?)",
                hook.id, url, " ".join(wanted), salt, format_time(hook.made),
            )  # fmt: skip
            host = urlsplit(url).hostname or ""  # the rest of an address may hold a secret
            self._service.audit.record("webhook.created", actor=actor, subject=hook.id, host=host, events=wanted)
        return hook, "whsec_" + base64.b64encode(self._derive_secret(salt)).decode()

    def list_all(self) -> list[Hook]:
        """All of them, in the order in which they were made."""
        return [_read_hook(row) for row in self._database.fetch_all("SELECT * FROM hooks ORDER BY made, id")]

    def get(self, id_: str) -> Hook:
        """Return one of them; LookupError if there is none."""
        row = self._database.fetch_one("SELECT * FROM hooks WHERE id = ?", id_)
        if row is None:
            raise LookupError(id_)
        return _read_hook(row)

    def remove(self, id_: str, actor: str = "") -> bool:
        """Remove a hook, and what waits for it; whether there was one."""
        with self._database.transaction() as database:
            self._service.deliveries.cancel_waiting(id_)
            there = database.execute("DELETE FROM hooks WHERE id = ?", id_) > 0
            if there:
                self._service.audit.record("webhook.removed", actor=actor, subject=id_)
            return there

    def disable(self, hook: str) -> None:
        """Send nothing to a hook any more: its receiver is gone."""
        with self._database.transaction() as database:
            database.execute("UPDATE hooks SET off = ? WHERE id = ?", format_time(self._service.clock()), hook)
            self._service.deliveries.cancel_waiting(hook)

    # What they are told

    def on_event(self, event: "Event") -> None:
        """Write down what is to be sent to the hooks that want to know this."""
        self._send(event.name, f"request.{event.name}", event.job.view)

    def announce_matter(self, entry: MatterLogEntry, matter: Matter) -> None:
        """Tell hooks what was done to a matter, and by whom."""
        name = f"matter.{entry.what}"
        now = self._service.clock()
        self._send(name, name, lambda: matter.view(now) | {"entry": entry.view()})

    def announce_failed_verification(self, data: dict[str, Any]) -> None:
        """Tell hooks that the vault, or something beside it, is not as it should be."""
        self._send("verification.failed", "verification.failed", lambda: data)

    def _send(self, event: str, type_: str, describe: Callable[[], dict[str, Any]]) -> None:
        """Queue a message to every hook that wants this event; it is described only if there is one."""
        wanted = [hook for hook in self.list_all() if hook.off is None and event in hook.events]
        if not wanted:
            return
        payload = {"type": type_, "timestamp": format_time(self._service.clock()), "data": describe()}
        body = json.dumps(payload, separators=(",", ":")).encode()
        for hook in wanted:
            self._service.deliveries.add(hook.url, body, _message_headers(), hook=hook.id)

    def send_test(self, id_: str) -> Delivery:
        """Post a message of the type ``webhook.test`` to a hook now, once, and return how that went."""
        hook = self._get_enabled(id_)
        payload = {
            "type": "webhook.test",
            "timestamp": format_time(self._service.clock()),
            "data": {"webhook": hook.id},
        }
        body = json.dumps(payload, separators=(",", ":")).encode()
        return self._service.deliveries.try_once(hook.url, body, _message_headers(), hook=hook.id)

    def resend(self, id_: str, delivery: int) -> Delivery:
        """Send one of a hook's messages again."""
        if self._service.deliveries.get(delivery).hook != id_:
            raise LookupError(delivery)
        return self._service.deliveries.resend(delivery, self._get_enabled(id_).url)

    def _get_enabled(self, id_: str) -> Hook:
        hook = self.get(id_)
        if hook.off is not None:
            raise InvalidInput("this webhook is switched off because its receiver answered 410: make it anew")
        return hook

    def sign(self, hook: str, message: str, body: bytes) -> dict[str, str] | None:
        """The headers of a try: its time, and signatures with the hook's secret and with the service's key."""
        row = self._database.fetch_one("SELECT * FROM hooks WHERE id = ? AND off IS NULL", hook)
        if row is None:
            return None
        time = str(int(self._service.clock().timestamp()))
        text = f"{message}.{time}.".encode() + body
        by_secret, by_key = (
            hmac.digest(self._derive_secret(row["secret"]), text, "sha256"),
            self._signing_key().sign(text),
        )
        pairs = (("v1", by_secret), ("v1a", by_key))
        signature = " ".join(f"{version},{base64.b64encode(one).decode()}" for version, one in pairs)
        return {"webhook-timestamp": time, "webhook-signature": signature}

    def public_key(self) -> str:
        """What receivers check v1a signatures with."""
        return "whpk_" + base64.b64encode(self._signing_key().public_key().public_bytes_raw()).decode()

    def _signing_key(self) -> "Ed25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._derive("key"))

    def _derive_secret(self, salt: str) -> bytes:
        return self._derive(f"secret {salt}")

    def _derive(self, purpose: str) -> bytes:
        """Return 32 bytes that only this vault's key leads to."""
        return self._service.vault.derive(f"webhooks {purpose}")


def _message_headers() -> dict[str, str]:
    return {"content-type": "application/json", "webhook-id": f"msg_{uuid.uuid4().hex}"}


def _read_hook(row: "Row") -> Hook:
    return Hook(row["id"], row["url"], tuple(row["events"].split()), parse_time(row["made"]), parse_time(row["off"]))
