"""What every store answers: a learner's coded rows, and those that a change touches, before and after it.

A store changes only in the function that `prepare` returns, which does nothing but plain stores and may be called
twice: whoever is interrupted calls it again.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..encoding.encoder import Encoder
from ..exact.arrays import WHOLE, Floats, Part, Slots
from ..exact.moments import Moments
from .bits import Live
from .change import Change

if TYPE_CHECKING:
    from .rows import Rows

T = TypeVar("T", bound=np.generic)

# X, y, live and the first slot of the stripe; if that is -1, X and y have the rows of the learner's lanes alone, and
# live says which of these lanes have one.
Stripe: TypeAlias = tuple[Floats, Floats, NDArray[np.bool_], int]


@dataclass(frozen=True, eq=False)
class CodedBlock:
    """A few coded rows of one learner; those without any row in them are left out."""

    stripes: NDArray[np.intp]  # (m,)
    rows: Floats  # (m, width) integers in floats
    members: int  # how many rows are in them

    @classmethod
    def of(cls, stripes: NDArray[np.intp], coded: Floats, live: NDArray[np.bool_]) -> "CodedBlock":
        """Coded rows of these stripes, and which of the feeding lanes have a row: (m, width), (m, L)."""
        members = int(np.count_nonzero(live))
        if members < live.size:
            filled = live.any(axis=1)
            stripes, coded = stripes[filled], coded[filled]
        return cls(stripes, coded, members)


class Store(Protocol):
    """What is kept of the rows."""

    live: Live  # (slots,): which slots have a row; the slots fill whole stripes

    def shard(
        self, encoder: Encoder, learner: int, change: Change | None = None, part: Part = WHOLE
    ) -> Iterator[CodedBlock]:
        """A learner's coded rows, as they are or as they will be after a change."""

    def touched(
        self, encoder: Encoder, learner: int, change: Change, part: Part = WHOLE
    ) -> Iterator[tuple[CodedBlock, CodedBlock]]:
        """The coded rows that a change touches, before and after it."""

    def stripe(self, encoder: Encoder, learner: int, slot: int) -> Stripe | None:
        """The rows that share a coded row of a learner with this slot, for its native column; None if none are kept."""

    def table(self, encoder: Encoder) -> tuple[Floats, Floats, Live] | None:
        """X, y and live, for a native column to read all rows of a learner where they lie; None if it cannot."""

    def at_once(self, encoder: Encoder) -> int | None:
        """Stripes whose rows are best read together, for all learners; None if each learner may read its own."""

    def summed(self, encoder: Encoder, stripes: range, change: Change | None) -> list[Moments] | None:
        """The moments of every learner over stripes, if others compute them; after a change in order, if any."""

    def stripes(self, shards: int, stripes: range, change: Change | None = None) -> "Rows":
        """The rows of some stripes, as they are or as they will be after a change in order, in memory."""

    def prepare(self, encoder: Encoder, change: Change) -> Callable[[], None]:
        """Get ready to carry out a change; the function returned does it, and may be called twice."""

    def grown(self, slots: int) -> Self:
        """A copy with room for more slots."""

    def located(self, slots: Slots, group: NDArray[np.intp], Z: Floats) -> Slots:
        """The slot of each row that is brought along as integers, given the slots of its group in order of arrival."""

    def as_rows(self) -> "Rows":
        """The rows themselves; a store that keeps none refuses."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is kept, by name, for a file."""


def coded_floats(encoder: Encoder, shard: Iterable[CodedBlock]) -> tuple[Floats, Floats]:
    """A learner's coded rows and targets in the units of scaled rows: (m, n_weights), (m, t)."""
    coded = np.concatenate([np.empty((0, encoder.width)), *(block.rows for block in shard)])
    coded *= 2.0**-encoder.bits
    X, y = np.split(coded, [encoder.n_weights], axis=1)
    return X.copy(), y.copy()


def padded(array: NDArray[T], rows: int) -> NDArray[T]:
    """The array with zero rows added up to ``rows``."""
    out = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    out[: len(array)] = array
    return out
