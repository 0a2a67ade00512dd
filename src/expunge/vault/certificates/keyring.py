"""The keyring: which keys sign for a vault, as its ledger tells. `spend.pub` is a copy for people.

A key is named by a record that the key itself signs, and the one before it, if it is still there. Keys are kept as the
``x`` of their JWK (RFC 8037), the newest first. No cryptography is imported here.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import InvalidFile, SigningFailed
from ..ledger.records import KEY, Position, Record, compose
from . import base64url
from .payload import statement

if TYPE_CHECKING:
    from .signers import Signer

KEY_TYPE = "expunge-key+jws"
_SPKI = bytes.fromhex("302a300506032b6570032100")  # what precedes an Ed25519 key in DER
_BYTES = 32


def known_keys(before: Sequence[str], records: Sequence[Record]) -> tuple[str, ...]:
    """The keys that a ledger knows after these records, the newest first."""
    return (*(str(record.body["x"]) for record in reversed(records) if record.kind == KEY), *before)


def thumbprint(x: str) -> str:
    """A key's thumbprint (RFC 7638), by which it is known."""
    jwk = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": x}, separators=(",", ":"), sort_keys=True)
    return base64url.encoded(hashlib.sha256(jwk.encode()).digest())


def public_pem(x: str) -> bytes:
    """A key as text (RFC 8410)."""
    try:
        raw = base64url.decoded(x)
    except ValueError:
        raw = b""
    if len(raw) != _BYTES:
        raise InvalidFile("the ledger names a public key that is none")
    text = base64.b64encode(_SPKI + raw).decode()
    return f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n".encode()


def key_record(
    vault: str, after: Position, time: str, key: "Signer", previous: str, before: "Signer | None", actor: str
) -> Record:
    """The record that a key signs from now on, with the word of the key before, if that is there, and who asked."""
    payload = key_payload(vault, after, time, key.public.x, previous)
    said = {"statement": key.sign(payload, KEY_TYPE), "endorsed": ""}
    if before is not None:
        with suppress(SigningFailed):  # a program may hold the new key already, and not the one before
            said["endorsed"] = before.sign(payload, KEY_TYPE)
    return compose(after, {"kind": KEY, "x": key.public.x, "time": time, "previous": previous, "actor": actor, **said})


def key_payload(vault: str, after: Position, time: str, x: str, previous: str) -> str:
    """What a key and the one before it sign: that it signs for this vault from this place of the ledger on."""
    fields: dict[str, Any] = {"kind": KEY, "key": thumbprint(x), "x": x, "replaces": previous, "previous": after.hash}
    return statement(vault, 0, time, fields)
