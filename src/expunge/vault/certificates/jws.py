"""Certificates: what a vault did, signed, so that anybody can check it offline with the public key.

A certificate is a compact JWS (RFC 7515) with an Ed25519 signature (EdDSA, RFC 8037): every language has a library for
it. Ed25519 is deterministic, so signing the same payload again after a crash gives the same bytes.
"""

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ...errors import InvalidCertificate, InvalidFile, InvalidSetting
from ...saving import files

TYPE = "expunge-certificate+jws"
_MOST_BYTES = 2**20
_DEEPEST = 20  # levels of a payload; ours have two
_END = b"-----END PUBLIC KEY-----"


@dataclass(frozen=True)
class PublicKey:
    """A key that certificates are checked with."""

    key: Ed25519PublicKey

    @property
    def name(self) -> str:
        """The key's thumbprint (RFC 7638), which a certificate names as ``kid``."""
        raw = self.key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        jwk = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": _b64(raw)}, separators=(",", ":"), sort_keys=True)
        return _b64(hashlib.sha256(jwk.encode()).digest())

    def pem(self) -> bytes:
        """The key as text."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_bytes(serialization.Encoding.PEM, form)


@dataclass(frozen=True)
class SigningKey:
    """A key that certificates are signed with."""

    key: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> "SigningKey":
        """A new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> "SigningKey":
        """Read a private key: PEM, PKCS #8, Ed25519, no password."""
        try:
            key = serialization.load_pem_private_key(files.read(path, most=_MOST_BYTES), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InvalidFile(f"{path} is not a private key in PEM without a password") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidFile(f"{path} is not an Ed25519 key; make one with: openssl genpkey -algorithm ed25519")
        return cls(key)

    @property
    def public(self) -> PublicKey:
        """The other half."""
        return PublicKey(self.key.public_key())

    def pem(self) -> bytes:
        """The key as text."""
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, form, plain)

    def sign(self, payload: str) -> str:
        """The certificate with this payload."""
        headers = {"kid": self.public.name, "typ": TYPE}
        return jwt.PyJWS().encode(payload.encode(), self.key, algorithm="EdDSA", headers=headers)


def load_public(path: Path) -> list[PublicKey]:
    """Read public keys, one or more PEM blocks."""
    data = files.read(path, most=_MOST_BYTES)
    keys = []
    for block in data.split(_END)[:-1]:
        try:
            key = serialization.load_pem_public_key(block.lstrip() + _END + b"\n")
        except (ValueError, UnsupportedAlgorithm):
            raise InvalidFile(f"{path} is not a public key in PEM") from None
        if not isinstance(key, Ed25519PublicKey):
            raise InvalidFile(f"{path} is not an Ed25519 key")
        keys.append(PublicKey(key))
    if not keys:
        raise InvalidFile(f"{path} is not a public key in PEM")
    return keys


def read(path: Path) -> str:
    """A certificate's text."""
    try:
        return files.read(path, most=_MOST_BYTES).decode("ascii").strip()
    except UnicodeDecodeError:
        raise InvalidCertificate(f"{path} is not a certificate") from None


def public_key_beside(path: Path) -> Path:
    """Where a vault keeps the public key of a certificate that still lies in its folder."""
    folder = path.absolute().parent
    if folder.suffix != ".certificates" or not folder.with_suffix(".pub").exists():
        raise InvalidSetting("name the public key to check with: --public-key FILE")
    return folder.with_suffix(".pub")


def unchecked(certificate: str) -> dict[str, Any]:
    """What a certificate says, whoever signed it."""
    try:
        body = json.loads(jwt.PyJWS().decode_complete(certificate, options={"verify_signature": False})["payload"])
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise InvalidCertificate("this is not a certificate: not a compact JWS with a JSON payload") from None
    if not isinstance(body, dict) or not _plain(body, _DEEPEST):
        raise InvalidCertificate("this is not a certificate: its payload is not a plain JSON object")
    return body


def checked(certificate: str, keys: Sequence[PublicKey]) -> dict[str, Any]:
    """What a certificate says, if one of these keys signed it."""
    payload = unchecked(certificate)
    for key in keys:
        try:
            jwt.PyJWS().decode(certificate, key.key, algorithms=["EdDSA"])
        except jwt.PyJWTError:
            continue
        if jwt.get_unverified_header(certificate).get("typ") != TYPE:
            raise InvalidCertificate("this was signed with the key, but is not a certificate of a vault")
        return payload
    raise InvalidCertificate("the signature is not of this key: the certificate was changed, or another key signed it")


def _plain(value: object, depth: int) -> bool:
    """Whether a value has no more levels than these, and all its numbers are finite: Python reads what JSON has not."""
    if isinstance(value, float):
        return math.isfinite(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_plain(one, depth - 1) for one in inner)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
