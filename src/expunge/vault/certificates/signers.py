"""Signers: who holds the key. A file of ours (`SigningKey`), a program, or whatever listens at a socket.

A key in an HSM, a KMS or an agent never comes here: the signer gets what is to be signed and gives the signature back.
It is checked with the public key before anything is done with it, so a signer can fail but not deceive.
"""

import base64
import re
from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidSignature

from ...errors import SigningFailed
from . import talking
from .jws import TYPE, PublicKey, compact, signing_input

_BYTES = 64  # an Ed25519 signature
_MOST_BYTES = 4096
_WAIT = 30.0


class Signer(Protocol):
    """Whoever signs for a vault."""

    @property
    def public(self) -> PublicKey:
        """The key that the signatures are checked with, which a statement names as ``kid``."""

    def sign(self, payload: str, typ: str = TYPE) -> str:
        """The statement with this payload, a compact JWS; or raises `SigningFailed`."""


@dataclass(frozen=True)
class OutsideSigner:
    """A program, or whatever listens at a Unix socket: it gets what is to be signed, and answers with the signature."""

    named: str  # a command, or unix: and the path of a socket
    public: PublicKey
    wait: float = _WAIT

    def sign(self, payload: str, typ: str = TYPE) -> str:
        signed = signing_input(self.public, payload, typ)
        who, said = talking.ask(self.named, signed, most=_MOST_BYTES, wait=self.wait, hidden=payload)
        return _statement(signed, said, self.public, who)


def signer_of(text: str, public: PublicKey) -> OutsideSigner:
    """The signer that ``--sign-with`` names: ``unix:/path`` is a socket, anything else a command."""
    talking.check_named(text)
    return OutsideSigner(text, public)


def _statement(signed: bytes, said: bytes, public: PublicKey, who: str) -> str:
    """The JWS, if the answer is a signature of this key."""
    signature = _signature(said)
    if signature is None:
        raise SigningFailed(
            f"{who} answered with {len(said)} bytes that are no Ed25519 signature; it must be 64 raw bytes, or one "
            "line of base64 or hex"
        )
    try:
        public.key.verify(signature, signed)
    except InvalidSignature:
        raise SigningFailed(
            f"{who} answered with a signature that is not of the key {public.name}: another key signed, or it signed "
            "something else (Ed25519 signs the input itself, not a hash of it)"
        ) from None
    return compact(signed, signature)


def _signature(said: bytes) -> bytes | None:
    """The signature in an answer: raw, or one line of base64url, base64 or hex."""
    if len(said) == _BYTES:
        return said
    line = said.strip(b" \t\r\n")
    if re.fullmatch(rb"[0-9a-fA-F]{128}", line):
        return bytes.fromhex(line.decode())
    if re.fullmatch(rb"[A-Za-z0-9+/_-]{86}(==)?", line):
        return base64.b64decode(line[:86].translate(bytes.maketrans(b"-_", b"+/")) + b"==")
    return None
