"""Bits: an array of booleans with eight to a byte, for which slots have a row."""

import hashlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]

_PIECE = 2**16  # slots per hash


class Bits:
    """Bits packed as by `np.packbits`; the spare ones of the last byte are zero."""

    def __init__(self, packed: Bytes, size: int) -> None:
        self.packed, self.size = packed, size
        self._hashes: dict[int, bytes] = {}  # by piece, of pieces that have not changed since

    @classmethod
    def zeros(cls, size: int) -> "Bits":
        """Make bits that are all zero."""
        return cls(np.zeros(-(-size // 8), dtype=np.uint8), size)

    @classmethod
    def ones(cls, size: int) -> "Bits":
        """Make bits that are all set."""
        bits = cls(np.full(-(-size // 8), 255, dtype=np.uint8), size)
        if size % 8:
            bits.packed[-1] = 0xFF00 >> size % 8 & 0xFF
        return bits

    def __len__(self) -> int:
        return self.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all bits as booleans."""
        return self[:].astype(dtype or np.bool_, copy=False)

    def __getitem__(self, at: Any) -> Bools:
        if isinstance(at, slice):
            start, stop, step = at.indices(self.size)
            bits = np.unpackbits(self.packed[start // 8 : -(-stop // 8)], count=max(0, stop - start // 8 * 8))
            return bits[start % 8 :: step].view(np.bool_)
        at = np.asarray(at)
        values: Bools = (self.packed[at >> 3] & _bit_mask(at)) != 0
        return values

    def __setitem__(self, at: NDArray[np.int64], value: bool) -> None:
        """Set or clear these bits."""
        byte, bit = np.asarray(at) >> 3, _bit_mask(np.asarray(at))
        if value:
            np.bitwise_or.at(self.packed, byte, bit)
        else:
            np.bitwise_and.at(self.packed, byte, ~bit)
        for piece in np.flatnonzero(np.bincount(np.atleast_1d(at) // _PIECE)).tolist():
            self._hashes.pop(piece, None)

    def copy(self) -> "Bits":
        """Return a copy."""
        bits = Bits(self.packed.copy(), self.size)
        bits._hashes = self._hashes.copy()
        return bits

    def grow(self, size: int) -> "Bits":
        """Return the same bits, followed by zeros up to ``size``."""
        bits = Bits.zeros(size)
        bits.packed[: len(self.packed)] = self.packed
        bits._hashes = {k: known for k, known in self._hashes.items() if (k + 1) * _PIECE <= self.size}
        return bits

    def count(self) -> int:
        """Return how many bits are set."""
        return int(np.bitwise_count(self.packed).sum(dtype=np.int64))

    def hashes(self) -> list[bytes]:
        """Return a hash of each piece of 65,536 bits."""
        for k in range(-(-self.size // _PIECE)):
            if k not in self._hashes:
                self._hashes[k] = _hash(self.packed[k * _PIECE // 8 : (k + 1) * _PIECE // 8])
        return [self._hashes[k] for k in range(-(-self.size // _PIECE))]


def _bit_mask(at: NDArray[Any]) -> Bytes:
    """Return the mask of each bit within its byte."""
    bit: Bytes = np.uint8(128) >> (at & 7).astype(np.uint8)
    return bit


Live: TypeAlias = Any  # which slots have a row: an array of booleans, or Bits


def count_set(live: Live) -> int:
    """Count the slots that have a row."""
    return live.count() if isinstance(live, Bits) else int(np.count_nonzero(live))


def hash_slots(live: Live) -> bytes:
    """Return SHA-256 over the hashes of pieces of 65,536 slots, ignoring empty slots at the end."""
    hashes = (live if isinstance(live, Bits) else Bits(np.packbits(live), len(live))).hashes()
    while hashes and hashes[-1] == _EMPTY_HASH:
        hashes.pop()
    return hashlib.sha256(b"".join(hashes)).digest()


def _hash(packed: Bytes) -> bytes:
    """Hash a piece, without the empty bytes at its end."""
    return hashlib.sha256(packed.tobytes().rstrip(b"\0")).digest()


_EMPTY_HASH = hashlib.sha256(b"").digest()
