"""Sealing: ids that wait for a request, as keyed hashes and ciphertexts that nobody reads without the vault's key.

A request that waits cannot keep hashes alone: the receipt of a person commits to the id itself.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidFile
from .disk.people import as_bytes, hashed

_PURPOSE = b"expunge sealed ids"
_NONCE_BYTES = 12
_HASH_BYTES = 16


@dataclass(frozen=True)
class Sealed:
    """An id that only its vault can read: its keyed hash, as in the vault's index, and the id, encrypted."""

    hash: bytes  # 16 bytes
    text: bytes

    def to_bytes(self) -> bytes:
        """Both in one piece."""
        return self.hash + self.text

    @classmethod
    def of_bytes(cls, data: bytes) -> "Sealed":
        """The inverse of `to_bytes`."""
        return cls(data[:_HASH_BYTES], data[_HASH_BYTES:])


class Sealer:
    """Seals and opens the ids of one vault; the same id is sealed alike, so that it can be recognised."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        self._key = key
        self._cipher = ChaCha20Poly1305(hmac.digest(key, _PURPOSE, "sha256"))

    def seal(self, ids: Sequence[bytes]) -> list[Sealed]:
        """Ids in their one form, sealed. The hash is the nonce: two ids have two of them."""
        hashes = as_bytes(hashed(self._key, ids))
        return [
            Sealed(mine, self._cipher.encrypt(mine[:_NONCE_BYTES], one, mine))
            for mine, one in zip(hashes, ids, strict=True)
        ]

    def open(self, sealed: Sequence[Sealed]) -> list[str]:
        """The ids again."""
        from cryptography.exceptions import InvalidTag

        try:
            return [self._cipher.decrypt(one.hash[:_NONCE_BYTES], one.text, one.hash).decode() for one in sealed]
        except (InvalidTag, ValueError):
            raise InvalidFile("sealed ids are damaged, or of another vault") from None
