"""Randomness: seeds in, draws out.

Draws that must come out the same for ever (who gets which slot) use the raw words of Philox, a counter-based
generator fixed by its publication (Salmon et al. 2011), not by a NumPy release. All other draws are made once, at fit,
and stored.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidSetting

Seed: TypeAlias = int | np.integer | np.random.Generator | np.random.RandomState | None
Key: TypeAlias = NDArray[np.uint64]  # (2,)

DEAL, SEEDS = range(2)  # the streams of a model's key: slots, learners' seeds


def as_generator(seed: Seed) -> np.random.Generator:
    """Turn what scikit-learn calls a ``random_state`` into a Generator."""
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


def words(key: Key, stream: int, start: int, count: int) -> NDArray[np.uint64]:
    """Words ``start .. start + count - 1`` of an endless keyed sequence: any part of it at the cost of that part."""
    first, skip = divmod(start, 4)  # Philox makes four words per counter
    philox = np.random.Philox(key=key, counter=[first, 0, 0, stream])
    return philox.random_raw(skip + count)[skip:]


def derived_seed(key: Key, stream: int, position: int) -> int:
    """A seed below 2**31 for position ``position``: what scikit-learn takes as ``random_state``."""
    return int(words(key, stream, position, 1)[0] >> np.uint64(33))
