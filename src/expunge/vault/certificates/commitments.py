"""Commitments to people: a certificate can be shown to be about a person, by who knows the id and has the receipt.

A commitment is SHA-256(salt || vault || request || id). The salt is derived from a key of the vault, so it need not be
kept: a receipt can be made again for whoever names the id, and without that key nobody can test guesses.
"""

import hashlib
import hmac
import uuid
from collections.abc import Iterable

SALT_BYTES = 32
_PURPOSE = b"expunge receipts"
_BLOCK = 64  # bytes of a block of SHA-256
_PADS = tuple(bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))  # of HMAC


class Commitments:
    """The salts and commitments of one request.

    Parameters
    ----------
    key : bytes
        The key of the vault's identity; the salts are made with another that is derived from it.
    vault : str
        The vault's name, a UUID.
    request : int
        The number of the request.
    """

    def __init__(self, key: bytes, vault: str, request: int) -> None:
        self.vault, self.request = vault, request
        self._key = hmac.digest(key, _PURPOSE, "sha256")
        self._number, self._about = request.to_bytes(8, "big"), _about(vault, request)
        self._inner, self._outer = (self._key.ljust(_BLOCK, b"\0").translate(pad) for pad in _PADS)

    def salt(self, person: bytes) -> bytes:
        """The salt of a person's commitment, from the id in its one form (UTF-8, NFC)."""
        return hmac.digest(self._key, self._number + person, "sha256")

    def of(self, ids: Iterable[bytes]) -> list[bytes]:
        """The commitments to people, in their order."""
        sha256, inner, outer, about = hashlib.sha256, self._inner + self._number, self._outer, self._about
        # The salt as RFC 2104 defines it: `hmac.digest` takes twice as long, and there may be millions of people.
        return [
            sha256(sha256(outer + sha256(inner + person).digest()).digest() + about + person).digest() for person in ids
        ]


def commitment(salt: bytes, vault: str, request: int, person: bytes) -> bytes:
    """The commitment to a person in a request."""
    return hashlib.sha256(salt + _about(vault, request) + person).digest()


def _about(vault: str, request: int) -> bytes:
    return uuid.UUID(vault).bytes + request.to_bytes(8, "big")
