"""Webhooks: subscriptions of other systems to events, in the format of Standard Webhooks.

Secrets are not stored: they are derived from the vault's key and a random number per hook, so a copy of the database
cannot sign. No message identifies a person.
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
    "accepted", "erased", "corrected", "done", "not_known", "certified", "cancelled", "refused", "overdue",
    "matter.opened", "matter.people_added", "matter.review_changed", "matter.review_due", "matter.release_requested",
    "matter.release_withdrawn", "matter.people_released", "matter.released", "verification.failed",
    "renewal.failed",
]  # fmt: skip
WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)

_MAX_HOOKS = 100


@dataclass(frozen=True)
class Hook:
    """A webhook: a URL and the events it receives."""

    id: str
    url: str
    events: tuple[str, ...]
    made: datetime
    off: datetime | None  # since when it is disabled: the receiver answered 410 Gone

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
    """The webhooks of a service; they receive its events."""

    def __init__(self, service: "Service") -> None:
        self._service, self._database = service, service.database
        service.listeners.append(self.on_event)
        service.deliveries.signer = self

    def create(self, url: str, events: Iterable[str] = WEBHOOK_EVENTS, actor: str = "") -> tuple[Hook, str]:
        """Create a webhook; return it with its secret, which is shown only once."""
        subscribed = tuple(event for event in WEBHOOK_EVENTS if event in set(events))
        if not subscribed:
            raise InvalidInput(f"events must be among {', '.join(WEBHOOK_EVENTS)}")
        allowed = self._service.deliveries.allowed
        target = check_url(url, allowed)
        with suppress(Unreachable):  # the name may be known by the time a message is sent
            resolve(target, allowed)
        hook, salt = Hook(str(uuid.uuid4()), url, subscribed, self._service.clock(), None), secrets.token_hex(16)
        with self._database.transaction() as database:
            if len(self.list_all()) >= _MAX_HOOKS:
                raise InvalidInput(f"there are {_MAX_HOOKS} webhooks already, which is the maximum: delete one first")
            database.execute(
                "INSERT INTO hooks (id, url, events, secret, made) VALUES (?, ?, ?, ?, ?)",
                hook.id, url, " ".join(subscribed), salt, format_time(hook.made),
            )  # fmt: skip
            host = urlsplit(url).hostname or ""  # the rest of a URL may contain a secret
            self._service.audit.record("webhook.created", actor=actor, subject=hook.id, host=host, events=subscribed)
        return hook, "whsec_" + base64.b64encode(self._derive_secret(salt)).decode()

    def list_all(self) -> list[Hook]:
        """Return all webhooks, the oldest first."""
        return [_read_hook(row) for row in self._database.fetch_all("SELECT * FROM hooks ORDER BY made, id")]

    def get(self, id_: str) -> Hook:
        """Return a webhook; raise LookupError if it does not exist."""
        row = self._database.fetch_one("SELECT * FROM hooks WHERE id = ?", id_)
        if row is None:
            raise LookupError(id_)
        return _read_hook(row)

    def remove(self, id_: str, actor: str = "") -> bool:
        """Remove a webhook and its waiting messages; return whether it existed."""
        with self._database.transaction() as database:
            self._service.deliveries.cancel_waiting(id_)
            existed = database.execute("DELETE FROM hooks WHERE id = ?", id_) > 0
            if existed:
                self._service.audit.record("webhook.removed", actor=actor, subject=id_)
            return existed

    def disable(self, hook: str) -> None:
        """Stop sending to a webhook: its receiver is gone."""
        with self._database.transaction() as database:
            database.execute("UPDATE hooks SET off = ? WHERE id = ?", format_time(self._service.clock()), hook)
            self._service.deliveries.cancel_waiting(hook)

    def on_event(self, event: "Event") -> None:
        """Queue messages about an event of a request."""
        self._send(event.name, f"request.{event.name}", lambda: self._service.view(event.job))

    def announce_matter(self, entry: MatterLogEntry, matter: Matter) -> None:
        """Queue messages about a change of a matter."""
        name = f"matter.{entry.what}"
        now = self._service.clock()
        self._send(name, name, lambda: matter.view(now) | {"entry": entry.view()})

    def announce_failed_verification(self, data: dict[str, Any]) -> None:
        """Queue messages about a verification that failed."""
        self._send("verification.failed", "verification.failed", lambda: data)

    def announce_failed_renewal(self, data: dict[str, Any]) -> None:
        """Queue messages about a renewal that failed."""
        self._send("renewal.failed", "renewal.failed", lambda: data)

    def _send(self, event: str, type_: str, describe: Callable[[], dict[str, Any]]) -> None:
        """Queue a message to every webhook with this event; ``describe`` is called only if there is one."""
        receivers = [hook for hook in self.list_all() if hook.off is None and event in hook.events]
        if not receivers:
            return
        body = self._build_body(type_, describe())
        for hook in receivers:
            self._service.deliveries.add(hook.url, body, _message_headers(), hook=hook.id)

    def send_test(self, id_: str) -> Delivery:
        """Post a message of the type ``webhook.test`` to a webhook now, once, and return the outcome."""
        hook = self._get_enabled(id_)
        body = self._build_body("webhook.test", {"webhook": hook.id})
        return self._service.deliveries.try_once(hook.url, body, _message_headers(), hook=hook.id)

    def _build_body(self, type_: str, data: dict[str, Any]) -> bytes:
        payload = {"type": type_, "timestamp": format_time(self._service.clock()), "data": data}
        return json.dumps(payload, separators=(",", ":")).encode()

    def resend(self, id_: str, delivery: int) -> Delivery:
        """Send a message of a webhook again."""
        if self._service.deliveries.get(delivery).hook != id_:
            raise LookupError(delivery)
        return self._service.deliveries.resend(delivery, self._get_enabled(id_).url)

    def _get_enabled(self, id_: str) -> Hook:
        hook = self.get(id_)
        if hook.off is not None:
            raise InvalidInput("this webhook is disabled because its receiver answered 410: create a new one")
        return hook

    def sign(self, hook: str, message: str, body: bytes) -> dict[str, str] | None:
        """Return the headers of a try: its time, and signatures with the webhook's secret and the service's key."""
        row = self._database.fetch_one("SELECT * FROM hooks WHERE id = ? AND off IS NULL", hook)
        if row is None:
            return None
        time = str(int(self._service.clock().timestamp()))
        text = f"{message}.{time}.".encode() + body
        signatures = {
            "v1": hmac.digest(self._derive_secret(row["secret"]), text, "sha256"),
            "v1a": self._signing_key().sign(text),
        }
        encoded = (f"{version},{base64.b64encode(signature).decode()}" for version, signature in signatures.items())
        return {"webhook-timestamp": time, "webhook-signature": " ".join(encoded)}

    def public_key(self) -> str:
        """Return the public key that checks v1a signatures."""
        return "whpk_" + base64.b64encode(self._signing_key().public_key().public_bytes_raw()).decode()

    def _signing_key(self) -> "Ed25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._derive("key"))

    def _derive_secret(self, salt: str) -> bytes:
        return self._derive(f"secret {salt}")

    def _derive(self, purpose: str) -> bytes:
        """Return 32 bytes that are derived from this vault's key."""
        return self._service.vault.derive(f"webhooks {purpose}")


def _message_headers() -> dict[str, str]:
    return {"content-type": "application/json", "webhook-id": f"msg_{uuid.uuid4().hex}"}


def _read_hook(row: "Row") -> Hook:
    return Hook(row["id"], row["url"], tuple(row["events"].split()), parse_time(row["made"]), parse_time(row["off"]))
