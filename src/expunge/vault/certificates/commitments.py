"""Commitments to people: a certificate can be shown to be about a person, by who knows the id and has the receipt.

A commitment is SHA-256(salt || vault || request || id). The salt is derived from a key of the vault, so it need not be
kept: a receipt can be made again for whoever names the id, and without that key nobody can test guesses.
"""

import hashlib
import hmac
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ...errors import InvalidFile
from ...saving import files
from ...saving.ownership import SiblingPath

SALT_BYTES = 32
_PURPOSE = b"expunge receipts"
_SHA256_BLOCK_BYTES = 64  # bytes of a block of SHA-256
_HMAC_PADS = tuple(bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))  # of HMAC


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
        self._number, self._context = request.to_bytes(8, "big"), _context_bytes(vault, request)
        self._inner, self._outer = (self._key.ljust(_SHA256_BLOCK_BYTES, b"\0").translate(pad) for pad in _HMAC_PADS)

    def salt(self, person: bytes) -> bytes:
        """The salt of a person's commitment, from the id in its one form (UTF-8, NFC)."""
        return hmac.digest(self._key, self._number + person, "sha256")

    def compute(self, ids: Iterable[bytes]) -> list[bytes]:
        """The commitments to people, in their order."""
        sha256, inner, outer, about = hashlib.sha256, self._inner + self._number, self._outer, self._context
        # The salt as RFC 2104 defines it: `hmac.digest` takes twice as long, and there may be millions of people.
        return [
            sha256(sha256(outer + sha256(inner + person).digest()).digest() + about + person).digest() for person in ids
        ]


def person_commitment(salt: bytes, vault: str, request: int, person: bytes) -> bytes:
    """The commitment to a person in a request."""
    return hashlib.sha256(salt + _context_bytes(vault, request) + person).digest()


def _context_bytes(vault: str, request: int) -> bytes:
    return uuid.UUID(vault).bytes + request.to_bytes(8, "big")


# MERGED merkle: Merkle trees as in RFC 6962: one root stands for a whole list, and a short path shows that an entry is in it.
# MERGED merkle:
# MERGED merkle: An entry is hashed after a zero byte, a pair of hashes after a one, so that neither can pass for the other. A list is
# MERGED merkle: split at the largest power of two below its length. That is the same as pairing hashes from the left, level by level,
# MERGED merkle: and letting an odd one out pass up as it is, which is how it is computed here.


HASH_BYTES = 32


class MerkleTree:
    """A tree with all its hashes: about two per leaf, so that a path takes no hashing."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        sha256 = hashlib.sha256
        self._levels = [[sha256(b"\0" + leaf).digest() for leaf in leaves]]
        while len(below := self._levels[-1]) > 1:
            pairs = zip(below[::2], below[1::2], strict=False)
            above = [sha256(b"\1" + left + right).digest() for left, right in pairs]
            self._levels.append([*above, below[-1]] if len(below) % 2 else above)

    @property
    def size(self) -> int:
        """How many leaves there are."""
        return len(self._levels[0])

    @property
    def root(self) -> bytes:
        """The hash of the whole list."""
        return self._levels[-1][0] if self.size else hashlib.sha256().digest()

    def path(self, index: int) -> tuple[bytes, ...]:
        """The hashes that lead from a leaf to the root, the lowest first."""
        if not 0 <= index < self.size:
            raise IndexError(f"there is no leaf {index:,} among {self.size:,}")
        beside = ((level, (index >> height) ^ 1) for height, level in enumerate(self._levels[:-1]))
        return tuple(level[place] for level, place in beside if place < len(level))


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """The root of a list."""
    return MerkleTree(leaves).root


def merkle_path(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """The path of one leaf of a list; a `Tree` gives many at the price of one."""
    return MerkleTree(leaves).path(index)


def root_from_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root of the list of ``size`` entries that has this one at ``index``, if the path is true (RFC 9162, 2.1.3.2).

    A path that cannot be of such a list, because of its length or its place, is a ValueError.
    """
    if not 0 <= index < size:
        raise ValueError(f"there is no leaf {index:,} among {size:,}")
    if any(len(one) != HASH_BYTES for one in path):
        raise ValueError(f"a hash on the path must have {HASH_BYTES} bytes")
    place, last, found = index, size - 1, hashlib.sha256(b"\0" + leaf).digest()
    for one in path:
        if last == 0:
            raise ValueError("the path is too long")
        if place & 1 or place == last:
            found = hashlib.sha256(b"\1" + one + found).digest()
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = hashlib.sha256(b"\1" + found + one).digest()
        place, last = place >> 1, last >> 1
    if last:
        raise ValueError("the path is too short")
    return found


# MERGED leaves: Leaves: the commitments to everybody in a request, beside the ledger, so that a lost receipt can be issued again.
# MERGED leaves:
# MERGED leaves: The root of the tree over them is in the ledger's record and in the file's name, so the file needs no checksum of its
# MERGED leaves: own; without the vault's key it tells nothing. A request of one person needs no file: whoever names the id has the only
# MERGED leaves: leaf. No file is ever replaced or removed by another request: an older copy of folder and ledger, put back, must not
# MERGED leaves: destroy what belongs to the newer ones.


_LEAF_BYTES = 32


class RequestLeaves:
    """The files of a vault, one per request of several people."""

    def __init__(self, folder: SiblingPath) -> None:
        self._folder = folder
        self._pending: Path | None = None  # for a request that is not accepted yet

    def write(self, request: int, root: str, leaves: Sequence[bytes]) -> None:
        """Keep the leaves of a request, synced."""
        if len(leaves) < 2:
            return
        files.make_folder(self._folder, for_group=self._folder.for_group)
        path = self._path(request, root)
        self._pending = None if path.exists() else path
        files.put(path, b"".join(leaves))

    def keep(self) -> None:
        """The request is accepted."""
        self._pending = None

    def discard(self) -> None:
        """Wipe what was made for a request that is not accepted, also what is half written."""
        path, self._pending = self._pending, None
        if path is not None:
            with suppress(InvalidFile, PermissionError, NotADirectoryError):  # in a folder that is not ours is nothing
                for one in filter(files.is_draft, (path, files.draft_path(path))):
                    files.wipe(one)
                files.sync_folder(self._folder)

    def read(self, request: int, root: str) -> list[bytes]:
        """The leaves of a request of several people."""
        path = self._path(request, root)
        try:
            data = files.read(path)
        except FileNotFoundError:
            raise InvalidFile(f"{path} is not there: without it no receipt of request {request} can be made") from None
        return [data[k : k + _LEAF_BYTES] for k in range(0, len(data), _LEAF_BYTES)]

    def _path(self, request: int, root: str) -> Path:
        return self._folder / f"{request:06}-{root[:16]}"
