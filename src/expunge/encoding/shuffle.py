"""Shuffle: keyed permutations of 0 .. n - 1 of which any part can be computed by itself, forwards and backwards.

Each is a Feistel network on pairs of numbers (Black and Rogaway 2002, generalised Feistel): x = L * b + R with L < a
and R < b, a * b hardly more than n. A round adds a keyed hash of one half to the other, modulo its size; what falls
beyond n - 1 goes through it again. A shuffle is no cipher: it hides an order from those who do not see its results.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..exact.native import kernels
from .randomness import DEAL, Key, words

Words: TypeAlias = NDArray[np.uint64]
Sizes: TypeAlias = Words | np.uint64

_ROUNDS = 20  # with which all orders of few numbers are equally likely, as far as a million draws tell
_KINDS = 3
ODD = np.uint64(0x9E3779B97F4A7C15)
MIX = tuple(np.uint64(odd) for odd in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))  # of SplitMix64's finaliser
SHIFTS = tuple(np.uint64(shift) for shift in (30, 27, 31))
_HALF = np.uint64(32)
_ONE = np.uint64(1)


@dataclass(frozen=True, eq=False)
class Shuffle:
    """The permutations of one key: one for each kind, tweak and size."""

    rounds: Words  # (20,)
    kinds: Words  # (3,)

    @classmethod
    def of(cls, key: Key) -> "Shuffle":
        """The permutations that a key gives."""
        drawn = words(key, DEAL, 0, _ROUNDS + _KINDS)
        return cls(drawn[:_ROUNDS], drawn[_ROUNDS:])

    def forward(self, kind: int, tweak: Sizes, size: Sizes, x: Words) -> Words:
        """Where each of these numbers, all below its size, goes."""
        return self._walked(kind, tweak, size, x, backward=False)

    def backward(self, kind: int, tweak: Sizes, size: Sizes, x: Words) -> Words:
        """Where each came from: the inverse of `forward`."""
        return self._walked(kind, tweak, size, x, backward=True)

    def _walked(self, kind: int, tweak: Sizes, size: Sizes, x: Words, *, backward: bool) -> Words:
        """Apply the network until a number is below its size again."""
        size, tweak = np.broadcast_to(size, x.shape), np.broadcast_to(tweak, x.shape)
        if (native := kernels()) is not None:
            moved: Words = native.shuffled(self.rounds, self.kinds[kind], tweak, size, x, backward)
            return moved
        hashed = mixed(tweak * ODD + self.kinds[kind])
        out = self._network(hashed, size, x, backward=backward)
        beyond = np.flatnonzero(out >= size)
        while len(beyond):
            out[beyond] = again = self._network(hashed[beyond], size[beyond], out[beyond], backward=backward)
            beyond = beyond[again >= size[beyond]]
        return out

    def _network(self, hashed: Words, size: Words, x: Words, *, backward: bool) -> Words:
        a = np.sqrt(size.astype(np.float64)).astype(np.uint64) + _ONE  # IEEE's square root: the same everywhere
        b = (size - _ONE) // a + _ONE
        sides, halves = (a, b), list(np.divmod(x, b))
        for k in range(_ROUNDS)[:: -1 if backward else 1]:
            one, other = k % 2, 1 - k % 2
            step = mixed(halves[other] * ODD + (hashed + self.rounds[k]))
            step = ((step >> _HALF) * sides[one]) >> _HALF
            moved = halves[one] + (sides[one] - step if backward else step)
            halves[one] = np.where(moved >= sides[one], moved - sides[one], moved)
        joined: Words = halves[0] * b + halves[1]
        return joined


def mixed(x: Any) -> Any:
    """Mix all bits of words, as the finaliser of SplitMix64 does (Steele, Lea and Flood 2014)."""
    for shift, odd in zip(SHIFTS, MIX, strict=False):
        x = (x ^ (x >> shift)) * odd
    return x ^ (x >> SHIFTS[-1])
