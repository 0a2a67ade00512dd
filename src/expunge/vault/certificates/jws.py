"""Signed statements: certificates and others, which anyone can check offline with the public key.

A statement is a compact JWS (RFC 7515) with an Ed25519 signature (EdDSA, RFC 8037), which libraries in every language
read. Ed25519 is deterministic, so signing the same payload again after a crash gives the same bytes.
"""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ...errors import InvalidCertificate, InvalidFile, InvalidSetting
from ...saving import files
from . import encodings
from .encodings import is_plain, parse_plain_json
from .keys import KEY_TYPE, thumbprint

CERTIFICATE_TYPE, HEAD_TYPE, REPORT_TYPE = "expunge-certificate+jws", "expunge-head+jws", "expunge-verification+jws"
UNKNOWN_TYPE = "expunge-unknown+jws"  # states that an id is not in the vault
_TYPE_NAMES = {
    CERTIFICATE_TYPE: "a certificate",
    HEAD_TYPE: "a head",
    KEY_TYPE: "a change of the key",
    REPORT_TYPE: "a report",
}
_MAX_BYTES = 2**20
_MAX_DEPTH = 20  # levels of a payload; ours have two
_PEM = re.compile(b"-----BEGIN PUBLIC KEY-----(.*?)-----END PUBLIC KEY-----", re.DOTALL)


@dataclass(frozen=True)
class PublicKey:
    """A key that verifies statements."""

    key: Ed25519PublicKey

    @classmethod
    def from_x(cls, x: str) -> "PublicKey":
        """Return the key with this ``x`` of a JWK."""
        try:
            return cls(Ed25519PublicKey.from_public_bytes(encodings.decode_base64url(x)))
        except ValueError:
            raise InvalidFile("the ledger names an invalid public key") from None

    @cached_property
    def x(self) -> str:
        """The ``x`` of its JWK (RFC 8037)."""
        return encodings.encode_base64url(
            self.key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        )

    @cached_property
    def thumbprint(self) -> str:
        """The key's thumbprint (RFC 7638), the ``kid`` of a statement."""
        return thumbprint(self.x)

    def pem(self) -> bytes:
        """Return the key in PEM."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_bytes(serialization.Encoding.PEM, form)


@dataclass(frozen=True)
class SigningKey:
    """A key that signs statements."""

    key: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> "SigningKey":
        """Generate a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> "SigningKey":
        """Read a private key: PEM, PKCS #8, Ed25519, no password."""
        data = files.read(path, max_bytes=_MAX_BYTES)
        try:
            key = _parse_signing_key(data)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InvalidFile(f"{path} is not a private key in PEM without a password") from None
        if key is None:
            raise InvalidFile(f"{path} is not an Ed25519 key; make one with: openssl genpkey -algorithm ed25519")
        return key

    @cached_property
    def public(self) -> PublicKey:
        """The public key."""
        return PublicKey(self.key.public_key())

    def pem(self) -> bytes:
        """Return the key in PEM."""
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, form, plain)

    def sign(self, payload: str, typ: str = CERTIFICATE_TYPE) -> str:
        """Return the signed statement with this payload; a certificate by default."""
        signed = signing_input(self.public, payload, typ)
        return compact_jws(signed, self.key.sign(signed))


@lru_cache(maxsize=1)  # parsing is slow, and the key is usually the same; the file is read every time
def _parse_signing_key(pem: bytes) -> SigningKey | None:
    """Return the Ed25519 key in this PEM, or None for another kind of key."""
    key = serialization.load_pem_private_key(pem, password=None)
    return SigningKey(key) if isinstance(key, Ed25519PrivateKey) else None


def signing_input(public: PublicKey, payload: str, typ: str) -> bytes:
    """Return the bytes to sign (RFC 7515, section 5.1): header and payload in base64url, joined by a dot."""
    header = json.dumps({"alg": "EdDSA", "kid": public.thumbprint, "typ": typ}, separators=(",", ":"))
    return f"{encodings.encode_base64url(header.encode())}.{encodings.encode_base64url(payload.encode())}".encode()


def compact_jws(signed: bytes, signature: bytes) -> str:
    """Return a compact JWS from the signed bytes and their signature."""
    return f"{signed.decode()}.{encodings.encode_base64url(signature)}"


