"""Merkle trees as in RFC 6962: one root stands for a whole list, and a short path shows that an entry is in it.

An entry is hashed after a zero byte, a pair of hashes after a one, so that neither can pass for the other. A list is
split at the largest power of two below its length. That is the same as pairing hashes from the left, level by level,
and letting an odd one out pass up as it is, which is how it is computed here.
"""

import hashlib
from collections.abc import Sequence

HASH_BYTES = 32


class Tree:
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


def root(leaves: Sequence[bytes]) -> bytes:
    """The root of a list."""
    return Tree(leaves).root


def path(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """The path of one leaf of a list; a `Tree` gives many at the price of one."""
    return Tree(leaves).path(index)


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
