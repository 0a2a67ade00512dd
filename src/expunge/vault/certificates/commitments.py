"""Commitments to people: with an id and its receipt, one can prove that a certificate is about that person.

A commitment is SHA-256(salt || vault || request || id). The salt is derived from a key of the vault, so it need not be
stored: a receipt can be issued again for a given id, and without the key nobody can test guesses.
"""

import hashlib
import hmac
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ...errors import InvalidFile
from ...saving import files
from ...saving.files import VaultDir, VaultFile
from ...saving.ownership import SiblingPath

SALT_BYTES = 32
_PURPOSE = b"expunge receipts"
_SHA256_BLOCK_BYTES = 64  # block size of SHA-256
_HMAC_PADS = tuple(
    bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C)
)  # translation tables for the inner and outer key (RFC 2104)


class Commitments:
    """The salts and commitments of one request.

    Parameters
    ----------
    key : bytes
        The key of the vault's identity; the salts use a key that is derived from it.
    vault : str
        The vault's name, a UUID.
    request : int
        The number of the request.
    """

    def __init__(self, key: bytes, vault: str, request: int) -> None:
        self.vault, self.request = vault, request
        self._key = hmac.digest(key, _PURPOSE, "sha256")
        self._number, self._context = request.to_bytes(8, "big"), _context_bytes(vault, request)
        self._inner, self._outer = (self._key.ljust(_SHA256_BLOCK_BYTES, b"\0").translate(pad) for pad in _HMAC_PADS)

    def salt(self, person: bytes) -> bytes:
        """Return the salt of a person's commitment; the id is in its canonical form (UTF-8, NFC)."""
        return hmac.digest(self._key, self._number + person, "sha256")

    def compute(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the commitments to people, in their order."""
        sha256, inner, outer, context = hashlib.sha256, self._inner + self._number, self._outer, self._context
        # HMAC written out (RFC 2104): `hmac.digest` takes twice as long, and there may be millions of people.
        return [
            sha256(sha256(outer + sha256(inner + person).digest()).digest() + context + person).digest()
            for person in ids
        ]


def person_commitment(salt: bytes, vault: str, request: int, person: bytes) -> bytes:
    """Return the commitment to a person in a request."""
    return hashlib.sha256(salt + _context_bytes(vault, request) + person).digest()


def _context_bytes(vault: str, request: int) -> bytes:
    return uuid.UUID(vault).bytes + request.to_bytes(8, "big")


HASH_BYTES = 32


class MerkleTree:
    """A Merkle tree as in RFC 6962: one root stands for a list, and a short path proves that an entry is in it.

    A leaf is hashed after a zero byte, a pair of hashes after a one byte, so that neither can pass for the other. The
    RFC splits a list at the largest power of two below its length. That equals pairing hashes from the left, level by
    level, and passing an odd last one up unchanged, which is how it is computed here. All hashes are kept, about two
    per leaf, so that a path needs no hashing.
    """

    def __init__(self, leaves: Sequence[bytes]) -> None:
        sha256 = hashlib.sha256
        self._levels = [[sha256(b"\0" + leaf).digest() for leaf in leaves]]
        while len(below := self._levels[-1]) > 1:
            pairs = zip(below[::2], below[1::2], strict=False)
            above = [sha256(b"\1" + left + right).digest() for left, right in pairs]
            self._levels.append([*above, below[-1]] if len(below) % 2 else above)

    @property
    def size(self) -> int:
        """The number of leaves."""
        return len(self._levels[0])

    @property
    def root(self) -> bytes:
        """The hash of the whole list."""
        return self._levels[-1][0] if self.size else hashlib.sha256().digest()

    def path(self, index: int) -> tuple[bytes, ...]:
        """Return the hashes that lead from a leaf to the root, the lowest first."""
        if not 0 <= index < self.size:
            raise IndexError(f"leaf {index:,} is out of range: there are {self.size:,}")
        siblings = ((level, (index >> height) ^ 1) for height, level in enumerate(self._levels[:-1]))
        return tuple(level[place] for level, place in siblings if place < len(level))


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of a list of leaves."""
    return MerkleTree(leaves).root


def root_from_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Return the root that this path implies for a list of ``size`` leaves (RFC 9162, 2.1.3.2).

    A path whose length does not fit the size and the index is a ValueError.
    """
    if not 0 <= index < size:
        raise ValueError(f"leaf {index:,} is out of range: there are {size:,}")
    if any(len(sibling) != HASH_BYTES for sibling in path):
        raise ValueError(f"a hash on the path must have {HASH_BYTES} bytes")
    place, last, root = index, size - 1, hashlib.sha256(b"\0" + leaf).digest()
    for sibling in path:
        if last == 0:
            raise ValueError("the path is too long")
        if place & 1 or place == last:
            root = hashlib.sha256(b"\1" + sibling + root).digest()
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            root = hashlib.sha256(b"\1" + root + sibling).digest()
        place, last = place >> 1, last >> 1
    if last:
        raise ValueError("the path is too short")
    return root


class RequestLeaves:
    """The commitments to everybody in a request, in files beside the ledger: lost receipts can be issued again.

    The root of their Merkle tree is in the ledger's record and in the file's name, so a file needs no checksum; without
    the vault's key it reveals nothing. A request about one person needs no file: its only leaf follows from the id. A
    request never replaces or removes another request's file: an older copy of folder and ledger, put back, must not
    destroy what belongs to the newer ones.
    """

    def __init__(self, folder: SiblingPath) -> None:
        self._folder = VaultDir(folder)
        self._pending: VaultFile | None = None  # of a request that is not accepted yet

    def write(self, request: int, root: str, leaves: Sequence[bytes]) -> None:
        """Write the leaves of a request, and sync them."""
        if len(leaves) < 2:
            return
        self._folder.make()
        path = self._path(request, root)
        if path.exists():  # of a request that was not accepted, or after an older pair was put back
            files.put(path, b"".join(leaves))
        else:
            self._pending = path
            files.create_named(path, b"".join(leaves))

    def keep(self) -> None:
        """Keep the file that was written: its request is accepted."""
        self._pending = None

    def discard(self) -> None:
        """Wipe the file of a request that was not accepted, also if it is half written."""
        path, self._pending = self._pending, None
        if path is not None:
            with suppress(InvalidFile, PermissionError, NotADirectoryError):  # a foreign folder has no file of ours
                for file in filter(files.is_draft, (path, files.draft_path(path))):
                    files.wipe(file)
                self._folder.sync()

    def read(self, request: int, root: str) -> list[bytes]:
        """Return the leaves of a request about several people."""
        path = self._path(request, root)
        try:
            data = files.read(path)
        except FileNotFoundError:
            raise InvalidFile(f"{path} is missing: without it no receipt of request {request} can be issued") from None
        return [data[k : k + HASH_BYTES] for k in range(0, len(data), HASH_BYTES)]

    def _path(self, request: int, root: str) -> VaultFile:
        return self._folder / f"{request:06}-{root[:16]}"
