"""Randomness: seeds in, draws out.

Draws that must be the same for ever (which row gets which slot) use the raw words of Philox, a counter-based generator
defined by its publication (Salmon et al. 2011), not by a NumPy release. All other draws are made once, at fit, and
stored.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting
from ..exact.native import kernels

Seed: TypeAlias = int | np.integer | np.random.Generator | np.random.RandomState | None
Key: TypeAlias = NDArray[np.uint64]  # (2,)

DEAL, SEEDS, CALIBRATION = range(3)  # the streams of a model's key: slots, learners' seeds, calibration rows


def as_generator(seed: Seed) -> np.random.Generator:
    """Turn a ``random_state``, as in scikit-learn, into a Generator."""
    if isinstance(seed, np.random.RandomState):
        return np.random.default_rng(seed.randint(0, 2**32, size=4, dtype=np.uint32))
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise InvalidSetting(
            f"random_state must be None, a whole number >= 0 or a NumPy generator, got {seed!r}"
        ) from None


def draw_key(rng: np.random.Generator) -> Key:
    """Draw the 128-bit key that the slots depend on."""
    return rng.integers(0, 2**64, size=2, dtype=np.uint64)


def random_words(key: Key, stream: int, start: int, count: int) -> NDArray[np.uint64]:
    """Return words ``start .. start + count - 1`` of an endless keyed sequence, at the cost of these words alone."""
    first, skip = divmod(start, 4)  # Philox makes four words per counter
    philox = np.random.Philox(key=key, counter=[first, 0, 0, stream])
    return philox.random_raw(skip + count)[skip:]


def derive_seed(key: Key, stream: int, position: int) -> int:
    """Return a seed below 2**31, as scikit-learn takes as ``random_state``, for this position."""
    return int(random_words(key, stream, position, 1)[0] >> np.uint64(33))


Words: TypeAlias = NDArray[np.uint64]
Sizes: TypeAlias = Words | np.uint64

_ROUNDS = 20  # with these all orders of few numbers are equally likely, as far as a million draws show
_KINDS = 3
ODD = np.uint64(0x9E3779B97F4A7C15)
MIX = tuple(np.uint64(odd) for odd in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))  # of SplitMix64's finaliser
SHIFTS = tuple(np.uint64(shift) for shift in (30, 27, 31))
_HALF = np.uint64(32)
_ONE = np.uint64(1)


@dataclass(frozen=True, eq=False)
class Shuffle:
    """Keyed permutations of 0 .. n - 1, one for each kind, tweak and size n.

    Any part of one can be computed by itself, forwards and backwards. Each is a Feistel network on pairs of numbers
    (Black and Rogaway 2002, generalised Feistel): x = L * b + R with L < a and R < b, a * b hardly more than n. A round
    adds a keyed hash of one half to the other, modulo its size; a result beyond n - 1 goes through the network again.
    A shuffle is not a cipher: it hides an order from those who do not see its results.
    """

    rounds: Words  # (20,)
    kinds: Words  # (3,)

    @classmethod
    def from_key(cls, key: Key) -> "Shuffle":
        """Make the permutations of a key."""
        drawn = random_words(key, DEAL, 0, _ROUNDS + _KINDS)
        return cls(drawn[:_ROUNDS], drawn[_ROUNDS:])

    def forward(self, kind: int, tweak: Sizes, size: Sizes, x: Words) -> Words:
        """Return where each of these numbers, all below their sizes, is moved."""
        return self._walk(kind, tweak, size, x, backward=False)

    def backward(self, kind: int, tweak: Sizes, size: Sizes, x: Words) -> Words:
        """Return where each number came from: the inverse of `forward`."""
        return self._walk(kind, tweak, size, x, backward=True)

    def _walk(self, kind: int, tweak: Sizes, size: Sizes, x: Words, *, backward: bool) -> Words:
        """Apply the network until a number is below its size again."""
        size, tweak = np.broadcast_to(size, x.shape), np.broadcast_to(tweak, x.shape)
        if (native := kernels()) is not None:
            moved: Words = native.shuffled(self.rounds, self.kinds[kind], tweak, size, x, backward)
            return moved
        hashed = mix_bits(tweak * ODD + self.kinds[kind])
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
            half, other = k % 2, 1 - k % 2
            step = mix_bits(halves[other] * ODD + (hashed + self.rounds[k]))
            step = ((step >> _HALF) * sides[half]) >> _HALF
            moved = halves[half] + (sides[half] - step if backward else step)
            halves[half] = np.where(moved >= sides[half], moved - sides[half], moved)
        joined: Words = halves[0] * b + halves[1]
        return joined


def mix_bits(x: Any) -> Any:
    """Mix all bits of words, as the finaliser of SplitMix64 does (Steele, Lea and Flood 2014)."""
    for shift, odd in zip(SHIFTS, MIX, strict=False):
        x = (x ^ (x >> shift)) * odd
    return x ^ (x >> SHIFTS[-1])