def load_public_keys(path: Path) -> list[PublicKey]:
    """Read the public keys in a file."""
    return parse_public_keys(files.read(path, max_bytes=_MAX_BYTES), str(path))


def parse_public_keys(data: bytes, name: str) -> list[PublicKey]:
    """Parse public keys in one or more PEM blocks, ignoring text between them. Errors name the source ``name``."""
    keys = []
    for body in _PEM.findall(data):
        try:
            der = base64.b64decode(text := b"".join(body.split()), validate=True)
            key = serialization.load_der_public_key(der)
        except (ValueError, UnsupportedAlgorithm):
            raise InvalidFile(f"{name} is not a public key in PEM") from None
        if not isinstance(key, Ed25519PublicKey):
            raise InvalidFile(f"{name} is not an Ed25519 key")
        public = PublicKey(key)
        if b"".join(public.pem().splitlines()[1:-1]) != text:  # another encoding of the same key
            raise InvalidFile(f"{name} is not a public key in PEM")
        keys.append(public)
    if not keys:
        raise InvalidFile(f"{name} is not a public key in PEM")
    return keys


def read_statement(path: files.Location) -> str:
    """Read a statement from a file."""
    try:
        return files.read(path, max_bytes=_MAX_BYTES).decode("ascii").strip()
    except UnicodeDecodeError:
        raise InvalidCertificate(f"{path} is not a certificate") from None


def find_public_key_file(path: Path) -> Path:
    """Return the public key file for a certificate that is still in its vault's folder."""
    folder = path.absolute().parent
    if folder.suffix != ".certificates" or not folder.with_suffix(".pub").exists():
        raise InvalidSetting("name the public key to check with: --public-key FILE")
    return folder.with_suffix(".pub")


def unverified_header(certificate: str) -> dict[str, Any]:
    """Return the header of a statement without verifying it."""
    return _decode_objects(certificate)[0]


def unverified_payload(certificate: str) -> dict[str, Any]:
    """Return the payload of a statement without verifying it."""
    return _decode_objects(certificate)[1]


def statement_type(certificate: str) -> str:
    """Return the type that a statement claims, if it is one that users can check; otherwise a certificate."""
    typ = unverified_header(certificate).get("typ")
    return typ if isinstance(typ, str) and typ in _TYPE_NAMES else CERTIFICATE_TYPE


def verify_statement(
    certificate: str, keys: Sequence[PublicKey], *, types: Sequence[str] = (CERTIFICATE_TYPE,)
) -> dict[str, Any]:
    """Return the payload of a statement if one of these keys signed it as one of these types; raise otherwise."""
    head, payload = _decode_objects(certificate)
    for key in keys:
        try:
            jwt.PyJWS().decode(certificate, key.key, algorithms=["EdDSA"])
        except jwt.PyJWTError:
            continue
        if head not in [{"alg": "EdDSA", "kid": key.thumbprint, "typ": typ} for typ in types]:
            expected = _TYPE_NAMES.get(types[0], "the expected statement")
            raise InvalidCertificate(f"this was signed with the key, but is not {expected} of a vault")
        return payload
    raise InvalidCertificate(
        "the signature was not made with this key: the certificate was changed, or another key signed it"
    )


def select_pinned_key(keys: Sequence[PublicKey], thumbprint: str) -> list[PublicKey]:
    """Return the key with this thumbprint, so that the file with the keys need not be trusted."""
    pinned = [key for key in keys if key.thumbprint == thumbprint]
    if not pinned:
        raise InvalidCertificate("none of the public keys has this thumbprint: do not trust this file")
    return pinned


def _decode_objects(certificate: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the payload of a compact JWS, both JSON objects."""
    try:
        parts = [encodings.decode_base64url(part) for part in certificate.split(".")]
        head, payload = (parse_plain_json(part.decode()) for part in parts[:2])
    except (ValueError, RecursionError):
        raise InvalidCertificate("this is not a certificate: not a compact JWS with a JSON payload") from None
    plain = all(isinstance(part, dict) and is_plain(part, _MAX_DEPTH) for part in (head, payload))
    if len(parts) != 3 or not plain:
        raise InvalidCertificate("this is not a certificate: its header or payload is not a plain JSON object")
    return head, payload
