"""Sealing: ids that wait for a request, as keyed hashes and ciphertexts that nobody reads without the vault's key.

A request that waits cannot keep hashes alone: the receipt of a person commits to the id itself.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidFile
from .disk.people import hash_ids, hashes_to_bytes

_KEY_PURPOSE = b"expunge sealed ids"
_NONCE_BYTES = 12
_HASH_BYTES = 16


@dataclass(frozen=True)
class SealedId:
    """An id that only its vault can read: its keyed hash, as in the vault's index, and the id, encrypted."""

    hash: bytes  # 16 bytes
    text: bytes

    def to_bytes(self) -> bytes:
        """Both in one piece."""
        return self.hash + self.text

    @classmethod
    def from_bytes(cls, data: bytes) -> "SealedId":
        """The inverse of `to_bytes`."""
        return cls(data[:_HASH_BYTES], data[_HASH_BYTES:])


class IdSealer:
    """Seals and opens the ids of one vault; the same id is sealed alike, so that it can be recognised."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        self._key = key
        self._cipher = ChaCha20Poly1305(hmac.digest(key, _KEY_PURPOSE, "sha256"))

    def seal(self, ids: Sequence[bytes]) -> list[SealedId]:
        """Ids in their one form, sealed. The hash is the nonce: two ids have two of them."""
        hashes = hashes_to_bytes(hash_ids(self._key, ids))
        return [
            SealedId(mine, self._cipher.encrypt(mine[:_NONCE_BYTES], one, mine))
            for mine, one in zip(hashes, ids, strict=True)
        ]

    def unseal(self, sealed: Sequence[SealedId]) -> list[str]:
        """The ids again."""
        from cryptography.exceptions import InvalidTag

        try:
            return [self._cipher.decrypt(one.hash[:_NONCE_BYTES], one.text, one.hash).decode() for one in sealed]
        except (InvalidTag, ValueError):
            raise InvalidFile("sealed ids are damaged, or of another vault") from None
