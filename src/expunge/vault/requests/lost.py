"""What an old copy of the folder has lost: the requests that the ledger knows and the copy does not, added up."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...exact.arrays import Slots, distinct
from ...stores.bits import Bits
from ..disk.people import as_bytes
from ..disk.segments import Hashes


@dataclass
class Lost:
    """The sum of requests that a folder has not seen, in their order; each adds itself with `Request.replay`.

    Erased rows are erased again. A corrected row is erased, too: the right values are gone, and the wrong ones must not
    come back. Added rows are missing, and their slots are never given out again. All rows that the copy has of people
    who were erased or corrected go, also those that the requests could not name: another copy had lost them.
    """

    live: Bits  # which slots have a row in the old copy
    erase: Bits = field(init=False)  # which of them go
    people: set[bytes] = field(default_factory=set)  # keyed hashes of the ids that were erased or corrected
    bury: dict[bytes, int] = field(default_factory=dict)  # hash of an id -> the request whose certificate says so
    drop: set[bytes] = field(default_factory=set)  # their rows go, and they may come again
    free: set[bytes] = field(default_factory=set)  # readmitted
    bounds: dict[str, tuple[str, str]] = field(default_factory=dict)  # column -> low and high, as text
    drawn: int = 0
    missing: int = 0

    def __post_init__(self) -> None:
        self.erase = Bits.zeros(len(self.live))

    def erased(self, slots: Slots) -> int:
        """Take rows that were erased; return how many of them the copy never had: they were added and erased since."""
        gone = distinct(slots)
        here = gone[gone < len(self.live)]
        here = here[self.live[here]]
        self.erase[here] = True
        return len(gone) - len(here)

    def buried(self, hashes: Hashes, by: Iterable[int]) -> None:
        """Take people who were erased, and by which requests."""
        who = as_bytes(hashes)
        self.bury.update(zip(who, by, strict=True))
        self.drop.difference_update(who)

    def dropped(self, hashes: Hashes) -> None:
        """Take people whose rows go and who may come again."""
        self.drop.update(one for one in as_bytes(hashes) if one not in self.bury)

    def freed(self, hashes: Hashes) -> None:
        """Take people who were readmitted."""
        for one in as_bytes(hashes):
            self.bury.pop(one, None)
            self.drop.add(one)
            self.free.add(one)
