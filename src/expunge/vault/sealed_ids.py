"""Sealed ids: ids that wait for a request, as keyed hashes and ciphertexts that only the vault's key can open.

Hashes alone are not enough for a waiting request: the receipt of a person commits to the id itself.
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
    """An id that only its vault can read: its keyed hash, as in the vault's index, and the encrypted id."""

    hash: bytes  # 16 bytes
    text: bytes

    def to_bytes(self) -> bytes:
        """Return the hash and the ciphertext, concatenated."""
        return self.hash + self.text

    @classmethod
    def from_bytes(cls, data: bytes) -> "SealedId":
        """Invert `to_bytes`."""
        return cls(data[:_HASH_BYTES], data[_HASH_BYTES:])


class IdSealer:
    """Encryption of the ids of one vault; the same id always gives the same result, so that it can be recognised."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        self._key = key
        self._cipher = ChaCha20Poly1305(hmac.digest(key, _KEY_PURPOSE, "sha256"))

    def seal(self, ids: Sequence[bytes]) -> list[SealedId]:
        """Seal ids in their canonical form. The hash is the nonce, so two ids never share one."""
        hashes = hashes_to_bytes(hash_ids(self._key, ids))
        return [
            SealedId(id_hash, self._cipher.encrypt(id_hash[:_NONCE_BYTES], person, id_hash))
            for id_hash, person in zip(hashes, ids, strict=True)
        ]

    def unseal(self, sealed: Sequence[SealedId]) -> list[str]:
        """Return the ids."""
        from cryptography.exceptions import InvalidTag

        try:
            return [self._cipher.decrypt(item.hash[:_NONCE_BYTES], item.text, item.hash).decode() for item in sealed]
        except (InvalidTag, ValueError):
            raise InvalidFile("sealed ids are damaged, or of another vault") from None
