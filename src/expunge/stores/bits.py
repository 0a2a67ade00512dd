"""Bits: which slots have a row, eight to a byte; used like an array of booleans, with an eighth of the memory."""

import hashlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]

_PIECE = 2**16  # slots that are hashed at once


class Bits:
    """So many bits, packed as `np.packbits` does; the spare ones of the last byte are zero."""

    def __init__(self, packed: Bytes, size: int) -> None:
        self.packed, self.size = packed, size
        self._hashes: dict[int, bytes] = {}  # of pieces that have not changed since

    @classmethod
    def zeros(cls, size: int) -> "Bits":
        """Bits of which none is set."""
        return cls(np.zeros(-(-size // 8), dtype=np.uint8), size)

    @classmethod
    def ones(cls, size: int) -> "Bits":
        """Bits all of which are set."""
        made = cls(np.full(-(-size // 8), 255, dtype=np.uint8), size)
        if size % 8:
            made.packed[-1] = 0xFF00 >> size % 8 & 0xFF
        return made

    def __len__(self) -> int:
        return self.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of them as booleans."""
        return self[:].astype(dtype or np.bool_, copy=False)

    def __getitem__(self, at: Any) -> Bools:
        if isinstance(at, slice):
            start, stop, step = at.indices(self.size)
            bits = np.unpackbits(self.packed[start // 8 : -(-stop // 8)], count=max(0, stop - start // 8 * 8))
            return bits[start % 8 :: step].view(np.bool_)
        at = np.asarray(at)
        found: Bools = (self.packed[at >> 3] & _bit(at)) != 0
        return found

    def __setitem__(self, at: NDArray[np.int64], value: bool) -> None:
        """Set or clear these bits."""
        byte, bit = np.asarray(at) >> 3, _bit(np.asarray(at))
        if value:
            np.bitwise_or.at(self.packed, byte, bit)
        else:
            np.bitwise_and.at(self.packed, byte, ~bit)
        for piece in np.flatnonzero(np.bincount(np.atleast_1d(at) // _PIECE)).tolist():
            self._hashes.pop(piece, None)

    def copy(self) -> "Bits":
        """Others that are equal."""
        made = Bits(self.packed.copy(), self.size)
        made._hashes = self._hashes.copy()
        return made

    def grow(self, size: int) -> "Bits":
        """The same bits, and more that are not set."""
        made = Bits.zeros(size)
        made.packed[: len(self.packed)] = self.packed
        made._hashes = {k: known for k, known in self._hashes.items() if (k + 1) * _PIECE <= self.size}
        return made

    def count(self) -> int:
        """How many are set."""
        return int(np.bitwise_count(self.packed).sum(dtype=np.int64))

    def hashes(self) -> list[bytes]:
        """A hash of each piece of 65,536 bits."""
        for k in range(-(-self.size // _PIECE)):
            if k not in self._hashes:
                self._hashes[k] = _hash(self.packed[k * _PIECE // 8 : (k + 1) * _PIECE // 8])
        return [self._hashes[k] for k in range(-(-self.size // _PIECE))]


def _bit(at: NDArray[Any]) -> Bytes:
    """The bits that have these places in their bytes."""
    bit: Bytes = np.uint8(128) >> (at & 7).astype(np.uint8)
    return bit


Live: TypeAlias = Any  # which slots have a row: an array of booleans, or Bits, which is used like one


def count_set(live: Live) -> int:
    """How many slots have a row."""
    return live.count() if isinstance(live, Bits) else int(np.count_nonzero(live))


def hash_slots(live: Live) -> bytes:
    """SHA-256 over the hashes of pieces of 65,536 slots; empty slots at the end do not count."""
    hashes = (live if isinstance(live, Bits) else Bits(np.packbits(live), len(live))).hashes()
    while hashes and hashes[-1] == _EMPTY_HASH:
        hashes.pop()
    return hashlib.sha256(b"".join(hashes)).digest()


def _hash(packed: Bytes) -> bytes:
    """The hash of a piece, without the empty bytes at its end."""
    return hashlib.sha256(packed.tobytes().rstrip(b"\0")).digest()


_EMPTY_HASH = hashlib.sha256(b"").digest()
