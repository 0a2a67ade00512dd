"""Calibration rows: the few rows from which probabilities are calibrated, chosen by a keyed hash of their slots.

The choice depends on nothing but the surviving rows' slots, classes and owners. When a row is erased, the row with the
next hash takes its place. `CalibrationPool` keeps the smallest hashes of each class at hand, so that forgetting a row
does not look at all the others.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..encoding.randomness import CALIBRATION, ODD, Key, Words, mix_bits, random_words
from ..exact.arrays import Floats, Integers, Slots, isin

CALIBRATION_ROWS = 2_000  # m


class CalibrationRows(NamedTuple):
    """The chosen rows, sorted by slot."""

    slots: Slots  # (m,)
    classes: Integers  # (m,)
    weights: Floats  # (m,), n_k / m_k: how many rows of its class each stands for


class _Candidates(NamedTuple):
    """The rows of one class with the smallest hashes, sorted by hash."""

    slots: Slots
    hashes: Words
    complete: bool  # whether these are all rows of the class


@dataclass(frozen=True, eq=False)
class CalibrationPool:
    """The candidates of each class: twice as many as can be chosen, or all of them."""

    candidates: tuple[_Candidates, ...]  # (K,)

    @classmethod
    def scan(cls, key: Key, slots: Slots, classes: Integers, people: Integers | None) -> Self:
        """Look at all rows: their slots, classes and, if a person can have several, the number of each row's person.

        Of a person's rows only the one with the smallest hash is a candidate.
        """
        hashes = mix_bits(slots.astype(np.uint64) * ODD + random_words(key, CALIBRATION, 0, 1)[0])  # all distinct
        if people is not None:
            order = np.lexsort((hashes, people))
            first = order[np.diff(people[order], prepend=-1) != 0]
            slots, classes, hashes = slots[first], classes[first], hashes[first]
        count = int(classes.max(initial=-1)) + 1
        return cls(tuple(_smallest(slots[mine], hashes[mine]) for mine in (classes == k for k in range(count))))

    def without(self, slots: Slots) -> Self:
        """Return the pool without erased rows."""
        left = []
        for those in self.candidates:
            kept = ~isin(those.slots, slots) if len(those.slots) else np.zeros(0, dtype=np.bool_)
            left.append(_Candidates(those.slots[kept], those.hashes[kept], those.complete))
        return type(self)(tuple(left))

    def choose(self, counts: NDArray[np.int64]) -> CalibrationRows | None:
        """Choose the calibration rows; None if too few candidates are left: scan again.

        Of K classes that have rows, each gives its m / 2K smallest hashes, and the smallest of all others follow up to
        m. ``counts`` are the rows of each class.
        """
        present = [k for k, those in enumerate(self.candidates) if len(those.slots) or not those.complete]
        quota = CALIBRATION_ROWS // (2 * max(1, len(present)))
        chosen = {k: min(quota, len(self.candidates[k].slots)) for k in present}
        rest = np.concatenate([np.zeros(0, np.uint64), *(self.candidates[k].hashes[chosen[k] :] for k in present)])
        more = min(len(rest), CALIBRATION_ROWS - sum(chosen.values()))
        if more:
            last = np.partition(rest, more - 1)[more - 1]
            chosen = {
                k: max(chosen[k], int(np.searchsorted(self.candidates[k].hashes, last, "right"))) for k in present
            }
        if any(chosen[k] == len(self.candidates[k].slots) and not self.candidates[k].complete for k in present):
            return None
        slots = np.concatenate([np.zeros(0, np.int64), *(self.candidates[k].slots[: chosen[k]] for k in present)])
        classes = np.repeat(np.array(present, dtype=np.int64), [chosen[k] for k in present])
        weights = np.repeat([counts[k] / max(1, chosen[k]) for k in present], [chosen[k] for k in present])
        order = np.argsort(slots)
        return CalibrationRows(slots[order], classes[order], weights[order])


def _smallest(slots: Slots, hashes: Words) -> _Candidates:
    most = 2 * CALIBRATION_ROWS
    complete = len(hashes) <= most
    if not complete:
        few = np.argpartition(hashes, most)[:most]
        slots, hashes = slots[few], hashes[few]
    order = np.argsort(hashes)
    return _Candidates(slots[order], hashes[order], complete)
